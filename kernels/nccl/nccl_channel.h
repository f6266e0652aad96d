/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_channel.h - a communicator with a stream of its own, and the calls that wait for it. */
/*
 * Nothing here blocks. A call goes through these states when the channel is asked to move on:
 *
 *   QUEUED -> STARTING -> RUNNING -> done
 *             NCCL takes  an event stands after it in the stream
 *             the call
 *
 * The communicator is joined when the first call asks for it. One rank alone has none, and copies.
 */
#ifndef DCPK_KERNELS_NCCL_NCCL_CHANNEL_H
#define DCPK_KERNELS_NCCL_NCCL_CHANNEL_H

#include <nccl.h>
#include <stdbool.h>

#include "kernels/cuda/cuda_driver.h"
#include "lib/base/error.h"
#include "lib/device/collectives.h"

/* ---- NCCL, loaded when it is asked for (nccl_library.c) ---- */

#define NCCL_JOIN_SECONDS 120 /* ranks arrive, and NCCL finds its way between them */

/* Priority of streams: kernels that pack and unpack would take all multiprocessors first. */
#define NCCL_PRIORITY (-1)

/* name of the member, function. */
#define NCCL_CALLS(CALL)                                                                           \
    CALL(get_unique_id, ncclGetUniqueId)                                                           \
    CALL(init, ncclCommInitRankConfig)                                                             \
    CALL(async_error, ncclCommGetAsyncError)                                                       \
    CALL(group_start, ncclGroupStart)                                                              \
    CALL(group_end, ncclGroupEnd)                                                                  \
    CALL(send, ncclSend)                                                                           \
    CALL(receive, ncclRecv)                                                                        \
    CALL(all_gather, ncclAllGather)                                                                \
    CALL(all_reduce, ncclAllReduce)                                                                \
    CALL(reduce_scatter, ncclReduceScatter)                                                        \
    CALL(broadcast, ncclBroadcast)                                                                 \
    CALL(abort, ncclCommAbort)                                                                     \
    CALL(get_version, ncclGetVersion)                                                              \
    CALL(error_string, ncclGetErrorString)                                                         \
    CALL(last_error, ncclGetLastError)

/* Later functions, which the header of an older NCCL does not declare. Windows are pointers. */
#define NCCL_MEMORY_RELEASE   "2.19"
#define NCCL_WINDOW_SHOWS     NCCL_VERSION(2, 28, 0) /* from then on a window shows what it is */
#define NCCL_WINDOW_SYMMETRIC 0x01                   /* <nccl.h>: NCCL_WIN_COLL_SYMMETRIC */

/* A value. */
struct nccl {
#define NCCL_MEMBER(name, function) __typeof__(function) *name;
    NCCL_CALLS(NCCL_MEMBER)
#undef NCCL_MEMBER
    /* Since 2.19; mem_alloc NULL: an older one. */
    ncclResult_t (*mem_alloc)(void **at, size_t n_bytes);
    ncclResult_t (*mem_free)(void *at);
    ncclResult_t (*comm_register)(ncclComm_t comm, void *at, size_t n_bytes, void **handle);
    ncclResult_t (*comm_deregister)(ncclComm_t comm, void *handle);
    /* Since 2.27; window_register NULL: an older one. */
    ncclResult_t (*window_register)(ncclComm_t comm, void *at, size_t n_bytes, void **window,
                                    int flags);
    ncclResult_t (*window_deregister)(ncclComm_t comm, void *window);
};

/* The copy that is in the process comes first: two of them in one process disturb each other. It is
 * never unloaded, as it starts threads. Errors: DCPK_EUNSUPPORTED with the reason. */
dcpk_status dcpk_nccl_load(struct nccl *nccl, struct dcpk_error *err);

/* The configuration of communicators that never block: after a call they are asked whether they are
 * done. */
ncclConfig_t dcpk_nccl_config(void);

/* DCPK_EIO with NCCL's reason, unless all is well, or still under way. comm: may be NULL. */
dcpk_status dcpk_nccl_check(const struct nccl *nccl, ncclComm_t comm, ncclResult_t result,
                            const char *doing, struct dcpk_error *err);

/* Sets *done if the last request to the communicator has come to its end. */
dcpk_status dcpk_nccl_poll(const struct nccl *nccl, ncclComm_t comm, bool *done,
                           struct dcpk_error *err);

enum nccl_call_kind {
    NCCL_CALL_ALL_GATHER,
    NCCL_CALL_ALL_REDUCE,
    NCCL_CALL_REDUCE_SCATTER,
    NCCL_CALL_ALL_TO_ALL,
    NCCL_CALL_BROADCAST,
    NCCL_CALL_SEND,
    NCCL_CALL_RECEIVE,
    NCCL_CALL_REGISTER,
    NCCL_CALL_REGISTER_WINDOW,
};

enum nccl_call_phase { NCCL_CALL_FREE, NCCL_CALL_QUEUED, NCCL_CALL_STARTING, NCCL_CALL_RUNNING };

struct nccl_call {
    enum nccl_call_kind kind;
    enum nccl_call_phase phase;
    uint64_t number;      /* calls of a channel start in the order of their numbers */
    CUevent begun, event; /* begun NULL: the call is not timed */
    const uint8_t *from;
    uint8_t *to;
    size_t n; /* elements, of a rank where each has as many; bytes to register */
    enum dcpk_reduction reduction;
    int peer;      /* root, receiver, sender */
    size_t *parts; /* all to all: bytes to each rank, then from each; owned */
    void **handle; /* of what is registered: set when the call is done */
};

/* The GPU and the libraries, the same for all channels of a group. */
struct nccl_device {
    struct cuda_driver driver;
    struct nccl nccl;
    CUdevice device;
    CUcontext context; /* the device's primary one */
};

struct nccl_channel {
    const struct nccl_device *device; /* borrowed */
    int rank, n_ranks;
    ncclUniqueId id;
    ncclComm_t comm; /* NULL: not asked for yet, or aborted */
    bool is_joined;
    CUstream stream;
    struct nccl_call **calls; /* each owned: they stay where they are */
    size_t n_calls, capacity;
    uint64_t n_numbers;
    struct dcpk_busy *const *busy; /* that of the group, which may change */
};

/* Put a copy of `call` in the queue. *number: which of the channel's calls it is, until it is done.
 * Takes call->parts, also when it fails. In the device's context, as all that follows. */
dcpk_status dcpk_nccl_channel_add(struct nccl_channel *c, const struct nccl_call *call,
                                  size_t *number, struct dcpk_error *err);
/* Move on whatever can. Errors: DCPK_EIO: the channel is only good for close. */
dcpk_status dcpk_nccl_channel_pump(struct nccl_channel *c, struct dcpk_error *err);
/* Sets *done if the call is done. It is forgotten then. */
dcpk_status dcpk_nccl_channel_poll(struct nccl_channel *c, size_t number, bool *done,
                                   struct dcpk_error *err);
/* Aborts what is under way; a zeroed one is a no-op. */
void dcpk_nccl_channel_close(struct nccl_channel *c);

#endif

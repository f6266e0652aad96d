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

#include "kernels/cuda/cuda_driver.h"
#include "kernels/nccl/nccl_library.h"
#include "lib/device/collectives.h"

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

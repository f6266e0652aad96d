/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_library.h - NCCL's functions, loaded when they are asked for, and its errors. */
#ifndef DCPK_KERNELS_NCCL_NCCL_LIBRARY_H
#define DCPK_KERNELS_NCCL_NCCL_LIBRARY_H

#include <nccl.h>
#include <stdbool.h>

#include "lib/base/error.h"

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

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* collectives.h - what carries the tensors of a training step between ranks. A new way is a folder
 * in kernels/ and one row in kernels.c. */
#ifndef DCPK_LIB_DEVICE_COLLECTIVES_H
#define DCPK_LIB_DEVICE_COLLECTIVES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"
#include "lib/device/transport.h"

/* The operation of a reduction, element by element. Integers wrap modulo 2^64: the caller sees to
 * their range. The order in which floats are added is the library's. */
enum dcpk_reduction {
    DCPK_SUM_I64,
    DCPK_SUM_F32,
    DCPK_SUM_BF16,
    DCPK_SUM_F64,
    DCPK_MAX_F32,
    DCPK_MAX_F64,
};

/* Bytes of one element of a reduction. */
size_t dcpk_reduction_bytes(enum dcpk_reduction reduction);

/* Seconds that gathers, and reductions, took on streams of their own, from the turn of a call to
 * its end: what ranks wait for one another is in it. */
struct dcpk_busy {
    double gather, reduce;
};

/* How a library knows memory that its calls use: not in advance, by this rank alone, or by all
 * ranks of a group, which then reach each other's at the same place (NCCL's symmetric windows). */
enum dcpk_registration { DCPK_NOT_REGISTERED, DCPK_REGISTERED_LOCALLY, DCPK_REGISTERED_WINDOW };

struct dcpk_collectives;

/* Some ranks of a job, in an order of their own, as one of them sees them. Made by world or split,
 * which may keep more after it. */
struct dcpk_group {
    const struct dcpk_collectives *by;
    int rank, n_ranks;
    int timeout_ms; /* as in struct dcpk_comm */
    /* Calls that end add to it, where they have a stream of their own (nccl). Borrowed; set
     * before the first call and not changed. NULL: they are not timed. */
    struct dcpk_busy *busy;
};

/* Messages to, or from, each rank of a group: n_bytes[r] for rank r, one after the other. */
struct dcpk_parts {
    void *at; /* read only where they are sent */
    const size_t *n_bytes;
};

/*
 * Every call is collective over the group but send and receive, and all ranks make them in the same
 * order. Memory: host memory, or the device's where `is_device`; send and result must not meet
 * unless a comment allows it.
 *
 * ticket: NULL, and the call returns when its result is there; else the call may return at once,
 * memory stays untouched until `wait` of *ticket, which ends it. Tickets of a group are waited for
 * in any order, each exactly once, also after a failure of another. Errors: DCPK_EIO with the
 * library's reason, or where a rank does not come in time: it may then still write into the memory
 * of the call, and this process has to end; DCPK_ENOMEM.
 */
struct dcpk_collectives {
    const char *name, *summary;
    bool is_device; /* moves memory of a GPU (nccl), else host memory */
    /* Collective over all ranks of `comm`, which is borrowed until the group is freed. comm NULL: a
     * group of this process alone. ordinal: where is_device, the GPU whose memory is moved. Errors:
     * DCPK_EUNSUPPORTED with the reason, where the library or the GPU is not there. */
    dcpk_status (*world)(struct dcpk_comm *comm, int ordinal, struct dcpk_group **world,
                         struct dcpk_error *err);
    /* Collective over `of`: one group for each colour, ranks ordered by their rank in `of`. Two
     * calls with the same colours give two groups whose calls do not wait for each other. */
    dcpk_status (*split)(struct dcpk_group *of, int colour, struct dcpk_group **group,
                         struct dcpk_error *err);
    /* After an agreement that the calls of all its ranks are done: it may break off others'. In a
     * process that ends by a failure, at any time. NULL is a no-op. */
    void (*free)(struct dcpk_group *group);

    /* n_bytes of each rank, in rank order, into `all`; mine may lie at its place in `all`. */
    dcpk_status (*all_gather)(struct dcpk_group *group, const void *mine, size_t n_bytes, void *all,
                              uint64_t *ticket, struct dcpk_error *err);
    /* all: n elements, replaced by the reduction over all ranks. */
    dcpk_status (*all_reduce)(struct dcpk_group *group, enum dcpk_reduction reduction, void *all,
                              size_t n, uint64_t *ticket, struct dcpk_error *err);
    /* all: n elements for each rank; the r-th n become the reduction of the r-th n of every rank
     * at rank r, the others are undefined afterwards. */
    dcpk_status (*reduce_scatter)(struct dcpk_group *group, enum dcpk_reduction reduction,
                                  void *all, size_t n, uint64_t *ticket, struct dcpk_error *err);
    /* Part r of what rank s sends becomes part s of what rank r receives; both know its size. */
    dcpk_status (*all_to_all)(struct dcpk_group *group, const struct dcpk_parts *send,
                              const struct dcpk_parts *receive, uint64_t *ticket,
                              struct dcpk_error *err);
    dcpk_status (*broadcast)(struct dcpk_group *group, int root, void *data, size_t n_bytes,
                             uint64_t *ticket, struct dcpk_error *err);
    /* Messages between two ranks stay in order; the receiver knows their size. Never to itself. */
    dcpk_status (*send)(struct dcpk_group *group, int to, const void *data, size_t n_bytes,
                        uint64_t *ticket, struct dcpk_error *err);
    dcpk_status (*receive)(struct dcpk_group *group, int from, void *data, size_t n_bytes,
                           uint64_t *ticket, struct dcpk_error *err);
    dcpk_status (*wait)(struct dcpk_group *group, uint64_t ticket, struct dcpk_error *err);

    /*
     * User buffers: memory that the library can know in advance. All four NULL: there are none.
     * Memory belongs to the library, not to a group: any group of the same ordinal may use,
     * register and free it. Errors: DCPK_EUNSUPPORTED with the reason where the library has none;
     * DCPK_ENOMEM.
     */
    dcpk_status (*buffer_alloc)(struct dcpk_group *group, size_t n_bytes, void **at,
                                struct dcpk_error *err);
    void (*buffer_free)(struct dcpk_group *group, void *at); /* registered nowhere; NULL: no-op */
    /*
     * Register memory of buffer_alloc, all n_bytes of it, for the calls of one group. by: a window
     * is collective over the group, with buffers of equal sizes in one order; a local one is not.
     * *got: what became of it, which may be less than was asked for: then all ranks have to undo
     * what they have of a window. Errors: those of a call.
     */
    dcpk_status (*buffer_register)(struct dcpk_group *group, void *at, size_t n_bytes,
                                   enum dcpk_registration by, enum dcpk_registration *got,
                                   struct dcpk_error *err);
    /* Undo it, when no call of the group uses the memory; also where nothing was registered. */
    void (*buffer_unregister)(struct dcpk_group *group, void *at);
};

/* The functions of a row, named prefix_world and so on. */
#define DCPK_COLLECTIVES_FUNCTIONS(prefix)                                                         \
    .world = prefix##_world, .split = prefix##_split, .free = prefix##_free,                       \
    .all_gather = prefix##_all_gather, .all_reduce = prefix##_all_reduce,                          \
    .reduce_scatter = prefix##_reduce_scatter, .all_to_all = prefix##_all_to_all,                  \
    .broadcast = prefix##_broadcast, .send = prefix##_send, .receive = prefix##_receive,           \
    .wait = prefix##_wait

/* The row of a process that is alone: world(NULL) and its splits have one rank; all calls copy.
 * world of a comm: DCPK_EUNSUPPORTED where it has more ranks. */
extern const struct dcpk_collectives dcpk_collectives_alone;

#endif

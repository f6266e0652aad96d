/* SPDX-License-Identifier: Apache-2.0 */
/* transport.h - what a way to pass small messages between processes ("ranks") implements. A new one
 * is a folder in kernels/ and one row in kernels.c. */
#ifndef DCPK_LIB_DEVICE_TRANSPORT_H
#define DCPK_LIB_DEVICE_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"

/* The ranks of one job, as one of them sees it. Made by a transport's join, which may keep more
 * after it. */
struct dcpk_comm {
    const struct dcpk_transport *transport;
    int rank, n_ranks;
    /* The longest that a collective call waits, and a receive; it then fails, and so may all
     * further calls but abandon. 0: without end. A transport whose waits are not its own has their
     * limit; one between threads of a process has none (lib/exec/ranks.h). */
    int timeout_ms;
};

#define DCPK_ANY_RANK (-1)

/*
 * Errors are those of the network, DCPK_EIO with the library's reason. Calls of one rank must not
 * overlap, but may come from different threads.
 */
struct dcpk_transport {
    const char *name, *summary; /* of --version */
    /* Finds the library that join needs, and puts one line about it into version. Errors:
     * DCPK_EUSAGE with the reason. */
    dcpk_status (*find)(char *version, size_t n_bytes, struct dcpk_error *err);
    /* Collective over all ranks that a launcher started; comm is set on success only. */
    dcpk_status (*join)(struct dcpk_comm **comm, struct dcpk_error *err);
    /* Collective: n_bytes of every rank, in the order of ranks, into `all` of every rank. */
    dcpk_status (*all_gather)(struct dcpk_comm *comm, const void *mine, size_t n_bytes, void *all,
                              struct dcpk_error *err);
    /* Collective: `data` of `root` into `data` of all others. */
    dcpk_status (*broadcast)(struct dcpk_comm *comm, int root, void *data, size_t n_bytes,
                             struct dcpk_error *err);
    /* Send a message to another rank without waiting for it. Messages between two ranks stay in
     * order. */
    dcpk_status (*send)(struct dcpk_comm *comm, int to, uint64_t message, struct dcpk_error *err);
    /* Take the next message from rank *from; DCPK_ANY_RANK becomes the rank that sent it. *got is
     * false when there is none and `waits` is too. */
    dcpk_status (*receive)(struct dcpk_comm *comm, bool waits, bool *got, int *from,
                           uint64_t *message, struct dcpk_error *err);
    /* Collective. Frees comm. All messages must have been received. */
    void (*leave)(struct dcpk_comm *comm);
    /* Frees comm without waiting for the others. They may wait for this rank: this process must end
     * with an error then, upon which the launcher ends them. */
    void (*abandon)(struct dcpk_comm *comm);
};

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* link.h - bytes between ranks that cannot map each other's memory. kernels/ implements it;
 * "local", for ranks that are threads of one process, is the specification. */
#ifndef DCPK_LIB_DEVICE_LINK_H
#define DCPK_LIB_DEVICE_LINK_H

#include "lib/device/device.h"
#include "lib/device/transport.h"

/* n_bytes that go to a peer from `at`, or come from it to `at`. */
struct dcpk_message {
    int peer;
    void *at;
    size_t n_bytes; /* at least 1; the same on both sides */
};

/*
 * The messages that one rank sends and receives at once: at most one to and from each peer, never
 * itself. Both lists, and the memory of the messages, are borrowed until the exchange is done.
 */
struct dcpk_exchange {
    const struct dcpk_message *sends, *receives;
    size_t n_sends, n_receives;
};

struct dcpk_link_ops;

/* Made by `open`, which may keep more after it. One rank opens one and makes all calls on it from
 * one thread. */
struct dcpk_link {
    const struct dcpk_link_ops *ops;
    int rank, n_ranks;
    bool is_broken; /* an exchange has failed here: none may follow. The user of the link sets it */
};

struct dcpk_link_ops {
    const char *name, *summary;
    enum dcpk_memory_kind memory; /* that messages must lie in */
    size_t n_under_way;           /* exchanges that may be under way at a time: 1 or 2 */

    /* Collective over the ranks of comm. device: where messages lie. Both are borrowed until close.
     * Errors: DCPK_EUNSUPPORTED with the reason; DCPK_ENOMEM; DCPK_EIO. Where one rank fails others
     * may succeed. */
    dcpk_status (*open)(struct dcpk_comm *comm, struct dcpk_device *device, struct dcpk_link **link,
                        struct dcpk_error *err);
    /* Frees the link, without waiting for others. NULL is a no-op. */
    void (*close)(struct dcpk_link *link);

    /* Begin an exchange; all but n_under_way - 1 of those before must be done. All ranks begin the
     * same number of them, also those without messages. The data to send must be there already, in
     * memory that no queued work writes. Errors: DCPK_EIO; DCPK_ECANCELLED where another rank is
     * known to have given up. */
    dcpk_status (*begin)(struct dcpk_link *link, const struct dcpk_exchange *exchange,
                         struct dcpk_error *err);
    /* Sets *done if the oldest exchange under way is done. Never blocks. Errors: those of begin;
     * abort and close are left then. */
    dcpk_status (*poll)(struct dcpk_link *link, bool *done, struct dcpk_error *err);
    /* Give up: messages under way are lost. Others may hear of it at once, or when their own time
     * is over. */
    void (*abort)(struct dcpk_link *link);
};

/* The functions of a row, named prefix_open and so on. */
#define DCPK_LINK_FUNCTIONS(prefix)                                                                \
    .open = prefix##_open, .close = prefix##_close, .begin = prefix##_begin,                       \
    .poll = prefix##_poll, .abort = prefix##_abort

/* Poll until the oldest exchange is done. Errors: DCPK_EIO when that takes more than timeout_ms,
 * and those of poll; the link is then aborted. */
dcpk_status dcpk_link_wait(struct dcpk_link *link, int timeout_ms, struct dcpk_error *err);

/*
 * For `open`, collective, and without allocations: has every rank what it needs for the link
 * `name`? err: this rank's own, DCPK_OK where it has. A rank that has gets the status of the lowest
 * one that lacks something, and its reason. DCPK_EIO where the network broke: others may differ.
 */
dcpk_status dcpk_link_agree(struct dcpk_comm *comm, const char *name, struct dcpk_error *err);

#endif

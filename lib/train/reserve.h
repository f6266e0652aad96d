/* SPDX-License-Identifier: Apache-2.0 */
/* reserve.h - host memory that takes the copy of a rank's shards when a checkpoint is saved. */
/*
 * The first write to fresh memory waits for the system, which finds and clears each page. So a few
 * threads write to it first, a block at a time:
 *
 *   | block 0 | block 1 | block 2 | ..
 *
 * A run that saves asynchronously does that once, while it trains its first iterations, and
 * copies every checkpoint into the same memory. A GPU locks the pages besides, so that it writes to
 * them by itself.
 */
#ifndef DCPK_LIB_TRAIN_RESERVE_H
#define DCPK_LIB_TRAIN_RESERVE_H

#include "lib/device/device.h"

struct dcpk_reserve;

struct dcpk_reserve_options {
    struct dcpk_device *host;   /* of host memory, which others can import; borrowed until free */
    struct dcpk_device *device; /* locks it; borrowed until free; NULL: it is not locked */
    size_t n_bytes;
    size_t block_bytes; /* whole pages; 0: 256 MiB, tests take less */
    int n_threads;      /* that make the memory ready */
};

/*
 * Take the memory and start to make it ready, in the background. *reserve: dcpk_reserve_free.
 * Errors: DCPK_ENOMEM; DCPK_EIO where no thread can be started.
 */
dcpk_status dcpk_reserve_new(const struct dcpk_reserve_options *options,
                             struct dcpk_reserve **reserve, struct dcpk_error *err);
/* Waits for the threads. NULL is a no-op. */
void dcpk_reserve_free(struct dcpk_reserve *reserve);

/* Wait until the memory is ready, and may be written to. Errors: those of the threads, once. */
dcpk_status dcpk_reserve_wait(struct dcpk_reserve *reserve, struct dcpk_error *err);

/* Once it is ready: why the device could not lock it. The memory is good all the same, copies take
 * longer. NULL: it is locked, or need not be. Borrowed until free. */
const char *dcpk_reserve_unlocked(const struct dcpk_reserve *reserve);

/* Its first byte, and how many there are. */
uint8_t *dcpk_reserve_at(const struct dcpk_reserve *reserve);
size_t dcpk_reserve_bytes(const struct dcpk_reserve *reserve);

#endif

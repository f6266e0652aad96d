/* SPDX-License-Identifier: Apache-2.0 */
/* roofline_ring.h - blocks through an io_uring, for roofline: read, looked at, written.
 */
#ifndef DCPK_TESTS_BENCH_ROOFLINE_RING_H
#define DCPK_TESTS_BENCH_ROOFLINE_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What to move: n_blocks blocks of block_bytes, from `in` to the same place of `out`. */
struct ring_job {
    int in, out; /* open files; out -1: reading alone */
    uint8_t *const
        *buffers; /* n_buffers of block_bytes each, borrowed: so many blocks are under way */
    unsigned n_buffers;
    size_t block_bytes;
    uint64_t n_blocks;
    void (*between)(uint8_t *bytes, size_t n_bytes); /* on each block read; NULL: nothing */
};

/* Was it built with liburing, and does the kernel let this process have one? */
bool ring_is_there(void);

/* Move the blocks, in any order. Returns 0, or the errno of the first failure; a short read or
 * write is EIO. */
int ring_run(const struct ring_job *job);

#endif

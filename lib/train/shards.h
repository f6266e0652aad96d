/* SPDX-License-Identifier: Apache-2.0 */
/* shards.h - what a rank's optimizer updates: rows of parameters with their gradients and moments.
 * fsdp.h makes them; the optimizer, saving and resuming use them. */
/*
 *   bucket      | proj                        | norm | qkv                      | ...
 *   slices      |   rank 0      |   rank 1         |   rank 2      | ...
 *   rank 1                      | proj, its | norm, | qkv, its
 *                               | last rows | whole | first rows         three shards
 */
#ifndef DCPK_LIB_TRAIN_SHARDS_H
#define DCPK_LIB_TRAIN_SHARDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Rows [row, row + n_rows) of this rank's part of a parameter (params.h), row-major: n_elems fp32
 * numbers in each of the arrays, which are the ops' memory and stay where they are.
 *
 *   no_shard: all rows;  else the rows in this rank's slice of the parameter's flat bucket
 */
struct dcpk_train_shard {
    size_t param; /* index into the table of parameters */
    int64_t row, n_rows, n_elems;
    size_t bucket;       /* of this rank, from 0: shards of one bucket share a slice */
    int64_t slice_first; /* place in the rank's slice, in elements */
    float *main;         /* fp32 parameters */
    float *grad;         /* reduced and scaled, from dcpk_fsdp_finish to the next begin */
    float *exp_avg;      /* or SGD's momentum */
    float *exp_avg_sq;   /* NULL with SGD */
    /* Among all ranks that hold these rows (replicas over data parallelism, tensor-parallel copies,
     * a tied output layer), exactly one counts them in a norm or a hash, and writes them. */
    bool is_counted;
};

/* In the order of the table; none is empty. */
struct dcpk_train_shards {
    struct dcpk_train_shard *list;
    size_t n;
};

#endif

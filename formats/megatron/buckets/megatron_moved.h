/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_moved.h - which optimizer state core 0.15 to 0.19.2 stored under whose key, when they
 * saved buckets with padding as fully_reshardable. */
#ifndef DCPK_FORMATS_MEGATRON_BUCKETS_MEGATRON_MOVED_H
#define DCPK_FORMATS_MEGATRON_BUCKETS_MEGATRON_MOVED_H

#include "formats/megatron/buckets/megatron_bucket_layout.h"

/* Elements [at, at + n) of a part are stored as those of the part `from`, from `first` on. */
struct dcpk_moved_run {
    int64_t at, n;
    size_t from; /* DCPK_MOVED_LOST: they are stored nowhere */
    int64_t first;
    /* Under that key lie the elements of tensor-parallel rank 0, which may be others. */
    bool is_of_rank_0;
};
#define DCPK_MOVED_LOST SIZE_MAX

/* The runs of part i of a layout are runs[first_run[i] .. first_run[i + 1]), ascending; none where
 * another rank stores the parameter. In an arena. */
struct dcpk_moved {
    struct dcpk_moved_run *runs;
    size_t n_runs;
    size_t *first_run;
};

/*
 * Find where the elements of every part are. W is a buffer's state without the padding at the ends
 * of its buckets; Megatron cut W[start : end] out of it for each parameter, where start and end
 * count that padding (MC/optimizer/distrib_optimizer.py@0.19.0
 * sharded_param_state_fully_reshardable). Elements past the end of W became zeros. A parameter that
 * tensor parallelism does not cut is stored by rank 0 alone, a copy of an embedding not at all.
 * Errors: DCPK_ENOMEM.
 */
dcpk_status dcpk_moved_find(const struct dcpk_bucket_layout *layout, struct dcpk_arena *arena,
                            struct dcpk_moved *moved, struct dcpk_error *err);

#endif

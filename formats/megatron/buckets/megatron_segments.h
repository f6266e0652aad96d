/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_segments.h - what a tensor-parallel rank had of a tensor, as runs of stored chunks. */
#ifndef DCPK_FORMATS_MEGATRON_BUCKETS_MEGATRON_SEGMENTS_H
#define DCPK_FORMATS_MEGATRON_BUCKETS_MEGATRON_SEGMENTS_H

#include "formats/megatron/buckets/megatron_bucket_layout.h"
#include "formats/megatron/buckets/megatron_cut.h"
#include "lib/model/model.h"

/* A rank's part of a tensor: its block of each of the tensor's parts, one after the other. */
struct dcpk_rank_part {
    const struct dcpk_blocks *blocks;
    const struct dcpk_model_tensor *tensor;
    int64_t rank;
};
/* One of these blocks: elements [first, first + n) of the rank's. */
struct dcpk_rank_block {
    struct dcpk_box box;
    int64_t first, n;
};
/* The block that holds the rank's element `at`, which it has. Errors: DCPK_ERANGE. */
dcpk_status dcpk_rank_block_find(const struct dcpk_rank_part *part, int64_t at,
                                 struct dcpk_rank_block *block, struct dcpk_error *err);

/* Elements [at, at + n) of a rank's are elements of a stored chunk, from `first` on. */
struct dcpk_segment {
    int64_t at, n;
    size_t chunk;
    int64_t first;
};
/* Zeroed: empty. `list` is owned. */
struct dcpk_segments {
    struct dcpk_segment *list;
    size_t n, capacity;
};

/* The chunks of a checkpoint's stored tensors, findable by their first rows. */
struct dcpk_chunk_rows;
dcpk_status dcpk_chunk_rows_new(const struct dcpk_checkpoint *ckpt, struct dcpk_chunk_rows **rows,
                                struct dcpk_error *err);
void dcpk_chunk_rows_free(struct dcpk_chunk_rows *rows); /* NULL is a no-op */

/*
 * Finds a rank's part of a tensor, ascending and without a gap. Errors: DCPK_EUNSUPPORTED where its
 * elements do not follow each other in the chunks, as they do in those that Megatron writes.
 */
dcpk_status dcpk_segments_find(struct dcpk_segments *segments, const struct dcpk_model *model,
                               const struct dcpk_chunk_rows *rows,
                               const struct dcpk_rank_part *part, struct dcpk_error *err);

/* Elements of a rank's part, from `at` on. */
struct dcpk_rank_run {
    struct dcpk_rank_part part;
    int64_t at;
};
/*
 * Compares n elements of a weight, run[0], with those of a master, run[1], in fewer bits. n: at
 * least DCPK_MIN_AGREEING, which no chance brings about. Errors: DCPK_EUNSUPPORTED for encoded
 * chunks; those of reading.
 */
#define DCPK_MIN_AGREEING 16
dcpk_status dcpk_rank_runs_agree(struct dcpk_model *model, const struct dcpk_chunk_rows *rows,
                                 const struct dcpk_rank_run run[2], int64_t n, bool *agree,
                                 struct dcpk_error *err);

/* ---- state that was stored under other keys (megatron_moved.c) ---- */

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

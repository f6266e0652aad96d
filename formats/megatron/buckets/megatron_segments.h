/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_segments.h - what a tensor-parallel rank had of a tensor, as runs of stored chunks. */
#ifndef DCPK_FORMATS_MEGATRON_BUCKETS_MEGATRON_SEGMENTS_H
#define DCPK_FORMATS_MEGATRON_BUCKETS_MEGATRON_SEGMENTS_H

#include "formats/megatron/buckets/megatron_blocks.h"
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

/* Elements of what a rank has, from `at` on. */
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

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h - everything decided before a byte moves: chunks of every output tensor, their places,
 * their sources. */
#ifndef DCPK_LIB_PLAN_PLAN_H
#define DCPK_LIB_PLAN_PLAN_H

#include "lib/ckpt/output.h"
#include "lib/plan/box_tree.h"

#define DCPK_CHUNK_BYTES (64u << 20) /* row-aligned output chunks are at most this */

/*
 * The sources of one logical tensor's bytes: its pieces crossed with the source's chunks, findable
 * by box. Serves converting, hashing and comparing alike.
 */
struct dcpk_view {
    enum dcpk_dtype dtype; /* of the logical tensor; a source of another dtype is cast on the way */
    int rank;
    const int64_t *shape;
    const struct dcpk_piece *pieces;
    size_t n_pieces;
    const void *literal; /* instead of pieces */
    /* The pieces are a matrix of floats, and the view is that in blocks of fp8: its values, or its
     * scales. NULL: the pieces themselves. */
    const struct dcpk_fp8_blocks *blocks;
    /* The sources are float8_e4m3fn times scales, and the view has their steps (struct
     * dcpk_computed). */
    bool gives_steps;
};

/* True if two views, of one checkpoint or of two, have the same shape. */
bool dcpk_view_same_shape(const struct dcpk_view *a, const struct dcpk_view *b);

struct dcpk_model_tensor;
/* The view of a model's tensor, unchanged; borrows from the model. */
struct dcpk_view dcpk_model_view(const struct dcpk_model_tensor *tensor);

/* The view of a stored tensor as it is: one piece. `arena` holds the piece. */
dcpk_status dcpk_view_stored(const struct dcpk_checkpoint *ckpt, uint32_t tensor,
                             struct dcpk_arena *arena, struct dcpk_view *view,
                             struct dcpk_error *err);

/*
 * Find the views of one checkpoint that are the same elements of the same bytes, as further names
 * of a tensor are. first[i]: the first view that view i is the same as, i itself where there is
 * none before it. O(n log n): only views that begin with the same bytes are compared, neighbours of
 * them, so one may be missed. Fills and literals have no bytes to share.
 */
dcpk_status dcpk_views_fold(const struct dcpk_checkpoint *ckpt, const struct dcpk_view *views,
                            size_t n, size_t *first, struct dcpk_error *err);

/*
 * A tree over the pieces of a view, by where they land. For few pieces it takes no memory; release
 * it in any case.
 */
dcpk_status dcpk_piece_tree_build(const struct dcpk_view *view, struct dcpk_box_tree *tree,
                                  struct dcpk_error *err);

/*
 * An index of a checkpoint's chunks by box, so that "which chunks of tensor t meet this box" is
 * found without looking at all of them. Built once, O(n log n); then read-only and thread-safe.
 */
struct dcpk_chunk_index;
dcpk_status dcpk_chunk_index_new(const struct dcpk_checkpoint *ckpt,
                                 struct dcpk_chunk_index **index, struct dcpk_error *err);
void dcpk_chunk_index_free(struct dcpk_chunk_index *index); /* NULL is a no-op */
/*
 * Step through the chunks of `tensor` that share elements with `box`, in row-major order of their
 * offsets. *at: 0 to begin, moved on by each call. Returns the chunk, or NULL when there are no
 * more.
 */
const struct dcpk_chunk *dcpk_chunk_index_next(const struct dcpk_chunk_index *index,
                                               uint32_t tensor, const struct dcpk_box *box,
                                               size_t *at);

/*
 * Complete an output: check that the pieces of every tensor cover it exactly and lie inside their
 * sources, cut it into chunks (dcpk_row_chunks of DCPK_CHUNK_BYTES), let the format lay it out,
 * check that no two places overlap and all lie in their files. Pure: reads no tensor bytes, the
 * same input gives the same result.
 */
dcpk_status dcpk_plan_build(struct dcpk_output *out, struct dcpk_error *err);

/* Sums over a plan, aliases counted once. */
struct dcpk_plan_totals {
    uint64_t n_tensors, n_keys, n_chunks, n_objects, n_payloads, n_pieces, n_files;
    uint64_t tensor_bytes, file_bytes;
    uint64_t metadata_bytes; /* memory held by checkpoint, output and index */
};
void dcpk_plan_totals(const struct dcpk_output *out, struct dcpk_plan_totals *totals);

#endif

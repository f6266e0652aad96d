/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_flattened.c - optimizer tensors of core 0.8 to 0.15, stored as flattened blocks, seen in
 * their model's shape. */
/*
 * A tensor G of shape (G_0 .. G_{n-1}) was cut into F_0 x .. x F_{n-1} equal blocks (tensor
 * parallelism, SwiGLU halves, layers, experts), each flattened row-major and then cut among
 * data-parallel ranks anywhere. It is stored with the shape (F_0, .., F_{n-1}, m), m the elements
 * of a block; a chunk at (c_0, .., c_{n-1}, s) of sizes (1, .., 1, len) holds elements [s, s + len)
 * of block c. G = (4, 4), F = (1, 2), chunks of 3 and 5 elements in each block:
 *
 *     a a . .     c c . .
 *     a b         c d
 *     b b         d d
 *     b b         d d
 *
 * Source: formats/torch_dist/FORMAT.md 5.2;
 * megatron/core/dist_checkpointing/strategies/resharding.py@0.12.0.
 */
#include <string.h>

#include "formats/megatron/megatron_flatten.h"
#include "lib/base/alloc.h"
#include "lib/base/text.h"
#include "lib/model/model.h"

#define EXPERTS "mlp.experts.experts."

/* The extents of one block, `stored` being G cut evenly. */
static dcpk_status find_block(const struct dcpk_tensor *stored, const int64_t *shape, int rank,
                              struct dcpk_box *block, struct dcpk_error *err)
{
    char a[256], b[256];
    bool is_even = stored->rank == rank + 1;
    int64_t n_elems;

    memset(block, 0, sizeof *block);
    block->rank = rank;
    for (int axis = 0; axis < rank && is_even; axis++) {
        const int64_t n_blocks = stored->shape[axis];

        is_even = n_blocks > 0 && shape[axis] % n_blocks == 0;
        block->extent[axis] = 0;
        if (is_even)
            block->extent[axis] = shape[axis] / n_blocks;
    }
    if (is_even) {
        if (dcpk_box_count(block, &n_elems, err))
            return err->status;
        is_even = n_elems == stored->shape[rank];
    }
    if (!is_even)
        return dcpk_fail_fix(err, DCPK_EUNSUPPORTED, DCPK_FIX_WEIGHTS_ONLY,
                             "flattened optimizer state of shape %s is not an even cut of %s into "
                             "blocks",
                             dcpk_shape_format(stored->shape, stored->rank, a, sizeof a),
                             dcpk_shape_format(shape, rank, b, sizeof b));
    return DCPK_OK;
}

/* Put the run that a chunk holds into its block of the last view. */
static dcpk_status block_add_chunk(struct dcpk_checkpoint *ckpt, size_t chunk, int rank,
                                   const struct dcpk_box *size, struct dcpk_error *err)
{
    const int64_t *span = ckpt->chunks[chunk].span;
    struct dcpk_box block = *size, box;
    char text[256];

    for (int axis = 0; axis < rank; axis++) {
        if (span[rank + 1 + axis] != 1) {
            dcpk_box_unpack(span, rank + 1, &box);
            return dcpk_fail(err, DCPK_EUNSUPPORTED,
                             "chunk %s is not one flattened block, as Megatron writes them",
                             dcpk_box_format(&box, text, sizeof text));
        }
        block.offset[axis] = span[axis] * size->extent[axis];
    }
    return dcpk_checkpoint_add_run(ckpt, &block, span[rank], span[2 * rank + 1],
                                   (struct dcpk_chunk_run){chunk, 0}, err);
}

/* The runs of a view cover it: what a checkpoint's own tensors are checked for elsewhere. */
static dcpk_status check_cover(const struct dcpk_checkpoint *ckpt, const struct dcpk_tensor *view,
                               struct dcpk_error *err)
{
    const int64_t **spans = dcpk_alloc_array(view->n_chunks, sizeof *spans, err);

    if (spans == NULL)
        return err->status;
    for (size_t i = 0; i < view->n_chunks; i++)
        spans[i] = ckpt->chunks[view->first_chunk + i].span;
    if (dcpk_cover_check(view->shape, view->rank, spans, view->n_chunks, err))
        dcpk_context(err, "the flattened chunks, put together");
    dcpk_free(spans);
    return err->status;
}

dcpk_status dcpk_megatron_add_flattened(struct dcpk_checkpoint *ckpt, uint32_t source,
                                        const int64_t *shape, int rank, uint32_t *view,
                                        struct dcpk_error *err)
{
    const struct dcpk_tensor stored = ckpt->tensors[source]; /* the table may move */
    const struct dcpk_tensor made = {
        .key = stored.key, .dtype = stored.dtype, .rank = rank, .shape = shape};
    struct dcpk_box block;
    uint32_t index = 0;

    if (find_block(&stored, shape, rank, &block, err) ||
        dcpk_checkpoint_add_view(ckpt, &made, &index, err))
        return err->status;
    for (size_t i = 0; i < stored.n_chunks; i++)
        if (block_add_chunk(ckpt, stored.first_chunk + i, rank, &block, err))
            return err->status;
    if (check_cover(ckpt, &ckpt->tensors[index], err))
        return err->status;
    *view = index;
    return DCPK_OK;
}

bool dcpk_megatron_has_grouped_mlp(const struct dcpk_model *model)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(model->args);

    return dcpk_value_is_true(attrs, "moe_grouped_gemm") &&
           (dcpk_value_is_true(attrs, "moe_use_legacy_grouped_gemm") ||
            dcpk_value_is_str(dcpk_value_get(attrs, "transformer_impl"), "local"));
}

enum order {
    IN_ORDER,
    TRANSPOSED,
    NOT_KNOWN,
};

/*
 * GroupedMLP stored its experts' matrices transposed, but not their flattened state, and the starts
 * of the gated ones are wrong (formats/torch_dist/FORMAT.md 4.5): shape (.., a, b) where the weight
 * has (.., b, a). Where shapes leave it open, the cut decides: tensor parallelism and SwiGLU cut
 * fc1 along the weight's rows, fc2 along its columns. An expert that is not cut leaves the run's
 * options.
 */
static enum order expert_order(const struct dcpk_model *model, const struct dcpk_tensor *stored,
                               const struct dcpk_tensor *weight)
{
    const int64_t *shape = stored->model_shape;
    const int n = weight->rank;
    const char *experts = strstr(weight->key, EXPERTS);
    int cut;

    if (experts == NULL || !dcpk_ends_with(experts, ".weight") || n < 2 || stored->rank != n + 1)
        return IN_ORDER;
    if (shape != NULL) {
        if (stored->model_rank != n || shape[n - 1] != weight->shape[n - 2] ||
            shape[n - 2] != weight->shape[n - 1])
            return IN_ORDER;
        if (shape[n - 1] != shape[n - 2])
            return TRANSPOSED;
    }
    cut = n - 1;
    if (dcpk_starts_with(experts, EXPERTS "linear_fc1."))
        cut = n - 2;
    if (stored->shape[cut] > 1)
        return IN_ORDER;
    if (stored->shape[2 * n - 3 - cut] > 1 || dcpk_megatron_has_grouped_mlp(model))
        return TRANSPOSED;
    return NOT_KNOWN;
}

dcpk_status dcpk_megatron_unflatten(struct dcpk_model *model, uint32_t source,
                                    const struct dcpk_tensor *weight, uint32_t *view,
                                    struct dcpk_error *err)
{
    const struct dcpk_tensor *stored = &model->ckpt->tensors[source];
    const bool has_shape = stored->model_shape != NULL;
    const enum order order = expert_order(model, stored, weight);

    /* Weights alone need no proof that may fail: what is in doubt is then left out. */
    if (order == TRANSPOSED ||
        (order == NOT_KNOWN && (model->flags & DCPK_MODEL_WEIGHTS_ONLY) != 0))
        return dcpk_fail_fix(
            err, DCPK_EUNSUPPORTED, DCPK_FIX_WEIGHTS_ONLY,
            "flattened optimizer state of GroupedMLP experts, which is not stored in its weight's "
            "order: load with core 0.15 and save with --dist-ckpt-optim-fully-reshardable");
    if (order == NOT_KNOWN)
        model->needs_proof = true;
    if (has_shape)
        return dcpk_megatron_add_flattened(model->ckpt, source, stored->model_shape,
                                           stored->model_rank, view, err);
    return dcpk_megatron_add_flattened(model->ckpt, source, weight->shape, weight->rank, view, err);
}

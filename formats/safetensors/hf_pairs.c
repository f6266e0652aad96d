/* SPDX-License-Identifier: Apache-2.0 */
/* hf_pairs.c - tensors whose lines of two kinds take turns, as tensors with an axis of 2. */
#include <inttypes.h>

#include "formats/safetensors/hf_ops.h"

/* A shape with `axis` as two, in the checkpoint's arena. NULL and err on failure. */
static int64_t *pair_shape(struct dcpk_checkpoint *ckpt, const struct dcpk_tensor *tensor, int axis,
                           struct dcpk_error *err)
{
    int64_t *shape = NULL;

    if (axis >= tensor->rank || tensor->rank == DCPK_MAX_RANK) {
        (void)dcpk_fail(err, DCPK_EMISMATCH, "a tensor of %d axes has no lines to be moved",
                        tensor->rank);
    } else if (tensor->shape[axis] % 2 != 0) {
        (void)dcpk_fail(err, DCPK_EMISMATCH, "its %" PRId64 " rows are not pairs",
                        tensor->shape[axis]);
    } else {
        shape = dcpk_arena_array(ckpt->arena, (size_t)tensor->rank + 1, sizeof *shape, err);
    }
    if (shape == NULL)
        return NULL;
    for (int a = 0; a <= tensor->rank; a++)
        shape[a] = tensor->shape[a - (a > axis)];
    shape[axis] /= 2;
    shape[axis + 1] = 2;
    return shape;
}

/* The bytes of a stored tensor, or of a view of all of one, under the split shape. */
static dcpk_status pair_bytes(struct dcpk_checkpoint *ckpt, uint32_t index, int axis,
                              uint32_t *view, struct dcpk_error *err)
{
    struct dcpk_tensor tensor = ckpt->tensors[index];
    size_t chunk = tensor.first_chunk;
    struct dcpk_box whole;
    int64_t n_elems;

    tensor.shape = pair_shape(ckpt, &tensor, axis, err);
    if (tensor.shape == NULL)
        return err->status;
    tensor.rank++;
    if (chunk >= ckpt->n_chunks)
        chunk = ckpt->runs[chunk - ckpt->n_chunks].of;
    dcpk_box_whole(tensor.shape, tensor.rank, &whole);
    if (dcpk_box_count(&whole, &n_elems, err) || dcpk_checkpoint_add_view(ckpt, &tensor, view, err))
        return err->status;
    return dcpk_checkpoint_add_run(ckpt, &whole, 0, n_elems, (struct dcpk_chunk_run){chunk, 0},
                                   err);
}

dcpk_status dcpk_hf_pair_view(struct dcpk_checkpoint *ckpt, uint32_t tensor, int axis,
                              uint32_t *view, struct dcpk_error *err)
{
    struct dcpk_tensor paired = ckpt->tensors[tensor];
    struct dcpk_computed how;

    if (paired.computed == NULL)
        return pair_bytes(ckpt, tensor, axis, view, err);
    how = *paired.computed;
    /* A pair of rows would share a scale, or a block be cut. */
    if (axis != paired.rank - 2 || how.block_rows != 1)
        return dcpk_fail(err, DCPK_EMISMATCH, "its blocks are not those of a row");
    paired.shape = pair_shape(ckpt, &paired, axis, err);
    if (paired.shape == NULL || pair_bytes(ckpt, how.values, axis, &how.values, err) ||
        pair_bytes(ckpt, how.scales, axis, &how.scales, err))
        return err->status;
    paired.rank++;
    return dcpk_checkpoint_add_computed(ckpt, &paired, &how, view, err);
}

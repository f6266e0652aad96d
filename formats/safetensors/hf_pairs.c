/* SPDX-License-Identifier: Apache-2.0 */
/* hf_pairs.c - tensors whose lines of two kinds take turns, as tensors with an axis of 2. */
#include <inttypes.h>
#include <string.h>

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

/* The bytes of a chunk, stored or a view of all of one, as part of the last view: those of each
 * step along the axes before `axis` follow each other in a block of all its pairs. */
static dcpk_status pair_chunk(struct dcpk_checkpoint *ckpt, const struct dcpk_tensor *tensor,
                              size_t chunk, int axis, struct dcpk_error *err)
{
    struct dcpk_box box, block = {.rank = tensor->rank + 1};
    int64_t index[DCPK_MAX_RANK], n_run = 1, n_first = 1;

    dcpk_box_unpack(ckpt->chunks[chunk].span, tensor->rank, &box);
    if (chunk >= ckpt->n_chunks)
        chunk = ckpt->runs[chunk - ckpt->n_chunks].of;
    for (int a = 0; a < tensor->rank; a++) {
        const int at = a + (a > axis);

        if (box.extent[a] == 0)
            return DCPK_OK;
        block.offset[at] = box.offset[a];
        block.extent[at] = a < axis ? 1 : box.extent[a];
        if (a > axis)
            n_first *= box.extent[a];
        if (a >= axis)
            n_run *= box.extent[a];
    }
    block.offset[axis] = 0;
    block.extent[axis] = tensor->shape[axis] / 2;
    block.offset[axis + 1] = 0;
    block.extent[axis + 1] = 2;
    n_first *= box.offset[axis];
    memcpy(index, box.offset, sizeof index);
    for (int64_t first = 0;; first += n_run) {
        memcpy(block.offset, index, (size_t)axis * sizeof *index);
        if (dcpk_checkpoint_add_run(ckpt, &block, n_first, n_run,
                                    (struct dcpk_chunk_run){chunk, first}, err))
            return err->status;
        if (!dcpk_box_next(index, &box, axis))
            return DCPK_OK;
    }
}

/* The bytes of a stored tensor, or of a view of all of one, under the split shape. */
static dcpk_status pair_bytes(struct dcpk_checkpoint *ckpt, uint32_t index, int axis,
                              uint32_t *view, struct dcpk_error *err)
{
    struct dcpk_tensor tensor = ckpt->tensors[index];
    const struct dcpk_tensor stored = tensor;

    tensor.shape = pair_shape(ckpt, &tensor, axis, err);
    if (tensor.shape == NULL)
        return err->status;
    tensor.rank++;
    if (dcpk_checkpoint_add_view(ckpt, &tensor, view, err))
        return err->status;
    for (size_t i = 0; i < stored.n_chunks; i++)
        if (pair_chunk(ckpt, &stored, stored.first_chunk + i, axis, err))
            return err->status;
    return DCPK_OK;
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

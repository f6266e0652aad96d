/* SPDX-License-Identifier: Apache-2.0 */
/* pair_view.c - the lines of a tensor in pairs: an axis as two, without another byte. */
#include <inttypes.h>
#include <string.h>

#include "lib/ckpt/checkpoint.h"

dcpk_status dcpk_checkpoint_pair_shape(struct dcpk_checkpoint *ckpt, struct dcpk_tensor *tensor,
                                       int axis, struct dcpk_error *err)
{
    int64_t *shape;

    if (axis >= tensor->rank || tensor->rank == DCPK_MAX_RANK)
        return dcpk_fail(err, DCPK_EMISMATCH, "a tensor of %d axes has no lines to be moved",
                         tensor->rank);
    if (tensor->shape[axis] % 2 != 0)
        return dcpk_fail(err, DCPK_EMISMATCH, "its %" PRId64 " rows are not pairs",
                         tensor->shape[axis]);
    shape = dcpk_arena_array(ckpt->arena, (size_t)tensor->rank + 1, sizeof *shape, err);
    if (shape == NULL)
        return err->status;
    for (int a = 0; a <= tensor->rank; a++)
        shape[a] = tensor->shape[a - (a > axis)];
    shape[axis] /= 2;
    shape[axis + 1] = 2;
    tensor->shape = shape;
    tensor->rank++;
    return DCPK_OK;
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

dcpk_status dcpk_checkpoint_pair_view(struct dcpk_checkpoint *ckpt, uint32_t index, int axis,
                                      uint32_t *view, struct dcpk_error *err)
{
    struct dcpk_tensor tensor = ckpt->tensors[index];
    const struct dcpk_tensor stored = tensor;

    if (dcpk_checkpoint_pair_shape(ckpt, &tensor, axis, err) ||
        dcpk_checkpoint_add_view(ckpt, &tensor, view, err))
        return err->status;
    for (size_t i = 0; i < stored.n_chunks; i++)
        if (pair_chunk(ckpt, &stored, stored.first_chunk + i, axis, err))
            return err->status;
    return DCPK_OK;
}

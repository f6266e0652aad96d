/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_blocks.c - how tensor parallelism cut a weight, read off the chunks it is stored in. */
#include "formats/megatron/buckets/megatron_blocks.h"

#include <inttypes.h>

#include "lib/base/alloc.h"

/* The part of a chunk after the stacked axes: (offset, extent) on the one axis that is cut. */
struct cut_seen {
    int axis;         /* that is cut, -1: none so far */
    int64_t n_blocks; /* on it */
};

/* Checks that every chunk is on one regular grid along one axis. */
static dcpk_status see_chunk(const struct dcpk_tensor *stored, int n_lead, const int64_t *span,
                             struct cut_seen *seen, struct dcpk_error *err)
{
    const int64_t *offset = span, *extent = span + stored->rank;
    struct dcpk_box box;
    char text[256];

    for (int a = n_lead; a < stored->rank; a++) {
        if (extent[a] == stored->shape[a])
            continue;
        if (seen->axis < 0 && extent[a] > 0 && stored->shape[a] % extent[a] == 0) {
            seen->axis = a;
            seen->n_blocks = stored->shape[a] / extent[a];
        }
        if (seen->axis == a && extent[a] * seen->n_blocks == stored->shape[a] &&
            offset[a] % extent[a] == 0)
            continue;
        dcpk_box_unpack(span, stored->rank, &box);
        return dcpk_fail(
            err, DCPK_EUNSUPPORTED,
            "'%s': the chunk %s is not a block of tensor parallelism: the parts that ranks "
            "held are not known",
            stored->key, dcpk_box_format(&box, text, sizeof text));
    }
    return DCPK_OK;
}

/* A cut axis must be cut in every chunk; whole ones next to it would be two layouts in one
 * tensor. */
static bool is_cut_everywhere(const struct dcpk_checkpoint *ckpt, const struct dcpk_tensor *stored,
                              const struct cut_seen *seen)
{
    for (size_t c = stored->first_chunk; c < stored->first_chunk + stored->n_chunks; c++)
        if (ckpt->chunks[c].span[stored->rank + seen->axis] * seen->n_blocks !=
            stored->shape[seen->axis])
            return false;
    return true;
}

dcpk_status dcpk_blocks_find(const struct dcpk_checkpoint *ckpt, const struct dcpk_tensor *stored,
                             int n_lead, int64_t tp, struct dcpk_blocks *blocks,
                             struct dcpk_error *err)
{
    struct cut_seen seen = {-1, 1};
    bool is_gated;

    for (size_t c = stored->first_chunk; c < stored->first_chunk + stored->n_chunks; c++) {
        if (see_chunk(stored, n_lead, ckpt->chunks[c].span, &seen, err))
            return err->status;
    }
    if (seen.axis >= 0 && !is_cut_everywhere(ckpt, stored, &seen))
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "'%s': some of its chunks are cut by tensor parallelism and some are not",
                         stored->key);
    *blocks = (struct dcpk_blocks){.axis = -1, .n_ranks = 1, .n_parts = 1};
    if (seen.axis < 0)
        return DCPK_OK;
    /*
     * Gate and up halves are stored apart: twice as many blocks, on axis 0
     * (formats/torch_dist/FORMAT.md 4.4).
     */
    is_gated = seen.n_blocks == 2 * tp && seen.axis == n_lead;
    if (seen.n_blocks != tp && !is_gated)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "'%s' is stored in %" PRId64 " blocks; expected 1, %" PRId64
                         " (tensor-parallel ranks) or twice as many (gate and up rows)",
                         stored->key, seen.n_blocks, tp);
    blocks->axis = seen.axis - n_lead;
    blocks->n_ranks = tp;
    blocks->n_parts = 1 + is_gated;
    blocks->part[0].n_rows = blocks->part[1].n_rows = stored->shape[seen.axis] / blocks->n_parts;
    blocks->part[1].row = blocks->part[0].n_rows;
    return DCPK_OK;
}

dcpk_status dcpk_blocks_append(struct dcpk_blocks *blocks, const struct dcpk_blocks *part,
                               struct dcpk_error *err)
{
    const struct dcpk_rows last = blocks->part[blocks->n_parts - 1];

    if (blocks->axis > 0 || part->axis != blocks->axis || part->n_ranks != blocks->n_ranks ||
        blocks->n_parts + part->n_parts > DCPK_MAX_PARTS)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "its parts are not cut alike by tensor parallelism");
    if (blocks->axis < 0) /* the parameter as it is */
        return DCPK_OK;
    for (int i = 0; i < part->n_parts; i++) {
        blocks->part[blocks->n_parts] = part->part[i];
        blocks->part[blocks->n_parts++].row += last.row + last.n_rows;
    }
    return DCPK_OK;
}

void dcpk_blocks_box(const struct dcpk_blocks *blocks, const int64_t *shape, int rank, int64_t r,
                     int part, struct dcpk_box *box)
{
    const struct dcpk_rows held = dcpk_rows_of_rank(blocks->part[part], blocks->n_ranks, r);

    dcpk_box_whole(shape, rank, box);
    if (blocks->axis < 0)
        return;
    box->offset[blocks->axis] = held.row;
    box->extent[blocks->axis] = held.n_rows;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_flat_pieces.c - cuts boxes where their elements cease to follow each other. */
#include "formats/megatron/megatron_flat_pieces.h"

#include <assert.h>
#include <string.h>

#include "lib/base/alloc.h"

dcpk_status dcpk_flat_pieces_add(struct dcpk_flat_pieces *pieces, uint32_t src,
                                 const struct dcpk_box *from, const struct dcpk_box *at, int64_t n,
                                 struct dcpk_error *err)
{
    struct dcpk_box to = *at;

    if (n == 0)
        return DCPK_OK;
    for (int a = 0; a < to.rank; a++)
        to.extent[a] = 1;
    to.extent[to.rank - 1] = n;
    if (dcpk_grow(&pieces->list, &pieces->capacity, pieces->n, sizeof *pieces->list, err) ||
        dcpk_piece_make(pieces->arena, src, from, &to, &pieces->list[pieces->n], err))
        return err->status;
    pieces->n++;
    return DCPK_OK;
}

/* The axis from which on `part` holds all of `box`: its elements follow each other there for one
 * index of the axes before it. */
static int whole_from(const struct dcpk_box *box, const struct dcpk_box *part)
{
    int axis = box->rank;

    while (axis > 1 && part->extent[axis - 1] == box->extent[axis - 1])
        axis--;
    return axis - 1;
}

dcpk_status dcpk_flat_pieces_add_part(struct dcpk_flat_pieces *pieces,
                                      const struct dcpk_piece *piece, const struct dcpk_box *box,
                                      const struct dcpk_box *at, struct dcpk_error *err)
{
    const bool is_fill = piece->src == DCPK_PIECE_FILL;
    struct dcpk_box from = {0}, to, bounds, run, place = *at;
    int n_outer;

    assert(piece->axes == 0);
    if (!dcpk_piece_clip(piece, box, &from, &bounds))
        return DCPK_OK;
    n_outer = whole_from(box, &bounds);
    run = bounds;
    for (int a = 0; a < n_outer; a++)
        run.extent[a] = 1;
    do {
        int64_t n = 1;

        (void)dcpk_piece_clip(piece, &run, &from, &to);
        for (int a = 0; a < run.rank; a++)
            n *= run.extent[a];
        place.offset[place.rank - 1] = at->offset[at->rank - 1] + dcpk_box_flat_offset(box, &run);
        if (dcpk_flat_pieces_add(pieces, piece->src, is_fill ? NULL : &from, &place, n, err))
            return err->status;
    } while (dcpk_box_next(run.offset, &bounds, n_outer));
    return DCPK_OK;
}

dcpk_status dcpk_flat_pieces_keep(const struct dcpk_flat_pieces *pieces,
                                  struct dcpk_out_tensor *tensor, struct dcpk_error *err)
{
    struct dcpk_piece *kept = dcpk_arena_array(pieces->arena, pieces->n, sizeof *kept, err);

    if (kept == NULL)
        return err->status;
    if (pieces->n > 0)
        memcpy(kept, pieces->list, pieces->n * sizeof *kept);
    tensor->pieces = kept;
    tensor->n_pieces = pieces->n;
    return DCPK_OK;
}

void dcpk_flat_pieces_release(struct dcpk_flat_pieces *pieces)
{
    dcpk_free(pieces->list);
    pieces->list = NULL;
    pieces->n = pieces->capacity = 0;
}

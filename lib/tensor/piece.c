/* SPDX-License-Identifier: Apache-2.0 */
/* piece.c - box copies between tensors of different rank. */
#include "lib/tensor/piece.h"

#include <assert.h>

/* The next axis at or after `a` whose extent in `box` is not 1. */
static int next_axis(const struct dcpk_box *box, int a)
{
    while (a < box->rank && box->extent[a] == 1)
        a++;
    return a;
}

/*
 * Move `part`, a box inside `from`, to the other side: axes correspond in order, those of length 1
 * in the piece left out. They correspond by the extents of the piece, not of the part: a part may
 * well have length 1 where the piece has not.
 */
static void move_over(const struct dcpk_box *from, const struct dcpk_box *part,
                      const struct dcpk_box *to, struct dcpk_box *out)
{
    struct dcpk_box result = *to;
    int f = next_axis(from, 0), t = next_axis(to, 0);

    assert(part->rank == from->rank);
    while (f < from->rank && t < to->rank) {
        result.offset[t] = to->offset[t] + (part->offset[f] - from->offset[f]);
        result.extent[t] = part->extent[f];
        f = next_axis(from, f + 1);
        t = next_axis(to, t + 1);
    }
    *out = result;
}

/* Equal extents after dropping axes of length 1? */
static bool same_extents(const struct dcpk_box *a, const struct dcpk_box *b)
{
    int i = next_axis(a, 0), k = next_axis(b, 0);

    while (i < a->rank && k < b->rank && a->extent[i] == b->extent[k]) {
        i = next_axis(a, i + 1);
        k = next_axis(b, k + 1);
    }
    return i == a->rank && k == b->rank;
}

dcpk_status dcpk_piece_make(struct dcpk_arena *arena, uint32_t src, const struct dcpk_box *from,
                            const struct dcpk_box *to, struct dcpk_piece *piece,
                            struct dcpk_error *err)
{
    const int src_rank = from == NULL ? 0 : from->rank;
    const int n_numbers = 2 * (src_rank + to->rank);
    int64_t *span;

    assert((from == NULL) == (src == DCPK_PIECE_FILL));
    assert(from == NULL || same_extents(from, to));
    span = dcpk_arena_array(arena, (size_t)n_numbers, sizeof *span, err);
    if (span == NULL)
        return err->status;
    if (from != NULL)
        dcpk_box_pack(from, span);
    dcpk_box_pack(to, span + 2 * src_rank);
    *piece = (struct dcpk_piece){
        .src = src, .src_rank = (uint8_t)src_rank, .dst_rank = (uint8_t)to->rank, .span = span};
    return DCPK_OK;
}

void dcpk_piece_from(const struct dcpk_piece *piece, struct dcpk_box *from)
{
    dcpk_box_unpack(piece->span, piece->src_rank, from);
}

void dcpk_piece_to(const struct dcpk_piece *piece, struct dcpk_box *to)
{
    dcpk_box_unpack(piece->span + 2 * piece->src_rank, piece->dst_rank, to);
}

bool dcpk_piece_clip(const struct dcpk_piece *piece, const struct dcpk_box *region,
                     struct dcpk_box *from, struct dcpk_box *to)
{
    struct dcpk_box whole_from, whole_to, part;

    dcpk_piece_to(piece, &whole_to);
    if (!dcpk_box_intersect(&whole_to, region, &part))
        return false;
    dcpk_piece_from(piece, &whole_from);
    move_over(&whole_to, &part, &whole_from, from); /* a fill has no source axes to move to */
    *to = part;
    return true;
}

void dcpk_piece_forward(const struct dcpk_piece *piece, const struct dcpk_box *part,
                        struct dcpk_box *to)
{
    struct dcpk_box whole_from, whole_to;

    assert(piece->src != DCPK_PIECE_FILL);
    dcpk_piece_from(piece, &whole_from);
    dcpk_piece_to(piece, &whole_to);
    move_over(&whole_from, part, &whole_to, to);
}

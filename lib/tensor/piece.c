/* SPDX-License-Identifier: Apache-2.0 */
/* piece.c - box copies between tensors of different rank, and of axes in another order. */
#include "lib/tensor/piece.h"

#include <assert.h>

/* The axes of `from` in the order of those of `to`, those of length 1 left out. */
static void pair_axes(const struct dcpk_box *from, const struct dcpk_box *to, uint8_t *axis)
{
    int f = dcpk_box_next_axis(from, 0);

    for (int t = 0; t < to->rank; t++) {
        axis[t] = DCPK_PIECE_NO_AXIS;
        if (to->extent[t] == 1 || f >= from->rank)
            continue;
        axis[t] = (uint8_t)f;
        f = dcpk_box_next_axis(from, f + 1);
    }
}

/*
 * Move `part`, a box inside one side of a piece, to the other side: is_forward, from source to
 * output. Axes correspond by the extents of the piece, not of the part: a part may have length
 * 1 where the piece has not.
 */
static void move_over(const struct dcpk_piece *piece, const struct dcpk_box *part, bool is_forward,
                      struct dcpk_box *out)
{
    struct dcpk_box from, to;
    uint8_t axis[DCPK_MAX_RANK];

    dcpk_piece_from(piece, &from);
    dcpk_piece_to(piece, &to);
    dcpk_piece_axes(piece, axis);
    *out = is_forward ? to : from;
    for (int t = 0; t < to.rank; t++) {
        const int f = axis[t];

        if (f == DCPK_PIECE_NO_AXIS)
            continue;
        if (is_forward) {
            out->offset[t] = to.offset[t] + (part->offset[f] - from.offset[f]);
            out->extent[t] = part->extent[f];
        } else {
            out->offset[f] = from.offset[f] + (part->offset[t] - to.offset[t]);
            out->extent[f] = part->extent[t];
        }
    }
}

/* Equal extents after dropping axes of length 1? */
static bool same_extents(const struct dcpk_box *a, const struct dcpk_box *b)
{
    int i = dcpk_box_next_axis(a, 0), k = dcpk_box_next_axis(b, 0);

    while (i < a->rank && k < b->rank && a->extent[i] == b->extent[k]) {
        i = dcpk_box_next_axis(a, i + 1);
        k = dcpk_box_next_axis(b, k + 1);
    }
    return i == a->rank && k == b->rank;
}

/* True if at most one axis of `box` has a length other than 1. */
static bool is_line(const struct dcpk_box *box)
{
    return dcpk_box_next_axis(box, dcpk_box_next_axis(box, 0) + 1) >= box->rank;
}

static bool can_flatten(const struct dcpk_box *from, const struct dcpk_box *to)
{
    return is_line(to) && dcpk_box_elems(from) == dcpk_box_elems(to);
}

/* A piece of those boxes, whose axes correspond in the usual order. */
static dcpk_status make_span(struct dcpk_arena *arena, uint32_t src, const struct dcpk_box *from,
                             const struct dcpk_box *to, struct dcpk_piece *piece,
                             struct dcpk_error *err)
{
    int src_rank = 0, n_numbers;
    int64_t *span;

    if (from != NULL)
        src_rank = from->rank;
    n_numbers = 2 * (src_rank + to->rank);
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

dcpk_status dcpk_piece_make(struct dcpk_arena *arena, uint32_t src, const struct dcpk_box *from,
                            const struct dcpk_box *to, struct dcpk_piece *piece,
                            struct dcpk_error *err)
{
    assert((from == NULL) == (src == DCPK_PIECE_FILL));
    assert(from == NULL || same_extents(from, to) || can_flatten(from, to));
    return make_span(arena, src, from, to, piece, err);
}

dcpk_status dcpk_piece_make_turned(struct dcpk_arena *arena, const struct dcpk_piece_turn *turn,
                                   struct dcpk_piece *piece, struct dcpk_error *err)
{
    const struct dcpk_box *from = &turn->from, *to = &turn->to;
    uint8_t usual[DCPK_MAX_RANK];
    uint64_t axes = 0;
    bool is_usual = same_extents(from, to);

    assert(turn->src != DCPK_PIECE_FILL && from->rank < DCPK_PIECE_NO_AXIS);
    pair_axes(from, to, usual);
    for (int t = 0; t < to->rank; t++) {
        const int f = turn->axis[t];

        axes |= (uint64_t)f << 4 * t;
        assert(to->extent[t] == (f == DCPK_PIECE_NO_AXIS ? 1 : from->extent[f]));
        is_usual = is_usual && (to->extent[t] == 1 || usual[t] == f);
    }
    if (is_usual)
        return dcpk_piece_make(arena, turn->src, from, to, piece, err);
    if (make_span(arena, turn->src, from, to, piece, err) == DCPK_OK)
        piece->axes = axes;
    return err->status;
}

void dcpk_piece_axes(const struct dcpk_piece *piece, uint8_t axis[DCPK_MAX_RANK])
{
    struct dcpk_box from, to;

    if (piece->axes == 0) {
        dcpk_piece_from(piece, &from);
        dcpk_piece_to(piece, &to);
        pair_axes(&from, &to, axis);
        return;
    }
    for (int t = 0; t < piece->dst_rank; t++)
        axis[t] = piece->axes >> 4 * t & 0xf;
}

dcpk_status dcpk_piece_like(struct dcpk_arena *arena, const struct dcpk_piece *like,
                            const struct dcpk_box *from, const struct dcpk_box *to,
                            struct dcpk_piece *piece, struct dcpk_error *err)
{
    const int n_before = to->rank - like->dst_rank;
    uint64_t axes = like->axes;

    if (like->src == DCPK_PIECE_FILL)
        return dcpk_piece_make(arena, like->src, NULL, to, piece, err);
    if (axes == 0)
        return dcpk_piece_make(arena, like->src, from, to, piece, err);
    for (int i = 0; i < n_before; i++)
        axes = axes << 4 | DCPK_PIECE_NO_AXIS;
    if (make_span(arena, like->src, from, to, piece, err) == DCPK_OK)
        piece->axes = axes;
    return err->status;
}

void dcpk_piece_from(const struct dcpk_piece *piece, struct dcpk_box *from)
{
    dcpk_box_unpack(piece->span, piece->src_rank, from);
}

void dcpk_piece_to(const struct dcpk_piece *piece, struct dcpk_box *to)
{
    dcpk_box_unpack(piece->span + 2 * piece->src_rank, piece->dst_rank, to);
}

bool dcpk_piece_is_flat(const struct dcpk_piece *piece)
{
    struct dcpk_box from, to;

    if (piece->src == DCPK_PIECE_FILL || piece->axes != 0)
        return false;
    dcpk_piece_from(piece, &from);
    dcpk_piece_to(piece, &to);
    return !same_extents(&from, &to);
}

bool dcpk_piece_clip(const struct dcpk_piece *piece, const struct dcpk_box *region,
                     struct dcpk_box *from, struct dcpk_box *to)
{
    struct dcpk_box whole_to, part;

    dcpk_piece_to(piece, &whole_to);
    if (!dcpk_box_intersect(&whole_to, region, &part))
        return false;
    assert(!dcpk_piece_is_flat(piece));
    move_over(piece, &part, false, from); /* a fill has no source axes to move to */
    *to = part;
    return true;
}

bool dcpk_piece_next(const struct dcpk_piece *piece, const struct dcpk_box *region, int64_t *n_done,
                     struct dcpk_box *from, struct dcpk_box *to)
{
    struct dcpk_box whole_from, whole_to, part;
    int64_t taken;
    int axis;

    if (!dcpk_piece_is_flat(piece))
        return (*n_done)++ == 0 && dcpk_piece_clip(piece, region, from, to);
    dcpk_piece_to(piece, &whole_to);
    axis = dcpk_box_next_axis(&whole_to, 0);
    if (!dcpk_box_intersect(&whole_to, region, &part) || *n_done == part.extent[axis])
        return false;
    dcpk_piece_from(piece, &whole_from);
    part.offset[axis] += *n_done;
    taken = dcpk_box_take_run(&whole_from, part.offset[axis] - whole_to.offset[axis],
                              part.extent[axis] - *n_done, from);
    part.extent[axis] = taken;
    *n_done += taken;
    *to = part;
    return true;
}

void dcpk_piece_forward(const struct dcpk_piece *piece, const struct dcpk_box *part,
                        struct dcpk_box *to)
{
    assert(piece->src != DCPK_PIECE_FILL);
    assert(!dcpk_piece_is_flat(piece));
    move_over(piece, part, true, to);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* piece.h - a box copy, the one thing that every conversion is made of. */
#ifndef DCPK_LIB_TENSOR_PIECE_H
#define DCPK_LIB_TENSOR_PIECE_H

#include <stdint.h>

#include "lib/base/arena.h"
#include "lib/tensor/box.h"

#define DCPK_PIECE_FILL UINT32_MAX /* as a source: zeros, no tensor */

/*
 * {source tensor, source box} -> {the output tensor that owns the piece, output box}. Both boxes
 * have the same extents after dropping axes of length 1, so elements correspond in row-major order
 * of each box. Where the dtypes of the two tensors differ the piece casts. Un-stacking layers,
 * experts, SwiGLU halves and resharding are lists of pieces. `span`: packed boxes in an arena:
 * source offsets, source extents (src_rank each), output offsets, output extents (dst_rank each).
 *
 * There are two exceptions. The output box of a flat piece has one axis that is longer than 1, on
 * which the elements of a source box of several axes follow each other (optimizer state in
 * buckets). A turned piece has its axes in another order (transposed weights): `axes` has the
 * source axis of each output axis.
 */
struct dcpk_piece {
    uint32_t src; /* index of the tensor in the source checkpoint, or DCPK_PIECE_FILL */
    uint8_t src_rank;
    uint8_t dst_rank;
    uint64_t axes; /* of a turned piece: 4 bits for each output axis, from the lowest; else 0 */
    const int64_t *span;
};
#define DCPK_PIECE_NO_AXIS 15 /* of an output axis of length 1 that has no source axis */

/* from, to: copied into the arena. Asserts equal extents after dropping axes of length 1, or a flat
 * piece (from may be NULL for a fill). */
dcpk_status dcpk_piece_make(struct dcpk_arena *arena, uint32_t src, const struct dcpk_box *from,
                            const struct dcpk_box *to, struct dcpk_piece *piece,
                            struct dcpk_error *err);
/*
 * Boxes whose axes correspond in any order. axis: for each axis of `to` that of `from` (below
 * DCPK_PIECE_NO_AXIS), of the same extent; or DCPK_PIECE_NO_AXIS, then its extent is 1. Axes of
 * `from` that none names have extent 1. src is not a fill.
 */
struct dcpk_piece_turn {
    uint32_t src;
    struct dcpk_box from, to;
    uint8_t axis[DCPK_MAX_RANK];
};
/* A turned piece, or, where the order is the usual one, what dcpk_piece_make makes. */
dcpk_status dcpk_piece_make_turned(struct dcpk_arena *arena, const struct dcpk_piece_turn *turn,
                                   struct dcpk_piece *piece, struct dcpk_error *err);
/* The source axis of each output axis, of any piece that is not flat. */
void dcpk_piece_axes(const struct dcpk_piece *piece, uint8_t axis[DCPK_MAX_RANK]);

/*
 * A part of `like` (dcpk_piece_clip), or the same after further output axes of length 1: boxes
 * change, axes correspond as in `like`. from: not read where it is a fill.
 */
dcpk_status dcpk_piece_like(struct dcpk_arena *arena, const struct dcpk_piece *like,
                            const struct dcpk_box *from, const struct dcpk_box *to,
                            struct dcpk_piece *piece, struct dcpk_error *err);

/* The box that it is taken from, of its source. */
void dcpk_piece_from(const struct dcpk_piece *piece, struct dcpk_box *from);
/* The box that it fills, of its target. */
void dcpk_piece_to(const struct dcpk_piece *piece, struct dcpk_box *to);

bool dcpk_piece_is_flat(const struct dcpk_piece *piece);

/*
 * The part of a piece, which is not flat, that lands in `region` of its output tensor.
 * Returns false when it lands nowhere in it; else *from and *to are the boxes of that part (to in
 * output coordinates).
 */
bool dcpk_piece_clip(const struct dcpk_piece *piece, const struct dcpk_box *region,
                     struct dcpk_box *from, struct dcpk_box *to);

/*
 * Step through the parts of any piece that land in `region`, in row-major order: of a flat one at
 * most 2 * src_rank, of others one. *n_done: 0 to begin, moved on by each call. Returns false when
 * there are no more.
 */
bool dcpk_piece_next(const struct dcpk_piece *piece, const struct dcpk_box *region, int64_t *n_done,
                     struct dcpk_box *from, struct dcpk_box *to);

/*
 * Map a box of the source side of a piece, which is not flat, to its output side: `part` lies
 * inside the piece's `from` box.
 */
void dcpk_piece_forward(const struct dcpk_piece *piece, const struct dcpk_box *part,
                        struct dcpk_box *to);

#endif

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
 */
struct dcpk_piece {
    uint32_t src; /* index of the tensor in the source checkpoint, or DCPK_PIECE_FILL */
    uint8_t src_rank;
    uint8_t dst_rank;
    const int64_t *span;
};

/* from, to: copied into the arena. Asserts equal extents after dropping axes of length 1 (from may
 * be NULL for a fill). */
dcpk_status dcpk_piece_make(struct dcpk_arena *arena, uint32_t src, const struct dcpk_box *from,
                            const struct dcpk_box *to, struct dcpk_piece *piece,
                            struct dcpk_error *err);
void dcpk_piece_from(const struct dcpk_piece *piece, struct dcpk_box *from);
void dcpk_piece_to(const struct dcpk_piece *piece, struct dcpk_box *to);

/*
 * The part of a piece that lands in `region` of its output tensor.
 * Returns false when it lands nowhere in it; else *from and *to are the boxes of that part (to in
 * output coordinates).
 */
bool dcpk_piece_clip(const struct dcpk_piece *piece, const struct dcpk_box *region,
                     struct dcpk_box *from, struct dcpk_box *to);

/*
 * Map a box of the piece's source side to its output side: `part` lies inside the piece's `from`
 * box.
 */
void dcpk_piece_forward(const struct dcpk_piece *piece, const struct dcpk_box *part,
                        struct dcpk_box *to);

#endif

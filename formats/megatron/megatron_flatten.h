/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_flatten.h - optimizer tensors of the model's shape, written as flattened blocks, and
 * their boxes as runs of elements that follow each other on the last axis. */
#ifndef DCPK_FORMATS_MEGATRON_FLATTEN_H
#define DCPK_FORMATS_MEGATRON_FLATTEN_H

#include "lib/ckpt/output.h"

/*
 * Make the flattened tensor of one that has the model's shape: pieces, chunks and shape become
 * those of the blocks, and model_shape what shape was. On entry tensor->spans are its blocks, all
 * of one size, which cover it evenly; a block is a chunk then. The inverse of
 * dcpk_megatron_add_flattened (megatron_flattened.h). Source: formats/torch_dist/FORMAT.md 5.2.
 * Errors: DCPK_EUNSUPPORTED for one axis too many; DCPK_ENOMEM.
 */
dcpk_status dcpk_megatron_flatten(struct dcpk_arena *arena, struct dcpk_out_tensor *tensor,
                                  struct dcpk_error *err);

/* Pieces of one tensor, on the heap until they are all there. Zeroed except for the arena:
 * empty. */
struct dcpk_flat_pieces {
    struct dcpk_arena *arena; /* copies live there; borrowed */
    struct dcpk_piece *list;
    size_t n, capacity;
};

/*
 * Append n elements that begin at `at` and follow each other on its last axis: of the box `from` of
 * `src`, or zeros where src is DCPK_PIECE_FILL. n 0: nothing. at: offsets count, extents do not.
 */
dcpk_status dcpk_flat_pieces_add(struct dcpk_flat_pieces *pieces, uint32_t src,
                                 const struct dcpk_box *from, const struct dcpk_box *at, int64_t n,
                                 struct dcpk_error *err);

/*
 * The part of a tensor's piece, which is neither flat nor turned, that lies in `box`, whose
 * elements begin at `at`: one flat piece, unless the piece ends inside the rows of the box.
 */
dcpk_status dcpk_flat_pieces_add_part(struct dcpk_flat_pieces *pieces,
                                      const struct dcpk_piece *piece, const struct dcpk_box *box,
                                      const struct dcpk_box *at, struct dcpk_error *err);

/* They are those of `tensor`, in the arena. */
dcpk_status dcpk_flat_pieces_keep(const struct dcpk_flat_pieces *pieces,
                                  struct dcpk_out_tensor *tensor, struct dcpk_error *err);

void dcpk_flat_pieces_release(struct dcpk_flat_pieces *pieces); /* of an empty one: a no-op */

#endif

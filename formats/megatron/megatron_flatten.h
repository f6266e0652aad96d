/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_flatten.h - optimizer tensors of the model's shape as flattened blocks, both ways, and
 * their boxes as runs of elements that follow each other on the last axis. */
#ifndef DCPK_FORMATS_MEGATRON_FLATTEN_H
#define DCPK_FORMATS_MEGATRON_FLATTEN_H

#include "lib/ckpt/checkpoint.h"
#include "lib/ckpt/output.h"

/*
 * Make the flattened tensor of one that has the model's shape: pieces, chunks and shape become
 * those of the blocks, and model_shape what shape was. On entry tensor->spans are its blocks, all
 * of one size, which cover it evenly; a block is a chunk then. The inverse of
 * dcpk_megatron_add_flattened (megatron_flatten.h). Source: formats/torch_dist/FORMAT.md 5.2.
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

/* ---- reading: flattened blocks, seen in their model's shape ---- */

struct dcpk_model;

/*
 * Make a view (lib/ckpt/checkpoint.h) of the stored tensor `source`, flattened by core 0.8 to 0.15,
 * that has its key and dtype. shape, rank: the model's tensor; must live as long as ckpt. *view:
 * what pieces call it. Source: formats/torch_dist/FORMAT.md 5.2. Errors: DCPK_EUNSUPPORTED: `shape`
 * is not cut evenly into the stored blocks, or a chunk is not of one block; DCPK_EFORMAT: a chunk
 * passes the end of its block, or the chunks do not cover the view exactly.
 */
dcpk_status dcpk_megatron_add_flattened(struct dcpk_checkpoint *ckpt, uint32_t source,
                                        const int64_t *shape, int rank, uint32_t *view,
                                        struct dcpk_error *err);

/*
 * The same for a model being read: the shape is what the checkpoint recorded, else (core 0.13 and
 * 0.14 under torch 2.9 and later lost it) that of `weight`, the parameter's stored weight. Whether
 * the two agree is for the caller to check.
 * Sets model->needs_proof where an expert's state might be in another order than its weight.
 * Errors: as above; DCPK_EUNSUPPORTED also for GroupedMLP experts, whose state is in another order
 * (formats/torch_dist/FORMAT.md 4.5).
 */
dcpk_status dcpk_megatron_unflatten(struct dcpk_model *model, uint32_t source,
                                    const struct dcpk_tensor *weight, uint32_t *view,
                                    struct dcpk_error *err);

/* Would the run's options make its experts of class GroupedMLP? */
bool dcpk_megatron_has_grouped_mlp(const struct dcpk_model *model);

#endif

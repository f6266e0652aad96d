/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_flattened.h - optimizer tensors that are stored as flattened blocks, seen in their
 * model's shape. */
#ifndef DCPK_FORMATS_MEGATRON_MEGATRON_FLATTENED_H
#define DCPK_FORMATS_MEGATRON_MEGATRON_FLATTENED_H

#include "lib/ckpt/checkpoint.h"

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

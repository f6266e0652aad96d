/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_flatten.h - optimizer tensors of the model's shape, written as flattened blocks. */
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

#endif

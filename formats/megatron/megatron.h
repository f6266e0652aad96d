/* SPDX-License-Identifier: Apache-2.0 */
/* megatron.h - the conventions that Megatron's 3D-parallel checkpoints share, torch_dist and zarr: keys, stacking, state. */
#ifndef DCPK_FORMATS_MEGATRON_MEGATRON_H
#define DCPK_FORMATS_MEGATRON_MEGATRON_H

#include "lib/ckpt/format.h"

/* "optimizer.state.exp_avg.decoder.layers.mlp..." taken apart; pointers into the key. */
struct dcpk_megatron_key {
    const char *state; /* "exp_avg", not terminated */
    size_t state_bytes;
    const char *param; /* the weight's key */
};

/* Returns false when `key` is no per-parameter optimizer state ("chained_<i>." may stand before it). */
bool dcpk_megatron_split_key(const char *key, struct dcpk_megatron_key *parts);

/* Is it an optimizer tensor in the flattened form of 0.8 to 0.15 (torch_dist.md 5.2)? */
bool dcpk_megatron_is_flattened(const struct dcpk_checkpoint *ckpt, const struct dcpk_tensor *tensor);

/* The to_model hook of formats with these keys; uses their load_common and load_object (objects as lists of one value). */
dcpk_status dcpk_megatron_to_model(struct dcpk_checkpoint *ckpt, struct dcpk_model *model, struct dcpk_error *err);

#endif

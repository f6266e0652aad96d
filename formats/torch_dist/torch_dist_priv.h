/* SPDX-License-Identifier: Apache-2.0 */
/* torch_dist_priv.h - between the files of formats/torch_dist. */
#ifndef DCPK_FORMATS_TORCH_DIST_PRIV_H
#define DCPK_FORMATS_TORCH_DIST_PRIV_H

#include "formats/torch_dist/torch_dist.h"

/* "optimizer.state.exp_avg.decoder.layers.mlp..." taken apart; pointers into the key. */
struct dcpk_torch_dist_key {
    const char *state; /* "exp_avg", not terminated */
    size_t state_bytes;
    const char *param; /* the weight's key */
};

/* Returns false when `key` is no per-parameter optimizer state ("chained_<i>." may stand before it). */
bool dcpk_torch_dist_split_key(const char *key, struct dcpk_torch_dist_key *parts);

/* Is it an optimizer tensor in the flattened form of 0.8 to 0.15 (torch_dist.md 5.2)? */
bool dcpk_torch_dist_is_flattened(const struct dcpk_checkpoint *ckpt, const struct dcpk_tensor *tensor);

dcpk_status dcpk_torch_dist_load_common(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                                        const struct dcpk_value **value, struct dcpk_error *err);
dcpk_status dcpk_torch_dist_to_model(struct dcpk_checkpoint *ckpt, struct dcpk_model *model, struct dcpk_error *err);

#endif

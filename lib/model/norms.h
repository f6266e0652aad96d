/* SPDX-License-Identifier: Apache-2.0 */
/* norms.h - weights of norms that are stored as they are, or less one (zero-centered). */
#ifndef DCPK_LIB_MODEL_NORMS_H
#define DCPK_LIB_MODEL_NORMS_H

#include "lib/model/model.h"

/*
 * Under --apply-layernorm-1p every norm of Megatron's multiplies by 1 + w, and w is stored; else by
 * w. Sources: megatron/core/transformer/transformer_config.py@core_v0.19.0
 * layernorm_zero_centered_gamma, which all of megatron/core/extensions/transformer_engine.py's
 * norms and megatron/core/fusions/fused_layer_norm.py are given; megatron/training/arguments.py has
 * the flag under either name, by release.
 */
#define DCPK_ARG_NORM_1P       "apply_layernorm_1p"
#define DCPK_ARG_ZERO_CENTERED "layernorm_zero_centered_gamma"

/* True if the norms of a run are zero-centered. attrs: args' attributes; NULL: no. */
bool dcpk_norms_are_centered(const struct dcpk_value *attrs);

/*
 * True for the weight (not the bias) of such a norm, by its canonical name. False for that of a
 * Mamba mixer's own, which is mamba_ssm's and multiplies by w under any flag
 * (megatron/core/ssm/mamba_mixer.py @core_v0.19.0 ExtendedRMSNorm).
 */
bool dcpk_name_is_norm_weight(const char *canonical);

/*
 * *sum: the tensor plus `addend`: its elements in float32, the sum rounded to it, and then to the
 * tensor's dtype or the one that it is cast to. Views are added to the checkpoint; the rest is in
 * `arena`. Errors: DCPK_EUNSUPPORTED for a tensor that is not of floats, or is computed itself.
 */
dcpk_status dcpk_norm_add(struct dcpk_checkpoint *ckpt, const struct dcpk_model_tensor *tensor,
                          float addend, struct dcpk_arena *arena, struct dcpk_model_tensor *sum,
                          struct dcpk_error *err);

/*
 * Makes the view hold the weights of norms zero-centered, or as they are. A weight is then its
 * master's sum, rounded. args, which must be there, change with it; a view that is so already
 * stays. Errors: those of dcpk_norm_add.
 */
dcpk_status dcpk_norms_center(struct dcpk_model *model, bool centered, struct dcpk_error *err);

#endif

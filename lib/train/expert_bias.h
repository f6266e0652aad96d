/* SPDX-License-Identifier: Apache-2.0 */
/* expert_bias.h - after each step, a router's biases move towards experts that few tokens chose. */
/*
 *   tokens of the batch that chose expert e     n_e, an integer, added over all ranks
 *   its bias                                    b_e += rate * sign(mean of n - n_e)
 *
 * The sign is that of (sum of n) - experts * n_e: every layout of ranks has the same bits. Tokens
 * without a loss count, and a step of fp16 that is skipped moves biases, too.
 * Source: megatron/core/transformer/moe/moe_utils.py @core_v0.19.0, get_updated_expert_bias;
 * megatron/core/distributed/finalize_model_grads.py @core_v0.19.0, _update_router_expert_bias.
 */
#ifndef DCPK_LIB_TRAIN_EXPERT_BIAS_H
#define DCPK_LIB_TRAIN_EXPERT_BIAS_H

#include "lib/train/gpt.h"
#include "lib/train/train_state.h"

/*
 * Collective over all ranks of the mesh, after dcpk_gpt_step. Without expert biases it does
 * nothing. Errors: DCPK_ENOMEM; those of the mesh and of math.
 */
dcpk_status dcpk_expert_bias_update(const struct dcpk_train_state *state,
                                    const struct dcpk_gpt *gpt, struct dcpk_error *err);

#endif

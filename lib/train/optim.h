/* SPDX-License-Identifier: Apache-2.0 */
/* optim.h - the update of a step: norm, clipping, Adam or SGD on shards, the scale of fp16,
 * routers' biases; factors of losses and gradients. */
/*
 *   shards' grad -> norm over all ranks -> grad *= clip / (norm + 1e-6), where below 1
 *                -> Adam or SGD with the schedule's rate and decay -> schedule, `step` advance
 *
 * Norm: squares are added in double within a slice of a row, and exactly over slices: every layout
 * of ranks has the same norm, to the bit. Sources: megatron/core/optimizer/clip_grads.py
 * @core_v0.19.0, get_grad_norm_fp32 and clip_grad_by_total_norm_fp32;
 * megatron/core/optimizer/grad_scaler.py @core_v0.19.0, DynamicGradScaler; formulas of the update:
 * lib/device/ops.h.
 */
#ifndef DCPK_LIB_TRAIN_OPTIM_H
#define DCPK_LIB_TRAIN_OPTIM_H

#include "lib/train/gpt.h"
#include "lib/train/schedule.h"
#include "lib/train/train_state.h"

/* The factor of losses before the backward pass, which keeps fp16 gradients from vanishing. Powers
 * of two: exact. A value. */
struct dcpk_loss_scale {
    double scale;           /* 1 without fp16 */
    int64_t n_good, n_left; /* steps without overflow; overflows until the scale falls */
};

struct dcpk_optim {
    struct dcpk_schedule schedule;
    struct dcpk_loss_scale loss_scale;
    int64_t step; /* applied updates: Adam's t is one more while one is made */
};

/* The result of a step. */
struct dcpk_optim_result {
    double norm; /* before clipping */
    double lr, weight_decay;
};

/* A run's beginning. Errors: those of dcpk_schedule_init. */
dcpk_status dcpk_optim_init(const struct dcpk_train_config *config, struct dcpk_optim *optim,
                            struct dcpk_error *err);

/*
 * Collective over all ranks of the mesh: update main parameters and moments with the shards'
 * gradients, which clipping changes. On failure nothing is updated. Errors: DCPK_ERANGE where the
 * norm is not finite; DCPK_ENOMEM; those of the mesh and of math.
 */
dcpk_status dcpk_optim_step(struct dcpk_optim *optim, const struct dcpk_train_state *state,
                            struct dcpk_optim_result *result, struct dcpk_error *err);

/* Call after each step of a run with fp16. has_overflow: a gradient overflowed, and nothing was
 * updated. */
void dcpk_loss_scale_update(struct dcpk_loss_scale *loss_scale,
                            const struct dcpk_train_precision *precision, bool has_overflow);

/* ---- sums that no order changes ---- */

/*
 *   bit      2^320 ...            2^0             ... 2^-320
 *           +--------+--------+--   --+--------+--------+
 *           | limb 19|        |  ...  |        | limb 0 |     32 bits each, with room for carries
 *           +--------+--------+--   --+--------+--------+
 *                        ^^^^^^^^^ the 53 bits of a number, in two or three limbs
 *
 * A squared fp32 number is at least 2^-298, and 2^60 of them are less than 2^316: each bit of such
 * sums has a place.
 */
#define DCPK_EXACT_LIMBS 20

/* A value; zeroed = 0. Two carried sums are added limb by limb, as integers. */
struct dcpk_exact_sum {
    int64_t limb[DCPK_EXACT_LIMBS];
    uint32_t n_added; /* since it was carried */
};

/* Add v: 0, or from 2^-320 to 2^319 (asserted); bits below 2^-320 are asserted to be 0. */
void dcpk_exact_sum_add(struct dcpk_exact_sum *sum, double v);
/* Bring limbs below 2^32, which 2^31 sums can then be added to. */
void dcpk_exact_sum_carry(struct dcpk_exact_sum *sum);
/* The sum as a double, the same one for the same number: within one unit of its last bit. */
double dcpk_exact_sum_value(const struct dcpk_exact_sum *sum);

/* ---- routers' biases ---- */

/*
 * Move the biases of routers towards experts that few tokens chose:
 *
 *   tokens of the batch that chose expert e     n_e, an integer, added over all ranks
 *   its bias                                    b_e += rate * sign(mean of n - n_e)
 *
 * The sign is that of (sum of n) - experts * n_e: every layout of ranks has the same bits. Tokens
 * without a loss count, and a step of fp16 that is skipped moves biases, too.
 * Source: megatron/core/transformer/moe/moe_utils.py @core_v0.19.0, get_updated_expert_bias;
 * megatron/core/distributed/finalize_model_grads.py @core_v0.19.0, _update_router_expert_bias.
 * Collective over all ranks of the mesh, after dcpk_gpt_step. Without expert biases it does
 * nothing. Errors: DCPK_ENOMEM; those of the mesh and of math.
 */
dcpk_status dcpk_expert_bias_update(const struct dcpk_train_state *state,
                                    const struct dcpk_gpt *gpt, struct dcpk_error *err);

/* ---- factors of losses and gradients ---- */

/*
 *   gradient of a step = sum over leaves of (loss factor * d summed loss) * gradient factor
 *
 * The product of both is 1 / tokens of the batch; of the other form, the mean over microbatches of
 * their means, (places / tokens) of the microbatch / places of the batch.
 */

/* The number that divides losses before the backward pass (train.h): the places of a batch in fp16
 * without per-token loss, else 1. No layout of ranks changes it. */
double dcpk_loss_divisor(const struct dcpk_train_config *config);

/* The factor of the losses of a microbatch's n places. scale: of fp16, else 1. */
float dcpk_loss_factor(const struct dcpk_train_config *config, double scale, const float *mask,
                       size_t n);

/* The factor of the sums of a step's gradients. n_tokens: of the batch, with a loss. */
double dcpk_gradient_factor(const struct dcpk_train_config *config, double scale, int64_t n_tokens);

#endif

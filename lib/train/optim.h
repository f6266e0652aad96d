/* SPDX-License-Identifier: Apache-2.0 */
/* optim.h - the update of a step: norm, clipping, Adam or SGD on shards, the scale of fp16. */
/*
 *   shards' grad -> norm over all ranks -> grad *= clip / (norm + 1e-6), where below 1
 *                -> Adam or SGD with the schedule's rate and decay -> schedule, `step` advance
 *
 * Norm: squares are added in double within a slice of a row, and exactly over slices (exact_sum.h):
 * every layout of ranks has the same norm, to the bit.
 * Sources: megatron/core/optimizer/clip_grads.py @core_v0.19.0, get_grad_norm_fp32 and
 * clip_grad_by_total_norm_fp32; megatron/core/optimizer/grad_scaler.py @core_v0.19.0,
 * DynamicGradScaler; formulas of the update: lib/device/ops.h.
 */
#ifndef DCPK_LIB_TRAIN_OPTIM_H
#define DCPK_LIB_TRAIN_OPTIM_H

#include "lib/train/schedule.h"
#include "lib/train/train_state.h"

/* What losses are multiplied by before the backward pass, so that fp16 gradients do not vanish.
 * Powers of two: exact. A value. */
struct dcpk_loss_scale {
    double scale;           /* 1 without fp16 */
    int64_t n_good, n_left; /* steps without overflow; overflows until the scale falls */
};

struct dcpk_optim {
    struct dcpk_schedule schedule;
    struct dcpk_loss_scale loss_scale;
    int64_t step; /* applied updates: Adam's t is one more while one is made */
};

/* What a step did. */
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

/* After each step of a run with fp16: did a gradient overflow? Then nothing was updated. */
void dcpk_loss_scale_update(struct dcpk_loss_scale *loss_scale,
                            const struct dcpk_train_precision *precision, bool has_overflow);

#endif

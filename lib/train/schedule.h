/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.h - learning rate and weight decay of each iteration. */
/*
 *  rate                               n counts samples: 0, then the global batch more after each
 *   max |      _________ constant     step that was applied. Iteration k, when none was skipped,
 *       |     /\                      has n = (k - 1) * global batch.
 *       |    /   \   linear, cosine,
 *       |   /      \ WSD, 1/sqrt      n <= warm-up:  init + (max - init) * n / warm-up
 *   min |  /         \__________      n > decay:     min
 *  init | /                           between:       min + (max - min) * c(r),
 *       +-------+----+--------- n     r = (n - warm-up) / (decay - warm-up)
 *            warm-up decay
 *
 *  linear c = 1 - r; cosine c = (1 + cos pi r) / 2; inverse-square-root max * sqrt(warm-up / n), at
 *  least min; WSD c = 1 until `wsd` samples before the end, then with r of these samples: linear
 *  1 - r, cosine (1 + cos pi r) / 2, exponential 2 * 0.5^r - 1, minus_sqrt 1 - sqrt(r).
 *  Decay of weights: start + (end - start) * c(n / increase), linear c = r, cosine
 *  c = (1 + cos pi (1 - r)) / 2.
 *  Source: megatron/core/optimizer_param_scheduler.py @core_v0.19.0, OptimizerParamScheduler; its
 *  arguments: megatron/training/training.py @core_v0.19.0, get_optimizer_param_scheduler.
 */
#ifndef DCPK_LIB_TRAIN_SCHEDULE_H
#define DCPK_LIB_TRAIN_SCHEDULE_H

#include "lib/ckpt/value.h"
#include "lib/knobs/config.h"

enum dcpk_lr_style {
    DCPK_LR_CONSTANT,
    DCPK_LR_LINEAR,
    DCPK_LR_COSINE,
    DCPK_LR_INVERSE_SQRT,
    DCPK_LR_WSD
};
enum dcpk_wsd_style { DCPK_WSD_LINEAR, DCPK_WSD_COSINE, DCPK_WSD_EXPONENTIAL, DCPK_WSD_MINUS_SQRT };
enum dcpk_wd_style { DCPK_WD_CONSTANT, DCPK_WD_LINEAR, DCPK_WD_COSINE };

/* A plain value. Steps are samples. */
struct dcpk_schedule {
    enum dcpk_lr_style lr_style;
    enum dcpk_wsd_style wsd_style;
    enum dcpk_wd_style wd_style;
    double init_lr, max_lr, min_lr, start_wd, end_wd;
    double lr_warmup_steps;   /* a fraction of lr_decay_steps may not be whole */
    bool has_warmup_fraction; /* lr_warmup_steps is a float in Python */
    int64_t lr_decay_steps, wsd_decay_steps, wd_incr_steps;
    int64_t num_steps; /* samples of applied steps */
};

/* The schedule at its beginning. Errors: DCPK_EUSAGE naming the style that is none, or the value
 * that Megatron's scheduler refuses. */
dcpk_status dcpk_schedule_init(const struct dcpk_train_config *config,
                               struct dcpk_schedule *schedule, struct dcpk_error *err);

double dcpk_schedule_lr(const struct dcpk_schedule *schedule); /* The learning rate at num_steps */
double dcpk_schedule_wd(const struct dcpk_schedule *schedule); /* The weight decay at num_steps */
/* An iteration of n_samples was applied. */
void dcpk_schedule_step(struct dcpk_schedule *schedule, int64_t n_samples);

/* The schedule's state in a checkpoint: the dict opt_param_scheduler, in an arena; NULL and err on
 * failure. */
const struct dcpk_value *dcpk_schedule_state(const struct dcpk_schedule *schedule,
                                             struct dcpk_arena *arena, struct dcpk_error *err);
/*
 * Continue from the dict of a checkpoint, with the keys of older releases too. Its values take the
 * place of those of `config` where uses_saved_schedule, lose where overrides_schedule, and must
 * equal them otherwise. Errors: DCPK_EUSAGE where both are set; DCPK_EMISMATCH naming the value;
 * DCPK_EFORMAT naming the key that is missing, unreadable or not finite. `schedule` is unchanged
 * then.
 */
dcpk_status dcpk_schedule_load(const struct dcpk_value *state,
                               const struct dcpk_train_optim *options,
                               struct dcpk_schedule *schedule, struct dcpk_error *err);

#endif

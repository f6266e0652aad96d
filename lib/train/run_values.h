/* SPDX-License-Identifier: Apache-2.0 */
/* run_values.h - what a checkpoint keeps of a run besides tensors, as Megatron's values: args,
 * parameter groups. */
#ifndef DCPK_LIB_TRAIN_RUN_VALUES_H
#define DCPK_LIB_TRAIN_RUN_VALUES_H

#include "lib/ckpt/value.h"
#include "lib/train/optim.h"

/* The progress of a run. A plain value. */
struct dcpk_train_progress {
    int64_t iteration;        /* the last one that is done */
    int64_t consumed_samples; /* of training; applied or not */
    int64_t adam_steps;       /* updates that were applied: `step` of the groups */
    double flops;             /* Megatron's num_floating_point_operations_so_far */
};

/* Floating-point operations of one global batch, as Megatron counts them: products of matrices,
 * forward and backward (megatron/training/training.py @core_v0.19.0 num_floating_point_operations,
 * transformer_flops). */
double dcpk_train_step_flops(const struct dcpk_train_config *config);

/* The state of fp16's loss scale (megatron/core/optimizer/grad_scaler.py @core_v0.19.0
 * DynamicGradScaler.state_dict), a dict; NULL and err for memory. */
const struct dcpk_value *dcpk_train_scaler(const struct dcpk_loss_scale *scale,
                                           struct dcpk_arena *arena, struct dcpk_error *err);
/* Read it back; the scale may be a tensor or a number. Errors: DCPK_EFORMAT naming an entry that is
 * not there, or not a number of its kind. */
dcpk_status dcpk_train_scaler_read(const struct dcpk_value *scaler, struct dcpk_loss_scale *scale,
                                   struct dcpk_error *err);

/*
 * An argparse.Namespace with the attributes that Megatron's loaders and our own rules read. Values
 * are those of the run; what the run has no notion of is left out. Sources:
 * megatron/training/checkpointing.py load_args_from_checkpoint, check_checkpoint_args,
 * load_checkpoint, megatron/training/arguments.py @core_v0.19.0; lib/model, lib/rules. NULL and err
 * for memory.
 */
const struct dcpk_value *dcpk_train_args_make(const struct dcpk_train_config *config,
                                              const struct dcpk_train_progress *progress,
                                              struct dcpk_arena *arena, struct dcpk_error *err);

/* Groups of Megatron's default rule (lib/rules/RULES.md 2). */
enum { DCPK_GROUP_DECAYED, DCPK_GROUP_PLAIN, DCPK_GROUP_EXPERT, DCPK_TRAIN_GROUPS };

/*
 * The parameter groups: weights that decay, one-dimensional ones, and with expert parallelism those
 * of experts. groups: DCPK_TRAIN_GROUPS entries; returns how many there are, 0 and err for memory.
 */
size_t dcpk_train_groups(const struct dcpk_train_config *config,
                         const struct dcpk_schedule *schedule,
                         const struct dcpk_train_progress *progress, struct dcpk_arena *arena,
                         const struct dcpk_value **groups, struct dcpk_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* pairing.h - what the proof of a conversion and the comparison of two checkpoints share. */
#ifndef DCPK_LIB_JOB_PAIRING_H
#define DCPK_LIB_JOB_PAIRING_H

#include "lib/ckpt/format.h"
#include "lib/model/model.h"
#include "lib/plan/plan.h"

/*
 * The canonical view of a checkpoint. flags: enum dcpk_model_flags. model: dcpk_model_free, also
 * after a failure. Errors: DCPK_EUNSUPPORTED for a container that is no checkpoint of a model;
 * those of to_model and the rules.
 */
dcpk_status dcpk_model_of(struct dcpk_checkpoint *ckpt, unsigned flags, struct dcpk_model **model,
                          struct dcpk_error *err);

/*
 * Give every parameter its group by Megatron's default rule; where that does not decide (a map
 * did), *decided is false and that is no error.
 */
dcpk_status dcpk_model_group(struct dcpk_model *model, bool *decided, struct dcpk_error *err);

struct dcpk_view dcpk_model_view(const struct dcpk_model_tensor *tensor);
/* The number of a parameter's value (dcpk_model_value), or DCPK_NO_TENSOR. */
uint32_t dcpk_model_value_of(const struct dcpk_model *model, const struct dcpk_param *param);

/* Equal, where `step` may be an int in one and a float in the other. NULL equals nothing. */
bool dcpk_group_field_equal(const struct dcpk_value *a, const struct dcpk_value *b);

/*
 * Is the field of a group no part of its meaning? Megatron-FSDP keeps routed experts in the dense
 * groups, so is_expert_parallel tells formats apart and not groups.
 */
bool dcpk_is_format_field(const char *field);

/*
 * Does the attribute of args say what the folder holds (no_save_rng, no_save_optim)? That is
 * compared itself.
 */
bool dcpk_is_content_arg(const char *name);

/* Does the attribute only say what format a run keeps its checkpoints in? A conversion sets it. */
bool dcpk_is_format_arg(const char *name);

#endif

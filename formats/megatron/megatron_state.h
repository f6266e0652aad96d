/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_state.h - training state as Megatron keeps it in the common state -> the canonical view
 * (formats/torch_dist/FORMAT.md 5, 6). */
#ifndef DCPK_FORMATS_MEGATRON_MEGATRON_STATE_H
#define DCPK_FORMATS_MEGATRON_MEGATRON_STATE_H

#include "formats/megatron/megatron.h"
#include "lib/model/model.h"

/* Megatron's loaders start a state machine of their own where they find none
 * (formats/torch_dist/FORMAT.md
 * 6). */
#define DCPK_MEGATRON_RERUN_REASON                                                                 \
    "rerun state of the source's ranks: a run without it starts fresh"

/* After a "chained_<i>." that core 0.6 to 0.14 put before each of several optimizers. */
const char *dcpk_megatron_skip_chained(const char *key);

/*
 * The common state -> the view: args, iteration, scheduler, parameter groups, the loss scaler and
 * the optimizer's layout; what no member stands for becomes model->further. Entries of an
 * optimizer's dict that are not known are dropped by name. Errors: DCPK_EFORMAT without a common
 * state or where groups are not dicts; those of reading it.
 */
dcpk_status dcpk_megatron_read_common(struct dcpk_model *model, struct dcpk_error *err);

/* The loss scaler of an optimizer (NULL: it has none) -> the view; every optimizer of an fp16 run
 * has one. */
void dcpk_megatron_add_scaler(struct dcpk_model *model, const struct dcpk_value *scaler);

/*
 * Append the param_groups of one optimizer's state dict, {'optimizer': {'param_groups': [...]}} or,
 * in fp32 runs, without the outer dict, to model->groups; its loss scaler is kept too.
 */
dcpk_status dcpk_megatron_add_groups(struct dcpk_model *model, const struct dcpk_value *optimizer,
                                     struct dcpk_error *err);

/* True if the key is of the state `name`. */
bool dcpk_megatron_state_is(const struct dcpk_megatron_key *key, const char *name);
/* The role of a tensor by its state's name ("exp_avg": DCPK_EXP_AVG). */
enum dcpk_role dcpk_megatron_role(const struct dcpk_megatron_key *key);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* knobs_priv.h - how knobs and rules are written, and what their files share. */
#ifndef DCPK_LIB_KNOBS_KNOBS_PRIV_H
#define DCPK_LIB_KNOBS_KNOBS_PRIV_H

#include "lib/knobs/knobs.h"

/* The documents that define rows. */
#define DCPK_OF_ARGUMENTS   "megatron/training/arguments.py @core_v0.19.0"
#define DCPK_OF_TRANSFORMER "megatron/core/transformer/transformer_config.py @core_v0.19.0"
#define DCPK_OF_DDP         "megatron/core/distributed/distributed_data_parallel_config.py @core_v0.19.0"
#define DCPK_OF_OPTIMIZER   "megatron/core/optimizer/optimizer_config.py @core_v0.19.0"
#define DCPK_OF_FSDP        "megatron/core/distributed/fsdp/src/megatron_fsdp @core_v0.19.0"
#define DCPK_OF_ADAPTER     "megatron/core/distributed/fsdp/mcore_fsdp_adapter.py @HEAD"
#define DCPK_OF_ADAPTER_019 "megatron/core/distributed/fsdp/mcore_fsdp_adapter.py @core_v0.19.0"
#define DCPK_OF_BRIDGE      "src/megatron/bridge/training/config.py of Megatron-Bridge"
#define DCPK_OF_DETERMINISM "megatron/training/determinism.py @HEAD"
#define DCPK_OF_THIS_LOOP   "this program alone"

/* ---- rows ---- */

/* Rows of one part of a run; a row without a name ends them. */
extern const struct dcpk_option dcpk_knobs_of_model[], dcpk_knobs_of_ranks[], dcpk_knobs_of_fsdp[],
    dcpk_knobs_of_numbers[], dcpk_knobs_of_optimizer[], dcpk_knobs_of_no_effect[];

/*
 * Knobs that change nothing here, for one reason. names: separated by blanks; "a" takes a text,
 * "b=true" is a flag with its default. Other names of a knob follow after a comma; "!disable" alone
 * means "!disable_b". A row without names ends them.
 */
struct dcpk_knob_set {
    const char *names, *sections, *source, *reason;
};
extern const struct dcpk_knob_set dcpk_knobs_without_effect[];

/* The next row that is not of a name in such a list. NULL: there are no more. */
const struct dcpk_option *dcpk_knob_next_row(struct dcpk_knob_walk *walk);

/* True if a row of `name` was given. */
bool dcpk_knobs_was_given(const struct dcpk_train_knobs *knobs, const char *name);

/* ---- rules ---- */

/* In their order; a rule without an id ends a list. */
extern const struct dcpk_knob_rule dcpk_knob_rules_of_modes[]; /* before sizes are checked */
extern const struct dcpk_knob_rule dcpk_knob_rules[];

/* Sizes of the mesh, batch arithmetic, what they have to divide; which layers are MoE layers. */
dcpk_status dcpk_knobs_check_sizes(struct dcpk_train_knobs *knobs,
                                   const struct dcpk_train_environment *environment,
                                   struct dcpk_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* parallel.h - how Megatron lays parameters out over ranks: tensor-parallel axis, order of
 * registration, FSDP unit. */
#ifndef DCPK_LIB_RULES_PARALLEL_H
#define DCPK_LIB_RULES_PARALLEL_H

#include "lib/rules/names.h"

/*
 * What a canonical name tells (torch_dist.md 4.3 to 4.6, fsdp_training.md 4.2). Parameters are
 * registered in ascending order of `order`, compared as a list of numbers.
 */
struct dcpk_parallel {
    int tp_axis;    /* as in dcpk_param; DCPK_TP_UNKNOWN: no rule for the name */
    int64_t expert; /* -1: not a routed expert's */
    bool is_buffer; /* a persistent buffer: no parameter at all */
    int64_t order[5];
};

/*
 * canonical: as names.h spells it. is_te: the model is built of Transformer Engine's modules, else
 * of Megatron's local ones; they differ in the order of norms and experts, and in MLA's
 * down-projections, which only the local spec cuts. Cannot fail; a name that no rule knows sorts
 * behind all others.
 */
void dcpk_parallel_find(const char *canonical, bool is_te, struct dcpk_parallel *found);

/*
 * Set tp_axis, expert, unit and place of every parameter; the names are canonical. Under
 * DCPK_IMPL_ANY the modules are those that args.transformer_impl names, Transformer Engine's where
 * args do not say. Errors: DCPK_ENOMEM.
 */
dcpk_status dcpk_rules_parallel(struct dcpk_model *model, enum dcpk_impl impl,
                                struct dcpk_error *err);

#endif

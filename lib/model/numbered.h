/* SPDX-License-Identifier: Apache-2.0 */
/* numbered.h - state of torch's optimizers, which number parameters: the parameter of each
 * number. */
#ifndef DCPK_LIB_MODEL_NUMBERED_H
#define DCPK_LIB_MODEL_NUMBERED_H

#include "lib/base/arena.h"
#include "lib/ckpt/value.h"

/* A trained parameter, as Megatron sorts it into groups. */
struct dcpk_numbered_param {
    int n_axes;
    bool is_expert; /* routed */
};

/* The parameters that the groups number: param_of[number], below n. In an arena. */
struct dcpk_numbered {
    size_t *param_of; /* an index into params */
    size_t n;
};

/*
 * Find the parameter of each number. params: those of one rank's model, in the order in which
 * modules register them. groups: a list of dicts, each with its numbers in "params". Megatron fills
 * groups in that order: those without weight decay (wd_mult 0) have the parameters of one axis, or
 * none, the others the rest; those of experts are apart (is_expert_parallel). Errors:
 * DCPK_EUNSUPPORTED where the groups do not have as many parameters as that: they were made by
 * other rules, and no name is stored. Source: MC/optimizer/__init__.py@0.19.0 _get_param_groups;
 * MC/optimizer/optimizer_config.py, the same since core 0.4 (is_vector_parameter).
 */
dcpk_status dcpk_numbered_find(const struct dcpk_value *groups,
                               const struct dcpk_numbered_param *params, size_t n_params,
                               struct dcpk_arena *arena, struct dcpk_numbered *numbered,
                               struct dcpk_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* forbidden.c - a table of what Megatron-FSDP forbids (RULES.md 7). */
#include "lib/base/order.h"
#include "lib/rules/rules.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/*
 * The condition on an attribute: SET (neither None, False, 0 nor empty) or UNSET, with a text or a
 * number above 1 of its own, or another text than that.
 */
enum test { NO_TEST, SET, UNSET, IS, IS_NOT, ABOVE_ONE };

struct condition {
    enum test test;
    const char *name, *text;
};

#define FSDP                                                                                       \
    {                                                                                              \
        SET, "use_megatron_fsdp", NULL                                                             \
    }
#define MAX_TESTS 4

/* Sources: megatron/training/arguments.py validate_args,
 * core/distributed/fsdp/mcore_fsdp_adapter.py
 * @core_v0.15.3 to main; formats/fsdp_dtensor/FORMAT.md 5.1 for what fails at the save. */
static const struct rule {
    struct condition all[MAX_TESTS];
    const char *text;
} rules[] = {
    {{FSDP, {IS_NOT, "ckpt_format", "fsdp_dtensor"}},
     "use_megatron_fsdp is on and ckpt_format is not fsdp_dtensor: Megatron-FSDP saves and loads "
     "no other format; run with --ckpt-format fsdp_dtensor"},
    {{{UNSET, "use_megatron_fsdp", NULL}, {IS, "ckpt_format", "fsdp_dtensor"}},
     "ckpt_format is fsdp_dtensor and use_megatron_fsdp is off: no other run loads this format; "
     "run with --use-megatron-fsdp, or convert to torch_dist"},
    {{FSDP, {SET, "use_torch_fsdp2", NULL}},
     "use_megatron_fsdp and use_torch_fsdp2 are both on: leave one of them out"},
    {{FSDP, {SET, "use_tp_pp_dp_mapping", NULL}},
     "use_tp_pp_dp_mapping is on: Megatron-FSDP needs the default order of ranks; leave it out"},
    {{FSDP, {ABOVE_ONE, "pipeline_model_parallel_size", NULL}},
     "pipeline_model_parallel_size is above 1: Megatron-FSDP has no pipeline stages; run with "
     "--pipeline-model-parallel-size 1"},
    {{FSDP, {SET, "fsdp_manual_registration", NULL}, {UNSET, "nccl_ub", NULL}},
     "fsdp_manual_registration is on without user buffers: add --use-nccl-ub, or leave it out"},
    {{FSDP, {SET, "moe_single_grouped_weight", NULL}},
     "moe_single_grouped_weight is on: Megatron-FSDP does not take it; leave it out"},
    {{FSDP, {SET, "moe_single_grouped_bias", NULL}},
     "moe_single_grouped_bias is on: Megatron-FSDP does not take it; leave it out"},
    {{FSDP, {IS_NOT, "optimizer", "adam"}, {IS_NOT, "optimizer", "sgd"}},
     "the optimizer is neither adam nor sgd: Megatron-FSDP has no other; choose one of them"},
    {{FSDP, {SET, "hybrid_context_parallel", NULL}},
     "hybrid_context_parallel is on: Megatron-FSDP does not take it; leave it out"},
    {{FSDP,
      {IS, "data_parallel_sharding_strategy", "optim_grads_params"},
      {SET, "check_weight_hash_across_dp_replicas_interval", NULL}},
     "check_weight_hash_across_dp_replicas_interval is set: under optim_grads_params there are no "
     "replicas; leave it out"},
    {{FSDP,
      {ABOVE_ONE, "num_distributed_optimizer_instances", NULL},
      {IS, "outer_dp_sharding_strategy", "optim"},
      {IS_NOT, "data_parallel_sharding_strategy", "optim_grads_params"}},
     "outer_dp_sharding_strategy is optim: it needs --data-parallel-sharding-strategy "
     "optim_grads_params"},
    {{FSDP,
      {SET, "init_model_with_meta_device", NULL},
      {IS, "data_parallel_sharding_strategy", "no_shard"}},
     "init_model_with_meta_device is on without sharding: choose another "
     "--data-parallel-sharding-strategy, or leave it out"},
    {{FSDP, {SET, "swiglu", NULL}, {IS, "data_parallel_sharding_strategy", "no_shard"}},
     "args have swiglu and no_shard, which a conversion leaves as they were: a run of "
     "Megatron-FSDP with both fails when it saves; choose another "
     "--data-parallel-sharding-strategy"},
    {{FSDP, {SET, "gradient_accumulation_fusion", NULL}},
     "gradient_accumulation_fusion is on: Megatron-FSDP needs Transformer Engine 2.10 or later for "
     "it; run with --no-gradient-accumulation-fusion"},
    {{FSDP, {IS, "megatron_fsdp_version", "2"}},
     "megatron_fsdp_version is 2: it saves and loads no optimizer state; run version 1, or load "
     "with --no-load-optim"},
};

static bool is_set(const struct dcpk_value *v)
{
    double number;

    if (dcpk_value_is_none(v))
        return false;
    if (v->kind == DCPK_V_BOOL)
        return v->as.b;
    if (dcpk_value_as_float(v, &number))
        return number != 0;
    return dcpk_value_as_str(v) == NULL || v->n > 0;
}

/* Its text, or the number in digits; NULL: neither. */
static const char *text_of(const struct dcpk_value *v, char digits[24])
{
    int64_t number;

    if (!dcpk_value_as_int(v, &number))
        return dcpk_value_as_str(v);
    snprintf(digits, 24, "%" PRId64, number);
    return digits;
}

static bool holds(const struct condition *c, const struct dcpk_value *attrs)
{
    const struct dcpk_value *v;
    char digits[24];
    const char *text;
    int64_t number = 0;

    if (c->test == NO_TEST)
        return true;
    v = dcpk_value_get(attrs, c->name);
    text = text_of(v, digits);
    switch (c->test) {
    case SET:
        return is_set(v);
    case UNSET:
        return v != NULL && !is_set(v);
    case IS:
        return text != NULL && strcmp(text, c->text) == 0;
    case IS_NOT:
        return text != NULL && strcmp(text, c->text) != 0;
    case ABOVE_ONE:
        return dcpk_value_as_int(v, &number) && number > 1;
    case NO_TEST:
        break;
    }
    return true;
}

dcpk_status dcpk_rules_forbidden(const struct dcpk_value *attrs, struct dcpk_arena *arena,
                                 struct dcpk_note **notes, struct dcpk_error *err)
{
    while (*notes != NULL)
        notes = &(*notes)->next;
    for (size_t i = 0; i < DCPK_COUNT(rules); i++) {
        bool all = true;

        for (size_t t = 0; t < MAX_TESTS; t++)
            all &= holds(&rules[i].all[t], attrs);
        if (!all)
            continue;
        *notes = dcpk_arena_alloc(arena, sizeof **notes, err);
        if (*notes == NULL)
            return err->status;
        (*notes)->text = rules[i].text;
        notes = &(*notes)->next;
    }
    return DCPK_OK;
}

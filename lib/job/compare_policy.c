/* SPDX-License-Identifier: Apache-2.0 */
/* compare_policy.c - what becomes of each thing that differs: the table of policies. */
#include <inttypes.h>
#include <string.h>

#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/job/compare_priv.h"
#include "lib/model/norms.h"
#include "lib/model/portable.h"
#include "lib/model/sizes.h"
#include "lib/rules/mesh.h"

/* ---- attributes and fields by name ---- */

/*
 * True if the attribute of args describes the contents of the folder (no_save_rng, no_save_optim),
 * which are compared themselves.
 */
static bool is_content_arg(const char *name)
{
    return strcmp(name, "no_save_rng") == 0 || strcmp(name, "no_save_optim") == 0;
}

/* True if the attribute only names the format that a run keeps its checkpoints in. A conversion
 * sets it. */
static bool is_format_arg(const char *name)
{
    return strcmp(name, "ckpt_format") == 0 || strcmp(name, "use_megatron_fsdp") == 0 ||
           strcmp(name, "megatron_fsdp_version") == 0 ||
           strcmp(name, "dist_ckpt_optim_fully_reshardable") == 0;
}

/* Megatron-FSDP keeps routed experts in the dense groups, so is_expert_parallel distinguishes
 * formats and not groups. */
static bool is_format_field(const char *field)
{
    return strcmp(field, "is_expert_parallel") == 0;
}

/* ---- a model and a run ---- */

/*
 * Args that a configuration does not decide: the run's place in its data, its dropout, the dtype it
 * works in, another spelling of `position_embedding_type`, and how weights of norms are stored
 * (align_norms).
 */
static bool is_run_arg(const char *name)
{
    static const char *const names[] = {DCPK_ARG_NORM_1P,
                                        DCPK_ARG_ZERO_CENTERED,
                                        "attention_dropout",
                                        "bf16",
                                        "consumed_train_samples",
                                        "consumed_valid_samples",
                                        "fp16",
                                        "hidden_dropout",
                                        "iteration", /* where a resumed run began */
                                        "params_dtype",
                                        "use_rotary_position_embeddings"};

    for (size_t i = 0; i < DCPK_COUNT(names); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

/* Groups of queries, of a run that has none: a model has one for each head. */
static bool is_unused_group_arg(const struct dcpk_comparing *c, const char *name)
{
    if (strcmp(name, "group_query_attention") != 0 && strcmp(name, "num_query_groups") != 0)
        return false;
    for (int s = 0; s < 2; s++) {
        const struct dcpk_value *attrs = dcpk_value_attrs(c->side[s].model->args);
        const struct dcpk_value *groups = dcpk_value_get(attrs, "num_query_groups");

        if (!c->side[s].ckpt->format->is_model && groups != NULL &&
            dcpk_query_groups(attrs) == groups)
            return false;
    }
    return true;
}

/*
 * True if the value means that the arg is not set. A run whose tokenizer has no vocabulary of its
 * own stores None as vocab_size; the rows of the embedding are compared.
 */
static bool is_unsaid_arg(const char *name, const struct dcpk_value *value)
{
    return value == NULL || (value->kind == DCPK_V_NONE && strcmp(name, "vocab_size") == 0);
}

/* A model has no place for a run's state, and lacks args that it does not make: neither counts. */
static bool is_of_run(const struct dcpk_comparing *c, enum dcpk_subject subject, const char *key,
                      const struct dcpk_value *const values[2])
{
    if (!c->with_model || subject == DCPK_OF_CONFIG)
        return false;
    if (subject != DCPK_OF_ARGS)
        return true;
    return is_unsaid_arg(key, values[DCPK_A]) || is_unsaid_arg(key, values[DCPK_B]) ||
           is_run_arg(key) || is_unused_group_arg(c, key);
}

/* Tolerated, whether one side lacks it or it differs. */
static enum dcpk_weight weigh_tolerated(const struct dcpk_value *const values[2])
{
    return values[DCPK_A] == NULL || values[DCPK_B] == NULL ? DCPK_MAY_LACK : DCPK_MAY_DIFFER;
}

/* ---- are they the same ---- */

/* True if the value names a class other than Namespace and a dtype. */
static bool names_class(const struct dcpk_value *v)
{
    if (v->kind == DCPK_V_OBJECT)
        return !dcpk_value_is_object(v, "argparse", "Namespace");
    return v->kind == DCPK_V_GLOBAL && strcmp(v->as.global.module, "torch") != 0;
}

/* Attributes that name a class are left out by a conversion. */
static enum dcpk_weight weigh_same_arg(const char *name, const struct dcpk_value *value)
{
    if (dcpk_rules_is_layout_arg(name))
        return DCPK_IS_LAYOUT;
    if (is_content_arg(name) || is_format_arg(name))
        return DCPK_MAY_DIFFER;
    if (value->kind == DCPK_V_LIST || value->kind == DCPK_V_TUPLE || value->kind == DCPK_V_SET)
        for (size_t i = 0; i < value->n; i++)
            if (names_class(value->as.items[i]))
                return DCPK_MAY_LACK;
    return names_class(value) ? DCPK_MAY_LACK : DCPK_COUNTS;
}

static enum dcpk_weight weigh_same(const struct dcpk_comparing *c, enum dcpk_subject subject,
                                   const char *key, const struct dcpk_value *const values[2])
{
    /* State that only one of two formats has a place for. RNG states: fsdp_dtensor has those of the
     * first pipeline stage only. */
    const enum dcpk_weight in_format = c->same_format ? DCPK_COUNTS : DCPK_MAY_LACK;
    const struct dcpk_value *value = values[values[DCPK_A] == NULL];

    if (is_of_run(c, subject, key, values))
        return weigh_tolerated(values);
    switch (subject) {
    case DCPK_OF_STORED:
    case DCPK_OF_STATE:
    case DCPK_OF_CONFIG:
        return DCPK_COUNTS;
    case DCPK_OF_COMMON:
        return dcpk_value_is_portable(value) ? in_format : DCPK_MAY_LACK;
    case DCPK_OF_ARGS:
        return weigh_same_arg(key, value);
    case DCPK_OF_FIELD:
        if (key == NULL || !is_format_field(key))
            return in_format;
        if (!c->same_format)
            return DCPK_MAY_DIFFER;
        if (c->side[DCPK_A].model->layout.ep != c->side[DCPK_B].model->layout.ep)
            return DCPK_IS_LAYOUT;
        return DCPK_COUNTS;
    case DCPK_OF_NO_RANK:
        return DCPK_IS_LAYOUT;
    case DCPK_OF_SCALER:
    case DCPK_OF_RNG:
        break;
    }
    return in_format;
}

/* ---- is A a faithful conversion of B ---- */

/* True if the attribute names the target's format. */
static bool is_set_format(const struct dcpk_comparing *c, const struct dcpk_value *value)
{
    const char *format = dcpk_value_as_str(value);
    int64_t version;
    bool on;

    return dcpk_value_as_bool(value, &on) ||
           (dcpk_value_as_int(value, &version) && (version == 1 || version == 2)) ||
           (format != NULL && strcmp(format, c->side[DCPK_A].ckpt->format->name) == 0);
}

/*
 * Attributes that a conversion sets: mesh and padding of the target, its format, and flags for
 * missing RNG or optimizer state.
 */
static bool is_set_arg(const struct dcpk_comparing *c, const char *name,
                       const struct dcpk_value *value)
{
    const bool is_none = value->kind == DCPK_V_NONE;
    int64_t size;
    bool on = false;

    if (is_format_arg(name))
        return is_set_format(c, value);
    if (dcpk_layout_is_arg(name) || strcmp(name, "make_vocab_size_divisible_by") == 0)
        return (dcpk_value_as_int(value, &size) && size > 0) ||
               (is_none && dcpk_stages_is_arg(name));
    if (dcpk_stages_is_arg(name))
        return is_none || (dcpk_value_as_bool(value, &on) && !on);
    return is_content_arg(name) && dcpk_value_as_bool(value, &on) && on;
}

/* True if a conversion may have dropped an entry of B. */
static bool may_drop(const struct dcpk_model *a, enum dcpk_subject subject,
                     const struct dcpk_value *value)
{
    switch (subject) {
    case DCPK_OF_COMMON: /* content_metadata shows a common state: fsdp_dtensor has none */
        return a->content == NULL || !dcpk_value_is_portable(value);
    case DCPK_OF_SCALER:
        return a->content == NULL || !a->has_optimizer;
    case DCPK_OF_ARGS: /* the conversion reports which */
    case DCPK_OF_RNG:
    case DCPK_OF_NO_RANK:
        return true;
    case DCPK_OF_STORED:
    case DCPK_OF_STATE:
    case DCPK_OF_CONFIG:
    case DCPK_OF_FIELD:
        break;
    }
    return false;
}

static enum dcpk_weight weigh_faithful(const struct dcpk_comparing *c, enum dcpk_subject subject,
                                       const char *key, const struct dcpk_value *const values[2])
{
    if (is_of_run(c, subject, key, values))
        return weigh_tolerated(values);
    if (subject == DCPK_OF_ARGS && values[DCPK_A] != NULL)
        return is_set_arg(c, key, values[DCPK_A]) ? DCPK_MAY_DIFFER : DCPK_COUNTS;
    if (subject == DCPK_OF_FIELD && (strcmp(key, "params") == 0 || is_format_field(key)))
        return DCPK_MAY_DIFFER;
    if (values[DCPK_B] == NULL) /* a conversion may add what its target needs */
        return subject == DCPK_OF_STORED ? DCPK_COUNTS : DCPK_MAY_LACK;
    return may_drop(c->side[DCPK_A].model, subject, values[DCPK_B]) ? DCPK_MAY_LACK : DCPK_COUNTS;
}

static const char common_name[] = "common.";

/* The name of a value in a sentence. */
static const char *name_value(const struct dcpk_difference *d)
{
    if (dcpk_starts_with(d->name, common_name))
        return d->name + strlen(common_name);
    return d->name;
}

/* Names the thing that one side lacks. */
static const char *word_lacking(struct dcpk_arena *arena, const struct dcpk_difference *d,
                                struct dcpk_error *err)
{
    const bool is_in_a = d->kind == DCPK_ONLY_IN_A;
    const char *side = is_in_a ? "checkpoint" : "source";
    const char *lack = is_in_a ? "is not in the source" : "is missing";

    if (d->part != NULL && strcmp(d->part, "parameter group") == 0)
        return dcpk_arena_printf(arena, err, "'%s': has a parameter group only in the %s", d->name,
                                 side);
    if (d->part != NULL)
        return dcpk_arena_printf(arena, err, "'%s': the %s is only in the %s", d->name, d->part,
                                 side);
    if (strcmp(d->name, "args") == 0)
        return dcpk_arena_printf(arena, err, "args are only in the %s", side);
    if (d->is_value)
        return dcpk_arena_printf(arena, err, "%s %s", name_value(d), lack);
    return dcpk_arena_printf(arena, err, "'%s' %s", d->name, lack);
}

/* A is "the checkpoint", B "the source". */
static const char *word_faithful(struct dcpk_arena *arena, const struct dcpk_difference *d,
                                 struct dcpk_error *err)
{
    switch (d->kind) {
    case DCPK_ONLY_IN_A:
    case DCPK_ONLY_IN_B:
        return word_lacking(arena, d, err);
    case DCPK_SHAPE_DIFFERS:
    case DCPK_DTYPE_DIFFERS:
        return dcpk_arena_printf(arena, err, "'%s': the %s is %s, in the source %s", d->name,
                                 d->part, d->a, d->b);
    case DCPK_ELEMENTS_DIFFER:
        return dcpk_arena_printf(
            arena, err, "'%s': %" PRIu64 " elements of the %s differ, the first is number %" PRId64,
            d->name, d->measured.n_different, d->part, d->measured.first_different);
    case DCPK_VALUE_DIFFERS:
    case DCPK_NOT_FAITHFUL:
    case DCPK_N_DIFFERENCES:
        break;
    }
    return dcpk_arena_printf(arena, err, "%s differs", name_value(d));
}

/* ---- the table ---- */

static const struct dcpk_policy policies[] = {
    [DCPK_COMPARE_SAME] = {.first = DCPK_A,
                           .keeps_tolerated = true,
                           .max_kept = UINT64_MAX,
                           .pair_param = dcpk_pair_param_same,
                           .weigh = weigh_same},
    [DCPK_COMPARE_FAITHFUL] = {.first = DCPK_B,
                               .max_kept = DCPK_MAX_KEPT,
                               .pair_param = dcpk_pair_param_faithful,
                               .weigh = weigh_faithful,
                               .word = word_faithful},
};

const struct dcpk_policy *dcpk_policy_of(enum dcpk_compare_policy policy)
{
    return &policies[policy];
}

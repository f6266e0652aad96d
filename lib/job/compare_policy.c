/* SPDX-License-Identifier: Apache-2.0 */
/* compare_policy.c - what becomes of each thing that differs: the table of policies. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/text.h"
#include "lib/job/compare_priv.h"
#include "lib/model/layout.h"
#include "lib/model/portable.h"
#include "lib/rules/mesh.h"
#include "lib/rules/stages.h"

/* ---- attributes and fields by name ---- */

/*
 * Does the attribute of args describe what the folder holds (no_save_rng, no_save_optim)? That is
 * compared itself.
 */
static bool is_content_arg(const char *name)
{
    return strcmp(name, "no_save_rng") == 0 || strcmp(name, "no_save_optim") == 0;
}

/* Does the attribute only name the format that a run keeps its checkpoints in? A conversion sets
 * it. */
static bool is_format_arg(const char *name)
{
    return strcmp(name, "ckpt_format") == 0 || strcmp(name, "use_megatron_fsdp") == 0 ||
           strcmp(name, "megatron_fsdp_version") == 0;
}

/* Megatron-FSDP keeps routed experts in the dense groups, so is_expert_parallel tells formats apart
 * and not groups. */
static bool is_format_field(const char *field)
{
    return strcmp(field, "is_expert_parallel") == 0;
}

/* ---- are they the same ---- */

static enum dcpk_weight same_single(const struct dcpk_comparing *c, const char *key,
                                    const struct dcpk_value *const values[2])
{
    (void)c;
    (void)key;
    (void)values;
    return DCPK_COUNTS;
}

/* What only one of two formats has a place for. */
static enum dcpk_weight same_in_format(const struct dcpk_comparing *c, const char *key,
                                       const struct dcpk_value *const values[2])
{
    (void)key;
    (void)values;
    return c->same_format ? DCPK_COUNTS : DCPK_MAY_LACK;
}

static const struct dcpk_value *value_of_either(const struct dcpk_value *const values[2])
{
    return values[values[DCPK_A] == NULL];
}

static enum dcpk_weight same_further(const struct dcpk_comparing *c, const char *key,
                                     const struct dcpk_value *const values[2])
{
    if (!dcpk_value_is_portable(value_of_either(values)))
        return DCPK_MAY_LACK;
    return same_in_format(c, key, values);
}

/* Does the value name a class that is neither Namespace nor a dtype? */
static bool names_class(const struct dcpk_value *v)
{
    if (v->kind == DCPK_V_OBJECT)
        return !dcpk_value_is_object(v, "argparse", "Namespace");
    return v->kind == DCPK_V_GLOBAL && strcmp(v->as.global.module, "torch") != 0;
}

/* Attributes that name a class are left out by a conversion. */
static enum dcpk_weight same_arg(const struct dcpk_comparing *c, const char *key,
                                 const struct dcpk_value *const values[2])
{
    const struct dcpk_value *value = value_of_either(values);

    (void)c;
    if (dcpk_rules_is_layout_arg(key))
        return DCPK_IS_LAYOUT;
    if (is_content_arg(key) || is_format_arg(key))
        return DCPK_MAY_DIFFER;
    if (value->kind == DCPK_V_LIST || value->kind == DCPK_V_TUPLE || value->kind == DCPK_V_SET)
        for (size_t i = 0; i < value->n; i++)
            if (names_class(value->as.items[i]))
                return DCPK_MAY_LACK;
    return names_class(value) ? DCPK_MAY_LACK : DCPK_COUNTS;
}

static enum dcpk_weight same_field(const struct dcpk_comparing *c, const char *key,
                                   const struct dcpk_value *const values[2])
{
    if (is_format_field(key) && !c->same_format)
        return DCPK_MAY_DIFFER;
    if (is_format_field(key) &&
        c->side[DCPK_A].model->layout.ep != c->side[DCPK_B].model->layout.ep)
        return DCPK_IS_LAYOUT;
    return same_in_format(c, key, values);
}

/*
 * RNG states belong to ranks, and fsdp_dtensor has those of the first pipeline stage only; releases
 * have them for each data-parallel rank, or one for all. What stands for a rank without being its
 * own is compared where it is equal, or for the first rank.
 */
static enum dcpk_weight same_rng(const struct dcpk_comparing *c, const struct dcpk_rng *rng,
                                 const struct dcpk_rng **found)
{
    const struct dcpk_layout *a = &c->side[DCPK_A].model->layout;
    const struct dcpk_layout *b = &c->side[DCPK_B].model->layout;

    if (*found != NULL && rng->dp != 0 &&
        ((*found)->dp != rng->dp || (*found)->n_dp != rng->n_dp) &&
        !dcpk_value_equal((*found)->states, rng->states))
        *found = NULL;
    if (*found == NULL && (a->tp != b->tp || a->pp != b->pp || rng->dp > 0))
        return DCPK_IS_LAYOUT;
    return same_in_format(c, NULL, NULL);
}

static void same_rng_name(const struct dcpk_rng *rng, char *name, size_t n_bytes)
{
    const int n =
        snprintf(name, n_bytes, "rng_state[pp %" PRId64 ", tp %" PRId64, rng->pp, rng->tp);

    if (rng->n_dp > 0)
        snprintf(name + n, n_bytes - (size_t)n, ", dp %" PRId64 "]", rng->dp);
    else
        snprintf(name + n, n_bytes - (size_t)n, "]");
}

/* ---- is A a faithful conversion of B ---- */

/* A conversion may add what its target needs, and drops nothing of this. */
static enum dcpk_weight faithful_single(const struct dcpk_comparing *c, const char *key,
                                        const struct dcpk_value *const values[2])
{
    (void)c;
    (void)key;
    return values[DCPK_B] == NULL ? DCPK_MAY_LACK : DCPK_COUNTS;
}

/* What only a common state has, which content_metadata shows: fsdp_dtensor has none. */
static enum dcpk_weight faithful_scaler(const struct dcpk_comparing *c, const char *key,
                                        const struct dcpk_value *const values[2])
{
    const struct dcpk_model *a = c->side[DCPK_A].model;

    if (a->content == NULL || !a->has_optimizer)
        return DCPK_MAY_LACK;
    return faithful_single(c, key, values);
}

static enum dcpk_weight faithful_further(const struct dcpk_comparing *c, const char *key,
                                         const struct dcpk_value *const values[2])
{
    if (c->side[DCPK_A].model->content == NULL || values[DCPK_B] == NULL ||
        !dcpk_value_is_portable(values[DCPK_B]))
        return DCPK_MAY_LACK;
    return faithful_single(c, key, values);
}

/* An attribute that names the target's format. */
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
 * Attributes that a conversion sets: the target's mesh and padding, its format, and what shows that
 * the folder has no RNG or optimizer state.
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

/* Every attribute that A carries must be B's; which ones were left out the conversion reports. */
static enum dcpk_weight faithful_arg(const struct dcpk_comparing *c, const char *key,
                                     const struct dcpk_value *const values[2])
{
    if (values[DCPK_A] == NULL)
        return DCPK_MAY_LACK;
    return is_set_arg(c, key, values[DCPK_A]) ? DCPK_MAY_DIFFER : DCPK_COUNTS;
}

static enum dcpk_weight faithful_field(const struct dcpk_comparing *c, const char *key,
                                       const struct dcpk_value *const values[2])
{
    if (strcmp(key, "params") == 0 || is_format_field(key))
        return DCPK_MAY_DIFFER;
    return faithful_single(c, key, values);
}

/* Every RNG state of A must be the one that stands for its rank in B. */
static enum dcpk_weight faithful_rng(const struct dcpk_comparing *c, const struct dcpk_rng *rng,
                                     const struct dcpk_rng **found)
{
    (void)c;
    (void)rng;
    (void)found;
    return DCPK_MAY_LACK;
}

static void faithful_rng_name(const struct dcpk_rng *rng, char *name, size_t n_bytes)
{
    snprintf(name, n_bytes, "the RNG state of (pp, tp, dp) (%" PRId64 ", %" PRId64 ", %" PRId64 ")",
             rng->pp, rng->tp, rng->dp);
}

/* What one side lacks, in words: A is "the checkpoint", B "the source". */
static const char *word_lacking(struct dcpk_arena *arena, const struct dcpk_difference *d,
                                const char *side, struct dcpk_error *err)
{
    const char *quote = d->is_value ? "" : "'", *what = "is missing";

    if (d->kind == DCPK_ONLY_IN_A)
        what = "is not in the source";
    if (d->part != NULL && strcmp(d->part, "parameter group") == 0)
        return dcpk_arena_printf(arena, err, "'%s': has a parameter group only in the %s", d->name,
                                 side);
    if (d->part != NULL)
        return dcpk_arena_printf(arena, err, "'%s': the %s is only in the %s", d->name, d->part,
                                 side);
    if (strcmp(d->name, "args") == 0)
        return dcpk_arena_printf(arena, err, "args are only in the %s", side);
    return dcpk_arena_printf(arena, err, "%s%s%s %s", quote, d->name, quote, what);
}

static const char *faithful_word(struct dcpk_arena *arena, const struct dcpk_difference *d,
                                 struct dcpk_error *err)
{
    switch (d->kind) {
    case DCPK_ONLY_IN_A:
        return word_lacking(arena, d, "checkpoint", err);
    case DCPK_ONLY_IN_B:
        return word_lacking(arena, d, "source", err);
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
    return dcpk_arena_printf(arena, err, "%s differs", d->name);
}

/* ---- the table ---- */

static const struct dcpk_policy policies[] = {
    [DCPK_COMPARE_SAME] =
        {
            .first = DCPK_A,
            .cuts_padding = true,
            .keeps_tolerated = true,
            .most_kept = UINT64_MAX,
            .further_prefix = "common",
            .single = same_single,
            .scaler = same_in_format,
            .further = same_further,
            .arg = same_arg,
            .field = same_field,
            .rng = same_rng,
            .name_rng = same_rng_name,
        },
    [DCPK_COMPARE_FAITHFUL] =
        {
            .first = DCPK_B,
            .needs_models = true,
            .pairs_values = true,
            .checks_masters = true,
            .is_bitwise = true,
            .groups_by_param = true,
            .whole_scheduler = true,
            .converts_extras = true,
            .most_kept = DCPK_MOST_KEPT,
            .single = faithful_single,
            .scaler = faithful_scaler,
            .further = faithful_further,
            .arg = faithful_arg,
            .field = faithful_field,
            .rng = faithful_rng,
            .name_rng = faithful_rng_name,
            .word = faithful_word,
        },
};

const struct dcpk_policy *dcpk_policy_of(enum dcpk_compare_policy policy)
{
    return &policies[policy];
}

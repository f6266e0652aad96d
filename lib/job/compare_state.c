/* SPDX-License-Identifier: Apache-2.0 */
/* compare_state.c - training state of two checkpoints by name: args, groups, scheduler, RNG. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/job/compare_priv.h"
#include "lib/job/pairing.h"
#include "lib/model/portable.h"
#include "lib/rules/rules.h"

#define MOST_TEXT_BYTES 120 /* of a value in the answer */

/* A value as JSON, cut, in the report's arena; NULL for none, or with err. */
static const char *value_text(struct dcpk_comparing *c, const struct dcpk_value *value,
                              struct dcpk_error *err)
{
    struct dcpk_bytes bytes = {0};
    struct dcpk_json_out j;
    const char *text = NULL;
    dcpk_status st;

    if (value == NULL)
        return NULL;
    dcpk_json_out_init(&j, &bytes, 0);
    j.is_python = true; /* a float nan and the text "NaN" look different */
    dcpk_value_to_json(value, &j);
    st = dcpk_bytes_status(&bytes, err);
    if (st == DCPK_OK)
        text =
            bytes.n_bytes <= MOST_TEXT_BYTES
                ? dcpk_arena_strndup(c->report->arena, (const char *)bytes.data, bytes.n_bytes, err)
                : dcpk_arena_printf(c->report->arena, err, "%.*s...", MOST_TEXT_BYTES,
                                    (const char *)bytes.data);
    dcpk_bytes_release(&bytes);
    return text;
}

static struct dcpk_differences *list_for(struct dcpk_comparing *c, enum dcpk_weight weight,
                                         bool is_lacking)
{
    if (!c->options->strict && weight == DCPK_IS_LAYOUT)
        return &c->report->layout;
    if (!c->options->strict &&
        (weight == DCPK_MAY_DIFFER || (weight == DCPK_MAY_LACK && is_lacking)))
        return &c->report->tolerated;
    return &c->report->differences;
}

dcpk_status dcpk_comparing_value(struct dcpk_comparing *c, const char *name,
                                 const struct dcpk_value *a, const struct dcpk_value *b,
                                 enum dcpk_weight weight, dcpk_values_equal *equal,
                                 struct dcpk_error *err)
{
    const bool is_lacking = a == NULL || b == NULL;
    struct dcpk_difference d = {.kind = DCPK_VALUE_DIFFERS, .name = name, .is_value = true};

    if (a == NULL && b == NULL)
        return DCPK_OK;
    c->report->n_values++;
    c->report->parts[dcpk_comparing_part(name, NULL, false)].n_compared++;
    if (!is_lacking && (equal == NULL ? dcpk_value_equal(a, b) : equal(a, b)))
        return DCPK_OK;
    if (is_lacking)
        d.kind = b == NULL ? DCPK_ONLY_IN_A : DCPK_ONLY_IN_B;
    d.a = value_text(c, a, err);
    d.b = value_text(c, b, err);
    if ((a != NULL && d.a == NULL) || (b != NULL && d.b == NULL))
        return err->status;
    return dcpk_comparing_add(c, list_for(c, weight, is_lacking), &d, err);
}

static const struct dcpk_value *dict_or_null(const struct dcpk_value *v)
{
    return v != NULL && v->kind == DCPK_V_DICT ? v : NULL;
}

#define SCANNED_ENTRIES 16 /* of a dict that is searched without a table */

/* A dict's text keys -> their entries; stays empty for a small one. */
static dcpk_status index_entries(const struct dcpk_value *dict, struct dcpk_map *index,
                                 struct dcpk_error *err)
{
    for (size_t i = 0; dict->n > SCANNED_ENTRIES && i < dict->n; i++) {
        const struct dcpk_value *key = dict->as.pairs[i].key;
        bool existed;
        uint64_t found;

        if (key->kind == DCPK_V_STR &&
            dcpk_map_put(index, key->as.str, key->n, i, &existed, &found, err) != DCPK_OK)
            return err->status;
    }
    return DCPK_OK;
}

static const struct dcpk_value *find_entry(const struct dcpk_value *dict,
                                           const struct dcpk_map *index, const char *key)
{
    uint64_t found;

    if (dict->n <= SCANNED_ENTRIES)
        return dcpk_value_get(dict, key);
    return dcpk_map_get(index, key, strlen(key), &found) ? dict->as.pairs[found].value : NULL;
}

/* The entries of `from` that are to be compared: all of A's, those of B that A lacks. */
static dcpk_status compare_entries(struct dcpk_comparing *c, const char *prefix,
                                   const struct dcpk_value *a, const struct dcpk_value *b,
                                   bool from_a, dcpk_weigh *weigh, dcpk_values_equal *equal,
                                   struct dcpk_error *err)
{
    const struct dcpk_value *from = from_a ? a : b, *to = from_a ? b : a;
    struct dcpk_map index = {0};
    dcpk_status st = index_entries(to, &index, err);

    for (size_t i = 0; i < from->n && st == DCPK_OK; i++) {
        const char *key = dcpk_value_as_str(from->as.pairs[i].key);
        const struct dcpk_value *mine = from->as.pairs[i].value;
        const struct dcpk_value *other = key == NULL ? NULL : find_entry(to, &index, key);
        char name[512];

        if (key == NULL || (!from_a && other != NULL))
            continue;
        snprintf(name, sizeof name, "%s.%s", prefix, key);
        st = dcpk_comparing_value(c, name, from_a ? mine : NULL, from_a ? other : mine,
                                  weigh == NULL ? DCPK_COUNTS : weigh(c, key, mine), equal, err);
    }
    dcpk_map_release(&index);
    return st;
}

/* The entries of a dict whose keys are no text, as a dict; *unnamed NULL: there are none. */
static dcpk_status take_unnamed(struct dcpk_arena *arena, const struct dcpk_value *dict,
                                const struct dcpk_value **unnamed, struct dcpk_error *err)
{
    struct dcpk_value_pair *pairs;
    size_t n = 0;

    *unnamed = NULL;
    for (size_t i = 0; i < dict->n; i++)
        n += dict->as.pairs[i].key->kind != DCPK_V_STR;
    pairs = n == 0 ? NULL : dcpk_arena_array(arena, n, sizeof *pairs, err);
    if (pairs == NULL)
        return err->status;
    n = 0;
    for (size_t i = 0; i < dict->n; i++)
        if (dict->as.pairs[i].key->kind != DCPK_V_STR)
            pairs[n++] = dict->as.pairs[i];
    *unnamed = dcpk_value_dict(arena, pairs, n, err);
    return err->status;
}

/* All entries without a name are one value, "prefix[...]". */
static dcpk_status compare_unnamed(struct dcpk_comparing *c, const char *prefix,
                                   const struct dcpk_value *a, const struct dcpk_value *b,
                                   struct dcpk_error *err)
{
    char name[512];
    const struct dcpk_value *x, *y;

    if (take_unnamed(c->report->arena, a, &x, err) || take_unnamed(c->report->arena, b, &y, err))
        return err->status;
    snprintf(name, sizeof name, "%s[...]", prefix);
    return dcpk_comparing_value(c, name, x, y, DCPK_COUNTS, NULL, err);
}

dcpk_status dcpk_comparing_dicts(struct dcpk_comparing *c, const char *prefix,
                                 const struct dcpk_value *a, const struct dcpk_value *b,
                                 dcpk_weigh *weigh, dcpk_values_equal *equal,
                                 struct dcpk_error *err)
{
    const struct dcpk_value *x = dict_or_null(a), *y = dict_or_null(b);
    dcpk_status st;

    if (x == NULL || y == NULL) /* one is missing, or no dict: as a whole */
        return dcpk_comparing_value(c, prefix, a, b, DCPK_COUNTS, equal, err);
    st = compare_entries(c, prefix, x, y, true, weigh, equal, err);
    if (st == DCPK_OK)
        st = compare_entries(c, prefix, x, y, false, weigh, equal, err);
    return st == DCPK_OK ? compare_unnamed(c, prefix, x, y, err) : st;
}

/* Does the value name a class that is neither Namespace nor a dtype? */
static bool names_class(const struct dcpk_value *v)
{
    if (v->kind == DCPK_V_OBJECT)
        return !dcpk_value_is_object(v, "argparse", "Namespace");
    return v->kind == DCPK_V_GLOBAL && strcmp(v->as.global.module, "torch") != 0;
}

/* Attributes that name a class are left out by a conversion. */
static enum dcpk_weight weigh_arg(const struct dcpk_comparing *c, const char *key,
                                  const struct dcpk_value *value)
{
    (void)c;
    if (dcpk_rules_is_layout_arg(key))
        return DCPK_IS_LAYOUT;
    if (dcpk_is_content_arg(key) || dcpk_is_format_arg(key))
        return DCPK_MAY_DIFFER;
    if (value->kind == DCPK_V_LIST || value->kind == DCPK_V_TUPLE || value->kind == DCPK_V_SET)
        for (size_t i = 0; i < value->n; i++)
            if (names_class(value->as.items[i]))
                return DCPK_MAY_LACK;
    return names_class(value) ? DCPK_MAY_LACK : DCPK_COUNTS;
}

/* What only one of two formats has a place for. */
static enum dcpk_weight weigh_by_format(const struct dcpk_comparing *c)
{
    return c->same_format ? DCPK_COUNTS : DCPK_MAY_LACK;
}

static enum dcpk_weight weigh_field(const struct dcpk_comparing *c, const char *key,
                                    const struct dcpk_value *value)
{
    (void)value;
    if (dcpk_is_format_field(key) && !c->same_format)
        return DCPK_MAY_DIFFER;
    if (dcpk_is_format_field(key) && c->other_experts)
        return DCPK_IS_LAYOUT;
    return weigh_by_format(c);
}

/* Compare the groups of one parameter, unless another one of the same two groups came before. */
static dcpk_status compare_group_pair(struct dcpk_comparing *c, const struct dcpk_model *a,
                                      uint32_t g, const struct dcpk_model *b, uint32_t h,
                                      struct dcpk_map *seen, struct dcpk_error *err)
{
    char name[64];
    const char *pair = dcpk_arena_printf(c->report->arena, err, "%" PRIu32 "/%" PRIu32, g, h);
    bool existed;
    uint64_t found;
    dcpk_status st = pair == NULL
                         ? err->status
                         : dcpk_map_put(seen, pair, strlen(pair), 0, &existed, &found, err);

    if (st != DCPK_OK || existed)
        return st;
    snprintf(name, sizeof name, "param_groups[%" PRIu32 "]", g);
    return dcpk_comparing_dicts(c, name, a->groups[g], b->groups[h], weigh_field,
                                dcpk_group_field_equal, err);
}

/* The groups of every parameter that both have. */
static dcpk_status compare_group_pairs(struct dcpk_comparing *c, const struct dcpk_model *a,
                                       const struct dcpk_model *b, struct dcpk_error *err)
{
    struct dcpk_map seen = {0};
    dcpk_status st = DCPK_OK;

    for (size_t i = 0; i < a->n_params && st == DCPK_OK; i++) {
        const struct dcpk_param *p = &a->params[i];
        struct dcpk_difference d = {.name = p->name, .part = "parameter group"};
        uint32_t group;
        uint64_t j;

        if (!dcpk_map_get(&b->param_by_name, p->name, strlen(p->name), &j))
            continue;
        group = b->params[j].group;
        if (p->group != DCPK_NO_GROUP && group != DCPK_NO_GROUP) {
            st = compare_group_pair(c, a, p->group, b, group, &seen, err);
        } else if (p->group != group) {
            d.kind = group == DCPK_NO_GROUP ? DCPK_ONLY_IN_A : DCPK_ONLY_IN_B;
            st = dcpk_comparing_add(c, &c->report->differences, &d, err);
        }
    }
    dcpk_map_release(&seen);
    return st;
}

static bool has_group(const struct dcpk_model *model, const struct dcpk_value *group)
{
    for (size_t g = 0; g < model->n_groups; g++)
        if (dcpk_value_equal(model->groups[g], group))
            return true;
    return false;
}

/* Groups whose members are not known (a map made them): each must be among the other's. */
static dcpk_status compare_group_sets(struct dcpk_comparing *c, const struct dcpk_model *a,
                                      const struct dcpk_model *b, bool from_a,
                                      struct dcpk_error *err)
{
    const struct dcpk_model *from = from_a ? a : b, *other = from_a ? b : a;
    dcpk_status st = DCPK_OK;

    for (size_t g = 0; g < from->n_groups && st == DCPK_OK; g++) {
        char name[64];

        snprintf(name, sizeof name, "param_groups[%zu]", g);
        c->report->n_values++;
        if (!has_group(other, from->groups[g]))
            st = dcpk_comparing_value(c, name, from_a ? from->groups[g] : NULL,
                                      from_a ? NULL : from->groups[g], weigh_by_format(c), NULL,
                                      err);
    }
    return st;
}

static dcpk_status compare_groups(struct dcpk_comparing *c, struct dcpk_model *a,
                                  struct dcpk_model *b, struct dcpk_error *err)
{
    bool a_decided = false, b_decided = false;
    dcpk_status st = dcpk_model_group(a, &a_decided, err);

    if (st == DCPK_OK)
        st = dcpk_model_group(b, &b_decided, err);
    if (st == DCPK_OK && !c->options->strict)
        st = dcpk_rules_complete_groups(a, err);
    if (st == DCPK_OK && !c->options->strict)
        st = dcpk_rules_complete_groups(b, err);
    if (st != DCPK_OK || c->options->weights_only)
        return st;
    if (a_decided && b_decided && a->n_groups > 0 && b->n_groups > 0)
        return compare_group_pairs(c, a, b, err);
    st = compare_group_sets(c, a, b, true, err);
    return st == DCPK_OK ? compare_group_sets(c, a, b, false, err) : st;
}

/*
 * What the other checkpoint has in the place of these states: that rank's own, or, where it keeps
 * one for all data-parallel ranks (or for another number of them) that which stands for it, if it
 * is equal or this is the first rank's.
 */
static const struct dcpk_value *rng_of(const struct dcpk_model *other, const struct dcpk_rng *r)
{
    const struct dcpk_rng *found = dcpk_model_rng(other, r);
    const bool is_own =
        found != NULL && (r->dp == 0 || (found->dp == r->dp && found->n_dp == r->n_dp));

    return found != NULL && (is_own || dcpk_value_equal(found->states, r->states)) ? found->states
                                                                                   : NULL;
}

/* RNG states belong to ranks, and fsdp_dtensor has those of the first pipeline stage only; releases
 * have them for each data-parallel rank, or one for all. */
static enum dcpk_weight weigh_rng(const struct dcpk_comparing *c, const struct dcpk_model *a,
                                  const struct dcpk_model *b, const struct dcpk_rng *r,
                                  bool is_lacking)
{
    if (is_lacking && (a->layout.tp != b->layout.tp || a->layout.pp != b->layout.pp || r->dp > 0))
        return DCPK_IS_LAYOUT;
    return weigh_by_format(c);
}

static dcpk_status compare_rng(struct dcpk_comparing *c, const struct dcpk_model *a,
                               const struct dcpk_model *b, bool from_a, struct dcpk_error *err)
{
    const struct dcpk_model *from = from_a ? a : b, *other = from_a ? b : a;
    dcpk_status st = DCPK_OK;

    for (size_t i = 0; i < from->n_rng && st == DCPK_OK; i++) {
        const struct dcpk_rng *r = &from->rng[i];
        const struct dcpk_value *states = rng_of(other, r);
        char name[96];

        if (!from_a && states != NULL)
            continue;
        snprintf(name, sizeof name, "rng_state[pp %" PRId64 ", tp %" PRId64 "]", r->pp, r->tp);
        if (r->n_dp > 0)
            snprintf(name, sizeof name, "rng_state[pp %" PRId64 ", tp %" PRId64 ", dp %" PRId64 "]",
                     r->pp, r->tp, r->dp);
        st = dcpk_comparing_value(c, name, from_a ? r->states : NULL, from_a ? states : r->states,
                                  weigh_rng(c, a, b, r, states == NULL), NULL, err);
    }
    return st;
}

static enum dcpk_weight weigh_further(const struct dcpk_comparing *c, const char *key,
                                      const struct dcpk_value *value)
{
    (void)key;
    return dcpk_value_is_portable(value) ? weigh_by_format(c) : DCPK_MAY_LACK;
}

/* Entries of the common state that Megatron's own code does not make. */
static dcpk_status compare_further(struct dcpk_comparing *c, const struct dcpk_model *a,
                                   const struct dcpk_model *b, struct dcpk_error *err)
{
    static const struct dcpk_value none = {.kind = DCPK_V_DICT};

    if (a->further == NULL && b->further == NULL)
        return DCPK_OK;
    return dcpk_comparing_dicts(c, "common", a->further != NULL ? a->further : &none,
                                b->further != NULL ? b->further : &none, weigh_further, NULL, err);
}

static dcpk_status compare_single(struct dcpk_comparing *c, const struct dcpk_model *a,
                                  const struct dcpk_model *b, struct dcpk_error *err)
{
    dcpk_status st =
        dcpk_comparing_value(c, "iteration", a->iteration, b->iteration, DCPK_COUNTS, NULL, err);

    if (st == DCPK_OK)
        st = dcpk_comparing_value(c, "checkpoint_version", a->version, b->version, DCPK_COUNTS,
                                  NULL, err);
    if (st == DCPK_OK)
        st = dcpk_comparing_value(c, "num_floating_point_operations_so_far", a->flops, b->flops,
                                  DCPK_COUNTS, NULL, err);
    if (st == DCPK_OK)
        st = dcpk_comparing_dicts(c, "opt_param_scheduler", a->scheduler, b->scheduler, NULL, NULL,
                                  err);
    if (st == DCPK_OK)
        st = dcpk_comparing_value(c, "optimizer.grad_scaler", a->scaler, b->scaler,
                                  weigh_by_format(c), NULL, err);
    if (st == DCPK_OK)
        st = compare_further(c, a, b, err);
    if (st == DCPK_OK)
        st = dcpk_comparing_dicts(c, "args", dcpk_value_attrs(a->args), dcpk_value_attrs(b->args),
                                  weigh_arg, NULL, err);
    return st;
}

dcpk_status dcpk_comparing_state(struct dcpk_comparing *c, struct dcpk_model *a,
                                 struct dcpk_model *b, struct dcpk_error *err)
{
    dcpk_status st;

    c->other_experts = a->layout.ep != b->layout.ep;
    st = compare_single(c, a, b, err);
    if (st == DCPK_OK)
        st = compare_groups(c, a, b, err);
    if (st == DCPK_OK)
        st = compare_rng(c, a, b, true, err);
    return st == DCPK_OK ? compare_rng(c, a, b, false, err) : st;
}

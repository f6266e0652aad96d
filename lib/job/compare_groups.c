/* SPDX-License-Identifier: Apache-2.0 */
/* compare_groups.c - compares the parameter groups of two models. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/job/compare_priv.h"
#include "lib/rules/rules.h"

static dcpk_status find_groups(struct dcpk_compared *side, struct dcpk_error *err)
{
    static const struct dcpk_rule_options rules = {.impl = DCPK_IMPL_ANY};
    const dcpk_status st = dcpk_rules_groups(side->model, &rules, err);

    side->has_groups = st == DCPK_OK;
    if (st != DCPK_EUNSUPPORTED)
        return st;
    dcpk_error_clear(err);
    return DCPK_OK;
}

dcpk_status dcpk_comparing_find_groups(struct dcpk_comparing *c, struct dcpk_error *err)
{
    if (find_groups(&c->side[DCPK_A], err) || find_groups(&c->side[DCPK_B], err))
        return err->status;
    return DCPK_OK;
}

static bool is_in_group(const uint32_t group[2], int side)
{
    return group[side] != DCPK_NO_GROUP;
}

/* A parameter that has a group on one side alone, or on neither. */
static dcpk_status add_single_group(struct dcpk_comparing *c, const char *name,
                                    const uint32_t group[2], struct dcpk_error *err)
{
    struct dcpk_difference d = {.name = name, .part = "parameter group"};

    if (!is_in_group(group, DCPK_A) && !is_in_group(group, DCPK_B))
        return DCPK_OK;
    d.kind = dcpk_only_in((enum dcpk_side) !is_in_group(group, DCPK_A));
    return dcpk_comparing_add(c, &c->report->differences, &d, err);
}

/* ---- by group ---- */

/* Compare the groups of one parameter, unless another one of the same two groups came before. */
static dcpk_status compare_group_pair(struct dcpk_comparing *c, const uint32_t group[2],
                                      struct dcpk_map *seen, struct dcpk_error *err)
{
    struct dcpk_dicts fields = {.subject = DCPK_OF_FIELD};
    const char *pair = dcpk_arena_printf(c->report->arena, err, "%" PRIu32 "/%" PRIu32,
                                         group[DCPK_A], group[DCPK_B]);
    char name[64];
    bool existed;
    uint64_t found;

    if (pair == NULL || dcpk_map_put(seen, pair, strlen(pair), 0, &existed, &found, err))
        return err->status;
    if (existed)
        return DCPK_OK;
    snprintf(name, sizeof name, "param_groups[%" PRIu32 "]", group[DCPK_A]);
    fields.name = name;
    for (int s = 0; s < 2; s++)
        fields.of[s] = c->side[s].model->groups[group[s]];
    return dcpk_comparing_dicts(c, &fields, err);
}

/* The groups of every parameter that both have. */
static dcpk_status compare_group_pairs(struct dcpk_comparing *c, struct dcpk_error *err)
{
    const struct dcpk_model *a = c->side[DCPK_A].model, *b = c->side[DCPK_B].model;
    struct dcpk_map seen = {0};
    dcpk_status st = DCPK_OK;

    for (size_t i = 0; i < a->n_params && st == DCPK_OK; i++) {
        const struct dcpk_param *p = &a->params[i];
        uint64_t found;

        if (dcpk_map_get(&b->param_by_name, p->name, strlen(p->name), &found)) {
            const uint32_t group[2] = {p->group, b->params[found].group};

            if (is_in_group(group, DCPK_A) && is_in_group(group, DCPK_B))
                st = compare_group_pair(c, group, &seen, err);
            else
                st = add_single_group(c, p->name, group, err);
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
static dcpk_status compare_group_set(struct dcpk_comparing *c, enum dcpk_side from,
                                     struct dcpk_error *err)
{
    const struct dcpk_model *mine = c->side[from].model;
    const struct dcpk_model *other = c->side[dcpk_other_side(from)].model;

    for (size_t g = 0; g < mine->n_groups; g++) {
        const struct dcpk_value *values[2] = {NULL, NULL};
        char name[64];

        snprintf(name, sizeof name, "param_groups[%zu]", g);
        values[from] = mine->groups[g];
        if (has_group(other, mine->groups[g]))
            dcpk_comparing_count_value(c, name);
        else if (dcpk_comparing_value(c, DCPK_OF_FIELD, name, NULL, values, err))
            return err->status;
    }
    return DCPK_OK;
}

dcpk_status dcpk_comparing_groups(struct dcpk_comparing *c, struct dcpk_error *err)
{
    const struct dcpk_compared *a = &c->side[DCPK_A], *b = &c->side[DCPK_B];

    if (c->with_model)
        return DCPK_OK;
    if (dcpk_comparing_find_groups(c, err))
        return err->status;
    if (!c->options->strict &&
        (dcpk_rules_complete_groups(a->model, err) || dcpk_rules_complete_groups(b->model, err)))
        return err->status;
    if (c->options->weights_only)
        return DCPK_OK;
    if (a->has_groups && b->has_groups && a->model->n_groups > 0 && b->model->n_groups > 0)
        return compare_group_pairs(c, err);
    if (compare_group_set(c, DCPK_A, err) || compare_group_set(c, DCPK_B, err))
        return err->status;
    return DCPK_OK;
}

/* ---- by parameter ---- */

/* The first field of the two groups that differs; NULL: none. group: by number. */
static const char *find_different_field(const struct dcpk_comparing *c, const uint32_t group[2])
{
    const struct dcpk_value *a = c->side[DCPK_A].model->groups[group[DCPK_A]];
    const struct dcpk_value *b = c->side[DCPK_B].model->groups[group[DCPK_B]];

    for (size_t i = 0; i < b->n; i++) {
        const char *field = dcpk_value_as_str(b->as.pairs[i].key);
        const struct dcpk_value *values[2] = {NULL, b->as.pairs[i].value};

        if (field == NULL)
            continue;
        values[DCPK_A] = dcpk_value_get(a, field);
        if (dcpk_comparing_differs(c, DCPK_OF_FIELD, field, values))
            return field;
    }
    return NULL;
}

/* Without a map a side's groups may not be derivable (DCPK_NO_GROUP): then any of its groups will
 * do. */
static bool has_equal_group(const struct dcpk_comparing *c, const uint32_t group[2])
{
    uint32_t g[2];

    for (g[DCPK_A] = 0; g[DCPK_A] < c->side[DCPK_A].model->n_groups; g[DCPK_A]++)
        for (g[DCPK_B] = 0; g[DCPK_B] < c->side[DCPK_B].model->n_groups; g[DCPK_B]++)
            if ((group[DCPK_A] == g[DCPK_A] || group[DCPK_A] == DCPK_NO_GROUP) &&
                (group[DCPK_B] == g[DCPK_B] || group[DCPK_B] == DCPK_NO_GROUP) &&
                find_different_field(c, g) == NULL)
                return true;
    return false;
}

/* True if no rule decides the group. */
static bool is_undecided(const struct dcpk_comparing *c, const uint32_t group[2], int side)
{
    return !is_in_group(group, side) && !c->side[side].has_groups;
}

dcpk_status dcpk_comparing_member(struct dcpk_comparing *c, const uint32_t param[2],
                                  struct dcpk_error *err)
{
    const struct dcpk_model *a = c->side[DCPK_A].model, *b = c->side[DCPK_B].model;
    const uint32_t group[2] = {a->params[param[DCPK_A]].group, b->params[param[DCPK_B]].group};
    const char *name = a->params[param[DCPK_A]].name, *side = "checkpoint's", *field;

    if (a->n_groups == 0 || b->n_groups == 0)
        return DCPK_OK;
    c->report->n_values++;
    if (is_undecided(c, group, DCPK_A) || is_undecided(c, group, DCPK_B)) {
        if (has_equal_group(c, group))
            return DCPK_OK;
        if (!is_in_group(group, DCPK_B))
            side = "source's";
        return dcpk_comparing_refuse(c, name, err, "'%s': its parameter group is not one of the %s",
                                     name, side);
    }
    if (!is_in_group(group, DCPK_A) || !is_in_group(group, DCPK_B))
        return add_single_group(c, name, group, err);
    field = find_different_field(c, group);
    if (field == NULL)
        return DCPK_OK;
    return dcpk_comparing_refuse(
        c, name, err, "'%s': '%s' of its parameter group is missing or differs", name, field);
}

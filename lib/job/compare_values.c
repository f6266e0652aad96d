/* SPDX-License-Identifier: Apache-2.0 */
/* compare_values.c - compares values of training state, and dicts entry by entry. */
#include <stdio.h>

#include "lib/base/json.h"
#include "lib/job/compare_priv.h"

#define MAX_TEXT_BYTES 120 /* of a value in the answer */

/* *text: a value as JSON, cut, in the report's arena; NULL for none. */
static dcpk_status put_value_text(struct dcpk_comparing *c, const struct dcpk_value *value,
                                  const char **text, struct dcpk_error *err)
{
    struct dcpk_bytes bytes = {0};
    struct dcpk_json_out j;

    if (value == NULL)
        return DCPK_OK;
    dcpk_json_out_init(&j, &bytes, 0);
    j.is_python = true; /* a float nan and the text "NaN" look different */
    dcpk_value_to_json(value, &j);
    if (bytes.n_bytes > MAX_TEXT_BYTES) {
        bytes.n_bytes = MAX_TEXT_BYTES;
        dcpk_bytes_text(&bytes, "...");
    }
    *text = dcpk_bytes_to_arena(&bytes, c->report->arena, err);
    return dcpk_made(*text, err);
}

/* `step` of a group may be an int in one and a float in the other. */
static bool are_equal(enum dcpk_subject subject, const struct dcpk_value *a,
                      const struct dcpk_value *b)
{
    double u, v;

    return dcpk_value_equal(a, b) || (subject == DCPK_OF_FIELD && dcpk_value_as_float(a, &u) &&
                                      dcpk_value_as_float(b, &v) && u == v);
}

void dcpk_comparing_count_value(struct dcpk_comparing *c, const char *name)
{
    c->report->n_values++;
    c->report->parts[dcpk_comparing_part(name, NULL, false)].n_compared++;
}

bool dcpk_comparing_differs(const struct dcpk_comparing *c, enum dcpk_subject subject,
                            const char *key, const struct dcpk_value *const values[2])
{
    const bool is_lacking = values[DCPK_A] == NULL || values[DCPK_B] == NULL;
    const enum dcpk_weight weight = c->policy->weigh(c, subject, key, values);

    if (is_lacking)
        return weight == DCPK_COUNTS;
    return (weight == DCPK_COUNTS || weight == DCPK_MAY_LACK) &&
           !are_equal(subject, values[DCPK_A], values[DCPK_B]);
}

dcpk_status dcpk_comparing_weighed(struct dcpk_comparing *c, enum dcpk_weight weight,
                                   const struct dcpk_named_pair *pair, struct dcpk_error *err)
{
    const struct dcpk_value *a = pair->of[DCPK_A], *b = pair->of[DCPK_B];
    const bool is_lacking = a == NULL || b == NULL;
    struct dcpk_difference d = {.kind = DCPK_VALUE_DIFFERS, .name = pair->name, .is_value = true};
    struct dcpk_differences *list = dcpk_comparing_list(c, weight, is_lacking);

    if (list == NULL && weight == DCPK_MAY_LACK) /* nothing is compared, nor kept */
        return DCPK_OK;
    if (!is_lacking)
        dcpk_comparing_count_value(c, pair->name);
    if (list == NULL || (!is_lacking && pair->is_equal))
        return DCPK_OK;
    if (is_lacking)
        d.kind = dcpk_only_in((enum dcpk_side)(a == NULL));
    if (put_value_text(c, a, &d.a, err) || put_value_text(c, b, &d.b, err))
        return err->status;
    return dcpk_comparing_add(c, list, &d, err);
}

dcpk_status dcpk_comparing_value(struct dcpk_comparing *c, enum dcpk_subject subject,
                                 const char *name, const char *key,
                                 const struct dcpk_value *const values[2], struct dcpk_error *err)
{
    struct dcpk_named_pair pair = {.name = name, .of = {values[DCPK_A], values[DCPK_B]}};

    if (pair.of[DCPK_A] == NULL && pair.of[DCPK_B] == NULL)
        return DCPK_OK;
    pair.is_equal = pair.of[DCPK_A] != NULL && pair.of[DCPK_B] != NULL &&
                    are_equal(subject, pair.of[DCPK_A], pair.of[DCPK_B]);
    return dcpk_comparing_weighed(c, c->policy->weigh(c, subject, key, values), &pair, err);
}

/* ---- dicts ---- */

/* A dict's text keys -> their entries. */
static dcpk_status index_entries(const struct dcpk_value *dict, struct dcpk_map *map,
                                 struct dcpk_error *err)
{
    bool existed;
    uint64_t found;

    for (size_t i = 0; i < dict->n; i++) {
        const struct dcpk_value *key = dict->as.pairs[i].key;

        if (key->kind == DCPK_V_STR &&
            dcpk_map_put(map, key->as.str, key->n, i, &existed, &found, err))
            return err->status;
    }
    return DCPK_OK;
}

/* Pairs the entries of one side with those of the other by key; once they are `paired`, lists those
 * that the other lacks. */
static dcpk_status walk_entries(struct dcpk_comparing *c, const struct dcpk_dicts *dicts,
                                enum dcpk_side from, bool paired, struct dcpk_error *err)
{
    const enum dcpk_side to = dcpk_other_side(from);
    const struct dcpk_value *mine = dicts->of[from], *other = dicts->of[to];
    struct dcpk_map map = {0};
    dcpk_status st = index_entries(other, &map, err);

    for (size_t i = 0; i < mine->n && st == DCPK_OK; i++) {
        const char *key = dcpk_value_as_str(mine->as.pairs[i].key);
        const struct dcpk_value *values[2] = {NULL, NULL};
        char name[512];
        uint64_t found;

        if (key == NULL)
            continue;
        values[from] = mine->as.pairs[i].value;
        if (dcpk_map_get(&map, key, mine->as.pairs[i].key->n, &found))
            values[to] = other->as.pairs[found].value;
        snprintf(name, sizeof name, "%s.%s", dicts->name, key);
        if (!paired || values[to] == NULL)
            st = dcpk_comparing_value(c, dicts->subject, name, key, values, err);
    }
    dcpk_map_release(&map);
    return st;
}

/* The entries of a dict whose keys are not text, as a dict; *unnamed NULL: there are none. */
static dcpk_status take_unnamed(struct dcpk_arena *arena, const struct dcpk_value *dict,
                                const struct dcpk_value **unnamed, struct dcpk_error *err)
{
    struct dcpk_dict made = {.arena = arena, .err = err};

    for (size_t i = 0; i < dict->n; i++)
        if (dict->as.pairs[i].key->kind != DCPK_V_STR)
            dcpk_dict_add(&made, dict->as.pairs[i].key, dict->as.pairs[i].value);
    *unnamed = NULL;
    if (made.n > 0)
        *unnamed = dcpk_dict_end(&made);
    return err->status;
}

/* All entries without a name are one value, "prefix[...]". */
static dcpk_status compare_unnamed(struct dcpk_comparing *c, const struct dcpk_dicts *dicts,
                                   struct dcpk_error *err)
{
    const struct dcpk_value *unnamed[2];
    char name[512];

    for (int s = 0; s < 2; s++)
        if (take_unnamed(c->report->arena, dicts->of[s], &unnamed[s], err))
            return err->status;
    snprintf(name, sizeof name, "%s[...]", dicts->name);
    return dcpk_comparing_value(c, DCPK_OF_STORED, name, NULL, unnamed, err);
}

static bool is_dict(const struct dcpk_value *v)
{
    return v != NULL && v->kind == DCPK_V_DICT;
}

dcpk_status dcpk_comparing_dicts(struct dcpk_comparing *c, const struct dcpk_dicts *dicts,
                                 struct dcpk_error *err)
{
    if (!is_dict(dicts->of[DCPK_A]) || !is_dict(dicts->of[DCPK_B])) /* as a whole */
        return dcpk_comparing_value(c, DCPK_OF_STORED, dicts->name, NULL, dicts->of, err);
    if (walk_entries(c, dicts, DCPK_A, false, err) || walk_entries(c, dicts, DCPK_B, true, err) ||
        compare_unnamed(c, dicts, err))
        return err->status;
    return DCPK_OK;
}

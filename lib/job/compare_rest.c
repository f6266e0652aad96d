/* SPDX-License-Identifier: Apache-2.0 */
/* compare_rest.c - what is stored and not in the view of a model: strict comparisons look at it. */
#include <stdio.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/text.h"
#include "lib/ckpt/alias.h"
#include "lib/ckpt/by_place.h"
#include "lib/ckpt/format.h"
#include "lib/job/compare_priv.h"
#include "lib/model/account.h"

/*
 * The comparison of two models follows names that are the same in every format, so it is blind to
 * what it has no name for. A strict one goes through all that is stored a second time, by key:
 *
 *   one format:   every tensor that no piece of the view is taken from, every object, every entry
 *                 of the common state. What differs is told unless its part of the state was told.
 *   two formats:  what the views have left out, and extra states.
 */

/* ---- tensors ---- */

static dcpk_status account_model(struct dcpk_account *account, const struct dcpk_model *model,
                                 bool with_carried, struct dcpk_error *err)
{
    dcpk_status st = dcpk_account_init(account, model->ckpt, err);

    for (size_t i = 0; i < model->n_tensors && st == DCPK_OK; i++)
        dcpk_account_pieces(account, model->tensors[i].pieces, model->tensors[i].n_pieces);
    for (size_t i = 0; i < model->n_unknown && st == DCPK_OK; i++)
        account->tensors[model->unknown[i]] = true; /* paired by key already */
    for (const struct dcpk_note *note = model->carried;
         with_carried && st == DCPK_OK && note != NULL; note = note->next)
        dcpk_account_key(account, note->text, strlen(note->text));
    return st;
}

/* The stored tensors of a view, by the place of their first chunk. */
struct viewed {
    const struct dcpk_account *account;
    struct dcpk_by_place by_place;
};

/* NULL: it has no chunks. */
static const struct dcpk_place *first_place(const struct dcpk_checkpoint *ckpt, size_t t)
{
    const struct dcpk_tensor *tensor = &ckpt->tensors[t];

    return tensor->n_chunks == 0 ? NULL : &ckpt->chunks[tensor->first_chunk].place;
}

static dcpk_status find_places(struct viewed *viewed, struct dcpk_error *err)
{
    const struct dcpk_checkpoint *ckpt = viewed->account->ckpt;
    dcpk_status st = DCPK_OK;

    for (size_t t = 0; t < ckpt->n_tensors && st == DCPK_OK; t++) {
        const struct dcpk_place *place = first_place(ckpt, t);

        if (viewed->account->tensors[t] && place != NULL)
            st = dcpk_by_place_put(&viewed->by_place, place, NULL, t, err);
    }
    return st;
}

/* The tensor of the view that `t` is another name for; NULL: none. */
static const struct dcpk_tensor *alias_of(const struct viewed *viewed, size_t t)
{
    const struct dcpk_checkpoint *ckpt = viewed->account->ckpt;
    const struct dcpk_place *place = first_place(ckpt, t);
    uint64_t found;

    if (place == NULL || !dcpk_by_place_get(&viewed->by_place, place, NULL, &found) ||
        !dcpk_tensors_are_aliases(ckpt, (uint32_t)found, (uint32_t)t))
        return NULL;
    return &ckpt->tensors[found];
}

/* Do both have it as another name for the same tensor, which is compared itself? */
static bool are_same_alias(const struct viewed *a, const struct dcpk_tensor *t,
                           const struct viewed *b, const struct dcpk_tensor *u)
{
    const struct dcpk_tensor *x = alias_of(a, (size_t)(t - a->account->ckpt->tensors));
    const struct dcpk_tensor *y = alias_of(b, (size_t)(u - b->account->ckpt->tensors));

    return x != NULL && y != NULL && strcmp(x->key, y->key) == 0;
}

/* Is the key one of optimizer state? */
static bool is_optimizer(const char *key)
{
    if (dcpk_starts_with(key, "chained_") && strchr(key, '.') != NULL)
        key = strchr(key, '.') + 1;
    return strcmp(key, "optimizer") == 0 || dcpk_starts_with(key, "optimizer.");
}

/* Pair the tensors of `from` that its view does not have with those of that key in `other`. */
static dcpk_status pair_left(struct dcpk_comparing *c, const struct viewed *from,
                             const struct viewed *other, struct dcpk_error *err)
{
    const struct dcpk_checkpoint *ckpt = from->account->ckpt;
    const bool is_a = ckpt == c->a;
    dcpk_status st = DCPK_OK;

    for (size_t i = 0; i < ckpt->n_tensors && st == DCPK_OK; i++) {
        const struct dcpk_tensor *t = &ckpt->tensors[i];
        const struct dcpk_tensor *u = dcpk_checkpoint_tensor(is_a ? c->b : c->a, t->key);
        const bool is_paired =
            u != NULL && !is_a && !other->account->tensors[u - other->account->ckpt->tensors];

        if (from->account->tensors[i] || is_paired ||
            (c->options->weights_only && is_optimizer(t->key)) ||
            (u != NULL && are_same_alias(from, t, other, u)))
            continue;
        st = dcpk_comparing_stored(c, is_a ? t : u, is_a ? u : t, err);
    }
    return st;
}

/* What no rule knows is compared under its key, as stored. */
static dcpk_status pair_unknown(struct dcpk_comparing *c, const struct dcpk_model *model,
                                struct dcpk_error *err)
{
    const bool is_a = model->ckpt == c->a;
    dcpk_status st = DCPK_OK;

    for (size_t i = 0; i < model->n_unknown && st == DCPK_OK; i++) {
        const struct dcpk_tensor *mine = &model->ckpt->tensors[model->unknown[i]];
        const struct dcpk_tensor *other = dcpk_checkpoint_tensor(is_a ? c->b : c->a, mine->key);

        if (is_a || other == NULL) /* else it was paired, or is known, from there */
            st = dcpk_comparing_stored(c, is_a ? mine : NULL, is_a ? other : mine, err);
    }
    return st;
}

static dcpk_status pair_all_left(struct dcpk_comparing *c, const struct dcpk_model *a,
                                 const struct dcpk_model *b, struct dcpk_error *err)
{
    struct dcpk_account accounts[2] = {{0}, {0}};
    struct viewed left = {&accounts[0], {.arena = c->report->arena}};
    struct viewed right = {&accounts[1], {.arena = c->report->arena}};
    dcpk_status st = account_model(&accounts[0], a, !c->same_format, err);

    if (st == DCPK_OK)
        st = account_model(&accounts[1], b, !c->same_format, err);
    if (st == DCPK_OK)
        st = find_places(&left, err);
    if (st == DCPK_OK)
        st = find_places(&right, err);
    if (st == DCPK_OK)
        st = pair_left(c, &left, &right, err);
    if (st == DCPK_OK)
        st = pair_left(c, &right, &left, err);
    dcpk_by_place_release(&left.by_place);
    dcpk_by_place_release(&right.by_place);
    dcpk_account_release(&accounts[0]);
    dcpk_account_release(&accounts[1]);
    return st;
}

dcpk_status dcpk_comparing_rest_tensors(struct dcpk_comparing *c, const struct dcpk_model *a,
                                        const struct dcpk_model *b, struct dcpk_error *err)
{
    dcpk_status st = pair_unknown(c, a, err);

    if (st == DCPK_OK)
        st = pair_unknown(c, b, err);
    return st == DCPK_OK && c->options->strict ? pair_all_left(c, a, b, err) : st;
}

/* ---- what was told ---- */

#define GROUPS "param_groups"

static dcpk_status put_told(struct dcpk_map *told, const char *name, size_t n,
                            struct dcpk_error *err)
{
    bool existed;
    uint64_t found;

    return dcpk_map_put(told, name, n, 0, &existed, &found, err);
}

/*
 * The name of a difference and every beginning of it that ends before '.' or '[', since what is
 * stored may be the whole: "args.lr" tells of "args". Of a group its field, too: "param_groups.lr"
 * of "param_groups[1].lr", which may be stored once for each parameter.
 */
static dcpk_status add_told(struct dcpk_map *told, struct dcpk_arena *arena, const char *name,
                            struct dcpk_error *err)
{
    const char *field = strstr(name, "].");
    dcpk_status st = put_told(told, name, strlen(name), err);

    for (size_t n = strcspn(name, ".["); name[n] != '\0' && st == DCPK_OK;
         n += 1 + strcspn(name + n + 1, ".["))
        st = put_told(told, name, n, err);
    if (st == DCPK_OK && field != NULL && dcpk_starts_with(name, GROUPS "[")) {
        name = dcpk_arena_printf(arena, err, GROUPS "%s", field + 1);
        st = name == NULL ? err->status : put_told(told, name, strlen(name), err);
    }
    return st;
}

static bool has_told(const struct dcpk_map *told, const char *name, size_t n)
{
    uint64_t found;

    return dcpk_map_get(told, name, n, &found);
}

/* Was a part of what is stored as `name` told? */
static bool is_told(const struct dcpk_map *told, const char *name)
{
    static const char rng[] = "rng_state", common[] = "common.", whole[] = "common_state/";
    char field[256];

    if (dcpk_starts_with(name, whole)) /* its entries are compared one by one */
        return true;
    if (dcpk_starts_with(name, common))
        name += strlen(common);
    if (has_told(told, name, strlen(name)) || has_told(told, name, strcspn(name, "/[")))
        return true;
    if (dcpk_starts_with(name, rng) && has_told(told, rng, strlen(rng)))
        return true;
    if (!is_optimizer(name))
        return false;
    if (strstr(name, ".param_") == NULL) /* groups as a whole, and what stands beside them */
        return has_told(told, GROUPS, strlen(GROUPS));
    snprintf(field, sizeof field, GROUPS "%s", strrchr(name, '.'));
    return has_told(told, field, strlen(field));
}

/* ---- objects ---- */

/* What the view of one leaves out, and where else it may be. */
struct leaving {
    const struct dcpk_model *model;
    struct dcpk_checkpoint *other;
    const struct dcpk_value *common, *other_common; /* NULL: there is none */
    bool is_a;
};

/* A thing of the common state, or of a part of it, which has no name of its own. */
static dcpk_status compare_left_value(struct dcpk_comparing *c, const struct leaving *l,
                                      const char *name, struct dcpk_error *err)
{
    const struct dcpk_value *x = dcpk_value_get(l->common, name);
    const struct dcpk_value *y = dcpk_value_get(l->other_common, name);
    const struct dcpk_difference d = {
        .kind = l->is_a ? DCPK_ONLY_IN_A : DCPK_ONLY_IN_B, .name = name, .is_value = true};

    if (y != NULL && !l->is_a)
        return DCPK_OK;
    if (x != NULL)
        return dcpk_comparing_value(c, name, l->is_a ? x : y, l->is_a ? y : x, DCPK_COUNTS, NULL,
                                    err);
    c->report->n_values++;
    return dcpk_comparing_add(c, &c->report->differences, &d, err);
}

/* A tensor is paired elsewhere; what both have is compared when it is A's turn. */
static dcpk_status compare_note(struct dcpk_comparing *c, const struct leaving *l,
                                const struct dcpk_note *note, struct dcpk_error *err)
{
    const struct dcpk_object *mine, *other;
    const char *name;
    size_t n;

    (void)dcpk_model_drop_reason(note, &n);
    name = dcpk_arena_strndup(c->report->arena, note->text, n, err);
    if (name == NULL)
        return err->status;
    if (dcpk_checkpoint_tensor(l->model->ckpt, name) != NULL)
        return DCPK_OK;
    mine = dcpk_checkpoint_object(l->model->ckpt, name);
    other = dcpk_checkpoint_object(l->other, name);
    if (mine == NULL)
        return compare_left_value(c, l, name, err);
    if (other != NULL && !l->is_a)
        return DCPK_OK;
    return dcpk_comparing_object(c, l->is_a ? mine : other, l->is_a ? other : mine, err);
}

static dcpk_status compare_notes(struct dcpk_comparing *c, const struct leaving *l,
                                 struct dcpk_error *err)
{
    const struct dcpk_note *lists[] = {l->model->dropped, l->model->omitted};
    dcpk_status st = DCPK_OK;

    for (size_t i = 0; i < 2; i++)
        for (const struct dcpk_note *note = lists[i]; note != NULL && st == DCPK_OK;
             note = note->next)
            st = compare_note(c, l, note, err);
    return st;
}

static dcpk_status find_extras(struct dcpk_map *map, const struct dcpk_model *model,
                               struct dcpk_error *err)
{
    dcpk_status st = DCPK_OK;
    bool existed;
    uint64_t found;

    for (size_t i = 0; i < model->n_extras && st == DCPK_OK; i++)
        st = dcpk_map_put(map, model->extras[i].name, strlen(model->extras[i].name), i, &existed,
                          &found, err);
    return st;
}

static dcpk_status compare_extras(struct dcpk_comparing *c, const struct dcpk_model *a,
                                  const struct dcpk_model *b, struct dcpk_error *err)
{
    struct dcpk_map of_a = {0}, of_b = {0};
    dcpk_status st = find_extras(&of_a, a, err);
    uint64_t j;

    if (st == DCPK_OK)
        st = find_extras(&of_b, b, err);
    for (size_t i = 0; i < a->n_extras && st == DCPK_OK; i++) {
        const struct dcpk_extra *extra = &a->extras[i];
        const bool both = dcpk_map_get(&of_b, extra->name, strlen(extra->name), &j);

        st = dcpk_comparing_object(c, extra->object, both ? b->extras[j].object : NULL, err);
    }
    for (size_t i = 0; i < b->n_extras && st == DCPK_OK; i++)
        if (!dcpk_map_get(&of_a, b->extras[i].name, strlen(b->extras[i].name), &j))
            st = dcpk_comparing_object(c, NULL, b->extras[i].object, err);
    dcpk_map_release(&of_a);
    dcpk_map_release(&of_b);
    return st;
}

static dcpk_status compare_left(struct dcpk_comparing *c, const struct dcpk_model *a,
                                const struct dcpk_model *b, struct dcpk_error *err)
{
    struct dcpk_arena *arena = dcpk_arena_new(0, err);
    struct leaving left = {.model = a, .other = c->b, .is_a = true};
    struct leaving right = {.model = b, .other = c->a};
    dcpk_status st = arena == NULL ? err->status : compare_extras(c, a, b, err);

    if (st == DCPK_OK)
        st = dcpk_checkpoint_load_common(c->a, arena, &left.common, err);
    if (st == DCPK_OK)
        st = dcpk_checkpoint_load_common(c->b, arena, &right.common, err);
    left.other_common = right.common;
    right.other_common = left.common;
    if (st == DCPK_OK)
        st = compare_notes(c, &left, err);
    if (st == DCPK_OK)
        st = compare_notes(c, &right, err);
    dcpk_arena_free(arena);
    return st;
}

/* Take over what was found and not told. */
static dcpk_status take_untold(struct dcpk_comparing *c, const struct dcpk_compare_report *found,
                               struct dcpk_error *err)
{
    struct dcpk_compare_report *report = c->report;
    struct dcpk_map told = {0};
    dcpk_status st = DCPK_OK;

    for (const struct dcpk_difference *d = report->differences.first; d != NULL && st == DCPK_OK;
         d = d->next)
        if (d->is_value)
            st = add_told(&told, report->arena, d->name, err);
    for (const struct dcpk_difference *d = found->differences.first; d != NULL && st == DCPK_OK;
         d = d->next)
        if (!is_told(&told, d->name) && !(c->options->weights_only && is_optimizer(d->name)))
            st = dcpk_comparing_add(c, &report->differences, d, err);
    report->n_values += found->n_values;
    for (int p = 0; p < DCPK_N_COMPARED; p++)
        report->parts[p].n_compared += found->parts[p].n_compared;
    dcpk_map_release(&told);
    return st;
}

dcpk_status dcpk_comparing_rest(struct dcpk_comparing *c, const struct dcpk_model *a,
                                const struct dcpk_model *b, struct dcpk_error *err)
{
    struct dcpk_compare_report *report = c->report;
    struct dcpk_compare_report found = {.arena = report->arena};
    dcpk_status st;

    found.differences.end = &found.differences.first;
    c->report = &found; /* collects by itself what the passes over stored things find */
    st = c->same_format ? dcpk_comparing_objects(c, err) : compare_left(c, a, b, err);
    c->report = report;
    return st == DCPK_OK ? take_untold(c, &found, err) : st;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* compare_rest.c - what is stored and not in the view of a model: strict comparisons look at it. */
#include <stdio.h>
#include <string.h>

#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/ckpt/format.h"
#include "lib/ckpt/overlaps.h"
#include "lib/job/compare_priv.h"
#include "lib/model/account.h"

/*
 * The comparison of two models follows names that are the same in every format, so it does not see
 * items without a name. A strict one walks over all stored items a second time, by key:
 *
 *   one format:   every tensor that no piece of the view is taken from, every object, every entry
 *                 of the common state. A difference is reported unless its part of the state was.
 *   two formats:  items that the views leave out, and extra states.
 */

/* ---- tensors ---- */

static dcpk_status account_model(struct dcpk_account *account, const struct dcpk_model *model,
                                 bool with_carried, struct dcpk_error *err)
{
    if (dcpk_account_init(account, model->ckpt, err))
        return err->status;
    for (size_t i = 0; i < model->n_tensors; i++)
        dcpk_account_pieces(account, model->tensors[i].pieces, model->tensors[i].n_pieces);
    for (size_t i = 0; i < model->n_unknown; i++)
        account->tensors[model->unknown[i]] = true; /* paired by key already */
    for (const struct dcpk_note *note = model->carried; with_carried && note != NULL;
         note = note->next)
        dcpk_account_key(account, note->text, strlen(note->text));
    return DCPK_OK;
}

/* The stored tensors of a view, by the place of their first chunk. */
struct viewed {
    struct dcpk_account account;
    struct dcpk_by_place by_place;
};

/* NULL: it has no chunks. */
static const struct dcpk_place *first_place(const struct dcpk_checkpoint *ckpt, size_t t)
{
    const struct dcpk_tensor *tensor = &ckpt->tensors[t];

    if (tensor->n_chunks == 0)
        return NULL;
    return &ckpt->chunks[tensor->first_chunk].place;
}

static dcpk_status find_places(struct viewed *viewed, struct dcpk_error *err)
{
    const struct dcpk_checkpoint *ckpt = viewed->account.ckpt;

    for (size_t t = 0; t < ckpt->n_tensors; t++) {
        const struct dcpk_place *place = first_place(ckpt, t);

        if (viewed->account.tensors[t] && place != NULL &&
            dcpk_by_place_put(&viewed->by_place, place, NULL, t, err))
            return err->status;
    }
    return DCPK_OK;
}

/* The tensor of the view that `t` is another name for; NULL: none. */
static const struct dcpk_tensor *alias_of(const struct viewed *viewed, size_t t)
{
    const struct dcpk_checkpoint *ckpt = viewed->account.ckpt;
    const struct dcpk_place *place = first_place(ckpt, t);
    uint64_t found;

    if (place == NULL || !dcpk_by_place_get(&viewed->by_place, place, NULL, &found) ||
        !dcpk_tensors_are_aliases(ckpt, (uint32_t)found, (uint32_t)t))
        return NULL;
    return &ckpt->tensors[found];
}

/* True if both have it as an alias of the same tensor, which is compared itself. */
static bool are_same_alias(const struct viewed viewed[2], const struct dcpk_tensor *const of[2])
{
    const struct dcpk_tensor *alias[2];

    for (int s = 0; s < 2; s++) {
        alias[s] = alias_of(&viewed[s], (size_t)(of[s] - viewed[s].account.ckpt->tensors));
        if (alias[s] == NULL)
            return false;
    }
    return strcmp(alias[DCPK_A]->key, alias[DCPK_B]->key) == 0;
}

/* True if the key belongs to optimizer state. */
static bool is_optimizer(const char *key)
{
    if (dcpk_starts_with(key, "chained_") && strchr(key, '.') != NULL)
        key = strchr(key, '.') + 1;
    return strcmp(key, "optimizer") == 0 || dcpk_starts_with(key, "optimizer.");
}

/* Pair the tensors that the view of one side does not have with those of their keys. */
static dcpk_status pair_left(struct dcpk_comparing *c, enum dcpk_side from,
                             const struct viewed viewed[2], struct dcpk_error *err)
{
    const enum dcpk_side to = dcpk_other_side(from);
    const struct dcpk_account *mine = &viewed[from].account, *other = &viewed[to].account;

    for (size_t i = 0; i < mine->ckpt->n_tensors; i++) {
        const char *key = mine->ckpt->tensors[i].key;
        const struct dcpk_tensor *of[2];

        of[from] = &mine->ckpt->tensors[i];
        of[to] = dcpk_checkpoint_tensor(c->side[to].ckpt, key);
        if (mine->tensors[i] || (c->options->weights_only && is_optimizer(key)))
            continue;
        if (of[to] != NULL && from == DCPK_B && !other->tensors[of[to] - other->ckpt->tensors])
            continue; /* paired when it was A's turn */
        if (of[to] != NULL && are_same_alias(viewed, of))
            continue;
        if (dcpk_comparing_stored(c, of, err))
            return err->status;
    }
    return DCPK_OK;
}

/* Compares a tensor that no rule knows under its key, as stored. */
static dcpk_status pair_unknown(struct dcpk_comparing *c, enum dcpk_side from,
                                struct dcpk_error *err)
{
    const struct dcpk_model *model = c->side[from].model;
    const enum dcpk_side to = dcpk_other_side(from);

    for (size_t i = 0; i < model->n_unknown; i++) {
        const struct dcpk_tensor *of[2];

        of[from] = &model->ckpt->tensors[model->unknown[i]];
        of[to] = dcpk_checkpoint_tensor(c->side[to].ckpt, of[from]->key);
        if (from == DCPK_B && of[to] != NULL)
            continue; /* it was paired, or is known, from A */
        if (dcpk_comparing_stored(c, of, err))
            return err->status;
    }
    return DCPK_OK;
}

static dcpk_status pair_all_left(struct dcpk_comparing *c, struct dcpk_error *err)
{
    struct dcpk_arena *arena = c->report->arena;
    struct viewed viewed[2] = {{.by_place.arena = arena}, {.by_place.arena = arena}};
    dcpk_status st = DCPK_OK;

    for (int s = 0; s < 2 && st == DCPK_OK; s++) {
        st = account_model(&viewed[s].account, c->side[s].model, !c->same_format, err);
        if (st == DCPK_OK)
            st = find_places(&viewed[s], err);
    }
    if (st == DCPK_OK)
        st = pair_left(c, DCPK_A, viewed, err);
    if (st == DCPK_OK)
        st = pair_left(c, DCPK_B, viewed, err);
    for (int s = 0; s < 2; s++) {
        dcpk_by_place_release(&viewed[s].by_place);
        dcpk_account_release(&viewed[s].account);
    }
    return st;
}

dcpk_status dcpk_comparing_rest_tensors(struct dcpk_comparing *c, struct dcpk_error *err)
{
    if (pair_unknown(c, DCPK_A, err) || pair_unknown(c, DCPK_B, err))
        return err->status;
    if (c->options->strict)
        return pair_all_left(c, err);
    return DCPK_OK;
}

/* ---- names that were reported ---- */

#define GROUPS "param_groups"

static dcpk_status put_reported(struct dcpk_map *reported, const char *name, size_t n,
                                struct dcpk_error *err)
{
    bool existed;
    uint64_t found;

    return dcpk_map_put(reported, name, n, 0, &existed, &found, err);
}

/*
 * The name of a difference and every beginning of it that ends before '.' or '[', since an item may
 * be the whole: "args.lr" reports "args" too. For a group also its field: "param_groups.lr" of
 * "param_groups[1].lr", which may be stored once for each parameter.
 */
static dcpk_status add_reported(struct dcpk_map *reported, struct dcpk_arena *arena,
                                const char *name, struct dcpk_error *err)
{
    const char *field = strstr(name, "].");

    if (put_reported(reported, name, strlen(name), err))
        return err->status;
    for (size_t n = strcspn(name, ".["); name[n] != '\0'; n += 1 + strcspn(name + n + 1, ".["))
        if (put_reported(reported, name, n, err))
            return err->status;
    if (field == NULL || !dcpk_starts_with(name, GROUPS "["))
        return DCPK_OK;
    name = dcpk_arena_printf(arena, err, GROUPS "%s", field + 1);
    if (name == NULL)
        return err->status;
    return put_reported(reported, name, strlen(name), err);
}

static bool has_reported(const struct dcpk_map *reported, const char *name, size_t n)
{
    uint64_t found;

    return dcpk_map_get(reported, name, n, &found);
}

/* True if a part of the item stored as `name` was reported. */
static bool is_reported(const struct dcpk_map *reported, const char *name)
{
    static const char rng[] = "rng_state", common[] = "common.", whole[] = "common_state/";
    char field[256];

    if (dcpk_starts_with(name, whole)) /* its entries are compared one by one */
        return true;
    if (dcpk_starts_with(name, common))
        name += strlen(common);
    if (has_reported(reported, name, strlen(name)) ||
        has_reported(reported, name, strcspn(name, "/[")))
        return true;
    if (dcpk_starts_with(name, rng) && has_reported(reported, rng, strlen(rng)))
        return true;
    if (!is_optimizer(name))
        return false;
    if (strstr(name, ".param_") == NULL) /* groups as a whole, and what stands next to them */
        return has_reported(reported, GROUPS, strlen(GROUPS));
    snprintf(field, sizeof field, GROUPS "%s", strrchr(name, '.'));
    return has_reported(reported, field, strlen(field));
}

/* ---- objects ---- */

/* A thing of the common state, or of a part of it, which has no name of its own. common: of both;
 * NULL: there is none. */
static dcpk_status compare_left_value(struct dcpk_comparing *c, enum dcpk_side from,
                                      const struct dcpk_value *const common[2], const char *name,
                                      struct dcpk_error *err)
{
    const struct dcpk_value *const values[2] = {dcpk_value_get(common[DCPK_A], name),
                                                dcpk_value_get(common[DCPK_B], name)};
    const struct dcpk_difference d = {.kind = dcpk_only_in(from), .name = name, .is_value = true};

    if (from == DCPK_B && values[DCPK_A] != NULL)
        return DCPK_OK;
    if (values[from] != NULL)
        return dcpk_comparing_value(c, DCPK_OF_STORED, name, NULL, values, err);
    return dcpk_comparing_add(c, &c->report->differences, &d, err);
}

/* A tensor is paired elsewhere; what both have is compared when it is A's turn. */
static dcpk_status compare_note(struct dcpk_comparing *c, enum dcpk_side from,
                                const struct dcpk_value *const common[2],
                                const struct dcpk_note *note, struct dcpk_error *err)
{
    const struct dcpk_object *of[2];
    const char *name;
    size_t n;

    (void)dcpk_model_drop_reason(note, &n);
    name = dcpk_arena_strndup(c->report->arena, note->text, n, err);
    if (name == NULL)
        return err->status;
    if (dcpk_checkpoint_tensor(c->side[from].ckpt, name) != NULL)
        return DCPK_OK;
    for (int s = 0; s < 2; s++)
        of[s] = dcpk_checkpoint_object(c->side[s].ckpt, name);
    if (of[from] == NULL)
        return compare_left_value(c, from, common, name, err);
    if (from == DCPK_B && of[DCPK_A] != NULL)
        return DCPK_OK;
    return dcpk_comparing_object(c, of, err);
}

static dcpk_status compare_notes(struct dcpk_comparing *c, enum dcpk_side from,
                                 const struct dcpk_value *const common[2], struct dcpk_error *err)
{
    const struct dcpk_model *model = c->side[from].model;
    const struct dcpk_note *const lists[] = {model->dropped, model->omitted};

    for (size_t i = 0; i < DCPK_COUNT(lists); i++)
        for (const struct dcpk_note *note = lists[i]; note != NULL; note = note->next)
            if (compare_note(c, from, common, note, err))
                return err->status;
    return DCPK_OK;
}

/* Compares the items that the views of two formats leave out. */
static dcpk_status compare_left(struct dcpk_comparing *c, struct dcpk_error *err)
{
    const struct dcpk_value *common[2] = {NULL, NULL};
    struct dcpk_arena *arena;
    dcpk_status st;

    if (dcpk_comparing_extra_states(c, err))
        return err->status;
    arena = dcpk_arena_new();
    st = dcpk_checkpoint_load_common(c->side[DCPK_A].ckpt, arena, &common[DCPK_A], err);
    if (st == DCPK_OK)
        st = dcpk_checkpoint_load_common(c->side[DCPK_B].ckpt, arena, &common[DCPK_B], err);
    if (st == DCPK_OK)
        st = compare_notes(c, DCPK_A, common, err);
    if (st == DCPK_OK)
        st = compare_notes(c, DCPK_B, common, err);
    dcpk_arena_free(arena);
    return st;
}

/* Take over what was found and not reported. */
static dcpk_status take_found(struct dcpk_comparing *c, const struct dcpk_compare_report *found,
                              struct dcpk_error *err)
{
    struct dcpk_compare_report *report = c->report;
    struct dcpk_map reported = {0};
    dcpk_status st = DCPK_OK;

    for (const struct dcpk_difference *d = report->differences.first; d != NULL && st == DCPK_OK;
         d = d->next)
        if (d->is_value)
            st = add_reported(&reported, report->arena, d->name, err);
    for (const struct dcpk_difference *d = found->differences.first; d != NULL && st == DCPK_OK;
         d = d->next)
        if (!is_reported(&reported, d->name) &&
            !(c->options->weights_only && is_optimizer(d->name)))
            st = dcpk_comparing_add(c, &report->differences, d, err);
    report->n_values += found->n_values;
    for (int p = 0; p < DCPK_N_COMPARED; p++)
        report->parts[p].n_compared += found->parts[p].n_compared;
    dcpk_map_release(&reported);
    return st;
}

dcpk_status dcpk_comparing_rest(struct dcpk_comparing *c, struct dcpk_error *err)
{
    struct dcpk_compare_report *report = c->report;
    struct dcpk_compare_report found = {.arena = report->arena};
    dcpk_status st;

    found.differences.end = &found.differences.first;
    c->report = &found; /* collects by itself what the passes over stored things find */
    if (c->same_format)
        st = dcpk_comparing_objects(c, err);
    else
        st = compare_left(c, err);
    c->report = report;
    if (st != DCPK_OK)
        return st;
    return take_found(c, &found, err);
}

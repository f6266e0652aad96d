/* SPDX-License-Identifier: Apache-2.0 */
/* compare_objects.c - objects that share a key, as stored: two items are compared once, whatever
 * keys they have. */
#include <inttypes.h>

#include "lib/ckpt/format.h"
#include "lib/job/compare_priv.h"

/* Objects past this are compared as stored first: reading them twice costs less than building their
 * values. */
#define LARGE_BYTES ((uint64_t)16 << 20)

/* A's key where it has the object. */
static const char *key_of(const struct dcpk_object *const of[2])
{
    return of[of[DCPK_A] == NULL]->key;
}

static dcpk_status compare_loaded_objects(struct dcpk_comparing *c,
                                          const struct dcpk_object *const of[2],
                                          struct dcpk_error *err)
{
    struct dcpk_arena *arena = dcpk_arena_new();
    const struct dcpk_value *values[2] = {NULL, NULL};
    dcpk_status st = DCPK_OK;

    for (int s = 0; s < 2 && st == DCPK_OK; s++)
        if (of[s] != NULL)
            st = dcpk_checkpoint_load_object(c->side[s].ckpt, of[s], arena, &values[s], err);
    if (st == DCPK_OK)
        st = dcpk_comparing_value(c, DCPK_OF_STORED, key_of(of), NULL, values, err);
    dcpk_arena_free(arena);
    return st;
}

/* Compares two large objects of the same size as stored bytes. */
static dcpk_status compare_bytes(struct dcpk_comparing *c, const struct dcpk_object *const of[2],
                                 bool *same, struct dcpk_error *err)
{
    struct dcpk_range range[2];
    uint64_t first;

    for (int s = 0; s < 2; s++)
        range[s] = (struct dcpk_range){c->side[s].ckpt->files[of[s]->place.file],
                                       of[s]->place.offset_bytes, of[s]->place.n_bytes};
    if (dcpk_ranges_compare(range, &c->options->env.progress, &first, err))
        return dcpk_context(err, "object '%s'", of[DCPK_A]->key);
    *same = first == range[DCPK_A].n_bytes;
    return DCPK_OK;
}

/* *text: what one side has of an object that is too large to be read into memory; NULL: nothing. */
static dcpk_status put_large(struct dcpk_comparing *c, const struct dcpk_object *object,
                             const char **text, struct dcpk_error *err)
{
    if (object == NULL)
        return DCPK_OK;
    return dcpk_comparing_print(c, text, err, "an object stored in %" PRIu64 " bytes",
                                object->place.n_bytes);
}

/* Objects of which one is too large to look into and that are not the same bytes: whether they have
 * the same value is not known, so they count as different. */
static dcpk_status add_large(struct dcpk_comparing *c, const struct dcpk_object *const of[2],
                             struct dcpk_error *err)
{
    struct dcpk_difference d = {.kind = DCPK_VALUE_DIFFERS, .name = key_of(of)};

    if (put_large(c, of[DCPK_A], &d.a, err) || put_large(c, of[DCPK_B], &d.b, err))
        return err->status;
    if (d.a != NULL && d.b != NULL)
        dcpk_comparing_count_value(c, d.name);
    if (d.a == NULL || d.b == NULL)
        d.kind = dcpk_only_in((enum dcpk_side)(d.a == NULL));
    else if (dcpk_comparing_print(c, &d.b, err,
                                  "%s, not the same ones: past %" PRIu64
                                  " their values are not compared",
                                  d.b, DCPK_MAX_LOADED_BYTES))
        return err->status;
    return dcpk_comparing_add(c, &c->report->differences, &d, err);
}

static bool is_past(const struct dcpk_object *object, uint64_t n_bytes)
{
    return object != NULL && object->place.n_bytes > n_bytes;
}

/* True if both are large, have the same size, and are stored in one way. */
static bool can_be_same_bytes(const struct dcpk_comparing *c, const struct dcpk_object *const of[2])
{
    return is_past(of[DCPK_A], LARGE_BYTES) && of[DCPK_B] != NULL &&
           of[DCPK_A]->place.n_bytes == of[DCPK_B]->place.n_bytes &&
           c->side[DCPK_A].ckpt->format->reader == c->side[DCPK_B].ckpt->format->reader;
}

/* By their bytes where these are many; memory of their values is kept for one at a time. */
static dcpk_status compare_stored_items(struct dcpk_comparing *c,
                                        const struct dcpk_object *const of[2],
                                        struct dcpk_error *err)
{
    bool same = false;

    if (can_be_same_bytes(c, of) && compare_bytes(c, of, &same, err))
        return err->status;
    if (same) {
        dcpk_comparing_count_value(c, key_of(of));
        return DCPK_OK;
    }
    if (is_past(of[DCPK_A], DCPK_MAX_LOADED_BYTES) || is_past(of[DCPK_B], DCPK_MAX_LOADED_BYTES))
        return add_large(c, of, err);
    return compare_loaded_objects(c, of, err);
}

/* The report entries of a comparison of two items; they count for all keys of the items. */
struct item_result {
    const struct dcpk_difference *difference; /* NULL: they are equal */
    bool is_of_both;                          /* counted as compared */
};

static dcpk_status add_again(struct dcpk_comparing *c, const char *key,
                             const struct item_result *result, struct dcpk_error *err)
{
    struct dcpk_difference d;

    if (result->is_of_both)
        dcpk_comparing_count_value(c, key);
    if (result->difference == NULL)
        return DCPK_OK;
    d = *result->difference;
    d.name = key;
    return dcpk_comparing_add(c, &c->report->differences, &d, err);
}

/* Objects that share a key; items that share several of them are compared once. */
dcpk_status dcpk_comparing_object(struct dcpk_comparing *c, const struct dcpk_object *const of[2],
                                  struct dcpk_error *err)
{
    const struct dcpk_place *place[2] = {NULL, NULL};
    const char *key = key_of(of);
    struct dcpk_difference **end = c->report->differences.end;
    struct item_result *result;
    uint64_t found;

    for (int s = 0; s < 2; s++)
        if (of[s] != NULL)
            place[s] = &of[s]->place;
    if (dcpk_by_place_get(&c->compared, place[DCPK_A], place[DCPK_B], &found))
        return add_again(c, key, (const struct item_result *)(uintptr_t)found, err);
    if (compare_stored_items(c, of, err))
        return err->status;
    result = dcpk_arena_alloc(c->report->arena, sizeof *result, err);
    if (result == NULL)
        return err->status;
    *result = (struct item_result){*end, of[DCPK_A] != NULL && of[DCPK_B] != NULL};
    return dcpk_by_place_put(&c->compared, place[DCPK_A], place[DCPK_B],
                             (uint64_t)(uintptr_t)result, err);
}

static dcpk_status compare_common(struct dcpk_comparing *c, struct dcpk_error *err)
{
    struct dcpk_dicts common = {.name = "common", .subject = DCPK_OF_STORED};
    struct dcpk_arena *arena;
    dcpk_status st = DCPK_OK;

    for (int s = 0; s < 2; s++)
        if (c->side[s].ckpt->format->load_common == NULL)
            return DCPK_OK;
    arena = dcpk_arena_new();
    for (int s = 0; s < 2 && st == DCPK_OK; s++)
        st = dcpk_checkpoint_load_common(c->side[s].ckpt, arena, &common.of[s], err);
    if (st == DCPK_OK)
        st = dcpk_comparing_dicts(c, &common, err);
    dcpk_arena_free(arena);
    return st;
}

dcpk_status dcpk_comparing_objects(struct dcpk_comparing *c, struct dcpk_error *err)
{
    if (compare_common(c, err))
        return err->status;
    for (int from = 0; from < 2; from++) {
        const struct dcpk_checkpoint *ckpt = c->side[from].ckpt;

        for (size_t i = 0; i < ckpt->n_objects; i++) {
            const struct dcpk_object *of[2];

            of[from] = &ckpt->objects[i];
            of[!from] = dcpk_checkpoint_object(c->side[!from].ckpt, ckpt->objects[i].key);
            if ((from == DCPK_A || of[DCPK_A] == NULL) && dcpk_comparing_object(c, of, err))
                return err->status;
        }
    }
    return DCPK_OK;
}

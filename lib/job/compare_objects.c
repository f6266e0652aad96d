/* SPDX-License-Identifier: Apache-2.0 */
/* compare_objects.c - objects that share a key, as stored: two items are compared once, whatever
 * keys they have. */
#include <inttypes.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/ckpt/format.h"
#include "lib/job/compare_priv.h"

/* Objects past this are compared as stored first: reading them twice costs less than building their
 * values. */
#define LARGE_BYTES ((uint64_t)16 << 20)
#define PART_BYTES  ((size_t)1 << 20) /* read at once of each */

static dcpk_status compare_loaded(struct dcpk_comparing *c, const struct dcpk_object *a,
                                  const struct dcpk_object *b, struct dcpk_error *err)
{
    struct dcpk_arena *arena = dcpk_arena_new(0, err);
    const struct dcpk_value *x = NULL, *y = NULL;
    dcpk_status st = arena == NULL ? err->status : DCPK_OK;

    if (st == DCPK_OK && a != NULL)
        st = dcpk_checkpoint_load_object(c->a, a, arena, &x, err);
    if (st == DCPK_OK && b != NULL)
        st = dcpk_checkpoint_load_object(c->b, b, arena, &y, err);
    if (st == DCPK_OK)
        st = dcpk_comparing_value(c, (a != NULL ? a : b)->key, x, y, DCPK_COUNTS, NULL, err);
    dcpk_arena_free(arena);
    return st;
}

static dcpk_status read_part(const struct dcpk_checkpoint *ckpt, const struct dcpk_object *object,
                             uint64_t at, uint8_t *out, size_t n, struct dcpk_error *err)
{
    return dcpk_source_read(ckpt->files[object->place.file], object->place.offset_bytes + at, out,
                            n, err);
}

/* Are two large objects the same bytes as stored? Of as many bytes each. */
static dcpk_status compare_bytes(struct dcpk_comparing *c, const struct dcpk_object *a,
                                 const struct dcpk_object *b, bool *same, struct dcpk_error *err)
{
    const struct dcpk_progress *progress = &c->options->env.progress;
    const uint64_t n_bytes = a->place.n_bytes;
    uint8_t *buffer = dcpk_alloc(2 * PART_BYTES, err);
    dcpk_status st = buffer == NULL ? err->status : DCPK_OK;

    *same = true;
    for (uint64_t at = 0; at < n_bytes && *same && st == DCPK_OK; at += PART_BYTES) {
        const size_t n = n_bytes - at < PART_BYTES ? (size_t)(n_bytes - at) : PART_BYTES;

        if (progress->update != NULL && !progress->update(progress->context, at, n_bytes))
            st = dcpk_fail(err, DCPK_ECANCELLED, "stopped on request");
        if (st == DCPK_OK)
            st = read_part(c->a, a, at, buffer, n, err);
        if (st == DCPK_OK)
            st = read_part(c->b, b, at, buffer + PART_BYTES, n, err);
        if (st == DCPK_OK)
            *same = memcmp(buffer, buffer + PART_BYTES, n) == 0;
    }
    dcpk_free(buffer);
    if (st != DCPK_OK)
        dcpk_context(err, "object '%s'", a->key);
    return st;
}

/* What one side has of an object that is too large to be taken into memory; NULL: nothing. */
static const char *large_text(struct dcpk_comparing *c, const struct dcpk_object *object,
                              struct dcpk_error *err)
{
    if (object == NULL)
        return NULL;
    return dcpk_arena_printf(c->report->arena, err, "an object stored in %" PRIu64 " bytes",
                             object->place.n_bytes);
}

/* Objects of which one is too large to look into and that are not the same bytes: whether they have
 * the same value cannot be said, so they count as different. */
static dcpk_status add_large(struct dcpk_comparing *c, const struct dcpk_object *a,
                             const struct dcpk_object *b, struct dcpk_error *err)
{
    struct dcpk_difference d = {.kind = a == NULL   ? DCPK_ONLY_IN_B
                                        : b == NULL ? DCPK_ONLY_IN_A
                                                    : DCPK_VALUE_DIFFERS,
                                .name = (a != NULL ? a : b)->key,
                                .a = large_text(c, a, err),
                                .b = large_text(c, b, err)};

    if (d.kind == DCPK_VALUE_DIFFERS && d.a != NULL && d.b != NULL)
        d.b = dcpk_arena_printf(c->report->arena, err,
                                "%s, not the same ones: past %" PRIu64
                                " their values are not looked into",
                                d.b, DCPK_MOST_LOADED_BYTES);
    if ((a != NULL && d.a == NULL) || (b != NULL && d.b == NULL))
        return err->status;
    c->report->n_values++;
    return dcpk_comparing_add(c, &c->report->differences, &d, err);
}

static bool is_past(const struct dcpk_object *object, uint64_t n_bytes)
{
    return object != NULL && object->place.n_bytes > n_bytes;
}

/* By their bytes where these are many; memory of their values is kept for one at a time. */
static dcpk_status compare_items(struct dcpk_comparing *c, const struct dcpk_object *a,
                                 const struct dcpk_object *b, struct dcpk_error *err)
{
    bool same = false;
    dcpk_status st = DCPK_OK;

    if (is_past(a, LARGE_BYTES) && b != NULL && a->place.n_bytes == b->place.n_bytes &&
        c->a->format->reader == c->b->format->reader)
        st = compare_bytes(c, a, b, &same, err);
    if (st != DCPK_OK)
        return st;
    if (same) {
        c->report->n_values++;
        return DCPK_OK;
    }
    if (is_past(a, DCPK_MOST_LOADED_BYTES) || is_past(b, DCPK_MOST_LOADED_BYTES))
        return add_large(c, a, b, err);
    return compare_loaded(c, a, b, err);
}

/* What the comparison of two items has added to the report: it is that of all keys they have. */
struct item_result {
    const struct dcpk_difference *difference; /* NULL: they are equal */
    uint64_t n_compared;                      /* as a value of its part */
};

static dcpk_status tell_again(struct dcpk_comparing *c, const char *key,
                              const struct item_result *result, struct dcpk_error *err)
{
    struct dcpk_difference d;

    c->report->n_values++;
    c->report->parts[dcpk_comparing_part(key, NULL, false)].n_compared += result->n_compared;
    if (result->difference == NULL)
        return DCPK_OK;
    d = *result->difference;
    d.name = key;
    return dcpk_comparing_add(c, &c->report->differences, &d, err);
}

/* Objects that share a key; items that share several of them are compared once. */
dcpk_status dcpk_comparing_object(struct dcpk_comparing *c, const struct dcpk_object *a,
                                  const struct dcpk_object *b, struct dcpk_error *err)
{
    const struct dcpk_place *x = a == NULL ? NULL : &a->place, *y = b == NULL ? NULL : &b->place;
    const char *key = (a != NULL ? a : b)->key;
    struct dcpk_part_result *part = &c->report->parts[dcpk_comparing_part(key, NULL, false)];
    struct dcpk_difference **end = c->report->differences.end;
    const uint64_t before = part->n_compared;
    struct item_result *result;
    uint64_t found;

    if (dcpk_by_place_get(&c->compared, x, y, &found))
        return tell_again(c, key, (const struct item_result *)(uintptr_t)found, err);
    if (compare_items(c, a, b, err) != DCPK_OK)
        return err->status;
    result = dcpk_arena_alloc(c->report->arena, sizeof *result, err);
    if (result == NULL)
        return err->status;
    *result = (struct item_result){*end, part->n_compared - before};
    return dcpk_by_place_put(&c->compared, x, y, (uint64_t)(uintptr_t)result, err);
}

static dcpk_status compare_common(struct dcpk_comparing *c, struct dcpk_error *err)
{
    struct dcpk_arena *arena;
    const struct dcpk_value *x = NULL, *y = NULL;
    dcpk_status st = DCPK_OK;

    if (c->a->format->load_common == NULL || c->b->format->load_common == NULL)
        return DCPK_OK;
    arena = dcpk_arena_new(0, err);
    if (arena == NULL)
        return err->status;
    st = dcpk_checkpoint_load_common(c->a, arena, &x, err);
    if (st == DCPK_OK)
        st = dcpk_checkpoint_load_common(c->b, arena, &y, err);
    if (st == DCPK_OK)
        st = dcpk_comparing_dicts(c, "common", x, y, NULL, NULL, err);
    dcpk_arena_free(arena);
    return st;
}

dcpk_status dcpk_comparing_objects(struct dcpk_comparing *c, struct dcpk_error *err)
{
    dcpk_status st = compare_common(c, err);

    for (size_t i = 0; i < c->a->n_objects && st == DCPK_OK; i++)
        st = dcpk_comparing_object(c, &c->a->objects[i],
                                   dcpk_checkpoint_object(c->b, c->a->objects[i].key), err);
    for (size_t j = 0; j < c->b->n_objects && st == DCPK_OK; j++)
        if (dcpk_checkpoint_object(c->a, c->b->objects[j].key) == NULL)
            st = dcpk_comparing_object(c, NULL, &c->b->objects[j], err);
    return st;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* holding.c - look-ups by name in a checkpoint that is there or will be. */
#include "lib/job/holding.h"

#include <string.h>

#include "lib/base/alloc.h"

#define MAX_FIELDS 64 /* bits of a word */

void dcpk_holding_of_checkpoint(struct dcpk_holding *h, struct dcpk_checkpoint *ckpt)
{
    h->format = ckpt->format;
    h->ckpt = ckpt;
    h->n_tensors = ckpt->n_tensors;
}

void dcpk_holding_release(struct dcpk_holding *h)
{
    dcpk_map_release(&h->tensors);
    dcpk_map_release(&h->objects);
    dcpk_bytes_release(&h->key);
    dcpk_bytes_release(&h->last);
    dcpk_free(h->fields);
}

/* --- an output --- */

static dcpk_status index_tensors(struct dcpk_holding *h, struct dcpk_error *err)
{
    size_t n_keys = 0;
    bool existed;
    uint64_t found;

    for (size_t t = 0; t < h->out->n_tensors; t++)
        n_keys += h->out->tensors[t].n_keys;
    if (dcpk_map_reserve(&h->tensors, n_keys, err))
        return err->status;
    for (size_t t = 0; t < h->out->n_tensors; t++)
        for (size_t k = 0; k < h->out->tensors[t].n_keys; k++) {
            const char *key = h->out->tensors[t].keys[k];

            if (dcpk_map_put(&h->tensors, key, strlen(key), t, &existed, &found, err))
                return err->status;
        }
    return DCPK_OK;
}

/* The bit of a field's name. */
static dcpk_status find_field(struct dcpk_holding *h, const char *field, size_t *bit,
                              struct dcpk_error *err)
{
    for (*bit = 0; *bit < h->n_fields; ++*bit)
        if (strcmp(h->field_names[*bit], field) == 0)
            return DCPK_OK;
    if (h->n_fields == MAX_FIELDS)
        return dcpk_fail(err, DCPK_ERANGE, "more than %d kinds of fields in parameter groups",
                         MAX_FIELDS);
    h->field_names[h->n_fields++] = field;
    return DCPK_OK;
}

/*
 * A field is listed under every parameter of its group, one field after the other: where the run
 * of the field before had the same key at this place, its row is known without a look-up.
 */
struct run {
    size_t first, before, bit;
    uint32_t *rows; /* of each object */
};

static dcpk_status find_row(struct dcpk_holding *h, const struct run *run, size_t object,
                            uint64_t *row, struct dcpk_error *err)
{
    const struct dcpk_out_object *objects = h->out->objects;
    const size_t twin = run->before + (object - run->first);
    bool existed;
    dcpk_status st;

    if (twin < run->first && objects[twin].key == objects[object].key &&
        objects[twin].field != NULL) {
        *row = run->rows[twin];
        return DCPK_OK;
    }
    *row = h->n_rows;
    st = dcpk_map_put(&h->objects, objects[object].key, strlen(objects[object].key), h->n_rows,
                      &existed, row, err);
    if (st == DCPK_OK && !existed)
        *row = h->n_rows++;
    return st;
}

static dcpk_status index_objects(struct dcpk_holding *h, struct dcpk_error *err)
{
    const struct dcpk_out_object *objects = h->out->objects;
    const size_t n = h->out->n_objects;
    struct run run = {.rows = dcpk_alloc_array(n, sizeof *run.rows, err)};
    dcpk_status st = DCPK_OK;

    h->fields = dcpk_alloc_array(n, sizeof *h->fields, err);
    if (run.rows == NULL || h->fields == NULL) {
        st = err->status;
        goto out;
    }
    for (size_t i = 0; i < n; i++) {
        const char *field = objects[i].field;
        uint64_t row = 0;

        if (i == 0 || field != objects[i - 1].field) {
            run.before = run.first;
            run.first = i;
            if (field != NULL)
                st = find_field(h, field, &run.bit, err);
        }
        if (st == DCPK_OK)
            st = find_row(h, &run, i, &row, err);
        if (st != DCPK_OK)
            goto out;
        run.rows[i] = (uint32_t)row;
        if (field != NULL)
            h->fields[row] |= (uint64_t)1 << run.bit;
    }
out:
    dcpk_free(run.rows);
    return st;
}

dcpk_status dcpk_holding_of_output(struct dcpk_holding *h, const struct dcpk_output *out,
                                   struct dcpk_error *err)
{
    h->format = out->format;
    h->out = out;
    h->ckpt = out->source;
    h->n_tensors = out->n_tensors;
    if (index_tensors(h, err) || index_objects(h, err))
        return err->status;
    return DCPK_OK;
}

/* --- other keys of a checkpoint --- */

static dcpk_status index_items(struct dcpk_map *map, const struct dcpk_edit_item *items, size_t n,
                               struct dcpk_error *err)
{
    bool existed;
    uint64_t found;

    for (size_t i = 0; i < n; i++)
        if (items[i].removed_by == NULL &&
            dcpk_map_put(map, items[i].name, strlen(items[i].name), i, &existed, &found, err))
            return err->status;
    return DCPK_OK;
}

dcpk_status dcpk_holding_of_edits(struct dcpk_holding *h, struct dcpk_checkpoint *ckpt,
                                  const struct dcpk_edit_item *items, struct dcpk_error *err)
{
    dcpk_holding_of_checkpoint(h, ckpt);
    h->items = items;
    if (index_items(&h->tensors, items, ckpt->n_tensors, err) ||
        index_items(&h->objects, items + ckpt->n_tensors, ckpt->n_objects, err))
        return err->status;
    return DCPK_OK;
}

/* --- look-ups --- */

/* A checkpoint with its own keys. */
static bool is_plain(const struct dcpk_holding *h)
{
    return h->out == NULL && h->items == NULL;
}

static const struct dcpk_map *object_map(const struct dcpk_holding *h)
{
    return is_plain(h) ? &h->ckpt->object_by_key : &h->objects;
}

bool dcpk_holding_tensor(const struct dcpk_holding *h, const char *key, size_t n,
                         struct dcpk_found_tensor *found)
{
    const struct dcpk_map *map = &h->tensors;
    uint64_t number;

    if (is_plain(h))
        map = &h->ckpt->tensor_by_key;
    if (!dcpk_map_get(map, key, n, &number))
        return false;
    found->index = (size_t)number;
    if (h->out != NULL) {
        found->rank = h->out->tensors[number].rank;
        found->shape = h->out->tensors[number].shape;
        return true;
    }
    found->rank = h->ckpt->tensors[number].rank;
    found->shape = h->ckpt->tensors[number].shape;
    return true;
}

/* The same key as asked for last: a parameter's fields follow each other. */
static bool find_cached(struct dcpk_holding *h, const char *key, size_t n, uint64_t *row)
{
    if (n == h->last.n_bytes && n > 0 && memcmp(key, h->last.data, n) == 0) {
        *row = h->last_row;
        return *row != UINT64_MAX;
    }
    h->last.n_bytes = 0;
    dcpk_bytes_put(&h->last, key, n);
    if (!dcpk_map_get(&h->objects, key, n, row))
        *row = UINT64_MAX;
    h->last_row = *row;
    return *row != UINT64_MAX;
}

/* The bit of a field, MAX_FIELDS: nothing has it. Askers keep their names: the same text comes at
 * the same address. */
static size_t find_asked(struct dcpk_holding *h, const char *field)
{
    size_t bit = 0;

    for (size_t i = 0; i < h->n_asked; i++)
        if (h->asked_fields[i] == field)
            return h->asked_bits[i];
    while (bit < h->n_fields && strcmp(h->field_names[bit], field) != 0)
        bit++;
    if (bit == h->n_fields)
        bit = MAX_FIELDS;
    if (h->n_asked < MAX_FIELDS) {
        h->asked_fields[h->n_asked] = field;
        h->asked_bits[h->n_asked++] = bit;
    }
    return bit;
}

static bool find_output_field(struct dcpk_holding *h, const char *key, size_t n, const char *field)
{
    const size_t bit = find_asked(h, field);
    uint64_t row;

    return bit < MAX_FIELDS && find_cached(h, key, n, &row) && (h->fields[row] >> bit & 1) != 0;
}

bool dcpk_holding_object(struct dcpk_holding *h, const char *key, size_t n, const char *field)
{
    const struct dcpk_map *map = object_map(h);
    uint64_t found;

    if (field == NULL)
        return dcpk_map_get(map, key, n, &found);
    if (h->out != NULL)
        return find_output_field(h, key, n, field);
    h->key.n_bytes = 0;
    dcpk_bytes_put(&h->key, key, n);
    dcpk_bytes_text(&h->key, ".");
    dcpk_bytes_text(&h->key, field);
    return dcpk_map_get(map, (const char *)h->key.data, h->key.n_bytes, &found);
}

/* A payload of the output: made, or an object of the source. */
static dcpk_status load_output_value(struct dcpk_holding *h, const char *key,
                                     struct dcpk_arena *arena, const struct dcpk_value **value,
                                     struct dcpk_error *err)
{
    for (size_t i = 0; i < h->out->n_objects; i++) {
        const struct dcpk_out_object *object = &h->out->objects[i];
        const struct dcpk_out_payload *payload = &h->out->payloads[object->payload];

        if (object->field != NULL || strcmp(object->key, key) != 0)
            continue;
        *value = payload->value;
        if (payload->value != NULL)
            return DCPK_OK;
        return dcpk_checkpoint_load_object(h->ckpt, payload->source, arena, value, err);
    }
    return DCPK_OK;
}

dcpk_status dcpk_holding_value(struct dcpk_holding *h, const char *key, struct dcpk_arena *arena,
                               const struct dcpk_value **value, struct dcpk_error *err)
{
    uint64_t found;

    *value = NULL;
    if (h->out != NULL)
        return load_output_value(h, key, arena, value, err);
    if (!dcpk_map_get(object_map(h), key, strlen(key), &found))
        return DCPK_OK;
    return dcpk_checkpoint_load_object(h->ckpt, &h->ckpt->objects[found], arena, value, err);
}

dcpk_status dcpk_holding_common(struct dcpk_holding *h, struct dcpk_arena *arena,
                                const struct dcpk_value **common, struct dcpk_error *err)
{
    if (h->out == NULL)
        return dcpk_checkpoint_load_common(h->ckpt, arena, common, err);
    *common = h->out->common;
    return DCPK_OK;
}

const char *dcpk_holding_name(const struct dcpk_holding *h, size_t tensor)
{
    if (h->out != NULL)
        return h->out->tensors[tensor].keys[0];
    if (h->items == NULL)
        return h->ckpt->tensors[tensor].key;
    if (h->items[tensor].removed_by != NULL)
        return NULL;
    return h->items[tensor].name;
}

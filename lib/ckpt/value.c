/* SPDX-License-Identifier: Apache-2.0 */
/* value.c - making, looking up and measuring inert values. */
#include "lib/ckpt/value.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static struct dcpk_value *value_make(struct dcpk_arena *arena, enum dcpk_value_kind kind,
                                     struct dcpk_error *err)
{
    struct dcpk_value *v = dcpk_arena_alloc(arena, sizeof *v, err);

    if (v != NULL)
        v->kind = kind;
    return v;
}

const struct dcpk_value *dcpk_value_none(void)
{
    static const struct dcpk_value none = {.kind = DCPK_V_NONE};

    return &none;
}

const struct dcpk_value *dcpk_value_bool(bool b)
{
    static const struct dcpk_value no = {.kind = DCPK_V_BOOL, .as.b = false};
    static const struct dcpk_value yes = {.kind = DCPK_V_BOOL, .as.b = true};

    return b ? &yes : &no;
}

const struct dcpk_value *dcpk_value_int(struct dcpk_arena *arena, int64_t i, struct dcpk_error *err)
{
    struct dcpk_value *v = value_make(arena, DCPK_V_INT, err);

    if (v != NULL)
        v->as.i = i;
    return v;
}

const struct dcpk_value *dcpk_value_float(struct dcpk_arena *arena, double f,
                                          struct dcpk_error *err)
{
    struct dcpk_value *v = value_make(arena, DCPK_V_FLOAT, err);

    if (v != NULL)
        v->as.f = f;
    return v;
}

const struct dcpk_value *dcpk_value_str(struct dcpk_arena *arena, const char *text,
                                        struct dcpk_error *err)
{
    const char *copy = dcpk_arena_strdup(arena, text, err);
    struct dcpk_value *v;

    if (copy == NULL || (v = value_make(arena, DCPK_V_STR, err)) == NULL)
        return NULL;
    v->n = strlen(text);
    v->as.str = copy;
    return v;
}

const struct dcpk_value *dcpk_value_bytes(struct dcpk_arena *arena, const void *data, size_t n,
                                          struct dcpk_error *err)
{
    const char *copy = dcpk_arena_strndup(arena, data, n, err);
    struct dcpk_value *v;

    if (copy == NULL || (v = value_make(arena, DCPK_V_BYTES, err)) == NULL)
        return NULL;
    v->n = n;
    v->as.str = copy;
    return v;
}

const struct dcpk_value *dcpk_value_global(struct dcpk_arena *arena, const char *module,
                                           const char *name, struct dcpk_error *err)
{
    struct dcpk_value *v = value_make(arena, DCPK_V_GLOBAL, err);

    if (v == NULL)
        return NULL;
    v->as.global.module = module;
    v->as.global.name = name;
    return v;
}

const struct dcpk_value *dcpk_value_vector(struct dcpk_arena *arena, enum dcpk_dtype dtype,
                                           const void *data, int64_t n_elems,
                                           struct dcpk_error *err)
{
    const size_t n_bytes = (size_t)n_elems * dcpk_dtype_bytes(dtype);
    struct dcpk_value_tensor *tensor;
    struct dcpk_value *v;
    int64_t *shape;
    const void *copy = dcpk_arena_copy(arena, data, (size_t)n_elems, dcpk_dtype_bytes(dtype), err);

    if (copy == NULL || (shape = dcpk_arena_alloc(arena, sizeof *shape, err)) == NULL ||
        (tensor = dcpk_arena_alloc(arena, sizeof *tensor, err)) == NULL ||
        (v = value_make(arena, DCPK_V_TENSOR, err)) == NULL)
        return NULL;
    *shape = n_elems;
    *tensor = (struct dcpk_value_tensor){
        .dtype = dtype, .rank = 1, .shape = shape, .n_bytes = n_bytes, .data = copy};
    v->as.tensor = tensor;
    return v;
}

const struct dcpk_value *dcpk_value_seq(struct dcpk_arena *arena, enum dcpk_value_kind kind,
                                        const struct dcpk_value *const *items, size_t n,
                                        struct dcpk_error *err)
{
    const struct dcpk_value *const *copy = dcpk_arena_copy(arena, items, n, sizeof *copy, err);
    struct dcpk_value *v;

    assert(kind == DCPK_V_TUPLE || kind == DCPK_V_LIST || kind == DCPK_V_SET);
    if (copy == NULL || (v = value_make(arena, kind, err)) == NULL)
        return NULL;
    v->n = n;
    v->as.items = copy;
    return v;
}

const struct dcpk_value *dcpk_value_dict(struct dcpk_arena *arena,
                                         const struct dcpk_value_pair *pairs, size_t n,
                                         struct dcpk_error *err)
{
    const struct dcpk_value_pair *copy = dcpk_arena_copy(arena, pairs, n, sizeof *copy, err);
    struct dcpk_value *v;

    if (copy == NULL || (v = value_make(arena, DCPK_V_DICT, err)) == NULL)
        return NULL;
    v->n = n;
    v->as.pairs = copy;
    return v;
}

void dcpk_dict_add(struct dcpk_dict *dict, const struct dcpk_value *key,
                   const struct dcpk_value *value)
{
    if (key == NULL || value == NULL)
        return;
    if (dict->n == dict->capacity) {
        const size_t capacity = 2 * dict->capacity + 16;
        struct dcpk_value_pair *larger = dcpk_arena_extend(dict->arena, dict->pairs, dict->n,
                                                           capacity, sizeof *larger, dict->err);

        if (larger == NULL)
            return;
        dict->pairs = larger;
        dict->capacity = capacity;
    }
    dict->pairs[dict->n++] = (struct dcpk_value_pair){key, value};
}

void dcpk_dict_put(struct dcpk_dict *dict, const char *name, const struct dcpk_value *value)
{
    if (value != NULL)
        dcpk_dict_add(dict, dcpk_value_str(dict->arena, name, dict->err), value);
}

void dcpk_dict_put_all(struct dcpk_dict *dict, const struct dcpk_value *members)
{
    for (size_t i = 0; members != NULL && i < members->n; i++)
        dcpk_dict_add(dict, members->as.pairs[i].key, members->as.pairs[i].value);
}

static struct dcpk_value_pair *dict_member(const struct dcpk_dict *dict, const char *name)
{
    for (size_t i = 0; i < dict->n; i++)
        if (strcmp(dict->pairs[i].key->as.str, name) == 0)
            return &dict->pairs[i];
    return NULL;
}

const struct dcpk_value *dcpk_dict_get(const struct dcpk_dict *dict, const char *name)
{
    const struct dcpk_value_pair *pair = dict_member(dict, name);

    return pair == NULL ? NULL : pair->value;
}

dcpk_status dcpk_dict_set(struct dcpk_dict *dict, const char *name, const struct dcpk_value *value)
{
    struct dcpk_value_pair *pair = dict_member(dict, name);

    if (pair == NULL || value == NULL)
        dcpk_dict_put(dict, name, value);
    else
        pair->value = value;
    return dict->err->status;
}

dcpk_status dcpk_dict_set_all(struct dcpk_dict *dict, const struct dcpk_value *members)
{
    for (size_t i = 0; members != NULL && i < members->n; i++)
        (void)dcpk_dict_set(dict, members->as.pairs[i].key->as.str, members->as.pairs[i].value);
    return dict->err->status;
}

void dcpk_dict_remove(struct dcpk_dict *dict, const char *name)
{
    struct dcpk_value_pair *pair = dict_member(dict, name);

    if (pair != NULL)
        memmove(pair, pair + 1, (size_t)(dict->pairs + --dict->n - pair) * sizeof *pair);
}

static int compare_dict_names(const void *a, const void *b)
{
    const struct dcpk_value_pair *x = a, *y = b;

    return strcmp(x->key->as.str, y->key->as.str);
}

void dcpk_dict_sort(struct dcpk_dict *dict)
{
    if (dict->n > 0)
        qsort(dict->pairs, dict->n, sizeof *dict->pairs, compare_dict_names);
}

const struct dcpk_value *dcpk_dict_end(const struct dcpk_dict *dict)
{
    static const struct dcpk_value_pair none[1];
    struct dcpk_value *v;

    if (dict->err->status != DCPK_OK ||
        (v = value_make(dict->arena, DCPK_V_DICT, dict->err)) == NULL)
        return NULL;
    v->n = dict->n;
    v->as.pairs = dict->n > 0 ? dict->pairs : none;
    return v;
}

const struct dcpk_value *dcpk_value_namespace(struct dcpk_arena *arena,
                                              const struct dcpk_value_pair *pairs, size_t n,
                                              struct dcpk_error *err)
{
    const struct dcpk_value *state, *args;
    struct dcpk_value_object *object;
    struct dcpk_value *v;

    if ((state = dcpk_value_dict(arena, pairs, n, err)) == NULL ||
        (args = dcpk_value_seq(arena, DCPK_V_TUPLE, NULL, 0, err)) == NULL ||
        (object = dcpk_arena_alloc(arena, sizeof *object, err)) == NULL ||
        (v = value_make(arena, DCPK_V_OBJECT, err)) == NULL)
        return NULL;
    object->module = "argparse";
    object->name = "Namespace";
    object->is_known = true;
    object->args = args;
    object->state = state;
    v->as.object = object;
    return v;
}

const struct dcpk_value *dcpk_value_get(const struct dcpk_value *dict, const char *key)
{
    const size_t n = strlen(key);

    if (dict == NULL || dict->kind != DCPK_V_DICT)
        return NULL;
    for (size_t i = 0; i < dict->n; i++) {
        const struct dcpk_value *k = dict->as.pairs[i].key;
        if (k->kind == DCPK_V_STR && k->n == n && memcmp(k->as.str, key, n) == 0)
            return dict->as.pairs[i].value;
    }
    return NULL;
}

const struct dcpk_value *dcpk_value_get_int(const struct dcpk_value *dict, int64_t key)
{
    if (dict == NULL || dict->kind != DCPK_V_DICT)
        return NULL;
    for (size_t i = 0; i < dict->n; i++) {
        const struct dcpk_value *k = dict->as.pairs[i].key;
        if (k->kind == DCPK_V_INT && k->as.i == key)
            return dict->as.pairs[i].value;
    }
    return NULL;
}

static bool is_seq(const struct dcpk_value *v)
{
    return v->kind == DCPK_V_TUPLE || v->kind == DCPK_V_LIST || v->kind == DCPK_V_SET;
}

const struct dcpk_value *dcpk_value_at(const struct dcpk_value *seq, size_t i)
{
    if (seq == NULL || !is_seq(seq) || i >= seq->n)
        return NULL;
    return seq->as.items[i];
}

const struct dcpk_value *dcpk_value_attrs(const struct dcpk_value *object)
{
    const struct dcpk_value *state;

    if (object == NULL || object->kind != DCPK_V_OBJECT)
        return NULL;
    state = object->as.object->state;
    if (state == NULL || state->kind != DCPK_V_DICT)
        return NULL;
    return state;
}

bool dcpk_value_is_object(const struct dcpk_value *v, const char *module, const char *name)
{
    return v != NULL && v->kind == DCPK_V_OBJECT && strcmp(v->as.object->module, module) == 0 &&
           strcmp(v->as.object->name, name) == 0;
}

bool dcpk_value_as_int(const struct dcpk_value *v, int64_t *out)
{
    if (v == NULL || (v->kind != DCPK_V_INT && v->kind != DCPK_V_BOOL))
        return false;
    *out = v->kind == DCPK_V_INT ? v->as.i : (int64_t)v->as.b;
    return true;
}

int64_t dcpk_value_int_or(const struct dcpk_value *dict, const char *key, int64_t by_default)
{
    int64_t i = by_default;

    (void)dcpk_value_as_int(dcpk_value_get(dict, key), &i);
    return i;
}

bool dcpk_value_as_float(const struct dcpk_value *v, double *out)
{
    if (v == NULL || (v->kind != DCPK_V_FLOAT && v->kind != DCPK_V_INT))
        return false;
    *out = v->kind == DCPK_V_FLOAT ? v->as.f : (double)v->as.i;
    return true;
}

bool dcpk_value_as_bool(const struct dcpk_value *v, bool *out)
{
    if (v == NULL || v->kind != DCPK_V_BOOL)
        return false;
    *out = v->as.b;
    return true;
}

bool dcpk_value_is_none(const struct dcpk_value *v)
{
    return v == NULL || v->kind == DCPK_V_NONE;
}

bool dcpk_value_is_true(const struct dcpk_value *dict, const char *name)
{
    bool value = false;

    return dcpk_value_as_bool(dcpk_value_get(dict, name), &value) && value;
}

const char *dcpk_value_as_str(const struct dcpk_value *v)
{
    if (v == NULL || v->kind != DCPK_V_STR)
        return NULL;
    return v->as.str;
}

bool dcpk_value_is_str(const struct dcpk_value *v, const char *text)
{
    const char *own = dcpk_value_as_str(v);

    return own != NULL && strcmp(own, text) == 0;
}

/* ---- measuring ---- */

#define CONTENT_BYTES 8 /* count as much as a node */

uint64_t dcpk_value_unfolded_node(const struct dcpk_value *v)
{
    uint64_t n_bytes = 0;

    if (v->kind == DCPK_V_STR || v->kind == DCPK_V_BYTES || v->kind == DCPK_V_BIGINT)
        n_bytes = v->n;
    else if (v->kind == DCPK_V_TENSOR && (v->as.tensor->data != NULL || v->as.tensor->is_row_major))
        n_bytes = v->as.tensor->n_bytes; /* a strided one of an outline is not read */
    else if (v->kind == DCPK_V_GLOBAL)
        n_bytes = strlen(v->as.global.module) + strlen(v->as.global.name);
    else if (v->kind == DCPK_V_OBJECT)
        n_bytes = strlen(v->as.object->module) + strlen(v->as.object->name);
    return 1 + n_bytes / CONTENT_BYTES;
}

static uint64_t unfolded_items(const struct dcpk_value *const *items, size_t n)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += dcpk_value_unfolded(items[i]);
    return sum;
}

static uint64_t unfolded_pairs(const struct dcpk_value_pair *pairs, size_t n)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += dcpk_value_unfolded(pairs[i].key) + dcpk_value_unfolded(pairs[i].value);
    return sum;
}

uint64_t dcpk_value_unfolded(const struct dcpk_value *v)
{
    const struct dcpk_value_object *o;

    if (v == NULL)
        return 0;
    if (is_seq(v))
        return dcpk_value_unfolded_node(v) + unfolded_items(v->as.items, v->n);
    if (v->kind == DCPK_V_DICT)
        return dcpk_value_unfolded_node(v) + unfolded_pairs(v->as.pairs, v->n);
    if (v->kind != DCPK_V_OBJECT)
        return dcpk_value_unfolded_node(v);
    o = v->as.object;
    return dcpk_value_unfolded_node(v) + dcpk_value_unfolded(o->args) +
           dcpk_value_unfolded(o->state) + unfolded_items(o->items, o->n_items) +
           unfolded_pairs(o->pairs, o->n_pairs);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* value.c - making, looking up and comparing inert values. */
#include "lib/ckpt/value.h"

#include <assert.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/map.h"

/* A shared node counts each time a walk meets it, so a few hundred bytes can unfold into 2^200
 * nodes. */
#define MAX_VISITS 10000000
#define MAX_DEPTH                                                                                  \
    1000 /* the pickle reader stops at 200; guards the C stack against hand-made trees */
#define N_PROVEN   1024 /* pairs remembered as equal: makes the usual shared nodes cost once */
#define SCAN_ITEMS 16   /* up to here a linear search beats a hash table */

static struct dcpk_value *make(struct dcpk_arena *arena, enum dcpk_value_kind kind,
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
    struct dcpk_value *v = make(arena, DCPK_V_INT, err);

    if (v != NULL)
        v->as.i = i;
    return v;
}

const struct dcpk_value *dcpk_value_float(struct dcpk_arena *arena, double f,
                                          struct dcpk_error *err)
{
    struct dcpk_value *v = make(arena, DCPK_V_FLOAT, err);

    if (v != NULL)
        v->as.f = f;
    return v;
}

const struct dcpk_value *dcpk_value_str(struct dcpk_arena *arena, const char *text,
                                        struct dcpk_error *err)
{
    const char *copy = dcpk_arena_strdup(arena, text, err);
    struct dcpk_value *v = copy == NULL ? NULL : make(arena, DCPK_V_STR, err);

    if (v == NULL)
        return NULL;
    v->n = strlen(text);
    v->as.str = copy;
    return v;
}

const struct dcpk_value *dcpk_value_seq(struct dcpk_arena *arena, enum dcpk_value_kind kind,
                                        const struct dcpk_value *const *items, size_t n,
                                        struct dcpk_error *err)
{
    const struct dcpk_value **copy = dcpk_arena_array(arena, n, sizeof *copy, err);
    struct dcpk_value *v = copy == NULL ? NULL : make(arena, kind, err);

    assert(kind == DCPK_V_TUPLE || kind == DCPK_V_LIST || kind == DCPK_V_SET);
    if (v == NULL)
        return NULL;
    if (n > 0)
        memcpy(copy, items, n * sizeof *copy);
    v->n = n;
    v->as.items = copy;
    return v;
}

const struct dcpk_value *dcpk_value_dict(struct dcpk_arena *arena,
                                         const struct dcpk_value_pair *pairs, size_t n,
                                         struct dcpk_error *err)
{
    struct dcpk_value_pair *copy = dcpk_arena_array(arena, n, sizeof *copy, err);
    struct dcpk_value *v = copy == NULL ? NULL : make(arena, DCPK_V_DICT, err);

    if (v == NULL)
        return NULL;
    if (n > 0)
        memcpy(copy, pairs, n * sizeof *copy);
    v->n = n;
    v->as.pairs = copy;
    return v;
}

const struct dcpk_value *dcpk_value_namespace(struct dcpk_arena *arena,
                                              const struct dcpk_value_pair *pairs, size_t n,
                                              struct dcpk_error *err)
{
    const struct dcpk_value *state = dcpk_value_dict(arena, pairs, n, err);
    const struct dcpk_value *args =
        state == NULL ? NULL : dcpk_value_seq(arena, DCPK_V_TUPLE, NULL, 0, err);
    struct dcpk_value_object *object =
        args == NULL ? NULL : dcpk_arena_alloc(arena, sizeof *object, err);
    struct dcpk_value *v = object == NULL ? NULL : make(arena, DCPK_V_OBJECT, err);

    if (v == NULL)
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
    return state != NULL && state->kind == DCPK_V_DICT ? state : NULL;
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

bool dcpk_value_is_true(const struct dcpk_value *dict, const char *name)
{
    bool value = false;

    return dcpk_value_as_bool(dcpk_value_get(dict, name), &value) && value;
}

const char *dcpk_value_as_str(const struct dcpk_value *v)
{
    return v != NULL && v->kind == DCPK_V_STR ? v->as.str : NULL;
}

/* ---- comparing ---- */

struct proven {
    const struct dcpk_value *a, *b;
};

struct comparison {
    uint64_t visits_left;
    struct proven proven[N_PROVEN]; /* a cache: a pair that is pushed out is only compared again */
};

static bool same(struct comparison *c, const struct dcpk_value *a, const struct dcpk_value *b,
                 int depth);

static struct proven *proven_slot(struct comparison *c, const struct dcpk_value *a,
                                  const struct dcpk_value *b)
{
    const uint64_t mixed = ((uint64_t)(uintptr_t)a ^ (uint64_t)(uintptr_t)b << 21) >> 3;

    return &c->proven[mixed * UINT64_C(0x9e3779b97f4a7c15) >> 54];
}

static bool same_bytes(const void *a, const void *b, size_t n)
{
    return n == 0 || memcmp(a, b, n) == 0;
}

static bool same_float(double a, double b)
{
    return (a != a && b != b) || memcmp(&a, &b, sizeof a) == 0;
}

static bool same_tensor(const struct dcpk_value_tensor *a, const struct dcpk_value_tensor *b)
{
    return a->dtype == b->dtype && a->rank == b->rank && a->n_bytes == b->n_bytes &&
           same_bytes(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape) &&
           same_bytes(a->data, b->data, (size_t)a->n_bytes);
}

static bool same_items(struct comparison *c, const struct dcpk_value *const *a,
                       const struct dcpk_value *const *b, size_t n, int depth)
{
    for (size_t i = 0; i < n; i++)
        if (!same(c, a[i], b[i], depth))
            return false;
    return true;
}

/* Members of a SET are its keys; they have no value. */
static const struct dcpk_value *key_of(const struct dcpk_value *v, size_t i)
{
    return v->kind == DCPK_V_DICT ? v->as.pairs[i].key : v->as.items[i];
}

static bool same_member(struct comparison *c, const struct dcpk_value *a, size_t i,
                        const struct dcpk_value *b, size_t k, int depth)
{
    return a->kind != DCPK_V_DICT || same(c, a->as.pairs[i].value, b->as.pairs[k].value, depth);
}

/* Index b's text keys from `from` on. Without memory the map stays short and the scan below
 * decides. */
static void index_texts(struct dcpk_map *map, const struct dcpk_value *b, size_t from)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    bool existed;
    uint64_t found;

    if (b->n - from <= SCAN_ITEMS)
        return;
    for (size_t k = from; k < b->n; k++) {
        const struct dcpk_value *key = key_of(b, k);
        if (key->kind == DCPK_V_STR &&
            dcpk_map_put(map, key->as.str, key->n, k, &existed, &found, &err) != DCPK_OK)
            return;
    }
}

/* The unused member of b with this key, or b->n. */
static size_t find_member(struct comparison *c, const struct dcpk_map *map, const bool *used,
                          const struct dcpk_value *key, const struct dcpk_value *b, size_t from,
                          int depth)
{
    uint64_t found;

    if (key->kind == DCPK_V_STR && dcpk_map_get(map, key->as.str, key->n, &found) && !used[found])
        return (size_t)found;
    for (size_t k = from; k < b->n; k++)
        if (!used[k] && same(c, key, key_of(b, k), depth))
            return k;
    return b->n;
}

/* Members in any order: first as far as the order agrees, then each one by search. */
static bool same_members(struct comparison *c, const struct dcpk_value *a,
                         const struct dcpk_value *b, int depth)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_map map = {0};
    size_t from = 0;
    bool *used = NULL;
    bool equal = true;

    while (from < a->n && same(c, key_of(a, from), key_of(b, from), depth)) {
        if (!same_member(c, a, from, b, from, depth))
            return false;
        from++;
    }
    if (from == a->n)
        return true;
    used = dcpk_alloc_array(b->n, sizeof *used, &err);
    if (used == NULL)
        return false;
    index_texts(&map, b, from);
    for (size_t i = from; equal && i < a->n; i++) {
        const size_t k = find_member(c, &map, used, key_of(a, i), b, from, depth);
        equal = k < b->n && same_member(c, a, i, b, k, depth);
        if (equal)
            used[k] = true;
    }
    dcpk_map_release(&map);
    dcpk_free(used);
    return equal;
}

static bool same_object(struct comparison *c, const struct dcpk_value_object *a,
                        const struct dcpk_value_object *b, int depth)
{
    if (strcmp(a->module, b->module) != 0 || strcmp(a->name, b->name) != 0 ||
        a->is_reduce != b->is_reduce || a->n_items != b->n_items || a->n_pairs != b->n_pairs ||
        (a->state == NULL) != (b->state == NULL))
        return false;
    if (!same(c, a->args, b->args, depth) || !same_items(c, a->items, b->items, a->n_items, depth))
        return false;
    for (size_t i = 0; i < a->n_pairs; i++)
        if (!same(c, a->pairs[i].key, b->pairs[i].key, depth) ||
            !same(c, a->pairs[i].value, b->pairs[i].value, depth))
            return false;
    return a->state == NULL || same(c, a->state, b->state, depth);
}

static bool same_container(struct comparison *c, const struct dcpk_value *a,
                           const struct dcpk_value *b, int depth)
{
    struct proven *slot = proven_slot(c, a, b);
    bool equal;

    if (slot->a == a && slot->b == b)
        return true;
    if (a->kind == DCPK_V_OBJECT)
        equal = same_object(c, a->as.object, b->as.object, depth);
    else if (a->n != b->n)
        equal = false;
    else if (a->kind == DCPK_V_DICT || a->kind == DCPK_V_SET)
        equal = same_members(c, a, b, depth);
    else
        equal = same_items(c, a->as.items, b->as.items, a->n, depth);
    if (equal)
        *slot = (struct proven){a, b};
    return equal;
}

static bool same(struct comparison *c, const struct dcpk_value *a, const struct dcpk_value *b,
                 int depth)
{
    if (a == b)
        return true;
    if (a->kind != b->kind || depth >= MAX_DEPTH || c->visits_left == 0)
        return false;
    c->visits_left--;
    switch (a->kind) {
    case DCPK_V_NONE:
        return true;
    case DCPK_V_BOOL:
        return a->as.b == b->as.b;
    case DCPK_V_INT:
        return a->as.i == b->as.i;
    case DCPK_V_FLOAT:
        return same_float(a->as.f, b->as.f);
    case DCPK_V_BIGINT:
    case DCPK_V_STR:
    case DCPK_V_BYTES:
        return a->n == b->n && same_bytes(a->as.str, b->as.str, a->n);
    case DCPK_V_TENSOR:
        return same_tensor(a->as.tensor, b->as.tensor);
    case DCPK_V_GLOBAL:
        return strcmp(a->as.global.module, b->as.global.module) == 0 &&
               strcmp(a->as.global.name, b->as.global.name) == 0;
    case DCPK_V_TUPLE:
    case DCPK_V_LIST:
    case DCPK_V_SET:
    case DCPK_V_DICT:
    case DCPK_V_OBJECT:
        return same_container(c, a, b, depth + 1);
    }
    return false;
}

bool dcpk_value_equal(const struct dcpk_value *a, const struct dcpk_value *b)
{
    struct comparison c = {.visits_left = MAX_VISITS};

    return same(&c, a, b, 0);
}

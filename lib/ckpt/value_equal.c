/* SPDX-License-Identifier: Apache-2.0 */
/* value_equal.c - comparing inert values: what both share is compared once, members in any order by
 * their hashes. */
#include <assert.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/cursor.h"
#include "lib/ckpt/value_hash.h"

#define MAX_DEPTH                                                                                  \
    1000            /* the pickle reader stops at 200; guards the C stack against hand-made trees */
#define N_KEPT 1024 /* a power of two */

struct proven {
    const struct dcpk_value *a, *b;
};

/* Two caches: a pair that is pushed out of the first is only compared again. */
struct comparison {
    struct proven proven[N_KEPT]; /* pairs of containers that are equal, by identity */
    struct dcpk_value_walk walk;
};

static bool equal_values(struct comparison *c, const struct dcpk_value *a,
                         const struct dcpk_value *b, int depth);

static size_t slot_of(uintptr_t key)
{
    return (size_t)(((uint64_t)key >> 3) * UINT64_C(0x9e3779b97f4a7c15) >> 54); /* of N_KEPT */
}

/* Members of a SET are its keys; they have no value. */
static const struct dcpk_value *member_key(const struct dcpk_value *v, size_t i)
{
    return v->kind == DCPK_V_DICT ? v->as.pairs[i].key : v->as.items[i];
}

/* Hash a member of a SET or DICT: of equal ones the same. Returns false where it has no hash. */
static bool hash_member(struct comparison *c, const struct dcpk_value *v, size_t i, uint64_t *hash)
{
    struct dcpk_error ignored = DCPK_ERROR_INIT;
    struct dcpk_hash key, value = {{0}};

    if (dcpk_value_hash_next(&c->walk, member_key(v, i), &key, &ignored) != DCPK_OK ||
        (v->kind == DCPK_V_DICT &&
         dcpk_value_hash_next(&c->walk, v->as.pairs[i].value, &value, &ignored) != DCPK_OK))
        return false;
    *hash = dcpk_load_u64le(key.digest) ^ dcpk_load_u64le(value.digest + 8);
    return true;
}

/* ---- members in any order ---- */

static bool same_member(struct comparison *c, const struct dcpk_value *a, size_t i,
                        const struct dcpk_value *b, size_t k, int depth)
{
    return equal_values(c, member_key(a, i), member_key(b, k), depth) &&
           (a->kind != DCPK_V_DICT ||
            equal_values(c, a->as.pairs[i].value, b->as.pairs[k].value, depth));
}

/* The members of one value from some place on, in chains by their hashes. */
struct members {
    uint64_t *hashes; /* of all from `from` on */
    uint32_t *next;   /* in the chain: 1 + that of the next one, 0: the last */
    uint32_t *first;  /* of each chain; a power of two of them */
    size_t from, n_chains;
};

static bool members_init(struct members *m, struct comparison *c, const struct dcpk_value *v)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    const size_t n = v->n - m->from;

    assert(n < UINT32_MAX); /* a pickle has no more bytes */
    for (m->n_chains = 1; m->n_chains < n;)
        m->n_chains *= 2;
    if ((m->hashes = dcpk_alloc_array(n, sizeof *m->hashes, &err)) == NULL ||
        (m->next = dcpk_alloc_array(n, sizeof *m->next, &err)) == NULL ||
        (m->first = dcpk_alloc_array(m->n_chains, sizeof *m->first, &err)) == NULL)
        return false;
    for (size_t i = n; i-- > 0;) {
        uint32_t *first;

        if (!hash_member(c, v, m->from + i, &m->hashes[i]))
            return false;
        first = &m->first[m->hashes[i] & (m->n_chains - 1)];
        m->next[i] = *first;
        *first = (uint32_t)i + 1;
    }
    return true;
}

/* Take member i of a out of those of b; false: it is not among them. */
static bool members_take(struct members *m, struct comparison *c, const struct dcpk_value *a,
                         size_t i, const struct dcpk_value *b, int depth)
{
    uint64_t hash;
    uint32_t *link;

    if (!hash_member(c, a, i, &hash))
        return false;
    link = &m->first[hash & (m->n_chains - 1)];
    for (; *link != 0; link = &m->next[*link - 1]) {
        const size_t k = *link - 1;

        if (m->hashes[k] == hash && same_member(c, a, i, b, m->from + k, depth)) {
            *link = m->next[k];
            return true;
        }
    }
    return false;
}

static void members_release(struct members *m)
{
    dcpk_free(m->hashes);
    dcpk_free(m->next);
    dcpk_free(m->first);
}

/*
 * First as far as the order agrees, then each one by its hash. Containers among the keys are not
 * tried in their order: one that is nearly the same would be walked for nothing, on each level.
 */
static bool same_members(struct comparison *c, const struct dcpk_value *a,
                         const struct dcpk_value *b, int depth)
{
    struct members m = {.from = 0};
    bool equal;

    while (m.from < a->n && !dcpk_value_is_container(member_key(a, m.from)) &&
           equal_values(c, member_key(a, m.from), member_key(b, m.from), depth)) {
        if (!same_member(c, a, m.from, b, m.from, depth))
            return false;
        m.from++;
    }
    if (m.from == a->n)
        return true;
    equal = members_init(&m, c, b);
    for (size_t i = m.from; equal && i < a->n; i++)
        equal = members_take(&m, c, a, i, b, depth);
    members_release(&m);
    return equal;
}

/* ---- comparing ---- */

static struct proven *proven_slot(struct comparison *c, const struct dcpk_value *a,
                                  const struct dcpk_value *b)
{
    return &c->proven[slot_of((uintptr_t)a ^ (uintptr_t)b << 21)];
}

static bool equal_bytes(const void *a, const void *b, size_t n)
{
    return n == 0 || memcmp(a, b, n) == 0;
}

static bool same_float(double a, double b)
{
    return (a != a && b != b) || memcmp(&a, &b, sizeof a) == 0;
}

static bool equal_tensors(const struct dcpk_value_tensor *a, const struct dcpk_value_tensor *b)
{
    return a->dtype == b->dtype && a->rank == b->rank && a->n_bytes == b->n_bytes &&
           equal_bytes(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape) &&
           equal_bytes(a->data, b->data, (size_t)a->n_bytes);
}

static bool same_items(struct comparison *c, const struct dcpk_value *const *a,
                       const struct dcpk_value *const *b, size_t n, int depth)
{
    for (size_t i = 0; i < n; i++)
        if (!equal_values(c, a[i], b[i], depth))
            return false;
    return true;
}

static bool equal_objects(struct comparison *c, const struct dcpk_value_object *a,
                          const struct dcpk_value_object *b, int depth)
{
    if (strcmp(a->module, b->module) != 0 || strcmp(a->name, b->name) != 0 ||
        a->is_reduce != b->is_reduce || a->n_items != b->n_items || a->n_pairs != b->n_pairs ||
        (a->state == NULL) != (b->state == NULL))
        return false;
    if (!equal_values(c, a->args, b->args, depth) ||
        !same_items(c, a->items, b->items, a->n_items, depth))
        return false;
    for (size_t i = 0; i < a->n_pairs; i++)
        if (!equal_values(c, a->pairs[i].key, b->pairs[i].key, depth) ||
            !equal_values(c, a->pairs[i].value, b->pairs[i].value, depth))
            return false;
    return a->state == NULL || equal_values(c, a->state, b->state, depth);
}

static bool same_container(struct comparison *c, const struct dcpk_value *a,
                           const struct dcpk_value *b, int depth)
{
    struct proven *slot = proven_slot(c, a, b);
    bool equal;

    if (slot->a == a && slot->b == b)
        return true;
    if (a->kind == DCPK_V_OBJECT)
        equal = equal_objects(c, a->as.object, b->as.object, depth);
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

static bool equal_values(struct comparison *c, const struct dcpk_value *a,
                         const struct dcpk_value *b, int depth)
{
    if (a == b)
        return true;
    if (a->kind != b->kind || depth >= MAX_DEPTH)
        return false;
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
        return a->n == b->n && equal_bytes(a->as.str, b->as.str, a->n);
    case DCPK_V_TENSOR:
        return equal_tensors(a->as.tensor, b->as.tensor);
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
    static const struct dcpk_value_hashing whole = {.elements = NULL};
    struct comparison c;
    bool equal;

    if (a == b || a->kind != b->kind || !dcpk_value_is_container(a)) /* needs no cache */
        return equal_values(&c, a, b, 0);
    memset(&c, 0, sizeof c);
    c.walk.options = &whole;
    equal = equal_values(&c, a, b, 0);
    dcpk_free(c.walk.kept);
    return equal;
}

/* ---- of options ---- */

#define MAX_NESTED 16 /* of lists that are compared item by item */

static bool is_false(const struct dcpk_value *value)
{
    return dcpk_value_is_none(value) || (value->kind == DCPK_V_BOOL && !value->as.b);
}

static bool same_at(const struct dcpk_value *a, const struct dcpk_value *b, int depth)
{
    double x, y;

    if (is_false(a) || is_false(b))
        return is_false(a) && is_false(b);
    if (dcpk_value_as_float(a, &x) && dcpk_value_as_float(b, &y))
        return x == y;
    if (depth == MAX_NESTED || !dcpk_value_is_list(a) || !dcpk_value_is_list(b))
        return dcpk_value_equal(a, b);
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (!same_at(a->as.items[i], b->as.items[i], depth + 1))
            return false;
    return true;
}

bool dcpk_value_same(const struct dcpk_value *a, const struct dcpk_value *b)
{
    return same_at(a, b, 0);
}

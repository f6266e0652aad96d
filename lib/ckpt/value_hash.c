/* SPDX-License-Identifier: Apache-2.0 */
/* value_hash.c - forms of values and their hashes. */
#include "lib/ckpt/value_hash.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/cursor.h"

#define MAX_DEPTH  1000 /* as value.c: the pickle reader stops at 200 */
#define HASH_BYTES sizeof(struct dcpk_hash)
/* A container that was hashed is remembered from the so many-th on: most objects have fewer, and
 * nothing to share that costs. */
#define FIRST_KEPT 64
#define N_KEPT     1024

struct dcpk_kept_hash {
    const struct dcpk_value *value;
    struct dcpk_hash hash;
};

static dcpk_status hash_value(struct dcpk_value_walk *w, const struct dcpk_value *v, int depth,
                              struct dcpk_hash *hash, struct dcpk_error *err);

/* A form begins with a letter, and is hashed as it is made. */
static void form_begin(struct dcpk_hasher *form, char letter)
{
    dcpk_hasher_begin(form);
    dcpk_hasher_update(form, &letter, 1);
}

/* A letter and a run of bytes. */
static void hash_run(char letter, const void *data, size_t n, struct dcpk_hash *hash)
{
    struct dcpk_hasher form;

    form_begin(&form, letter);
    dcpk_hasher_update(&form, data, n);
    dcpk_hasher_digest(&form, hash);
}

/* Two's complement, little-endian, without the bytes at its end that only repeat the sign. */
static void hash_whole(const uint8_t *data, size_t n, struct dcpk_hash *hash)
{
    while (n > 1 && ((data[n - 1] == 0 && data[n - 2] < 0x80) ||
                     (data[n - 1] == 0xff && data[n - 2] >= 0x80)))
        n--;
    hash_run('i', data, n, hash);
}

static void hash_int(int64_t i, struct dcpk_hash *hash)
{
    uint8_t data[8];

    dcpk_store_u64le(data, (uint64_t)i);
    hash_whole(data, sizeof data, hash);
}

static void hash_bigint(const struct dcpk_value *v, struct dcpk_hash *hash)
{
    if (v->n == 0)
        hash_int(0, hash);
    else
        hash_whole((const uint8_t *)v->as.str, v->n, hash);
}

static void hash_float(double f, struct dcpk_hash *hash)
{
    uint64_t bits;
    uint8_t data[8];

    memcpy(&bits, &f, sizeof bits);
    dcpk_store_u64le(data, f != f ? UINT64_C(0x7ff8000000000000) : bits);
    hash_run('d', data, sizeof data, hash);
}

static void hash_text(const char *text, struct dcpk_hash *hash)
{
    hash_run('s', text, strlen(text), hash);
}

/* Packages that moved: the same class, whichever release pickled it. */
static void hash_module(const char *module, struct dcpk_hash *hash)
{
    static const char now[] = "numpy._core", before[] = "numpy.core";
    const size_t n = sizeof now - 1;
    struct dcpk_hasher form;

    form_begin(&form, 's');
    if (strncmp(module, now, n) == 0 && (module[n] == '\0' || module[n] == '.')) {
        dcpk_hasher_update(&form, before, sizeof before - 1);
        module += n;
    }
    if (strcmp(module, "pathlib._local") == 0)
        module = "pathlib";
    dcpk_hasher_update(&form, module, strlen(module));
    dcpk_hasher_digest(&form, hash);
}

/* Values in a row; the letter names their kind. */
struct sequence {
    char letter;
    const struct dcpk_value *const *items;
    size_t n;
};

static dcpk_status hash_sequence(struct dcpk_value_walk *w, const struct sequence *values,
                                 int depth, struct dcpk_hash *hash, struct dcpk_error *err)
{
    struct dcpk_hasher form;
    struct dcpk_hash item;

    form_begin(&form, values->letter);
    for (size_t i = 0; i < values->n; i++) {
        if (hash_value(w, values->items[i], depth, &item, err) != DCPK_OK)
            return err->status;
        dcpk_hasher_update(&form, &item, HASH_BYTES);
    }
    dcpk_hasher_digest(&form, hash);
    return DCPK_OK;
}

static int compare_members(const void *a, const void *b)
{
    return memcmp(a, b, HASH_BYTES);
}

static int compare_pairs(const void *a, const void *b)
{
    return memcmp(a, b, 2 * HASH_BYTES);
}

/* The members of a set, or the pairs of a dict, in the order of their hashes. */
static dcpk_status hash_members(struct dcpk_value_walk *w, const struct dcpk_value *v, int depth,
                                struct dcpk_hash *hash, struct dcpk_error *err)
{
    const bool is_dict = v->kind == DCPK_V_DICT;
    const size_t n_bytes = is_dict ? 2 * HASH_BYTES : HASH_BYTES;
    struct dcpk_hash *all = dcpk_alloc_array(v->n, n_bytes, err), *at = all;
    struct dcpk_hasher form;
    dcpk_status st = DCPK_OK;

    if (all == NULL)
        return err->status;
    for (size_t i = 0; i < v->n && st == DCPK_OK; i++) {
        st = hash_value(w, is_dict ? v->as.pairs[i].key : v->as.items[i], depth, at++, err);
        if (is_dict && st == DCPK_OK)
            st = hash_value(w, v->as.pairs[i].value, depth, at++, err);
    }
    if (st == DCPK_OK) {
        qsort(all, v->n, n_bytes, is_dict ? compare_pairs : compare_members);
        form_begin(&form, is_dict ? 'm' : 'e');
        dcpk_hasher_update(&form, all, v->n * n_bytes);
        dcpk_hasher_digest(&form, hash);
    }
    dcpk_free(all);
    return st;
}

static dcpk_status hash_tensor(struct dcpk_value_walk *w, const struct dcpk_value_tensor *t,
                               struct dcpk_hash *hash, struct dcpk_error *err)
{
    struct dcpk_hasher form;
    struct dcpk_hash part[3];

    form_begin(&form, 't');
    for (int a = 0; a < t->rank; a++) {
        hash_int(t->shape[a], &part[0]);
        dcpk_hasher_update(&form, &part[0], HASH_BYTES);
    }
    dcpk_hasher_digest(&form, &part[1]);
    hash_text(dcpk_dtype_name(t->dtype), &part[0]);
    if (w->options->elements == NULL)
        dcpk_hash_bytes(t->data, (size_t)t->n_bytes, &part[2]);
    else if (w->options->elements(w->options->context, t, &part[2], err) != DCPK_OK)
        return err->status;
    hash_run('x', part, sizeof part, hash);
    return DCPK_OK;
}

static void hash_global(const char *module, const char *name, struct dcpk_hash *hash)
{
    struct dcpk_hash part[2];

    hash_module(module, &part[0]);
    hash_text(name, &part[1]);
    hash_run('g', part, sizeof part, hash);
}

/* The list of an object's (key, value) tuples, in their order: what it does with them is its
 * own. */
static dcpk_status hash_pairs(struct dcpk_value_walk *w, const struct dcpk_value_object *o,
                              int depth, struct dcpk_hash *hash, struct dcpk_error *err)
{
    struct dcpk_hasher form;
    struct dcpk_hash pair;

    form_begin(&form, 'l');
    for (size_t i = 0; i < o->n_pairs; i++) {
        const struct dcpk_value *both[] = {o->pairs[i].key, o->pairs[i].value};
        const struct sequence tuple = {'t', both, 2};

        if (hash_sequence(w, &tuple, depth, &pair, err) != DCPK_OK)
            return err->status;
        dcpk_hasher_update(&form, &pair, HASH_BYTES);
    }
    dcpk_hasher_digest(&form, hash);
    return DCPK_OK;
}

/* bytearray(b"...") of protocols 3 and 4, bytearray("...", "latin-1") of those before: the bytes in
 * the form, or false for a call of another kind. */
static bool put_bytearray(const struct dcpk_value_object *o, struct dcpk_hasher *form)
{
    const struct dcpk_value *text = dcpk_value_at(o->args, 0);
    const char *codec = dcpk_value_as_str(dcpk_value_at(o->args, 1));

    if (strcmp(o->module, "builtins") != 0 || strcmp(o->name, "bytearray") != 0 ||
        o->state != NULL || o->n_items > 0 || o->n_pairs > 0)
        return false;
    form_begin(form, 'a');
    if (text == NULL || (text->kind == DCPK_V_BYTES && o->args->n == 1)) {
        if (text != NULL)
            dcpk_hasher_update(form, text->as.str, text->n);
        return true;
    }
    if (text->kind != DCPK_V_STR || codec == NULL || strcmp(codec, "latin-1") != 0)
        return false;
    for (size_t i = 0; i < text->n; i++) {
        uint8_t c = (uint8_t)text->as.str[i];

        if (c >= 0x80 && (c > 0xc3 || i + 1 == text->n))
            return false;
        if (c >= 0x80)
            c = (uint8_t)((c & 3) << 6 | (text->as.str[++i] & 0x3f));
        dcpk_hasher_update(form, &c, 1);
    }
    return true;
}

static dcpk_status hash_object(struct dcpk_value_walk *w, const struct dcpk_value_object *o,
                               int depth, struct dcpk_hash *hash, struct dcpk_error *err)
{
    const struct sequence state = {'l', &o->state, o->state != NULL};
    const struct sequence items = {'l', o->items, o->n_items};
    struct dcpk_hasher bytes;
    struct dcpk_hash part[6];

    if (put_bytearray(o, &bytes)) {
        dcpk_hasher_digest(&bytes, hash);
        return DCPK_OK;
    }
    hash_module(o->module, &part[0]);
    hash_text(o->name, &part[1]);
    if (hash_value(w, o->args, depth, &part[2], err) ||
        hash_sequence(w, &state, depth, &part[3], err) ||
        hash_sequence(w, &items, depth, &part[4], err) || hash_pairs(w, o, depth, &part[5], err))
        return err->status;
    hash_run(o->is_reduce ? 'c' : 'o', part, sizeof part, hash);
    return DCPK_OK;
}

static dcpk_status hash_container(struct dcpk_value_walk *w, const struct dcpk_value *v, int depth,
                                  struct dcpk_hash *hash, struct dcpk_error *err)
{
    const struct sequence values = {v->kind == DCPK_V_TUPLE ? 't' : 'l', v->as.items, v->n};
    struct dcpk_kept_hash *kept = NULL;
    dcpk_status st;

    if (w->kept == NULL && ++w->n_containers > FIRST_KEPT) {
        w->kept = dcpk_alloc_array(N_KEPT, sizeof *w->kept, err);
        if (w->kept == NULL)
            return err->status;
    }
    if (w->kept != NULL) {
        kept = &w->kept[((uint64_t)(uintptr_t)v >> 3) * UINT64_C(0x9e3779b97f4a7c15) >> 54];
        if (kept->value == v) {
            *hash = kept->hash;
            return DCPK_OK;
        }
    }
    if (v->kind == DCPK_V_OBJECT)
        st = hash_object(w, v->as.object, depth, hash, err);
    else if (v->kind == DCPK_V_DICT || v->kind == DCPK_V_SET)
        st = hash_members(w, v, depth, hash, err);
    else
        st = hash_sequence(w, &values, depth, hash, err);
    if (st == DCPK_OK && kept != NULL)
        *kept = (struct dcpk_kept_hash){v, *hash};
    return st;
}

static dcpk_status hash_value(struct dcpk_value_walk *w, const struct dcpk_value *v, int depth,
                              struct dcpk_hash *hash, struct dcpk_error *err)
{
    if (depth > MAX_DEPTH)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "the value is nested too deep to be hashed");
    switch (v->kind) {
    case DCPK_V_NONE:
        hash_run('N', NULL, 0, hash);
        break;
    case DCPK_V_BOOL:
        hash_run(v->as.b ? 'T' : 'F', NULL, 0, hash);
        break;
    case DCPK_V_INT:
        hash_int(v->as.i, hash);
        break;
    case DCPK_V_BIGINT:
        hash_bigint(v, hash);
        break;
    case DCPK_V_FLOAT:
        hash_float(v->as.f, hash);
        break;
    case DCPK_V_STR:
        hash_run('s', v->as.str, v->n, hash);
        break;
    case DCPK_V_BYTES:
        hash_run('b', v->as.str, v->n, hash);
        break;
    case DCPK_V_GLOBAL:
        hash_global(v->as.global.module, v->as.global.name, hash);
        break;
    case DCPK_V_TENSOR:
        return hash_tensor(w, v->as.tensor, hash, err);
    case DCPK_V_TUPLE:
    case DCPK_V_LIST:
    case DCPK_V_SET:
    case DCPK_V_DICT:
    case DCPK_V_OBJECT:
        return hash_container(w, v, depth + 1, hash, err);
    }
    return DCPK_OK;
}

dcpk_status dcpk_value_hash_next(struct dcpk_value_walk *walk, const struct dcpk_value *value,
                                 struct dcpk_hash *hash, struct dcpk_error *err)
{
    return hash_value(walk, value, 0, hash, err);
}

dcpk_status dcpk_value_hash(const struct dcpk_value *value,
                            const struct dcpk_value_hashing *hashing, struct dcpk_hash *hash,
                            struct dcpk_error *err)
{
    struct dcpk_value_walk walk = {.options = hashing};
    const dcpk_status st = dcpk_value_hash_next(&walk, value, hash, err);

    dcpk_free(walk.kept);
    return st;
}

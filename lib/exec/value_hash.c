/* SPDX-License-Identifier: Apache-2.0 */
/* value_hash.c - forms of values and their hashes. */
#include "lib/exec/value_hash.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/bytes.h"
#include "lib/base/digest.h"
#include "lib/tensor/box.h"

#define MAX_DEPTH  1000 /* as value.c: the pickle reader stops at 200 */
#define HASH_BYTES sizeof(struct dcpk_hash)
/* A container that was hashed is remembered from the so many-th on: most objects have fewer, and
 * nothing to share that costs. */
#define FIRST_KEPT 64
#define N_KEPT     1024

struct kept {
    const struct dcpk_value *value;
    struct dcpk_hash hash;
};

struct walk {
    const struct dcpk_value_hashing *options;
    uint64_t n_containers;
    struct kept *kept; /* N_KEPT places by address; NULL: none yet */
};

static dcpk_status hash_value(struct walk *w, const struct dcpk_value *v, int depth,
                              struct dcpk_hash *hash, struct dcpk_error *err);

/* The hash of a form that is put together; releases it. */
static dcpk_status hash_form(struct dcpk_bytes *form, struct dcpk_hash *hash,
                             struct dcpk_error *err)
{
    const dcpk_status st = dcpk_bytes_status(form, err);

    if (st == DCPK_OK)
        dcpk_hash_bytes(form->data, form->n_bytes, hash);
    dcpk_bytes_release(form);
    return st;
}

/* A letter and a run of bytes, small ones without an allocation. */
static dcpk_status hash_run(char letter, const void *data, size_t n, struct dcpk_hash *hash,
                            struct dcpk_error *err)
{
    struct dcpk_bytes form = {0};
    uint8_t small[64];

    if (n < sizeof small) {
        small[0] = (uint8_t)letter;
        if (n > 0)
            memcpy(small + 1, data, n);
        dcpk_hash_bytes(small, n + 1, hash);
        return DCPK_OK;
    }
    dcpk_bytes_u8(&form, (uint8_t)letter);
    dcpk_bytes_put(&form, data, n);
    return hash_form(&form, hash, err);
}

/* Two's complement, little-endian, without the bytes at its end that only repeat the sign. */
static dcpk_status hash_whole(const uint8_t *data, size_t n, struct dcpk_hash *hash,
                              struct dcpk_error *err)
{
    while (n > 1 && ((data[n - 1] == 0 && data[n - 2] < 0x80) ||
                     (data[n - 1] == 0xff && data[n - 2] >= 0x80)))
        n--;
    return hash_run('i', data, n, hash, err);
}

static dcpk_status hash_int(int64_t i, struct dcpk_hash *hash, struct dcpk_error *err)
{
    uint8_t data[8];

    dcpk_store_u64le(data, (uint64_t)i);
    return hash_whole(data, sizeof data, hash, err);
}

static dcpk_status hash_bigint(const struct dcpk_value *v, struct dcpk_hash *hash,
                               struct dcpk_error *err)
{
    if (v->n == 0)
        return hash_int(0, hash, err);
    return hash_whole((const uint8_t *)v->as.str, v->n, hash, err);
}

static dcpk_status hash_float(double f, struct dcpk_hash *hash, struct dcpk_error *err)
{
    uint64_t bits;
    uint8_t data[8];

    memcpy(&bits, &f, sizeof bits);
    dcpk_store_u64le(data, f != f ? UINT64_C(0x7ff8000000000000) : bits);
    return hash_run('d', data, sizeof data, hash, err);
}

static dcpk_status hash_text(const char *text, struct dcpk_hash *hash, struct dcpk_error *err)
{
    return hash_run('s', text, strlen(text), hash, err);
}

/* Packages that moved: the same class, whichever release pickled it. */
static dcpk_status hash_module(const char *module, struct dcpk_hash *hash, struct dcpk_error *err)
{
    static const char now[] = "numpy._core", before[] = "numpy.core";
    struct dcpk_bytes text = {0};
    dcpk_status st;

    if (strcmp(module, "pathlib._local") == 0)
        return hash_text("pathlib", hash, err);
    if (strncmp(module, now, sizeof now - 1) != 0 ||
        (module[sizeof now - 1] != '\0' && module[sizeof now - 1] != '.'))
        return hash_text(module, hash, err);
    dcpk_bytes_text(&text, before);
    dcpk_bytes_text(&text, module + sizeof now - 1);
    st = dcpk_bytes_status(&text, err);
    if (st == DCPK_OK)
        st = hash_run('s', text.data, text.n_bytes, hash, err);
    dcpk_bytes_release(&text);
    return st;
}

static void put_hash(struct dcpk_bytes *form, const struct dcpk_hash *hash)
{
    dcpk_bytes_put(form, hash, sizeof *hash);
}

static dcpk_status form_put_value(struct walk *w, struct dcpk_bytes *form,
                                  const struct dcpk_value *v, int depth, struct dcpk_error *err)
{
    struct dcpk_hash hash;

    if (hash_value(w, v, depth, &hash, err) != DCPK_OK)
        return err->status;
    put_hash(form, &hash);
    return DCPK_OK;
}

/* Values in a row; the letter names their kind. */
struct sequence {
    char letter;
    const struct dcpk_value *const *items;
    size_t n;
};

static dcpk_status hash_sequence(struct walk *w, const struct sequence *values, int depth,
                                 struct dcpk_hash *hash, struct dcpk_error *err)
{
    struct dcpk_bytes form = {0};
    dcpk_status st = DCPK_OK;

    dcpk_bytes_u8(&form, (uint8_t)values->letter);
    for (size_t i = 0; i < values->n && st == DCPK_OK; i++)
        st = form_put_value(w, &form, values->items[i], depth, err);
    if (st == DCPK_OK)
        return hash_form(&form, hash, err);
    dcpk_bytes_release(&form);
    return st;
}

static int compare_members(const void *a, const void *b)
{
    return memcmp(a, b, HASH_BYTES);
}

static int compare_pairs(const void *a, const void *b)
{
    return memcmp(a, b, 2 * HASH_BYTES);
}

static dcpk_status hash_set(struct walk *w, const struct dcpk_value *v, int depth,
                            struct dcpk_hash *hash, struct dcpk_error *err)
{
    struct dcpk_bytes form = {0};
    dcpk_status st = DCPK_OK;

    dcpk_bytes_u8(&form, 'e');
    for (size_t i = 0; i < v->n && st == DCPK_OK; i++)
        st = form_put_value(w, &form, v->as.items[i], depth, err);
    if (st == DCPK_OK)
        st = dcpk_bytes_status(&form, err);
    if (st == DCPK_OK) {
        qsort(form.data + 1, v->n, HASH_BYTES, compare_members);
        return hash_form(&form, hash, err);
    }
    dcpk_bytes_release(&form);
    return st;
}

static dcpk_status hash_dict(struct walk *w, const struct dcpk_value *v, int depth,
                             struct dcpk_hash *hash, struct dcpk_error *err)
{
    struct dcpk_bytes form = {0};
    dcpk_status st = DCPK_OK;

    dcpk_bytes_u8(&form, 'm');
    for (size_t i = 0; i < v->n && st == DCPK_OK; i++) {
        st = form_put_value(w, &form, v->as.pairs[i].key, depth, err);
        if (st == DCPK_OK)
            st = form_put_value(w, &form, v->as.pairs[i].value, depth, err);
    }
    if (st == DCPK_OK)
        st = dcpk_bytes_status(&form, err);
    if (st == DCPK_OK) {
        qsort(form.data + 1, v->n, 2 * HASH_BYTES, compare_pairs);
        return hash_form(&form, hash, err);
    }
    dcpk_bytes_release(&form);
    return st;
}

static dcpk_status hash_tensor(struct walk *w, const struct dcpk_value_tensor *t,
                               struct dcpk_hash *hash, struct dcpk_error *err)
{
    uint8_t sizes[1 + DCPK_MAX_RANK * HASH_BYTES], form[1 + 3 * HASH_BYTES] = {'x'};
    struct dcpk_hash part[3];

    assert(t->rank <= DCPK_MAX_RANK);
    sizes[0] = 't';
    for (int a = 0; a < t->rank; a++) {
        if (hash_int(t->shape[a], &part[0], err) != DCPK_OK)
            return err->status;
        memcpy(sizes + 1 + (size_t)a * HASH_BYTES, &part[0], HASH_BYTES);
    }
    if (hash_text(dcpk_dtype_name(t->dtype), &part[0], err) != DCPK_OK)
        return err->status;
    dcpk_hash_bytes(sizes, 1 + (size_t)t->rank * HASH_BYTES, &part[1]);
    if (w->options->elements == NULL)
        dcpk_hash_bytes(t->data, (size_t)t->n_bytes, &part[2]);
    else if (w->options->elements(w->options->context, t, &part[2], err) != DCPK_OK)
        return err->status;
    memcpy(form + 1, part, sizeof part);
    dcpk_hash_bytes(form, sizeof form, hash);
    return DCPK_OK;
}

static dcpk_status hash_global(const char *module, const char *name, struct dcpk_hash *hash,
                               struct dcpk_error *err)
{
    struct dcpk_bytes form = {0};
    struct dcpk_hash part[2];

    if (hash_module(module, &part[0], err) || hash_text(name, &part[1], err))
        return err->status;
    dcpk_bytes_u8(&form, 'g');
    dcpk_bytes_put(&form, part, sizeof part);
    return hash_form(&form, hash, err);
}

/* The list of an object's (key, value) tuples, in their order: what it does with them is its
 * own. */
static dcpk_status hash_pairs(struct walk *w, const struct dcpk_value_object *o, int depth,
                              struct dcpk_hash *hash, struct dcpk_error *err)
{
    struct dcpk_bytes form = {0};
    dcpk_status st = DCPK_OK;

    dcpk_bytes_u8(&form, 'l');
    for (size_t i = 0; i < o->n_pairs && st == DCPK_OK; i++) {
        const struct dcpk_value *both[] = {o->pairs[i].key, o->pairs[i].value};
        const struct sequence tuple = {'t', both, 2};
        struct dcpk_hash pair;

        st = hash_sequence(w, &tuple, depth, &pair, err);
        if (st == DCPK_OK)
            put_hash(&form, &pair);
    }
    if (st == DCPK_OK)
        return hash_form(&form, hash, err);
    dcpk_bytes_release(&form);
    return st;
}

/* bytearray(b"...") of protocols 3 and 4, bytearray("...", "latin-1") of those before: the bytes in
 * `form`, or false for a call of another kind. */
static bool put_bytearray(const struct dcpk_value_object *o, struct dcpk_bytes *form)
{
    const struct dcpk_value *text = dcpk_value_at(o->args, 0);
    const char *codec = dcpk_value_as_str(dcpk_value_at(o->args, 1));

    if (strcmp(o->module, "builtins") != 0 || strcmp(o->name, "bytearray") != 0 ||
        o->state != NULL || o->n_items > 0 || o->n_pairs > 0)
        return false;
    dcpk_bytes_u8(form, 'a');
    if (text == NULL || (text->kind == DCPK_V_BYTES && o->args->n == 1)) {
        if (text != NULL)
            dcpk_bytes_put(form, text->as.str, text->n);
        return true;
    }
    if (text->kind != DCPK_V_STR || codec == NULL || strcmp(codec, "latin-1") != 0)
        return false;
    for (size_t i = 0; i < text->n; i++) {
        const uint8_t c = (uint8_t)text->as.str[i];

        if (c >= 0x80 && (c > 0xc3 || i + 1 == text->n))
            return false;
        if (c < 0x80)
            dcpk_bytes_u8(form, c);
        else
            dcpk_bytes_u8(form, (uint8_t)((c & 3) << 6 | (text->as.str[++i] & 0x3f)));
    }
    return true;
}

static dcpk_status hash_object(struct walk *w, const struct dcpk_value_object *o, int depth,
                               struct dcpk_hash *hash, struct dcpk_error *err)
{
    const struct sequence state = {'l', &o->state, o->state != NULL};
    const struct sequence items = {'l', o->items, o->n_items};
    struct dcpk_bytes form = {0};
    struct dcpk_hash part[6];

    if (put_bytearray(o, &form))
        return hash_form(&form, hash, err);
    form.n_bytes = 0;
    if (hash_module(o->module, &part[0], err) || hash_text(o->name, &part[1], err) ||
        hash_value(w, o->args, depth, &part[2], err) ||
        hash_sequence(w, &state, depth, &part[3], err) ||
        hash_sequence(w, &items, depth, &part[4], err) || hash_pairs(w, o, depth, &part[5], err)) {
        dcpk_bytes_release(&form);
        return err->status;
    }
    dcpk_bytes_u8(&form, o->is_reduce ? 'c' : 'o');
    dcpk_bytes_put(&form, part, sizeof part);
    return hash_form(&form, hash, err);
}

static dcpk_status hash_container(struct walk *w, const struct dcpk_value *v, int depth,
                                  struct dcpk_hash *hash, struct dcpk_error *err)
{
    const struct sequence values = {v->kind == DCPK_V_TUPLE ? 't' : 'l', v->as.items, v->n};
    struct kept *kept = NULL;
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
    else if (v->kind == DCPK_V_DICT)
        st = hash_dict(w, v, depth, hash, err);
    else if (v->kind == DCPK_V_SET)
        st = hash_set(w, v, depth, hash, err);
    else
        st = hash_sequence(w, &values, depth, hash, err);
    if (st == DCPK_OK && kept != NULL)
        *kept = (struct kept){v, *hash};
    return st;
}

static dcpk_status hash_value(struct walk *w, const struct dcpk_value *v, int depth,
                              struct dcpk_hash *hash, struct dcpk_error *err)
{
    if (depth > MAX_DEPTH)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "the value is nested too deep to be hashed");
    switch (v->kind) {
    case DCPK_V_NONE:
        return hash_run('N', NULL, 0, hash, err);
    case DCPK_V_BOOL:
        return hash_run(v->as.b ? 'T' : 'F', NULL, 0, hash, err);
    case DCPK_V_INT:
        return hash_int(v->as.i, hash, err);
    case DCPK_V_BIGINT:
        return hash_bigint(v, hash, err);
    case DCPK_V_FLOAT:
        return hash_float(v->as.f, hash, err);
    case DCPK_V_STR:
        return hash_run('s', v->as.str, v->n, hash, err);
    case DCPK_V_BYTES:
        return hash_run('b', v->as.str, v->n, hash, err);
    case DCPK_V_TENSOR:
        return hash_tensor(w, v->as.tensor, hash, err);
    case DCPK_V_GLOBAL:
        return hash_global(v->as.global.module, v->as.global.name, hash, err);
    case DCPK_V_TUPLE:
    case DCPK_V_LIST:
    case DCPK_V_SET:
    case DCPK_V_DICT:
    case DCPK_V_OBJECT:
        break;
    }
    return hash_container(w, v, depth + 1, hash, err);
}

dcpk_status dcpk_value_hash(const struct dcpk_value *value,
                            const struct dcpk_value_hashing *hashing, struct dcpk_hash *hash,
                            struct dcpk_error *err)
{
    struct walk w = {.options = hashing};
    struct dcpk_hash made;
    const dcpk_status st = hash_value(&w, value, 0, &made, err);

    dcpk_free(w.kept);
    if (st == DCPK_OK)
        *hash = made;
    return st;
}

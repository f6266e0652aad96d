/* SPDX-License-Identifier: Apache-2.0 */
/* hash_list.c - hashes of tensors: made, printed, read, compared. */
#include "lib/exec/hash_list.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/checked.h"
#include "lib/base/hex.h"

void dcpk_hash_list_release(struct dcpk_hash_list *list)
{
    dcpk_arena_free(list->arena);
    *list = (struct dcpk_hash_list){0};
}

static int compare_keys(const void *left, const void *right)
{
    const struct dcpk_hashed *a = left, *b = right;

    return strcmp(a->key, b->key);
}

static dcpk_status begin(struct dcpk_hash_list *list, size_t n, struct dcpk_error *err)
{
    list->arena = dcpk_arena_new(0, err);
    if (list->arena == NULL)
        return err->status;
    list->tensors = dcpk_arena_array(list->arena, n, sizeof *list->tensors, err);
    return list->tensors == NULL ? err->status : DCPK_OK;
}

static dcpk_status count_bytes(struct dcpk_hashed *tensor, struct dcpk_error *err)
{
    int64_t n_elems = 0;
    dcpk_status st = dcpk_shape_count(tensor->shape, tensor->rank, &n_elems, err);

    if (st == DCPK_OK &&
        !dcpk_mul_u64((uint64_t)n_elems, dcpk_dtype_bytes(tensor->dtype), &tensor->n_bytes))
        st = dcpk_fail(err, DCPK_ERANGE, "more than 2^64 bytes");
    if (st != DCPK_OK)
        dcpk_context(err, "'%s'", tensor->key);
    return st;
}

dcpk_status dcpk_hash_list_make(struct dcpk_exec *exec, const struct dcpk_checkpoint *ckpt,
                                struct dcpk_hash_list *list, struct dcpk_error *err)
{
    const size_t n = ckpt->n_tensors;
    struct dcpk_view *views;
    struct dcpk_hash *hashes;
    dcpk_status st = begin(list, n, err);

    if (st != DCPK_OK)
        return st;
    views = dcpk_arena_array(list->arena, n, sizeof *views, err);
    hashes = dcpk_arena_array(list->arena, n, sizeof *hashes, err);
    if (views == NULL || hashes == NULL)
        return err->status;
    for (size_t i = 0; i < n && st == DCPK_OK; i++)
        st = dcpk_view_stored(ckpt, (uint32_t)i, list->arena, &views[i], err);
    if (st == DCPK_OK)
        st = dcpk_exec_hash(exec, views, n, hashes, NULL, err);
    if (st != DCPK_OK)
        return st;
    for (size_t i = 0; i < n && st == DCPK_OK; i++) {
        const struct dcpk_tensor *t = &ckpt->tensors[i];

        list->tensors[i] = (struct dcpk_hashed){t->key, t->dtype, t->rank, t->shape, 0, hashes[i]};
        st = count_bytes(&list->tensors[i], err);
    }
    list->n = n;
    qsort(list->tensors, n, sizeof *list->tensors, compare_keys);
    return st;
}

const char *dcpk_hash_text(const struct dcpk_hash *hash, char text[DCPK_HASH_TEXT_BYTES])
{
    return dcpk_hex_put(hash->digest, sizeof hash->digest, text);
}

void dcpk_hashed_put(const struct dcpk_hashed *tensor, struct dcpk_json_out *j)
{
    char text[DCPK_HASH_TEXT_BYTES];

    dcpk_json_begin_object(j);
    dcpk_json_add_string(j, "dtype", dcpk_dtype_name(tensor->dtype));
    dcpk_json_add_uint(j, "n_bytes", tensor->n_bytes);
    dcpk_json_add_ints(j, "shape", tensor->shape, tensor->rank);
    dcpk_json_add_string(j, "xxh3_128", dcpk_hash_text(&tensor->hash, text));
    dcpk_json_end_object(j);
}

static void put_totals(struct dcpk_json_out *j, const struct dcpk_totals *totals)
{
    dcpk_json_put_key(j, "totals");
    dcpk_json_begin_object(j);
    dcpk_json_add_uint(j, "n_alias_tensors", totals->n_alias_tensors);
    dcpk_json_add_uint(j, "n_tensors", totals->n_tensors);
    dcpk_json_add_uint(j, "tensor_bytes", totals->tensor_bytes); /* aliases once */
    dcpk_json_end_object(j);
}

dcpk_status dcpk_hash_list_print(const struct dcpk_hash_list *list,
                                 const struct dcpk_checkpoint *ckpt, struct dcpk_bytes *text,
                                 struct dcpk_error *err)
{
    struct dcpk_summary *summary = NULL;
    struct dcpk_json_out j;
    dcpk_status st = dcpk_summary_new(ckpt, NULL, &summary, err);

    if (st != DCPK_OK)
        return st;
    dcpk_json_out_init(&j, text, 2);
    dcpk_json_begin_object(&j);
    dcpk_json_add_string(&j, "format", ckpt->format->name);
    dcpk_json_put_key(&j, "tensors");
    dcpk_json_begin_object(&j);
    for (size_t i = 0; i < list->n; i++) {
        dcpk_json_put_key(&j, list->tensors[i].key);
        dcpk_hashed_put(&list->tensors[i], &j);
    }
    dcpk_json_end_object(&j);
    put_totals(&j, &summary->totals);
    dcpk_json_add_uint(&j, "version", 1);
    dcpk_json_end_object(&j);
    dcpk_summary_free(summary);
    return dcpk_bytes_status(text, err);
}

static dcpk_status take_shape(struct dcpk_hash_list *list, const struct dcpk_json *node,
                              struct dcpk_hashed *tensor, struct dcpk_error *err)
{
    int64_t shape[DCPK_MAX_RANK], *copy;
    bool is_shape = node != NULL && dcpk_json_kind(node) == DCPK_JSON_ARRAY;

    for (const struct dcpk_json *n = is_shape ? dcpk_json_first(node) : NULL; n != NULL && is_shape;
         n = dcpk_json_next(n))
        is_shape = tensor->rank < DCPK_MAX_RANK && dcpk_json_int(n, &shape[tensor->rank]) &&
                   shape[tensor->rank++] >= 0;
    if (!is_shape)
        return dcpk_fail(err, DCPK_EFORMAT, "'%s' has no shape", tensor->key);
    copy = dcpk_arena_array(list->arena, (size_t)tensor->rank, sizeof *copy, err);
    if (copy == NULL)
        return err->status;
    memcpy(copy, shape, (size_t)tensor->rank * sizeof *copy);
    tensor->shape = copy;
    return count_bytes(tensor, err);
}

static dcpk_status take_tensor(struct dcpk_hash_list *list, const struct dcpk_json *node,
                               struct dcpk_error *err)
{
    const char *dtype = dcpk_json_string(dcpk_json_member(node, "dtype"));
    const char *hash = dcpk_json_string(dcpk_json_member(node, "xxh3_128"));
    struct dcpk_hashed *tensor = &list->tensors[list->n];

    tensor->key = dcpk_arena_strdup(list->arena, dcpk_json_key(node), err);
    if (tensor->key == NULL)
        return err->status;
    if (dtype == NULL || hash == NULL ||
        !dcpk_hex_get(hash, tensor->hash.digest, sizeof tensor->hash.digest))
        return dcpk_fail(err, DCPK_EFORMAT, "'%s' has no dtype or no xxh3_128 of 32 digits",
                         tensor->key);
    tensor->dtype = dcpk_dtype_from_name(dtype);
    if (tensor->dtype == DCPK_DTYPE_NONE)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "'%s' has the dtype '%.40s', which is not known",
                         tensor->key, dtype);
    list->n++;
    return take_shape(list, dcpk_json_member(node, "shape"), tensor, err);
}

static dcpk_status take_tensors(struct dcpk_hash_list *list, const struct dcpk_json *tensors,
                                struct dcpk_error *err)
{
    size_t n = 0;
    dcpk_status st;

    if (tensors == NULL || dcpk_json_kind(tensors) != DCPK_JSON_OBJECT)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "there is no object 'tensors', as 'dcpkit hash --json' prints it");
    for (const struct dcpk_json *t = dcpk_json_first(tensors); t != NULL; t = dcpk_json_next(t))
        n++;
    st = begin(list, n, err);
    for (const struct dcpk_json *t = dcpk_json_first(tensors); t != NULL && st == DCPK_OK;
         t = dcpk_json_next(t))
        st = take_tensor(list, t, err);
    return st;
}

dcpk_status dcpk_hash_list_parse(const char *text, size_t n_bytes, struct dcpk_hash_list *list,
                                 struct dcpk_error *err)
{
    struct dcpk_json *doc = NULL;
    dcpk_status st = dcpk_json_parse(text, n_bytes, &doc, err);

    if (st == DCPK_OK)
        st = take_tensors(list, dcpk_json_member(doc, "tensors"), err);
    dcpk_json_free(doc);
    if (st == DCPK_OK && list->n > 0)
        qsort(list->tensors, list->n, sizeof *list->tensors, compare_keys);
    return st;
}

static bool is_same(const struct dcpk_hashed *a, const struct dcpk_hashed *b)
{
    return a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape) == 0 &&
           memcmp(a->hash.digest, b->hash.digest, sizeof a->hash.digest) == 0;
}

size_t dcpk_hash_list_compare(const struct dcpk_hash_list *a, const struct dcpk_hash_list *b,
                              dcpk_hash_differs *each, void *context)
{
    size_t i = 0, j = 0, n = 0;

    while (i < a->n || j < b->n) {
        const struct dcpk_hashed *x = i < a->n ? &a->tensors[i] : NULL;
        const struct dcpk_hashed *y = j < b->n ? &b->tensors[j] : NULL;
        const int order = x == NULL ? 1 : y == NULL ? -1 : strcmp(x->key, y->key);

        i += order <= 0;
        j += order >= 0;
        if (order == 0 && is_same(x, y))
            continue;
        n++;
        each(context, order <= 0 ? x : NULL, order >= 0 ? y : NULL);
    }
    return n;
}

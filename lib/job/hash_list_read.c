/* SPDX-License-Identifier: Apache-2.0 */
/* hash_list_read.c - recorded hashes, as JSON or as text, of this program or another. */
#include <string.h>

#include "lib/base/digest.h"
#include "lib/base/hex.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/job/hash_list_priv.h"

/* Bytes of a tensor's hash. */
static size_t digest_bytes(const struct dcpk_hash_list *list)
{
    if (list->has_fingerprints)
        return DCPK_FINGERPRINT_BYTES;
    return sizeof list->items->hash.digest;
}

/* ---- JSON ---- */

#define FINGERPRINT "fingerprint" /* of a tensor */

static dcpk_status take_shape(struct dcpk_hash_list *list, const struct dcpk_json *node,
                              struct dcpk_hashed *tensor, struct dcpk_error *err)
{
    int64_t shape[DCPK_MAX_RANK];
    const struct dcpk_json *n = NULL;
    bool is_shape = node != NULL && dcpk_json_kind(node) == DCPK_JSON_ARRAY;

    if (is_shape)
        n = dcpk_json_first(node);
    for (; n != NULL && is_shape; n = dcpk_json_next(n))
        is_shape = tensor->rank < DCPK_MAX_RANK && dcpk_json_int(n, &shape[tensor->rank]) &&
                   shape[tensor->rank++] >= 0;
    if (!is_shape)
        return dcpk_fail(err, DCPK_EFORMAT, "'%s' has no shape", tensor->key);
    tensor->shape = dcpk_arena_copy(list->arena, shape, (size_t)tensor->rank, sizeof *shape, err);
    if (tensor->shape == NULL)
        return err->status;
    return dcpk_hashed_count(tensor, err);
}

static dcpk_status take_tensor(struct dcpk_hash_list *list, const struct dcpk_json *node,
                               struct dcpk_error *err)
{
    const char *name = list->has_fingerprints ? FINGERPRINT : "xxh3_128";
    const size_t hash_bytes = digest_bytes(list);
    const char *dtype = dcpk_json_string(dcpk_json_member(node, "dtype"));
    const char *hash = dcpk_json_string(dcpk_json_member(node, name));
    struct dcpk_hashed *tensor = &list->items[list->n];

    tensor->is_fingerprint = list->has_fingerprints;
    tensor->key = dcpk_arena_strdup(list->arena, dcpk_json_key(node), err);
    if (tensor->key == NULL)
        return err->status;
    if (dtype == NULL || hash == NULL || !dcpk_hex_get(hash, tensor->hash.digest, hash_bytes))
        return dcpk_fail(err, DCPK_EFORMAT, "'%s' has no dtype or no %s of %zu digits", tensor->key,
                         name, 2 * hash_bytes);
    tensor->dtype = dcpk_dtype_from_name(dtype);
    if (tensor->dtype == DCPK_DTYPE_NONE)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "'%s' has the dtype '%.40s', which is not known",
                         tensor->key, dtype);
    list->n++;
    return take_shape(list, dcpk_json_member(node, "shape"), tensor, err);
}

/* An object, or the common state, which has no key. */
static dcpk_status take_value(struct dcpk_hash_list *list, const struct dcpk_json *node,
                              enum dcpk_hashed_kind kind, struct dcpk_error *err)
{
    const struct dcpk_json *hash = dcpk_json_member(node, "xxh3_128");
    struct dcpk_hashed *item = &list->items[list->n];

    item->kind = kind;
    item->key = "";
    if (kind != DCPK_HASHED_COMMON)
        item->key = dcpk_arena_strdup(list->arena, dcpk_json_key(node), err);
    if (item->key == NULL)
        return err->status;
    list->n++;
    if (hash != NULL && dcpk_json_kind(hash) == DCPK_JSON_NULL) {
        item->not_covered = "recorded without a hash";
        return DCPK_OK;
    }
    if (dcpk_json_string(hash) == NULL ||
        !dcpk_hex_get(dcpk_json_string(hash), item->hash.digest, sizeof item->hash.digest))
        return dcpk_fail(err, DCPK_EFORMAT, "the object '%s' has no xxh3_128 of 32 digits",
                         item->key);
    return DCPK_OK;
}

static size_t count_members(const struct dcpk_json *node)
{
    size_t n = 0;

    if (node == NULL || dcpk_json_kind(node) != DCPK_JSON_OBJECT)
        return 0;
    for (const struct dcpk_json *m = dcpk_json_first(node); m != NULL; m = dcpk_json_next(m))
        n++;
    return n;
}

static dcpk_status take_whole(struct dcpk_hash_list *list, const struct dcpk_json *whole,
                              struct dcpk_error *err)
{
    const char *digits = dcpk_json_string(dcpk_json_member(whole, "sha256"));

    if (digits == NULL || !dcpk_hex_get(digits, list->whole, sizeof list->whole))
        return dcpk_fail(err, DCPK_EFORMAT, "'whole' has no sha256 of 64 digits");
    return DCPK_OK;
}

static bool is_object(const struct dcpk_json *node)
{
    return node != NULL && dcpk_json_kind(node) == DCPK_JSON_OBJECT;
}

static dcpk_status take_document(struct dcpk_hash_list *list, const struct dcpk_json *doc,
                                 struct dcpk_error *err)
{
    const struct dcpk_json *tensors = dcpk_json_member(doc, "tensors");
    const struct dcpk_json *objects = dcpk_json_member(doc, "objects");
    const struct dcpk_json *common = dcpk_json_member(doc, "common");
    const struct dcpk_json *whole = dcpk_json_member(doc, "whole");
    const char *format = dcpk_json_string(dcpk_json_member(doc, "format"));
    dcpk_status st;

    if (!is_object(tensors))
        return dcpk_fail(err, DCPK_EFORMAT,
                         "it has no object 'tensors', so 'hash' did not print it as JSON");
    st = dcpk_hash_list_begin(list, count_members(tensors) + count_members(objects) + 1, err);
    if (st == DCPK_OK && format != NULL) {
        list->format = dcpk_arena_strdup(list->arena, format, err);
        if (list->format == NULL)
            st = err->status;
    }
    if (dcpk_json_first(tensors) != NULL)
        list->has_fingerprints = dcpk_json_member(dcpk_json_first(tensors), FINGERPRINT) != NULL;
    for (const struct dcpk_json *t = dcpk_json_first(tensors); t != NULL && st == DCPK_OK;
         t = dcpk_json_next(t))
        st = take_tensor(list, t, err);
    list->lacks = 0;
    if (list->has_fingerprints)
        objects = whole = NULL;
    if (!is_object(objects))
        list->lacks |= DCPK_LACKS_OBJECTS;
    if (!is_object(whole))
        list->lacks |= DCPK_LACKS_WHOLE;
    if (is_object(objects) && st == DCPK_OK) {
        for (const struct dcpk_json *o = dcpk_json_first(objects); o != NULL && st == DCPK_OK;
             o = dcpk_json_next(o))
            st = take_value(list, o, DCPK_HASHED_OBJECT, err);
        if (is_object(common) && st == DCPK_OK)
            st = take_value(list, common, DCPK_HASHED_COMMON, err);
    }
    if (is_object(whole) && st == DCPK_OK)
        st = take_whole(list, whole, err);
    return st;
}

/* ---- text ---- */

#define FINGERPRINT_DIGITS ((size_t)2 * DCPK_FINGERPRINT_BYTES)
#define WHOLE_DIGITS       ((size_t)2 * DCPK_SHA256_BYTES)

/* The key after the letter, with its control bytes again. */
static dcpk_status take_key(struct dcpk_hash_list *list, const char *text, size_t n,
                            const char **key, struct dcpk_error *err)
{
    char *copy = dcpk_arena_strndup(list->arena, text, n, err);
    size_t at = 0;

    if (copy == NULL)
        return err->status;
    for (size_t i = 0; i < n; i++) {
        uint8_t c;
        char digits[3];

        copy[at++] = copy[i];
        if (copy[i] != '\\' || n - i < 4 || copy[i + 1] != 'x')
            continue;
        memcpy(digits, copy + i + 2, 2);
        digits[2] = '\0';
        if (!dcpk_hex_get(digits, &c, 1) || c == 0 || (c >= 0x20 && c != 0x7f))
            continue;
        copy[at - 1] = (char)c;
        i += 3;
    }
    copy[at] = '\0';
    *key = copy;
    return DCPK_OK;
}

static dcpk_status take_line(struct dcpk_hash_list *list, const char *line, size_t n,
                             struct dcpk_error *err)
{
    const size_t n_digits = 2 * digest_bytes(list);
    struct dcpk_hashed *item = &list->items[list->n];
    const char *letter = NULL;
    char digits[WHOLE_DIGITS + 1];

    if (n > WHOLE_DIGITS && line[WHOLE_DIGITS] == ' ') {
        memcpy(digits, line, WHOLE_DIGITS);
        digits[WHOLE_DIGITS] = '\0';
        if (dcpk_hex_get(digits, list->whole, sizeof list->whole)) {
            list->lacks &= ~(unsigned)DCPK_LACKS_WHOLE;
            return DCPK_OK;
        }
    }
    if (n > n_digits + 1 && line[n_digits] == ' ')
        letter = strchr(DCPK_HASH_LETTERS, line[n_digits + 1]);
    memcpy(digits, line, dcpk_min_size(n, n_digits));
    digits[dcpk_min_size(n, n_digits)] = '\0';
    if (strcmp(digits, DCPK_HASH_NONE) == 0)
        item->not_covered = "recorded without a hash";
    else if (letter == NULL || *letter == '\0' ||
             !dcpk_hex_get(digits, item->hash.digest, n_digits / 2))
        return dcpk_fail(err, DCPK_EFORMAT,
                         "it is neither JSON nor lines of 'dcpkit hash': \"%.*s\"",
                         (int)dcpk_min_size(n, 80), line);
    if (letter == NULL || *letter == '\0')
        return dcpk_fail(err, DCPK_EFORMAT, "a line has no key after its hash");
    item->kind = (enum dcpk_hashed_kind)(letter - DCPK_HASH_LETTERS);
    if (list->has_fingerprints && item->kind != DCPK_HASHED_TENSOR)
        return dcpk_fail(err, DCPK_EFORMAT, "among fingerprints an object has no hash: \"%.*s\"",
                         (int)dcpk_min_size(n, 80), line);
    item->is_fingerprint = list->has_fingerprints;
    list->n++;
    if (item->kind != DCPK_HASHED_COMMON)
        return take_key(list, line + n_digits + 2, n - n_digits - 2, &item->key, err);
    item->key = "";
    return DCPK_OK;
}

static dcpk_status take_lines(struct dcpk_hash_list *list, const char *text, size_t n_bytes,
                              struct dcpk_error *err)
{
    dcpk_status st = dcpk_hash_list_begin(list, dcpk_count_lines(text, n_bytes), err);
    size_t at = 0, length;
    const char *line;

    list->has_fingerprints =
        n_bytes > FINGERPRINT_DIGITS && memchr(text, ' ', n_bytes) == text + FINGERPRINT_DIGITS;
    list->lacks = DCPK_LACKS_FORMS | DCPK_LACKS_WHOLE;
    if (list->has_fingerprints)
        list->lacks |= DCPK_LACKS_OBJECTS;
    while (st == DCPK_OK && (line = dcpk_take_line(text, n_bytes, &at, &length)) != NULL)
        st = take_line(list, line, length, err);
    if (st == DCPK_OK && !list->has_fingerprints && (list->lacks & DCPK_LACKS_WHOLE) != 0)
        st = dcpk_fail(err, DCPK_EFORMAT,
                       "it is cut short: the line 'the whole checkpoint' is missing");
    return st;
}

/* A key twice would be held against itself. */
static dcpk_status check_once(const struct dcpk_hash_list *list, struct dcpk_error *err)
{
    for (size_t i = 1; i < list->n; i++)
        if (list->items[i].kind == list->items[i - 1].kind &&
            strcmp(list->items[i].key, list->items[i - 1].key) == 0)
            return dcpk_fail(err, DCPK_EFORMAT, "'%.200s' is there twice", list->items[i].key);
    return DCPK_OK;
}

static bool is_json(const char *text, size_t n_bytes)
{
    size_t n = 0;

    while (n < n_bytes && strchr(" \t\r\n", text[n]) != NULL && text[n] != '\0')
        n++;
    return n >= n_bytes || text[n] == '{' || text[n] == '[';
}

dcpk_status dcpk_hash_list_parse(const char *text, size_t n_bytes, struct dcpk_hash_list *list,
                                 struct dcpk_error *err)
{
    struct dcpk_json *doc = NULL;
    dcpk_status st;

    if (is_json(text, n_bytes)) {
        st = dcpk_json_parse(text, n_bytes, &doc, err);
        if (st == DCPK_OK)
            st = take_document(list, doc, err);
        dcpk_json_free(doc);
    } else {
        st = take_lines(list, text, n_bytes, err);
    }
    if (st != DCPK_OK)
        return st;
    dcpk_hash_list_sort(list);
    return check_once(list, err);
}

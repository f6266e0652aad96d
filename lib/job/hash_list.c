/* SPDX-License-Identifier: Apache-2.0 */
/* hash_list.c - hashes of tensors, objects and common state: made, printed, compared. */
#include "lib/job/hash_list.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/checked.h"
#include "lib/base/hex.h"
#include "lib/ckpt/summary.h"
#include "lib/ckpt/value_hash.h"
#include "lib/job/hash_list_priv.h"

dcpk_status dcpk_hashed_count(struct dcpk_hashed *item, struct dcpk_error *err)
{
    int64_t n_elems = 0;
    dcpk_status st = dcpk_shape_count(item->shape, item->rank, &n_elems, err);

    if (st == DCPK_OK &&
        !dcpk_mul_u64((uint64_t)n_elems, dcpk_dtype_bytes(item->dtype), &item->n_bytes))
        st = dcpk_fail(err, DCPK_ERANGE, "more than 2^64 bytes");
    if (st != DCPK_OK)
        dcpk_context(err, "'%s'", item->key);
    return st;
}

void dcpk_hash_list_release(struct dcpk_hash_list *list)
{
    dcpk_arena_free(list->arena);
    *list = (struct dcpk_hash_list){0};
}

static const char *hashed_kind_name(enum dcpk_hashed_kind kind)
{
    static const char *const names[DCPK_N_HASHED] = {"tensor", "object", "common"};

    return names[kind];
}

/* The digits of its hash; `none` where it has no hash. */
static const char *hash_words(const struct dcpk_hashed *item, char digits[DCPK_HASH_TEXT_BYTES],
                              const char *none)
{
    return item->not_covered != NULL ? none : dcpk_hashed_text(item, digits);
}

static int compare_items(const struct dcpk_hashed *a, const struct dcpk_hashed *b)
{
    const int by_key = strcmp(a->key, b->key);

    return by_key != 0 ? by_key : (int)a->kind - (int)b->kind;
}

static int compare_hash_places(const void *left, const void *right)
{
    return compare_items(left, right);
}

dcpk_status dcpk_hash_list_begin(struct dcpk_hash_list *list, size_t n, struct dcpk_error *err)
{
    list->arena = dcpk_arena_new();
    list->items = dcpk_arena_array(list->arena, n, sizeof *list->items, err);
    list->capacity = n;
    return dcpk_made(list->items, err);
}

/* ---- the whole ---- */

static void put_field(struct dcpk_bytes *line, const char *text)
{
    dcpk_bytes_text(line, text);
    dcpk_bytes_u8(line, 0);
}

static void put_line(struct dcpk_bytes *line, const struct dcpk_hashed *item)
{
    char digits[DCPK_HASH_TEXT_BYTES];

    put_field(line, item->key);
    put_field(line, hashed_kind_name(item->kind));
    put_field(line, item->kind == DCPK_HASHED_TENSOR ? dcpk_dtype_name(item->dtype) : "");
    for (int a = 0; a < item->rank; a++)
        dcpk_bytes_printf(line, a == 0 ? "%" PRId64 : ",%" PRId64, item->shape[a]);
    dcpk_bytes_u8(line, 0);
    dcpk_bytes_text(line, hash_words(item, digits, ""));
    dcpk_bytes_u8(line, '\n');
}

static dcpk_status hash_whole(struct dcpk_hash_list *list, struct dcpk_error *err)
{
    struct dcpk_sha256 hash;
    struct dcpk_bytes line = {0};
    dcpk_status st = DCPK_OK;

    dcpk_sha256_begin(&hash);
    for (size_t i = 0; i < list->n && st == DCPK_OK; i++) {
        line.n_bytes = 0;
        put_line(&line, &list->items[i]);
        st = dcpk_bytes_status(&line, err);
        if (st == DCPK_OK)
            dcpk_sha256_update(&hash, line.data, line.n_bytes);
    }
    if (st == DCPK_OK)
        dcpk_sha256_digest(&hash, list->whole);
    dcpk_bytes_release(&line);
    return st;
}

void dcpk_hash_list_sort(struct dcpk_hash_list *list)
{
    if (list->n > 0)
        qsort(list->items, list->n, sizeof *list->items, compare_hash_places);
    for (size_t i = 0; i < list->n; i++) {
        list->n_of[list->items[i].kind]++;
        list->n_not_covered += list->items[i].not_covered != NULL;
    }
}

/* ---- made ---- */

static dcpk_status list_fingerprint_views(struct dcpk_exec *exec, const struct dcpk_view *views,
                                          size_t n, struct dcpk_hash_list *list,
                                          struct dcpk_hash *hashes, struct dcpk_error *err)
{
    uint64_t *sums = dcpk_arena_array(list->arena, n, sizeof *sums, err);

    if (sums == NULL || dcpk_exec_fingerprint(exec, views, n, sums, err))
        return err->status;
    for (size_t i = 0; i < n; i++)
        for (size_t b = 0; b < DCPK_FINGERPRINT_BYTES; b++)
            hashes[i].digest[b] = (uint8_t)(sums[i] >> (56 - 8 * b));
    return DCPK_OK;
}

static dcpk_status list_hash_views(struct dcpk_exec *exec, const struct dcpk_view *views, size_t n,
                                   struct dcpk_hash_list *list, struct dcpk_hash *hashes,
                                   struct dcpk_error *err)
{
    if (list->has_fingerprints)
        return list_fingerprint_views(exec, views, n, list, hashes, err);
    return dcpk_exec_hash(exec, views, n, hashes, NULL, err);
}

static dcpk_status add_tensors(struct dcpk_exec *exec, const struct dcpk_checkpoint *ckpt,
                               struct dcpk_hash_list *list, struct dcpk_error *err)
{
    const size_t n = ckpt->n_tensors;
    struct dcpk_view *views = dcpk_arena_array(list->arena, n, sizeof *views, err);
    struct dcpk_hash *hashes = dcpk_arena_array(list->arena, n, sizeof *hashes, err);

    if (views == NULL || hashes == NULL)
        return err->status;
    for (size_t i = 0; i < n; i++)
        if (dcpk_view_stored(ckpt, (uint32_t)i, list->arena, &views[i], err) != DCPK_OK)
            return err->status;
    if (list_hash_views(exec, views, n, list, hashes, err) != DCPK_OK)
        return err->status;
    for (size_t i = 0; i < n; i++) {
        const struct dcpk_tensor *t = &ckpt->tensors[i];
        struct dcpk_hashed *item = &list->items[list->n++];

        *item = (struct dcpk_hashed){.key = t->key,
                                     .dtype = t->dtype,
                                     .rank = t->rank,
                                     .shape = t->shape,
                                     .hash = hashes[i],
                                     .is_fingerprint = list->has_fingerprints};
        if (dcpk_hashed_count(item, err) != DCPK_OK)
            return err->status;
    }
    return DCPK_OK;
}

static const char *reason_of(const struct dcpk_object_hash *hash)
{
    switch (hash->state) {
    case DCPK_OBJECT_HASHED:
        break;
    case DCPK_OBJECT_TOO_LARGE:
        return "it is too large to be read";
    case DCPK_OBJECT_NOT_UNDERSTOOD:
        return "its value is not understood";
    }
    return NULL;
}

static dcpk_status add_objects(struct dcpk_exec *exec, const struct dcpk_checkpoint *ckpt,
                               struct dcpk_hash_list *list, struct dcpk_error *err)
{
    const size_t n = ckpt->n_objects;
    struct dcpk_object_hash *hashes = dcpk_arena_array(list->arena, n, sizeof *hashes, err);

    if (hashes == NULL || dcpk_exec_hash_objects(exec, hashes, err))
        return err->status;
    for (size_t i = 0; i < n; i++)
        list->items[list->n++] = (struct dcpk_hashed){.key = ckpt->objects[i].key,
                                                      .kind = DCPK_HASHED_OBJECT,
                                                      .hash = hashes[i].hash,
                                                      .not_covered = reason_of(&hashes[i])};
    return DCPK_OK;
}

static dcpk_status add_common(struct dcpk_checkpoint *ckpt, struct dcpk_hash_list *list,
                              struct dcpk_error *err)
{
    const struct dcpk_value_hashing hashing = {.elements = NULL};
    struct dcpk_hashed item = {.key = "", .kind = DCPK_HASHED_COMMON};
    const struct dcpk_value *value = NULL;
    struct dcpk_arena *arena;
    dcpk_status st;

    arena = dcpk_arena_new();
    st = dcpk_checkpoint_load_common(ckpt, arena, &value, err);
    if (st == DCPK_OK && value != NULL)
        st = dcpk_value_hash(value, &hashing, &item.hash, err);
    dcpk_arena_free(arena);
    if (st == DCPK_OK && value != NULL)
        list->items[list->n++] = item;
    return st;
}

dcpk_status dcpk_hash_list_make(struct dcpk_exec *exec, struct dcpk_checkpoint *ckpt,
                                struct dcpk_hash_list *list, struct dcpk_error *err)
{
    dcpk_status st = dcpk_hash_list_begin(list, ckpt->n_tensors + ckpt->n_objects + 1, err);

    if (st == DCPK_OK)
        st = add_common(ckpt, list, err);
    if (st == DCPK_OK)
        st = add_objects(exec, ckpt, list, err);
    if (st == DCPK_OK) /* last: their bytes are what the progress ends with */
        st = add_tensors(exec, ckpt, list, err);
    if (st != DCPK_OK)
        return st;
    dcpk_hash_list_sort(list);
    return hash_whole(list, err);
}

dcpk_status dcpk_hash_list_make_fingerprints(struct dcpk_exec *exec,
                                             const struct dcpk_checkpoint *ckpt,
                                             struct dcpk_hash_list *list, struct dcpk_error *err)
{
    list->has_fingerprints = true;
    list->lacks = DCPK_LACKS_OBJECTS | DCPK_LACKS_WHOLE;
    if (dcpk_hash_list_begin(list, ckpt->n_tensors, err) || add_tensors(exec, ckpt, list, err))
        return err->status;
    dcpk_hash_list_sort(list);
    return DCPK_OK;
}

/* ---- printed ---- */

const char *dcpk_hashed_text(const struct dcpk_hashed *item, char text[DCPK_HASH_TEXT_BYTES])
{
    if (item->is_fingerprint)
        return dcpk_hex_put(item->hash.digest, DCPK_FINGERPRINT_BYTES, text);
    return dcpk_hex_put(item->hash.digest, sizeof item->hash.digest, text);
}

void dcpk_hashed_put(const struct dcpk_hashed *item, struct dcpk_json_out *j)
{
    const bool has_form = item->kind == DCPK_HASHED_TENSOR && item->dtype != DCPK_DTYPE_NONE;
    char text[DCPK_HASH_TEXT_BYTES];

    dcpk_json_begin_object(j);
    if (has_form)
        dcpk_json_add_string(j, "dtype", dcpk_dtype_name(item->dtype));
    if (item->is_fingerprint)
        dcpk_json_add_string(j, "fingerprint", dcpk_hashed_text(item, text));
    if (has_form) {
        dcpk_json_add_uint(j, "n_bytes", item->n_bytes);
        dcpk_json_add_ints(j, "shape", item->shape, item->rank);
    }
    if (!item->is_fingerprint)
        dcpk_json_add_string(j, "xxh3_128", hash_words(item, text, NULL));
    dcpk_json_end_object(j);
}

static void put_totals(struct dcpk_json_out *j, const struct dcpk_totals *totals)
{
    dcpk_json_put_key(j, "totals");
    dcpk_json_begin_object(j);
    dcpk_json_add_uint(j, "n_alias_objects", totals->n_alias_objects);
    dcpk_json_add_uint(j, "n_alias_tensors", totals->n_alias_tensors);
    dcpk_json_add_uint(j, "n_objects", totals->n_objects);
    dcpk_json_add_uint(j, "n_tensors", totals->n_tensors);
    dcpk_json_add_uint(j, "tensor_bytes", totals->tensor_bytes); /* aliases once */
    dcpk_json_end_object(j);
}

static void put_kind(struct dcpk_json_out *j, const char *name, const struct dcpk_hash_list *list,
                     enum dcpk_hashed_kind kind)
{
    dcpk_json_put_key(j, name);
    dcpk_json_begin_object(j);
    for (size_t i = 0; i < list->n; i++) {
        if (list->items[i].kind != kind)
            continue;
        dcpk_json_put_key(j, list->items[i].key);
        dcpk_hashed_put(&list->items[i], j);
    }
    dcpk_json_end_object(j);
}

/* It is the first item: no other has an empty key. */
static void put_common(struct dcpk_json_out *j, const struct dcpk_hash_list *list)
{
    dcpk_json_put_key(j, "common");
    for (size_t i = 0; i < list->n && list->n_of[DCPK_HASHED_COMMON] > 0; i++)
        if (list->items[i].kind == DCPK_HASHED_COMMON) {
            dcpk_hashed_put(&list->items[i], j);
            return;
        }
    dcpk_json_put_null(j);
}

static void put_not_covered(struct dcpk_json_out *j, const struct dcpk_hash_list *list)
{
    dcpk_json_put_key(j, "not_covered");
    dcpk_json_begin_object(j);
    for (size_t i = 0; i < list->n && list->n_not_covered > 0; i++)
        if (list->items[i].not_covered != NULL)
            dcpk_json_add_string(j, list->items[i].key, list->items[i].not_covered);
    dcpk_json_end_object(j);
}

static void put_whole(struct dcpk_json_out *j, const struct dcpk_hash_list *list)
{
    char digits[2 * DCPK_SHA256_BYTES + 1];

    dcpk_json_put_key(j, "whole");
    dcpk_json_begin_object(j);
    dcpk_json_add_string(j, "sha256", dcpk_hex_put(list->whole, sizeof list->whole, digits));
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
    if (!list->has_fingerprints)
        put_common(&j, list);
    dcpk_json_add_string(&j, "format", ckpt->format->name);
    if (!list->has_fingerprints) {
        put_not_covered(&j, list);
        put_kind(&j, "objects", list, DCPK_HASHED_OBJECT);
    }
    put_kind(&j, "tensors", list, DCPK_HASHED_TENSOR);
    put_totals(&j, &summary->totals);
    dcpk_json_add_uint(&j, "version", 1);
    if (!list->has_fingerprints)
        put_whole(&j, list);
    dcpk_json_end_object(&j);
    dcpk_summary_free(summary);
    return dcpk_bytes_status(text, err);
}

static void put_escaped_key(struct dcpk_bytes *text, const char *key)
{
    for (; *key != '\0'; key++) {
        const uint8_t c = (uint8_t)*key;

        if (c < 0x20 || c == 0x7f)
            dcpk_bytes_printf(text, "\\x%02x", c);
        else
            dcpk_bytes_u8(text, c);
    }
}

void dcpk_hash_list_put_text(const struct dcpk_hash_list *list, struct dcpk_bytes *text)
{
    char digits[2 * DCPK_SHA256_BYTES + 1];

    for (size_t i = 0; i < list->n; i++) {
        const struct dcpk_hashed *item = &list->items[i];

        dcpk_bytes_text(text, hash_words(item, digits, DCPK_HASH_NONE));
        dcpk_bytes_u8(text, ' ');
        dcpk_bytes_u8(text, (uint8_t)DCPK_HASH_LETTERS[item->kind]);
        put_escaped_key(text, item->kind == DCPK_HASHED_COMMON ? "common state" : item->key);
        dcpk_bytes_u8(text, '\n');
    }
    if (list->has_fingerprints)
        return;
    dcpk_bytes_text(text, dcpk_hex_put(list->whole, sizeof list->whole, digits));
    dcpk_bytes_text(text, "  the whole checkpoint\n");
}

/* ---- compared ---- */

static bool is_same(const struct dcpk_hash_list *recorded, const struct dcpk_hashed *a,
                    const struct dcpk_hashed *b)
{
    const bool has_forms = (recorded->lacks & DCPK_LACKS_FORMS) == 0;

    if (a->not_covered != NULL || b->not_covered != NULL)
        return a->not_covered != NULL && b->not_covered != NULL;
    if (has_forms &&
        (a->dtype != b->dtype || !dcpk_shape_equal(a->shape, a->rank, b->shape, b->rank)))
        return false;
    return memcmp(a->hash.digest, b->hash.digest, sizeof a->hash.digest) == 0;
}

/* The next item of the list that the other one may have something on. */
static const struct dcpk_hashed *next_item(const struct dcpk_hash_list *list, unsigned lacks,
                                           size_t *i)
{
    while (*i < list->n && (lacks & DCPK_LACKS_OBJECTS) != 0 &&
           list->items[*i].kind != DCPK_HASHED_TENSOR)
        ++*i;
    return *i < list->n ? &list->items[*i] : NULL;
}

/* Orders two entries by key; a list that has ended (NULL) comes last. */
static int compare_next(const struct dcpk_hashed *x, const struct dcpk_hashed *y)
{
    if (x == NULL)
        return 1;
    return y == NULL ? -1 : compare_items(x, y);
}

size_t dcpk_hash_list_compare(const struct dcpk_hash_list *recorded,
                              const struct dcpk_hash_list *found, dcpk_hash_differs *each,
                              void *context)
{
    size_t i = 0, j = 0, n = 0;

    for (;;) {
        const struct dcpk_hashed *x = next_item(recorded, recorded->lacks, &i);
        const struct dcpk_hashed *y = next_item(found, recorded->lacks, &j);
        int order;

        if (x == NULL && y == NULL)
            return n;
        order = compare_next(x, y);
        i += order <= 0;
        j += order >= 0;
        if (order == 0 && is_same(recorded, x, y))
            continue;
        n++;
        each(context, order <= 0 ? x : NULL, order >= 0 ? y : NULL);
    }
}

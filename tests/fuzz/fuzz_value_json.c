/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_value_json.c - the value of any pickle is one JSON document, of bounded depth and size. */
#include <stdlib.h>
#include <string.h>

#include "formats/dcp/pickle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

#define MAX_NODES 4096 /* of a value unfolded; what is shared is written at each place */

/* Stands for torch's storages: a tensor, which JSON shows in its own way. */
static dcpk_status find_storage(void *context, struct dcpk_arena *arena,
                                const struct dcpk_value *pid, const struct dcpk_value **value,
                                struct dcpk_error *err)
{
    static const int64_t shape[] = {1, 3};
    static const struct dcpk_value_tensor tensor = {
        .dtype = DCPK_U8, .rank = 2, .shape = shape, .n_bytes = 3, .data = "abc"};
    static const struct dcpk_value storage = {.kind = DCPK_V_TENSOR, .as.tensor = &tensor};

    (void)context;
    (void)arena;
    (void)pid;
    (void)err;
    *value = &storage;
    return DCPK_OK;
}

static void count(const struct dcpk_value *v, size_t *left);

static void count_items(const struct dcpk_value *const *items, size_t n, size_t *left)
{
    for (size_t i = 0; i<n && * left> 0; i++)
        count(items[i], left);
}

static void count_pairs(const struct dcpk_value_pair *pairs, size_t n, size_t *left)
{
    for (size_t i = 0; i<n && * left> 0; i++) {
        count(pairs[i].key, left);
        count(pairs[i].value, left);
    }
}

/* Take the nodes of v, unfolded, from what is left. Recursion: the reader bounds the depth. */
static void count(const struct dcpk_value *v, size_t *left)
{
    if (v == NULL || *left == 0)
        return;
    *left -= 1;
    if (v->kind == DCPK_V_TUPLE || v->kind == DCPK_V_LIST || v->kind == DCPK_V_SET) {
        count_items(v->as.items, v->n, left);
    } else if (v->kind == DCPK_V_DICT) {
        count_pairs(v->as.pairs, v->n, left);
    } else if (v->kind == DCPK_V_OBJECT) {
        count(v->as.object->args, left);
        count(v->as.object->state, left);
        count_items(v->as.object->items, v->as.object->n_items, left);
        count_pairs(v->as.object->pairs, v->as.object->n_pairs, left);
    }
}

/* What our reader refuses and Python's json writes nevertheless: NULs, numbers that are none, and a
 * dict with the keys 1 and "1". */
static bool is_pythons(const struct dcpk_error *err, const struct dcpk_bytes *text)
{
    return strstr(err->text, " twice") != NULL || strstr(err->text, "a NUL in") != NULL ||
           memmem(text->data, text->n_bytes, "NaN", 3) != NULL ||
           memmem(text->data, text->n_bytes, "Infinity", 8) != NULL;
}

static void check(const struct dcpk_value *v)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_bytes text = {0};
    struct dcpk_json *doc = NULL;
    struct dcpk_json_out json;

    dcpk_json_out_init(&json, &text, 0);
    dcpk_value_to_json(v, &json);
    if (dcpk_bytes_status(&text, &err) != DCPK_OK || json.depth != 0)
        abort();
    if (dcpk_json_parse((const char *)text.data, text.n_bytes, &doc, &err) != DCPK_OK &&
        !is_pythons(&err, &text))
        abort();
    dcpk_json_free(doc);
    dcpk_bytes_release(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    const struct dcpk_pickle_options options = {.persistent = find_storage};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new(0, &err);
    const struct dcpk_value *v;
    size_t left = MAX_NODES;

    if (arena == NULL)
        abort();
    if (dcpk_pickle_read(data, n_bytes, &options, arena, &v, &err) == DCPK_OK) {
        count(v, &left);
        if (left > 0)
            check(v);
    }
    dcpk_arena_free(arena);
    return 0;
}

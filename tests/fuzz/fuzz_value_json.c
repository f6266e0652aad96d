/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_value_json.c - the value of any pickle is one JSON document, of bounded depth and size. */
#include <stdlib.h>
#include <string.h>

#include "formats/torch/pickle.h"
#include "lib/base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

#define MAX_UNFOLDED 65536 /* larger ones take seconds under sanitizers */
#define MAX_BYTES    128   /* of JSON for each node, or 8 bytes, of the unfolded value */

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

/* What our reader refuses and Python's json writes nevertheless: NULs, lone surrogates, numbers
 * that are none, and a dict with the keys 1 and "1". */
static bool is_pythons(const struct dcpk_error *err, const struct dcpk_bytes *text)
{
    return strstr(err->text, " twice") != NULL || strstr(err->text, "a NUL in") != NULL ||
           memmem(text->data, text->n_bytes, "\\ud", 3) != NULL ||
           memmem(text->data, text->n_bytes, "NaN", 3) != NULL ||
           memmem(text->data, text->n_bytes, "Infinity", 8) != NULL;
}

static void check(const struct dcpk_value *v, uint64_t unfolded)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_bytes text = {0};
    struct dcpk_json *doc = NULL;
    struct dcpk_json_out json;

    dcpk_json_out_init(&json, &text, 0);
    dcpk_value_to_json(v, &json);
    if (dcpk_bytes_status(&text, &err) != DCPK_OK || json.depth != 0 ||
        text.n_bytes > MAX_BYTES * unfolded)
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
    struct dcpk_arena *arena = dcpk_arena_new();
    const struct dcpk_value *v;
    uint64_t unfolded;

    if (arena == NULL)
        abort();
    if (dcpk_pickle_read(data, n_bytes, &options, arena, &v, &err) == DCPK_OK) {
        unfolded = dcpk_value_unfolded(v);
        if (unfolded > dcpk_unfold_limit(n_bytes) || !dcpk_value_equal(v, v))
            abort();
        if (unfolded <= MAX_UNFOLDED)
            check(v, unfolded);
    }
    dcpk_arena_free(arena);
    return 0;
}

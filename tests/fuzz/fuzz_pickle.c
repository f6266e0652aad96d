/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_pickle.c - any bytes are a value that survives writing and reading, or an error. */
#include <stdlib.h>
#include <string.h>

#include "formats/dcp/pickle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* Stands for torch's storages. */
static dcpk_status find_storage(void *context, struct dcpk_arena *arena,
                                const struct dcpk_value *pid, const struct dcpk_value **value,
                                struct dcpk_error *err)
{
    (void)context;
    *value = dcpk_value_str(arena, "storage", err);
    return pid->kind == DCPK_V_TUPLE && *value != NULL ? DCPK_OK : err->status;
}

/* Unfolded, a value may be too large to compare; what is written twice must then be the same bytes.
 */
static void check(const struct dcpk_value *v, int protocol, struct dcpk_arena *arena)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_bytes once = {0}, twice = {0};
    const struct dcpk_value *again;

    if (dcpk_pickle_write(v, protocol, NULL, NULL, &once, &err) != DCPK_OK)
        abort();
    if (dcpk_pickle_read(once.data, once.n_bytes, NULL, arena, &again, &err) != DCPK_OK)
        abort();
    if (dcpk_pickle_write(again, protocol, NULL, NULL, &twice, &err) != DCPK_OK)
        abort();
    if (!dcpk_value_equal(v, again) &&
        (once.n_bytes != twice.n_bytes || memcmp(once.data, twice.data, once.n_bytes) != 0))
        abort();
    dcpk_bytes_release(&once);
    dcpk_bytes_release(&twice);
}

static dcpk_status take_nothing(void *context, const struct dcpk_pickle_batch *batch, uint32_t *run,
                                size_t *n_taken, struct dcpk_error *err)
{
    (void)context;
    (void)batch;
    (void)err;
    *run = 1;
    *n_taken = 0;
    return DCPK_OK;
}

/* Read again, forgetting all that can be before each opcode: it is the same value. What was offered
 * may not change; and a set that is called stays a call, so inputs that may call one are left out.
 */
static void check_collected(const uint8_t *data, size_t n_bytes, struct dcpk_arena *arena)
{
    static const char *const offered[] = {"k", NULL}, *const none[] = {NULL};
    struct dcpk_pickle_consumer consumer = {.keys = none, .take = take_nothing};
    const struct dcpk_pickle_options options = {.consumer = &consumer, .limits.collect_bytes = 1};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_bytes once = {0}, twice = {0};
    const struct dcpk_value *v, *collected;
    const bool is_read = dcpk_pickle_read(data, n_bytes, NULL, arena, &v, &err) == DCPK_OK;

    if ((dcpk_pickle_read(data, n_bytes, &options, arena, &collected, &err) == DCPK_OK) != is_read)
        abort();
    if (is_read && !dcpk_value_equal(v, collected)) {
        if (dcpk_pickle_write(v, 4, NULL, NULL, &once, &err) != DCPK_OK ||
            dcpk_pickle_write(collected, 4, NULL, NULL, &twice, &err) != DCPK_OK ||
            once.n_bytes != twice.n_bytes || memcmp(once.data, twice.data, once.n_bytes) != 0)
            abort();
        dcpk_bytes_release(&once);
        dcpk_bytes_release(&twice);
    }
    consumer.keys = offered;
    if (dcpk_pickle_read(data, n_bytes, &options, arena, &collected, &err) == DCPK_OK && !is_read)
        abort();
}

static void count_pairs(const struct dcpk_value_pair *pairs, size_t n, uint32_t *left);

/* Take the values that v unfolds to, shared ones as often as they stand there, off *left. */
static void count(const struct dcpk_value *v, uint32_t *left)
{
    const bool is_seq =
        v != NULL && (v->kind == DCPK_V_TUPLE || v->kind == DCPK_V_LIST || v->kind == DCPK_V_SET);

    if (v == NULL || *left == 0)
        return;
    --*left;
    for (size_t i = 0; is_seq && i<v->n && * left> 0; i++)
        count(v->as.items[i], left);
    if (v->kind == DCPK_V_DICT)
        count_pairs(v->as.pairs, v->n, left);
    if (v->kind != DCPK_V_OBJECT)
        return;
    count(v->as.object->args, left);
    count(v->as.object->state, left);
    for (size_t i = 0; i<v->as.object->n_items && * left> 0; i++)
        count(v->as.object->items[i], left);
    count_pairs(v->as.object->pairs, v->as.object->n_pairs, left);
}

static void count_pairs(const struct dcpk_value_pair *pairs, size_t n, uint32_t *left)
{
    for (size_t i = 0; i<n && * left> 0; i++) {
        count(pairs[i].key, left);
        count(pairs[i].value, left);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new(0, &err);
    uint32_t left = 100000; /* a bomb's JSON is bounded, but takes seconds under sanitizers */
    const struct dcpk_pickle_options options = {.persistent = find_storage};
    const struct dcpk_value *v;
    struct dcpk_bytes text = {0};
    struct dcpk_json_out json;

    if (arena == NULL)
        return 0;
    if (dcpk_pickle_read(data, n_bytes, &options, arena, &v, &err) == DCPK_OK) {
        check(v, 2, arena);
        check(v, 4, arena);
        count(v, &left);
        if (left > 0) {
            dcpk_json_out_init(&json, &text, 0);
            dcpk_value_to_json(v, &json);
        }
    } else if (err.status == DCPK_OK || err.text[0] == '\0') {
        abort();
    }
    if (n_bytes < 4096 &&
        memmem(data, n_bytes, "set", 3) == NULL) /* each opcode costs what lives */
        check_collected(data, n_bytes, arena);
    dcpk_bytes_release(&text);
    dcpk_arena_free(arena);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_pickle.c - any bytes are a value that survives writing and reading, or an error. */
#include <stdlib.h>
#include <string.h>

#include "formats/torch/pickle.h"
#include "lib/base/json.h"

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

/* What is written comes back the same, unless it takes fewer bytes than its value may unfold to. */
static void check(const struct dcpk_value *v, int protocol, struct dcpk_arena *arena)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_bytes once = {0}, twice = {0};
    const struct dcpk_value *again;

    if (dcpk_pickle_write(v, protocol, NULL, NULL, &once, &err) != DCPK_OK)
        abort();
    if (dcpk_pickle_read(once.data, once.n_bytes, NULL, arena, &again, &err) == DCPK_OK) {
        if (dcpk_pickle_write(again, protocol, NULL, NULL, &twice, &err) != DCPK_OK ||
            !dcpk_value_equal(v, again))
            abort();
    } else if (err.status != DCPK_ERANGE ||
               dcpk_value_unfolded(v) <= dcpk_unfold_limit(once.n_bytes)) {
        abort();
    }
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

#define MAX_UNFOLDED 100000 /* larger ones take seconds under sanitizers as JSON */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    const struct dcpk_pickle_options options = {.persistent = find_storage};
    const struct dcpk_value *v;
    struct dcpk_bytes text = {0};
    struct dcpk_json_out json;

    if (arena == NULL)
        return 0;
    if (dcpk_pickle_read(data, n_bytes, &options, arena, &v, &err) == DCPK_OK) {
        check(v, 2, arena);
        check(v, 4, arena);
        if (dcpk_value_unfolded(v) > dcpk_unfold_limit(n_bytes))
            abort();
        if (dcpk_value_unfolded(v) <= MAX_UNFOLDED) {
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

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new(0, &err);
    const struct dcpk_pickle_options options = {.persistent = find_storage};
    const struct dcpk_value *v;
    struct dcpk_bytes text = {0};
    struct dcpk_json_out json;

    if (arena == NULL)
        return 0;
    if (dcpk_pickle_read(data, n_bytes, &options, arena, &v, &err) == DCPK_OK) {
        check(v, 2, arena);
        check(v, 4, arena);
        if (n_bytes < 256) { /* a bomb's JSON is bounded, but large */
            dcpk_json_out_init(&json, &text, 0);
            dcpk_value_to_json(v, &json);
        }
    } else if (err.status == DCPK_OK || err.text[0] == '\0') {
        abort();
    }
    dcpk_bytes_release(&text);
    dcpk_arena_free(arena);
    return 0;
}

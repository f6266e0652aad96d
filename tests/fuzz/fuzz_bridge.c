/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_bridge.c - any bytes as YAML of Megatron-Bridge give args or an error. */
#include <stdlib.h>

#include "formats/formats.h"
#include "tests/fuzz/fuzz_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* What the names of args are made of is text, and each has a value. */
static void check(const struct dcpk_value *args)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(args);

    if (attrs == NULL || attrs->n == 0)
        abort();
    for (size_t i = 0; i < attrs->n; i++)
        if (dcpk_value_as_str(attrs->as.pairs[i].key) == NULL || attrs->as.pairs[i].value == NULL)
            abort();
    if (!dcpk_value_equal(args, args))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    const struct dcpk_value *args;
    char *text = fuzz_text(data, n_bytes);

    if (arena == NULL)
        abort();
    if (dcpk_yaml_args_reader != NULL) { /* else this build has no libyaml */
        if (dcpk_yaml_args_reader(text, n_bytes, arena, &args, &err) == DCPK_OK)
            check(args);
        else if (err.text[0] == '\0')
            abort();
    }
    free(text);
    dcpk_arena_free(arena);
    return 0;
}

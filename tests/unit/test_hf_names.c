/* SPDX-License-Identifier: Apache-2.0 */
/* test_hf_names.c - names of a model in the keys of trainers: wrappers, and the place of the
 * prefix. */
#include <string.h>

#include "formats/safetensors/hf_model.h"
#include "lib/base/order.h"
#include "tests/check.h"

static const struct {
    const char *key, *want;
} wrapped[] = {
    {"model.norm.weight", "model.norm.weight"},
    {"_orig_mod.model.norm.weight", "model.norm.weight"},
    {"app.model._orig_mod.model.layers.0._checkpoint_wrapped_module.mlp.w",
     "app.model.model.layers.0.mlp.w"},
    {"_fsdp_wrapped_module._fpw_module.x", "x"},
    {"my_orig_mod.x", "my_orig_mod.x"},
    {"x._orig_mod", "x._orig_mod"},
    {"", ""},
};

static void wrappers_are_left_out(void **unused)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();

    (void)unused;
    for (size_t i = 0; i < DCPK_COUNT(wrapped); i++) {
        const char *got = dcpk_hf_unwrap(arena, wrapped[i].key, &err);

        CHECK(got != NULL && strcmp(got, wrapped[i].want) == 0, wrapped[i].key);
    }
    dcpk_arena_free(arena);
}

static const struct {
    const char *key;
    int at; /* -1: it does not end with the embedding */
} ends[] = {
    {"embed_tokens.weight", 0},
    {"model.model.embed_tokens.weight", 12},
    {"model.my_embed_tokens.weight", -1},
    {"embed_tokens.weight.exp_avg", -1},
    {"optimizer.state.model.embed_tokens.weight", -1},
    {"weight", -1},
    {"", -1},
};

static void names_end_keys(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < DCPK_COUNT(ends); i++) {
        const char *at = dcpk_hf_name_in(ends[i].key, "embed_tokens.weight");
        const int got = at == NULL ? -1 : (int)(at - ends[i].key);

        CHECK_EQ_INT(got, ends[i].at, ends[i].key);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(wrappers_are_left_out),
                                       cmocka_unit_test(names_end_keys)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

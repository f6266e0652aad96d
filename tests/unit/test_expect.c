/* SPDX-License-Identifier: Apache-2.0 */
/* test_expect.c - the layers that args make, with numbers that no model has. */
#include "lib/rules/expect.h"

#include <string.h>

#include "tests/check.h"

#define LARGEST   INT64_MAX
#define NO_NUMBER INT64_MIN /* a text */

static const struct {
    const char *label;
    int64_t n_layers, n_mtp, n_experts;
    bool repeats;
    int64_t wanted;      /* layers, with the embedding; 0: it is not told */
    const char *unknown; /* what is said then */
} cases[] = {
    {"dense", .n_layers = 4, .wanted = 5},
    {"multi-token prediction", .n_layers = 4, .n_mtp = 3, .wanted = 11},
    {"of one layer that repeats", .n_layers = 4, .n_mtp = 3, .repeats = true, .wanted = 7},
    {"a number that is none", .n_layers = 4, .n_mtp = NO_NUMBER, .wanted = 5},
    {"a number that is none, of one that repeats", .n_layers = 4, .n_mtp = NO_NUMBER,
     .repeats = true, .wanted = 7},
    {"experts", .n_layers = 4, .n_experts = 8, .wanted = 5},
    {"as many experts as are asked for", .n_layers = 3, .n_experts = 250000, .wanted = 4},
    {"layers", .n_layers = 20001, .wanted = 0, .unknown = "more than 20000 layers"},
    {"the largest number of layers", .n_layers = LARGEST, .wanted = 0,
     .unknown = "more than 20000 layers"},
    {"layers of multi-token prediction", .n_layers = 4, .n_mtp = 20001, .wanted = 0,
     .unknown = "more than 20000 layers"},
    {"half the largest number of them", .n_layers = 4, .n_mtp = LARGEST / 2 + 1, .wanted = 0,
     .unknown = "more than 20000 layers"},
    {"the largest number of them", .n_layers = 4, .n_mtp = LARGEST, .wanted = 0,
     .unknown = "more than 20000 layers"},
    {"the largest number, of which one repeats", .n_layers = 4, .n_mtp = LARGEST, .repeats = true,
     .wanted = 7},
    {"experts past the bound", .n_layers = 3, .n_experts = 250001, .wanted = 0,
     .unknown = "more than 1000000 experts"},
    {"the largest number of experts", .n_layers = 4, .n_experts = LARGEST, .wanted = 0,
     .unknown = "more than 1000000 experts"},
    {"experts in each of many layers", .n_layers = 20000, .n_experts = 50, .wanted = 0,
     .unknown = "more than 1000000 experts"},
};

static const struct dcpk_value *make_number(struct dcpk_arena *arena, int64_t n)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    if (n == NO_NUMBER)
        return dcpk_value_str(arena, "some", &err);
    return dcpk_value_int(arena, n, &err);
}

static const struct dcpk_value *make_attrs(struct dcpk_arena *arena, size_t i)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    const struct {
        const char *name;
        int64_t n;
    } args[] = {
        {"num_layers", cases[i].n_layers},
        {"hidden_size", 64},
        {"num_attention_heads", 4},
        {"mtp_num_layers", cases[i].n_mtp},
        {"num_experts", cases[i].n_experts},
        {"mtp_use_repeated_layer", cases[i].repeats},
        {"moe_layer_freq", 1},
    };
    struct dcpk_value_pair pairs[sizeof args / sizeof *args];

    for (size_t k = 0; k < sizeof args / sizeof *args; k++)
        pairs[k] = (struct dcpk_value_pair){dcpk_value_str(arena, args[k].name, &err),
                                            make_number(arena, args[k].n)};
    return dcpk_value_dict(arena, pairs, sizeof args / sizeof *args, &err);
}

static void bounds_what_args_say(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_arena *arena = dcpk_arena_new();
        const struct dcpk_grid mesh = {.tp = 1};
        struct dcpk_expected expected;

        CHECK_OK(dcpk_rules_expect(make_attrs(arena, i), &mesh, arena, &expected, &err),
                 cases[i].label);
        CHECK_EQ_INT((int64_t)expected.n_layers, cases[i].wanted, cases[i].label);
        if (cases[i].unknown == NULL)
            CHECK(expected.unknown == NULL || strstr(expected.unknown, "more than") == NULL,
                  cases[i].label);
        else
            CHECK(expected.unknown != NULL && strstr(expected.unknown, cases[i].unknown) != NULL,
                  cases[i].label);
        dcpk_arena_free(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bounds_what_args_say)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

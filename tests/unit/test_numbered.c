/* SPDX-License-Identifier: Apache-2.0 */
/* test_numbered.c - the parameters that numbers in Megatron's groups stand for. */
#include <string.h>

#include "lib/model/numbered.h"
#include "tests/check.h"

enum { MAX = 4 };

/* A group: its numbers as digits, whether it decays, and whether it is of experts. */
struct group {
    const char *numbers; /* NULL: there is none */
    bool decays, is_expert;
};

/* Parameters as letters: W of two axes, b of one, E and e of experts. want: their places by
 * number. */
static const struct {
    const char *label, *params;
    struct group groups[MAX];
    const char *want, *error;
} cases[] = {
    {"decayed first", "WbWbW", {{"012", true, false}, {"34", false, false}}, "02413", NULL},
    {"the other order", "WbW", {{"0", false, false}, {"12", true, false}}, "102", NULL},
    {"experts apart",
     "WEbeW",
     {{"01", true, false}, {"2", false, false}, {"3", true, true}, {"4", false, true}},
     "04213",
     NULL},
    {"dense ones alone", "WEbe", {{"0", true, false}, {"1", false, false}}, "02", NULL},
    {"a group without parameters", "W", {{"0", true, false}, {"", false, false}}, "0", NULL},
    {"numbers as they come", "WW", {{"10", true, false}}, "10", NULL},
    {"one too few",
     "WW",
     {{"0", true, false}},
     NULL,
     "group 0 of the optimizer has 1 parameters, "},
    {"one too many",
     "W",
     {{"01", true, false}},
     NULL,
     "group 0 of the optimizer has 2 parameters, "},
    {"twice", "WW", {{"00", true, false}}, NULL, "not numbered once each"},
    {"past the end", "WW", {{"05", true, false}}, NULL, "not numbered once each"},
    {"no groups of that kind", "Wb", {{"0", true, true}}, NULL, "group 0 of the optimizer has 1"},
};

static const struct dcpk_value *make_group(struct dcpk_arena *arena, const struct group *g)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    const struct dcpk_value *numbers[8];
    struct dcpk_value_pair pairs[3];
    const size_t n = strlen(g->numbers);

    for (size_t i = 0; i < n; i++)
        numbers[i] = dcpk_value_int(arena, g->numbers[i] - '0', &err);
    pairs[0] = (struct dcpk_value_pair){dcpk_value_str(arena, "params", &err),
                                        dcpk_value_seq(arena, DCPK_V_LIST, numbers, n, &err)};
    pairs[1] = (struct dcpk_value_pair){dcpk_value_str(arena, "wd_mult", &err),
                                        dcpk_value_float(arena, g->decays ? 1.0 : 0.0, &err)};
    pairs[2] = (struct dcpk_value_pair){dcpk_value_str(arena, "is_expert_parallel", &err),
                                        dcpk_value_bool(g->is_expert)};
    return dcpk_value_dict(arena, pairs, 3, &err);
}

static void check_case(size_t c, struct dcpk_arena *arena)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    const struct dcpk_value *groups[MAX];
    struct dcpk_numbered_param params[8];
    struct dcpk_numbered numbered;
    const size_t n_params = strlen(cases[c].params);
    size_t n_groups = 0;

    for (; n_groups < MAX && cases[c].groups[n_groups].numbers != NULL; n_groups++)
        groups[n_groups] = make_group(arena, &cases[c].groups[n_groups]);
    for (size_t i = 0; i < n_params; i++) {
        const char kind = cases[c].params[i];

        params[i].n_axes = kind == 'W' || kind == 'E' ? 2 : 1;
        params[i].is_expert = kind == 'E' || kind == 'e';
    }
    (void)dcpk_numbered_find(dcpk_value_seq(arena, DCPK_V_LIST, groups, n_groups, &err), params,
                             n_params, arena, &numbered, &err);
    if (cases[c].error != NULL) {
        CHECK_EQ_INT(err.status, DCPK_EUNSUPPORTED, cases[c].label);
        CHECK(strstr(err.text, cases[c].error) != NULL, cases[c].label);
        return;
    }
    CHECK_EQ_INT(err.status, DCPK_OK, cases[c].label);
    CHECK_EQ_INT(numbered.n, strlen(cases[c].want), cases[c].label);
    for (size_t i = 0; i < numbered.n; i++)
        CHECK_EQ_INT(numbered.param_of[i], cases[c].want[i] - '0', cases[c].label);
}

static void test_cases(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_numbered numbered;

    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        check_case(c, arena);
    CHECK_EQ_INT(dcpk_numbered_find(dcpk_value_none(), NULL, 0, arena, &numbered, &err),
                 DCPK_EUNSUPPORTED, "no list");
    dcpk_arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

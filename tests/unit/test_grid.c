/* SPDX-License-Identifier: Apache-2.0 */
/* test_grid.c - sizes of a grid as text, and those that do not fit. */
#include "lib/place/grid.h"

#include "lib/base/order.h"
#include "tests/check.h"

static void texts_are_grids(void **state)
{
    static const struct {
        const char *text;
        int64_t tp, pp, dp, cp, etp, instances, bucket_elems;
        bool is_fsdp;
        int64_t n_ranks;
    } cases[] = {
        {"tp=2", 2, 1, 4, 1, 0, 0, 0, false, 8},
        {"pp=3,tp=2", 2, 3, 1, 1, 0, 0, 0, false, 6},
        {"cp=2,dp=1,etp=4,tp=4", 4, 1, 1, 2, 4, 0, 0, false, 8},
        {"tp=16", 16, 1, 1, 1, 0, 0, 0, false, 16},
        {"fsdp=4", 1, 1, 4, 0, 0, 1, 40000000, true, 4},
        {"tp=2,fsdp=60,hsdp=3", 2, 1, 60, 0, 0, 3, 60000000, true, 120},
        {"fsdp=8,bucket=0", 1, 1, 8, 0, 0, 1, 0, true, 8},
    };

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(cases); i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_placing p;

        CHECK_OK(dcpk_placing_parse("--from", cases[i].text, 8, &p, &err), cases[i].text);
        CHECK_EQ_INT(p.grid.tp, cases[i].tp, cases[i].text);
        CHECK_EQ_INT(p.grid.pp, cases[i].pp, cases[i].text);
        CHECK_EQ_INT(p.grid.dp, cases[i].dp, cases[i].text);
        CHECK_EQ_INT(p.grid.cp, cases[i].cp, cases[i].text);
        CHECK_EQ_INT(p.grid.etp, cases[i].etp, cases[i].text);
        CHECK_EQ_INT(p.grid.instances, cases[i].instances, cases[i].text);
        CHECK_EQ_INT(p.bucket_elems, cases[i].bucket_elems, cases[i].text);
        CHECK_EQ_INT(p.is_fsdp, cases[i].is_fsdp, cases[i].text);
        CHECK_EQ_INT(dcpk_grid_ranks(&p.grid), cases[i].n_ranks, cases[i].text);
    }
}

static void other_texts_are_refused(void **state)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "--from: '' is not a list like tp=2,pp=2, each of them once"},
        {"tp", "'tp' is not a list"},
        {"tp=2,", "'' is not a list"},
        {"tp=2,tp=2", "'tp=2' is not a list"},
        {"hsdp=2", "'hsdp=2' is not a list"},
        {"tp=0", "tp is 0, expected 1 to 1048576"},
        {"tp=2x", "'tp=2x' is not a list"},
        {"fsdp=2,pp=2", "'pp=2' is not a list like fsdp=2,tp=2"},
        {"fsdp=3,hsdp=2", "3 ranks are not 2 equal instances"},
        {"tp=1048576,pp=2", "has more ranks than 1048576"},
        {"tp=99999999999999999999", "is not a list"},
    };

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(cases); i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_placing p;

        CHECK_FAILS(dcpk_placing_parse("--from", cases[i].text, 8, &p, &err), DCPK_EUSAGE,
                    cases[i].message, cases[i].text);
    }
}

static void ranks_of_fsdp_begin_with_a_number(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_placing p;

    (void)state;
    CHECK_OK(dcpk_placing_parse_fsdp("--target-dp", "4,tp=2,hsdp=2", &p, &err), "4,tp=2,hsdp=2");
    CHECK_EQ_INT(p.grid.dp, 4, "both instances");
    CHECK_OK(dcpk_placing_parse_fsdp("--target-dp", "4,ep=2,hsdp=2", &p, &err), "4,ep=2,hsdp=2");
    CHECK_EQ_INT(p.grid.ep * p.grid.instances, 4, "experts in both instances");
    CHECK_OK(dcpk_placing_parse_fsdp("--target-dp", "4,tp=2,hsdp=2", &p, &err), "4,tp=2,hsdp=2");
    CHECK_EQ_INT(p.grid.world, 8, "ranks");
    CHECK_FAILS(dcpk_placing_parse_fsdp("--target-dp", "fsdp=4", &p, &err), DCPK_EUSAGE,
                "does not start with a number of ranks", "fsdp=4");
    dcpk_error_clear(&err);
    CHECK_FAILS(dcpk_placing_parse_fsdp("--target-dp", "4,dp=2", &p, &err), DCPK_EUSAGE,
                "'dp=2' is not a list like tp=2,ep=2", "4,dp=2");
}

static void sizes_that_do_not_fit_are_named(void **state)
{
    static const struct {
        struct dcpk_grid grid;
        int64_t n_ranks;
        const char *message;
    } cases[] = {
        {{.tp = 2, .dp = 2}, 8, "tp=2 x cp=1 x dp=2 x pp=1 are not the 8 ranks"},
        {{.ep = 3, .dp = 8}, 8, "etp=1 times ep=3 does not divide the 8 ranks"},
        {{.dp = 8, .instances = 3}, 8, "3 instances"},
        {{.ep = 4, .dp = 4, .instances = 2}, 4, "divide the 2 ranks of an instance in a pipeline"},
        {{.ep = 2, .pp = 2, .dp = 4, .is_tp_pp_dp = true}, 8, "2 are not dp=4"},
    };

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(cases); i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;

        CHECK_FAILS(dcpk_grid_check_ranks(&cases[i].grid, cases[i].n_ranks, &err), DCPK_EUSAGE,
                    cases[i].message, cases[i].message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_grids),
        cmocka_unit_test(other_texts_are_refused),
        cmocka_unit_test(ranks_of_fsdp_begin_with_a_number),
        cmocka_unit_test(sizes_that_do_not_fit_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* test_cover.c - exact covers, and the sentence that names what is wrong. */
#include "lib/tensor/box.h"
#include "tests/every_alloc.h"

#define MAX_PARTS 6

static const struct {
    const char *label;
    int rank;
    int64_t shape[3];
    size_t n;
    int64_t span[MAX_PARTS][6]; /* offsets, extents */
    dcpk_status status;
    const char *text;
} cases[] = {
    {"whole", .rank = 2, .shape = {4, 8}, .n = 1, .span = {{0, 0, 4, 8}}},
    {"scalar", .rank = 0, .n = 1},
    {"scalar, none", .rank = 0, .n = 0, .status = DCPK_EFORMAT,
     .text = "element [] of shape [] is missing"},
    {"scalar, twice", .rank = 0, .n = 2, .status = DCPK_EFORMAT, .text = "parts [] and [] overlap"},
    {"empty tensor", .rank = 2, .shape = {4, 0}, .n = 0},
    {"empty tensor, empty part", .rank = 2, .shape = {4, 0}, .n = 1, .span = {{0, 0, 4, 0}}},
    {"none", .rank = 2, .shape = {4, 8}, .n = 0, .status = DCPK_EFORMAT,
     .text = "element [0, 0] of shape [4, 8] is missing"},
    {"whole twice", .rank = 1, .shape = {4}, .n = 2, .span = {{0, 4}, {0, 4}},
     .status = DCPK_EFORMAT, .text = "parts [0:4] and [0:4] overlap at element [0]"},
    {"rows, out of order", .rank = 2, .shape = {4, 8}, .n = 2,
     .span = {{3, 0, 1, 8}, {0, 0, 3, 8}}},
    {"columns", .rank = 2, .shape = {4, 8}, .n = 2, .span = {{0, 0, 4, 5}, {0, 5, 4, 3}}},
    {"empty part between", .rank = 1, .shape = {4}, .n = 3, .span = {{0, 2}, {2, 0}, {2, 2}}},
    {"pinwheel, which no straight cut divides", .rank = 2, .shape = {3, 3}, .n = 5,
     .span = {{0, 0, 1, 2}, {0, 2, 2, 1}, {1, 0, 2, 1}, {2, 1, 1, 2}, {1, 1, 1, 1}}},
    {"pinwheel without its middle", .rank = 2, .shape = {3, 3}, .n = 4,
     .span = {{0, 0, 1, 2}, {0, 2, 2, 1}, {1, 0, 2, 1}, {2, 1, 1, 2}}, .status = DCPK_EFORMAT,
     .text = "element [1, 1] of shape [3, 3] is missing"},
    {"missing row", .rank = 2, .shape = {4, 8}, .n = 2, .span = {{0, 0, 1, 8}, {2, 0, 2, 8}},
     .status = DCPK_EFORMAT, .text = "element [1, 0] of shape [4, 8] is missing"},
    {"missing corner", .rank = 2, .shape = {4, 8}, .n = 2, .span = {{0, 0, 4, 5}, {0, 5, 3, 3}},
     .status = DCPK_EFORMAT, .text = "element [3, 5] of shape [4, 8] is missing"},
    {"overlap", .rank = 2, .shape = {4, 8}, .n = 2, .span = {{0, 0, 3, 8}, {2, 0, 2, 8}},
     .status = DCPK_EFORMAT, .text = "parts [0:3, 0:8] and [2:4, 0:8] overlap at element [2, 0]"},
    {"right volume, gap first", .rank = 1, .shape = {4}, .n = 2, .span = {{1, 2}, {2, 2}},
     .status = DCPK_EFORMAT, .text = "element [0] of shape [4] is missing"},
    {"right volume, overlap first", .rank = 1, .shape = {4}, .n = 2, .span = {{0, 2}, {0, 2}},
     .status = DCPK_EFORMAT, .text = "parts [0:2] and [0:2] overlap at element [0]"},
    {"two wrongs on a line do not cancel", .rank = 2, .shape = {2, 4}, .n = 4,
     .span = {{0, 0, 1, 3}, {0, 2, 1, 2}, {1, 0, 1, 2}, {1, 3, 1, 1}}, .status = DCPK_EFORMAT,
     .text = "overlap at element [0, 2]"},
    {"outside", .rank = 2, .shape = {4, 8}, .n = 1, .span = {{0, 1, 4, 8}}, .status = DCPK_EFORMAT,
     .text = "offset [0, 1] with extent [4, 8] lies outside the shape [4, 8]"},
    {"negative offset", .rank = 1, .shape = {4}, .n = 1, .span = {{-1, 5}}, .status = DCPK_EFORMAT,
     .text = "offset [-1] with extent [5]"},
    {"negative extent", .rank = 1, .shape = {4}, .n = 1, .span = {{4, -4}}, .status = DCPK_EFORMAT,
     .text = "offset [4] with extent [-4]"},
    {"end overflows", .rank = 1, .shape = {4}, .n = 1, .span = {{4, INT64_MAX}},
     .status = DCPK_EFORMAT, .text = "lies outside"},
    {"negative shape", .rank = 1, .shape = {-4}, .n = 0, .status = DCPK_EFORMAT,
     .text = "negative"},
    {"shape overflows", .rank = 2, .shape = {INT64_MAX, 2}, .n = 0, .status = DCPK_ERANGE,
     .text = "more than"},
    {"large numbers", .rank = 1, .shape = {INT64_MAX}, .n = 2,
     .span = {{0, INT64_MAX - 1}, {INT64_MAX - 1, 1}}},
    {"layers x experts x columns", .rank = 3, .shape = {2, 1, 4}, .n = 4,
     .span = {{0, 0, 0, 1, 1, 2}, {1, 0, 0, 1, 1, 2}, {0, 0, 2, 1, 1, 2}, {1, 0, 2, 1, 1, 2}}},
};

static void each_case(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        const int64_t *spans[MAX_PARTS];

        for (size_t k = 0; k < MAX_PARTS; k++)
            spans[k] = cases[i].span[k];
        if (cases[i].status == DCPK_OK)
            CHECK_OK(dcpk_cover_check(cases[i].shape, cases[i].rank, spans, cases[i].n, &err),
                     cases[i].label);
        else
            CHECK_FAILS(dcpk_cover_check(cases[i].shape, cases[i].rank, spans, cases[i].n, &err),
                        cases[i].status, cases[i].text, cases[i].label);
    }
}

/* Sixteen axes, all of them cut: the most corners that a box can have. */
static void all_axes(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    int64_t shape[DCPK_MAX_RANK], span[2 * DCPK_MAX_RANK];
    const int64_t *spans[] = {span};

    (void)state;
    for (int a = 0; a < DCPK_MAX_RANK; a++) {
        shape[a] = 2;
        span[a] = 0;
        span[DCPK_MAX_RANK + a] = 1;
    }
    CHECK_FAILS(dcpk_cover_check(shape, DCPK_MAX_RANK, spans, 1, &err), DCPK_EFORMAT,
                "element [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1] of shape", "corner");
}

/* Boxes that touch nothing, on sixteen axes: refused before memory grows without bound. */
static void too_irregular(void **state)
{
    enum { N = 64 };
    static int64_t numbers[N][2 * DCPK_MAX_RANK];
    struct dcpk_error err = DCPK_ERROR_INIT;
    const int64_t *spans[N];
    int64_t shape[DCPK_MAX_RANK];

    (void)state;
    for (int a = 0; a < DCPK_MAX_RANK; a++)
        shape[a] = a == 0 ? 4 * N : 12; /* 256 * 12^15 elements fit */
    for (int64_t i = 0; i < N; i++) {
        spans[i] = numbers[i];
        for (int a = 0; a < DCPK_MAX_RANK; a++) {
            numbers[i][a] = a == 0 ? 4 * i : (i + a) % 9;
            numbers[i][DCPK_MAX_RANK + a] = 1 + (i + a) % 3;
        }
    }
    CHECK_FAILS(dcpk_cover_check(shape, DCPK_MAX_RANK, spans, N, &err), DCPK_ERANGE,
                "too irregularly", "64 boxes apart");
}

static dcpk_status check_two_halves(struct dcpk_error *err)
{
    static const int64_t shape[] = {4, 4}, a[] = {0, 0, 2, 4}, b[] = {2, 0, 2, 4};
    static const int64_t *const spans[] = {a, b};

    return dcpk_cover_check(shape, 2, spans, 2, err);
}

static void out_of_memory(void **state)
{
    (void)state;
    every_alloc_fails(check_two_halves, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_case), cmocka_unit_test(all_axes),
                                       cmocka_unit_test(too_irregular),
                                       cmocka_unit_test(out_of_memory)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

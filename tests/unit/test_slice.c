/* SPDX-License-Identifier: Apache-2.0 */
/* test_slice.c - Python's subscripts, against numpy. */
#include "lib/tensor/slice.h"
#include "tests/check.h"

/* a = np.arange(prod(shape)).reshape(shape); r = a[text]: r.shape, r.size, r.sum(). */
static const struct {
    const char *text;
    int rank;
    int64_t shape[4];
    const char *want_shape;
    uint64_t size;
    int64_t sum;
} cases[] = {
    {"0", 1, {4}, "[]", 1, 0},
    {"-1", 1, {4}, "[]", 1, 3},
    {"1:3", 1, {4}, "[2]", 2, 3},
    {":", 1, {4}, "[4]", 4, 6},
    {"::2", 1, {5}, "[3]", 3, 6},
    {"-3:-1", 1, {4}, "[2]", 2, 3},
    {"10:20", 1, {4}, "[0]", 0, 0},
    {"-10:2", 1, {4}, "[2]", 2, 1},
    {"3:1", 1, {4}, "[0]", 0, 0},
    {"1:4:2", 1, {4}, "[2]", 2, 4},
    {"::7", 1, {3}, "[1]", 1, 0},
    {"0, 3:5, :8", 3, {4, 64, 96}, "[2, 8]", 16, 5432},
    {"...", 2, {2, 3}, "[2, 3]", 6, 15},
    {"..., 0", 3, {2, 3, 4}, "[2, 3]", 6, 60},
    {"1, ...", 3, {2, 3, 4}, "[3, 4]", 12, 210},
    {"0, ..., -1", 4, {2, 3, 4, 5}, "[3, 4]", 12, 378},
    {"...", 0, {0}, "[]", 1, 0},
    {"0,1,2", 3, {2, 3, 4}, "[]", 1, 6},
    {" 1 , : ", 2, {2, 3}, "[3]", 3, 12},
    {"1,", 2, {2, 3}, "[3]", 3, 12},
    {":0", 1, {4}, "[0]", 0, 0},
    {"...,1:2", 1, {3}, "[1]", 1, 1},
    {"0,...,1", 2, {2, 3}, "[]", 1, 1},
    {"::-1", 1, {5}, "[5]", 5, 10},
    {"::-1", 1, {0}, "[0]", 0, 0},
    {"3:0:-2", 1, {5}, "[2]", 2, 4},
    {"-2:-9:-1", 1, {4}, "[3]", 3, 3},
    {"10::-3", 1, {8}, "[3]", 3, 12},
    {":2:-1", 1, {5}, "[2]", 2, 7},
    {"1:3:-1", 1, {4}, "[0]", 0, 0},
    {"-9::-1", 1, {4}, "[0]", 0, 0},
    {"::-1, ::-2", 2, {3, 5}, "[3, 3]", 9, 63},
    {"1, ..., ::-4", 3, {2, 3, 9}, "[3, 3]", 9, 360},
    {"::-9223372036854775807", 1, {3}, "[1]", 1, 2},
};

/* The sum of the row-major numbers of what is picked, axis by axis. */
static int64_t sum_picked(const struct dcpk_slice *s, const int64_t *shape, int axis, int64_t row)
{
    int64_t sum = 0;

    if (axis == s->rank)
        return row;
    for (int64_t i = 0; i < s->axis[axis].n; i++)
        sum += sum_picked(s, shape, axis + 1,
                          row * shape[axis] + s->axis[axis].first + i * s->axis[axis].step);
    return sum;
}

static void test_cases(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_slice s;
        int64_t shape[DCPK_MAX_RANK];
        char text[64];
        int rank = 0;

        CHECK_OK(dcpk_slice_parse(cases[c].text, strlen(cases[c].text), cases[c].shape,
                                  cases[c].rank, &s, &err),
                 cases[c].text);
        for (int axis = 0; axis < s.rank; axis++)
            if (!s.axis[axis].is_dropped)
                shape[rank++] = s.axis[axis].n;
        CHECK_EQ_STR(dcpk_shape_format(shape, rank, text, sizeof text), cases[c].want_shape,
                     cases[c].text);
        CHECK_EQ_INT(dcpk_slice_count(&s), cases[c].size, cases[c].text);
        CHECK_EQ_INT(sum_picked(&s, cases[c].shape, 0, 0), cases[c].sum, cases[c].text);
    }
}

static const struct {
    const char *text, *message;
} bad[] = {
    {"", "is not a number"},
    {"4", "index 4 is out of bounds for axis 0 of 4"},
    {"-5", "index -5 is out of bounds for axis 0 of 4"},
    {"0, 6", "axis 1 of 6"},
    {"0, 0, 0", "3 indices for a tensor of rank 2"},
    {"0, 0, 0, 0, 0", "more than 2 indices"},
    {"..., ...", "occurs twice"},
    {"::0", "a step cannot be 0"},
    {"x", "'x' is not a number"},
    {"1 2", "'2' is left over"},
    {"1]", "']' is left over"},
    {",", "is not a number"},
    {"99999999999999999999", "passes 2^63"},
    {"None", "is not a number"},
};

static void test_bad(void **state)
{
    static const int64_t shape[2] = {4, 6};

    (void)state;
    for (size_t c = 0; c < sizeof bad / sizeof *bad; c++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_slice s;

        CHECK_FAILS(dcpk_slice_parse(bad[c].text, strlen(bad[c].text), shape, 2, &s, &err),
                    DCPK_EUSAGE, bad[c].message, bad[c].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases), cmocka_unit_test(test_bad)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

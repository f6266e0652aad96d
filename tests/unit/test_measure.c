/* SPDX-License-Identifier: Apache-2.0 */
/* test_measure.c - distances and tolerance: numpy's isclose, abs differences and views as integers.
 */
#include <math.h>

#include "lib/exec/measure.h"
#include "tests/check.h"

#define H(...)                                                                                     \
    (const uint16_t[8])                                                                            \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    } /* float16 codes */
#define F(...)                                                                                     \
    (const float[8])                                                                               \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define L(...)                                                                                     \
    (const int64_t[8])                                                                             \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

/* What numpy 2.3 says: np.isclose(..., equal_nan=True), np.abs(a - b) in float64, a.view(int). */
static const struct {
    const char *label;
    enum dcpk_dtype dtype;
    const void *a, *b;
    uint64_t n;
    bool has_tolerance;
    struct dcpk_tolerance tolerance;
    struct dcpk_compare want;
} cases[] = {
    {"equal",
     DCPK_F32,
     F(1, NAN),
     F(1, NAN),
     2,
     false,
     {0, 0},
     {true, 0, -1, 0, 0, 0, 0, 0, 0, -1}},
    {"bits",
     DCPK_F32,
     F(1, 2, 3, -1e-3f, 0.0f),
     F(1, 2.0000002f, 3.5f, 1e-3f, -0.0f),
     5,
     false,
     {0, 0},
     {false, 4, 1, 4, 0, 0.5, 2.0, true, 1963336926, 3}},
    {"some close",
     DCPK_F32,
     F(1, 2, 3, -1e-3f, 0.0f),
     F(1, 2.0000002f, 3.5f, 1e-3f, -0.0f),
     5,
     true,
     {0.01, 0.003},
     {false, 1, 2, 4, 0, 0.5, 2.0, true, 1963336926, 3}},
    {"all close",
     DCPK_F32,
     F(1, 2, 3, -1e-3f, 0.0f),
     F(1, 2.0000002f, 3.5f, 1e-3f, -0.0f),
     5,
     true,
     {0.2, 0.003},
     {true, 0, -1, 4, 0, 0.5, 2.0, true, 1963336926, 3}},
    {"inf and NaN",
     DCPK_F32,
     F(NAN, 1, INFINITY, INFINITY, -INFINITY),
     F(NAN, NAN, INFINITY, 1, INFINITY),
     5,
     false,
     {0, 0},
     {false, 3, 1, 3, 1, INFINITY, INFINITY, true, 4278190080, 1}},
    {"no tolerance reaches infinity",
     DCPK_F32,
     F(NAN, 1, INFINITY, INFINITY, -INFINITY),
     F(NAN, NAN, INFINITY, 1, INFINITY),
     5,
     true,
     {1e9, 1e9},
     {false, 3, 1, 3, 1, INFINITY, INFINITY, true, 4278190080, 1}},
    {"f16",
     DCPK_F16,
     H(0x3c00, 0x0001, 0x7bff, 0x0000),
     H(0x3c01, 0x8001, 0x7bfe, 0x0001),
     4,
     false,
     {0, 0},
     {false, 4, 0, 4, 0, 32.0, 2.0, true, 2, 1}},
    {"f16 close",
     DCPK_F16,
     H(0x3c00, 0x0001, 0x7bff, 0x0000),
     H(0x3c01, 0x8001, 0x7bfe, 0x0001),
     4,
     true,
     {1e-3, 1e-3},
     {true, 0, -1, 4, 0, 32.0, 2.0, true, 2, 1}},
    {"i64",
     DCPK_I64,
     L(INT64_C(1) << 62, -5, 7),
     L(-(INT64_C(1) << 62), -5, 8),
     3,
     false,
     {0, 0},
     {false, 2, 0, 2, 0, 9.223372036854775808e18, 2.0, false, 0, 0}},
    {"i64 close",
     DCPK_I64,
     L(INT64_C(1) << 62, -5, 7),
     L(-(INT64_C(1) << 62), -5, 8),
     3,
     true,
     {0.2, 0},
     {false, 1, 0, 2, 0, 9.223372036854775808e18, 2.0, false, 0, 0}},
    {"by zero",
     DCPK_F32,
     F(1e-9f),
     F(0),
     1,
     true,
     {1, 0},
     {false, 1, 0, 1, 0, 9.999999717180685e-10, INFINITY, true, 814313567, 0}},
};

static void check_result(const struct dcpk_compare *got, const struct dcpk_compare *want,
                         const char *label)
{
    CHECK_EQ_INT(got->equal, want->equal, label);
    CHECK_EQ_INT(got->n_different, want->n_different, label);
    CHECK_EQ_INT(got->first_different, want->first_different, label);
    CHECK_EQ_INT(got->n_unequal_bits, want->n_unequal_bits, label);
    CHECK_EQ_INT(got->n_nan, want->n_nan, label);
    CHECK_EQ_INT(got->has_ulp, want->has_ulp, label);
    CHECK_EQ_INT(got->max_ulp, want->max_ulp, label);
    CHECK_EQ_INT(got->worst, want->worst, label);
    CHECK(got->max_abs == want->max_abs, label);
    CHECK(got->max_rel == want->max_rel, label);
}

static void test_cases(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct dcpk_compare got = DCPK_COMPARE_INIT;
        const struct dcpk_element_run run = {cases[c].dtype, cases[c].a, cases[c].b, cases[c].n, 0};

        dcpk_measure(&run, cases[c].has_tolerance ? &cases[c].tolerance : NULL, &got);
        check_result(&got, &cases[c].want, cases[c].label);
    }
}

/* Element by element, last one first, and merged: the same answer. */
static void test_merge(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const size_t bytes = dcpk_dtype_bytes(cases[c].dtype);
        struct dcpk_compare got = DCPK_COMPARE_INIT;

        for (uint64_t i = cases[c].n; i-- > 0;) {
            struct dcpk_compare one = DCPK_COMPARE_INIT;
            const struct dcpk_element_run run = {
                .dtype = cases[c].dtype,
                .a = (const char *)cases[c].a + i * bytes,
                .b = (const char *)cases[c].b + i * bytes,
                .n = 1,
                .first = i,
            };

            dcpk_measure(&run, cases[c].has_tolerance ? &cases[c].tolerance : NULL, &one);
            dcpk_compare_merge(&got, &one);
        }
        check_result(&got, &cases[c].want, cases[c].label);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases), cmocka_unit_test(test_merge)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

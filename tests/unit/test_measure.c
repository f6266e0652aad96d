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
    struct dcpk_compare want; /* its first field: are they equal? */
} cases[] = {
    {"equal", .dtype = DCPK_F32, .a = F(1, NAN), .b = F(1, NAN), .n = 2,
     .want = {true, .first_different = -1, .worst = -1}},
    {"bits", .dtype = DCPK_F32, .a = F(1, 2, 3, -1e-3f, 0.0f),
     .b = F(1, 2.0000002f, 3.5f, 1e-3f, -0.0f), .n = 5,
     .want = {false, .n_different = 4, .first_different = 1, .n_unequal_bits = 4, .max_abs = 0.5,
              .max_rel = 2.0, .has_ulp = true, .max_ulp = 1963336926, .worst = 3}},
    {"some close", .dtype = DCPK_F32, .a = F(1, 2, 3, -1e-3f, 0.0f),
     .b = F(1, 2.0000002f, 3.5f, 1e-3f, -0.0f), .n = 5, .has_tolerance = true,
     .tolerance = {0.01, 0.003},
     .want = {false, .n_different = 1, .first_different = 2, .n_unequal_bits = 4, .max_abs = 0.5,
              .max_rel = 2.0, .has_ulp = true, .max_ulp = 1963336926, .worst = 3}},
    {"all close", .dtype = DCPK_F32, .a = F(1, 2, 3, -1e-3f, 0.0f),
     .b = F(1, 2.0000002f, 3.5f, 1e-3f, -0.0f), .n = 5, .has_tolerance = true,
     .tolerance = {0.2, 0.003},
     .want = {true, .first_different = -1, .n_unequal_bits = 4, .max_abs = 0.5, .max_rel = 2.0,
              .has_ulp = true, .max_ulp = 1963336926, .worst = 3}},
    {"inf and NaN", .dtype = DCPK_F32, .a = F(NAN, 1, INFINITY, INFINITY, -INFINITY),
     .b = F(NAN, NAN, INFINITY, 1, INFINITY), .n = 5,
     .want = {false, .n_different = 3, .first_different = 1, .n_unequal_bits = 3, .n_nan = 1,
              .max_abs = INFINITY, .max_rel = INFINITY, .has_ulp = true, .max_ulp = 4278190080,
              .worst = 1}},
    {"no tolerance reaches infinity", .dtype = DCPK_F32,
     .a = F(NAN, 1, INFINITY, INFINITY, -INFINITY), .b = F(NAN, NAN, INFINITY, 1, INFINITY), .n = 5,
     .has_tolerance = true, .tolerance = {1e9, 1e9},
     .want = {false, .n_different = 3, .first_different = 1, .n_unequal_bits = 3, .n_nan = 1,
              .max_abs = INFINITY, .max_rel = INFINITY, .has_ulp = true, .max_ulp = 4278190080,
              .worst = 1}},
    {"f16", .dtype = DCPK_F16, .a = H(0x3c00, 0x0001, 0x7bff, 0x0000),
     .b = H(0x3c01, 0x8001, 0x7bfe, 0x0001), .n = 4,
     .want = {false, .n_different = 4, .first_different = 0, .n_unequal_bits = 4, .max_abs = 32.0,
              .max_rel = 2.0, .has_ulp = true, .max_ulp = 2, .worst = 1}},
    {"f16 close", .dtype = DCPK_F16, .a = H(0x3c00, 0x0001, 0x7bff, 0x0000),
     .b = H(0x3c01, 0x8001, 0x7bfe, 0x0001), .n = 4, .has_tolerance = true,
     .tolerance = {1e-3, 1e-3},
     .want = {true, .first_different = -1, .n_unequal_bits = 4, .max_abs = 32.0, .max_rel = 2.0,
              .has_ulp = true, .max_ulp = 2, .worst = 1}},
    {"i64", .dtype = DCPK_I64, .a = L(INT64_C(1) << 62, -5, 7), .b = L(-(INT64_C(1) << 62), -5, 8),
     .n = 3,
     .want = {false, .n_different = 2, .first_different = 0, .n_unequal_bits = 2,
              .max_abs = 9.223372036854775808e18, .max_rel = 2.0, .worst = 0}},
    {"i64 close", .dtype = DCPK_I64, .a = L(INT64_C(1) << 62, -5, 7),
     .b = L(-(INT64_C(1) << 62), -5, 8), .n = 3, .has_tolerance = true, .tolerance = {0.2, 0},
     .want = {false, .n_different = 1, .first_different = 0, .n_unequal_bits = 2,
              .max_abs = 9.223372036854775808e18, .max_rel = 2.0, .worst = 0}},
    {"by zero", .dtype = DCPK_F32, .a = F(1e-9f), .b = F(0), .n = 1, .has_tolerance = true,
     .tolerance = {1, 0},
     .want = {false, .n_different = 1, .first_different = 0, .n_unequal_bits = 1,
              .max_abs = 9.999999717180685e-10, .max_rel = INFINITY, .has_ulp = true,
              .max_ulp = 814313567, .worst = 0}},
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

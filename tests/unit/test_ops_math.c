/* SPDX-License-Identifier: Apache-2.0 */
/* test_ops_math.c - exp, log and the sigmoid against libm's in double; Philox; the table of rope.
 */
#include <math.h>
#include <stdio.h>

#include "lib/base/order.h"
#include "lib/device/ops.h"
#include "lib/device/ops_math.h"
#include "tests/check.h"

/* |got - want| in steps between floats at want. */
static double steps_off(float got, double want)
{
    const float near = (float)want;

    return fabs((double)got - want) /
           ((double)nextafterf(fabsf(near), INFINITY) - fabs((double)near));
}

static void check_near(float got, double want, double most, const char *function, float x)
{
    char label[96];

    snprintf(label, sizeof label, "%s(%a) is %a, wanted %a", function, (double)x, (double)got,
             want);
    CHECK(steps_off(got, want) <= most, label);
}

static void functions_are_near(void **state)
{
    (void)state;
    for (int i = -400000; i <= 400000; i++) {
        const float x = (float)i * 2.2e-4f; /* -88 to 88 */

        check_near(dcpk_exp(x), exp((double)x), 2, "exp", x);
        check_near(dcpk_sigmoid(x), 1.0 / (1.0 + exp(-(double)x)), 4, "sigmoid", x);
    }
    for (uint32_t bits = 0x00800000u; bits < 0x7f800000u; bits += 4099) {
        const float x = dcpk_float_of(bits);

        if (fabsf(x - 1.0f) > 1e-3f) /* near 1 the result is near 0, its steps are small */
            check_near(dcpk_log(x), log((double)x), 2, "log", x);
    }
}

static void functions_have_ends(void **state)
{
    static const struct {
        float x, want;
    } cases[] = {{0, 1},         {-104.5f, 0},      {-INFINITY, 0},
                 {89, INFINITY}, {1e30f, INFINITY}, {INFINITY, INFINITY}};

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(cases); i++)
        CHECK(dcpk_exp(cases[i].x) == cases[i].want, "exp");
    CHECK(isnan(dcpk_exp(NAN)), "exp of NaN");
    CHECK(dcpk_exp(-100.0f) > 0, "subnormal");
    CHECK(fabsf(dcpk_log(1.0f)) < 1e-30f, "log 1");
    CHECK(dcpk_sigmoid(-INFINITY) == 0 && dcpk_sigmoid(INFINITY) == 1, "sigmoid");
}

/* Random123's kat_vectors, philox4x32 with 10 rounds, counter and key 0. */
static void philox_is_random123s(void **state)
{
    const struct dcpk_philox block = dcpk_philox_block(0, 0);

    (void)state;
    CHECK_EQ_INT(block.word[0], 0x6627e8d5, "word 0");
    CHECK_EQ_INT(block.word[1], 0xe169c58d, "word 1");
    CHECK_EQ_INT(block.word[2], 0xbc57ac4c, "word 2");
    CHECK_EQ_INT(block.word[3], 0x9b00dbd8, "word 3");
    CHECK(dcpk_philox_unit(0, 0) > 0 && dcpk_philox_unit(UINT32_MAX, UINT32_MAX) <= 1, "unit");
}

/* Position 3, head_dim 4: angles 3 and 3 * 10000^-0.5; cos 3 = -0.98999..., sin 0.03 = 0.0299955.
 */
static void table_is_rounded(void **state)
{
    const struct dcpk_rope whole = {DCPK_F32, 2, 1, 4}, half = {DCPK_BF16, 1, 1, 4};
    float table[8], rounded[4];

    (void)state;
    dcpk_rope_table(&whole, 2, 10000.0, table);
    CHECK(fabsf(table[2] - -0.9899925f) < 1e-6f && fabsf(table[7] - 0.0299955f) < 1e-7f, "F32");
    dcpk_rope_table(&half, 3, 10000.0, rounded);
    CHECK(rounded[0] == -0.98828125f, "bf16, cosine: 8 bits");
    CHECK(rounded[3] == 0x1.ecp-6f, "bf16, sine: 8 bits");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_are_near),
        cmocka_unit_test(functions_have_ends),
        cmocka_unit_test(philox_is_random123s),
        cmocka_unit_test(table_is_rounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* test_exact_sum.c - sums whose bits no order changes, and that lose nothing. */
#include "lib/train/optim.h"

#include <float.h>
#include <math.h>

#include "tests/check.h"
#include "tests/random.h"

#define N 1000

/* Exact results by their own arithmetic: no double holds the partial sums of the last ones. */
static void loses_nothing(void **state)
{
    static const struct {
        const char *label;
        double v[4], want;
    } cases[] = {
        {"nothing", {0, 0, 0, 0}, 0},
        {"one", {1, 0, 0, 0}, 1},
        {"thirds", {1. / 3, 1. / 3, 1. / 3, 0}, 3 * (0x1.5555555555555p-2)},
        {"smallest square of a float", {0x1p-298, 0x1p-298, 0, 0}, 0x1p-297},
        {"far apart", {0x1p300, 0x1p-298, 0, 0}, 0x1p300},
        {"half units add up", {0x1p53, 0.5, 0.5, 1}, 0x1p53 + 2},
        {"carries", {0x1.fffffffffffffp52, 0x1p-0, 0, 0}, 0x1.0p53},
        {"largest", {0x1.fffffep127 * 0x1.fffffep127, 0, 0, 0}, 0x1.fffffep127 * 0x1.fffffep127},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dcpk_exact_sum sum = {0};

        for (int j = 0; j < 4; j++)
            dcpk_exact_sum_add(&sum, cases[i].v[j]);
        CHECK(dcpk_exact_sum_value(&sum) == cases[i].want, cases[i].label);
    }
}

/* Numbers of very different sizes, forwards, and backwards in two parts as two ranks have them. */
static void has_no_order(void **state)
{
    static double v[N];
    uint64_t seed = 7;
    struct dcpk_exact_sum one = {0}, part[2] = {{{0}, 0}, {{0}, 0}};
    long double near = 0;

    (void)state;
    for (int i = 0; i < N; i++) {
        const float x = (float)ldexp((double)random_below(&seed, 1000000) + 1,
                                     (int)random_below(&seed, 120) - 80);

        v[i] = (double)x * (double)x;
        near += (long double)v[i];
    }
    for (int i = 0; i < N; i++)
        dcpk_exact_sum_add(&one, v[i]);
    for (int i = N - 1; i >= 0; i--)
        dcpk_exact_sum_add(&part[i % 2], v[i]);
    dcpk_exact_sum_carry(&part[0]);
    dcpk_exact_sum_carry(&part[1]);
    for (int i = 0; i < DCPK_EXACT_LIMBS; i++)
        part[0].limb[i] += part[1].limb[i];
    CHECK(dcpk_exact_sum_value(&one) == dcpk_exact_sum_value(&part[0]), "order");
    CHECK(fabs(dcpk_exact_sum_value(&one) - (double)near) <= 4 * DBL_EPSILON * (double)near,
          "near the sum in long double");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loses_nothing),
        cmocka_unit_test(has_no_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

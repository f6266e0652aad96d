/* SPDX-License-Identifier: Apache-2.0 */
/* exact_sum.c - a number is taken apart into 32-bit digits, which are added as integers. */
#include "lib/train/exact_sum.h"

#include <assert.h>
#include <math.h>

#define LOWEST_BIT     (-320) /* of limb 0 */
#define MOST_UNCARRIED (UINT32_C(1) << 30)

void dcpk_exact_sum_carry(struct dcpk_exact_sum *sum)
{
    for (int i = 0; i + 1 < DCPK_EXACT_LIMBS; i++) {
        sum->limb[i + 1] += sum->limb[i] >> 32;
        sum->limb[i] &= UINT32_MAX;
    }
    sum->n_added = 0;
}

void dcpk_exact_sum_add(struct dcpk_exact_sum *sum, double v)
{
    int exponent, at;
    uint64_t bits;

    assert(v >= 0 && v < 0x1p319);
    if (v == 0)
        return;
    bits = (uint64_t)ldexp(frexp(v, &exponent), 53); /* v = bits * 2^(exponent - 53) */
    at = exponent - 53 - LOWEST_BIT;
    if (at < 0) {
        assert(at > -53 && (bits & ((UINT64_C(1) << -at) - 1)) == 0);
        bits >>= -at;
        at = 0;
    }
    for (int i = at / 32, shift = at % 32; bits != 0; i++, shift = 0) {
        sum->limb[i] += (int64_t)((bits << shift) & UINT32_MAX);
        bits >>= 32 - shift;
    }
    if (++sum->n_added == MOST_UNCARRIED)
        dcpk_exact_sum_carry(sum);
}

double dcpk_exact_sum_value(const struct dcpk_exact_sum *sum)
{
    struct dcpk_exact_sum carried = *sum;
    double value = 0;

    dcpk_exact_sum_carry(&carried);
    for (int i = DCPK_EXACT_LIMBS - 1; i >= 0; i--)
        value += ldexp((double)carried.limb[i], LOWEST_BIT + 32 * i);
    return value;
}

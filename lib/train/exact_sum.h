/* SPDX-License-Identifier: Apache-2.0 */
/* exact_sum.h - sums of doubles that no order changes: integers wide enough for all of them. */
/*
 *   bit      2^320 ...            2^0             ... 2^-320
 *           +--------+--------+--   --+--------+--------+
 *           | limb 19|        |  ...  |        | limb 0 |     32 bits each, with room for carries
 *           +--------+--------+--   --+--------+--------+
 *                        ^^^^^^^^^ the 53 bits of a number, in two or three limbs
 *
 * A squared fp32 number is at least 2^-298, and 2^60 of them are less than 2^316: each bit of such
 * sums has a place.
 */
#ifndef DCPK_LIB_TRAIN_EXACT_SUM_H
#define DCPK_LIB_TRAIN_EXACT_SUM_H

#include <stdint.h>

#define DCPK_EXACT_LIMBS 20

/* A value; zeroed = 0. Two carried sums are added limb by limb, as integers. */
struct dcpk_exact_sum {
    int64_t limb[DCPK_EXACT_LIMBS];
    uint32_t n_added; /* since it was carried */
};

/* Add v: 0, or from 2^-320 to 2^319 (asserted); bits below 2^-320 are asserted to be 0. */
void dcpk_exact_sum_add(struct dcpk_exact_sum *sum, double v);
/* Bring limbs below 2^32, which 2^31 sums can then be added to. */
void dcpk_exact_sum_carry(struct dcpk_exact_sum *sum);
/* The sum as a double, the same one for the same number: within one unit of its last bit. */
double dcpk_exact_sum_value(const struct dcpk_exact_sum *sum);

#endif

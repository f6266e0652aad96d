/* SPDX-License-Identifier: Apache-2.0 */
/* random.h - random numbers that follow from a seed, so that a test can be run again. */
#ifndef DCPK_TESTS_RANDOM_H
#define DCPK_TESTS_RANDOM_H

#include <stdint.h>

#define RANDOM_STEP UINT64_C(0x9e3779b97f4a7c15) /* of splitmix64 */

static inline uint64_t random_mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static inline uint64_t random_next(uint64_t *seed)
{
    return random_mix(*seed += RANDOM_STEP);
}

/* The n-th number, counted from 1, that follows from the seed 0. */
static inline uint64_t random_nth(uint64_t n)
{
    return random_mix(n * RANDOM_STEP);
}

static inline uint64_t random_below(uint64_t *seed, uint64_t n)
{
    return random_next(seed) % n;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* random.h - random numbers that follow from a seed, so that a test can be run again. */
#ifndef DCPK_TESTS_RANDOM_H
#define DCPK_TESTS_RANDOM_H

#include <stdint.h>

static inline uint64_t random_next(uint64_t *seed) /* splitmix64 */
{
    uint64_t z = *seed += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static inline uint64_t random_below(uint64_t *seed, uint64_t n)
{
    return random_next(seed) % n;
}

#endif

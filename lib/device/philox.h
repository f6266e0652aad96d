/* SPDX-License-Identifier: Apache-2.0 */
/* philox.h - random numbers by counter: any number of a stream without those before it. */
#ifndef DCPK_LIB_DEVICE_PHILOX_H
#define DCPK_LIB_DEVICE_PHILOX_H

#include <stdint.h>

/* Kernels of GPUs compile this file, too. */
#ifdef __CUDACC__
#define DCPK_BOTH static __host__ __device__ inline
#else
#define DCPK_BOTH static inline
#endif

/* Four words. A value. */
struct dcpk_philox {
    uint32_t word[4];
};

/*
 * Block `counter` of the stream of `key`: Philox4x32 with 10 rounds, the counter in the two low
 * words, the high ones 0.
 * Source: Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3 (SC 2011).
 */
DCPK_BOTH struct dcpk_philox dcpk_philox_block(uint64_t key, uint64_t counter)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = 0, c3 = 0;
    struct dcpk_philox block;

    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xd2511f53u * c0, b = (uint64_t)0xcd9e8d57u * c2;

        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)a;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    block.word[0] = c0;
    block.word[1] = c1;
    block.word[2] = c2;
    block.word[3] = c3;
    return block;
}

/* Two words as a double above 0, at most 1, of 53 bits. */
DCPK_BOTH double dcpk_philox_unit(uint32_t high, uint32_t low)
{
    const uint64_t bits = ((uint64_t)high << 32 | low) >> 11;

    return ((double)bits + 0.5) * (1.0 / 9007199254740992.0);
}

#endif

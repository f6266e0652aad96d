/* SPDX-License-Identifier: Apache-2.0 */
/* fingerprint.c - the terms of words in host memory. */
#include "lib/tensor/fingerprint.h"

#include <assert.h>
#include <string.h>

#include "lib/base/cursor.h"

static uint64_t sum_words(const uint8_t *bytes, size_t word_bytes, size_t n_words, uint64_t first)
{
    uint64_t sum = 0;

    switch (word_bytes) {
    case 1:
        for (size_t i = 0; i < n_words; i++)
            sum += bytes[i] * dcpk_fingerprint_key(first + i);
        break;
    case 2:
        for (size_t i = 0; i < n_words; i++)
            sum += dcpk_load_u16le(bytes + 2 * i) * dcpk_fingerprint_key(first + i);
        break;
    default:
        for (size_t i = 0; i < n_words; i++)
            sum += dcpk_load_u32le(bytes + 4 * i) * dcpk_fingerprint_key(first + i);
    }
    return sum;
}

#ifdef __x86_64__
#define LANES 4

typedef uint64_t key_lanes __attribute__((vector_size(8 * LANES)));
typedef uint32_t lanes_of_4 __attribute__((vector_size(4 * LANES)));
typedef uint16_t lanes_of_2 __attribute__((vector_size(2 * LANES)));
typedef uint8_t lanes_of_1 __attribute__((vector_size(LANES)));

/* Adds up the terms of words of one kind; keys follow one another by a sum. */
#define ADD_LANES(kind, n_bytes)                                                                   \
    for (size_t i = 0; i < n_words; i += LANES, next += step) {                                    \
        const key_lanes mixed = next ^ (next >> 32);                                               \
        kind words;                                                                                \
                                                                                                   \
        memcpy(&words, bytes + (n_bytes)*i, sizeof words);                                         \
        sums += __builtin_convertvector(words, key_lanes) *                                        \
                ((mixed * UINT64_C(0xd6e8feb86659fd93)) | 1);                                      \
    }

/* The same as sum_words, of a multiple of LANES words: 5.8 GB/s of 4-byte words instead of 2.5, 2.2
 * of 2-byte words instead of 1.3, by a processor of an EPYC (2026-11-29). */
__attribute__((target("avx2"))) static uint64_t
sum_words_avx2(const uint8_t *bytes, size_t word_bytes, size_t n_words, uint64_t first)
{
    const uint64_t golden = UINT64_C(0x9e3779b97f4a7c15);
    const key_lanes step = {LANES * golden, LANES * golden, LANES * golden, LANES * golden};
    key_lanes next = {(first + 1) * golden, (first + 2) * golden, (first + 3) * golden,
                      (first + 4) * golden};
    key_lanes sums = {0};

    if (word_bytes == 1) {
        ADD_LANES(lanes_of_1, 1)
    } else if (word_bytes == 2) {
        ADD_LANES(lanes_of_2, 2)
    } else {
        ADD_LANES(lanes_of_4, 4)
    }
    return sums[0] + sums[1] + sums[2] + sums[3];
}
#endif

uint64_t dcpk_fingerprint_sum(const void *at, size_t word_bytes, size_t n_words, uint64_t first)
{
    const uint8_t *bytes = at;
    uint64_t sum = 0;
    size_t done = 0;

    assert(word_bytes == 1 || word_bytes == 2 || word_bytes == 4);
#ifdef __x86_64__
    if (n_words >= LANES && __builtin_cpu_supports("avx2")) {
        done = n_words / LANES * LANES;
        sum = sum_words_avx2(bytes, word_bytes, done, first);
    }
#endif
    return sum + sum_words(bytes + done * word_bytes, word_bytes, n_words - done, first + done);
}

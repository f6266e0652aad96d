/* SPDX-License-Identifier: Apache-2.0 */
/* fingerprint.c - the terms of words in host memory. */
#include "lib/tensor/fingerprint.h"

#include <assert.h>

#include "lib/base/cursor.h"

uint64_t dcpk_fingerprint_sum(const void *at, size_t word_bytes, size_t n_words, uint64_t first)
{
    const uint8_t *bytes = at;
    uint64_t sum = 0;

    assert(word_bytes == 1 || word_bytes == 2 || word_bytes == 4);
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

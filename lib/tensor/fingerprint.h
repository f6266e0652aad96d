/* SPDX-License-Identifier: Apache-2.0 */
/* fingerprint.h - a number for the elements of a tensor that does not depend on its cuts or the
 * ranks that hold them. */
/*
 *     F(tensor) = sum over its words i of  v_i * (K(i) | 1)   modulo 2^64
 *
 * A word is an element of 1, 2 or 4 bytes, or a 4-byte part of a wider one; v_i are its bits as a
 * little-endian unsigned number, i is its row-major number in the whole tensor. Each holder of
 * words adds up their terms, in any order; the sum over all holders, each word once, is the
 * tensor's.
 *
 * It guards against misplaced, lost, stale and flipped bytes. It is not cryptographic. K must mix:
 * with K(i) a plain multiple of i, rows and columns of small integers or of constants could be
 * swapped unseen.
 */
#ifndef DCPK_LIB_TENSOR_FINGERPRINT_H
#define DCPK_LIB_TENSOR_FINGERPRINT_H

#include <stddef.h>
#include <stdint.h>

/* K(i) | 1. */
static inline uint64_t dcpk_fingerprint_key(uint64_t i)
{
    uint64_t k = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);

    k ^= k >> 32;
    return (k * UINT64_C(0xd6e8feb86659fd93)) | 1;
}

/* Bytes of a word of elements of elem_bytes: 1, 2, 4, or a multiple of 4. */
static inline size_t dcpk_fingerprint_word_bytes(size_t elem_bytes)
{
    return elem_bytes < 4 ? elem_bytes : 4;
}

/* The terms of n_words words that lie side by side at `at` (any alignment), numbered from `first`
 * on. */
uint64_t dcpk_fingerprint_sum(const void *at, size_t word_bytes, size_t n_words, uint64_t first);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* checked.h - arithmetic on numbers that came from a file. Each returns false on overflow, out then
 * untouched. */
#ifndef DCPK_LIB_BASE_CHECKED_H
#define DCPK_LIB_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool dcpk_add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_add_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

static inline bool dcpk_mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

static inline bool dcpk_add_i64(int64_t a, int64_t b, int64_t *out)
{
    int64_t r;
    if (__builtin_add_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

static inline bool dcpk_mul_i64(int64_t a, int64_t b, int64_t *out)
{
    int64_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

/* value rounded up to a multiple of `multiple` (a power of two). */
static inline bool dcpk_align_u64(uint64_t value, uint64_t multiple, uint64_t *out)
{
    uint64_t r;
    if (__builtin_add_overflow(value, multiple - 1, &r))
        return false;
    *out = r & ~(multiple - 1);
    return true;
}

#endif

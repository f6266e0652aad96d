/* SPDX-License-Identifier: Apache-2.0 */
/* order.h - the smaller and the larger of two numbers, their order, and the length of an array. */
#ifndef DCPK_LIB_BASE_ORDER_H
#define DCPK_LIB_BASE_ORDER_H

#include <stddef.h>
#include <stdint.h>

/* The number of items of an array. A constant expression. Do not use it on a pointer. */
#define DCPK_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/*
 * -1, 0 or 1 as a is less than, equal to or greater than b: what qsort and bsearch ask for.
 * For numbers and pointers of one type. Evaluates both twice. A NaN equals everything.
 */
#define DCPK_THREE_WAY(a, b) (((a) > (b)) - ((a) < (b)))

static inline uint64_t dcpk_min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t dcpk_max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static inline int64_t dcpk_min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t dcpk_max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline size_t dcpk_min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t dcpk_max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

#endif

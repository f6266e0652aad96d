/* SPDX-License-Identifier: Apache-2.0 */
/* order.h - the smaller and the larger of two numbers, the order of numbers, structs and arrays,
 * and the length of an array. */
#ifndef DCPK_LIB_BASE_ORDER_H
#define DCPK_LIB_BASE_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The number of items of an array. A constant expression. Do not use it on a pointer. */
#define DCPK_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/*
 * -1, 0 or 1 as a is less than, equal to or greater than b: what qsort and bsearch ask for.
 * For numbers and pointers of one type. Evaluates both twice. A NaN equals everything.
 */
#define DCPK_THREE_WAY(a, b) (((a) > (b)) - ((a) < (b)))

/* Less than, equal to or greater than 0, for structs at a and b: by the first of the members in
 * which they differ. A later member counts half as much, so it decides only where the others are
 * equal. */
#define DCPK_ORDER_BY(a, b, member) DCPK_THREE_WAY((a)->member, (b)->member)
#define DCPK_ORDER_BY_2(a, b, member, last)                                                        \
    (2 * DCPK_ORDER_BY(a, b, member) + DCPK_ORDER_BY(a, b, last))
#define DCPK_ORDER_BY_3(a, b, member, ...)                                                         \
    (4 * DCPK_ORDER_BY(a, b, member) + DCPK_ORDER_BY_2(a, b, __VA_ARGS__))
#define DCPK_ORDER_BY_4(a, b, member, ...)                                                         \
    (8 * DCPK_ORDER_BY(a, b, member) + DCPK_ORDER_BY_3(a, b, __VA_ARGS__))

/* Orders an array of texts, for qsort. */
static inline int dcpk_compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* -1, 0 or 1 for arrays of n numbers, by the first item in which they differ. */
static inline int dcpk_compare_i64s(const int64_t *a, const int64_t *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (a[i] != b[i])
            return DCPK_THREE_WAY(a[i], b[i]);
    return 0;
}

/*
 * A step of a search by halves for the first of the numbers [low, high) that a condition is true
 * of, and it is true of all after it: *i is the number to test, and becomes `high` if it is, else
 * *i + 1 becomes `low`. False when low is found.
 */
static inline bool dcpk_bisect(size_t low, size_t high, size_t *i)
{
    *i = low + (high - low) / 2;
    return low < high;
}

/* The place of the last of n numbers that is not above `value`. The first one is not; they ascend,
 * a step of step_bytes apart: members of structs. */
static inline size_t dcpk_find_last(const uint64_t *first, size_t step_bytes, size_t n,
                                    uint64_t value)
{
    size_t low = 0, high = n;

    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        const void *at = (const char *)first + middle * step_bytes;

        if (*(const uint64_t *)at <= value)
            low = middle;
        else
            high = middle;
    }
    return low;
}

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

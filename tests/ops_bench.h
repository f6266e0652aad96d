/* SPDX-License-Identifier: Apache-2.0 */
/* ops_bench.h - an opened device of mathematics: numbers of a test to its memory and back. */
#ifndef DCPK_TESTS_OPS_BENCH_H
#define DCPK_TESTS_OPS_BENCH_H

#include "kernels/kernels.h"
#include "tests/check.h"
#include "tests/random.h"

#define OPS_MAX 256 /* pieces of memory that a bench holds */

struct ops_bench {
    const struct dcpk_ops *ops;
    struct dcpk_math *math;
    void *held[OPS_MAX];
    size_t n_held;
};

/* False: the device is not there. */
static inline bool ops_open(struct ops_bench *b, const struct dcpk_ops *ops)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    dcpk_status st;

    *b = (struct ops_bench){.ops = ops};
    st = dcpk_math_open(ops, 0, &b->math, &err);
    if (st == DCPK_EUNSUPPORTED)
        return false;
    CHECK_OK(st, ops->name);
    return true;
}

/* Frees what was held since ops_open. */
static inline void ops_clear(struct ops_bench *b)
{
    while (b->n_held > 0)
        b->math->device->ops->free(b->math->device, b->held[--b->n_held]);
}

static inline void ops_close(struct ops_bench *b)
{
    ops_clear(b);
    b->math->device->ops->close(b->math->device);
}

/* Memory of the device, freed by ops_clear; all its bytes are 0xa5. */
static inline void *ops_room(struct ops_bench *b, size_t n_bytes)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    uint8_t poison[256];
    void *at;

    CHECK(b->n_held < OPS_MAX, "pieces of memory");
    CHECK_OK(
        b->math->device->ops->alloc(b->math->device, DCPK_MEMORY_PRIVATE, n_bytes + 1, &at, &err),
        b->ops->name);
    b->held[b->n_held++] = at;
    memset(poison, 0xa5, sizeof poison);
    for (size_t i = 0; i < n_bytes; i += sizeof poison) {
        const size_t left = n_bytes - i;

        b->ops->copy(b->math, (char *)at + i, poison, left < sizeof poison ? left : sizeof poison);
    }
    CHECK_OK(b->ops->wait(b->math, &err), b->ops->name);
    return at;
}

static inline void *ops_bytes_up(struct ops_bench *b, const void *bytes, size_t n_bytes)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    void *at = ops_room(b, n_bytes);

    b->ops->copy(b->math, at, bytes, n_bytes);
    CHECK_OK(b->ops->wait(b->math, &err), b->ops->name);
    return at;
}

static inline void ops_bytes_down(struct ops_bench *b, const void *at, void *bytes, size_t n_bytes)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    b->ops->copy(b->math, bytes, at, n_bytes);
    CHECK_OK(b->ops->wait(b->math, &err), b->ops->name);
}

/* n numbers as elements of dtype. */
static inline void *ops_up(struct ops_bench *b, enum dcpk_dtype dtype, const float *x, int64_t n)
{
    void *whole = ops_bytes_up(b, x, (size_t)n * sizeof *x);
    void *at = ops_room(b, (size_t)n * dcpk_dtype_bytes(dtype));

    b->ops->cast(b->math, DCPK_F32, dtype, n, whole, at);
    return at;
}

static inline void ops_down(struct ops_bench *b, enum dcpk_dtype dtype, const void *at, float *x,
                            int64_t n)
{
    void *whole = ops_room(b, (size_t)n * sizeof *x);

    b->ops->cast(b->math, dtype, DCPK_F32, n, at, whole);
    ops_bytes_down(b, whole, x, (size_t)n * sizeof *x);
}

/* n numbers between -1 and 1. */
static inline void ops_random(uint64_t seed, float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)((double)random_below(&seed, 1 << 20) / (1 << 19) - 1.0);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_ops.c - the processor's mathematics: its table, and what works element by element. */
#include "kernels/cpu/cpu_ops.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"

float *cpu_scratch(struct dcpk_math *math, int64_t n)
{
    struct cpu_math *m = (struct cpu_math *)math;
    struct dcpk_error err = DCPK_ERROR_INIT;
    float *room;

    if (m->scratch != NULL && m->n_scratch >= (size_t)n)
        return m->scratch;
    room = dcpk_alloc_aligned(CPU_ALIGNMENT, dcpk_max_size((size_t)n, 1) * sizeof *room, &err);
    if (room == NULL) {
        dcpk_math_fault(math, &err);
        return NULL;
    }
    dcpk_free(m->scratch);
    m->scratch = room;
    m->n_scratch = (size_t)n;
    return room;
}

/* The address of element `first`. */
static const void *element_at(enum dcpk_dtype dtype, const void *base, int64_t first)
{
    return (const char *)base + first * (int64_t)dcpk_dtype_bytes(dtype);
}

void cpu_load(enum dcpk_dtype dtype, const void *from, int64_t first, int64_t n, float *x)
{
    struct dcpk_error err;

    dcpk_error_clear(&err);
    if (dtype == DCPK_F32)
        memcpy(x, (const float *)from + first, (size_t)n * sizeof *x);
    else if (dcpk_host_kernels_tuned.cast(dtype, element_at(dtype, from, first), DCPK_F32, x,
                                          (size_t)n, &err))
        assert(false && "a dtype of activations");
}

void cpu_store(enum dcpk_dtype dtype, const float *x, int64_t n, void *to, int64_t first)
{
    void *at = (char *)to + first * (int64_t)dcpk_dtype_bytes(dtype);
    struct dcpk_error err;

    dcpk_error_clear(&err);
    if (dtype == DCPK_F32)
        memcpy(at, x, (size_t)n * sizeof *x);
    else if (dcpk_host_kernels_tuned.cast(DCPK_F32, x, dtype, at, (size_t)n, &err))
        assert(false && "a dtype of activations");
}

#define BLOCK 1024 /* elements that are in fp32 at a time */

static void math_copy(struct dcpk_math *math, void *to, const void *from, size_t n_bytes)
{
    (void)math;
    if (n_bytes > 0)
        memcpy(to, from, n_bytes);
}

static void math_zero(struct dcpk_math *math, void *at, size_t n_bytes)
{
    (void)math;
    if (n_bytes > 0)
        memset(at, 0, n_bytes);
}

static void math_add(struct dcpk_math *math, enum dcpk_dtype dtype, int64_t n, const void *a,
                     const void *b, void *out)
{
    float x[BLOCK], y[BLOCK];

    (void)math;
    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t some = dcpk_min_i64(BLOCK, n - at);

        cpu_load(dtype, a, at, some, x);
        cpu_load(dtype, b, at, some, y);
        for (int64_t i = 0; i < some; i++)
            x[i] += y[i];
        cpu_store(dtype, x, some, out, at);
    }
}

static void math_scale(struct dcpk_math *math, enum dcpk_dtype dtype, int64_t n, float factor,
                       void *x)
{
    float some_x[BLOCK];

    (void)math;
    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t some = dcpk_min_i64(BLOCK, n - at);

        cpu_load(dtype, x, at, some, some_x);
        for (int64_t i = 0; i < some; i++)
            some_x[i] *= factor;
        cpu_store(dtype, some_x, some, x, at);
    }
}

static void math_cast(struct dcpk_math *math, enum dcpk_dtype from, enum dcpk_dtype to, int64_t n,
                      const void *x, void *y)
{
    float some_x[BLOCK];

    (void)math;
    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t some = dcpk_min_i64(BLOCK, n - at);

        cpu_load(from, x, at, some, some_x);
        cpu_store(to, some_x, some, y, at);
    }
}

static void math_accumulate(struct dcpk_math *math, enum dcpk_dtype dtype, int64_t n,
                            const float *x, void *sum)
{
    float some_sum[BLOCK];

    (void)math;
    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t some = dcpk_min_i64(BLOCK, n - at);

        cpu_load(dtype, sum, at, some, some_sum);
        for (int64_t i = 0; i < some; i++)
            some_sum[i] += x[at + i];
        cpu_store(dtype, some_sum, some, sum, at);
    }
}

static void math_copy_rows(struct dcpk_math *math, const struct dcpk_strided_rows *shape,
                           const void *from, void *to)
{
    const int64_t bytes = (int64_t)dcpk_dtype_bytes(shape->dtype);

    (void)math;
    for (int64_t row = 0; row < shape->rows && shape->columns > 0; row++)
        memcpy((char *)to + row * shape->to_stride * bytes,
               (const char *)from + row * shape->from_stride * bytes,
               (size_t)(shape->columns * bytes));
}

const struct dcpk_ops dcpk_cpu_ops = {.name = "cpu",
                                      .summary = "host memory, plain loops, the specification",
                                      .device = &dcpk_cpu_device,
                                      .is_ordered = true,
                                      .copy = math_copy,
                                      .zero = math_zero,
                                      .wait = dcpk_math_take_fault,
                                      .add = math_add,
                                      .scale = math_scale,
                                      .cast = math_cast,
                                      .accumulate = math_accumulate,
                                      .copy_rows = math_copy_rows,
                                      DCPK_OPS_MAIN(DCPK_OPS_ROW, cpu)
                                          DCPK_OPS_OTHER(DCPK_OPS_ROW, cpu)};

/* ---- terms of weighted sums: no product and sum become one operation where they are not written
 * as one ---- */

void dcpk_cpu_add_term(float weight, const float *x, bool first, float *sum, size_t n)
{
    if (first)
        for (size_t i = 0; i < n; i++)
            sum[i] = weight * x[i];
    else
        for (size_t i = 0; i < n; i++)
            sum[i] += weight * x[i];
}

__attribute__((always_inline)) static inline void fuse(float weight, const float *x, bool first,
                                                       float *sum, size_t n)
{
    if (first)
        for (size_t i = 0; i < n; i++)
            sum[i] = weight * x[i];
    else
        for (size_t i = 0; i < n; i++)
            sum[i] = fmaf(weight, x[i], sum[i]);
}

#ifdef __x86_64__
__attribute__((target("avx2,fma"))) static void fuse_by_fma(float weight, const float *x,
                                                            bool first, float *sum, size_t n)
{
    fuse(weight, x, first, sum, n);
}
#endif

void dcpk_cpu_add_fused(float weight, const float *x, bool first, float *sum, size_t n)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2")) {
        fuse_by_fma(weight, x, first, sum, n);
        return;
    }
#endif
    fuse(weight, x, first, sum, n); /* without the instruction: slow, the same bits */
}

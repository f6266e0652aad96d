/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_sum.c - terms of weighted sums. Compiled so that no product and sum become one operation
 * where they are not written as one. */
#include <math.h>

#include "kernels/cpu/cpu.h"

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

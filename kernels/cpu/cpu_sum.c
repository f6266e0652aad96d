/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_sum.c - terms of weighted sums. Compiled so that no product and sum become one operation. */
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

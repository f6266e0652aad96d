/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_values.c - what the processor's mathematics works on: elements of any dtype as floats. */
#include "kernels/cpu/cpu_ops.h"

#include <assert.h>
#include <string.h>

#include "kernels/cpu/cpu_priv.h"
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

const void *cpu_at(enum dcpk_dtype dtype, const void *base, int64_t first)
{
    return (const char *)base + first * (int64_t)dcpk_dtype_bytes(dtype);
}

void cpu_load(enum dcpk_dtype dtype, const void *from, int64_t first, int64_t n, float *x)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    if (dtype == DCPK_F32)
        memcpy(x, (const float *)from + first, (size_t)n * sizeof *x);
    else if (dcpk_host_kernels_tuned.cast(dtype, cpu_at(dtype, from, first), DCPK_F32, x, (size_t)n,
                                          &err))
        assert(false && "a dtype of activations");
}

void cpu_store(enum dcpk_dtype dtype, const float *x, int64_t n, void *to, int64_t first)
{
    void *at = (char *)to + first * (int64_t)dcpk_dtype_bytes(dtype);
    struct dcpk_error err = DCPK_ERROR_INIT;

    if (dtype == DCPK_F32)
        memcpy(at, x, (size_t)n * sizeof *x);
    else if (dcpk_host_kernels_tuned.cast(DCPK_F32, x, dtype, at, (size_t)n, &err))
        assert(false && "a dtype of activations");
}

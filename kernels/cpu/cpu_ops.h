/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_ops.h - what the files of the processor's mathematics share: cpu_ops.c has the table. */
/*
 * The specification of all devices: each element of a result is one sum in one order, in fp32,
 * whose products and additions are rounded one by one (the build switches contraction off). Vectors
 * run over elements of results, never over a sum; so the width of vectors changes no bit. Work is
 * done before a call returns.
 */
#ifndef DCPK_KERNELS_CPU_CPU_OPS_H
#define DCPK_KERNELS_CPU_CPU_OPS_H

#include "kernels/kernels.h"
#include "lib/device/host_kernels.h"
#include "lib/device/ops.h"

struct cpu_math {
    struct dcpk_math base;
    float *scratch; /* grows */
    size_t n_scratch;
};

#define CPU_ALIGNMENT 256 /* bytes, of memory */

/* cpu_ops.c: */
/* Room for n floats, undefined, until the next call for room; NULL, and the fault is kept for
 * wait. */
float *cpu_scratch(struct dcpk_math *math, int64_t n);

/* n elements from `first` on to fp32, and back, rounded. */
void cpu_load(enum dcpk_dtype dtype, const void *from, int64_t first, int64_t n, float *x);
void cpu_store(enum dcpk_dtype dtype, const float *x, int64_t n, void *to, int64_t first);

/* Members of dcpk_ops, in the files that their names say. */
DCPK_OPS_MAIN(DCPK_OPS_DECLARE, cpu)
DCPK_OPS_OTHER(DCPK_OPS_DECLARE, cpu)

/* ---- host kernels, plain and tuned ---- */

/* cpu_plain.c: the specification of casts, for the pairs that are not worth tuning. */
dcpk_status dcpk_cpu_cast(enum dcpk_dtype from, const void *src, enum dcpk_dtype to, void *dst,
                          size_t n_elems, struct dcpk_error *err);

/* The values of a float of 4 bits. Source: OCP MX 1.0, 5.3.3 (FP4). */
extern const float dcpk_cpu_e2m1[16];

/* cpu_ops.c: dcpk_host_kernels' add_term, add_fused. */
void dcpk_cpu_add_term(float weight, const float *x, bool first, float *sum, size_t n);
void dcpk_cpu_add_fused(float weight, const float *x, bool first, float *sum, size_t n);

#endif

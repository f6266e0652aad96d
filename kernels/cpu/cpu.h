/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.h - what kernels/cpu exports, and what its plain and its tuned loops share. */
#ifndef DCPK_KERNELS_CPU_CPU_H
#define DCPK_KERNELS_CPU_CPU_H

#include "lib/device/device.h"
#include "lib/device/host_kernels.h"
#include "lib/device/ops.h"

/* Plain loops: the specification. Also in kernels.h, for the twin tests. */
extern const struct dcpk_host_kernels dcpk_host_kernels_plain;
/* The same results, faster. */
extern const struct dcpk_host_kernels dcpk_host_kernels_tuned;
/* Host memory, and the mathematics of a training step in it. */
extern const struct dcpk_device_ops dcpk_cpu_device;
extern const struct dcpk_ops dcpk_cpu_ops;

/* cpu_plain.c: the specification of casts, for the pairs that are not worth tuning. */
dcpk_status dcpk_cpu_cast(enum dcpk_dtype from, const void *src, enum dcpk_dtype to, void *dst,
                          size_t n_elems, struct dcpk_error *err);

/* The values of a float of 4 bits. Source: OCP MX 1.0, 5.3.3 (FP4). */
extern const float dcpk_cpu_e2m1[16];

/* cpu_sum.c: dcpk_host_kernels' add_term, add_fused. */
void dcpk_cpu_add_term(float weight, const float *x, bool first, float *sum, size_t n);
void dcpk_cpu_add_fused(float weight, const float *x, bool first, float *sum, size_t n);

#endif

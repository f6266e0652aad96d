/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.h - what kernels/cpu exports. */
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

#endif

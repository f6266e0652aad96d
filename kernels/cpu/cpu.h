/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.h - what kernels/cpu exports. */
#ifndef DCPK_KERNELS_CPU_CPU_H
#define DCPK_KERNELS_CPU_CPU_H

#include "lib/device/device.h"
#include "lib/device/device_space.h"
#include "lib/device/ops.h"

/* Plain loops: the specification. Also in kernels.h, for the twin tests. */
extern const struct dcpk_device dcpk_device_cpu_plain;
/* The same results, faster. */
extern const struct dcpk_device dcpk_device_cpu;
/* Host memory, and the mathematics of a training step in it. */
extern const struct dcpk_space_ops dcpk_cpu_space;
extern const struct dcpk_ops dcpk_cpu_ops;

#endif

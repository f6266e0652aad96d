/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.h - NVIDIA GPUs as spaces. */
#ifndef DCPK_KERNELS_CUDA_CUDA_H
#define DCPK_KERNELS_CUDA_CUDA_H

#include "lib/device/device_space.h"

/*
 * DCPK_MEMORY_DEVICE is the GPU's, shared between processes by CUDA IPC handles; it takes plain
 * allocations only, those of torch's expandable segments have no handle. DCPK_MEMORY_HOST is
 * page-locked. `open` returns DCPK_EUNSUPPORTED where no GPU or no driver is, or where the driver
 * is older than the toolkit that this was built with. The calling thread's current device is what
 * it was before a call when it returns.
 */
extern const struct dcpk_space_ops dcpk_cuda_space;

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.h - NVIDIA GPUs as devices, and for mathematics. */
#ifndef DCPK_KERNELS_CUDA_CUDA_H
#define DCPK_KERNELS_CUDA_CUDA_H

#include "lib/device/device.h"
#include "lib/device/ops.h"

/*
 * DCPK_MEMORY_DEVICE is the GPU's, shared between processes by CUDA IPC handles; it takes plain
 * allocations only, those of torch's expandable segments have no handle. DCPK_MEMORY_HOST is
 * page-locked. `open` returns DCPK_EUNSUPPORTED where no GPU or no driver is, or where the driver
 * is older than the toolkit that this was built with. The calling thread's current device is what
 * it was before a call when it returns.
 */
extern const struct dcpk_device_ops dcpk_cuda_device;

/* Products add as the processor's do, to the bit; sums along a row are trees of a block. */
extern const struct dcpk_ops dcpk_cuda_ops;

/* Products by cuBLAS, attention by products: fast, and the same bits for the same call. libcublas
 * is loaded when it is opened: DCPK_EUNSUPPORTED where there is none. Where it was built. */
extern const struct dcpk_ops dcpk_cublas_ops;

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* nvtx.h - NVIDIA's ranges for profilers (NVTX 3), which Nsight Systems shows. */
#ifndef DCPK_KERNELS_NVTX_NVTX_H
#define DCPK_KERNELS_NVTX_NVTX_H

#include "lib/device/ranges.h"

extern const struct dcpk_ranges dcpk_ranges_nvtx;

#endif

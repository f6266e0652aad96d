/* SPDX-License-Identifier: Apache-2.0 */
/* math.cuh - what the kernels of the mathematics share: elements as fp32, sums of a block. */
/*
 * The rules are those of lib/device/ops.h; nvcc gets -fmad=false for these files. A sum is either
 * one thread's, in order, or a block's: each thread adds every MATH_THREADS-th term, then the
 * threads' sums are added as a tree. Neither depends on how many rows there are.
 */
#ifndef DCPK_KERNELS_CUDA_MATH_CUH
#define DCPK_KERNELS_CUDA_MATH_CUH

#include "kernels/cuda/cuda_priv.h"
#include "kernels/cuda/float_codes.cuh"
#include "lib/device/ops_math.h"

static __device__ __forceinline__ float load(int dtype, const void *at, int64_t i)
{
    if (dtype == DCPK_F32)
        return static_cast<const float *>(at)[i];
    if (dtype == DCPK_BF16)
        return __uint_as_float(widen_f32<BF16>(static_cast<const uint16_t *>(at)[i]));
    return __uint_as_float(widen_f32<F16>(static_cast<const uint16_t *>(at)[i]));
}

static __device__ __forceinline__ void store(int dtype, float x, void *at, int64_t i)
{
    const uint32_t wide = __float_as_uint(x);

    if (dtype == DCPK_F32)
        static_cast<float *>(at)[i] = x;
    else if (dtype == DCPK_BF16)
        static_cast<uint16_t *>(at)[i] = static_cast<uint16_t>(narrow_f32<BF16>(wide));
    else
        static_cast<uint16_t *>(at)[i] = static_cast<uint16_t>(narrow_f32<F16>(wide));
}

/* Elements of a grid: element first(), then every step()-th. */
static __device__ __forceinline__ int64_t first()
{
    return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

static __device__ __forceinline__ int64_t step()
{
    return static_cast<int64_t>(gridDim.x) * blockDim.x;
}

/* The sum of all threads' x, for all of them; a block of MATH_THREADS. Not static: nvcc would name
 * the shared memory by a hash of the build's folder. */
template <typename T> inline __device__ T block_sum(T x)
{
    __shared__ T sums[MATH_THREADS];

    __syncthreads();
    sums[threadIdx.x] = x;
    for (int width = MATH_THREADS / 2; width > 0; width /= 2) {
        __syncthreads();
        if (threadIdx.x < width)
            sums[threadIdx.x] += sums[threadIdx.x + width];
    }
    __syncthreads();
    return sums[0];
}

inline __device__ float block_max(float x)
{
    __shared__ float most[MATH_THREADS];

    __syncthreads();
    most[threadIdx.x] = x;
    for (int width = MATH_THREADS / 2; width > 0; width /= 2) {
        __syncthreads();
        if (threadIdx.x < width && most[threadIdx.x + width] > most[threadIdx.x])
            most[threadIdx.x] = most[threadIdx.x + width];
    }
    __syncthreads();
    return most[0];
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* math_fast.cu - what the row "cublas" computes between products: softmax with its gradient, and
 * sums of a norm's weight in parts. */
#include "kernels/cuda/math.cuh"

static __device__ __forceinline__ float warp_sum(float x)
{
    for (int width = 16; width > 0; width /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, width);
    return x;
}

static __device__ __forceinline__ float warp_max(float x)
{
    for (int width = 16; width > 0; width /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, width));
    return x;
}

/* A warp is a row of scores: the keys that the query sees, then zeros. Bound by 6 bytes a score,
 * 12 with gradients (dp is not NULL), of the second cache. */
extern "C" __global__ void math_softmax(struct math_scores a)
{
    const int lane = threadIdx.x % 32;
    const int64_t stride = static_cast<int64_t>(gridDim.x) * SOFTMAX_ROWS;

    for (int64_t row = static_cast<int64_t>(blockIdx.x) * SOFTMAX_ROWS + threadIdx.x / 32;
         row < a.n; row += stride) {
        const int64_t at = row * a.n_keys, n = a.first + row % a.n_rows + 1;
        float most = -INFINITY, sum = 0, back = 0;

        for (int64_t j = lane; j < n; j += 32)
            most = fmaxf(most, a.s[at + j]);
        most = warp_max(most);
        for (int64_t j = lane; j < n; j += 32) {
            const float e = dcpk_exp((a.s[at + j] - most) * a.scale);

            sum += e;
            if (a.dp != nullptr)
                back += e * a.dp[at + j];
        }
        sum = warp_sum(sum);
        back = warp_sum(back) / sum;
        for (int64_t j = lane; j < a.n_keys; j += 32) {
            float p = 0, ds = 0;

            if (j < n)
                p = dcpk_exp((a.s[at + j] - most) * a.scale) / sum;
            if (j < n && a.dp != nullptr)
                ds = p * (a.dp[at + j] - back) * a.scale;
            store(a.dtype, p, a.p, at + j);
            if (a.dp != nullptr)
                store(a.dtype, ds, a.ds, at + j);
        }
    }
}

/* A thread is a column of a part, rows ascending. */
extern "C" __global__ void math_rmsnorm_parts(struct dcpk_rmsnorm shape, int64_t part_rows,
                                              int64_t n_parts, const void *x, const void *dy,
                                              const float *scales, float *sums)
{
    for (int64_t i = first(); i < n_parts * shape.columns; i += step()) {
        const int64_t begin = i / shape.columns * part_rows, column = i % shape.columns;
        float sum = 0;

#pragma unroll 8
        for (int64_t row = begin; row < begin + part_rows && row < shape.rows; row++) {
            const int64_t at = row * shape.columns + column;

            sum += load(shape.dtype, dy, at) * (load(shape.dtype, x, at) * scales[row]);
        }
        sums[i] = sum;
    }
}

/* parts [n_parts, n]. */
extern "C" __global__ void math_add_parts(int64_t n, int64_t n_parts, const float *parts,
                                          float *out)
{
    for (int64_t i = first(); i < n; i += step()) {
        float sum = 0;

#pragma unroll 8
        for (int64_t part = 0; part < n_parts; part++)
            sum += parts[part * n + i];
        out[i] = sum;
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* math_matmul.cu - matrix products in a fixed order, and the sum of their slices. */
#include "kernels/cuda/math.cuh"

#define EACH 4 /* rows and columns of a thread's results */

/* Element (outer, i) of a factor, 0 past its end. */
static __device__ __forceinline__ float factor_load(const struct math_factor &f, int64_t outer,
                                                    int64_t i, int64_t n_inner, bool is_inside)
{
    if (!is_inside || outer >= f.n_outer)
        return 0.0f;
    return load(f.dtype, f.at, f.is_inner_first ? i * f.n_outer + outer : outer * n_inner + i);
}

/* Stage MATMUL_DEPTH x MATMUL_TILE elements: threads go along the axis that is dense in memory. */
static __device__ __forceinline__ void factor_stage(const struct math_factor &f, int64_t outer,
                                                    int64_t i, int64_t end, int64_t n_inner,
                                                    float to[MATMUL_DEPTH][MATMUL_TILE + 1])
{
    for (int e = threadIdx.x; e < MATMUL_DEPTH * MATMUL_TILE; e += blockDim.x) {
        const int d = f.is_inner_first ? e / MATMUL_TILE : e % MATMUL_DEPTH;
        const int o = f.is_inner_first ? e % MATMUL_TILE : e / MATMUL_DEPTH;

        to[d][o] = factor_load(f, outer + o, i + d, n_inner, i + d < end);
    }
}

/*
 * A block of 256 threads computes MATMUL_TILE x MATMUL_TILE sums of one slice (blockIdx.z), each
 * thread EACH x EACH of them, i ascending: the bits of the processor's. Bound by 2 flops an
 * element, multiplied and added apart.
 */
extern "C" __global__ void __launch_bounds__(MATMUL_THREADS) math_multiply(struct math_product p)
{
    __shared__ float a[MATMUL_DEPTH][MATMUL_TILE + 1], b[MATMUL_DEPTH][MATMUL_TILE + 1];
    const int64_t n = p.n_inner / (p.n_slices * p.n_parts);
    const int64_t row = static_cast<int64_t>(blockIdx.y) * MATMUL_TILE;
    const int64_t column = static_cast<int64_t>(blockIdx.x) * MATMUL_TILE;
    const int thread_row = threadIdx.x / 16, thread_column = threadIdx.x % 16;
    float sums[EACH][EACH] = {};

    for (int64_t part = 0; part < p.n_parts; part++) {
        const int64_t begin = part * (p.n_inner / p.n_parts) + blockIdx.z * n, end = begin + n;

        for (int64_t i = begin; i < end; i += MATMUL_DEPTH) {
            __syncthreads();
            factor_stage(p.a, row, i, end, p.n_inner, a);
            factor_stage(p.b, column, i, end, p.n_inner, b);
            __syncthreads();
#pragma unroll
            for (int d = 0; d < MATMUL_DEPTH; d++)
#pragma unroll
                for (int r = 0; r < EACH; r++)
#pragma unroll
                    for (int c = 0; c < EACH; c++)
                        sums[r][c] += a[d][thread_row + 16 * r] * b[d][thread_column + 16 * c];
        }
    }
    for (int r = 0; r < EACH; r++)
        for (int c = 0; c < EACH; c++) {
            const int64_t y = row + thread_row + 16 * r, x = column + thread_column + 16 * c;

            if (y < p.a.n_outer && x < p.b.n_outer)
                store(p.out_dtype, sums[r][c], p.out,
                      (blockIdx.z * p.a.n_outer + y) * p.b.n_outer + x);
        }
}

/* At most DCPK_MAX_SLICES: a thread holds those of one element. */
extern "C" __global__ void math_add_slices(int dtype, int64_t n, int64_t n_slices,
                                           const float *partials, void *out)
{
    for (int64_t i = first(); i < n; i += step()) {
        float sums[DCPK_MAX_SLICES];

        for (int64_t s = 0; s < n_slices; s++)
            sums[s] = partials[s * n + i];
        for (int64_t width = 1; width < n_slices; width *= 2)
            for (int64_t s = 0; s + width < n_slices; s += 2 * width)
                sums[s] += sums[s + width];
        store(dtype, sums[0], out, i);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* tile_read.cu - fingerprints of tiles that are only read: what has landed, what is in memory. */
#include "kernels/cuda/tile.cuh"

static __device__ uint64_t read_units(const struct dcpk_tile &t, uint32_t row_bytes,
                                      uint32_t word_bytes, const struct dcpk_tile_words &words)
{
    const uint32_t a_row = row_bytes / 16, n = a_row * t.n_rows, words_a_unit = 16 / word_bytes;
    tile_walk w(threadIdx.x, a_row, CUDA_THREADS);
    uint64_t sum = 0;

    for (uint32_t i = threadIdx.x; i < n; i += 4 * CUDA_THREADS) {
        uint4 v[4];
        uint64_t number[4];

#pragma unroll
        for (int k = 0; k < 4; k++) {
            if (i + k * CUDA_THREADS < n) {
                v[k] = load_16(src_row(t, w.row) + 16ull * w.col);
                number[k] = words.first + w.row * words.row_step + w.col * words_a_unit;
            }
            w.next();
        }
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (i + k * CUDA_THREADS < n)
                sum += unit_sum(word_bytes, number[k], v[k]);
    }
    return sum;
}

/* Every block runs from the start and takes every n-th tile. What its threads have is added to a
 * sum when that changes, not at each tile. */
extern "C" __global__ void __launch_bounds__(CUDA_THREADS, CUDA_READ_BLOCKS)
    read_tiles(const __grid_constant__ struct cuda_tiles list)
{
    struct dcpk_tile next = tile_load(list.tiles + blockIdx.x);
    struct dcpk_tile_words next_words = list.words[blockIdx.x];
    uint32_t to = next_words.sum;
    uint64_t sum = 0;

    for (uint32_t i = blockIdx.x; i < list.n; i += gridDim.x) {
        const struct dcpk_tile t = next;
        const struct dcpk_tile_words words = next_words;
        const uint32_t elem_bytes = list.elem_bytes[t.to];
        const uint32_t word_bytes = elem_bytes < 4 ? elem_bytes : 4;
        const uint32_t row_bytes = t.n_elems * elem_bytes;
        const int64_t stride = t.n_rows > 1 ? t.src_stride_bytes : 0;
        const uint32_t bits = static_cast<uint32_t>(t.src) | static_cast<uint32_t>(stride);

        if (i + gridDim.x < list.n) { /* on its way while this one is read */
            next = tile_load(list.tiles + i + gridDim.x);
            next_words = list.words[i + gridDim.x];
        }
        if (words.sum != to) {
            sum_add(list.sums, to, sum);
            to = words.sum;
            sum = 0;
        }
        if ((bits | row_bytes) % 16 == 0)
            sum += read_units(t, row_bytes, word_bytes, words);
        else
            sum += source_sum<CUDA_THREADS>(t, words, word_bytes, row_bytes, threadIdx.x);
    }
    sum_add(list.sums, to, sum);
}

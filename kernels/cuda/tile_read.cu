/* SPDX-License-Identifier: Apache-2.0 */
/* tile_read.cu - fingerprints of tiles that are only read: what has landed, what is in memory. */
#include "kernels/cuda/tile.cuh"

/*
 * A tile of whole units, by a block. The words' size is the template's, and the last units have a
 * loop of their own: 4168 GB/s of f32 and 2515 of bf16; with a branch on the size in the loop 3726
 * and 2209, with all units guarded 3374 and 2117.
 */
template <uint32_t WORD>
static __device__ __forceinline__ uint64_t read_units_of(const struct dcpk_tile &t,
                                                         uint32_t row_bytes,
                                                         const struct dcpk_tile_words &words)
{
    const uint32_t a_row = row_bytes / 16, n = a_row * t.n_rows, words_a_unit = 16 / WORD;
    tile_walk w(threadIdx.x, a_row, CUDA_THREADS);
    uint64_t sum = 0;

    uint32_t i = threadIdx.x;

    for (; i + 3 * CUDA_THREADS < n; i += 4 * CUDA_THREADS) {
        uint4 v[4];
        uint64_t number[4];

#pragma unroll
        for (int k = 0; k < 4; k++) {
            v[k] = load_16(src_row(t, w.row) + 16ull * w.col);
            number[k] = words.first + w.row * words.row_step + w.col * words_a_unit;
            w.next();
        }
#pragma unroll
        for (int k = 0; k < 4; k++)
            sum += words_sum<WORD>(number[k], v[k]);
    }
    for (; i < n; i += CUDA_THREADS) {
        const uint4 v = load_16(src_row(t, w.row) + 16ull * w.col);

        sum += words_sum<WORD>(words.first + w.row * words.row_step + w.col * words_a_unit, v);
        w.next();
    }
    return sum;
}

static __device__ uint64_t read_units(const struct dcpk_tile &t, uint32_t row_bytes,
                                      uint32_t word_bytes, const struct dcpk_tile_words &words)
{
    if (word_bytes == 4)
        return read_units_of<4>(t, row_bytes, words);
    if (word_bytes == 2)
        return read_units_of<2>(t, row_bytes, words);
    return read_units_of<1>(t, row_bytes, words);
}

extern "C" __global__ void __launch_bounds__(CUDA_THREADS)
    read_tiles(const __grid_constant__ struct cuda_tiles list)
{
    for (uint32_t i = blockIdx.x; i < list.n; i += gridDim.x) {
        const struct dcpk_tile t = tile_load(list.tiles + i);
        const struct dcpk_tile_words words = list.words[i];
        const uint32_t elem_bytes = list.elem_bytes[t.to];
        const uint32_t word_bytes = word_bytes_of(elem_bytes);
        const uint32_t row_bytes = t.n_elems * elem_bytes;
        const uint64_t stride = used_stride(t, t.src_stride_bytes);
        const uint32_t bits = static_cast<uint32_t>(t.src) | static_cast<uint32_t>(stride);
        uint64_t sum;

        if ((bits | row_bytes) % 16 == 0)
            sum = read_units(t, row_bytes, word_bytes, words);
        else
            sum = source_sum<CUDA_THREADS>(t, words, word_bytes, row_bytes, threadIdx.x);
        sum_add(list.sums, words.sum, sum);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* tile.cuh - what all kernels do alike: share out tiles, walk a tile's rows, load, store, add up.
 */
/*
 * A group of threads, a block or a warp, takes one tile. Thread i of it handles the units i, i +
 * GROUP, i + 2 * GROUP ... of the tile, row by row, a unit being 16 bytes at the destination where
 * the tile allows it. Figures in comments are GB/s moved on an H200, whose memcpy reaches 2112.
 */
#ifndef DCPK_KERNELS_CUDA_TILE_CUH
#define DCPK_KERNELS_CUDA_TILE_CUH

#include "kernels/cuda/cuda_priv.h"

#define WARP 32

/*
 * The four kernels of a function template over <GROUP, SUMS, ...>, called name_block, name_warp,
 * name_block_sums and name_warp_sums: the host finds them by these names.
 */
#define TILE_KERNEL(name, function, group, sums, ...)                                              \
    extern "C" __global__ void __launch_bounds__(CUDA_THREADS)                                     \
        name(const __grid_constant__ struct cuda_tiles list)                                       \
    {                                                                                              \
        function<group, sums, ##__VA_ARGS__>(list);                                                \
    }
#define TILE_KERNELS(name, function, ...)                                                          \
    TILE_KERNEL(name##_block, function, CUDA_THREADS, false, ##__VA_ARGS__)                        \
    TILE_KERNEL(name##_warp, function, WARP, false, ##__VA_ARGS__)                                 \
    TILE_KERNEL(name##_block_sums, function, CUDA_THREADS, true, ##__VA_ARGS__)                    \
    TILE_KERNEL(name##_warp_sums, function, WARP, true, ##__VA_ARGS__)

/* The first tile of a thread's group, and how far it is to its next. */
template <unsigned GROUP> __device__ __forceinline__ uint32_t tile_first()
{
    return blockIdx.x * (CUDA_THREADS / GROUP) + threadIdx.x / GROUP;
}

template <unsigned GROUP> __device__ __forceinline__ uint32_t tile_step()
{
    return gridDim.x * (CUDA_THREADS / GROUP);
}

__device__ __forceinline__ struct dcpk_tile tile_load(const struct dcpk_tile *at)
{
    static_assert(sizeof(struct dcpk_tile) == 3 * sizeof(uint4), "a tile is three loads");
    union {
        uint4 parts[3];
        struct dcpk_tile tile;
    } u;

    for (int i = 0; i < 3; i++)
        u.parts[i] = __ldg(reinterpret_cast<const uint4 *>(at) + i);
    return u.tile;
}

/* A thread's units of a tile, in order: no division after the first. */
struct tile_walk {
    uint32_t row, col; /* col in units */
    uint32_t units_a_row, step_rows, step_cols;

    __device__ tile_walk(uint32_t first, uint32_t a_row, uint32_t step) : units_a_row(a_row)
    {
        row = first / a_row;
        col = first - row * a_row;
        step_rows = step / a_row;
        step_cols = step - step_rows * a_row;
    }

    __device__ __forceinline__ void next()
    {
        row += step_rows;
        col += step_cols;
        if (col >= units_a_row) {
            col -= units_a_row;
            row++;
        }
    }
};

__device__ __forceinline__ uint64_t src_row(const struct dcpk_tile &t, uint32_t row)
{
    return t.src + static_cast<int64_t>(row) * t.src_stride_bytes;
}

__device__ __forceinline__ uint64_t dst_row(const struct dcpk_tile &t, uint32_t row)
{
    return t.dst + static_cast<int64_t>(row) * t.dst_stride_bytes;
}

/* A stride of the tile that counts: of one row none does. */
__device__ __forceinline__ uint64_t used_stride(const struct dcpk_tile &t, int64_t stride_bytes)
{
    return static_cast<uint64_t>(t.n_rows > 1 ? stride_bytes : 0);
}

/* The words that a fingerprint sums: elements, or their parts of 4 bytes. */
__device__ __forceinline__ uint32_t word_bytes_of(uint32_t elem_bytes)
{
    return elem_bytes < 4 ? elem_bytes : 4;
}

/* Streaming: what is moved is not read again soon. */
__device__ __forceinline__ uint4 load_16(uint64_t at)
{
    return __ldcs(reinterpret_cast<const uint4 *>(at));
}

__device__ __forceinline__ void store_16(uint64_t at, uint4 v)
{
    __stcs(reinterpret_cast<uint4 *>(at), v);
}

/* A little-endian number of 1, 2, 4 or 8 bytes at any address. */
__device__ __forceinline__ uint64_t load_bytes(uint64_t at, uint32_t n_bytes)
{
    uint64_t value = 0;

    for (uint32_t i = 0; i < n_bytes; i++)
        value |= static_cast<uint64_t>(*reinterpret_cast<const uint8_t *>(at + i)) << (8 * i);
    return value;
}

__device__ __forceinline__ void store_bytes(uint64_t at, uint32_t n_bytes, uint64_t value)
{
    for (uint32_t i = 0; i < n_bytes; i++)
        *reinterpret_cast<uint8_t *>(at + i) = static_cast<uint8_t>(value >> (8 * i));
}

/* --- fingerprints, lib/tensor/fingerprint.h --- */

#define KEY_STEP UINT64_C(0x9e3779b97f4a7c15)
#define KEY_MIX  UINT64_C(0xd6e8feb86659fd93)

/* The term of a word; k: (its number + 1) * KEY_STEP, which a run of words adds up. */
__device__ __forceinline__ uint64_t word_term(uint64_t k, uint32_t value)
{
    k ^= k >> 32;
    return value * ((k * KEY_MIX) | 1);
}

/* All words of WORD bytes each of 16, of which the first has the number `number`. */
template <uint32_t WORD> __device__ __forceinline__ uint64_t words_sum(uint64_t number, uint4 v)
{
    const uint32_t part[4] = {v.x, v.y, v.z, v.w};
    uint64_t k = (number + 1) * KEY_STEP, sum = 0;

#pragma unroll
    for (uint32_t i = 0; i < 16 / WORD; i++) {
        const uint32_t value = part[i * WORD / 4] >> (8 * (i * WORD % 4));
        const uint32_t mask = WORD == 4 ? ~0u : (1u << (8 * WORD % 32)) - 1;

        sum += word_term(k, value & mask);
        k += KEY_STEP;
    }
    return sum;
}

/* The same for a size of words that is the same in the whole group. */
__device__ __forceinline__ uint64_t unit_sum(uint32_t word_bytes, uint64_t number, uint4 v)
{
    if (word_bytes == 4)
        return words_sum<4>(number, v);
    if (word_bytes == 2)
        return words_sum<2>(number, v);
    return words_sum<1>(number, v);
}

/* The elements at the rows of a tile's source, a word a thread: any alignment, and slow. */
template <unsigned GROUP>
__device__ uint64_t source_sum(const struct dcpk_tile &t, const struct dcpk_tile_words &words,
                               uint32_t word_bytes, uint32_t row_bytes, uint32_t lane)
{
    const uint32_t a_row = row_bytes / word_bytes, n = a_row * t.n_rows;
    tile_walk w(lane, a_row, GROUP);
    uint64_t sum = 0;

    for (uint32_t i = lane; i < n; i += GROUP) {
        const uint64_t number = words.first + w.row * words.row_step + w.col;
        const uint64_t value = load_bytes(src_row(t, w.row) + w.col * word_bytes, word_bytes);

        sum += word_term((number + 1) * KEY_STEP, static_cast<uint32_t>(value));
        w.next();
    }
    return sum;
}

/* Add what the threads of a warp have to one of the sums. */
__device__ __forceinline__ void sum_add(unsigned long long *sums, uint32_t sum, uint64_t value)
{
    for (int distance = WARP / 2; distance > 0; distance /= 2)
        value += __shfl_down_sync(~0u, value, distance);
    if (threadIdx.x % WARP == 0)
        atomicAdd(sums + sum, static_cast<unsigned long long>(value));
}

#endif

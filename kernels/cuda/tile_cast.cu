/* SPDX-License-Identifier: Apache-2.0 */
/* tile_cast.cu - tiles whose elements are cast on the way. */
#include "kernels/cuda/float_codes.cuh"
#include "kernels/cuda/tile.cuh"
extern "C" {
#include "lib/tensor/dtype.h"
}

/* Loads of a unit, as large as they can be. */
template <int BYTES> struct load_of {
    typedef uint4 type;
};
template <> struct load_of<8> {
    typedef uint2 type;
};
template <> struct load_of<4> {
    typedef uint32_t type;
};

/* Code i of packed ones. */
template <int BYTES> __device__ __forceinline__ uint32_t code_get(const uint32_t *packed, int i)
{
    if (BYTES == 4)
        return packed[i];
    return packed[i * BYTES / 4] >> (8 * (i * BYTES % 4)) & ((1u << (8 * BYTES % 32)) - 1);
}

template <int BYTES>
__device__ __forceinline__ void code_put(uint32_t *packed, int i, uint32_t code)
{
    packed[i * BYTES / 4] |= code << (8 * (i * BYTES % 4));
}

/*
 * A unit stores 16 bytes and loads what they are made of: 8 of bf16 for f32 (two stores a thread
 * would not lie side by side in a warp: 2.7 TB/s read and written instead of 3.9), 32 of f32 for
 * bf16.
 */
template <typename FROM, typename TO> struct cast_unit {
    static const int ELEMS = 16 / TO::BYTES;
    static const int LOAD_BYTES = ELEMS * FROM::BYTES < 16 ? ELEMS * FROM::BYTES : 16;
    static const int LOADS = ELEMS * FROM::BYTES / LOAD_BYTES;
    typedef typename load_of<LOAD_BYTES>::type load;

    uint32_t in[ELEMS * FROM::BYTES / 4];

    __device__ __forceinline__ void fetch(uint64_t at)
    {
#pragma unroll
        for (int i = 0; i < LOADS; i++)
            reinterpret_cast<load *>(in)[i] = __ldcs(reinterpret_cast<const load *>(at) + i);
    }

    __device__ __forceinline__ uint4 cast() const
    {
        uint32_t out[4] = {0, 0, 0, 0};

#pragma unroll
        for (int i = 0; i < ELEMS; i++)
            code_put<TO::BYTES>(out, i,
                                narrow_f32<TO>(widen_f32<FROM>(code_get<FROM::BYTES>(in, i))));
        return make_uint4(out[0], out[1], out[2], out[3]);
    }
};

template <typename FROM, typename TO, unsigned GROUP, bool SUMS>
__device__ uint64_t cast_units(const struct dcpk_tile &t, uint32_t lane,
                               const struct dcpk_tile_words &words)
{
    typedef cast_unit<FROM, TO> unit;
    const uint32_t IN_FLIGHT = unit::LOADS > 1 ? 2 : 4;
    const uint32_t a_row = t.n_elems / unit::ELEMS, n = a_row * t.n_rows;
    tile_walk w(lane, a_row, GROUP);
    uint64_t sum = 0;

    for (uint32_t i = lane; i < n; i += IN_FLIGHT * GROUP) {
        unit u[IN_FLIGHT];
        uint64_t to[IN_FLIGHT], number[IN_FLIGHT];

#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++) {
            if (i + k * GROUP < n) {
                u[k].fetch(src_row(t, w.row) + uint64_t{unit::ELEMS * FROM::BYTES} * w.col);
                to[k] = dst_row(t, w.row) + 16ull * w.col;
                number[k] = words.first + w.row * words.row_step + w.col * unit::ELEMS;
            }
            w.next();
        }
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++) {
            if (i + k * GROUP < n) {
                const uint4 v = u[k].cast();

                store_16(to[k], v);
                if (SUMS)
                    sum += words_sum<TO::BYTES>(number[k], v);
            }
        }
    }
    return sum;
}

/* The term of one element of up to 8 bytes, in words of up to 4. */
__device__ __forceinline__ uint64_t element_sum(const struct dcpk_tile_words &words, uint32_t row,
                                                uint32_t col, int n_bytes, uint64_t code)
{
    const uint32_t a_element = n_bytes == 8 ? 2 : 1;
    const uint64_t number = words.first + row * words.row_step + uint64_t{a_element} * col;
    uint64_t sum = word_term((number + 1) * KEY_STEP, static_cast<uint32_t>(code));

    if (a_element == 2)
        sum += word_term((number + 2) * KEY_STEP, static_cast<uint32_t>(code >> 32));
    return sum;
}

/* An element a thread, at any address; CAST: from code to code. */
template <unsigned GROUP, bool SUMS, typename CAST>
__device__ uint64_t cast_elements(const struct dcpk_tile &t, uint32_t lane,
                                  const struct dcpk_tile_words &words, int from_bytes, int to_bytes,
                                  CAST cast)
{
    const uint32_t n = t.n_elems * t.n_rows;
    tile_walk w(lane, t.n_elems, GROUP);
    uint64_t sum = 0;

    for (uint32_t i = lane; i < n; i += GROUP) {
        const uint64_t from = src_row(t, w.row) + uint64_t{w.col} * from_bytes;
        const uint64_t code = cast(load_bytes(from, from_bytes));

        store_bytes(dst_row(t, w.row) + uint64_t{w.col} * to_bytes, to_bytes, code);
        if (SUMS)
            sum += element_sum(words, w.row, w.col, to_bytes, code);
        w.next();
    }
    return sum;
}

/* True if all units of the tile are whole and at places that the loads and stores of a unit
 * take. */
template <typename FROM, typename TO>
__device__ __forceinline__ bool are_units(const struct dcpk_tile &t)
{
    typedef cast_unit<FROM, TO> unit;
    const uint64_t src = t.src | used_stride(t, t.src_stride_bytes);
    const uint64_t dst = t.dst | used_stride(t, t.dst_stride_bytes);

    return t.n_elems % unit::ELEMS == 0 && src % unit::LOAD_BYTES == 0 && dst % 16 == 0;
}

template <unsigned GROUP, bool SUMS, typename FROM, typename TO>
__device__ __forceinline__ void cast_tiles(const struct cuda_tiles &list)
{
    const uint32_t lane = threadIdx.x % GROUP;

    for (uint32_t i = tile_first<GROUP>(); i < list.n; i += tile_step<GROUP>()) {
        const struct dcpk_tile t = tile_load(list.tiles + i);
        struct dcpk_tile_words words = {};
        uint64_t sum;

        if (SUMS)
            words = list.words[i];
        if (are_units<FROM, TO>(t))
            sum = cast_units<FROM, TO, GROUP, SUMS>(t, lane, words);
        else
            sum = cast_elements<GROUP, SUMS>(
                t, lane, words, FROM::BYTES, TO::BYTES, [](uint64_t code) -> uint64_t {
                    return narrow_f32<TO>(widen_f32<FROM>(static_cast<uint32_t>(code)));
                });
        if (SUMS)
            sum_add(list.sums, words.sum, sum);
    }
}

__device__ __forceinline__ struct float_type type_of(uint8_t dtype)
{
    switch (dtype) {
    case DCPK_F64:
        return {8, 52, 1023, true};
    case DCPK_F32:
        return {4, 23, 127, true};
    case DCPK_F16:
        return {2, 10, 15, true};
    case DCPK_BF16:
        return {2, 7, 127, true};
    case DCPK_F8_E5M2:
        return {1, 2, 15, true};
    default:
        return {1, 3, 7, false};
    }
}

template <unsigned GROUP, bool SUMS>
__device__ __forceinline__ void cast_any_tiles(const struct cuda_tiles &list)
{
    const uint32_t lane = threadIdx.x % GROUP;

    for (uint32_t i = tile_first<GROUP>(); i < list.n; i += tile_step<GROUP>()) {
        const struct dcpk_tile t = tile_load(list.tiles + i);
        const struct float_type from = type_of(t.from), to = type_of(t.to);
        struct dcpk_tile_words words = {};

        if (SUMS)
            words = list.words[i];
        const uint64_t sum = cast_elements<GROUP, SUMS>(
            t, lane, words, from.n_bytes, to.n_bytes,
            [&](uint64_t code) { return narrow_f64(to, widen_f64(from, code)); });
        if (SUMS)
            sum_add(list.sums, words.sum, sum);
    }
}

TILE_KERNELS(cast_f32_bf16, cast_tiles, F32, BF16)
TILE_KERNELS(cast_f32_f16, cast_tiles, F32, F16)
TILE_KERNELS(cast_bf16_f32, cast_tiles, BF16, F32)
TILE_KERNELS(cast_f16_f32, cast_tiles, F16, F32)
TILE_KERNELS(cast_f32_e4m3, cast_tiles, F32, E4M3)
TILE_KERNELS(cast_bf16_e4m3, cast_tiles, BF16, E4M3)
TILE_KERNELS(cast_f32_e5m2, cast_tiles, F32, E5M2)
TILE_KERNELS(cast_bf16_e5m2, cast_tiles, BF16, E5M2)
TILE_KERNELS(cast_any, cast_any_tiles)

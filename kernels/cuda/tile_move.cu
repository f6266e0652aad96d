/* SPDX-License-Identifier: Apache-2.0 */
/* tile_move.cu - copies of tiles, and their fingerprints on the way. */
#include "kernels/cuda/tile.cuh"

/*
 * 16 bytes at any address. They count where they lie in [low, high): granules of 16 bytes that hold
 * none of that are not read, so that nothing before or after an allocation is.
 */
__device__ __forceinline__ uint4 load_shifted(uint64_t at, uint64_t low, uint64_t high)
{
    const uint32_t ahead = static_cast<uint32_t>(at & 15);
    const uint4 *granule = reinterpret_cast<const uint4 *>(at - ahead);
    uint4 a = make_uint4(0, 0, 0, 0), b = a;

    if (at - ahead + 16 > low)
        a = __ldg(granule);
    if (ahead == 0)
        return a;
    if (at - ahead + 16 < high)
        b = __ldg(granule + 1); /* its neighbour's first granule: in the L1 cache */

    uint32_t w[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    if (ahead & 8)
#pragma unroll
        for (int i = 0; i < 6; i++)
            w[i] = w[i + 2];
    if (ahead & 4)
#pragma unroll
        for (int i = 0; i < 5; i++)
            w[i] = w[i + 1];
    const uint32_t bits = (ahead & 3) * 8;
    return make_uint4(__funnelshift_r(w[0], w[1], bits), __funnelshift_r(w[1], w[2], bits),
                      __funnelshift_r(w[2], w[3], bits), __funnelshift_r(w[3], w[4], bits));
}

/* Bytes [first, last) of the granule at `at`, in the largest stores that fit. */
__device__ __forceinline__ void store_part(uint64_t at, uint32_t first, uint32_t last, uint4 v)
{
    const uint64_t low = v.x | static_cast<uint64_t>(v.y) << 32;
    const uint64_t high = v.z | static_cast<uint64_t>(v.w) << 32;

    while (first < last) {
        const uint64_t rest = first < 8 ? low >> (8 * first) : high >> (8 * (first - 8));
        const uint32_t left = last - first;

        if (first % 8 == 0 && left >= 8) {
            *reinterpret_cast<uint64_t *>(at + first) = rest;
            first += 8;
        } else if (first % 4 == 0 && left >= 4) {
            *reinterpret_cast<uint32_t *>(at + first) = static_cast<uint32_t>(rest);
            first += 4;
        } else if (first % 2 == 0 && left >= 2) {
            *reinterpret_cast<uint16_t *>(at + first) = static_cast<uint16_t>(rest);
            first += 2;
        } else {
            *reinterpret_cast<uint8_t *>(at + first) = static_cast<uint8_t>(rest);
            first += 1;
        }
    }
}

/*
 * Whole units at the destination, all of them, IN_FLIGHT loads before the first store.
 * 6 in flight: 1984 to 2040 from runs of 512 bytes on; 4: 1937 to 2024; 8 takes so many registers
 * that it is slower again.
 */
template <unsigned GROUP, int IN_FLIGHT, bool SHIFTED, bool SUMS>
__device__ uint64_t move_units(const struct dcpk_tile &t, uint32_t row_bytes, uint32_t lane,
                               uint32_t word_bytes, const struct dcpk_tile_words &words)
{
    const uint32_t a_row = row_bytes / 16, n = a_row * t.n_rows, words_a_unit = 16 / word_bytes;
    tile_walk w(lane, a_row, GROUP);
    uint64_t sum = 0;

    for (uint32_t i = lane; i < n; i += IN_FLIGHT * GROUP) {
        uint4 v[IN_FLIGHT];
        uint64_t to[IN_FLIGHT], number[IN_FLIGHT];

#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++) {
            if (i + k * GROUP < n) {
                const uint64_t from = src_row(t, w.row) + 16ull * w.col;

                v[k] = SHIFTED ? load_shifted(from, 0, ~0ull) : load_16(from);
                to[k] = dst_row(t, w.row) + 16ull * w.col;
                number[k] = words.first + w.row * words.row_step + w.col * words_a_unit;
            }
            w.next();
        }
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++) {
            if (i + k * GROUP < n) {
                store_16(to[k], v[k]);
                if (SUMS)
                    sum += unit_sum(word_bytes, number[k], v[k]);
            }
        }
    }
    return sum;
}

/* Any alignment: a unit is a 16-byte granule of the destination, whole or at an end of a row. */
template <unsigned GROUP>
__device__ void move_granules(const struct dcpk_tile &t, uint32_t row_bytes, uint32_t lane)
{
    const uint32_t a_row = (row_bytes + 30) / 16, n = a_row * t.n_rows;
    tile_walk w(lane, a_row, GROUP);

    for (uint32_t i = lane; i < n; i += GROUP) {
        const uint64_t row = dst_row(t, w.row), end = row + row_bytes, from = src_row(t, w.row);
        const uint64_t at = (row & ~15ull) + 16ull * w.col;
        const uint32_t first = at < row ? static_cast<uint32_t>(row - at) : 0;

        w.next();
        if (at >= end)
            continue;
        const uint32_t last = at + 16 > end ? static_cast<uint32_t>(end - at) : 16;
        const uint4 v = load_shifted(from + (at - row), from, from + row_bytes);
        if (first == 0 && last == 16)
            store_16(at, v);
        else
            store_part(at, first, last, v);
    }
}

/* Short rows whose addresses are multiples of U: 619 in units of 2 bytes, 1250 in units of 8. */
template <typename U, unsigned GROUP>
__device__ void move_narrow(const struct dcpk_tile &t, uint32_t row_bytes, uint32_t lane)
{
    const uint32_t a_row = row_bytes / sizeof(U), n = a_row * t.n_rows;
    tile_walk w(lane, a_row, GROUP);

    for (uint32_t i = lane; i < n; i += GROUP) {
        const uint64_t from = src_row(t, w.row) + sizeof(U) * w.col;

        *reinterpret_cast<U *>(dst_row(t, w.row) + sizeof(U) * w.col) =
            *reinterpret_cast<const U *>(from);
        w.next();
    }
}

/* All of a tile's addresses and lengths that must be multiples of a unit, or-ed together. */
__device__ __forceinline__ uint32_t dst_bits(const struct dcpk_tile &t, uint32_t row_bytes)
{
    const uint64_t stride = used_stride(t, t.dst_stride_bytes);

    return (static_cast<uint32_t>(t.dst) | static_cast<uint32_t>(stride) | row_bytes) & 15;
}

__device__ __forceinline__ uint32_t src_bits(const struct dcpk_tile &t)
{
    const uint64_t stride = used_stride(t, t.src_stride_bytes);

    return (static_cast<uint32_t>(t.src) | static_cast<uint32_t>(stride)) & 15;
}

/* Below it the ends of rows cost more than narrow units do. */
#define SHORT_ROW_BYTES 64

template <unsigned GROUP, bool SUMS>
__device__ uint64_t move_odd(const struct dcpk_tile &t, uint32_t row_bytes, uint32_t lane,
                             uint32_t word_bytes, const struct dcpk_tile_words &words)
{
    const uint32_t to_bits = dst_bits(t, row_bytes), bits = to_bits | src_bits(t);

    if (to_bits == 0 && row_bytes >= SHORT_ROW_BYTES)
        return move_units<GROUP, 1, true, SUMS>(t, row_bytes, lane, word_bytes, words);
    if (row_bytes >= SHORT_ROW_BYTES || bits % 2 != 0)
        move_granules<GROUP>(t, row_bytes, lane);
    else if (bits % 4 != 0)
        move_narrow<uint16_t, GROUP>(t, row_bytes, lane);
    else if (bits % 8 != 0)
        move_narrow<uint32_t, GROUP>(t, row_bytes, lane);
    else
        move_narrow<uint64_t, GROUP>(t, row_bytes, lane);
    return SUMS ? source_sum<GROUP>(t, words, word_bytes, row_bytes, lane) : 0;
}

/*
 * Whole and odd tiles are kernels of their own: in one kernel both would have the registers of the
 * greedier one, and odd copies fall from 1819 to 1526 with fewer threads on a multiprocessor.
 */
template <unsigned GROUP, bool SUMS, bool WHOLE>
__device__ __forceinline__ void move_tiles(const struct cuda_tiles &list)
{
    const uint32_t lane = threadIdx.x % GROUP;

    for (uint32_t i = tile_first<GROUP>(); i < list.n; i += tile_step<GROUP>()) {
        const struct dcpk_tile t = tile_load(list.tiles + i);
        const uint32_t elem_bytes = list.elem_bytes[t.to];
        const uint32_t word_bytes = word_bytes_of(elem_bytes);
        const uint32_t row_bytes = t.n_elems * elem_bytes;
        struct dcpk_tile_words words = {};
        uint64_t sum;

        if (SUMS)
            words = list.words[i];
        if (WHOLE)
            sum = move_units < GROUP, SUMS ? 4 : 6, false,
            SUMS > (t, row_bytes, lane, word_bytes, words);
        else
            sum = move_odd<GROUP, SUMS>(t, row_bytes, lane, word_bytes, words);
        if (SUMS)
            sum_add(list.sums, words.sum, sum);
    }
}

TILE_KERNELS(move_whole, move_tiles, true)
TILE_KERNELS(move_odd, move_tiles, false)

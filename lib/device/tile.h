/* SPDX-License-Identifier: Apache-2.0 */
/* tile.h - what a device moves: tables of rows of elements, from one address to another. */
#ifndef DCPK_LIB_DEVICE_TILE_H
#define DCPK_LIB_DEVICE_TILE_H

#include <stddef.h>
#include <stdint.h>

/*
 * n_rows rows of n_elems elements each; the elements of a row lie side by side on both sides.
 *
 *     src --> [ e e e e ]                    dst --> [ e e e e ]
 *              src_stride_bytes               |       dst_stride_bytes
 *             [ e e e e ]        ======>             [ e e e e ]
 *
 * from, to: enum dcpk_dtype. Equal: the bytes are copied as they are, any dtype. Different: each
 * element is cast as dcpk_host_kernels.cast does, both dcpk_dtype_is_float.
 * dst 0: nothing is stored; the elements are only read, for their fingerprint (from == to).
 *
 * Addresses are those of the process that runs the tile, also where the memory is imported. Both
 * may have any alignment, strides any sign and size; src_stride_bytes may be 0. No row of the
 * destination meets another. Every such tile is moved right; what is moved fast is
 * - a tile of DCPK_TILE_BYTES whose destination, destination stride and bytes of a row are
 *   multiples of DCPK_TILE_ALIGN, wherever its source lies: what the planner makes of long runs;
 * - a tile of less than DCPK_TILE_SMALL_BYTES, next to others of its size.
 *
 * 48 bytes without holes, the same for all devices: kernels read it as it is. A value.
 */
struct dcpk_tile {
    uint64_t src, dst; /* of the first element */
    int64_t src_stride_bytes, dst_stride_bytes;
    uint32_t n_elems, n_rows; /* at least 1 */
    uint8_t from, to;
    uint8_t zero[6];
};

#define DCPK_TILE_ALIGN       16
#define DCPK_TILE_BYTES       (64u << 10) /* bytes at the destination of a large tile */
#define DCPK_TILE_SMALL_BYTES (16u << 10) /* below it a tile is work for few threads */

/*
 * The place of a tile's elements in their tensor, for its fingerprint (lib/tensor/fingerprint.h).
 * Words are those of the fingerprint: elements of `to` up to 4 bytes, of wider ones their 4-byte
 * parts. Word w of row r has the number first + r * row_step + w. 24 bytes, one for each tile, at
 * the same index. A value.
 */
struct dcpk_tile_words {
    uint64_t first;    /* row-major number of the first word in the whole tensor */
    uint64_t row_step; /* modulo 2^64 */
    uint32_t sum;      /* index of the sum that the terms are added to */
    uint32_t zero;
};

/* How much of a device a table takes; results never depend on it. */
enum dcpk_pace {
    DCPK_PACE_MEMORY, /* all of it: as fast as its memory is */
    DCPK_PACE_LINK, /* enough to fill a link: there are addresses in the memory of other devices */
    DCPK_PACE_BESIDE, /* less than messages take that are under way at the same time */
};

/* Tiles to be moved together, in any order and at the same time: none reads or writes what another
 * one writes. Borrowed. */
struct dcpk_tiles {
    const struct dcpk_tile *tiles;
    const struct dcpk_tile_words *words; /* NULL: no fingerprints */
    size_t n;
    enum dcpk_pace pace;
};

#endif

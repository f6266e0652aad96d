/* SPDX-License-Identifier: Apache-2.0 */
/* remap_tiles.h - boxes cut into the tiles that devices move. */
#ifndef DCPK_LIB_PLAN_REMAP_TILES_H
#define DCPK_LIB_PLAN_REMAP_TILES_H

#include <stdbool.h>

#include "lib/device/tile.h"
#include "lib/tensor/box.h"
#include "lib/tensor/dtype.h"

/* Growing arrays; zeroed = empty. */
struct dcpk_tile_list {
    struct dcpk_tile *tiles;       /* owned, as words */
    struct dcpk_tile_words *words; /* NULL in a list without fingerprints */
    size_t n, tiles_capacity, words_capacity;
};
void dcpk_tile_list_release(struct dcpk_tile_list *list); /* zeroed: a no-op */

/* One side of a box in memory. */
struct dcpk_tile_side {
    uint64_t at; /* of the box's first element */
    const int64_t *stride_bytes;
    enum dcpk_dtype dtype;
};

/* A box to be cut. */
struct dcpk_tile_box {
    struct dcpk_box box;
    struct dcpk_tile_side src, dst; /* dst.at 0: only read, for the fingerprint */
    const int64_t *shape;           /* of the tensor: fingerprints number its words */
    uint32_t sum;
    bool has_words; /* the same for all boxes of a list */
};

/*
 * Cut a box that is not empty into tiles of at most tile_bytes at the destination (a multiple of
 * DCPK_TILE_ALIGN), and append them. Axes are taken in the order of the destination's strides and
 * merged where they lie one after the other on both sides (with words: in the tensor, too), so
 * that runs are as long as can be. Runs of 64 bytes and more are cut so that large tiles begin and
 * end at multiples of DCPK_TILE_ALIGN at the destination; what lies before and after becomes small
 * ones. Errors: DCPK_ENOMEM.
 */
dcpk_status dcpk_tile_list_add(struct dcpk_tile_list *list, const struct dcpk_tile_box *box,
                               size_t tile_bytes, struct dcpk_error *err);

/* Append the tiles of n lists to `all`, one of each in turn: no peer is then the only one that all
 * write to. */
dcpk_status dcpk_tile_lists_deal(const struct dcpk_tile_list *const *lists, size_t n,
                                 struct dcpk_tile_list *all, struct dcpk_error *err);

#endif

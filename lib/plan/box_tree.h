/* SPDX-License-Identifier: Apache-2.0 */
/* box_tree.h - find the boxes that meet a given one, among many, without looking at all of them. */
#ifndef DCPK_LIB_PLAN_BOX_TREE_H
#define DCPK_LIB_PLAN_BOX_TREE_H

#include "lib/tensor/box.h"

/*
 * The boxes in the order of their offsets, and over them the bounding boxes of every 16, 256, 4096,
 * ... neighbours:
 *
 *     level 2    [            0 .. 255             ] [   256 .. ]
 *     level 1    [ 0 .. 15 ][ 16 .. 31 ] ...
 *     boxes       0 1 2 ...                             items[order[0]], items[order[1]], ...
 *
 * A node is `rank` offsets and `rank` ends; nodes begin with all of level 1.
 * A search steps over a whole run as soon as its bounding box misses. 16 boxes or fewer need no
 * memory.
 */
struct dcpk_box_tree {
    const void *items;                                   /* borrowed */
    const int64_t *(*span)(const void *items, size_t i); /* box i, packed */
    size_t n;
    int rank;
    uint32_t *order; /* owned; NULL: the items are in order already */
    int64_t *nodes;  /* owned; NULL: 16 items or fewer */
};

/*
 * Complete a tree whose items, span, n and rank are set. O(n log n). Read-only and thread-safe
 * afterwards. Errors: DCPK_ENOMEM; DCPK_ERANGE for 2^32 items or more. On failure nothing is held.
 */
dcpk_status dcpk_box_tree_build(struct dcpk_box_tree *tree, struct dcpk_error *err);
void dcpk_box_tree_release(struct dcpk_box_tree *tree); /* a zeroed tree is a no-op */

/*
 * Step through the items that share elements with `box`, in row-major order of their offsets.
 * *at: 0 to begin, moved on by each call. item: set when the result is true.
 */
bool dcpk_box_tree_next(const struct dcpk_box_tree *tree, const struct dcpk_box *box, size_t *at,
                        size_t *item);

/* The most memory that a tree of n boxes holds. */
uint64_t dcpk_box_tree_bytes(size_t n, int rank);

#endif

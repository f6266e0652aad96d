/* SPDX-License-Identifier: Apache-2.0 */
/* slab.h - a box cut into slabs that fit a buffer, each one run of the box's row-major elements. */
#ifndef DCPK_LIB_EXEC_SLAB_H
#define DCPK_LIB_EXEC_SLAB_H

#include "lib/tensor/box.h"

/*
 * The cut: whole rows of `axis`, as many as fit; axes before it one index at a time, axes after it
 * whole. Slabs are numbered in row-major order and follow one another without a gap. A value.
 */
struct dcpk_slabs {
    struct dcpk_box box;
    int axis;     /* -1: one slab, the whole box */
    int64_t rows; /* of `axis` a slab; the last one of each round has fewer */
    int64_t row_elems;
    uint64_t per_round; /* slabs for one index of the axes before `axis` */
    uint64_t n;         /* at least 1 */
};

/* Cut `box` (of less than 2^63 bytes) so that a slab is at most limit_bytes, but at least one
 * element. */
void dcpk_slabs_cut(const struct dcpk_box *box, size_t elem_bytes, uint64_t limit_bytes,
                    struct dcpk_slabs *slabs);

/* Slab i (below n) as a box in the coordinates of the box that was cut. */
void dcpk_slabs_box(const struct dcpk_slabs *slabs, uint64_t i, struct dcpk_box *slab);

/* Elements of the box before slab i. */
uint64_t dcpk_slabs_first(const struct dcpk_slabs *slabs, uint64_t i);

#endif

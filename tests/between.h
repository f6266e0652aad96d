/* SPDX-License-Identifier: Apache-2.0 */
/* between.h - the copy between two boxes of two row-major buffers, as a caller builds it. */
#ifndef DCPK_TESTS_BETWEEN_H
#define DCPK_TESTS_BETWEEN_H

#include "lib/tensor/strided.h"

/* A box in a row-major buffer of these extents (as many as the box has). */
struct between_side {
    const int64_t *extent;
    struct dcpk_box box;
};

static inline uint64_t between_place(const struct dcpk_box *box, const int64_t *stride)
{
    uint64_t at = 0;

    for (int a = 0; a < box->rank; a++)
        at += (uint64_t)(box->offset[a] * stride[a]);
    return at;
}

/* src_at, dst_at: bytes to the boxes' first elements. The copy is simplified. */
static inline void between(size_t elem_bytes, const struct between_side *src,
                           const struct between_side *dst, uint64_t *src_at, uint64_t *dst_at,
                           struct dcpk_copy *copy)
{
    int64_t from[DCPK_MAX_RANK], to[DCPK_MAX_RANK];

    dcpk_row_major_strides(elem_bytes, src->extent, src->box.rank, from);
    dcpk_row_major_strides(elem_bytes, dst->extent, dst->box.rank, to);
    *src_at = between_place(&src->box, from);
    *dst_at = between_place(&dst->box, to);
    dcpk_copy_pair(elem_bytes, &src->box, from, &dst->box, to, copy);
    dcpk_copy_simplify(copy);
}

#endif

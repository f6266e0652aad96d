/* SPDX-License-Identifier: Apache-2.0 */
/* strided.h - a copy between two strided regions of memory, in the form that every backend takes.
 */
#ifndef DCPK_LIB_MODEL_STRIDED_H
#define DCPK_LIB_MODEL_STRIDED_H

#include <stddef.h>
#include <stdint.h>

#include "lib/model/box.h"

/*
 * For every index (i0, .., i_rank-1): the element at src + sum(i * src_stride) goes to dst + sum(i
 * * dst_stride). Strides are in bytes and may be any number that stays inside the caller's buffers.
 * A value, passed to kernels as it is.
 */
struct dcpk_copy {
    int rank; /* 0: one element */
    size_t elem_bytes;
    int64_t extent[DCPK_MAX_RANK];
    int64_t src_stride_bytes[DCPK_MAX_RANK];
    int64_t dst_stride_bytes[DCPK_MAX_RANK];
};

/*
 * Build the copy of `box` extents between two row-major buffers.
 * src_extent, dst_extent: shapes of the two buffers that hold the regions, ranks src_rank and
 * dst_rank; from, to: the regions in them, with equal extents after dropping axes of length 1
 * (asserted). src_offset_bytes, dst_offset_bytes: set to the place of the regions' first elements.
 * The result is simplified (dcpk_copy_simplify).
 */
void dcpk_copy_between(size_t elem_bytes, const int64_t *src_extent, const struct dcpk_box *from,
                       uint64_t *src_offset_bytes, const int64_t *dst_extent,
                       const struct dcpk_box *to, uint64_t *dst_offset_bytes,
                       struct dcpk_copy *copy);

/*
 * Drop axes of length 1 and merge neighbours that lie one behind the other on both sides; a copy
 * that is one run ends with rank 1 and both strides elem_bytes (or rank 0).
 */
void dcpk_copy_simplify(struct dcpk_copy *copy);

#endif

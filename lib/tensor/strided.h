/* SPDX-License-Identifier: Apache-2.0 */
/* strided.h - a copy between two strided regions of memory, in the form that every device takes. */
#ifndef DCPK_LIB_TENSOR_STRIDED_H
#define DCPK_LIB_TENSOR_STRIDED_H

#include <stddef.h>
#include <stdint.h>

#include "lib/tensor/box.h"

/*
 * For every index (i0, .., i_rank-1):
 *
 *     dst[sum(i * dst_stride)] = src[sum(i * src_stride)]
 *
 * Strides are in bytes and may be any number that stays inside the caller's buffers.
 * A value, passed to kernels as it is.
 */
struct dcpk_copy {
    int rank; /* 0: one element */
    size_t elem_bytes;
    int64_t extent[DCPK_MAX_RANK];
    int64_t src_stride_bytes[DCPK_MAX_RANK];
    int64_t dst_stride_bytes[DCPK_MAX_RANK];
};

/* Byte strides of a dense row-major buffer of these extents. It exists, so that its size fits; one
 * without elements has the strides of one whose zero extents are 1. */
void dcpk_row_major_strides(size_t elem_bytes, const int64_t *extent, int rank,
                            int64_t *stride_bytes);

/*
 * Build the copy of the box `from` of one buffer to the box `to` of another, whose extents are
 * equal after dropping axes of length 1 (asserted). The strides are those of the buffers' axes; the
 * caller finds the boxes' first elements. Axes of length 1 are left out, no others
 * (dcpk_copy_simplify).
 */
void dcpk_copy_pair(size_t elem_bytes, const struct dcpk_box *from, const int64_t *src_stride_bytes,
                    const struct dcpk_box *to, const int64_t *dst_stride_bytes,
                    struct dcpk_copy *copy);

/*
 * Drop axes of length 1 and merge neighbours that lie one after the other on both sides; a copy
 * that is one run ends with rank 1 and both strides elem_bytes (or rank 0).
 */
void dcpk_copy_simplify(struct dcpk_copy *copy);

void dcpk_copy_swap_axes(struct dcpk_copy *copy, int a, int b); /* of both sides */

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* strided.c - copies between row-major buffers, in as few axes as they need. */
#include "lib/tensor/strided.h"
#include "lib/base/order.h"

#include <assert.h>

void dcpk_row_major_strides(size_t elem_bytes, const int64_t *extent, int rank,
                            int64_t *stride_bytes)
{
    int64_t bytes = (int64_t)elem_bytes;

    for (int a = rank - 1; a >= 0; a--) {
        stride_bytes[a] = bytes;
        bytes *= dcpk_max_i64(extent[a], 1);
    }
}

void dcpk_copy_pair(size_t elem_bytes, const struct dcpk_box *from, const int64_t *src_stride_bytes,
                    const struct dcpk_box *to, const int64_t *dst_stride_bytes,
                    struct dcpk_copy *copy)
{
    int s = dcpk_box_next_axis(from, 0), d = dcpk_box_next_axis(to, 0);

    copy->rank = 0;
    copy->elem_bytes = elem_bytes;
    while (s < from->rank && d < to->rank) {
        assert(from->extent[s] == to->extent[d]);
        copy->extent[copy->rank] = from->extent[s];
        copy->src_stride_bytes[copy->rank] = src_stride_bytes[s];
        copy->dst_stride_bytes[copy->rank++] = dst_stride_bytes[d];
        s = dcpk_box_next_axis(from, s + 1);
        d = dcpk_box_next_axis(to, d + 1);
    }
    assert(s == from->rank && d == to->rank);
}

/* True if `outer` is the stride of whole runs of `extent` steps of `inner`. */
static bool is_behind(int64_t outer, int64_t inner, int64_t extent)
{
    int64_t run;

    return !__builtin_mul_overflow(inner, extent, &run) && run == outer;
}

/* Put axis `a` after those kept so far, or into the last of them. */
static void keep_axis(struct dcpk_copy *copy, int *n_kept, int a)
{
    const int64_t extent = copy->extent[a];
    const int64_t src = copy->src_stride_bytes[a], dst = copy->dst_stride_bytes[a];
    const int last = *n_kept - 1;

    if (last >= 0 && is_behind(copy->src_stride_bytes[last], src, extent) &&
        is_behind(copy->dst_stride_bytes[last], dst, extent)) {
        copy->extent[last] *= extent;
        copy->src_stride_bytes[last] = src;
        copy->dst_stride_bytes[last] = dst;
        return;
    }
    copy->extent[*n_kept] = extent;
    copy->src_stride_bytes[*n_kept] = src;
    copy->dst_stride_bytes[*n_kept] = dst;
    ++*n_kept;
}

void dcpk_copy_simplify(struct dcpk_copy *copy)
{
    const int64_t elem_bytes = (int64_t)copy->elem_bytes;
    int n_kept = 0;

    for (int a = 0; a < copy->rank; a++) {
        if (copy->extent[a] == 0) { /* nothing to copy: one empty run */
            copy->rank = 1;
            copy->extent[0] = 0;
            copy->src_stride_bytes[0] = copy->dst_stride_bytes[0] = elem_bytes;
            return;
        }
    }
    for (int a = 0; a < copy->rank; a++)
        if (copy->extent[a] != 1)
            keep_axis(copy, &n_kept, a);
    copy->rank = n_kept;
}

void dcpk_copy_swap_axes(struct dcpk_copy *copy, int a, int b)
{
    const int64_t extent = copy->extent[a];
    const int64_t src = copy->src_stride_bytes[a], dst = copy->dst_stride_bytes[a];

    copy->extent[a] = copy->extent[b];
    copy->src_stride_bytes[a] = copy->src_stride_bytes[b];
    copy->dst_stride_bytes[a] = copy->dst_stride_bytes[b];
    copy->extent[b] = extent;
    copy->src_stride_bytes[b] = src;
    copy->dst_stride_bytes[b] = dst;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* box.h - rectangular regions of a tensor's index space, and lists of them that must cover it. */
#ifndef DCPK_LIB_TENSOR_BOX_H
#define DCPK_LIB_TENSOR_BOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"

#define DCPK_MAX_RANK 16 /* readers refuse more with DCPK_EUNSUPPORTED */

/*
 * A half-open box: axis a covers indices [offset[a], offset[a] + extent[a]).
 * Unit: elements, never bytes. Entries at or past `rank` mean nothing.
 * rank 0 is a scalar and holds one element; a zero extent makes the box empty.
 * Invariant: 0 <= offset, 0 <= extent, offset + extent <= INT64_MAX; readers check it once.
 * A value: copy freely, nothing to release.
 */
struct dcpk_box {
    int rank;
    int64_t offset[DCPK_MAX_RANK];
    int64_t extent[DCPK_MAX_RANK];
};

/*
 * Boxes are kept packed where there are many: `span` is rank offsets followed by rank extents,
 * in an arena. dcpk_box_unpack reads one; dcpk_box_pack writes 2 * rank numbers.
 */
void dcpk_box_unpack(const int64_t *span, int rank, struct dcpk_box *box);
void dcpk_box_pack(const struct dcpk_box *box, int64_t *span); /* the reverse of unpack */

/* True if two shapes are equal: as many axes, each of the same extent. */
bool dcpk_shape_equal(const int64_t *a, int a_rank, const int64_t *b, int b_rank);

/* The box of a whole tensor: offset 0, extent shape. */
void dcpk_box_whole(const int64_t *shape, int rank, struct dcpk_box *box);

/*
 * Find the region two boxes of one tensor share.
 * a, b:   same rank (asserted).
 * common: set only when the result is true; may alias a or b.
 * Returns true when they share at least one element. Cannot fail.
 */
bool dcpk_box_intersect(const struct dcpk_box *a, const struct dcpk_box *b,
                        struct dcpk_box *common);

/* True if `outer` holds all of `inner`. An empty inner box is held when its offset lies in or at
 * the end of outer. */
bool dcpk_box_contains(const struct dcpk_box *outer, const struct dcpk_box *inner);

/* The product of n extents, which are known to be those of a tensor or of a part of one. */
static inline uint64_t dcpk_count_elems(const int64_t *extent, int n)
{
    uint64_t n_elems = 1;

    for (int a = 0; a < n; a++)
        n_elems *= (uint64_t)extent[a];
    return n_elems;
}

static inline uint64_t dcpk_box_elems(const struct dcpk_box *box)
{
    return dcpk_count_elems(box->extent, box->rank);
}

/*
 * Count the elements of `box` into n_elems, set on success only.
 * Errors: DCPK_ERANGE when the product of extents passes INT64_MAX.
 */
dcpk_status dcpk_box_count(const struct dcpk_box *box, int64_t *n_elems, struct dcpk_error *err);

/* The next axis at or after `a` whose extent is not 1; box->rank: there is none. */
int dcpk_box_next_axis(const struct dcpk_box *box, int a);

/* Elements of a shape, DCPK_ERANGE as above, DCPK_EFORMAT for a negative extent. */
dcpk_status dcpk_shape_count(const int64_t *shape, int rank, int64_t *n_elems,
                             struct dcpk_error *err);

/*
 * Checks that n packed boxes (spans of `rank`) cover `shape` exactly: all inside, no gap, no
 * overlap. Empty boxes are ignored. Right for any boxes; O(n log n) for the chunk lists that occur
 * (see cover.c). Errors: DCPK_EFORMAT naming the box outside, or at the first element (row-major)
 * that is not held exactly once: that it is "missing", or two boxes that "overlap" there.
 * DCPK_ERANGE: too irregular to check within cover.c's bounds. DCPK_ENOMEM.
 */
dcpk_status dcpk_cover_check(const int64_t *shape, int rank, const int64_t *const *spans, size_t n,
                             struct dcpk_error *err);

/*
 * The largest box that a run of elements of `block` can begin with: n elements from `start` on,
 * counted row-major. Returns how many of them it holds. 0 <= start, 1 <= n, start + n at most the
 * block's elements.
 */
int64_t dcpk_box_take_run(const struct dcpk_box *block, int64_t start, int64_t n,
                          struct dcpk_box *box);

/* The number of the first element of `part`, which lies in `box`, among the elements of `box`,
 * row-major. */
int64_t dcpk_box_flat_offset(const struct dcpk_box *box, const struct dcpk_box *part);
/* True if the elements of `part` follow each other among those of `box`, row-major. */
bool dcpk_box_is_run(const struct dcpk_box *box, const struct dcpk_box *part);

/* Step `index`, inside the box, to the next one along its first n axes, the last of them fastest;
 * false, and back at the first, after the last. */
bool dcpk_box_next(int64_t *index, const struct dcpk_box *box, int n);

/* "[0:4, 96:192, 0:64]" into text (cut to n bytes, NUL-terminated); returns text. */
const char *dcpk_box_format(const struct dcpk_box *box, char *text, size_t n);
const char *dcpk_shape_format(const int64_t *shape, int rank, char *text,
                              size_t n); /* "[4, 192, 64]" */

#endif

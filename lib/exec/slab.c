/* SPDX-License-Identifier: Apache-2.0 */
/* slab.c - cuts boxes into runs that fit a buffer. */
#include "lib/exec/slab.h"
#include "lib/base/order.h"

#include <assert.h>

void dcpk_slabs_cut(const struct dcpk_box *box, size_t elem_bytes, uint64_t limit_bytes,
                    struct dcpk_slabs *slabs)
{
    const uint64_t limit = dcpk_max_u64(limit_bytes / elem_bytes, 1);
    uint64_t row = dcpk_box_elems(box), n_rounds = 1;
    int axis = 0;

    *slabs = (struct dcpk_slabs){.box = *box, .axis = -1, .per_round = 1, .n = 1};
    if (row <= limit)
        return;
    for (;; axis++) { /* the first axis a row of which fits; the last one's is an element */
        row /= (uint64_t)box->extent[axis];
        if (row <= limit)
            break;
        n_rounds *= (uint64_t)box->extent[axis];
    }
    slabs->axis = axis;
    slabs->row_elems = (int64_t)row;
    slabs->rows = (int64_t)(limit / row);
    slabs->per_round = (uint64_t)((box->extent[axis] - 1) / slabs->rows + 1);
    slabs->n = n_rounds * slabs->per_round;
}

void dcpk_slabs_box(const struct dcpk_slabs *slabs, uint64_t i, struct dcpk_box *slab)
{
    uint64_t round = i / slabs->per_round;
    int64_t first, left;

    assert(i < slabs->n);
    *slab = slabs->box;
    if (slabs->axis < 0)
        return;
    first = (int64_t)(i % slabs->per_round) * slabs->rows;
    left = slabs->box.extent[slabs->axis] - first;
    slab->offset[slabs->axis] += first;
    slab->extent[slabs->axis] = dcpk_min_i64(left, slabs->rows);
    for (int axis = slabs->axis - 1; axis >= 0; axis--) {
        const uint64_t extent = (uint64_t)slabs->box.extent[axis];

        slab->offset[axis] += (int64_t)(round % extent);
        slab->extent[axis] = 1;
        round /= extent;
    }
}

uint64_t dcpk_slabs_first(const struct dcpk_slabs *slabs, uint64_t i)
{
    uint64_t rows;

    assert(i < slabs->n);
    if (slabs->axis < 0)
        return 0;
    rows = i / slabs->per_round * (uint64_t)slabs->box.extent[slabs->axis] +
           i % slabs->per_round * (uint64_t)slabs->rows;
    return rows * (uint64_t)slabs->row_elems;
}

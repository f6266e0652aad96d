/* SPDX-License-Identifier: Apache-2.0 */
/* box.c - arithmetic on single boxes and shapes; lists of boxes are in cover.c. */
#include "lib/tensor/box.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/checked.h"
#include "lib/base/order.h"
#include "lib/base/text.h"

void dcpk_box_unpack(const int64_t *span, int rank, struct dcpk_box *box)
{
    assert(rank >= 0 && rank <= DCPK_MAX_RANK);
    box->rank = rank;
    for (int a = 0; a < rank; a++) {
        box->offset[a] = span[a];
        box->extent[a] = span[rank + a];
    }
}

void dcpk_box_pack(const struct dcpk_box *box, int64_t *span)
{
    for (int a = 0; a < box->rank; a++) {
        span[a] = box->offset[a];
        span[box->rank + a] = box->extent[a];
    }
}

bool dcpk_shape_equal(const int64_t *a, int a_rank, const int64_t *b, int b_rank)
{
    return a_rank == b_rank && (a_rank == 0 || memcmp(a, b, (size_t)a_rank * sizeof *a) == 0);
}

void dcpk_box_whole(const int64_t *shape, int rank, struct dcpk_box *box)
{
    assert(rank >= 0 && rank <= DCPK_MAX_RANK);
    box->rank = rank;
    for (int a = 0; a < rank; a++) {
        box->offset[a] = 0;
        box->extent[a] = shape[a];
    }
}

bool dcpk_box_intersect(const struct dcpk_box *a, const struct dcpk_box *b, struct dcpk_box *common)
{
    struct dcpk_box result;

    assert(a->rank == b->rank);
    result.rank = a->rank;
    for (int i = 0; i < a->rank; i++) {
        const int64_t a_end = a->offset[i] + a->extent[i];
        const int64_t b_end = b->offset[i] + b->extent[i];
        const int64_t end = dcpk_min_i64(a_end, b_end);

        result.offset[i] = dcpk_max_i64(a->offset[i], b->offset[i]);
        if (end <= result.offset[i])
            return false;
        result.extent[i] = end - result.offset[i];
    }
    *common = result;
    return true;
}

static bool box_is_empty(const struct dcpk_box *box)
{
    for (int a = 0; a < box->rank; a++)
        if (box->extent[a] == 0)
            return true;
    return false;
}

bool dcpk_box_contains(const struct dcpk_box *outer, const struct dcpk_box *inner)
{
    const bool empty = box_is_empty(inner); /* only its corner counts */

    assert(outer->rank == inner->rank);
    for (int a = 0; a < outer->rank; a++) {
        const int64_t end = inner->offset[a] + (empty ? 0 : inner->extent[a]);

        if (inner->offset[a] < outer->offset[a] || end > outer->offset[a] + outer->extent[a])
            return false;
    }
    return true;
}

dcpk_status dcpk_box_count(const struct dcpk_box *box, int64_t *n_elems, struct dcpk_error *err)
{
    return dcpk_shape_count(box->extent, box->rank, n_elems, err);
}

dcpk_status dcpk_shape_count(const int64_t *shape, int rank, int64_t *n_elems,
                             struct dcpk_error *err)
{
    int64_t count = 1;
    bool empty = false;
    char text[256];

    for (int a = 0; a < rank; a++) {
        if (shape[a] < 0)
            return dcpk_fail(err, DCPK_EFORMAT, "shape %s has a negative extent",
                             dcpk_shape_format(shape, rank, text, sizeof text));
        empty = empty || shape[a] == 0;
    }
    /* A zero anywhere makes the product zero, however large the other extents are. */
    for (int a = 0; a < rank && !empty; a++)
        if (!dcpk_mul_i64(count, shape[a], &count))
            return dcpk_fail(err, DCPK_ERANGE, "shape %s has more than %" PRId64 " elements",
                             dcpk_shape_format(shape, rank, text, sizeof text), INT64_MAX);
    *n_elems = empty ? 0 : count;
    return DCPK_OK;
}

/* Text that grows in a fixed buffer and is cut at its end. */
struct line {
    char *text;
    size_t n, used;
};

static void __attribute__((format(printf, 2, 3))) append(struct line *l, const char *fmt, ...)
{
    va_list args;
    int wrote;

    if (l->used >= l->n)
        return;
    va_start(args, fmt);
    wrote = vsnprintf(l->text + l->used, l->n - l->used, fmt, args);
    va_end(args);
    if (wrote > 0)
        l->used += (size_t)wrote;
}

const char *dcpk_box_format(const struct dcpk_box *box, char *text, size_t n)
{
    struct line l = {text, n, 0};

    append(&l, "[");
    for (int a = 0; a < box->rank; a++)
        append(&l, "%s%" PRId64 ":%" PRId64, dcpk_joint(a > 0, ", "), box->offset[a],
               box->offset[a] + box->extent[a]);
    append(&l, "]");
    return text;
}

const char *dcpk_shape_format(const int64_t *shape, int rank, char *text, size_t n)
{
    struct line l = {text, n, 0};

    append(&l, "[");
    for (int a = 0; a < rank; a++)
        append(&l, "%s%" PRId64, dcpk_joint(a > 0, ", "), shape[a]);
    append(&l, "]");
    return text;
}

/*
 * Whole indices of the outermost axis whose index boundary `start` is at and of which one fits. In
 * a 3 x 4 block the run [2, 11) becomes [2, 4) of
 * row 0, row 1, [0, 3) of row 2.
 *
 *     . . 1 1
 *     2 2 2 2
 *     3 3 3 .
 */
int64_t dcpk_box_take_run(const struct dcpk_box *block, int64_t start, int64_t n,
                          struct dcpk_box *box)
{
    int64_t row = 1, taken = 1, count = 1;
    int axis = block->rank;

    *box = *block;
    for (int a = block->rank; a-- > 0;) {
        const int64_t next = row * block->extent[a];

        if (start % row == 0 && n >= row) {
            const int64_t room = block->extent[a] - start / row % block->extent[a];

            axis = a;
            count = dcpk_min_i64(n / row, room);
            taken = count * row;
        }
        row = next;
    }
    row = 1;
    for (int a = block->rank; a-- > 0;) {
        box->offset[a] = block->offset[a] + start / row % block->extent[a];
        row *= block->extent[a];
        if (a < axis)
            box->extent[a] = 1;
        else if (a == axis)
            box->extent[a] = count;
    }
    return taken;
}

int64_t dcpk_box_flat_offset(const struct dcpk_box *box, const struct dcpk_box *part)
{
    int64_t at = 0;

    for (int a = 0; a < box->rank; a++)
        at = at * box->extent[a] + (part->offset[a] - box->offset[a]);
    return at;
}

bool dcpk_box_is_run(const struct dcpk_box *box, const struct dcpk_box *part)
{
    int axis = 0;

    while (axis < box->rank && part->extent[axis] == 1)
        axis++;
    for (axis++; axis < box->rank; axis++)
        if (part->extent[axis] != box->extent[axis])
            return false;
    return true;
}

bool dcpk_box_next(int64_t *index, const struct dcpk_box *box, int n)
{
    for (int a = n - 1; a >= 0; a--) {
        if (++index[a] < box->offset[a] + box->extent[a])
            return true;
        index[a] = box->offset[a];
    }
    return false;
}

int dcpk_box_next_axis(const struct dcpk_box *box, int a)
{
    while (a < box->rank && box->extent[a] == 1)
        a++;
    return a;
}

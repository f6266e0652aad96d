/* SPDX-License-Identifier: Apache-2.0 */
/* slice.h - a part of a tensor in Python's words: "0, 3:5, ::2, ...". */
#ifndef DCPK_LIB_TENSOR_SLICE_H
#define DCPK_LIB_TENSOR_SLICE_H

#include <stdbool.h>

#include "lib/tensor/box.h"

/* The indices first, first + step, .. of one axis, n of them; step is below 0 where they go
 * back. */
struct dcpk_slice_axis {
    int64_t first, step, n;
    bool is_dropped; /* picked by a number: the result has no such axis; n is 1 */
};

/* One a tensor's axis. A value. */
struct dcpk_slice {
    int rank;
    struct dcpk_slice_axis axis[DCPK_MAX_RANK];
};

/*
 * Resolve what stands between the brackets of tensor[...] against a shape, as Python does: numbers
 * count from the end when negative and drop their axis, start:stop:step has defaults and is cut to
 * the axis, "..." stands for as many ":" as are missing, axes not named are whole. text:
 * NUL-terminated, n bytes of it are read; NULL: everything. Errors: DCPK_EUSAGE naming the part:
 * syntax, a number outside its axis, too many parts, a step of 0.
 */
dcpk_status dcpk_slice_parse(const char *text, size_t n, const int64_t *shape, int rank,
                             struct dcpk_slice *slice, struct dcpk_error *err);

/* The shape of the result. Returns its rank. */
int dcpk_slice_shape(const struct dcpk_slice *slice, int64_t shape[DCPK_MAX_RANK]);

/* Elements it picks; the shape's own count bounds them. */
uint64_t dcpk_slice_count(const struct dcpk_slice *slice);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* measure.h - how far two runs of elements lie apart. */
#ifndef DCPK_LIB_EXEC_MEASURE_H
#define DCPK_LIB_EXEC_MEASURE_H

#include "lib/exec/exec.h"

/* A result to begin with: equal, nothing seen. */
#define DCPK_COMPARE_INIT                                                                          \
    {                                                                                              \
        .equal = true, .first_different = -1, .worst = -1                                          \
    }

/* Elements of two tensors that are compared: n of them from each side, one after the other. */
struct dcpk_element_run {
    enum dcpk_dtype dtype;
    const void *a, *b;
    uint64_t n, first; /* first: the number of the first in its tensor */
};

/*
 * Compare the elements and add the outcome to `result`; its indices are of the tensor. tolerance
 * NULL: elements are equal when their bits are. Else as numpy.isclose(a, b, rtol, atol,
 * equal_nan=True): |a - b| <= atol + rtol * |b|, a NaN equals a NaN, an infinity itself.
 */
void dcpk_measure(const struct dcpk_element_run *run, const struct dcpk_tolerance *tolerance,
                  struct dcpk_compare *result);

/* Put a second result of the same tensors into the first. The order of merging makes no
 * difference. */
void dcpk_compare_merge(struct dcpk_compare *into, const struct dcpk_compare *other);

#endif

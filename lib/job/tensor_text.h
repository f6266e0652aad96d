/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_text.h - the elements of a tensor as text, in numpy's rows or as JSON, reading only what
 * is shown. */
#ifndef DCPK_LIB_JOB_TENSOR_TEXT_H
#define DCPK_LIB_JOB_TENSOR_TEXT_H

#include "lib/exec/exec.h"
#include "lib/tensor/slice.h"

#define DCPK_TEXT_THRESHOLD  1000 /* elements; numpy's print options */
#define DCPK_TEXT_EDGE_ITEMS 3

struct dcpk_text_options {
    bool all; /* never summarise; else past the threshold only the edges of each axis are read */
    /* Nested lists with every element, floats as doubles, complex numbers as [re, im]. */
    bool as_json;
    /* Takes the text, piece by piece. */
    dcpk_status (*put)(void *context, const void *data, size_t n_bytes, struct dcpk_error *err);
    void *context;
};

/*
 * The text of view[slice], without a newline at its end. Not JSON: numpy.array2string(a,
 * separator=', ') without wrapped lines, the elements as Python's repr has them, floats with the
 * fewest digits that distinguish them from their neighbours in their own dtype.
 */
dcpk_status dcpk_tensor_text(struct dcpk_exec *exec, const struct dcpk_view *view,
                             const struct dcpk_slice *slice,
                             const struct dcpk_text_options *options, struct dcpk_error *err);

#endif

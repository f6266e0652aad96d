/* SPDX-License-Identifier: Apache-2.0 */
/* npy.h - the elements of a tensor as a .npy file of numpy, streamed in bounded memory. */
#ifndef DCPK_LIB_JOB_NPY_H
#define DCPK_LIB_JOB_NPY_H

#include "lib/exec/exec.h"
#include "lib/tensor/slice.h"

enum {
    DCPK_NPY_WIDEN = 1u << 0, /* floats that numpy lacks become float32, which holds them */
};

struct dcpk_npy_options {
    unsigned flags;
    const struct dcpk_host_kernels *kernels;
    /* Takes the file, piece by piece. */
    dcpk_status (*put)(void *context, const void *data, size_t n_bytes, struct dcpk_error *err);
    void *context;
};

/*
 * numpy's name of what the file will hold, "<f4". Floats that numpy lacks (bfloat16, float8) are
 * "|V2" and "|V1", bits that .view(ml_dtypes.bfloat16) names again: what numpy.save writes of
 * arrays of ml_dtypes. NULL: numpy has no word for this dtype.
 */
const char *dcpk_npy_descr(enum dcpk_dtype dtype, unsigned flags);

/*
 * Write view[slice] as format version 1.0 (numpy/lib/format.py): header, then the elements,
 * row-major, little-endian. Errors: DCPK_EUNSUPPORTED for a dtype without a name; those of reading
 * and of put.
 */
dcpk_status dcpk_npy_write(struct dcpk_exec *exec, const struct dcpk_view *view,
                           const struct dcpk_slice *slice, const struct dcpk_npy_options *options,
                           struct dcpk_error *err);

#endif

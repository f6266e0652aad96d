/* SPDX-License-Identifier: Apache-2.0 */
/* host_kernels.h - tensor bytes in host memory: strided copies, casts, scales, weighted sums.
 * kernels/ implements it; cpu-plain is the specification. */
#ifndef DCPK_LIB_DEVICE_HOST_KERNELS_H
#define DCPK_LIB_DEVICE_HOST_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/error.h"
#include "lib/tensor/dtype.h"
#include "lib/tensor/scale.h"
#include "lib/tensor/strided.h"

/* All pointers are host memory, any alignment. Thread-safe. */
struct dcpk_host_kernels {
    const char *name;
    const char *summary;
    /* Cannot fail. Regions must not overlap. */
    void (*copy)(const struct dcpk_copy *c, const void *src, void *dst);
    /*
     * n elements of `from` to `to`, both row-major and apart, in host memory of any alignment.
     * Round to nearest, ties to even; overflow to infinity (f8_e4m3fn, which has none: NaN, as
     * torch does); NaN stays NaN. Pairs: any two of dcpk_dtype_is_float. Thread-safe. Errors:
     * DCPK_EUNSUPPORTED for any other pair.
     */
    dcpk_status (*cast)(enum dcpk_dtype from, const void *src, enum dcpk_dtype to, void *dst,
                        size_t n_elems, struct dcpk_error *err);
    /*
     * Values times their scales. A product is rounded to nearest, ties to even, subnormals kept;
     * NaN stays NaN, with any code. Cannot fail. out: n_rows x n_cols, row-major, apart from the
     * others.
     */
    void (*scale)(const struct dcpk_scale *s, const void *values, const float *scales, float *out);
    /*
     * A term of a weighted sum: sum[i] = weight * x[i] of the `first` one, else sum[i] + weight *
     * x[i]; the product and the sum are each rounded to nearest, ties to even, as torch does.
     * x, sum: n floats each, apart or the same. Cannot fail. Thread-safe.
     */
    void (*add_term)(float weight, const float *x, bool first, float *sum, size_t n);
    /* The same, but each product and sum is rounded once, together (fma of C), as in the products
     * of matrices of processors that have it. */
    void (*add_fused)(float weight, const float *x, bool first, float *sum, size_t n);
};

#endif

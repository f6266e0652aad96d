/* SPDX-License-Identifier: Apache-2.0 */
/* device.h - tensor bytes in host memory: strided copies and casts. kernels/ implements it;
 * cpu-plain is the specification. */
#ifndef DCPK_LIB_DEVICE_DEVICE_H
#define DCPK_LIB_DEVICE_DEVICE_H

#include <stddef.h>

#include "lib/base/error.h"
#include "lib/tensor/dtype.h"
#include "lib/tensor/strided.h"

/* All pointers are host memory, any alignment. Thread-safe. */
struct dcpk_device {
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
};

#endif

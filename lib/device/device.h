/* SPDX-License-Identifier: Apache-2.0 */
/* device.h - tensor bytes in memory: strided copies and casts by the processor, and spaces: memory
 * in which tables of tiles move. kernels/ implements it; cpu-plain is the specification. */
#ifndef DCPK_LIB_DEVICE_DEVICE_H
#define DCPK_LIB_DEVICE_DEVICE_H

#include <stddef.h>

#include "lib/base/error.h"
#include "lib/device/device_space.h"
#include "lib/tensor/dtype.h"
#include "lib/tensor/strided.h"

/*
 * A row of the table of devices. A part is NULL where a device does not have it: a conversion from
 * file to file needs copy and cast, which work on host memory; what moves tensors between ranks
 * needs a space.
 */
struct dcpk_device {
    const char *name;
    const char *summary;
    /* Host memory, any alignment. Regions must not overlap. Cannot fail. Thread-safe. */
    void (*copy)(const struct dcpk_copy *c, const void *src, void *dst);
    /*
     * n elements of `from` to `to`, both row-major and apart, in host memory of any alignment.
     * Round to nearest, ties to even; overflow to infinity (f8_e4m3fn, which has none: NaN, as
     * torch does); NaN stays NaN. Pairs: any two of dcpk_dtype_is_float. Thread-safe. Errors:
     * DCPK_EUNSUPPORTED for any other pair.
     */
    dcpk_status (*cast)(enum dcpk_dtype from, const void *src, enum dcpk_dtype to, void *dst,
                        size_t n_elems, struct dcpk_error *err);
    const struct dcpk_space_ops *space;
};

#endif

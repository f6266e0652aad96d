/* SPDX-License-Identifier: Apache-2.0 */
/* backend.h - bytes in memory: copy, cast, fill, hash. kernels/ implements it; cpu is the
 * specification. */
#ifndef DCPK_LIB_EXEC_BACKEND_H
#define DCPK_LIB_EXEC_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"
#include "lib/model/dtype.h"
#include "lib/model/strided.h"

/* XXH3-128 in the canonical (big-endian) byte order that prints as xxhsum's 32 hex digits. */
struct dcpk_hash {
    uint8_t digest[16];
};
struct dcpk_hasher; /* state of one running hash */

/*
 * All pointers are host memory, any alignment. Functions without a status cannot fail. Thread-safe.
 */
struct dcpk_backend {
    const char *name;
    const char *summary;
    /* Regions must not overlap. */
    void (*copy)(const struct dcpk_copy *c, const void *src, void *dst);
    /*
     * n elements of `from` to `to`, both row-major and apart. Round to nearest, ties to even;
     * overflow to infinity (f8_e4m3fn, which has none: NaN, as torch does); NaN stays NaN. Pairs:
     * any two of dcpk_dtype_is_float. Errors: DCPK_EUNSUPPORTED for any other pair.
     */
    dcpk_status (*cast)(enum dcpk_dtype from, const void *src, enum dcpk_dtype to, void *dst,
                        size_t n_elems, struct dcpk_error *err);
    void (*fill_zero)(void *dst, size_t n_bytes);
    uint32_t (*crc32)(uint32_t crc, const void *data, size_t n_bytes); /* zip's; start with 0 */
    uint32_t (*crc32_combine)(uint32_t crc_a, uint32_t crc_b, uint64_t b_bytes);
    dcpk_status (*hasher_new)(struct dcpk_hasher **hasher, struct dcpk_error *err);
    void (*hasher_reset)(struct dcpk_hasher *hasher);
    void (*hasher_update)(struct dcpk_hasher *hasher, const void *data, size_t n_bytes);
    void (*hasher_digest)(const struct dcpk_hasher *hasher, struct dcpk_hash *hash);
    void (*hasher_free)(struct dcpk_hasher *hasher); /* NULL is a no-op */
};

#endif

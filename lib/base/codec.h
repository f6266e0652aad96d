/* SPDX-License-Identifier: Apache-2.0 */
/* codec.h - the interface of a compressor of blocks of memory. */
#ifndef DCPK_LIB_BASE_CODEC_H
#define DCPK_LIB_BASE_CODEC_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"

/* Both functions are thread-safe. */
struct dcpk_codec {
    /* *n_out: the room in out; becomes the bytes written, 0 where they need more. Errors:
     * DCPK_ENOMEM. */
    dcpk_status (*encode)(const uint8_t *in, size_t n_in, uint8_t *out, size_t *n_out,
                          struct dcpk_error *err);
    /* Decode n_in bytes into exactly n_out. Errors: DCPK_EFORMAT, also for a wrong checksum. */
    dcpk_status (*decode)(const uint8_t *in, size_t n_in, uint8_t *out, size_t n_out,
                          struct dcpk_error *err);
};

#endif

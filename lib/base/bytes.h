/* SPDX-License-Identifier: Apache-2.0 */
/* bytes.h - a growing run of bytes, for text and records that are built up. */
#ifndef DCPK_LIB_BASE_BYTES_H
#define DCPK_LIB_BASE_BYTES_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"

/*
 * Zeroed = empty. Errors are sticky: the first failed append sets `status`, later appends do
 * nothing, so that a long sequence is checked once, by dcpk_bytes_status.
 */
struct dcpk_bytes {
    uint8_t *data; /* owned; NULL when empty */
    size_t n_bytes;
    size_t capacity;
    dcpk_status status;
};

void dcpk_bytes_release(struct dcpk_bytes *b);
void dcpk_bytes_put(struct dcpk_bytes *b, const void *data, size_t n_bytes);
void dcpk_bytes_text(struct dcpk_bytes *b, const char *text);
void dcpk_bytes_printf(struct dcpk_bytes *b, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void dcpk_bytes_u8(struct dcpk_bytes *b, uint8_t v);
void dcpk_bytes_u16(struct dcpk_bytes *b, uint16_t v); /* little-endian, as all below */
void dcpk_bytes_u32(struct dcpk_bytes *b, uint32_t v);
void dcpk_bytes_u64(struct dcpk_bytes *b, uint64_t v);
void dcpk_bytes_zeros(struct dcpk_bytes *b, size_t n);
/* DCPK_OK, or the sticky failure written into err. */
dcpk_status dcpk_bytes_status(const struct dcpk_bytes *b, struct dcpk_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* cursor.h - checked reads of little-endian bytes: no getter passes the end, no pointer is cast. */
#ifndef DCPK_LIB_BASE_CURSOR_H
#define DCPK_LIB_BASE_CURSOR_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"

/* Borrowed bytes and a position in them; `base_bytes` is added to positions in messages (place in
 * the file). */
struct dcpk_cursor {
    const uint8_t *data;
    size_t n_bytes;
    size_t at_bytes;
    uint64_t base_bytes;
};

/* Begins at the first of n_bytes at `data`, which may be NULL when n_bytes is 0. */
void dcpk_cursor_init(struct dcpk_cursor *c, const void *data, size_t n_bytes, uint64_t base_bytes);

/* Each moves on only on success; DCPK_EFORMAT "... at byte N passes the end" otherwise. */
dcpk_status dcpk_cursor_u16(struct dcpk_cursor *c, uint16_t *out, struct dcpk_error *err);
dcpk_status dcpk_cursor_u64(struct dcpk_cursor *c, uint64_t *out, struct dcpk_error *err);
/* The error of n bytes that pass the end. */
dcpk_status dcpk_cursor_fail(const struct dcpk_cursor *c, size_t n, struct dcpk_error *err);
/* Borrow the next n bytes. Inline, as the loads below: parsers call it for every few bytes. */
static inline dcpk_status dcpk_cursor_bytes(struct dcpk_cursor *c, size_t n, const uint8_t **out,
                                            struct dcpk_error *err)
{
    if (n > c->n_bytes - c->at_bytes)
        return dcpk_cursor_fail(c, n, err);
    *out = c->data + c->at_bytes;
    c->at_bytes += n;
    return DCPK_OK;
}
/* Borrow the text up to the next '\n', which is consumed; *n without it. */
dcpk_status dcpk_cursor_line(struct dcpk_cursor *c, const char **text, size_t *n,
                             struct dcpk_error *err);

static inline uint16_t dcpk_load_u16le(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t dcpk_load_u32le(const uint8_t *p)
{
    return (uint32_t)dcpk_load_u16le(p) | (uint32_t)dcpk_load_u16le(p + 2) << 16;
}

static inline uint64_t dcpk_load_u64le(const uint8_t *p)
{
    return (uint64_t)dcpk_load_u32le(p) | (uint64_t)dcpk_load_u32le(p + 4) << 32;
}

/* A number of n_bytes, at most 8. */
static inline uint64_t dcpk_load_le(const void *at, size_t n_bytes)
{
    const uint8_t *bytes = at;
    uint64_t n = 0;

    for (size_t i = 0; i < n_bytes; i++)
        n |= (uint64_t)bytes[i] << (8 * i);
    return n;
}

static inline void dcpk_store_u16le(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static inline void dcpk_store_u32le(uint8_t *p, uint32_t v)
{
    dcpk_store_u16le(p, (uint16_t)v);
    dcpk_store_u16le(p + 2, (uint16_t)(v >> 16));
}

static inline void dcpk_store_u64le(uint8_t *p, uint64_t v)
{
    dcpk_store_u32le(p, (uint32_t)v);
    dcpk_store_u32le(p + 4, (uint32_t)(v >> 32));
}

static inline void dcpk_store_u64be(uint8_t *p, uint64_t v)
{
    dcpk_store_u64le(p, __builtin_bswap64(v));
}

#endif

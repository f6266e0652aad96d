/* SPDX-License-Identifier: Apache-2.0 */
/* bytes.h - a growing run of bytes, for text and records that are built up. */
#ifndef DCPK_LIB_BASE_BYTES_H
#define DCPK_LIB_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "lib/base/arena.h"
#include "lib/base/cursor.h"
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

/* Frees the bytes and empties the struct; a zeroed one is a no-op. */
void dcpk_bytes_release(struct dcpk_bytes *b);

/* Make room for n more bytes. Returns false when there is none and sets `status`. */
bool dcpk_bytes_reserve(struct dcpk_bytes *b, size_t n);

/* Append n bytes, counted already, for the caller to fill before the next append. NULL: no room.
 * Inline: encoders append byte by byte. */
static inline uint8_t *dcpk_bytes_extend(struct dcpk_bytes *b, size_t n)
{
    if ((b->status != DCPK_OK || n > b->capacity - b->n_bytes) && !dcpk_bytes_reserve(b, n))
        return NULL;
    b->n_bytes += n;
    return b->data + (b->n_bytes - n);
}

static inline void dcpk_bytes_u8(struct dcpk_bytes *b, uint8_t v)
{
    uint8_t *at = dcpk_bytes_extend(b, 1);

    if (at != NULL)
        *at = v;
}

static inline void dcpk_bytes_put(struct dcpk_bytes *b, const void *data, size_t n_bytes)
{
    uint8_t *at;

    if (n_bytes > 0 && (at = dcpk_bytes_extend(b, n_bytes)) != NULL)
        memcpy(at, data, n_bytes);
}

/* Little-endian, as u64 below. */
static inline void dcpk_bytes_u16(struct dcpk_bytes *b, uint16_t v)
{
    uint8_t *at = dcpk_bytes_extend(b, sizeof v);

    if (at != NULL)
        dcpk_store_u16le(at, v);
}

static inline void dcpk_bytes_u32(struct dcpk_bytes *b, uint32_t v)
{
    uint8_t *at = dcpk_bytes_extend(b, sizeof v);

    if (at != NULL)
        dcpk_store_u32le(at, v);
}

/* Append a text without its NUL, formatted text, a little-endian number, n zeros. */
void dcpk_bytes_text(struct dcpk_bytes *b, const char *text);
/* Append text as one word of a POSIX shell: in quotes where the shell would read more into it. With
 * keeps_variables "$A/b" stays one that it fills in. */
void dcpk_bytes_shell_word(struct dcpk_bytes *b, const char *text, bool keeps_variables);
void dcpk_bytes_printf(struct dcpk_bytes *b, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void dcpk_bytes_u64(struct dcpk_bytes *b, uint64_t v);
void dcpk_bytes_zeros(struct dcpk_bytes *b, size_t n);
/* DCPK_OK, or the sticky failure written into err. */
dcpk_status dcpk_bytes_status(const struct dcpk_bytes *b, struct dcpk_error *err);
/* The text in the arena, with a NUL after it, and the bytes released. NULL after a failure. */
const char *dcpk_bytes_to_arena(struct dcpk_bytes *b, struct dcpk_arena *arena,
                                struct dcpk_error *err);

#endif

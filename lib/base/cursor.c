/* SPDX-License-Identifier: Apache-2.0 */
/* cursor.c - checked reads of little-endian bytes. */
#include "lib/base/cursor.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

void dcpk_cursor_init(struct dcpk_cursor *c, const void *data, size_t n_bytes, uint64_t base_bytes)
{
    static const uint8_t nothing = 0;

    c->data = data == NULL ? &nothing : data; /* NULL + 0 is undefined in C */
    c->n_bytes = n_bytes;
    c->at_bytes = 0;
    c->base_bytes = base_bytes;
}

/* The place of the next byte in the file; base_bytes may come from a file, wrapping is harmless. */
static uint64_t place(const struct dcpk_cursor *c)
{
    return c->base_bytes + c->at_bytes;
}

dcpk_status dcpk_cursor_fail(const struct dcpk_cursor *c, size_t n, struct dcpk_error *err)
{
    assert(c->at_bytes <= c->n_bytes);
    return dcpk_fail(err, DCPK_EFORMAT,
                     "field of %zu bytes at byte %" PRIu64 " passes the end at byte %" PRIu64, n,
                     place(c), c->base_bytes + c->n_bytes);
}

dcpk_status dcpk_cursor_u16(struct dcpk_cursor *c, uint16_t *out, struct dcpk_error *err)
{
    const uint8_t *p;

    if (dcpk_cursor_bytes(c, sizeof *out, &p, err) != DCPK_OK)
        return err->status;
    *out = dcpk_load_u16le(p);
    return DCPK_OK;
}

dcpk_status dcpk_cursor_u64(struct dcpk_cursor *c, uint64_t *out, struct dcpk_error *err)
{
    const uint8_t *p;

    if (dcpk_cursor_bytes(c, sizeof *out, &p, err) != DCPK_OK)
        return err->status;
    *out = dcpk_load_u64le(p);
    return DCPK_OK;
}

dcpk_status dcpk_cursor_line(struct dcpk_cursor *c, const char **text, size_t *n,
                             struct dcpk_error *err)
{
    const size_t rest = c->n_bytes - c->at_bytes;
    const uint8_t *start = c->data + c->at_bytes;
    const uint8_t *end = memchr(start, '\n', rest);

    if (end == NULL)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "line at byte %" PRIu64 " passes the end at byte %" PRIu64, place(c),
                         c->base_bytes + c->n_bytes);
    *text = (const char *)start;
    *n = (size_t)(end - start);
    c->at_bytes += *n + 1;
    return DCPK_OK;
}

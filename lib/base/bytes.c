/* SPDX-License-Identifier: Apache-2.0 */
/* bytes.c - a growing run of bytes with a sticky error. */
#include "lib/base/bytes.h"

#include <stdarg.h>
#include <stdio.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"

#define FIRST_CAPACITY 256

void dcpk_bytes_release(struct dcpk_bytes *b)
{
    dcpk_free(b->data);
    memset(b, 0, sizeof *b);
}

bool dcpk_bytes_reserve(struct dcpk_bytes *b, size_t n)
{
    struct dcpk_error err;
    size_t need, capacity;
    void *data;

    if (b->status != DCPK_OK)
        return false;
    if (n <= b->capacity - b->n_bytes)
        return true;
    if (__builtin_add_overflow(b->n_bytes, n, &need)) {
        b->status = DCPK_ENOMEM;
        return false;
    }
    capacity = dcpk_max_size(b->capacity, FIRST_CAPACITY);
    while (capacity < need)
        capacity = capacity > SIZE_MAX / 2 ? need : capacity * 2;
    data = dcpk_realloc(b->data, capacity, &err);
    if (data == NULL) {
        b->status = DCPK_ENOMEM;
        return false;
    }
    b->data = data;
    b->capacity = capacity;
    return true;
}

void dcpk_bytes_text(struct dcpk_bytes *b, const char *text)
{
    dcpk_bytes_put(b, text, strlen(text));
}

void dcpk_bytes_shell_word(struct dcpk_bytes *b, const char *text, bool keeps_variables)
{
    const char *const special = " \t\r\n\"'`&;|()<>#*?![\\";
    const bool is_variable = !keeps_variables && strchr(text, '$') != NULL;

    if (text[0] != '\0' && text[strcspn(text, special)] == '\0' && !is_variable) {
        dcpk_bytes_text(b, text);
        return;
    }
    dcpk_bytes_u8(b, '\'');
    for (; *text != '\0'; text++)
        if (*text == '\'')
            dcpk_bytes_text(b, "'\\''");
        else
            dcpk_bytes_u8(b, (uint8_t)*text);
    dcpk_bytes_u8(b, '\'');
}

void dcpk_bytes_printf(struct dcpk_bytes *b, const char *fmt, ...)
{
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0)
        b->status = DCPK_ENOMEM; /* longer than INT_MAX */
    if (n <= 0 || !dcpk_bytes_reserve(b, (size_t)n + 1))
        return;
    va_start(args, fmt);
    vsnprintf((char *)b->data + b->n_bytes, (size_t)n + 1, fmt, args);
    va_end(args);
    b->n_bytes += (size_t)n; /* the NUL is room for the next append */
}

void dcpk_bytes_u64(struct dcpk_bytes *b, uint64_t v)
{
    uint8_t *at = dcpk_bytes_extend(b, sizeof v);

    if (at != NULL)
        dcpk_store_u64le(at, v);
}

void dcpk_bytes_zeros(struct dcpk_bytes *b, size_t n)
{
    uint8_t *at;

    if (n > 0 && (at = dcpk_bytes_extend(b, n)) != NULL)
        memset(at, 0, n);
}

dcpk_status dcpk_bytes_status(const struct dcpk_bytes *b, struct dcpk_error *err)
{
    if (b->status == DCPK_OK)
        return DCPK_OK;
    return dcpk_fail(err, b->status, "out of memory after %zu bytes of text", b->n_bytes);
}

const char *dcpk_bytes_to_arena(struct dcpk_bytes *b, struct dcpk_arena *arena,
                                struct dcpk_error *err)
{
    const char *text = NULL;

    if (dcpk_bytes_status(b, err) == DCPK_OK)
        text = dcpk_arena_strndup(arena, (const char *)b->data, b->n_bytes, err);
    dcpk_bytes_release(b);
    return text;
}

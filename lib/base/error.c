/* SPDX-License-Identifier: Apache-2.0 */
/* error.c - building the sentence of an error inside the error itself. */
#include "lib/base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/*
 * Format into a local buffer first: arguments may point into err->text.
 * Control bytes become '?': keys and names come from files, and a terminal would obey them.
 */
static void write_text(struct dcpk_error *err, const char *fmt, va_list args)
    __attribute__((format(printf, 2, 0)));
static void write_text(struct dcpk_error *err, const char *fmt, va_list args)
{
    char text[DCPK_ERROR_BYTES];

    if (vsnprintf(text, sizeof text, fmt, args) < 0)
        text[0] = '\0';
    for (char *p = text; *p != '\0'; p++) {
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = '?';
    }
    memcpy(err->text, text, strlen(text) + 1);
}

/* Append at the end of the text; what does not fit is cut. */
static void append(struct dcpk_error *err, const char *more)
{
    const size_t used = strlen(err->text);
    const size_t room = sizeof err->text - used - 1;
    size_t n = strlen(more);

    if (n > room)
        n = room;
    memcpy(err->text + used, more, n);
    err->text[used + n] = '\0';
}

dcpk_status dcpk_fail(struct dcpk_error *err, dcpk_status status, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    write_text(err, fmt, args);
    va_end(args);
    err->status = status;
    err->fixes = 0;
    return status;
}

dcpk_status dcpk_fail_fix(struct dcpk_error *err, dcpk_status status, unsigned fixes,
                          const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    write_text(err, fmt, args);
    va_end(args);
    err->status = status;
    err->fixes = fixes;
    return status;
}

dcpk_status dcpk_fail_errno(struct dcpk_error *err, int code, const char *fmt, ...)
{
    char reason[128];
    va_list args;

    va_start(args, fmt);
    write_text(err, fmt, args);
    va_end(args);
    append(err, ": ");
    append(err, strerror_r(code, reason, sizeof reason)); /* glibc's: returns the text */
    err->status = DCPK_EIO;
    err->fixes = 0;
    return DCPK_EIO;
}

dcpk_status dcpk_context(struct dcpk_error *err, const char *fmt, ...)
{
    char inner[DCPK_ERROR_BYTES];
    va_list args;

    memcpy(inner, err->text, strlen(err->text) + 1);
    va_start(args, fmt);
    write_text(err, fmt, args);
    va_end(args);
    append(err, ": ");
    append(err, inner);
    return err->status;
}

void dcpk_append(struct dcpk_error *err, const char *fmt, ...)
{
    const size_t n = strlen(err->text);
    va_list args;

    va_start(args, fmt);
    vsnprintf(err->text + n, sizeof err->text - n, fmt, args);
    va_end(args);
}

bool dcpk_status_is_content(dcpk_status status)
{
    return status == DCPK_EFORMAT || status == DCPK_EUNSUPPORTED || status == DCPK_ERANGE ||
           status == DCPK_EMISMATCH;
}

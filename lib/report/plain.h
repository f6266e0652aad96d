/* SPDX-License-Identifier: Apache-2.0 */
/* plain.h - text that may hold anything, made fit to be shown. */
#ifndef DCPK_LIB_REPORT_PLAIN_H
#define DCPK_LIB_REPORT_PLAIN_H

#include <stddef.h>
#include <stdint.h>

/*
 * Checkpoints and paths may hold any bytes. Controls of C0 and C1, characters that turn the
 * direction of text, and bytes that are not UTF-8 come out as \xNN.
 */

/* The output. text: borrowed until `put` returns. */
struct dcpk_plain {
    void (*put)(void *to, const char *text, size_t n_bytes);
    void *to;
    size_t columns; /* no line is longer, except for a word that is; 0: DCPK_PLAIN_COLUMNS */
};

#define DCPK_PLAIN_COLUMNS 100
size_t dcpk_plain_width(const struct dcpk_plain *out);

/* A character is one column, an escaped byte four. */
size_t dcpk_plain_columns(const char *text, size_t n_bytes);

/* Text in one line: a newline in it comes out as \x0a. */
void dcpk_plain_put(const struct dcpk_plain *out, const char *text, size_t n_bytes);
/*
 * One paragraph after the `at` columns that stand on its first line; its further lines begin at
 * column `indent`. Blanks stay as they are where no line is broken. No newline at the end.
 */
void dcpk_plain_wrap(const struct dcpk_plain *out, const char *text, size_t n_bytes, size_t at,
                     size_t indent);
void dcpk_plain_blanks(const struct dcpk_plain *out, size_t n);

/* "1.50 GiB", below 1 KiB "412 bytes". Returns text. */
#define DCPK_PLAIN_SIZE_BYTES 48
const char *dcpk_plain_size(uint64_t n_bytes, char text[DCPK_PLAIN_SIZE_BYTES]);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* wrap.h - text for a terminal: broken between words, without what could play with the terminal. */
#ifndef DCPK_TOOLS_WRAP_H
#define DCPK_TOOLS_WRAP_H

#include <stddef.h>
#include <stdio.h>

/* No line of help or of a report is longer, but for a word that is. */
#define DCPK_CLI_COLUMNS 100

/*
 * Print n_bytes of text as one paragraph behind the `at` columns that stand on its first line; its
 * further lines begin at column `indent`. Blanks stay as they are where no line is broken. Bytes
 * of control characters and what is no UTF-8 come out as \xNN. Prints no newline at the end.
 */
void dcpk_cli_put_wrapped(FILE *to, const char *text, size_t n_bytes, size_t at, size_t indent);

/* Text in one line, as it is but for what comes out as \xNN, as above. */
void dcpk_cli_put_text(FILE *to, const char *text);
/* The same of its first n_bytes. */
void dcpk_cli_put_part(FILE *to, const char *text, size_t n_bytes);

#endif

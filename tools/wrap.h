/* SPDX-License-Identifier: Apache-2.0 */
/* wrap.h - all text that is printed: nothing in it plays with the terminal, and long lines
 * break. */
#ifndef DCPK_TOOLS_WRAP_H
#define DCPK_TOOLS_WRAP_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "lib/report/plain.h"

/*
 * The text of a checkpoint, a path or an argument may hold anything. These functions are the only
 * way to stdout and stderr (tests/layers.sh), so that no byte of it reaches a terminal as a
 * control: those of C0 and C1, what turns the direction of text, and what is not UTF-8 come out as
 * \xNN.
 */

/*
 * Columns of a line of help or of a report, except a word that is longer: the terminal's, from 60
 * to 160; where `to` is none, those of COLUMNS, or 100.
 */
size_t dcpk_cli_columns(FILE *to);
/* True if `to` shows colours. A terminal does unless NO_COLOR is set; CLICOLOR_FORCE is for other
 * files (https://no-color.org, https://bixense.com/clicolors). */
bool dcpk_cli_has_colour(FILE *to);

/*
 * Print n_bytes of text as one paragraph after the `at` columns that stand on its first line; its
 * further lines begin at column `indent`. Blanks stay as they are where no line is broken.
 * Prints no newline at the end.
 */
void dcpk_cli_put_wrapped(FILE *to, const char *text, size_t n_bytes, size_t at, size_t indent);

/* Text in one line: a newline in it, too, comes out as \x0a. */
void dcpk_cli_put_text(FILE *to, const char *text);
/* The same of its first n_bytes. */
void dcpk_cli_put_part(FILE *to, const char *text, size_t n_bytes);

/* The same of text whose newlines are ours: JSON, lines put together before. */
void dcpk_cli_put_lines(FILE *to, const char *text, size_t n_bytes);

/* Text that lib/report/plain.h has wrapped already: unchanged, with its tabs and newlines. */
void dcpk_cli_put_plain(FILE *to, const char *text, size_t n_bytes);

/* As fprintf, but where an argument has a newline or a control all but the newline at the end
 * comes out as one line (dcpk_cli_put_text). Widths are bytes. Without memory, text beyond 4 KiB is
 * cut. */
void dcpk_cli_printf(FILE *to, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void dcpk_cli_vprintf(FILE *to, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));

/* For a terminal: moves back to the line's begin, and empties it. */
void dcpk_cli_clear_line(FILE *to);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* wrap.c - text for a terminal: broken between words, without what could play with the terminal. */
#include "tools/wrap.h"

#include <stdbool.h>
#include <string.h>

static bool is_control(char c)
{
    return (unsigned char)c < 0x20 || c == 0x7f;
}

static void put_char(FILE *to, char c)
{
    if (is_control(c))
        fprintf(to, "\\x%02x", (unsigned char)c);
    else
        putc(c, to);
}

/* Bytes past the first of a UTF-8 character take no column. */
static size_t count_columns(const char *text, size_t n_bytes)
{
    size_t n = 0;

    for (size_t i = 0; i < n_bytes; i++)
        n += is_control(text[i]) ? 4 : ((unsigned char)text[i] & 0xc0) != 0x80;
    return n;
}

/* How many bytes from `text` on are blanks, or are none. */
static size_t count_run(const char *text, const char *end, bool is_blank)
{
    const char *at = text;

    while (at < end && (*at == ' ') == is_blank)
        at++;
    return (size_t)(at - text);
}

void dcpk_cli_put_wrapped(FILE *to, const char *text, size_t n_bytes, size_t at, size_t indent)
{
    const char *end = text + n_bytes;

    for (bool is_first = true; text < end; is_first = false) {
        const size_t n_blanks = count_run(text, end, true);
        const char *word = text + n_blanks;
        const size_t n_word = count_run(word, end, false);
        const size_t columns = count_columns(word, n_word);

        if (!is_first && at + n_blanks + columns > DCPK_CLI_COLUMNS) {
            fprintf(to, "\n%*s", (int)indent, "");
            at = indent;
        } else {
            fprintf(to, "%*s", (int)n_blanks, "");
            at += n_blanks;
        }
        for (size_t i = 0; i < n_word; i++)
            put_char(to, word[i]);
        at += columns;
        text = word + n_word;
    }
}

void dcpk_cli_put_text(FILE *to, const char *text)
{
    for (; *text != '\0'; text++)
        put_char(to, *text);
}

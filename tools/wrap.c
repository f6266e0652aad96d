/* SPDX-License-Identifier: Apache-2.0 */
/* wrap.c - text for a terminal: broken between words, without what could play with the terminal. */
#include "tools/wrap.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/*
 * Bytes of the character at text[0 .. n), n > 0, when a terminal may have it: well-formed UTF-8
 * (RFC 3629), no control character, neither of C0 nor of C1 (U+0080 to U+009F). 0: the byte is to
 * be escaped.
 */
static size_t measure(const char *text, size_t n)
{
    const unsigned char *b = (const unsigned char *)text;
    const size_t n_bytes = b[0] < 0x80 ? 1 : b[0] < 0xe0 ? 2 : b[0] < 0xf0 ? 3 : 4;
    static const uint32_t least[] = {0, 0x20, 0xa0, 0x800, 0x10000};
    uint32_t code = n_bytes == 1 ? b[0] : b[0] & (0x7fu >> n_bytes);

    if ((b[0] >= 0x80 && b[0] < 0xc2) || b[0] > 0xf4 || n_bytes > n || b[0] == 0x7f)
        return 0;
    for (size_t i = 1; i < n_bytes; i++) {
        if ((b[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (b[i] & 0x3f);
    }
    if (code < least[n_bytes] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
        return 0;
    return n_bytes;
}

void dcpk_cli_put_part(FILE *to, const char *text, size_t n_bytes)
{
    for (size_t i = 0, n; i < n_bytes; i += n) {
        n = measure(text + i, n_bytes - i);
        if (n > 0) {
            fwrite(text + i, 1, n, to);
            continue;
        }
        fprintf(to, "\\x%02x", (unsigned char)text[i]);
        n = 1;
    }
}

/* A character is one column, an escaped byte four. */
static size_t count_columns(const char *text, size_t n_bytes)
{
    size_t n_columns = 0;

    for (size_t i = 0, n; i < n_bytes; i += n == 0 ? 1 : n) {
        n = measure(text + i, n_bytes - i);
        n_columns += n == 0 ? 4 : 1;
    }
    return n_columns;
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
        dcpk_cli_put_part(to, word, n_word);
        at += columns;
        text = word + n_word;
    }
}

void dcpk_cli_put_text(FILE *to, const char *text)
{
    dcpk_cli_put_part(to, text, strlen(text));
}

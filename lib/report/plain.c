/* SPDX-License-Identifier: Apache-2.0 */
/* plain.c - text that may hold anything, made fit to be shown; lines that break. */
#include "lib/report/plain.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

#include "lib/base/json.h"
#include "lib/base/order.h"

/* Characters that turn the direction of what follows (UAX #9), or are marks of it: a name with them
 * looks like a different name. */
static bool turns_text(uint32_t code)
{
    return code == 0x61c || code == 0x200e || code == 0x200f ||
           (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

/* The bytes of the character that text begins with, where a terminal may have it: well-formed
 * UTF-8, not a control character of C0 or C1 (U+0080 to U+009F), not one that turns text; else 0.
 */
static size_t plain_measure(const char *text, size_t n)
{
    size_t n_bytes;
    const uint32_t code = dcpk_utf8_decode((const uint8_t *)text, n, &n_bytes);

    if (code == DCPK_BAD_UTF8 || code < 0x20 || (code >= 0x7f && code < 0xa0) || turns_text(code))
        return 0;
    return n_bytes;
}

/* ASCII and not a control: nearly all there is. */
static bool is_plain(char c)
{
    return c >= 0x20 && c < 0x7f;
}

void dcpk_plain_put(const struct dcpk_plain *out, const char *text, size_t n_bytes)
{
    size_t done = 0;
    char escape[8];

    for (size_t i = 0, n; i < n_bytes; i += n) {
        n = is_plain(text[i]) ? 1 : plain_measure(text + i, n_bytes - i);
        if (n > 0)
            continue;
        out->put(out->to, text + done, i - done);
        snprintf(escape, sizeof escape, "\\x%02x", (unsigned char)text[i]);
        out->put(out->to, escape, 4);
        n = 1;
        done = i + n;
    }
    out->put(out->to, text + done, n_bytes - done);
}

size_t dcpk_plain_columns(const char *text, size_t n_bytes)
{
    size_t n_columns = 0;

    for (size_t i = 0, n; i < n_bytes; i += dcpk_max_size(n, 1)) {
        n = plain_measure(text + i, n_bytes - i);
        n_columns += n == 0 ? 4 : 1;
    }
    return n_columns;
}

void dcpk_plain_blanks(const struct dcpk_plain *out, size_t n)
{
    static const char blanks[] = "                                ";

    for (size_t part; n > 0; n -= part) {
        part = dcpk_min_size(n, sizeof blanks - 1);
        out->put(out->to, blanks, part);
    }
}

size_t dcpk_plain_width(const struct dcpk_plain *out)
{
    if (out->columns == 0)
        return DCPK_PLAIN_COLUMNS;
    return out->columns;
}

/* The number of bytes from `text` on that are blanks, or that are not. */
static size_t count_run(const char *text, const char *end, bool is_blank)
{
    const char *at = text;

    while (at < end && (*at == ' ') == is_blank)
        at++;
    return (size_t)(at - text);
}

void dcpk_plain_wrap(const struct dcpk_plain *out, const char *text, size_t n_bytes, size_t at,
                     size_t indent)
{
    const char *end = text + n_bytes;
    const size_t width = dcpk_plain_width(out);

    for (bool is_first = true; text < end; is_first = false) {
        const size_t n_blanks = count_run(text, end, true);
        const char *word = text + n_blanks;
        const size_t n_word = count_run(word, end, false);
        const size_t columns = dcpk_plain_columns(word, n_word);

        if (!is_first && at + n_blanks + columns > width) {
            out->put(out->to, "\n", 1);
            dcpk_plain_blanks(out, indent);
            at = indent;
        } else {
            dcpk_plain_blanks(out, n_blanks);
            at += n_blanks;
        }
        dcpk_plain_put(out, word, n_word);
        at += columns;
        text = word + n_word;
    }
}

const char *dcpk_plain_size(uint64_t n_bytes, char text[DCPK_PLAIN_SIZE_BYTES])
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double size = (double)n_bytes / 1024;
    size_t unit = 0;

    if (n_bytes < 1024) {
        snprintf(text, DCPK_PLAIN_SIZE_BYTES, "%" PRIu64 " bytes", n_bytes);
        return text;
    }
    for (; size >= 1024 && unit + 1 < DCPK_COUNT(units); unit++)
        size /= 1024;
    snprintf(text, DCPK_PLAIN_SIZE_BYTES, "%.2f %s", size, units[unit]);
    return text;
}

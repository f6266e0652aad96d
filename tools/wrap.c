/* SPDX-License-Identifier: Apache-2.0 */
/* wrap.c - all text that is printed: nothing in it plays with the terminal, and long lines break.
 */
#include "tools/wrap.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Characters that turn the direction of what follows (UAX #9), or are marks of it: a name with them
 * reads as another one. */
static bool turns_text(uint32_t code)
{
    return code == 0x61c || code == 0x200e || code == 0x200f ||
           (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

/*
 * Bytes of the character at text[0 .. n), n > 0, when a terminal may have it: well-formed UTF-8
 * (RFC 3629), no control character, neither of C0 nor of C1 (U+0080 to U+009F), none that turns
 * text. 0: the byte is to be escaped.
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
    if (code < least[n_bytes] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff) ||
        turns_text(code))
        return 0;
    return n_bytes;
}

/* ASCII and no control: nearly all there is. */
static bool is_plain(char c)
{
    return c >= 0x20 && c < 0x7f;
}

void dcpk_cli_put_part(FILE *to, const char *text, size_t n_bytes)
{
    size_t done = 0;

    for (size_t i = 0, n; i < n_bytes; i += n) {
        n = is_plain(text[i]) ? 1 : measure(text + i, n_bytes - i);
        if (n > 0)
            continue;
        fwrite(text + done, 1, i - done, to);
        fprintf(to, "\\x%02x", (unsigned char)text[i]);
        n = 1;
        done = i + n;
    }
    fwrite(text + done, 1, n_bytes - done, to);
}

void dcpk_cli_put_lines(FILE *to, const char *text, size_t n_bytes)
{
    const char *end = text + n_bytes;

    while (text < end) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        const char *stop = newline == NULL ? end : newline;

        dcpk_cli_put_part(to, text, (size_t)(stop - text));
        if (newline != NULL)
            putc('\n', to);
        text = newline == NULL ? end : newline + 1;
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

/* ---- formats ---- */

#define NUMBER_BYTES 512 /* of a number with up to 17 digits behind the point */
#define MOST_DIGITS  17

/* "%-10s", "%*.3g": a conversion as C has it, but for the flags '+', ' ' and '#'. */
struct conversion {
    bool is_left, is_zero_filled;
    int width, precision; /* precision -1: none is given */
    char length;          /* 0, 'l', 'q' (ll), 'j', 'z'; short types come as int */
    char kind;
};

static int read_number(const char **at, va_list *ap)
{
    int number = 0;

    if (**at == '*') {
        ++*at;
        return va_arg(*ap, int);
    }
    for (; **at >= '0' && **at <= '9'; ++*at)
        number = 10 * number + (**at - '0');
    return number;
}

/* Read the conversion behind a '%'; returns what follows it. */
static const char *read_conversion(const char *at, struct conversion *c, va_list *ap)
{
    *c = (struct conversion){.precision = -1};
    for (; *at == '-' || *at == '0'; at++) {
        c->is_left |= *at == '-';
        c->is_zero_filled |= *at == '0';
    }
    c->width = read_number(&at, ap);
    if (*at == '.') {
        at++;
        c->precision = read_number(&at, ap);
    }
    for (; *at != '\0' && strchr("hljz", *at) != NULL; at++)
        if (*at != 'h')
            c->length = c->length == 'l' ? 'q' : *at;
    c->kind = *at;
    return at + 1;
}

static intmax_t take_signed(char length, va_list *ap)
{
    switch (length) {
    case 'l':
        return va_arg(*ap, long);
    case 'q':
        return va_arg(*ap, long long);
    case 'j':
        return va_arg(*ap, intmax_t);
    case 'z':
        return va_arg(*ap, ptrdiff_t);
    default:
        return va_arg(*ap, int);
    }
}

static uintmax_t take_unsigned(char length, va_list *ap)
{
    switch (length) {
    case 'l':
        return va_arg(*ap, unsigned long);
    case 'q':
        return va_arg(*ap, unsigned long long);
    case 'j':
        return va_arg(*ap, uintmax_t);
    case 'z':
        return va_arg(*ap, size_t);
    default:
        return va_arg(*ap, unsigned);
    }
}

/* A number's text, without its padding. */
static void write_number(const struct conversion *c, va_list *ap, char text[NUMBER_BYTES])
{
    const int precision = c->precision < 0 ? 6 : c->precision;

    assert(precision <= MOST_DIGITS);
    switch (c->kind) {
    case 'd':
        snprintf(text, NUMBER_BYTES, "%jd", take_signed(c->length, ap));
        break;
    case 'u':
        snprintf(text, NUMBER_BYTES, "%ju", take_unsigned(c->length, ap));
        break;
    case 'x':
        snprintf(text, NUMBER_BYTES, "%jx", take_unsigned(c->length, ap));
        break;
    case 'f':
        snprintf(text, NUMBER_BYTES, "%.*f", precision, va_arg(*ap, double));
        break;
    default:
        assert(c->kind == 'g');
        snprintf(text, NUMBER_BYTES, "%.*g", precision, va_arg(*ap, double));
    }
}

static void put_padded(FILE *to, const struct conversion *c, const char *text, size_t n_bytes)
{
    const bool is_left = c->is_left || c->width < 0;
    const size_t width = (size_t)(c->width < 0 ? -c->width : c->width);
    const size_t columns = count_columns(text, n_bytes);

    for (size_t i = columns; i < width && !is_left; i++)
        putc(c->is_zero_filled ? '0' : ' ', to);
    dcpk_cli_put_part(to, text, n_bytes);
    for (size_t i = columns; i < width && is_left; i++)
        putc(' ', to);
}

static void put_conversion(FILE *to, const struct conversion *c, va_list *ap)
{
    char text[NUMBER_BYTES];
    const char *string;

    if (c->kind == '%') {
        putc('%', to);
    } else if (c->kind == 's') {
        string = va_arg(*ap, const char *);
        put_padded(to, c, string,
                   c->precision < 0 ? strlen(string) : strnlen(string, (size_t)c->precision));
    } else if (c->kind == 'c') {
        text[0] = (char)va_arg(*ap, int);
        put_padded(to, c, text, 1);
    } else {
        write_number(c, ap, text);
        put_padded(to, c, text, strlen(text));
    }
}

void dcpk_cli_vprintf(FILE *to, const char *fmt, va_list ap)
{
    struct conversion c;
    va_list rest;

    va_copy(rest, ap);
    while (*fmt != '\0') {
        const size_t n = strcspn(fmt, "%");

        fwrite(fmt, 1, n, to); /* the program's own text, with its newlines */
        fmt += n;
        if (*fmt == '\0')
            break;
        fmt = read_conversion(fmt + 1, &c, &rest);
        put_conversion(to, &c, &rest);
    }
    va_end(rest);
}

void dcpk_cli_printf(FILE *to, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    dcpk_cli_vprintf(to, fmt, ap);
    va_end(ap);
}

/* ---- terminals ---- */

void dcpk_cli_clear_line(FILE *to)
{
    fputs("\r\033[K", to);
}

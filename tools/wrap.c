/* SPDX-License-Identifier: Apache-2.0 */
/* wrap.c - all text that is printed: nothing in it plays with the terminal, and long lines
 * break. */
#include "tools/wrap.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "lib/base/order.h"
#include "lib/exec/ranks.h"

#define MIN_COLUMNS 60
#define MAX_COLUMNS 160

static void put_file(void *to, const char *text, size_t n_bytes)
{
    fwrite(text, 1, n_bytes, to);
}

void dcpk_cli_put_part(FILE *to, const char *text, size_t n_bytes)
{
    dcpk_plain_put(&(struct dcpk_plain){.put = put_file, .to = to}, text, n_bytes);
}

void dcpk_cli_put_plain(FILE *to, const char *text, size_t n_bytes)
{
    put_file(to, text, n_bytes);
}

void dcpk_cli_put_lines(FILE *to, const char *text, size_t n_bytes)
{
    const char *end = text + n_bytes;

    while (text < end) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));

        if (newline == NULL) {
            dcpk_cli_put_part(to, text, (size_t)(end - text));
            return;
        }
        dcpk_cli_put_part(to, text, (size_t)(newline - text));
        putc('\n', to);
        text = newline + 1;
    }
}

void dcpk_cli_put_wrapped(FILE *to, const char *text, size_t n_bytes, size_t at, size_t indent)
{
    const struct dcpk_plain out = {put_file, to, dcpk_cli_columns(to)};

    dcpk_plain_wrap(&out, text, n_bytes, at, indent);
}

void dcpk_cli_put_text(FILE *to, const char *text)
{
    dcpk_cli_put_part(to, text, strlen(text));
}

/* ---- formats ---- */

#define NUMBER_BYTES 512 /* of a number with up to 17 digits after the point */
#define MAX_DIGITS   17

/* "%-10s", "%*.3g": a conversion as C has it, except for the flags '+', ' ' and '#'. */
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

/* Read the conversion after a '%'; returns what follows it. */
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

    assert(precision <= MAX_DIGITS);
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
    const size_t width = (size_t)abs(c->width);
    const size_t columns = dcpk_plain_columns(text, n_bytes);

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
    size_t n_bytes = SIZE_MAX;

    if (c->kind == '%') {
        putc('%', to);
    } else if (c->kind == 's') {
        string = va_arg(*ap, const char *);
        if (c->precision >= 0)
            n_bytes = (size_t)c->precision;
        put_padded(to, c, string, strnlen(string, n_bytes));
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

size_t dcpk_cli_columns(FILE *to)
{
    const char *asked = getenv("COLUMNS");
    struct winsize size = {0};
    unsigned long n;

    if (ioctl(fileno(to), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
        n = asked == NULL ? 0 : strtoul(asked, NULL, 10);
        return n < MIN_COLUMNS ? DCPK_PLAIN_COLUMNS : n;
    }
    return dcpk_max_size(dcpk_min_size(size.ws_col, MAX_COLUMNS), MIN_COLUMNS);
}

/* A variable that is set to more than "0" or nothing. */
static bool wrap_is_set(const char *name)
{
    const char *value = getenv(name);

    return value != NULL && *value != '\0' && strcmp(value, "0") != 0;
}

bool dcpk_cli_has_colour(FILE *to)
{
    const char *term = getenv("TERM");

    if (wrap_is_set("NO_COLOR"))
        return false;
    if (wrap_is_set("CLICOLOR_FORCE"))
        return true;
    /* mpirun gives each rank a terminal of its own and passes the bytes on to a file, too. */
    if (dcpk_ranks_launched() > 1)
        return false;
    return isatty(fileno(to)) == 1 && term != NULL && strcmp(term, "dumb") != 0;
}

void dcpk_cli_clear_line(FILE *to)
{
    fputs("\r\033[K", to);
}

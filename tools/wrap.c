/* SPDX-License-Identifier: Apache-2.0 */
/* wrap.c - all text that is printed: nothing in it plays with the terminal, and long lines
 * break. */
#include "tools/wrap.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "lib/base/alloc.h"
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

#define FEW_BYTES 4096 /* of one call; more is put on the heap */

static size_t count_newlines(const char *text)
{
    size_t n = 0;

    for (; (text = strchr(text, '\n')) != NULL; text++)
        n++;
    return n;
}

static void put_formatted(FILE *to, const char *fmt, const char *text)
{
    const size_t n = strlen(text);
    bool has_end;

    if (count_newlines(text) == count_newlines(fmt)) { /* all are the program's own */
        dcpk_cli_put_lines(to, text, n);
        return;
    }
    has_end = fmt[strlen(fmt) - 1] == '\n' && text[n - 1] == '\n';
    dcpk_cli_put_part(to, text, n - has_end);
    if (has_end)
        putc('\n', to);
}

void dcpk_cli_vprintf(FILE *to, const char *fmt, va_list ap)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    char few[FEW_BYTES], *text = NULL;
    va_list again;
    int n;

    va_copy(again, ap);
    n = vsnprintf(few, sizeof few, fmt, ap);
    if (n >= FEW_BYTES)
        text = dcpk_alloc((size_t)n + 1, &err);
    if (text != NULL)
        vsnprintf(text, (size_t)n + 1, fmt, again);
    va_end(again);
    put_formatted(to, fmt, text == NULL ? few : text);
    dcpk_free(text);
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

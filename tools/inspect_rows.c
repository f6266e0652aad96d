/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_rows.c - the listing of dcpkit inspect: folded keys in columns that fit a terminal. */
#include <inttypes.h>
#include <string.h>

#include "tools/cmd.h"
#include "tools/inspect.h"

#define MARGIN 2 /* of every row */
#define DEEPER 6 /* of the further lines of a key that no line holds */

/* Where the columns stand, for all rows of a listing; aliases have "  alias" behind them. */
struct columns {
    size_t key, dtype, shape, n_keys, size;
};

void dcpk_inspect_put_key(const char *key, size_t at, size_t indent)
{
    while (at + strlen(key) > DCPK_CLI_COLUMNS) {
        const size_t room = DCPK_CLI_COLUMNS - at;
        size_t n = room;

        while (n > 0 && strchr("./", key[n - 1]) == NULL)
            n--;
        for (n = n == 0 ? room : n; n > 1 && ((unsigned char)key[n] & 0xc0) == 0x80;)
            n--; /* not inside of a UTF-8 character */
        dcpk_cli_put_part(stdout, key, n);
        dcpk_cli_printf(stdout, "\n%*s", (int)indent, "");
        key += n;
        at = indent;
    }
    dcpk_cli_put_text(stdout, key);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static const char *row_dtype(const struct dcpk_summary_row *row)
{
    return row->dtype == DCPK_DTYPE_NONE ? "" : dcpk_dtype_name(row->dtype);
}

static const char *row_shape(const struct dcpk_summary_row *row, char text[256])
{
    return row->dtype == DCPK_DTYPE_NONE ? "" : dcpk_shape_format(row->shape, row->rank, text, 256);
}

static struct columns measure(const struct dcpk_summary_row *rows, size_t n)
{
    static const char alias[] = "  alias";
    struct columns c = {0};
    size_t rest, room;

    for (size_t i = 0; i < n; i++) {
        char text[256], size[DCPK_SIZE_TEXT_BYTES];

        c.dtype = larger(c.dtype, strlen(row_dtype(&rows[i])));
        c.shape = larger(c.shape, strlen(row_shape(&rows[i], text)));
        snprintf(text, sizeof text, "x%" PRIu64, rows[i].n_keys);
        c.n_keys = larger(c.n_keys, strlen(text));
        c.size = larger(c.size, strlen(dcpk_cli_short_size(rows[i].n_bytes, size)) +
                                    (rows[i].is_alias ? strlen(alias) : 0));
    }
    rest = 2 + c.n_keys + 1 + c.size;
    if (c.dtype > 0)
        rest += 2 + c.dtype + 1 + c.shape;
    room = MARGIN + rest < DCPK_CLI_COLUMNS ? DCPK_CLI_COLUMNS - MARGIN - rest : 0;
    for (size_t i = 0; i < n; i++) {
        const size_t width = strlen(rows[i].pattern);

        if (width <= room)
            c.key = larger(c.key, width);
    }
    return c;
}

/* A key that its column does not hold has a line to itself. */
static void print_row(const struct dcpk_summary_row *row, const struct columns *c)
{
    char shape[256], size[DCPK_SIZE_TEXT_BYTES], count[32];
    size_t width = strlen(row->pattern);

    dcpk_cli_printf(stdout, "%*s", MARGIN, "");
    dcpk_inspect_put_key(row->pattern, MARGIN, DEEPER);
    if (width > c->key) {
        dcpk_cli_printf(stdout, "\n%*s", MARGIN, "");
        width = 0;
    }
    dcpk_cli_printf(stdout, "%*s", (int)(c->key - width), "");
    if (c->dtype > 0)
        dcpk_cli_printf(stdout, "  %-*s %-*s", (int)c->dtype, row_dtype(row), (int)c->shape,
                        row_shape(row, shape));
    snprintf(count, sizeof count, "x%" PRIu64, row->n_keys);
    dcpk_cli_printf(stdout, "  %-*s %s%s\n", (int)c->n_keys, count,
                    dcpk_cli_short_size(row->n_bytes, size), row->is_alias ? "  alias" : "");
}

void dcpk_inspect_print_rows(const char *title, const struct dcpk_summary_row *rows, size_t n)
{
    const struct columns c = measure(rows, n);

    if (n > 0)
        dcpk_cli_printf(stdout, "\n%s:\n", title);
    for (size_t i = 0; i < n; i++)
        print_row(&rows[i], &c);
}

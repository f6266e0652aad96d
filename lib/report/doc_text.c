/* SPDX-License-Identifier: Apache-2.0 */
/* doc_text.c - a document for a person at a terminal. */
#include <assert.h>
#include <string.h>

#include "lib/base/order.h"
#include "lib/report/doc_priv.h"
#include "lib/report/plain.h"

#define LAST_KEY_INDENT 4 /* of a key at the end of a row, on a line of its own */
#define PARAGRAPHS      (DCPK_DOC_PARAGRAPHS | DCPK_DOC_LINES)
#define HEADING         (1u << 31) /* a tone that no cell has: bold */
#define DEEPER          4          /* further lines of a paragraph */

/* Rows of one table. A table whose columns are measured is filled twice before it is printed: once
 * for all widths but that of a key in front, which then has the rest of the line. */
struct text_rows {
    struct dcpk_doc_rows rows; /* first */
    struct dcpk_doc_pipe *pipe;
    struct dcpk_plain plain;
    const struct dcpk_doc_table *table;
    size_t width[DCPK_DOC_MAX_CELLS]; /* of measured columns */
    size_t room;                      /* for the key in front */
    bool has_measured;
};

/* ---- colour ---- */

/* The escape that begins a tone: SGR of ECMA-48, which every terminal knows. */
static const char *tone_escape(unsigned tone)
{
    if ((tone & DCPK_DOC_BAD) != 0)
        return "\033[1;31m";
    if ((tone & DCPK_DOC_GOOD) != 0)
        return "\033[32m";
    return "\033[1m";
}

static void tone_begin(struct dcpk_doc_pipe *pipe, unsigned tone)
{
    if (pipe->out->has_colour && tone != 0)
        dcpk_pipe_text(pipe, tone_escape(tone));
}

static void tone_end(struct dcpk_doc_pipe *pipe, unsigned tone)
{
    if (pipe->out->has_colour && tone != 0)
        dcpk_pipe_text(pipe, "\033[0m");
}

/* ---- tables ---- */

static bool is_key_in_front(const struct dcpk_doc_cell *cell, size_t i)
{
    return i == 0 && (cell->flags & DCPK_DOC_BREAKS) != 0;
}

static size_t gap_before(const struct dcpk_doc_cell *cell, size_t i)
{
    if (cell->gap > 0)
        return (size_t)cell->gap;
    return i == 0 ? 0 : 2;
}

/* The cells that a person sees, in front. Returns how many. */
static size_t pick_shown(const struct dcpk_doc_cell *cells, size_t n,
                         const struct dcpk_doc_cell *shown[DCPK_DOC_MAX_CELLS])
{
    size_t n_shown = 0;

    assert(n <= DCPK_DOC_MAX_CELLS);
    for (size_t i = 0; i < n; i++)
        if (cells[i].title != NULL && cells[i].fact.kind != DCPK_FACT_ABSENT &&
            (cells[i].flags & DCPK_DOC_NOT_TEXT) == 0)
            shown[n_shown++] = &cells[i];
    return n_shown;
}

static size_t fact_columns(const struct dcpk_fact *fact)
{
    char room[DCPK_FACT_ROOM_BYTES];
    const struct dcpk_fact text = dcpk_fact_for_person(fact, room);

    return dcpk_plain_columns(text.as.text, text.n);
}

/* First pass: finds the width of each measured column, and the rest of a line for a key. */
static void take_widths(struct dcpk_doc_rows *rows, const struct dcpk_doc_cell *cells, size_t n)
{
    struct text_rows *r = (struct text_rows *)rows;
    const struct dcpk_doc_cell *shown[DCPK_DOC_MAX_CELLS];
    const size_t n_shown = pick_shown(cells, n, shown);
    size_t used = (size_t)r->table->indent;

    for (size_t i = 0; i < n_shown; i++) {
        if (is_key_in_front(shown[i], i))
            continue;
        if ((shown[i]->flags & DCPK_DOC_MEASURED) != 0)
            r->width[i] = dcpk_max_size(r->width[i], fact_columns(&shown[i]->fact));
        r->has_measured |= (shown[i]->flags & DCPK_DOC_MEASURED) != 0;
        used += gap_before(shown[i], i) + dcpk_max_size(r->width[i], (size_t)shown[i]->width);
    }
    r->room = dcpk_plain_width(&r->plain) - dcpk_min_size(used, dcpk_plain_width(&r->plain));
}

/* Second pass: the widest key in front that a line holds. */
static void take_key_width(struct dcpk_doc_rows *rows, const struct dcpk_doc_cell *cells, size_t n)
{
    struct text_rows *r = (struct text_rows *)rows;
    const struct dcpk_doc_cell *shown[DCPK_DOC_MAX_CELLS];

    if (pick_shown(cells, n, shown) > 0 && is_key_in_front(shown[0], 0)) {
        const size_t width = fact_columns(&shown[0]->fact);

        if (width <= r->room)
            r->width[0] = dcpk_max_size(r->width[0], width);
    }
}

/* A key that its column does not hold has a line to itself. */
static void print_key_in_front(struct text_rows *r, const struct dcpk_fact *key)
{
    const size_t indent = (size_t)r->table->indent;
    size_t width = dcpk_plain_columns(key->as.text, key->n);

    dcpk_plain_put(&r->plain, key->as.text, key->n);
    if (width > r->width[0]) {
        dcpk_pipe_text(r->pipe, "\n");
        dcpk_plain_blanks(&r->plain, indent);
        width = 0;
    }
    dcpk_plain_blanks(&r->plain, r->width[0] - width);
}

/* After the other cells where it fits; else whole on a line of its own. */
static void print_last_key(struct text_rows *r, const struct dcpk_fact *key, size_t at)
{
    if (at + 2 + dcpk_plain_columns(key->as.text, key->n) <= dcpk_plain_width(&r->plain)) {
        dcpk_pipe_text(r->pipe, "  ");
    } else {
        dcpk_pipe_text(r->pipe, "\n");
        dcpk_plain_blanks(&r->plain, LAST_KEY_INDENT);
    }
    dcpk_plain_put(&r->plain, key->as.text, key->n);
}

/*
 * Cell i after `at` columns, before the next one if there is one. Returns the columns then.
 */
static size_t print_cell(struct text_rows *r, const struct dcpk_doc_cell *cell, size_t i,
                         bool is_last, size_t at)
{
    const bool is_right = (cell->flags & DCPK_DOC_RIGHT) != 0;
    char room[DCPK_FACT_ROOM_BYTES];
    const struct dcpk_fact text = dcpk_fact_for_person(&cell->fact, room);
    const size_t columns = dcpk_plain_columns(text.as.text, text.n);
    const size_t width = dcpk_max_size(r->width[i], (size_t)cell->width);
    const size_t pad = width - dcpk_min_size(width, columns);
    const size_t column = at + gap_before(cell, i);
    const unsigned tone = cell->flags & (DCPK_DOC_GOOD | DCPK_DOC_BAD);

    dcpk_plain_blanks(&r->plain, gap_before(cell, i));
    if (is_right)
        dcpk_plain_blanks(&r->plain, pad);
    tone_begin(r->pipe, tone);
    if (is_last && !is_right)
        dcpk_plain_wrap(&r->plain, text.as.text, text.n, column, column);
    else
        dcpk_plain_put(&r->plain, text.as.text, text.n);
    tone_end(r->pipe, tone);
    if (!is_right && !is_last)
        dcpk_plain_blanks(&r->plain, pad);
    return column + columns + pad;
}

static void print_cells(struct text_rows *r, const struct dcpk_doc_cell *const *shown, size_t n)
{
    size_t at = (size_t)r->table->indent;

    dcpk_plain_blanks(&r->plain, at);
    for (size_t i = 0; i < n; i++) {
        if (is_key_in_front(shown[i], i))
            print_key_in_front(r, &shown[i]->fact);
        else if ((shown[i]->flags & DCPK_DOC_BREAKS) != 0)
            print_last_key(r, &shown[i]->fact, at);
        else
            at = print_cell(r, shown[i], i, i + 1 == n, at);
    }
    dcpk_pipe_text(r->pipe, "\n");
}

static void print_tabs(struct text_rows *r, const struct dcpk_doc_cell *const *shown, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char room[DCPK_FACT_ROOM_BYTES];
        const struct dcpk_fact text = dcpk_fact_for_person(&shown[i]->fact, room);

        if (i > 0)
            dcpk_pipe_text(r->pipe, "\t");
        dcpk_plain_put(&r->plain, text.as.text, text.n);
    }
    dcpk_pipe_text(r->pipe, "\n");
}

static void print_paragraphs(struct text_rows *r, const struct dcpk_doc_cell *const *shown,
                             size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const size_t column = (size_t)r->table->indent + (i == 0 ? 0 : 2);
        char room[DCPK_FACT_ROOM_BYTES];
        const struct dcpk_fact text = dcpk_fact_for_person(&shown[i]->fact, room);

        dcpk_plain_blanks(&r->plain, column);
        if (shown[i]->label != NULL)
            dcpk_pipe_text(r->pipe, shown[i]->label);
        if ((r->table->flags & DCPK_DOC_LINES) != 0)
            dcpk_plain_put(&r->plain, text.as.text, text.n);
        else
            dcpk_plain_wrap(&r->plain, text.as.text, text.n, column, column + DEEPER);
        dcpk_pipe_text(r->pipe, "\n");
    }
}

static void take_printed(struct dcpk_doc_rows *rows, const struct dcpk_doc_cell *cells, size_t n)
{
    struct text_rows *r = (struct text_rows *)rows;
    const struct dcpk_doc_cell *shown[DCPK_DOC_MAX_CELLS];
    const size_t n_shown = pick_shown(cells, n, shown);

    if (n_shown == 0)
        return;
    if ((r->table->flags & DCPK_DOC_TABS) != 0)
        print_tabs(r, shown, n_shown);
    else if ((r->table->flags & PARAGRAPHS) != 0)
        print_paragraphs(r, shown, n_shown);
    else
        print_cells(r, shown, n_shown);
    dcpk_pipe_rest(r->pipe);
}

static void print_table(struct dcpk_doc_pipe *pipe, const struct dcpk_plain *plain,
                        const struct dcpk_doc_table *table)
{
    const unsigned plain_forms = DCPK_DOC_TABS | PARAGRAPHS;
    struct text_rows r = {{take_widths, pipe->err}, pipe, *plain, table, {0}, 0, false};

    if ((table->flags & plain_forms) == 0) {
        table->fill(table->context, &r.rows);
        r.rows.take = take_key_width;
        if (r.has_measured)
            table->fill(table->context, &r.rows);
    }
    r.rows.take = take_printed;
    table->fill(table->context, &r.rows);
}

static void print_row(struct dcpk_doc_pipe *pipe, const struct dcpk_plain *plain,
                      const struct dcpk_doc_style *style, const struct dcpk_doc_item *item)
{
    const size_t label = (size_t)style->label_columns, n = strlen(item->label);
    const size_t column = (size_t)style->indent + dcpk_max_size(label, n);

    dcpk_plain_blanks(plain, (size_t)style->indent);
    dcpk_plain_put(plain, item->label, n);
    dcpk_plain_blanks(plain, label - dcpk_min_size(label, n));
    tone_begin(pipe, item->tone);
    dcpk_plain_wrap(plain, item->text, strlen(item->text), column, column);
    tone_end(pipe, item->tone);
    dcpk_pipe_text(pipe, "\n");
}

static void print_item(struct dcpk_doc_pipe *pipe, const struct dcpk_plain *plain,
                       const struct dcpk_doc_style *style, const struct dcpk_doc_item *item)
{
    switch (item->kind) {
    case DCPK_ITEM_ROW:
        print_row(pipe, plain, style, item);
        break;
    case DCPK_ITEM_LINE:
        dcpk_plain_put(plain, item->text, strlen(item->text));
        dcpk_pipe_text(pipe, "\n");
        break;
    case DCPK_ITEM_PARAGRAPH:
        dcpk_plain_wrap(plain, item->text, strlen(item->text), 0, 0);
        dcpk_pipe_text(pipe, "\n");
        break;
    case DCPK_ITEM_TABLE:
        print_table(pipe, plain, item->data);
        break;
    case DCPK_ITEM_HEADING:
        tone_begin(pipe, HEADING);
        dcpk_plain_put(plain, item->text, strlen(item->text));
        tone_end(pipe, HEADING);
        dcpk_pipe_text(pipe, ":\n");
        break;
    case DCPK_ITEM_HEADLINE:
    case DCPK_ITEM_CHIPS:
    case DCPK_ITEM_TREEMAP:
    case DCPK_ITEM_GRID:
    case DCPK_ITEM_MAP:
    case DCPK_ITEM_PLOT:
        break;
    }
}

dcpk_status dcpk_doc_text(const struct dcpk_doc *doc, const struct dcpk_doc_out *out,
                          struct dcpk_error *err)
{
    struct dcpk_doc_pipe pipe = {.out = out, .err = err};
    const struct dcpk_plain plain = {dcpk_pipe_put, &pipe, out->columns};
    bool has_text = false;

    dcpk_doc_status(doc, err);
    for (const struct dcpk_doc_item *item = doc->first; item != NULL; item = item->next) {
        if (err->status != DCPK_OK || (item->media & DCPK_DOC_TEXT) == 0)
            continue;
        if (item->kind == DCPK_ITEM_HEADING && has_text)
            dcpk_pipe_text(&pipe, "\n");
        print_item(&pipe, &plain, &doc->style, item);
        has_text = true;
    }
    return dcpk_pipe_end(&pipe);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* doc_html.c - a document as one page that needs nothing else. */
#include <inttypes.h>
#include <string.h>

#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/report/html_priv.h"
#include "lib/report/plain.h"

/* ---- the first screen ---- */

const char *dcpk_html_tone(unsigned tone)
{
    if ((tone & DCPK_DOC_BAD) != 0)
        return "bad";
    if ((tone & DCPK_DOC_WARN) != 0)
        return "warn";
    return (tone & DCPK_DOC_GOOD) != 0 ? "good" : "none";
}

/* ---- the first screen ---- */

static void put_class(struct dcpk_doc_pipe *pipe, const struct dcpk_doc_bar *bar, size_t number)
{
    if (bar->tone != 0)
        dcpk_pipe_printf(pipe, "class=\"%s\"", dcpk_html_tone(bar->tone));
    else
        dcpk_pipe_printf(pipe, "class=\"c%zu\"", number % DCPK_HTML_COLOURS);
}

/* "weights 1.50 GiB" */
static void put_bar_text(struct dcpk_doc_pipe *pipe, const struct dcpk_doc_bar *bar, bool is_bytes)
{
    char size[DCPK_PLAIN_SIZE_BYTES];

    dcpk_html_text(pipe, bar->label);
    if (is_bytes)
        dcpk_pipe_printf(pipe, " %s", dcpk_plain_size(bar->count, size));
    else
        dcpk_pipe_printf(pipe, " %" PRIu64, bar->count);
}

/* The parts of a whole in one line, and a list that has them in words. */
static void put_stack(struct dcpk_doc_pipe *pipe, const struct dcpk_doc_headline *h)
{
    double all = 0;

    for (size_t i = 0; i < h->n_bars; i++)
        all += (double)h->bars[i].count;
    if (all <= 0)
        return;
    dcpk_pipe_text(pipe, "<figure class=\"stack\"><figcaption>");
    dcpk_html_text(pipe, h->bar_title);
    dcpk_pipe_text(pipe, "</figcaption>\n<div aria-hidden=\"true\">");
    for (size_t i = 0; i < h->n_bars; i++) {
        if (h->bars[i].count == 0)
            continue;
        dcpk_pipe_text(pipe, "<i ");
        put_class(pipe, &h->bars[i], i);
        dcpk_pipe_printf(pipe, " style=\"flex-grow:%.4f\" title=\"",
                         100 * (double)h->bars[i].count / all);
        put_bar_text(pipe, &h->bars[i], h->is_bytes);
        dcpk_pipe_text(pipe, "\"></i>");
    }
    dcpk_pipe_text(pipe, "</div>\n<ul>");
    for (size_t i = 0; i < h->n_bars; i++) {
        if (h->bars[i].count == 0)
            continue;
        dcpk_pipe_text(pipe, "<li ");
        put_class(pipe, &h->bars[i], i);
        dcpk_pipe_text(pipe, ">");
        put_bar_text(pipe, &h->bars[i], h->is_bytes);
        dcpk_pipe_text(pipe, "</li>");
    }
    dcpk_pipe_text(pipe, "</ul></figure>\n");
}

static void html_headline(struct dcpk_doc_pipe *pipe, const struct dcpk_doc_headline *headline)
{
    dcpk_pipe_text(pipe, "<div class=\"figures\">\n");
    for (size_t i = 0; i < DCPK_DOC_N_FIGURES; i++) {
        if (headline->figures[i].value == NULL)
            continue;
        dcpk_pipe_text(pipe, "<p><strong>");
        dcpk_html_text(pipe, headline->figures[i].value);
        dcpk_pipe_text(pipe, "</strong> ");
        dcpk_html_text(pipe, headline->figures[i].label);
        dcpk_pipe_text(pipe, "</p>\n");
    }
    dcpk_pipe_text(pipe, "</div>\n");
    put_stack(pipe, headline);
}

/* ---- chips ---- */

static void html_chips(struct dcpk_doc_pipe *pipe, const struct dcpk_doc_chip *chips, size_t n)
{
    dcpk_pipe_text(pipe, "<ul class=\"chips\">\n");
    for (size_t i = 0; i < n; i++) {
        dcpk_pipe_printf(pipe, "<li class=\"%s\"", dcpk_html_tone(chips[i].tone));
        if (chips[i].why != NULL) {
            dcpk_pipe_text(pipe, " title=\"");
            dcpk_html_text(pipe, chips[i].why);
            dcpk_pipe_text(pipe, "\"");
        }
        dcpk_pipe_text(pipe, "><strong>");
        dcpk_html_text(pipe, chips[i].label);
        dcpk_pipe_text(pipe, "</strong> ");
        dcpk_html_text(pipe, chips[i].text);
        dcpk_pipe_text(pipe, "</li>\n");
    }
    dcpk_pipe_text(pipe, "</ul>\n");
}

/* ---- text ---- */

static void html_escape(void *to, const char *text, size_t n_bytes)
{
    static const struct {
        char c;
        const char *entity;
    } entities[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};
    size_t done = 0;

    for (size_t i = 0; i < n_bytes; i++)
        for (size_t e = 0; e < DCPK_COUNT(entities); e++)
            if (text[i] == entities[e].c) {
                dcpk_pipe_put(to, text + done, i - done);
                dcpk_pipe_text(to, entities[e].entity);
                done = i + 1;
            }
    dcpk_pipe_put(to, text + done, n_bytes - done);
}

/* Controls and what is not UTF-8 are visible in a page as they are at a terminal. */
void dcpk_html_put(struct dcpk_doc_pipe *pipe, const char *text, size_t n_bytes)
{
    dcpk_plain_put(&(struct dcpk_plain){.put = html_escape, .to = pipe}, text, n_bytes);
}

void dcpk_html_text(struct dcpk_doc_pipe *pipe, const char *text)
{
    dcpk_html_put(pipe, text, strlen(text));
}

/* Not in "{0..3}", which is one name. */
void dcpk_html_put_path(struct dcpk_doc_pipe *pipe, const char *text, size_t n_bytes)
{
    size_t done = 0;

    for (size_t i = 1; i + 1 < n_bytes; i++)
        if (text[i] == '/' || (text[i] == '.' && text[i - 1] != '.' && text[i + 1] != '.')) {
            dcpk_html_put(pipe, text + done, i + 1 - done);
            dcpk_pipe_text(pipe, "<wbr>");
            done = i + 1;
        }
    dcpk_html_put(pipe, text + done, n_bytes - done);
}

void dcpk_html_left_out(struct dcpk_doc_pipe *pipe, uint64_t n, const char *what)
{
    if (n > 0)
        dcpk_pipe_printf(pipe, "<p class=\"left\">%" PRIu64 " more %s are not on this page.</p>\n",
                         n, what);
}

/* ---- tables ---- */

struct html_rows {
    struct dcpk_doc_rows rows; /* first */
    struct dcpk_doc_pipe *pipe;
    const struct dcpk_doc_table *table;
    uint64_t n;
    bool is_open;
};

static void html_put_fact(struct dcpk_doc_pipe *pipe, const struct dcpk_doc_cell *cell)
{
    char room[DCPK_FACT_ROOM_BYTES];
    const struct dcpk_fact text = dcpk_fact_for_person(&cell->fact, room);

    if ((cell->flags & DCPK_DOC_BREAKS) != 0)
        dcpk_html_put_path(pipe, text.as.text, text.n);
    else
        dcpk_html_put(pipe, text.as.text, text.n);
}

static const char *cell_class(const struct dcpk_doc_cell *cell)
{
    static const struct {
        unsigned flags; /* all of them; the first row that fits counts */
        const char *text;
    } classes[] = {{DCPK_DOC_GOOD | DCPK_DOC_RIGHT, " class=\"num good\""},
                   {DCPK_DOC_GOOD, " class=\"good\""},
                   {DCPK_DOC_BAD | DCPK_DOC_RIGHT, " class=\"num bad\""},
                   {DCPK_DOC_BAD, " class=\"bad\""},
                   {DCPK_DOC_BREAKS, " class=\"key\""},
                   {DCPK_DOC_RIGHT, " class=\"num\""}};

    for (size_t i = 0; i < DCPK_COUNT(classes); i++)
        if ((cell->flags & classes[i].flags) == classes[i].flags)
            return classes[i].text;
    return "";
}

static void html_put_row(struct dcpk_doc_pipe *pipe, const struct dcpk_doc_cell *const *shown,
                         size_t n)
{
    dcpk_pipe_text(pipe, "<tr>");
    for (size_t i = 0; i < n; i++) {
        dcpk_pipe_printf(pipe, "<td%s>", cell_class(shown[i]));
        html_put_fact(pipe, shown[i]);
        dcpk_pipe_text(pipe, "</td>");
    }
    dcpk_pipe_text(pipe, "</tr>\n");
}

static void html_put_head(struct dcpk_doc_pipe *pipe, const struct dcpk_doc_cell *const *shown,
                          size_t n)
{
    dcpk_pipe_text(pipe, "<div class=\"scroll\" tabindex=\"0\"><table>\n<thead><tr>");
    for (size_t i = 0; i < n; i++) {
        const bool is_number = (shown[i]->flags & DCPK_DOC_RIGHT) != 0;

        dcpk_pipe_text(pipe, is_number ? "<th class=\"num\">" : "<th>");
        dcpk_html_text(pipe, shown[i]->title);
        dcpk_pipe_text(pipe, "</th>");
    }
    dcpk_pipe_text(pipe, "</tr></thead>\n<tbody>\n");
}

static void html_put_paragraphs(struct dcpk_doc_pipe *pipe,
                                const struct dcpk_doc_cell *const *shown, size_t n)
{
    dcpk_pipe_text(pipe, "<li>");
    for (size_t i = 0; i < n; i++) {
        dcpk_pipe_text(pipe, i == 0 ? "<p>" : "<p class=\"dim\">");
        html_put_fact(pipe, shown[i]);
        dcpk_pipe_text(pipe, "</p>");
    }
    dcpk_pipe_text(pipe, "</li>\n");
}

static void html_take_row(struct dcpk_doc_rows *rows, const struct dcpk_doc_cell *cells, size_t n)
{
    struct html_rows *r = (struct html_rows *)rows;
    const bool is_list = (r->table->flags & (DCPK_DOC_PARAGRAPHS | DCPK_DOC_LINES)) != 0;
    const struct dcpk_doc_cell *shown[DCPK_DOC_MAX_CELLS];
    const size_t n_shown = dcpk_html_pick(cells, n, shown);

    if (n_shown == 0 || r->n++ >= DCPK_DOC_PAGE_ROWS)
        return;
    if (!r->is_open && is_list)
        dcpk_pipe_text(r->pipe, "<ul class=\"list\">\n");
    else if (!r->is_open)
        html_put_head(r->pipe, shown, n_shown);
    r->is_open = true;
    if (is_list)
        html_put_paragraphs(r->pipe, shown, n_shown);
    else
        html_put_row(r->pipe, shown, n_shown);
    dcpk_pipe_rest(r->pipe);
}

static void html_put_table(struct dcpk_doc_pipe *pipe, const struct dcpk_doc_table *table)
{
    const bool is_list = (table->flags & (DCPK_DOC_PARAGRAPHS | DCPK_DOC_LINES)) != 0;
    struct html_rows r = {{html_take_row, pipe->err}, pipe, table, 0, false};

    table->fill(table->context, &r.rows);
    if (r.is_open)
        dcpk_pipe_text(pipe, is_list ? "</ul>\n" : "</tbody></table></div>\n");
    dcpk_html_left_out(pipe, r.n - dcpk_min_u64(r.n, DCPK_DOC_PAGE_ROWS), "rows");
}

/* ---- the page ---- */

static void html_begin_page(struct dcpk_doc_pipe *pipe, const struct dcpk_doc *doc)
{
    const char *title = dcpk_text_or(doc->title, "");

    dcpk_pipe_text(pipe, DCPK_DOC_PAGE_BEGIN
                   "<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                   "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                   "<meta name=\"color-scheme\" content=\"light dark\">\n"
                   "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                   "style-src 'unsafe-inline'; img-src data:; script-src 'sha256-");
    dcpk_pipe_text(pipe, dcpk_html_script_hash);
    dcpk_pipe_text(pipe, "'\">\n");
    if (doc->refresh_seconds > 0)
        dcpk_pipe_printf(pipe, "<meta http-equiv=\"refresh\" content=\"%d\">\n",
                         doc->refresh_seconds);
    dcpk_pipe_text(pipe, "<link rel=\"icon\" href=\"data:,\">\n<title>");
    dcpk_html_text(pipe, title);
    dcpk_pipe_text(pipe, "</title>\n<style>\n");
    for (size_t i = 0; i < dcpk_n_html_style; i++)
        dcpk_pipe_text(pipe, dcpk_html_style[i]);
    dcpk_pipe_text(pipe, "</style>\n</head>\n<body>\n<main>\n<header><p class=\"command\">dcpkit ");
    dcpk_html_text(pipe, doc->command);
    dcpk_pipe_text(pipe, "</p><h1>");
    dcpk_html_put_path(pipe, title, strlen(title));
    dcpk_pipe_text(pipe, "</h1>");
    if (doc->subtitle != NULL) {
        dcpk_pipe_text(pipe, "<p class=\"sub\">");
        dcpk_html_text(pipe, doc->subtitle);
        dcpk_pipe_text(pipe, "</p>");
    }
    if (doc->verdict != NULL) {
        dcpk_pipe_printf(pipe, "<p class=\"verdict\"><span class=\"badge %s\">",
                         dcpk_html_tone(doc->tone));
        dcpk_html_text(pipe, doc->verdict);
        dcpk_pipe_text(pipe, "</span></p>");
    }
    dcpk_pipe_text(pipe, "</header>\n");
}

static void html_put_item(struct dcpk_doc_pipe *pipe, const struct dcpk_doc_item *item)
{
    const struct dcpk_doc_table *table = item->data;

    switch (item->kind) {
    case DCPK_ITEM_ROW:
        dcpk_pipe_text(pipe, "<dt>");
        dcpk_html_text(pipe, item->label);
        dcpk_pipe_text(pipe, "</dt><dd>");
        dcpk_html_text(pipe, item->text);
        dcpk_pipe_text(pipe, "</dd>\n");
        break;
    case DCPK_ITEM_LINE:
    case DCPK_ITEM_PARAGRAPH:
        dcpk_pipe_text(pipe, "<p>");
        dcpk_html_text(pipe, item->text);
        dcpk_pipe_text(pipe, "</p>\n");
        break;
    case DCPK_ITEM_HEADING:
        dcpk_pipe_text(pipe, "<h2>");
        dcpk_html_text(pipe, item->text);
        dcpk_pipe_text(pipe, "</h2>\n");
        break;
    case DCPK_ITEM_TABLE:
        if ((table->flags & DCPK_DOC_TREE) != 0)
            dcpk_html_tree(pipe, table);
        else
            html_put_table(pipe, table);
        break;
    case DCPK_ITEM_HEADLINE:
        html_headline(pipe, item->data);
        break;
    case DCPK_ITEM_CHIPS:
        html_chips(pipe, item->data, item->n);
        break;
    case DCPK_ITEM_TREEMAP:
        dcpk_html_treemap(pipe, item->data);
        break;
    case DCPK_ITEM_GRID:
        dcpk_html_grid(pipe, item->data);
        break;
    case DCPK_ITEM_MAP:
        dcpk_html_map(pipe, item->data);
        break;
    case DCPK_ITEM_PLOT:
        dcpk_html_plot(pipe, item->data);
        break;
    }
}

dcpk_status dcpk_doc_html(const struct dcpk_doc *doc, const struct dcpk_doc_out *out,
                          struct dcpk_error *err)
{
    struct dcpk_doc_pipe pipe = {.out = out, .err = err};
    bool is_list = false;

    if (dcpk_doc_status(doc, err) != DCPK_OK)
        return err->status;
    html_begin_page(&pipe, doc);
    for (const struct dcpk_doc_item *item = doc->first; item != NULL; item = item->next) {
        const bool is_row = item->kind == DCPK_ITEM_ROW;

        if (err->status != DCPK_OK || (item->media & DCPK_DOC_PAGE) == 0)
            continue;
        if (is_row != is_list)
            dcpk_pipe_text(&pipe, is_row ? "<dl>\n" : "</dl>\n");
        is_list = is_row;
        html_put_item(&pipe, item);
        dcpk_pipe_rest(&pipe);
    }
    if (is_list)
        dcpk_pipe_text(&pipe, "</dl>\n");
    dcpk_pipe_text(&pipe, "</main>\n<script>");
    dcpk_pipe_text(&pipe, dcpk_html_script);
    dcpk_pipe_text(&pipe, "</script>\n</body>\n</html>\n");
    return dcpk_pipe_end(&pipe);
}

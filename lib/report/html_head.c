/* SPDX-License-Identifier: Apache-2.0 */
/* html_head.c - the first screen of a page, and chips. */
#include <inttypes.h>

#include "lib/base/order.h"
#include "lib/report/html_priv.h"
#include "lib/report/plain.h"

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

void dcpk_html_headline(struct dcpk_doc_pipe *pipe, const struct dcpk_doc_headline *headline)
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

void dcpk_html_chips(struct dcpk_doc_pipe *pipe, const struct dcpk_doc_chip *chips, size_t n)
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

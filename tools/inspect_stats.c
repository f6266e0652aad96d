/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_stats.c - statistics of tensors as one table, the worst first. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/order.h"
#include "tools/inspect.h"

struct stats_row {
    const struct dcpk_stats *stats;
    const char *key;
};

/* In the order of the table; it lives in the document. */
struct stats_rows {
    struct stats_row *list;
    size_t n;
    int nan_columns, inf_columns;
};

void dcpk_inspect_findings(const struct dcpk_inspection *in, struct dcpk_stats_findings *found)
{
    *found = (struct dcpk_stats_findings){0};
    for (size_t t = 0; t < in->ckpt->n_tensors; t++) {
        const struct dcpk_stats *s = &in->stats[t];

        if (!dcpk_inspect_lists(in, t))
            continue;
        found->n_tensors++;
        found->n_nan += s->n_nan;
        found->n_inf += s->n_inf;
        found->n_not_finite += s->n_nan + s->n_inf > 0;
        found->n_zero += s->n_zero > 0 && s->n_zero == s->n_elems;
        found->n_unread += !s->has_numbers;
    }
}

static double magnitude(const struct dcpk_stats *s)
{
    return s->n_finite == 0 ? -1 : fmax(fabs(s->min), fabs(s->max));
}

/* Orders tensors by interest: numbers that are not finite, tensors that were never filled, large
 * values. */
static int compare_stats(const void *left, const void *right)
{
    const struct stats_row *a = left, *b = right;
    const uint64_t a_bad = a->stats->n_nan + a->stats->n_inf;
    const uint64_t b_bad = b->stats->n_nan + b->stats->n_inf;
    const bool a_zero = a->stats->n_zero > 0 && a->stats->n_zero == a->stats->n_elems;
    const bool b_zero = b->stats->n_zero > 0 && b->stats->n_zero == b->stats->n_elems;

    if (a_bad != b_bad)
        return DCPK_THREE_WAY(b_bad, a_bad);
    if (a_zero != b_zero)
        return b_zero - a_zero;
    if (magnitude(a->stats) != magnitude(b->stats))
        return DCPK_THREE_WAY(magnitude(b->stats), magnitude(a->stats));
    return strcmp(a->key, b->key);
}

static int digits(uint64_t n, int least)
{
    return (int)dcpk_max_i64(least, snprintf(NULL, 0, "%" PRIu64, n));
}

/* A number of a tensor, where it has such numbers. */
static struct dcpk_doc_cell stats_cell(const char *title, bool has, struct dcpk_fact fact,
                                       int width)
{
    return (struct dcpk_doc_cell){
        .title = title, .fact = dcpk_fact_if(has, fact), .flags = DCPK_DOC_RIGHT, .width = width};
}

static void fill_stats(const void *context, struct dcpk_doc_rows *rows)
{
    const struct stats_rows *all = context;

    for (size_t i = 0; i < all->n; i++) {
        const struct dcpk_stats *s = all->list[i].stats;
        const bool is_finite = s->n_finite > 0, has_elems = s->has_numbers && s->n_elems > 0;
        char part[32] = "";

        if (has_elems)
            snprintf(part, sizeof part, "%.1f%%", 100.0 * (double)s->n_zero / (double)s->n_elems);
        struct dcpk_doc_cell cells[] = {
            stats_cell("min", is_finite, dcpk_fact_number(s->min), 9),
            stats_cell("max", is_finite, dcpk_fact_number(s->max), 9),
            stats_cell("mean", is_finite, dcpk_fact_number(dcpk_stats_mean(s)), 9),
            stats_cell("L2 norm", is_finite, dcpk_fact_number(dcpk_stats_norm(s)), 9),
            stats_cell("NaN", has_elems, dcpk_fact_count(s->n_nan), all->nan_columns),
            stats_cell("Inf", has_elems, dcpk_fact_count(s->n_inf), all->inf_columns),
            stats_cell("zeros", has_elems, dcpk_fact_text(part), 6),
            {.title = "tensor", .fact = dcpk_fact_text(all->list[i].key), .flags = DCPK_DOC_BREAKS},
        };

        for (size_t c = 1; c < 4; c++)
            cells[c].gap = 1;
        dcpk_doc_put(rows, cells, DCPK_COUNT(cells));
    }
}

static void report_findings(const struct dcpk_inspection *in, struct dcpk_doc *doc)
{
    struct dcpk_stats_findings found;
    const char *text;

    dcpk_inspect_findings(in, &found);
    dcpk_doc_set_count(doc, "stats_totals.n_all_zero_tensors", found.n_zero);
    dcpk_doc_set_count(doc, "stats_totals.n_inf", found.n_inf);
    dcpk_doc_set_count(doc, "stats_totals.n_nan", found.n_nan);
    dcpk_doc_set_count(doc, "stats_totals.n_nonfinite_tensors", found.n_not_finite);
    dcpk_doc_set_count(doc, "stats_totals.n_tensors", found.n_tensors);
    text = dcpk_doc_format(doc, "%" PRIu64 " tensors: ", found.n_tensors);
    if (found.n_not_finite == 0)
        text = dcpk_doc_format(doc, "%sall finite", text);
    else
        text = dcpk_doc_format(doc, "%s%" PRIu64 " not finite (%" PRIu64 " NaN, %" PRIu64 " Inf)",
                               text, found.n_not_finite, found.n_nan, found.n_inf);
    if (found.n_zero > 0)
        text = dcpk_doc_format(doc, "%s, %" PRIu64 " all zero", text, found.n_zero);
    if (found.n_unread > 0)
        text = dcpk_doc_format(doc, "%s, %" PRIu64 " of dtypes that have no numbers", text,
                               found.n_unread);
    dcpk_doc_paragraph(doc, text);
}

void dcpk_inspect_report_stats(const struct dcpk_inspection *in, struct dcpk_doc *doc)
{
    const size_t n_tensors = in->ckpt->n_tensors;
    struct stats_rows *rows = dcpk_doc_take(doc, 1, sizeof *rows);
    struct stats_row *list = dcpk_doc_take(doc, n_tensors, sizeof *list);
    struct dcpk_stats_findings found;

    if (rows == NULL || list == NULL)
        return;
    dcpk_inspect_findings(in, &found);
    *rows = (struct stats_rows){list, 0, digits(found.n_nan, 3), digits(found.n_inf, 3)};
    for (size_t t = 0; t < n_tensors; t++)
        if (dcpk_inspect_lists(in, t))
            list[rows->n++] = (struct stats_row){&in->stats[t], in->ckpt->tensors[t].key};
    qsort(list, rows->n, sizeof *list, compare_stats);
    dcpk_doc_heading(doc, "statistics of the finite elements, worst first (not finite, all zero, "
                          "then by magnitude)");
    if (in->has_page)
        dcpk_inspect_report_heat(in, doc);
    doc->media = DCPK_DOC_TEXT; /* a page has the titles of the table */
    dcpk_doc_line(doc, "%9s %9s %9s %9s  %*s  %*s  %6s  %s", "min", "max", "mean", "L2 norm",
                  rows->nan_columns, "NaN", rows->inf_columns, "Inf", "zeros", "tensor");
    doc->media = 0;
    dcpk_doc_show(doc, &(struct dcpk_doc_table){.fill = fill_stats, .context = rows});
    report_findings(in, doc);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* compare_page.c - differences of two checkpoints on a page, by part. */
#include <inttypes.h>
#include <math.h>

#include "lib/base/order.h"
#include "tools/compare_report.h"
#include "tools/layers.h"

/* Texts of the kinds of differences, for people. */
static const char *const kind_texts[DCPK_N_DIFFERENCES] = {
    [DCPK_ONLY_IN_A] = "only in A",    [DCPK_ONLY_IN_B] = "only in B",
    [DCPK_SHAPE_DIFFERS] = "shape",    [DCPK_DTYPE_DIFFERS] = "dtype",
    [DCPK_ELEMENTS_DIFFER] = "values", [DCPK_VALUE_DIFFERS] = "value",
    [DCPK_NOT_FAITHFUL] = "value",
};

/* Differences of one list that count to one part. */
struct part_of {
    const struct dcpk_differences *list;
    enum dcpk_compare_part part;
};

static struct dcpk_doc_cell number_cell(const char *title, bool has, struct dcpk_fact fact)
{
    if (!has)
        fact = dcpk_fact_text("");
    return (struct dcpk_doc_cell){.title = title, .fact = fact, .flags = DCPK_DOC_RIGHT};
}

/* Puts a difference of elements: how many, how far, and both values where they are furthest
 * apart. */
static void put_tensor_difference(struct dcpk_doc_rows *rows, const struct dcpk_difference *d,
                                  bool names_state)
{
    const bool is_element = d->place.key != NULL;
    const struct dcpk_compare *m = &d->measured;
    const bool has = d->kind == DCPK_ELEMENTS_DIFFER;
    const uint64_t n = m->equal ? m->n_unequal_bits : m->n_different;
    const char *a = d->a, *b = d->b;

    if (is_element) {
        a = d->place.a;
        b = d->place.b;
    }
    DCPK_DOC_PUT(rows, {.title = "name", .fact = dcpk_fact_text(d->name), .flags = DCPK_DOC_BREAKS},
                 DCPK_DOC_SHOWN(names_state, .title = "state", .fact = dcpk_fact_text(d->part)),
                 {.title = "differs in", .fact = dcpk_fact_text(kind_texts[d->kind])},
                 number_cell("elements", has, dcpk_fact_count(n)),
                 number_cell("max abs", has, dcpk_fact_number(m->max_abs)),
                 number_cell("max rel", has, dcpk_fact_number(m->max_rel)),
                 number_cell("max ULP", has && m->has_ulp, dcpk_fact_count(m->max_ulp)),
                 number_cell("furthest apart", is_element, dcpk_fact_text(d->place.index)),
                 number_cell("A", true, dcpk_fact_text(a)),
                 number_cell("B", true, dcpk_fact_text(b)));
}

static void put_place_values(struct dcpk_doc_rows *rows, const struct dcpk_difference *d)
{
    DCPK_DOC_PUT(rows, {.title = "name", .fact = dcpk_fact_text(d->name), .flags = DCPK_DOC_BREAKS},
                 {.title = "differs in", .fact = dcpk_fact_text(kind_texts[d->kind])},
                 {.title = "A", .fact = dcpk_fact_text(d->a), .flags = DCPK_DOC_BREAKS},
                 {.title = "B", .fact = dcpk_fact_text(d->b), .flags = DCPK_DOC_BREAKS});
}

static void fill_part(const void *context, struct dcpk_doc_rows *rows)
{
    const struct part_of *of = context;

    for (const struct dcpk_difference *d = of->list->first; d != NULL; d = d->next) {
        if (dcpk_difference_part(d) != of->part)
            continue;
        if (of->part <= DCPK_COMPARED_TENSORS)
            put_tensor_difference(rows, d, of->part >= DCPK_COMPARED_MOMENTS);
        else
            put_place_values(rows, d);
    }
}

static uint64_t count_of(const struct part_of *of)
{
    uint64_t n = 0;

    for (const struct dcpk_difference *d = of->list->first; d != NULL; d = d->next)
        n += dcpk_difference_part(d) == of->part;
    return n;
}

/* Relative differences of a part, by module and layer; those of equal tensors are left out. */
static void report_far(const struct part_of *of, struct dcpk_doc *doc)
{
    struct dcpk_bytes text = {.data = NULL};
    struct dcpk_layer_grid grid;
    int64_t n_layers = 0;

    for (const struct dcpk_difference *d = of->list->first; d != NULL; d = d->next)
        if (d->kind == DCPK_ELEMENTS_DIFFER && dcpk_difference_part(d) == of->part)
            n_layers = dcpk_max_i64(n_layers, dcpk_key_place_of(d->name, 0, NULL).layer + 1);
    if (!dcpk_layer_grid_begin(&grid, n_layers, doc))
        return;
    for (const struct dcpk_difference *d = of->list->first; d != NULL; d = d->next) {
        struct dcpk_key_place place = dcpk_key_place_of(d->name, 0, NULL);
        struct dcpk_layer_sum *sum;

        if (d->kind != DCPK_ELEMENTS_DIFFER || dcpk_difference_part(d) != of->part)
            continue;
        if (of->part == DCPK_COMPARED_MOMENTS && d->part != NULL)
            place.state = d->part;
        sum = dcpk_layer_grid_at(&grid, dcpk_layer_grid_row(&grid, dcpk_key_module(&place, &text)),
                                 place.layer);
        sum->is_there = true;
        sum->is_bad |= d->measured.n_nan > 0;
        sum->value = fmax(sum->value, d->measured.max_rel);
    }
    dcpk_bytes_status(&text, &doc->err);
    dcpk_bytes_release(&text);
    dcpk_layer_grid_show(&grid,
                         "largest relative difference, on a scale of logarithms; empty: equal",
                         "layer", DCPK_LAYER_MOST, doc);
}

/* what: "differ", "differ in layout alone". */
static void report_page_list(const struct dcpk_differences *list, const char *what,
                             struct dcpk_doc *doc)
{
    for (int p = 0; p < DCPK_N_COMPARED; p++) {
        const struct part_of of = {list, (enum dcpk_compare_part)p};
        const uint64_t n = count_of(&of);

        if (n == 0)
            continue;
        dcpk_doc_heading(doc, dcpk_doc_format(doc, "%s: %" PRIu64 " %s",
                                              dcpk_compare_part_name(of.part), n, what));
        if (of.part <= DCPK_COMPARED_TENSORS)
            report_far(&of, doc);
        dcpk_doc_show(doc, &(struct dcpk_doc_table){.fill = fill_part,
                                                    .context = dcpk_doc_keep(doc, &of, sizeof of)});
    }
}

void dcpk_compare_report_headline(const struct dcpk_compare_report *report, struct dcpk_doc *doc)
{
    struct dcpk_doc_bar bars[] = {{"equal", 0, DCPK_DOC_GOOD},
                                  {"different", 0, DCPK_DOC_BAD},
                                  {"only in A", 0, DCPK_DOC_WARN},
                                  {"only in B", 0, DCPK_DOC_WARN}};
    double max_abs = 0;

    for (int p = 0; p < DCPK_N_COMPARED; p++) {
        const struct dcpk_part_result *part = &report->parts[p];

        bars[0].count += part->n_compared - part->n_different;
        bars[1].count += part->n_different;
        bars[2].count += part->n_only[0];
        bars[3].count += part->n_only[1];
    }
    for (const struct dcpk_difference *d = report->differences.first; d != NULL; d = d->next)
        if (d->kind == DCPK_ELEMENTS_DIFFER)
            max_abs = fmax(max_abs, d->measured.max_abs);
    dcpk_doc_headline(
        doc,
        &(struct dcpk_doc_headline){
            .figures = {{dcpk_doc_format(doc, "%" PRIu64, report->n_tensors), "tensors compared"},
                        {dcpk_doc_format(doc, "%" PRIu64, report->differences.n), "differences"},
                        {dcpk_doc_format(doc, "%.3g", max_abs),
                         "largest difference of an element"}},
            .bar_title = "tensors and values",
            .bars = bars,
            .n_bars = DCPK_COUNT(bars)});
}

void dcpk_compare_report_page(const struct dcpk_compare_report *report, struct dcpk_doc *doc)
{
    report_page_list(&report->differences, "different", doc);
    report_page_list(&report->layout, "that only the layout changes", doc);
    report_page_list(&report->tolerated, "tolerated", doc);
}

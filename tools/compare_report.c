/* SPDX-License-Identifier: Apache-2.0 */
/* compare_report.c - the answer of compare-two-checkpoint, built once. */
#include "tools/compare_report.h"

#include <inttypes.h>
#include <math.h>

#include "lib/base/bytes.h"
#include "lib/base/order.h"
#include "tools/cmd.h"
#include "tools/layers.h"
#include "tools/print_doc.h"

/* ---- a page ---- */

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

static void report_compare_headline(const struct dcpk_compare_report *report, struct dcpk_doc *doc)
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

/* The differences by part. */
static void report_compare_page(const struct dcpk_compare_report *report, struct dcpk_doc *doc)
{
    report_page_list(&report->differences, "different", doc);
    report_page_list(&report->layout, "that only the layout changes", doc);
    report_page_list(&report->tolerated, "tolerated", doc);
}

/* Names of the kinds of differences in --json. */
static const char *const kinds[DCPK_N_DIFFERENCES] = {
    [DCPK_ONLY_IN_A] = "only_in_a",      [DCPK_ONLY_IN_B] = "only_in_b",
    [DCPK_SHAPE_DIFFERS] = "shape",      [DCPK_DTYPE_DIFFERS] = "dtype",
    [DCPK_ELEMENTS_DIFFER] = "elements", [DCPK_VALUE_DIFFERS] = "value",
    [DCPK_NOT_FAITHFUL] = "value",
};

static const char *const side_names[2] = {"A", "B"};

static void append_text(struct dcpk_bytes *line, const char *before, const char *text)
{
    if (text == NULL)
        return;
    dcpk_bytes_text(line, before);
    dcpk_bytes_text(line, text);
}

static void put_how_far(struct dcpk_bytes *line, const struct dcpk_compare *m)
{
    if (m->equal)
        dcpk_bytes_printf(line, ": %" PRIu64 " elements differ within the tolerance",
                          m->n_unequal_bits);
    else
        dcpk_bytes_printf(line, ": %" PRIu64 " elements differ", m->n_different);
    dcpk_bytes_printf(line, "; max abs %.3g, max rel %.3g", m->max_abs, m->max_rel);
    if (m->has_ulp)
        dcpk_bytes_printf(line, ", max ULP %" PRIu64, m->max_ulp);
    if (m->n_nan > 0)
        dcpk_bytes_printf(line, ", NaN on one side in %" PRIu64, m->n_nan);
}

static void put_what(struct dcpk_bytes *line, const struct dcpk_difference *d)
{
    dcpk_bytes_text(line, d->name);
    append_text(line, " ", d->part);
    switch (d->kind) {
    case DCPK_ONLY_IN_A:
        dcpk_bytes_text(line, ": only in A");
        append_text(line, ": ", d->a);
        break;
    case DCPK_ONLY_IN_B:
        dcpk_bytes_text(line, ": only in B");
        append_text(line, ": ", d->b);
        break;
    case DCPK_ELEMENTS_DIFFER:
        append_text(line, " ", d->a);
        put_how_far(line, &d->measured);
        break;
    case DCPK_SHAPE_DIFFERS:
    case DCPK_DTYPE_DIFFERS:
    case DCPK_VALUE_DIFFERS:
    case DCPK_NOT_FAITHFUL:
    case DCPK_N_DIFFERENCES:
        append_text(line, ": A has ", d->a);
        append_text(line, ", B ", d->b);
        break;
    }
}

/* "decoder.layers.mlp.linear_fc2.weight[1, 32, 42]: A -0.00455, B -0.0065" */
static void put_where(struct dcpk_bytes *line, const struct dcpk_difference_place *place)
{
    append_text(line, "", place->key);
    append_text(line, "", place->index);
    append_text(line, ": A ", place->a);
    append_text(line, ", B ", place->b);
}

/* A table of one list: all of it for programs; for people at most `most` differences of each kind
 * (0: all). Those of elements come last. */
struct difference_list {
    const struct dcpk_differences *list;
    uint64_t most;
    bool hides_lacking; /* from persons: of which one side has nothing */
};

static bool is_lacking(const struct dcpk_difference *d)
{
    return d->kind == DCPK_ONLY_IN_A || d->kind == DCPK_ONLY_IN_B;
}

/* n: differences so far, by kind. */
static bool is_hidden(const struct difference_list *of, const struct dcpk_difference *d,
                      uint64_t n[DCPK_N_DIFFERENCES])
{
    if (of->hides_lacking && is_lacking(d))
        return true;
    return ++n[d->kind] > of->most && of->most > 0;
}

/* what, where: for persons; NULL: not shown. */
static void put_row(struct dcpk_doc_rows *rows, const struct dcpk_difference *d, const char *what,
                    const char *where)
{
    const struct dcpk_compare *m = &d->measured;
    const bool has = d->kind == DCPK_ELEMENTS_DIFFER;

    DCPK_DOC_PUT(
        rows, DCPK_DOC_SHOWN(what != NULL, .title = "what", .fact = dcpk_fact_text(what)),
        DCPK_DOC_SHOWN(where != NULL, .title = "where", .fact = dcpk_fact_text(where)),
        DCPK_MEMBER("a", dcpk_fact_text(d->a)), DCPK_MEMBER("b", dcpk_fact_text(d->b)),
        DCPK_MEMBER("kind", dcpk_fact_text(kinds[d->kind])),
        DCPK_MEMBER("name", dcpk_fact_text(d->name)), DCPK_MEMBER("part", dcpk_fact_text(d->part)),
        dcpk_doc_member(has && !m->equal, "first_different", dcpk_fact_int(m->first_different)),
        dcpk_doc_member(has, "max_abs_error", dcpk_fact_number(m->max_abs)),
        dcpk_doc_member(has, "max_rel_error", dcpk_fact_number(m->max_rel)),
        dcpk_doc_member(has && m->has_ulp, "max_ulp", dcpk_fact_count(m->max_ulp)),
        dcpk_doc_member(has && !m->has_ulp, "max_ulp", dcpk_fact_null()),
        dcpk_doc_member(has, "n_different", dcpk_fact_count(m->n_different)),
        dcpk_doc_member(has, "n_nan_on_one_side", dcpk_fact_count(m->n_nan)),
        dcpk_doc_member(has, "n_unequal_bits", dcpk_fact_count(m->n_unequal_bits)),
        dcpk_doc_member(has, "place.a", dcpk_fact_text(d->place.a)),
        dcpk_doc_member(has, "place.b", dcpk_fact_text(d->place.b)),
        dcpk_doc_member(has, "place.index", dcpk_fact_text(d->place.index)),
        dcpk_doc_member(has, "place.key", dcpk_fact_text(d->place.key)));
}

static void fill_differences(const void *context, struct dcpk_doc_rows *rows)
{
    const struct difference_list *of = context;
    struct dcpk_bytes what = {0}, where = {0};
    uint64_t n[DCPK_N_DIFFERENCES] = {0};

    for (const struct dcpk_difference *d = of->list->first; d != NULL; d = d->next) {
        const bool is_shown = !is_hidden(of, d, n);
        const bool has_place = is_shown && d->place.key != NULL;
        const char *what_text = NULL, *where_text = NULL;

        what.n_bytes = where.n_bytes = 0;
        if (is_shown) {
            put_what(&what, d);
            dcpk_bytes_u8(&what, 0);
            what_text = (const char *)what.data;
        }
        if (has_place) {
            put_where(&where, &d->place);
            dcpk_bytes_u8(&where, 0);
            where_text = (const char *)where.data;
        }
        if (what.status == DCPK_OK && where.status == DCPK_OK)
            put_row(rows, d, what_text, where_text);
    }
    dcpk_bytes_status(&what, rows->err);
    dcpk_bytes_status(&where, rows->err);
    dcpk_bytes_release(&what);
    dcpk_bytes_release(&where);
}

static void report_hidden(struct dcpk_doc *doc, const struct difference_list *of)
{
    static const char *const more[DCPK_N_DIFFERENCES] = {
        [DCPK_ONLY_IN_A] = "are only in A",
        [DCPK_ONLY_IN_B] = "are only in B",
        [DCPK_SHAPE_DIFFERS] = "have other shapes",
        [DCPK_DTYPE_DIFFERS] = "have other dtypes",
        [DCPK_ELEMENTS_DIFFER] = "are tensors that differ less",
        [DCPK_VALUE_DIFFERS] = "are values that differ",
        [DCPK_NOT_FAITHFUL] = "are values that differ",
    };
    uint64_t n[DCPK_N_DIFFERENCES] = {0}, n_lacking = 0;

    for (const struct dcpk_difference *d = of->list->first; d != NULL; d = d->next) {
        (void)is_hidden(of, d, n);
        n_lacking += is_lacking(d);
    }
    for (int kind = 0; kind < DCPK_N_DIFFERENCES; kind++)
        if (of->most > 0 && n[kind] > of->most)
            dcpk_doc_line(doc, "  %" PRIu64 " more %s (--top N lists more, --json all)",
                          n[kind] - of->most, more[kind]);
    if (of->hides_lacking && n_lacking > 0)
        dcpk_doc_line(doc, "  %" PRIu64 " values that only one side keeps (--json lists them)",
                      n_lacking);
}

static void report_list(struct dcpk_doc *doc, const char *key, const char *title,
                        const struct difference_list *of)
{
    const struct difference_list *kept = dcpk_doc_keep(doc, of, sizeof *of);

    if (of->list->n > 0)
        dcpk_doc_line(doc, "%s (%" PRIu64 "):", title, of->list->n);
    dcpk_doc_table(
        doc, key,
        &(struct dcpk_doc_table){
            .flags = DCPK_DOC_PARAGRAPHS, .indent = 2, .fill = fill_differences, .context = kept});
    report_hidden(doc, of);
}

/* "54 compared, 0 differ, max rel 0.1; 27 only in A" */
static void put_part(struct dcpk_bytes *text, const struct dcpk_part_result *part)
{
    dcpk_bytes_printf(text, "%" PRIu64 " compared, %" PRIu64 " differ", part->n_compared,
                      part->n_different);
    if (part->max_rel > 0)
        dcpk_bytes_printf(text, ", max rel %.3g", part->max_rel);
    for (int s = 0; s < 2; s++)
        if (part->n_only[s] > 0)
            dcpk_bytes_printf(text, "; %" PRIu64 " only in %s", part->n_only[s], side_names[s]);
    dcpk_bytes_u8(text, 0);
}

/* A count for programs and pages. */
static struct dcpk_doc_cell part_cell(bool is_shown, const char *key, const char *title, uint64_t n,
                                      unsigned tone)
{
    return DCPK_DOC_SHOWN(is_shown, .key = key, .title = title, .fact = dcpk_fact_count(n),
                          .flags = DCPK_DOC_NOT_TEXT | DCPK_DOC_RIGHT | tone);
}

/* Persons see the parts that were compared. */
static void fill_parts(const void *context, struct dcpk_doc_rows *rows)
{
    const struct dcpk_compare_report *report = context;
    struct dcpk_bytes text = {0};

    for (int p = 0; p < DCPK_N_COMPARED; p++) {
        const struct dcpk_part_result *part = &report->parts[p];
        const char *name = dcpk_compare_part_name((enum dcpk_compare_part)p);
        const bool is_shown = part->n_compared > 0 || part->n_different > 0 ||
                              part->n_only[0] > 0 || part->n_only[1] > 0;
        const unsigned tone = part->differs ? DCPK_DOC_BAD : DCPK_DOC_GOOD;

        text.n_bytes = 0;
        put_part(&text, part);
        if (text.status != DCPK_OK)
            break;
        DCPK_DOC_PUT(
            rows,
            DCPK_DOC_SHOWN(is_shown, .title = "part", .fact = dcpk_fact_text(name), .width = 10),
            DCPK_DOC_SHOWN(is_shown, .title = "result",
                           .fact = dcpk_fact_text((const char *)text.data),
                           .flags = DCPK_DOC_NOT_PAGE),
            part_cell(is_shown, "n_compared", "compared", part->n_compared, 0),
            part_cell(is_shown, "n_different", "differ", part->n_different, tone),
            part_cell(is_shown, "n_only_in_a", "only in A", part->n_only[0], 0),
            part_cell(is_shown, "n_only_in_b", "only in B", part->n_only[1], 0),
            DCPK_DOC_SHOWN(is_shown, .key = "max_rel_error", .title = "max rel",
                           .fact = dcpk_fact_number(part->max_rel),
                           .flags = DCPK_DOC_NOT_TEXT | DCPK_DOC_RIGHT));
    }
    dcpk_bytes_status(&text, rows->err);
    dcpk_bytes_release(&text);
}

const struct dcpk_doc_style dcpk_compare_style = {.label_columns = 12};

/* The answer in two rows. */
static void report_answer(const struct dcpk_compare_report *report, struct dcpk_doc *doc)
{
    char size[DCPK_SIZE_TEXT_BYTES];
    const char *how = "key by key as stored: ";

    if (report->is_logical)
        how = dcpk_doc_format(doc, "%" PRIu64 " parameters, ", report->n_params);
    if (report->is_named)
        dcpk_doc_row(doc, "compared", "%" PRIu64 " settings", report->n_values);
    else
        dcpk_doc_row(doc, "compared", "%s%" PRIu64 " tensors, %s, %" PRIu64 " values", how,
                     report->n_tensors, dcpk_cli_size(report->tensor_bytes, size),
                     report->n_values);
    dcpk_doc_verdict(doc, report->differences.n == 0, "%s", report->verdict);
}

/* For programs. */
static void set_answer(const struct dcpk_compare_report *report, struct dcpk_doc *doc)
{
    dcpk_doc_set_flag(doc, "equal", report->equal);
    dcpk_doc_set_flag(doc, "logical", report->is_logical);
    dcpk_doc_set_count(doc, "n_differences", report->differences.n);
    dcpk_doc_set_count(doc, "n_parameters", report->n_params);
    dcpk_doc_set_count(doc, "n_tensors", report->n_tensors);
    dcpk_doc_set_count(doc, "n_values", report->n_values);
    dcpk_doc_set_count(doc, "tensor_bytes", report->tensor_bytes);
    dcpk_doc_set_text(doc, "verdict", report->verdict);
    dcpk_doc_set_count(doc, "version", 1);
}

void dcpk_compare_report_put(const struct dcpk_compare_report *report,
                             const struct dcpk_compare_shown *shown, struct dcpk_doc *doc)
{
    const struct dcpk_doc_table parts = {
        .flags = DCPK_DOC_KEYED, .fill = fill_parts, .context = report};

    doc->media = DCPK_DOC_PAGE;
    doc->title =
        dcpk_doc_format(doc, "%s and %s", dcpk_page_title(shown->a), dcpk_page_title(shown->b));
    if (shown->has_page)
        report_compare_headline(report, doc);
    dcpk_doc_row(doc, "A", "%s", shown->a);
    dcpk_doc_row(doc, "B", "%s", shown->b);
    report_answer(report, doc);
    dcpk_doc_heading(doc, "parts");
    dcpk_doc_show(doc, &parts);
    if (shown->has_page)
        report_compare_page(report, doc);
    doc->media = DCPK_DOC_TEXT;
    report_list(doc, "differences", "different",
                &(struct difference_list){&report->differences, shown->top, false});
    report_list(doc, "layout_differences", "layout differs",
                &(struct difference_list){&report->layout, shown->top, false});
    report_list(doc, "tolerated", "tolerated",
                &(struct difference_list){&report->tolerated, shown->top, true});
    dcpk_doc_table(doc, "parts", &parts);
    report_answer(report, doc);
    doc->media = 0;
    set_answer(report, doc);
}

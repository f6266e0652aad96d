/* SPDX-License-Identifier: Apache-2.0 */
/* compare_report.c - the answer of compare-two-checkpoint, built once. */
#include "tools/compare_report.h"

#include <inttypes.h>

#include "lib/base/bytes.h"
#include "tools/cmd.h"
#include "tools/print_doc.h"

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
        dcpk_compare_report_headline(report, doc);
    dcpk_doc_row(doc, "A", "%s", shown->a);
    dcpk_doc_row(doc, "B", "%s", shown->b);
    report_answer(report, doc);
    dcpk_doc_heading(doc, "parts");
    dcpk_doc_show(doc, &parts);
    if (shown->has_page)
        dcpk_compare_report_page(report, doc);
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

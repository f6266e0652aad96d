/* SPDX-License-Identifier: Apache-2.0 */
/* compare_report.c - the answer of compare-two-checkpoint, as text and as JSON. */
#include "tools/compare_report.h"

#include <inttypes.h>

#include "lib/base/json.h"
#include "tools/cmd.h"

/* What --json calls the kinds of differences. */
static const char *const kinds[DCPK_N_DIFFERENCES] = {
    [DCPK_ONLY_IN_A] = "only_in_a",      [DCPK_ONLY_IN_B] = "only_in_b",
    [DCPK_SHAPE_DIFFERS] = "shape",      [DCPK_DTYPE_DIFFERS] = "dtype",
    [DCPK_ELEMENTS_DIFFER] = "elements", [DCPK_VALUE_DIFFERS] = "value",
    [DCPK_NOT_FAITHFUL] = "value",
};

static void put_text(struct dcpk_bytes *line, const char *before, const char *text)
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
    put_text(line, " ", d->part);
    switch (d->kind) {
    case DCPK_ONLY_IN_A:
    case DCPK_ONLY_IN_B:
        dcpk_bytes_printf(line, ": only in %s", d->kind == DCPK_ONLY_IN_A ? "A" : "B");
        put_text(line, ": ", d->kind == DCPK_ONLY_IN_A ? d->a : d->b);
        break;
    case DCPK_ELEMENTS_DIFFER:
        put_text(line, " ", d->a);
        put_how_far(line, &d->measured);
        break;
    case DCPK_SHAPE_DIFFERS:
    case DCPK_DTYPE_DIFFERS:
    case DCPK_VALUE_DIFFERS:
    case DCPK_NOT_FAITHFUL:
    case DCPK_N_DIFFERENCES:
        put_text(line, ": A has ", d->a);
        put_text(line, ", B ", d->b);
        break;
    }
}

/* "decoder.layers.mlp.linear_fc2.weight[1, 32, 42]: A -0.00455, B -0.0065" */
static void put_where(struct dcpk_bytes *line, const struct dcpk_difference_place *place)
{
    put_text(line, "", place->key);
    put_text(line, "", place->index);
    put_text(line, ": A ", place->a);
    put_text(line, ", B ", place->b);
}

/* A paragraph of its own. */
static void print_line(const struct dcpk_bytes *line, int column)
{
    dcpk_cli_printf(stdout, "%*s", column, "");
    dcpk_cli_put_wrapped(stdout, (const char *)line->data, line->n_bytes, (size_t)column,
                         (size_t)column + 4);
    dcpk_cli_printf(stdout, "\n");
}

static dcpk_status print_difference(const struct dcpk_difference *d, struct dcpk_error *err)
{
    struct dcpk_bytes what = {0}, where = {0};
    dcpk_status st;

    put_what(&what, d);
    if (d->place.key != NULL)
        put_where(&where, &d->place);
    st = dcpk_bytes_status(&what, err);
    if (st == DCPK_OK)
        st = dcpk_bytes_status(&where, err);
    if (st == DCPK_OK)
        print_line(&what, 2);
    if (st == DCPK_OK && where.n_bytes > 0)
        print_line(&where, 4);
    dcpk_bytes_release(&what);
    dcpk_bytes_release(&where);
    return st;
}

static bool is_told(const struct dcpk_difference *d)
{
    return d->kind == DCPK_ELEMENTS_DIFFER;
}

/* most: of differences of elements, which come last; 0: all. */
static dcpk_status print_list(const char *title, const struct dcpk_differences *list, bool all,
                              uint64_t most, struct dcpk_error *err)
{
    uint64_t n_left = 0, n_elements = 0;

    if (list->n == 0)
        return DCPK_OK;
    dcpk_cli_printf(stdout, "%s (%" PRIu64 "):\n", title, list->n);
    for (const struct dcpk_difference *d = list->first; d != NULL; d = d->next) {
        if (!all && !is_told(d)) {
            n_left++;
            continue;
        }
        if (is_told(d) && ++n_elements > most && most > 0)
            continue;
        if (print_difference(d, err) != DCPK_OK)
            return err->status;
    }
    if (most > 0 && n_elements > most)
        dcpk_cli_printf(
            stdout, "  %" PRIu64 " more tensors, less far apart (--top N lists more, --json all)\n",
            n_elements - most);
    if (n_left > 0)
        dcpk_cli_printf(stdout,
                        "  %" PRIu64 " things that only one of the two keeps (--json lists them)\n",
                        n_left);
    return DCPK_OK;
}

static void print_parts(const struct dcpk_compare_report *report)
{
    for (int p = 0; p < DCPK_N_COMPARED; p++) {
        const struct dcpk_part_result *part = &report->parts[p];

        if (part->n_compared == 0 && part->n_different == 0)
            continue;
        dcpk_cli_printf(stdout, "%-10s  %" PRIu64 " compared, %" PRIu64 " differ",
                        dcpk_compare_part_name((enum dcpk_compare_part)p), part->n_compared,
                        part->n_different);
        if (part->max_rel > 0)
            dcpk_cli_printf(stdout, ", max rel %.3g", part->max_rel);
        dcpk_cli_printf(stdout, "\n");
    }
}

dcpk_status dcpk_compare_print(const struct dcpk_compare_report *report, uint64_t top,
                               struct dcpk_error *err)
{
    char size[DCPK_SIZE_TEXT_BYTES];

    if (print_list("different", &report->differences, true, top, err) ||
        print_list("layout differs", &report->layout, true, 0, err) ||
        print_list("tolerated", &report->tolerated, false, top, err))
        return err->status;
    print_parts(report);
    if (report->is_logical)
        dcpk_cli_printf(stdout, "compared    %" PRIu64 " parameters, ", report->n_params);
    else
        dcpk_cli_printf(stdout, "compared    key by key as stored: ");
    dcpk_cli_printf(stdout, "%" PRIu64 " tensors, %s, %" PRIu64 " values\n", report->n_tensors,
                    dcpk_cli_size(report->tensor_bytes, size), report->n_values);
    if (report->equal)
        dcpk_cli_printf(stdout, "verdict     equal\n");
    else
        dcpk_cli_printf(stdout, "verdict     DIFFERENT (%" PRIu64 ")\n", report->differences.n);
    return dcpk_cli_flush(err);
}

static void put_measured(struct dcpk_json_out *j, const struct dcpk_compare *m)
{
    dcpk_json_add_double(j, "max_abs_error", m->max_abs);
    dcpk_json_add_double(j, "max_rel_error", m->max_rel);
    dcpk_json_put_key(j, "max_ulp");
    if (m->has_ulp)
        dcpk_json_put_uint(j, m->max_ulp);
    else
        dcpk_json_put_null(j);
    dcpk_json_add_uint(j, "n_different", m->n_different);
    dcpk_json_add_uint(j, "n_nan_on_one_side", m->n_nan);
    dcpk_json_add_uint(j, "n_unequal_bits", m->n_unequal_bits);
}

/* {"a", "b", "index", "key"}: where A and B are furthest apart. */
static void put_place(struct dcpk_json_out *j, const struct dcpk_difference_place *place)
{
    dcpk_json_put_key(j, "place");
    dcpk_json_begin_object(j);
    dcpk_json_add_string(j, "a", place->a);
    dcpk_json_add_string(j, "b", place->b);
    dcpk_json_add_string(j, "index", place->index);
    dcpk_json_add_string(j, "key", place->key);
    dcpk_json_end_object(j);
}

static void put_parts(struct dcpk_json_out *j, const struct dcpk_compare_report *report)
{
    dcpk_json_put_key(j, "parts");
    dcpk_json_begin_object(j);
    for (int p = 0; p < DCPK_N_COMPARED; p++) {
        dcpk_json_put_key(j, dcpk_compare_part_name((enum dcpk_compare_part)p));
        dcpk_json_begin_object(j);
        dcpk_json_add_double(j, "max_rel_error", report->parts[p].max_rel);
        dcpk_json_add_uint(j, "n_compared", report->parts[p].n_compared);
        dcpk_json_add_uint(j, "n_different", report->parts[p].n_different);
        dcpk_json_end_object(j);
    }
    dcpk_json_end_object(j);
}

static void put_difference(struct dcpk_json_out *j, const struct dcpk_difference *d)
{
    dcpk_json_begin_object(j);
    dcpk_json_add_string(j, "a", d->a);
    dcpk_json_add_string(j, "b", d->b);
    if (d->kind == DCPK_ELEMENTS_DIFFER && !d->measured.equal) {
        dcpk_json_add_int(j, "first_different", d->measured.first_different);
    }
    dcpk_json_add_string(j, "kind", kinds[d->kind]);
    if (d->kind == DCPK_ELEMENTS_DIFFER)
        put_measured(j, &d->measured);
    dcpk_json_add_string(j, "name", d->name);
    dcpk_json_add_string(j, "part", d->part);
    if (d->kind == DCPK_ELEMENTS_DIFFER)
        put_place(j, &d->place);
    dcpk_json_end_object(j);
}

static void put_list(struct dcpk_json_out *j, const char *key, const struct dcpk_differences *list)
{
    dcpk_json_put_key(j, key);
    dcpk_json_begin_array(j);
    for (const struct dcpk_difference *d = list->first; d != NULL; d = d->next)
        put_difference(j, d);
    dcpk_json_end_array(j);
}

dcpk_status dcpk_compare_print_json(const struct dcpk_compare_report *report,
                                    struct dcpk_error *err)
{
    struct dcpk_bytes bytes = {0};
    struct dcpk_json_out j;

    dcpk_json_out_init(&j, &bytes, 2);
    dcpk_json_begin_object(&j);
    put_list(&j, "differences", &report->differences);
    dcpk_json_add_bool(&j, "equal", report->equal);
    put_list(&j, "layout_differences", &report->layout);
    dcpk_json_add_bool(&j, "logical", report->is_logical);
    dcpk_json_add_uint(&j, "n_differences", report->differences.n);
    dcpk_json_add_uint(&j, "n_parameters", report->n_params);
    dcpk_json_add_uint(&j, "n_tensors", report->n_tensors);
    dcpk_json_add_uint(&j, "n_values", report->n_values);
    put_parts(&j, report);
    dcpk_json_add_uint(&j, "tensor_bytes", report->tensor_bytes);
    put_list(&j, "tolerated", &report->tolerated);
    dcpk_json_add_uint(&j, "version", 1);
    dcpk_json_end_object(&j);
    return dcpk_cli_print_bytes(&bytes, err);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* remap_report.c - a line for each step of a remap, what differs, and the verdict. */
#include "tools/remap_report.h"

#include <inttypes.h>
#include <stdio.h>

#include "lib/ckpt/format.h"
#include "tools/cmd.h"
#include "tools/print_doc.h"

#define FIGURE_BYTES 48
#define GIGA         1e9

static const char *const step_names[DCPK_N_STEPS] = {"load", "there", "back"};

/* Bytes that the rate of a step counts: into the rank that gets the most, from all files, or where
 * nothing leaves a rank within them. */
static uint64_t rated_bytes(const struct dcpk_remap_step *step, unsigned number)
{
    if (number == DCPK_STEP_LOAD)
        return step->moved_bytes;
    return step->moved_bytes > 0 ? step->most_in_bytes : step->local_bytes;
}

static double step_rate(const struct dcpk_remap_step *step, unsigned number)
{
    if (step->seconds <= 0)
        return 0;
    return (double)rated_bytes(step, number) / step->seconds / GIGA;
}

/* "12.3" in columns; "-" where there is none. */
static const char *put_figure(double value, const char *format, char text[FIGURE_BYTES])
{
    if (value <= 0)
        snprintf(text, FIGURE_BYTES, "-");
    else if (*format == 'm')
        snprintf(text, FIGURE_BYTES, "%.3f ms", 1e3 * value);
    else
        snprintf(text, FIGURE_BYTES, "%.2f", value);
    return text;
}

static void put_remap_difference(const void *context, struct dcpk_json_out *j)
{
    const struct dcpk_remap_difference *d = context;
    char digits[20];

    dcpk_json_begin_object(j);
    dcpk_json_add_int(j, "copy", d->copy);
    snprintf(digits, sizeof digits, "%016" PRIx64, d->found);
    dcpk_json_add_string(j, "found", digits);
    dcpk_json_add_int(j, "n_elems_found", (int64_t)d->n_elems_found);
    dcpk_json_add_int(j, "n_elems_wanted", (int64_t)d->n_elems_wanted);
    dcpk_json_add_string(j, "tensor", d->name);
    snprintf(digits, sizeof digits, "%016" PRIx64, d->wanted);
    dcpk_json_add_string(j, "wanted", digits);
    dcpk_json_end_object(j);
}

static struct dcpk_fact difference_fact(const struct dcpk_remap_step *step)
{
    if (step->n_different == 0)
        return dcpk_fact_null();
    return dcpk_fact_json(put_remap_difference, &step->first);
}

/* null: there is none, as of what crosses no link. */
static struct dcpk_fact positive_fact(double value)
{
    if (value <= 0)
        return dcpk_fact_null();
    return dcpk_fact_number(value);
}

static void put_step(struct dcpk_doc_rows *rows, const struct dcpk_remap_result *result,
                     unsigned number)
{
    const struct dcpk_remap_step *s = &result->steps[number];
    const double limit =
        number == DCPK_STEP_LOAD || s->moved_bytes == 0 ? 0 : result->link_bytes_a_second / GIGA;
    char seconds[FIGURE_BYTES], rate[FIGURE_BYTES], predicted[FIGURE_BYTES], top[FIGURE_BYTES];

    DCPK_DOC_PUT(
        rows, DCPK_MEMBER("difference", difference_fact(s)),
        DCPK_MEMBER("gb_per_s", positive_fact(step_rate(s, number))),
        DCPK_MEMBER("limit_gb_per_s", positive_fact(limit)),
        DCPK_MEMBER("local_bytes", dcpk_fact_count(s->local_bytes)),
        DCPK_MEMBER("most_in_bytes", dcpk_fact_count(s->most_in_bytes)),
        DCPK_MEMBER("most_out_bytes", dcpk_fact_count(s->most_out_bytes)),
        DCPK_MEMBER("moved_bytes", dcpk_fact_count(s->moved_bytes)),
        DCPK_MEMBER("n_different", dcpk_fact_count(s->n_different)),
        DCPK_MEMBER("n_messages", dcpk_fact_count(s->n_messages)),
        DCPK_MEMBER("n_tiles", dcpk_fact_count(s->n_tiles)),
        DCPK_MEMBER("n_units", dcpk_fact_count(s->n_units)),
        {.key = "name", .title = "step", .fact = dcpk_fact_text(step_names[number]), .width = 5},
        DCPK_MEMBER("ok", dcpk_fact_flag(s->n_different == 0)),
        DCPK_MEMBER("predicted_seconds", positive_fact(s->predicted_seconds)),
        DCPK_MEMBER("seconds", dcpk_fact_number(s->seconds)),
        DCPK_MEMBER("staging_bytes", dcpk_fact_count(s->staging_bytes)),
        DCPK_MEMBER("table_bytes", dcpk_fact_count(s->table_bytes)),
        {.title = "between ranks", .fact = dcpk_fact_bytes(s->moved_bytes), .width = 13},
        {.title = "within", .fact = dcpk_fact_bytes(s->local_bytes), .width = 11},
        {.title = "time",
         .fact = dcpk_fact_text(put_figure(s->seconds, "ms", seconds)),
         .width = 12},
        {.title = "GB/s",
         .fact = dcpk_fact_text(put_figure(step_rate(s, number), "", rate)),
         .width = 8},
        {.title = "predicted",
         .fact = dcpk_fact_text(put_figure(s->predicted_seconds, "ms", predicted)),
         .width = 12},
        {.title = "limit", .fact = dcpk_fact_text(put_figure(limit, "", top)), .width = 8},
        {.title = "proof", .fact = dcpk_fact_text(s->n_different == 0 ? "ok" : "DIFFERS")});
}

static void fill_steps(const void *context, struct dcpk_doc_rows *rows)
{
    const struct dcpk_remap_result *result = context;

    for (unsigned i = 0; i < DCPK_N_STEPS; i++)
        if (result->steps[i].is_made)
            put_step(rows, result, i);
}

static void report_link(const struct dcpk_remap_result *r, struct dcpk_doc *doc)
{
    const char *how = "given";

    if (r->is_link_measured && r->n_ranks == 1)
        how = "measured, within the rank";
    else if (r->is_link_measured)
        how = "measured, from each rank to the next";
    dcpk_doc_row(doc, "limit", "%.2f GB/s into a rank (%s)", r->link_bytes_a_second / GIGA, how);
    if (r->link != NULL && r->note[0] != '\0')
        dcpk_doc_row(doc, "link", "%s: %s", r->link, r->note);
    else if (r->link != NULL)
        dcpk_doc_row(doc, "link", "%s", r->link);
    dcpk_doc_set_text(doc, "link.name", r->link);
    dcpk_doc_set_text(doc, "link.why", r->note[0] == '\0' ? NULL : r->note);
    dcpk_doc_set(doc, "link.gb_per_s", dcpk_fact_number(r->link_bytes_a_second / GIGA));
    dcpk_doc_set_flag(doc, "link.is_measured", r->is_link_measured);
}

static void report_remap_verdict(const struct dcpk_remap_result *r, struct dcpk_doc *doc)
{
    for (unsigned i = 0; i < DCPK_N_STEPS; i++) {
        const struct dcpk_remap_step *s = &r->steps[i];

        if (s->n_different == 0)
            continue;
        dcpk_doc_row(doc, "differs",
                     "%s: '%s', copy %" PRId64 ": fingerprint %016" PRIx64 " of %" PRIu64
                     " elements, the files have %016" PRIx64 " of %" PRIu64 "; %" PRIu64
                     " copies of tensors differ",
                     step_names[i], s->first.name, s->first.copy, s->first.found,
                     s->first.n_elems_found, s->first.wanted, s->first.n_elems_wanted,
                     s->n_different);
    }
    if (r->ok)
        dcpk_doc_verdict(doc, true,
                         "ok: %" PRIu64 " tensors are what the files have, loaded, there and back",
                         r->n_tensors);
    else
        dcpk_doc_verdict(doc, false, "NOT ok: the ranks do not hold what the files hold");
    dcpk_doc_set_flag(doc, "ok", r->ok);
}

static void report_remap(const struct dcpk_remap_report *report, struct dcpk_doc *doc)
{
    const struct dcpk_remap_result *r = report->result;
    char size[DCPK_SIZE_TEXT_BYTES], most[DCPK_SIZE_TEXT_BYTES], ranks[DCPK_COUNT_TEXT_BYTES];

    dcpk_doc_fact(doc, "checkpoint", "folder", dcpk_fact_text(report->folder));
    dcpk_doc_row(doc, "tensors", "%" PRIu64 ", %s, by %s in the memory of %s", r->n_tensors,
                 dcpk_cli_short_size(r->tensor_bytes, size),
                 dcpk_cli_count((uint64_t)r->n_ranks, "rank", ranks), report->device);
    dcpk_doc_row(doc, "from", "%s, at most %s a rank", report->from,
                 dcpk_cli_short_size(r->from_bytes, most));
    dcpk_doc_row(doc, "to", "%s, at most %s a rank", report->to,
                 dcpk_cli_short_size(r->to_bytes, most));
    dcpk_doc_set_text(doc, "device", report->device);
    dcpk_doc_set_text(doc, "format", report->ckpt->format->name);
    dcpk_doc_set_text(doc, "from.layout", report->from);
    dcpk_doc_set_count(doc, "from.most_bytes", r->from_bytes);
    dcpk_doc_set_count(doc, "n_ranks", (uint64_t)r->n_ranks);
    dcpk_doc_set_count(doc, "n_tensors", r->n_tensors);
    dcpk_doc_set_count(doc, "tensor_bytes", r->tensor_bytes);
    dcpk_doc_set_text(doc, "to.layout", report->to);
    dcpk_doc_set_count(doc, "to.most_bytes", r->to_bytes);
    dcpk_doc_set_count(doc, "version", 1);
    report_link(r, doc);
    dcpk_doc_line(doc, "  step   between ranks  within       time          GB/s      predicted     "
                       "limit     proof");
    dcpk_doc_table(doc, "steps",
                   &(struct dcpk_doc_table){.indent = 2, .fill = fill_steps, .context = r});
    report_remap_verdict(r, doc);
}

dcpk_status dcpk_remap_print(const struct dcpk_remap_report *report, bool as_json,
                             struct dcpk_error *err)
{
    const struct dcpk_doc_style style = {.label_columns = 12};
    struct dcpk_doc doc;

    dcpk_doc_init(&doc, "remap", &style);
    report_remap(report, &doc);
    return dcpk_print_doc(&doc, &(struct dcpk_print_options){.as_json = as_json}, err);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_losscmp.c - dcpkit losscmp: did two runs have the same losses. */
#include <inttypes.h>
#include <stdio.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/job/loss_compare.h"
#include "lib/report/doc.h"
#include "tools/cmd.h"
#include "tools/print_doc.h"

#define NAME            "losscmp"
#define NOISE_TOLERANCE 1e-6 /* in addition to the noise: what losses of fp32 are rounded by */
#define MAX_ROWS        20   /* iterations that the text lists, of those that differ */

/* ---- the report ---- */

/* The comparison and its rules; borrowed until the document is released. */
struct losses {
    const char *a, *b; /* paths of the logs */
    const struct dcpk_step_log *log_a, *log_b;
    const struct dcpk_loss_options *options;
    const struct dcpk_loss_report *report;
};

/* ---- iterations ---- */

/* is_text: those that differ, as far as a person reads. */
struct row_list {
    const struct dcpk_loss_report *report;
    bool is_text;
};

/* Names the differences: "loss, state_hash"; "" none. At most ROW_TEXT_BYTES bytes. */
#define ROW_TEXT_BYTES 96
static void differing_parts(const struct dcpk_loss_row *row, char text[ROW_TEXT_BYTES])
{
    const char *before = "";
    size_t at = 0;

    text[0] = '\0';
    for (int p = 0; p < DCPK_N_LOSS_PARTS; p++) {
        if (!row->differs[p])
            continue;
        at += (size_t)snprintf(text + at, ROW_TEXT_BYTES - at, "%s%s", before,
                               dcpk_loss_part_names[p]);
        before = ", ";
    }
}

static struct dcpk_fact logged_fact(const struct dcpk_logged *number)
{
    return dcpk_fact_if(number->is_there, dcpk_fact_number(number->value));
}

/* "5.128260136": all digits that are worth reading; "-": none. At most 32 bytes. */
static const char *number_text(const struct dcpk_logged *number, char text[32])
{
    snprintf(text, 32, "%.9g", number->value);
    if (!number->is_there)
        snprintf(text, 32, "-");
    return text;
}

static void put_iteration(struct dcpk_doc_rows *rows, const struct dcpk_loss_row *row)
{
    const double gap = row->gap[DCPK_LOSS], norm_gap = row->gap[DCPK_GRAD_NORM];
    char parts[ROW_TEXT_BYTES], sentence[288], room[4][32];
    const char *const loss[] = {number_text(&row->a->loss, room[0]),
                                number_text(&row->b->loss, room[1])};
    const char *const norm[] = {number_text(&row->a->grad_norm, room[2]),
                                number_text(&row->b->grad_norm, room[3])};
    const unsigned tone = dcpk_loss_row_differs(row) ? DCPK_DOC_BAD : DCPK_DOC_GOOD;
    const unsigned flags = DCPK_DOC_RIGHT | DCPK_DOC_NOT_TEXT;

    differing_parts(row, parts);
    snprintf(sentence, sizeof sentence,
             "iteration %" PRId64 ": %s; loss %s in A, %s in B, relative %.2g; norm %s, %s, %.2g",
             row->a->iteration, parts, loss[0], loss[1], gap, norm[0], norm[1], norm_gap);
    DCPK_DOC_PUT(
        rows, {.title = "what", .fact = dcpk_fact_text(sentence), .flags = DCPK_DOC_NOT_PAGE},
        {"iteration", "iteration", .fact = dcpk_fact_int(row->a->iteration), .flags = flags},
        {.title = "loss of A", .fact = dcpk_fact_text(loss[0]), .flags = flags},
        {.title = "loss of B", .fact = dcpk_fact_text(loss[1]), .flags = flags},
        {"loss_rel_error", "relative", .fact = dcpk_fact_number(gap), .flags = flags},
        {.title = "norm of A", .fact = dcpk_fact_text(norm[0]), .flags = flags},
        {.title = "norm of B", .fact = dcpk_fact_text(norm[1]), .flags = flags},
        {"grad_norm_rel_error", "relative", .fact = dcpk_fact_number(norm_gap), .flags = flags},
        {.title = "differs", .fact = dcpk_fact_text(parts), .flags = DCPK_DOC_NOT_TEXT | tone},
        DCPK_MEMBER("a.grad_norm", logged_fact(&row->a->grad_norm)),
        DCPK_MEMBER("a.loss", logged_fact(&row->a->loss)),
        DCPK_MEMBER("b.grad_norm", logged_fact(&row->b->grad_norm)),
        DCPK_MEMBER("b.loss", logged_fact(&row->b->loss)),
        DCPK_MEMBER("equal", dcpk_fact_flag(!dcpk_loss_row_differs(row))));
}

static void fill_iterations(const void *context, struct dcpk_doc_rows *rows)
{
    const struct row_list *list = context;
    size_t n_left = MAX_ROWS;

    for (size_t i = 0; i < list->report->n; i++) {
        const struct dcpk_loss_row *row = &list->report->rows[i];

        if (list->is_text && (!dcpk_loss_row_differs(row) || n_left == 0))
            continue;
        n_left -= list->is_text;
        put_iteration(rows, row);
    }
}

static void report_rows(const struct losses *shown, bool is_text, struct dcpk_doc *doc)
{
    const struct row_list list = {shown->report, is_text};
    const struct dcpk_doc_table table = {.flags = is_text ? DCPK_DOC_PARAGRAPHS : 0,
                                         .fill = fill_iterations,
                                         .context = dcpk_doc_keep(doc, &list, sizeof list)};

    if (is_text)
        dcpk_doc_show(doc, &table);
    else
        dcpk_doc_table(doc, "iterations", &table);
}

/* ---- parts ---- */

static void fill_loss_parts(const void *context, struct dcpk_doc_rows *rows)
{
    const struct dcpk_loss_report *report = context;

    for (int p = 0; p < DCPK_N_LOSS_PARTS; p++) {
        const unsigned tone = report->n_differ[p] > 0 ? DCPK_DOC_BAD : DCPK_DOC_GOOD;
        char text[128], far[48] = "";

        if (report->max_gap[p] > 0)
            snprintf(far, sizeof far, ", max rel %.3g", report->max_gap[p]);
        snprintf(text, sizeof text, "%zu compared, %zu differ%s", report->n_compared[p],
                 report->n_differ[p], far);
        DCPK_DOC_PUT(
            rows, {.title = "part", .fact = dcpk_fact_text(dcpk_loss_part_names[p]), .width = 16},
            {.title = "result", .fact = dcpk_fact_text(text), .flags = tone},
            DCPK_MEMBER("max_rel_error", dcpk_fact_number(report->max_gap[p])),
            DCPK_MEMBER("n_compared", dcpk_fact_count(report->n_compared[p])),
            DCPK_MEMBER("n_different", dcpk_fact_count(report->n_differ[p])));
    }
}

/* ---- the whole ---- */

static void report_log(struct dcpk_doc *doc, const char *label, const char *path,
                       const struct dcpk_step_log *log)
{
    const char *replaced = "";
    char count[DCPK_COUNT_TEXT_BYTES];

    if (log->n_replaced > 0)
        replaced =
            dcpk_doc_format(doc, "; %zu more were repeated by a resumed run", log->n_replaced);
    dcpk_doc_row(doc, label, "%s: %s, %" PRId64 " to %" PRId64 "%s", path,
                 dcpk_cli_count(log->n, "iteration", count), log->steps[0].iteration,
                 log->steps[log->n - 1].iteration, replaced);
}

static size_t lack_count(const struct dcpk_loss_lack *lack)
{
    return lack->n_before + lack->n_between + lack->n_after;
}

/* The iterations of the other log that this one lacks; nothing where it has all. */
static void report_lack(struct dcpk_doc *doc, const char *label, const struct dcpk_loss_lack *lack)
{
    const char *from = "";

    if (lack_count(lack) == 0)
        return;
    if (lack->n_between + lack->n_after > 0)
        from = dcpk_doc_format(doc, "; from %" PRId64 " on", lack->first);
    dcpk_doc_row(doc, label,
                 "%zu before the first iteration that both have, %zu between, %zu after the last%s",
                 lack->n_before, lack->n_between, lack->n_after, from);
}

/* Reports facts that the answer does not rest on. */
static void report_notes(const struct losses *shown, struct dcpk_doc *doc)
{
    const struct dcpk_loss_report *report = shown->report;
    const char *how = "they count as different (--exact compares their bits)";
    char count[DCPK_COUNT_TEXT_BYTES];

    if (shown->options->takes_nonfinite)
        how = "equal bits there prove nothing";
    if (report->n_nonfinite > 0)
        dcpk_doc_row(doc, "not finite", "loss or norm of both logs in %s: %s",
                     dcpk_cli_count(report->n_nonfinite, "iteration", count), how);
    if (report->n_coarse > 0)
        dcpk_doc_row(doc, "too short", "a loss of fewer than 4 digits in %s: not compared",
                     dcpk_cli_count(report->n_coarse, "iteration", count));
    if (report->n_loud > 0)
        dcpk_doc_row(doc, "noise", "above 1e-2 of the loss in %s: it allows nothing there",
                     dcpk_cli_count(report->n_loud, "iteration", count));
}

static const char *loss_verdict(const struct dcpk_loss_report *report, struct dcpk_doc *doc)
{
    char count[DCPK_COUNT_TEXT_BYTES];

    if (report->n_different > 0)
        return dcpk_doc_format(doc, "DIFFERENT (%zu)", report->n_different);
    if (report->n_missing > 0)
        return dcpk_doc_format(doc, "INCOMPLETE (%s missing)",
                               dcpk_cli_count(report->n_missing, "iteration", count));
    if (lack_count(&report->a_lacks) + lack_count(&report->b_lacks) > 0)
        return dcpk_doc_format(doc, "equal in the %s that both have",
                               dcpk_cli_count(report->n, "iteration", count));
    return "equal";
}

static void report_loss_answer(const struct losses *shown, struct dcpk_doc *doc)
{
    const struct dcpk_loss_report *report = shown->report;
    const char *how = "bit for bit, or to the last digit that was printed";
    char count[DCPK_COUNT_TEXT_BYTES];

    if (shown->options->rtol > 0)
        how = dcpk_doc_format(doc, "within a relative %g of losses, %g of norms",
                              shown->options->rtol, shown->options->norm_rtol);
    if (shown->options->rtol > 0 && report->is_rounded)
        how = dcpk_doc_format(doc, "%s, or half of a last printed digit", how);
    if (shown->options->allows_noise)
        how = dcpk_doc_format(doc, "within 10 times the noise and a relative %g of losses",
                              shown->options->rtol);
    report_log(doc, "A", shown->a, shown->log_a);
    report_log(doc, "B", shown->b, shown->log_b);
    report_lack(doc, "A lacks", &report->a_lacks);
    report_lack(doc, "B lacks", &report->b_lacks);
    dcpk_doc_row(doc, "compared", "%s, %s", dcpk_cli_count(report->n, "iteration", count), how);
    report_notes(shown, doc);
    dcpk_doc_verdict(doc, report->n_different == 0 && report->n_missing == 0, "%s",
                     loss_verdict(report, doc));
}

static const struct dcpk_loss_row *first_different(const struct dcpk_loss_report *report)
{
    for (size_t i = 0; i < report->n; i++)
        if (dcpk_loss_row_differs(&report->rows[i]))
            return &report->rows[i];
    return NULL;
}

static void set_losses(const struct losses *shown, struct dcpk_doc *doc)
{
    const struct dcpk_loss_report *report = shown->report;
    const struct dcpk_loss_row *first = first_different(report);
    struct dcpk_fact first_fact = dcpk_fact_null();

    if (first != NULL)
        first_fact = dcpk_fact_int(first->a->iteration);
    dcpk_doc_set_flag(doc, "equal", report->is_equal);
    dcpk_doc_set(doc, "first_different", first_fact);
    dcpk_doc_set_count(doc, "n_compared", report->n);
    dcpk_doc_set_count(doc, "n_different", report->n_different);
    dcpk_doc_set_count(doc, "n_coarse", report->n_coarse);
    dcpk_doc_set_count(doc, "n_loud", report->n_loud);
    dcpk_doc_set_count(doc, "n_missing", report->n_missing);
    dcpk_doc_set_count(doc, "n_nonfinite", report->n_nonfinite);
    dcpk_doc_set_count(doc, "n_only_in_a", lack_count(&report->b_lacks));
    dcpk_doc_set_count(doc, "n_only_in_b", lack_count(&report->a_lacks));
    dcpk_doc_set_flag(doc, "all", shown->options->asks_all);
    dcpk_doc_set(doc, "tolerance", dcpk_fact_number(shown->options->rtol));
    dcpk_doc_set(doc, "norm_tolerance", dcpk_fact_number(shown->options->norm_rtol));
    dcpk_doc_set_flag(doc, "noise", shown->options->allows_noise);
    dcpk_doc_set_count(doc, "version", 1);
}

/* The losses of a log, in the document's memory. */
static struct dcpk_doc_curve log_curve(struct dcpk_doc *doc, const char *label,
                                       const struct dcpk_step_log *log)
{
    double *x = dcpk_doc_take(doc, log->n, sizeof *x), *y = dcpk_doc_take(doc, log->n, sizeof *y);
    struct dcpk_doc_curve curve = {label, x, y, 0};

    if (x == NULL || y == NULL)
        return curve;
    for (size_t i = 0; i < log->n; i++) {
        if (!log->steps[i].loss.is_there)
            continue;
        x[curve.n] = (double)log->steps[i].iteration;
        y[curve.n++] = log->steps[i].loss.value;
    }
    return curve;
}

/* Relative differences of losses and norms, where they differ. */
static void report_gaps(const struct dcpk_loss_report *report, struct dcpk_doc *doc)
{
    static const enum dcpk_loss_part parts[] = {DCPK_LOSS, DCPK_GRAD_NORM};
    struct dcpk_doc_curve curves[DCPK_COUNT(parts)];
    double *x = dcpk_doc_take(doc, report->n, sizeof *x);

    for (size_t p = 0; p < DCPK_COUNT(parts); p++) {
        double *y = dcpk_doc_take(doc, report->n, sizeof *y);

        if (x == NULL || y == NULL)
            return;
        for (size_t i = 0; i < report->n; i++) {
            x[i] = (double)report->rows[i].a->iteration;
            y[i] = report->rows[i].gap[parts[p]];
        }
        curves[p] = (struct dcpk_doc_curve){dcpk_loss_part_names[parts[p]], x, y, report->n};
    }
    dcpk_doc_plot(
        doc, &(struct dcpk_doc_plot){"relative difference by iteration, on a scale of logarithms",
                                     curves, DCPK_COUNT(parts), true});
}

static void report_loss_headline(const struct dcpk_loss_report *report, struct dcpk_doc *doc)
{
    const size_t n_only = lack_count(&report->a_lacks) + lack_count(&report->b_lacks);
    const struct dcpk_doc_bar bars[] = {{"equal", report->n - report->n_different, DCPK_DOC_GOOD},
                                        {"different", report->n_different, DCPK_DOC_BAD},
                                        {"in one log alone", n_only, DCPK_DOC_WARN}};

    dcpk_doc_headline(
        doc, &(struct dcpk_doc_headline){
                 .figures = {{dcpk_doc_format(doc, "%zu", report->n), "iterations compared"},
                             {dcpk_doc_format(doc, "%zu", report->n_different), "different"},
                             {dcpk_doc_format(doc, "%.3g", report->max_gap[DCPK_LOSS]),
                              "largest relative difference of losses"}},
                 .bar_title = "iterations",
                 .bars = bars,
                 .n_bars = DCPK_COUNT(bars)});
}

/* Text: the first iterations that differ, a line for each part, what was compared, and the verdict.
 * JSON: all iterations. A page: both curves, too. */
static void report_losscmp(const struct losses *shown, struct dcpk_doc *doc)
{
    const struct dcpk_loss_report *report = shown->report;
    const struct dcpk_doc_table parts = {
        .flags = DCPK_DOC_KEYED, .fill = fill_loss_parts, .context = report};
    const struct dcpk_doc_curve curves[] = {
        log_curve(doc, dcpk_doc_format(doc, "A: %s", shown->a), shown->log_a),
        log_curve(doc, dcpk_doc_format(doc, "B: %s", shown->b), shown->log_b)};

    doc->title =
        dcpk_doc_format(doc, "%s and %s", dcpk_page_title(shown->a), dcpk_page_title(shown->b));
    doc->media = DCPK_DOC_PAGE;
    report_loss_headline(report, doc);
    report_loss_answer(shown, doc);
    dcpk_doc_plot(doc, &(struct dcpk_doc_plot){"loss by iteration", curves, 2, false});
    report_gaps(report, doc);
    dcpk_doc_heading(doc, "parts");
    dcpk_doc_show(doc, &parts);
    dcpk_doc_heading(doc, "iterations");
    report_rows(shown, false, doc);
    doc->media = DCPK_DOC_TEXT;
    report_rows(shown, true, doc);
    if (report->n_different > MAX_ROWS)
        dcpk_doc_line(doc, "  %zu more iterations differ (--json lists all)",
                      report->n_different - MAX_ROWS);
    dcpk_doc_table(doc, "parts", &parts);
    report_loss_answer(shown, doc);
    doc->media = 0;
    set_losses(shown, doc);
}

/* The request to compare; negative: not given. */
struct losscmp_request {
    bool as_json, is_exact, allows_noise, asks_all;
    double tolerance, norm_tolerance;
    const char *html;
};

static dcpk_status read_log(const char *path, struct dcpk_step_log *log, struct dcpk_error *err)
{
    size_t n_bytes;
    char *text = NULL;

    if (dcpk_cli_read_file(path, DCPK_CLI_MAX_FILE_BYTES, &text, &n_bytes, err) ||
        dcpk_step_log_read(text, n_bytes, log, err))
        dcpk_context(err, "reading '%s' as a log (of 'train --log', or printed by Megatron)", path);
    dcpk_free(text);
    return err->status;
}

static dcpk_status print_losses(const struct losscmp_request *r, const struct losses *shown,
                                struct dcpk_error *err)
{
    const struct dcpk_print_options way = {.as_json = r->as_json, .html = r->html};
    const struct dcpk_doc_style style = {.label_columns = 12};
    struct dcpk_doc doc;

    dcpk_doc_init(&doc, NAME, &style);
    report_losscmp(shown, &doc);
    return dcpk_print_doc(&doc, &way, err);
}

/* paths: of the two. */
static int losscmp(const struct losscmp_request *r, char *const *paths, struct dcpk_error *err)
{
    struct dcpk_loss_options options = {
        .has_hashes = r->tolerance < 0, .takes_nonfinite = r->is_exact, .asks_all = r->asks_all};
    struct dcpk_step_log a = {0}, b = {0};
    struct dcpk_loss_report report = {0};
    bool is_equal;

    if (r->allows_noise) {
        options.allows_noise = true;
        options.has_hashes = false;
        options.rtol = NOISE_TOLERANCE;
    }
    if (r->tolerance > 0)
        options.rtol = options.norm_rtol = r->tolerance;
    if (r->norm_tolerance >= 0)
        options.norm_rtol = r->norm_tolerance;
    if (dcpk_check_page(r->html, paths[0], err) || dcpk_check_page(r->html, paths[1], err) ||
        read_log(paths[0], &a, err) || read_log(paths[1], &b, err) ||
        dcpk_loss_compare(&a, &b, &options, &report, err))
        goto out;
    (void)print_losses(r, &(struct losses){paths[0], paths[1], &a, &b, &options, &report}, err);
out:
    is_equal = report.is_equal;
    dcpk_loss_report_release(&report);
    dcpk_step_log_release(&b);
    dcpk_step_log_release(&a);
    return is_equal ? DCPK_EXIT_OK : DCPK_EXIT_NO;
}

#define DCPK_OPT_STRUCT struct losscmp_request
static const struct dcpk_option option_rows[] = {
    DCPK_OPT_FLAG(
        "exact", is_exact,
        "all numbers and state hashes are equal bit for bit, decimals to the last printed digit "
        "(default); if given, losses that are NaN or infinite in both can be equal, too"),
    DCPK_OPT_NUMBER("tol", "R", tolerance,
                    "losses, norms of gradients and learning rates are equal when |a - b| <= R * "
                    "|b|, or half of the last printed digit; state hashes are not compared"),
    DCPK_OPT_NUMBER("norm-tol", "R", norm_tolerance,
                    "the same for norms of gradients (default: --tol)"),
    DCPK_OPT_FLAG("noise", allows_noise,
                  "losses are equal within 10 times the noise that train --noise-floor measured, "
                  "and --tol (default here: 1e-6); norms are not compared; noise "
                  "above 1e-2 of a loss allows nothing"),
    DCPK_OPT_FLAG("all", asks_all,
                  "each log has every iteration of the other, from the first that both have: a run "
                  "that ended early is not equal"),
    DCPK_OPT_JSON(as_json),
    DCPK_OPT_HTML(html),
    DCPK_OPT_END};

static int losscmp_main(void *values, const struct dcpk_cli_args *args, struct dcpk_error *err)
{
    const struct losscmp_request *r = values;

    if (r->is_exact && (r->tolerance >= 0 || r->allows_noise))
        return dcpk_cli_usage(NAME, "--exact and --tol or --noise exclude each other");
    return losscmp(r, args->words, err);
}

static struct losscmp_request values = {.tolerance = -1, .norm_tolerance = -1};
const struct dcpk_cli dcpk_cmd_losscmp = {
    .name = NAME,
    .usage = "[options] A B",
    .summary =
        "Compare the losses of two training runs by their logs: JSON lines of 'dcpkit train', "
        "or Megatron's output; exit 0: they are the same, 1: they differ.\nLosses, norms of "
        "gradients, learning rates, loss scales, consumed samples and "
        "skipped steps of each iteration are compared where both logs have them.",
    .options = option_rows,
    .values = &values,
    .example = "dcpkit losscmp --tol 1e-5 logs/run.jsonl logs/resumed.jsonl",
    .n_args = {2, 2},
    .paths = DCPK_CLI_ARE_FILES,
    .run = losscmp_main,
};

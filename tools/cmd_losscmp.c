/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_losscmp.c - dcpkit losscmp: did two runs have the same losses. */
#include "lib/base/alloc.h"
#include "tools/cmd.h"
#include "tools/losscmp_report.h"
#include "tools/print_doc.h"

#define NAME "losscmp"

#define NOISE_TOLERANCE 1e-6 /* in addition to the noise: what losses of fp32 are rounded by */

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

static dcpk_status print_losses(const struct losscmp_request *r,
                                const struct dcpk_losscmp_shown *shown, struct dcpk_error *err)
{
    const struct dcpk_print_options way = {.as_json = r->as_json, .html = r->html};
    struct dcpk_doc doc;

    dcpk_doc_init(&doc, NAME, &dcpk_losscmp_style);
    dcpk_losscmp_report(shown, &doc);
    return dcpk_print_doc(&doc, &way, err);
}

/* paths: of the two. */
static int losscmp(const struct losscmp_request *r, char *const *paths, struct dcpk_error *err)
{
    struct dcpk_loss_options options = {
        .has_hashes = r->tolerance < 0, .takes_nonfinite = r->is_exact, .asks_all = r->asks_all};
    struct dcpk_step_log a = {0}, b = {0};
    struct dcpk_loss_report report = {0};
    dcpk_status st = dcpk_check_page(r->html, paths[0], err);
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
    if (st == DCPK_OK)
        st = dcpk_check_page(r->html, paths[1], err);
    if (st == DCPK_OK)
        st = read_log(paths[0], &a, err);
    if (st == DCPK_OK)
        st = read_log(paths[1], &b, err);
    if (st == DCPK_OK)
        st = dcpk_loss_compare(&a, &b, &options, &report, err);
    if (st == DCPK_OK)
        st = print_losses(
            r, &(struct dcpk_losscmp_shown){paths[0], paths[1], &a, &b, &options, &report}, err);
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

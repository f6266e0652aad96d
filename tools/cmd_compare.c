/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_compare.c - dcpkit compare-two-checkpoint: do two checkpoints hold the same. */
#include <math.h>

#include "lib/exec/ranks.h"
#include "lib/job/give_options.h"
#include "tools/args_from.h"
#include "tools/bar.h"
#include "tools/cmd.h"
#include "tools/compare_report.h"
#include "tools/print_doc.h"
#include "tools/run_args.h"
#include "tools/target_args.h"

#define NAME "compare-two-checkpoint"

/* The request to compare. */
struct request {
    const char *iteration, *args_path, *maps, *config, *html; /* args_path: --args-from */
    bool as_json, enable_msc;
    int top;
    int64_t bucket_elems;
    struct dcpk_tolerance tolerance; /* negative: not given */
    struct dcpk_compare_options options;
    struct dcpk_verbosity verbosity;
};

/* Checks, on rank 0, that a page can be written, apart from both. */
static dcpk_status check_page(const struct request *r, char *const *paths, struct dcpk_error *err)
{
    if (dcpk_ranks_self(r->options.env.ranks) != 0)
        return DCPK_OK;
    if (dcpk_check_page(r->html, paths[0], err) || dcpk_check_page(r->html, paths[1], err))
        return err->status;
    return DCPK_OK;
}

/* Prints the answer; rank 0 writes the page. */
static dcpk_status print_answer(const struct request *r, const struct dcpk_compare_report *report,
                                const struct dcpk_compare_shown *shown, struct dcpk_error *err)
{
    struct dcpk_print_options way = {.as_json = r->as_json};
    struct dcpk_doc doc;

    if (dcpk_ranks_self(r->options.env.ranks) == 0)
        way.html = r->html;
    dcpk_doc_init(&doc, NAME, &dcpk_compare_style);
    dcpk_compare_report_put(report, shown, &doc);
    return dcpk_print_doc(&doc, &way, err);
}

/* Args only where the checkpoint has none. */
static dcpk_status give_options(const struct request *r, struct dcpk_checkpoint *ckpt,
                                const struct dcpk_value *args, struct dcpk_error *err)
{
    struct dcpk_open_options given = {
        .family.maps = r->maps, .family.config = r->config, .bucket_elems = r->bucket_elems};

    if (args != NULL && dcpk_lacks_args(ckpt))
        given.args = args;
    return dcpk_checkpoint_give(ckpt, &given, err);
}

/* paths: of the two. */
static int compare(struct request *r, char *const *paths)
{
    struct dcpk_compare_options *options = &r->options;
    const struct dcpk_verbosity *verbosity = &r->verbosity;
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_args_from from = {0};
    struct dcpk_compare_report report = {0};
    struct dcpk_checkpoint *a = NULL, *b = NULL;
    struct dcpk_bar bar;
    char left[DCPK_RUN_PATH_BYTES], right[DCPK_RUN_PATH_BYTES];
    int code = DCPK_EXIT_OK;
    dcpk_status st = dcpk_choose_iteration(paths[0], r->iteration, left, &err);

    if (st == DCPK_OK)
        st = dcpk_choose_iteration(paths[1], r->iteration, right, &err);
    if (st == DCPK_OK)
        st = check_page(r, paths, &err);
    if (st == DCPK_OK)
        st = dcpk_cli_open(left, NULL, verbosity, &a, NULL, &err);
    if (st == DCPK_OK)
        st = dcpk_cli_open(right, NULL, verbosity, &b, NULL, &err);
    if (st == DCPK_OK)
        st = dcpk_args_from_read(r->args_path, verbosity, &from, &err);
    if (st == DCPK_OK)
        st = give_options(r, a, from.args, &err);
    if (st == DCPK_OK)
        st = give_options(r, b, from.args, &err);
    if (st == DCPK_OK) {
        options->env.progress = dcpk_bar_begin(&bar, "comparing", verbosity);
        st = dcpk_compare_checkpoints(a, b, options, &report, &err);
        dcpk_bar_end(&bar);
    }
    st = dcpk_ranks_agree(options->env.ranks, st, &err);
    if (st == DCPK_OK) {
        dcpk_cli_keep_private(a);
        dcpk_cli_keep_private(b);
        st = print_answer(
            r, &report,
            &(struct dcpk_compare_shown){left, right, (uint64_t)r->top, r->html != NULL}, &err);
    }
    st = dcpk_ranks_agree(options->env.ranks, st, &err);
    if (st != DCPK_OK)
        code = dcpk_cli_fail(NAME, &err);
    else if (!report.equal)
        code = DCPK_EXIT_NO;
    dcpk_compare_release(&report);
    dcpk_checkpoint_close(b);
    dcpk_checkpoint_close(a);
    dcpk_args_from_release(&from);
    return code;
}

/* One of --rtol and --atol that is given alone has 0 for the other. */
static void take_tolerance(struct dcpk_compare_options *options, struct dcpk_tolerance *tolerance)
{
    if (tolerance->rtol < 0 && tolerance->atol < 0)
        return;
    tolerance->rtol = fmax(tolerance->rtol, 0);
    tolerance->atol = fmax(tolerance->atol, 0);
    options->tolerance = tolerance;
    options->casts = true;
}

#define DCPK_OPT_STRUCT struct request
static const struct dcpk_option option_rows[] = {
    DCPK_OPT_NUMBER("rtol", "X", tolerance.rtol,
                    "elements are equal when |a - b| <= atol + rtol * |b|, as numpy.isclose "
                    "(default: bit for bit; 0 when --atol is given)"),
    DCPK_OPT_NUMBER("atol", "X", tolerance.atol, "see --rtol (0 when --rtol is given)"),
    DCPK_OPT_FLAG("cast", options.casts,
                  "compare floats of two dtypes in the narrower one (default: they differ, except "
                  "with --rtol or --atol)"),
    DCPK_OPT_FLAG("weights-only", options.weights_only, "leave optimizer state out"),
    DCPK_OPT_FLAG("tensors-only", options.tensors_only,
                  "leave args, scheduler, parameter groups, RNG states and other objects out"),
    DCPK_OPT_FLAG(
        "as-stored", options.as_stored,
        "key by key as stored (default: by the model's parameters, where both hold a model)"),
    DCPK_OPT_COUNT("top", "N", top,
                   "list the N tensors that differ most, by relative difference, and N differences "
                   "of each other kind (default: 20; --json lists all)"),
    DCPK_OPT_FLAG("strict", options.strict,
                  "also count differences that only the parallel layout makes (sizes of the mesh, "
                  "padding of the vocabulary, RNG states of other ranks), things that only one of "
                  "the two keeps (classes in args, defaults in parameter groups) and things "
                  "outside the model: extra states, other objects, files next to the tensors"),
    DCPK_OPT_LENGTH("vocab-size", "N", options.vocab_size,
                    "tokens of the vocabulary, if its padding differs (default: args.vocab_size)"),
    DCPK_OPT_LENGTH("ddp-bucket-size", "N", bucket_elems,
                    "elements of a DDP bucket in the runs that wrote A and B, as for 'convert'"),
    DCPK_OPT_ITERATION(iteration),
    DCPK_OPT_ARGS_FROM(args_path),
    DCPK_OPT_CHECKPOINT("maps", "DIR", maps,
                        "maps of Hugging Face model families, in addition to the built-in ones"),
    DCPK_OPT_HF_CONFIG(config),
    DCPK_OPT_MSC(enable_msc),
    DCPK_OPT_JSON(as_json),
    DCPK_OPT_HTML(html),
    DCPK_OPT_THREADS(options.env.n_threads),
    DCPK_OPT_MEMORY(options.env.memory_bytes),
    DCPK_OPT_VERBOSITY(verbosity),
    DCPK_OPT_END};

int dcpk_cmd_compare(int argc, char **argv, struct dcpk_ranks *ranks)
{
    struct request r = {.top = 20,
                        .tolerance = {-1, -1},
                        .options.env = dcpk_cli_env(ranks),
                        .verbosity = {.command = NAME}};
    const struct dcpk_cli cli = {
        .name = NAME,
        .usage = "[options] A B",
        .summary = "Compare two checkpoints across formats, layouts and names; exit 0: they hold "
                   "the same, 1: they differ.",
        .options = option_rows,
        .everyday = "rtol cast weights-only tensors-only top strict json html",
        .values = &r,
        .example = "dcpkit compare-two-checkpoint checkpoints/run checkpoints/run/iter_0000004",
        .min_args = 2,
        .max_args = 2,
    };
    char **args;
    int n_args;
    const int code = dcpk_cli_parse(&cli, argc, argv, &args, &n_args);

    if (code >= 0)
        return code;
    if (r.enable_msc)
        dcpk_cli_note_msc(&r.verbosity);
    take_tolerance(&r.options, &r.tolerance);
    return compare(&r, args);
}

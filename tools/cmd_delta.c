/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_delta.c - dcpkit delta (also: diff --delta) and dcpkit apply: what changed between two
 * checkpoints on disk, and the second one again. */
#include "lib/job/delta.h"
#include "tools/bar.h"
#include "tools/cmd.h"
#include "tools/print_doc.h"
#include "tools/run_args.h"

struct delta_request {
    bool is_named, force, as_json; /* is_named: by diff, as its option */
    struct dcpk_delta_job job;
    struct dcpk_env env;
    struct dcpk_verbosity verbosity;
};

/* The work on the first two arguments. */
typedef dcpk_status delta_work(struct delta_request *r, char *const *paths,
                               struct dcpk_delta_counts *counts, struct dcpk_error *err);

static dcpk_status print_counts(const struct delta_request *r, const char *deed, char *const *paths,
                                const struct dcpk_delta_counts *counts, struct dcpk_error *err)
{
    const struct dcpk_print_options way = {.as_json = r->as_json};
    const struct dcpk_doc_style style = {0};
    char size[3][DCPK_SIZE_TEXT_BYTES], count[DCPK_COUNT_TEXT_BYTES];
    struct dcpk_doc doc;

    dcpk_doc_init(&doc, r->verbosity.command, &style);
    dcpk_doc_line(&doc, "%s%s: %s of %s in %s differ from BASE, the delta has %s",
                  r->job.is_dry ? "to be " : "", deed,
                  dcpk_cli_short_size(counts->changed_bytes, size[0]),
                  dcpk_cli_short_size(counts->n_bytes, size[1]),
                  dcpk_cli_count(counts->n_files, "file", count),
                  dcpk_cli_short_size(counts->delta_bytes, size[2]));
    dcpk_doc_line(&doc, "  to         %s", paths[2]);
    dcpk_doc_set_text(&doc, "base", paths[0]);
    dcpk_doc_set_count(&doc, "changed_bytes", counts->changed_bytes);
    dcpk_doc_set_count(&doc, "delta_bytes", counts->delta_bytes);
    dcpk_doc_set_flag(&doc, "dry_run", r->job.is_dry);
    dcpk_doc_set_text(&doc, "input", paths[1]);
    dcpk_doc_set_count(&doc, "n_files", counts->n_files);
    dcpk_doc_set_text(&doc, "output", paths[2]);
    dcpk_doc_set_count(&doc, "total_bytes", counts->n_bytes);
    dcpk_doc_set_count(&doc, "version", 1);
    return dcpk_print_doc(&doc, &way, err);
}

static dcpk_status make(struct delta_request *r, char *const *paths,
                        struct dcpk_delta_counts *counts, struct dcpk_error *err)
{
    struct dcpk_checkpoint *base = NULL, *next = NULL;
    dcpk_status st = dcpk_cli_open(paths[0], NULL, &r->verbosity, &base, NULL, err);

    if (st == DCPK_OK)
        st = dcpk_cli_open(paths[1], NULL, &r->verbosity, &next, NULL, err);
    if (st == DCPK_OK) {
        dcpk_cli_keep_private(base);
        dcpk_cli_keep_private(next);
        st = dcpk_delta_make(base, next, &r->job, counts, err);
    }
    dcpk_checkpoint_close(base);
    dcpk_checkpoint_close(next);
    return st;
}

static dcpk_status apply(struct delta_request *r, char *const *paths,
                         struct dcpk_delta_counts *counts, struct dcpk_error *err)
{
    const struct dcpk_opening opening = {r->env.formats, r->env.open_file, r->env.open_url,
                                         &r->env.progress, r->env.is_stopped};
    struct dcpk_store *base = NULL, *delta = NULL;
    struct dcpk_run run = {0};
    dcpk_status st = dcpk_run_open(paths[0], &opening, &run, &base, err);

    if (st == DCPK_OK)
        st = dcpk_store_open(paths[1], &delta, err);
    if (st == DCPK_OK) {
        dcpk_cli_keep_store_private(base);
        dcpk_cli_keep_store_private(delta);
        st = dcpk_delta_apply(base, delta, &r->job, counts, err);
    }
    dcpk_store_close(delta);
    dcpk_store_close(base);
    dcpk_run_release(&run);
    return st;
}

static dcpk_status delta_check_apart(char *const *paths, struct dcpk_error *err)
{
    for (int i = 0; i < 2; i++)
        if (dcpk_run_check_apart(paths[i], paths[2], err) ||
            (!dcpk_run_is_remote(paths[i]) && dcpk_folder_check_apart(paths[2], paths[i], err)))
            return err->status;
    return DCPK_OK;
}

static int run_delta(struct delta_request *r, const char *label, const char *deed, delta_work *work,
                     char *const *paths, struct dcpk_error *err)
{
    struct dcpk_delta_counts counts;
    struct dcpk_bar bar;
    dcpk_status st = delta_check_apart(paths, err);

    r->job.env = &r->env;
    r->job.out = paths[2];
    r->job.folder_flags = dcpk_folder_flags_of(r->force, false);
    r->env.progress = dcpk_bar_begin(&bar, label, &r->verbosity);
    if (st == DCPK_OK && (r->as_json || !r->verbosity.is_quiet))
        st = dcpk_cli_check_stdout(err);
    if (st == DCPK_OK)
        st = work(r, paths, &counts, err);
    dcpk_bar_end(&bar);
    if (st == DCPK_OK && (r->as_json || r->job.is_dry || !r->verbosity.is_quiet) &&
        print_counts(r, deed, paths, &counts, err) != DCPK_OK && !r->job.is_dry)
        dcpk_context(err, "'%s' is in place, and then", paths[2]);
    return DCPK_EXIT_OK; /* err decides */
}

static int delta_main(void *values, const struct dcpk_cli_args *args, struct dcpk_error *err)
{
    return run_delta(values, "comparing", "written", make, args->words, err);
}

static int apply_main(void *values, const struct dcpk_cli_args *args, struct dcpk_error *err)
{
    return run_delta(values, "applying", "rebuilt", apply, args->words, err);
}

#define DCPK_OPT_STRUCT struct delta_request
static const struct dcpk_option apply_rows[] = {
    DCPK_OPT_FLAG("force", force, "replace an output that exists"),
    DCPK_OPT_FLAG("dry-run", job.is_dry, "check all and report what would happen, write nothing"),
    DCPK_OPT_JSON(as_json),
    DCPK_OPT_THREADS(env.n_threads),
    DCPK_OPT_MEMORY(env.memory_bytes),
    DCPK_OPT_VERBOSITY(verbosity),
    DCPK_OPT_END};
static const struct dcpk_option delta_rows[] = {
    DCPK_OPT_FLAG("delta", is_named, "for 'diff': write a delta ('delta' always does)"),
    DCPK_OPT_INCLUDE(apply_rows), DCPK_OPT_END};

static struct delta_request delta_values = {.verbosity = {.command = "delta"}};
const struct dcpk_cli dcpk_cmd_delta = {
    .name = "delta",
    .usage = "[options] BASE NEW OUT",
    .summary = "Write what changed between two checkpoints on disk to the folder OUT, packed "
               "and with checksums; 'dcpkit apply BASE OUT' makes NEW's files from it, bit "
               "for bit. The formats, layouts and files of both may be any.",
    .options = delta_rows,
    .values = &delta_values,
    .env = &delta_values.env,
    .example = "dcpkit delta checkpoints/run/iter_0000004 checkpoints/fsdp converted",
    .n_args = {3, 3},
    .paths = DCPK_CLI_LAST_IS_OUT | DCPK_CLI_OUT_IS_FOLDER,
    .is_dry = &delta_values.job.is_dry,
    .run = delta_main,
};

static struct delta_request apply_values = {.verbosity = {.command = "apply"}};
const struct dcpk_cli dcpk_cmd_apply = {
    .name = "apply",
    .usage = "[options] BASE DELTA OUT",
    .summary = "Make NEW of 'dcpkit delta BASE NEW DELTA' again, in the folder OUT. Every byte "
               "is checked; another BASE is refused.",
    .options = apply_rows,
    .values = &apply_values,
    .env = &apply_values.env,
    .example = "dcpkit apply checkpoints/run/iter_0000004 checkpoints/delta converted",
    .n_args = {3, 3},
    .paths = DCPK_CLI_LAST_IS_OUT | DCPK_CLI_OUT_IS_FOLDER,
    .is_dry = &apply_values.job.is_dry,
    .run = apply_main,
};

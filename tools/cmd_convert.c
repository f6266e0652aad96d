/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_convert.c - dcpkit convert, and the subcommand named as Megatron's Python tool names it. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/formats.h"
#include "lib/io/file.h"
#include "tools/bar.h"
#include "tools/check_report.h"
#include "tools/convert_args.h"
#include "tools/convert_report.h"
#include "tools/print_doc.h"

#define TARGETS "fsdp_dtensor, torch_dist or zarr"

/* Remarks on flags that are accepted because the Python tool has them. */
static void remark(const struct dcpk_convert_args *a)
{
    if (a->oom_traceback)
        dcpk_cli_note(&a->voice, "--oom-traceback has no meaning here: no GPU memory is used");
    if (a->enable_msc)
        dcpk_cli_note_msc(&a->voice);
    if (a->rename_mtp && !a->like_inspector)
        dcpk_cli_note(
            &a->voice,
            "--rename-mtp-keys is not needed: both names of MTP's inner layer are written");
}

/* A file beside the result can be written, and lies neither in IN, which is never touched, nor in
 * OUT, which holds a checkpoint and nothing else. */
static dcpk_status check_path(const char *what, const char *path,
                              const struct dcpk_convert_options *options, bool may_replace,
                              struct dcpk_error *err)
{
    struct dcpk_error inside = DCPK_ERROR_INIT;

    if (path == NULL)
        return DCPK_OK;
    if (dcpk_run_check_apart(options->out, path, &inside) == DCPK_EUSAGE)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "the %s '%s' would lie in the output '%s', which holds a checkpoint and "
                         "nothing else; write it beside that",
                         what, path, options->out);
    if (dcpk_run_check_apart(options->in, path, err) ||
        dcpk_check_file_path(what, path, may_replace, err))
        return err->status;
    return DCPK_OK;
}

/* One of two files would replace the other; a device takes both. */
static dcpk_status check_two_paths(const char *report, const char *hashes, struct dcpk_error *err)
{
    struct dcpk_path there;

    if (report == NULL || hashes == NULL || strcmp(report, hashes) != 0)
        return DCPK_OK;
    if (dcpk_path_look(AT_FDCWD, report, 0, &there, err) != DCPK_OK)
        return err->status;
    if (there.kind == DCPK_PATH_NOTHING || there.kind == DCPK_PATH_FILE)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "two of the report, the page and the list of hashes are '%s'", report);
    return DCPK_OK;
}

/* Of rank 0: what is printed and written at the end can be printed and written. */
static dcpk_status check_outlets(const struct dcpk_convert_args *a,
                                 const struct dcpk_convert_options *options, bool may_replace,
                                 struct dcpk_error *err)
{
    if (dcpk_ranks_self(options->env.ranks) != 0)
        return DCPK_OK;
    if ((!a->voice.is_quiet || a->json) && dcpk_cli_check_stdout(err) != DCPK_OK)
        return err->status;
    if (check_path("report", a->report_path, options, may_replace, err) ||
        check_path("page", a->html_path, options, may_replace, err) ||
        check_path("list of hashes", a->hashes_path, options, may_replace, err))
        return err->status;
    if (check_two_paths(a->report_path, a->html_path, err) ||
        check_two_paths(a->html_path, a->hashes_path, err) ||
        check_two_paths(a->report_path, a->hashes_path, err))
        return err->status;
    return DCPK_OK;
}

/* A file that an earlier run wrote, whose output this one found complete, stays as it is. */
static const char *file_to_write(const struct dcpk_convert_args *a, const struct dcpk_conversion *c,
                                 const char *path)
{
    if (path != NULL && c->is_complete && !a->force && access(path, F_OK) == 0)
        return NULL;
    return path;
}

static dcpk_status write_report(const struct dcpk_convert_args *a, const struct dcpk_conversion *c,
                                const struct dcpk_convert_files *files, struct dcpk_error *err)
{
    const struct dcpk_doc_way way = {.is_silent = a->voice.is_quiet && !a->json && !a->dry_run,
                                     .as_json = a->json,
                                     .json = files->report,
                                     .html = files->html};
    struct dcpk_doc doc;

    dcpk_doc_init(&doc, a->voice.command, &dcpk_convert_style);
    dcpk_convert_report(c, files, &doc);
    return dcpk_print_doc(&doc, &way, err);
}

/* Of rank 0: writes the files beside the output, and prints the report. */
static dcpk_status put_results(const struct dcpk_convert_args *a, const struct dcpk_conversion *c,
                               struct dcpk_error *err)
{
    const struct dcpk_convert_files files = {file_to_write(a, c, a->report_path),
                                             file_to_write(a, c, a->html_path),
                                             file_to_write(a, c, a->hashes_path), a->dry_run};
    dcpk_status st = DCPK_OK;

    if (files.hashes != NULL && !a->dry_run)
        st = dcpk_file_write(files.hashes, DCPK_FILE_INTO, c->hashes.data, c->hashes.n_bytes, err);
    if (st == DCPK_OK)
        st = write_report(a, c, &files, err);
    if (st != DCPK_OK && !a->dry_run)
        dcpk_context(err, "'%s' is in place, and then", c->target.folder);
    return st;
}

/* Plans, runs, prints; collective. What is printed stands on lines of its own, without the bar. */
static dcpk_status convert(const struct dcpk_convert_args *a,
                           const struct dcpk_convert_options *options, struct dcpk_bar *bar,
                           struct dcpk_error *err)
{
    struct dcpk_conversion c = {0};
    struct dcpk_ranks *ranks = options->env.ranks;
    const bool leads = dcpk_ranks_self(ranks) == 0;
    dcpk_status st = check_outlets(a, options, a->force || a->resume, err);

    if (st == DCPK_OK)
        st = dcpk_conversion_plan(&c, options, err);
    if (c.is_unchanged)
        dcpk_target_args_advise(options->to, err);
    if (c.model != NULL && c.model->args == NULL)
        dcpk_args_from_hint(options->in, c.ckpt, err);
    if (st != DCPK_OK)
        dcpk_input_args_advise(c.model, err);
    if (st == DCPK_OK)
        st = check_outlets(a, options, a->force || c.target.is_there, err);
    st = dcpk_ranks_agree(ranks, st, err);
    dcpk_bar_end(bar);
    if (c.ckpt != NULL && dcpk_store_note(c.ckpt->store) != NULL)
        dcpk_cli_note(&a->voice, "%s", dcpk_store_note(c.ckpt->store));
    if (st == DCPK_OK && leads)
        dcpk_warn_verdict(&a->voice, &c.verdict);
    if (st == DCPK_OK)
        dcpk_cli_keep_private(c.ckpt);
    if (st == DCPK_OK && !a->dry_run)
        st = dcpk_conversion_run(&c, err);
    dcpk_bar_end(bar);
    if (st == DCPK_OK) {
        if (leads)
            st = put_results(a, &c, err);
        st = dcpk_ranks_agree(ranks, st, err);
    }
    if (st == DCPK_OK)
        dcpk_note_tracker(&a->voice, &c.target);
    dcpk_conversion_free(&c);
    return st;
}

static int run_convert(struct dcpk_convert_args *a, const struct dcpk_format *to, char **in_out,
                       struct dcpk_ranks *ranks)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_convert_options options = {.to = to, .env = dcpk_cli_env(ranks)};
    struct dcpk_convert_parsed parsed = {0};
    struct dcpk_bar bar;
    dcpk_status st = dcpk_convert_args_apply(a, in_out[0], in_out[1], &options, &parsed, &err);

    st = dcpk_ranks_agree(ranks, st, &err); /* a file that it reads may be missing on one node */
    if (st == DCPK_OK) {
        remark(a);
        options.env.progress = dcpk_bar_begin(&bar, "reading metadata", &a->voice);
        st = convert(a, &options, &bar, &err);
    }
    dcpk_convert_parsed_release(&parsed);
    if (st != DCPK_OK)
        return dcpk_cli_fail(a->voice.command, &err);
    return DCPK_EXIT_OK;
}

int dcpk_cmd_convert(int argc, char **argv, struct dcpk_ranks *ranks)
{
    struct dcpk_convert_args a = {.voice = {.command = "convert"}};
    const struct dcpk_cli cli = {
        .name = "convert",
        .usage = "--to FORMAT [options] IN OUT",
        .summary = "Convert a checkpoint to another format. IN, which is never touched: a run "
                   "folder, an iteration's folder, or an archive with one. OUT: a run folder, a "
                   "folder iter_NNNNNNN, or a name that ends in .tar.",
        .options = dcpk_convert_options,
        .values = &a,
        .example =
            "dcpkit convert --to fsdp_dtensor sample-data/torch_dist_c_dense_tp2pp2 converted",
        .min_args = 2,
        .max_args = 2,
        .paths = DCPK_CLI_SECOND_IS_OUT,
        .is_dry = &a.dry_run};
    const struct dcpk_format *to;
    char **args;
    int n_args, exit_code = dcpk_cli_parse(&cli, argc, argv, &args, &n_args);

    if (exit_code >= 0)
        return exit_code;
    if (a.to == NULL)
        return dcpk_cli_usage("convert", "--to says which format to write: " TARGETS);
    to = dcpk_format_find(a.to);
    if (to == NULL)
        return dcpk_cli_usage("convert", "no format is called '%s'; --to takes " TARGETS, a.to);
    return run_convert(&a, to, args, ranks);
}

/* A command that names both formats, with the flags of Megatron's Python tool. */
struct named_conversion {
    const char *name, *from, *to, *summary, *example;
};

static int convert_by_name(const struct named_conversion *named, int argc, char **argv,
                           struct dcpk_ranks *ranks)
{
    struct dcpk_convert_args a = {.from = named->from, .voice = {.command = named->name}};
    const struct dcpk_cli cli = {.name = named->name,
                                 .usage = "[options] IN OUT",
                                 .summary = named->summary,
                                 .options = dcpk_named_convert_options,
                                 .values = &a,
                                 .example = named->example,
                                 .min_args = 2,
                                 .max_args = 2,
                                 .paths = DCPK_CLI_SECOND_IS_OUT,
                                 .is_dry = &a.dry_run};
    char **args;
    int n_args, exit_code = dcpk_cli_parse(&cli, argc, argv, &args, &n_args);

    if (exit_code >= 0)
        return exit_code;
    return run_convert(&a, dcpk_format_find(named->to), args, ranks);
}

int dcpk_cmd_convert_torch_dist(int argc, char **argv, struct dcpk_ranks *ranks)
{
    static const struct named_conversion named = {
        "convert-torch-dist-to-fsdp-dtensor", "torch_dist", "fsdp_dtensor",
        "Convert torch_dist to fsdp_dtensor with the flags of Megatron's Python tool.",
        "dcpkit convert-torch-dist-to-fsdp-dtensor --swiglu sample-data/torch_dist_c_dense_tp2pp2 "
        "converted"};

    return convert_by_name(&named, argc, argv, ranks);
}

int dcpk_cmd_convert_fsdp_dtensor(int argc, char **argv, struct dcpk_ranks *ranks)
{
    static const struct named_conversion named = {
        "convert-fsdp-dtensor-to-torch-dist", "fsdp_dtensor", "torch_dist",
        "Convert fsdp_dtensor to torch_dist: the way back of convert-torch-dist-to-fsdp-dtensor.",
        "dcpkit convert-fsdp-dtensor-to-torch-dist checkpoints/fsdp converted"};

    return convert_by_name(&named, argc, argv, ranks);
}

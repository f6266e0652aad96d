/* SPDX-License-Identifier: Apache-2.0 */
/* convert_job.c - plans, runs and reports a conversion for the commands that make one. */
#include "tools/convert_job.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "lib/exec/ranks.h"
#include "lib/io/file.h"
#include "tools/check_report.h"
#include "tools/convert_report.h"
#include "tools/print_doc.h"

/* The files beside the result, before a conversion or once it is planned. */
struct outlets {
    const struct dcpk_convert_args *args;
    const struct dcpk_convert_options *options;
    bool may_replace;
};

/* A file beside the result can be written, and lies neither in an input, which is never touched,
 * nor in OUT, which holds a checkpoint and nothing else. */
static dcpk_status check_path(const struct outlets *o, const char *what, const char *path,
                              struct dcpk_error *err)
{
    const char *out = o->options->out;
    struct dcpk_error inside = DCPK_ERROR_INIT;

    if (path == NULL)
        return DCPK_OK;
    if (dcpk_run_check_apart(out, path, &inside) == DCPK_EUSAGE)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "the %s '%s' would lie in the output '%s', which holds a checkpoint and "
                         "nothing else; write it beside that",
                         what, path, out);
    for (size_t i = 0; i < o->args->n_inputs; i++)
        if (dcpk_run_check_apart(o->args->inputs[i], path, err) != DCPK_OK)
            return err->status;
    return dcpk_check_file_path(what, path, o->may_replace, err);
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
    const struct outlets o = {a, options, may_replace};

    if (dcpk_ranks_self(options->env.ranks) != 0)
        return DCPK_OK;
    if ((!a->voice.is_quiet || a->json) && dcpk_cli_check_stdout(err) != DCPK_OK)
        return err->status;
    if (check_path(&o, "report", a->report_path, err) ||
        check_path(&o, "page", a->html_path, err) ||
        check_path(&o, "list of hashes", a->hashes_path, err))
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

/* What is printed stands on lines of its own, without the bar. */
dcpk_status dcpk_convert_job(const struct dcpk_convert_args *a,
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
    if (c.model != NULL && c.model->args == NULL && !c.ckpt->format->is_model)
        dcpk_args_from_hint(a->inputs[0], c.ckpt, err);
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
    if (st == DCPK_OK)
        st = dcpk_cli_keep_folder_private(options->target.family.assets, err);
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

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

/* A conversion under way. */
struct job {
    const struct dcpk_convert_args *args;
    const struct dcpk_convert_options *options;
    struct dcpk_conversion c;
    struct dcpk_conversion_shares shares; /* of a dry run with --ranks */
};

static bool leads(const struct job *job)
{
    return dcpk_ranks_self(job->options->env.ranks) == 0;
}

/* A file next to the result can be written, and lies neither in an input, which is never touched,
 * nor in OUT, which holds a checkpoint and nothing else. */
static dcpk_status check_path(const struct job *job, const char *what, const char *path,
                              struct dcpk_error *err)
{
    const bool is_page = path != NULL && path == job->args->html_path && dcpk_is_page(path);
    const bool may_replace = job->args->force || job->c.target.is_there || is_page;
    const char *out = job->options->out;
    struct dcpk_error inside = DCPK_ERROR_INIT;

    if (path == NULL)
        return DCPK_OK;
    if (dcpk_run_check_apart(out, path, &inside) == DCPK_EUSAGE)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "the %s '%s' would be inside the output '%s', which holds a checkpoint "
                         "and nothing else; write it next to the output",
                         what, path, out);
    if (job->args->base != NULL && dcpk_run_check_apart(job->args->base, path, err) != DCPK_OK)
        return err->status;
    for (size_t i = 0; i < job->args->n_inputs; i++)
        if (dcpk_run_check_apart(job->args->inputs[i], path, err) != DCPK_OK)
            return err->status;
    return dcpk_check_file_path(what, path, may_replace, err);
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

/* Checks that the results at the end can be printed and written. */
static dcpk_status check_results(const struct job *job, struct dcpk_error *err)
{
    const struct dcpk_convert_args *a = job->args;

    if ((!a->verbosity.is_quiet || a->json) && dcpk_cli_check_stdout(err) != DCPK_OK)
        return err->status;
    if (check_path(job, "report", a->report_path, err) ||
        check_path(job, "page", a->html_path, err) ||
        check_path(job, "list of hashes", a->hashes_path, err))
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

/* "4.47 h at 1 GB/s, 26.8 min at 10 GB/s, 161 s at 100 GB/s". */
#define SPEEDS_TEXT_BYTES 128
#define RANGE_TEXT_BYTES  (2 * DCPK_SIZE_TEXT_BYTES + 4)
static const char *at_speeds(uint64_t n_bytes, char text[SPEEDS_TEXT_BYTES])
{
    int at = 0;

    for (int speed = 1; speed <= 100; speed *= 10) {
        const double s = (double)n_bytes / 1e9 / speed;
        const struct {
            double seconds;
            const char *name;
        } units[] = {{3600, "h"}, {60, "min"}, {1, "s"}};
        size_t u = 0;

        while (u < 2 && s < 2 * units[u].seconds)
            u++;
        at += snprintf(text + at, SPEEDS_TEXT_BYTES - (size_t)at, "%s%.3g %s at %d GB/s",
                       at == 0 ? "" : ", ", s / units[u].seconds, units[u].name, speed);
    }
    return text;
}

/* "14.60 GiB to 14.69 GiB". */
static const char *range_text(uint64_t least, uint64_t most, char text[RANGE_TEXT_BYTES])
{
    char a[DCPK_SIZE_TEXT_BYTES], b[DCPK_SIZE_TEXT_BYTES];

    if (least == most)
        snprintf(text, RANGE_TEXT_BYTES, "%s", dcpk_cli_short_size(most, b));
    else
        snprintf(text, RANGE_TEXT_BYTES, "%s to %s", dcpk_cli_short_size(least, a),
                 dcpk_cli_short_size(most, b));
    return text;
}

/* Reports the least and the most that any rank would do, and the time that all of it takes. */
static void report_shares(const struct dcpk_conversion_shares *s, uint64_t written_bytes,
                          struct dcpk_doc *doc)
{
    char written[RANGE_TEXT_BYTES], read[RANGE_TEXT_BYTES], speeds[SPEEDS_TEXT_BYTES];

    if (s->n_ranks == 0) {
        dcpk_doc_set(doc, "ranks", dcpk_fact_null());
        return;
    }
    dcpk_doc_row(doc, "ranks", "%d: each would read %s and write %s", s->n_ranks,
                 range_text(s->least.read_bytes, s->most.read_bytes, read),
                 range_text(s->least.written_bytes, s->most.written_bytes, written));
    dcpk_doc_row(doc, "time", "%s, reading and writing of all ranks together",
                 at_speeds(s->read_bytes + written_bytes, speeds));
    dcpk_doc_set_count(doc, "ranks.n", (uint64_t)s->n_ranks);
    dcpk_doc_set_count(doc, "ranks.least_read_bytes", s->least.read_bytes);
    dcpk_doc_set_count(doc, "ranks.least_written_bytes", s->least.written_bytes);
    dcpk_doc_set_count(doc, "ranks.most_read_bytes", s->most.read_bytes);
    dcpk_doc_set_count(doc, "ranks.most_written_bytes", s->most.written_bytes);
    dcpk_doc_set_count(doc, "ranks.read_bytes", s->read_bytes);
}

static dcpk_status write_report(const struct job *job, const struct dcpk_convert_files *files,
                                struct dcpk_error *err)
{
    const struct dcpk_convert_args *a = job->args;
    const struct dcpk_conversion *c = &job->c;
    const struct dcpk_print_options way = {.is_silent =
                                               a->verbosity.is_quiet && !a->json && !a->dry_run,
                                           .as_json = a->json,
                                           .json = files->report,
                                           .html = files->html};
    struct dcpk_doc doc;

    dcpk_doc_init(&doc, a->verbosity.command, &dcpk_convert_style);
    dcpk_convert_report(c, files, &doc);
    report_shares(&job->shares, c->totals.tensor_bytes, &doc);
    return dcpk_print_doc(&doc, &way, err);
}

/* Writes the files next to the output, and prints the report. */
static dcpk_status put_results(const struct job *job, struct dcpk_error *err)
{
    const struct dcpk_convert_args *a = job->args;
    const struct dcpk_conversion *c = &job->c;
    const struct dcpk_convert_files files = {
        file_to_write(a, c, a->report_path), file_to_write(a, c, a->html_path),
        file_to_write(a, c, a->hashes_path), a->dry_run, a->verbose};
    dcpk_status st = DCPK_OK;

    if (files.hashes != NULL && !a->dry_run)
        st = dcpk_file_write(files.hashes, DCPK_FILE_INTO, c->hashes.data, c->hashes.n_bytes, err);
    if (st == DCPK_OK)
        st = write_report(job, &files, err);
    if (st != DCPK_OK && !a->dry_run)
        dcpk_context(err, "'%s' is in place, and then", c->target.folder);
    return st;
}

static dcpk_status job_plan(struct job *job, struct dcpk_error *err)
{
    dcpk_status st = dcpk_conversion_plan(&job->c, job->options, err);

    if (st == DCPK_OK && leads(job))
        st = check_results(job, err);
    return dcpk_ranks_agree(job->options->env.ranks, st, err);
}

static dcpk_status job_run(struct job *job, struct dcpk_error *err)
{
    if (leads(job))
        dcpk_warn_verdict(&job->args->verbosity, &job->c.verdict);
    dcpk_cli_keep_private(job->c.ckpt);
    if (dcpk_cli_keep_folder_private(job->options->target.family.assets, err) ||
        dcpk_cli_keep_folder_private(job->options->given.lora.adapter, err))
        return err->status;
    if (job->args->n_ranks > 0)
        return dcpk_conversion_share(&job->c, job->args->n_ranks, &job->shares, err);
    if (job->args->dry_run)
        return DCPK_OK;
    return dcpk_conversion_run(&job->c, err);
}

static dcpk_status job_report(struct job *job, struct dcpk_error *err)
{
    dcpk_status st = DCPK_OK;

    if (leads(job))
        st = put_results(job, err);
    if (st == DCPK_OK && leads(job) && job->args->dry_run) /* it would fail for this alone */
        st = dcpk_conversion_check_space(&job->c, err);
    st = dcpk_ranks_agree(job->options->env.ranks, st, err);
    if (st == DCPK_OK)
        dcpk_note_tracker(&job->args->verbosity, &job->c.target);
    return st;
}

/* Runs a conversion; its output is on lines of its own, without the bar. */
dcpk_status dcpk_convert_job(const struct dcpk_convert_args *a,
                             const struct dcpk_convert_options *options, struct dcpk_bar *bar,
                             struct dcpk_error *err)
{
    struct job job = {.args = a, .options = options};
    dcpk_status st = job_plan(&job, err);

    dcpk_bar_end(bar);
    if (job.c.ckpt != NULL && dcpk_store_note(job.c.ckpt->store) != NULL)
        dcpk_cli_note(&a->verbosity, "%s", dcpk_store_note(job.c.ckpt->store));
    if (st == DCPK_OK)
        st = job_run(&job, err);
    dcpk_bar_end(bar);
    if (st == DCPK_OK)
        st = job_report(&job, err);
    dcpk_conversion_free(&job.c);
    return st;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* convert_run.c - carries out a planned conversion: the steps of its own between those that all
 * outputs share. */
#include <inttypes.h>

#include "lib/exec/ranks.h"
#include "lib/exec/side_files.h"
#include "lib/job/convert.h"
#include "lib/job/convert_check.h"
#include "lib/job/output_job.h"

static struct dcpk_conversion *conversion_of(const struct dcpk_output_job *job)
{
    return job->context;
}

static dcpk_status conversion_check_input(struct dcpk_output_job *job, struct dcpk_error *err)
{
    if ((conversion_of(job)->options->flags & DCPK_CONVERT_CHECK_INPUT) == 0)
        return DCPK_OK;
    dcpk_progress_begin(&job->env->progress, "checking the input");
    return dcpk_check_input(job->exec, &conversion_of(job)->checked, err);
}

/* Casts that make finite elements infinite are refused by name, or noted where they are allowed. */
static dcpk_status conversion_check_range(struct dcpk_output_job *job, struct dcpk_error *err)
{
    struct dcpk_conversion *c = conversion_of(job);
    const struct dcpk_overflow *found = &c->overflow;
    struct dcpk_bytes names = {0};
    dcpk_status st;

    dcpk_progress_begin(&job->env->progress, "looking for overflow");
    st = dcpk_output_find_overflow(job->exec, job->out, &c->overflow, &names, err);
    dcpk_progress_begin(&job->env->progress, job->label);
    if (st == DCPK_OK && found->n_elems > 0) {
        static const char text[] = "%" PRIu64 " finite elements %s infinite in %s: %s";
        const char *dtype = dcpk_dtype_name(found->dtype), *keys = (const char *)names.data;

        if ((c->options->flags & DCPK_CONVERT_ALLOW_OVERFLOW) == 0)
            st = dcpk_fail_fix(err, DCPK_ERANGE, DCPK_FIX_ALLOW_OVERFLOW, text, found->n_elems,
                               "would become", dtype, keys);
        else
            dcpk_output_event(job->out, DCPK_EVENT_NOTE, "overflow", text, found->n_elems, "became",
                              dtype, keys);
    }
    dcpk_bytes_release(&names);
    return st;
}

/*
 * Compares the tensors taken as masters with their weights, which alone can confirm them. An
 * earlier run that has written tensor data from the same input by the same plan has had the proof
 * before.
 */
static dcpk_status conversion_check_masters(const struct dcpk_output_job *job, bool was_proven,
                                            struct dcpk_error *err)
{
    const struct dcpk_conversion *c = conversion_of(job);
    const bool checks_all = (c->options->flags & DCPK_CONVERT_CHECK_INPUT) != 0;
    dcpk_status st;

    if (c->model == NULL || was_proven)
        return DCPK_OK;
    dcpk_progress_begin(&job->env->progress, "comparing masters");
    st = dcpk_check_masters_with(c->model, job->env, job->exec,
                                 checks_all ? DCPK_MASTERS_ALL : DCPK_MASTERS_SAMPLE, err);
    dcpk_progress_begin(&job->env->progress, job->label);
    return st;
}

/* The proof, unless rank 0 resumes what has had it. */
static dcpk_status conversion_prove(struct dcpk_output_job *job, struct dcpk_error *err)
{
    const uint8_t mine = job->resumed_bytes > 0;
    struct dcpk_bytes all = {0};
    dcpk_status st = dcpk_ranks_share_each(job->env->ranks, &mine, sizeof mine, &all, DCPK_OK, err);

    if (st == DCPK_OK)
        st = conversion_check_masters(job, all.data[0] != 0, err);
    dcpk_bytes_release(&all);
    return st;
}

static dcpk_status conversion_copy_side_files(struct dcpk_output_job *job, struct dcpk_error *err)
{
    if (!dcpk_output_job_leads(job))
        return DCPK_OK;
    return dcpk_side_files_copy(job->out, job->env->side_files, job->folder, err);
}

/* Checks that the output is what was written, and no more. */
static dcpk_status conversion_settle(struct dcpk_output_job *job, struct dcpk_error *err)
{
    if (!dcpk_output_job_leads(job) || !dcpk_conversion_reads_back(conversion_of(job)))
        return DCPK_OK;
    return dcpk_folder_settle(job->folder, err);
}

static dcpk_status conversion_check_output(struct dcpk_output_job *job, struct dcpk_error *err)
{
    return dcpk_conversion_check(conversion_of(job), job->folder, err);
}

static size_t count_keys(const struct dcpk_output *out)
{
    size_t n = out->n_objects;

    for (size_t i = 0; i < out->n_tensors; i++)
        n += out->tensors[i].n_keys;
    return n;
}

static const struct dcpk_output_step there_steps[] = {{dcpk_output_job_begin_exec, false},
                                                      {conversion_check_input, false},
                                                      {dcpk_output_job_open_there, false},
                                                      {dcpk_output_job_compare_there, false},
                                                      {conversion_check_output, false},
                                                      {dcpk_output_job_settle_there, false},
                                                      {NULL, false}};

static const struct dcpk_output_step steps[] = {{dcpk_output_job_begin_folder, false},
                                                {dcpk_output_job_unmark_folder, false},
                                                {dcpk_output_job_begin_exec, false},
                                                {conversion_check_input, false},
                                                {dcpk_output_job_begin_writing, false},
                                                {dcpk_output_job_resume, false},
                                                {conversion_check_range, false},
                                                {conversion_prove, false},
                                                {dcpk_output_job_write, false},
                                                {conversion_copy_side_files, false},
                                                {dcpk_output_job_finish, false},
                                                {conversion_settle, false},
                                                {conversion_check_output, true},
                                                {dcpk_output_job_publish, false},
                                                {NULL, false}};

dcpk_status dcpk_conversion_run(struct dcpk_conversion *c, struct dcpk_error *err)
{
    struct dcpk_output_job job = {.env = &c->options->env,
                                  .in = c->options->in,
                                  .ckpt = c->ckpt,
                                  .out = c->out,
                                  .target = &c->target,
                                  .folder_flags = c->options->folder_flags,
                                  .is_once = (c->options->flags & DCPK_CONVERT_ONCE) != 0,
                                  .label = "converting",
                                  .context = c,
                                  .there_steps = there_steps,
                                  .n_keys = count_keys(c->out)};
    const dcpk_status st = dcpk_output_job_run(&job, steps, err);

    c->stats = job.stats;
    c->resumed_bytes = job.resumed_bytes;
    c->is_complete = st == DCPK_OK && c->target.is_there;
    if (c->is_complete)
        c->compared_bytes = c->totals.file_bytes;
    return st;
}

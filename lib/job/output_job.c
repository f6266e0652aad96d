/* SPDX-License-Identifier: Apache-2.0 */
/* output_job.c - the steps that all outputs share, and the clean-up of a failed output. */
#include "lib/job/output_job.h"

#include <string.h>

#include "lib/exec/ranks.h"
#include "lib/write/journal.h"

/* How late a file system may show the folder of rank 0 to others: NFS takes 30 s by default
 * (acdirmin, nfs(5)). */
#define JOIN_SECONDS 40

bool dcpk_output_job_leads(const struct dcpk_output_job *job)
{
    return dcpk_ranks_self(job->env->ranks) == 0;
}

static unsigned job_flags(const struct dcpk_output_job *job)
{
    const unsigned shared = job->env->ranks != NULL ? DCPK_FOLDER_SHARED : 0;

    return job->folder_flags | shared | dcpk_target_flags(job->out);
}

/* Collective inside the work: what rank 0 has found at the output's place holds for all. */
static dcpk_status share_found(struct dcpk_output_job *job, struct dcpk_error *err)
{
    return dcpk_ranks_first(job->env->ranks, &job->target->is_there, sizeof job->target->is_there,
                            DCPK_OK, err);
}

/* Rank 0 makes the folder and marks it; the others join the one with that mark. */
static dcpk_status begin_shared(struct dcpk_output_job *job, struct dcpk_error *err)
{
    uint64_t mark = 0;
    dcpk_status st = DCPK_OK;

    if (dcpk_output_job_leads(job)) {
        st = dcpk_target_begin(job->target, job_flags(job), &job->folder, err);
        if (st == DCPK_OK)
            st = dcpk_folder_mark(job->folder, &mark, err);
    }
    st = dcpk_ranks_first(job->env->ranks, &mark, sizeof mark, st, err);
    if (st != DCPK_OK || dcpk_output_job_leads(job))
        return st;
    return dcpk_folder_join(job->target->folder, job_flags(job), mark, JOIN_SECONDS, &job->folder,
                            err);
}

dcpk_status dcpk_output_job_begin_folder(struct dcpk_output_job *job, struct dcpk_error *err)
{
    if (job->env->ranks == NULL)
        return dcpk_target_begin(job->target, job_flags(job), &job->folder, err);
    return begin_shared(job, err);
}

dcpk_status dcpk_output_job_unmark_folder(struct dcpk_output_job *job, struct dcpk_error *err)
{
    if (!dcpk_output_job_leads(job) || job->env->ranks == NULL)
        return DCPK_OK;
    return dcpk_folder_unmark(job->folder, err);
}

dcpk_status dcpk_output_job_begin_exec(struct dcpk_output_job *job, struct dcpk_error *err)
{
    return dcpk_exec_new(job->ckpt, job->env, &job->exec, err);
}

/* Collective inside the work: all ranks see the same input and have come to the same plan. */
static dcpk_status compare_plans(const struct dcpk_output_job *job, struct dcpk_error *err)
{
    uint64_t input, plan;

    memcpy(&input, job->subject.input.digest, sizeof input);
    memcpy(&plan, job->subject.plan.digest, sizeof plan);
    if (dcpk_ranks_check_same(job->env->ranks, input, "input", err) ||
        dcpk_ranks_check_same(job->env->ranks, plan, "plan", err))
        return err->status;
    return DCPK_OK;
}

dcpk_status dcpk_output_job_begin_writing(struct dcpk_output_job *job, struct dcpk_error *err)
{
    dcpk_progress_begin(&job->env->progress, job->label);
    if (dcpk_writing_new(job->exec, job->out, job->folder, &job->w, err) != DCPK_OK)
        return err->status;
    if (!job->target->is_archive &&
        dcpk_journal_describe(dcpk_writing_units(job->w), job->in, &job->subject, err) != DCPK_OK)
        return err->status;
    return compare_plans(job, err);
}

dcpk_status dcpk_output_job_resume(struct dcpk_output_job *job, struct dcpk_error *err)
{
    if (!dcpk_output_job_leads(job) || job->target->is_archive)
        return DCPK_OK;
    if ((job->folder_flags & DCPK_FOLDER_REPLACE) != 0)
        return dcpk_writing_resume_or_clear(job->w, &job->subject, &job->resumed_bytes, err);
    return dcpk_writing_resume(job->w, &job->subject, &job->resumed_bytes, err);
}

dcpk_status dcpk_output_job_write(struct dcpk_output_job *job, struct dcpk_error *err)
{
    return dcpk_writing_run_all(job->w, err);
}

dcpk_status dcpk_output_job_finish(struct dcpk_output_job *job, struct dcpk_error *err)
{
    if (!dcpk_output_job_leads(job))
        return DCPK_OK;
    return dcpk_writing_finish(job->w, &job->stats, err);
}

dcpk_status dcpk_output_job_settle_there(struct dcpk_output_job *job, struct dcpk_error *err)
{
    if (!dcpk_output_job_leads(job))
        return DCPK_OK;
    return dcpk_target_settle(job->target, err);
}

dcpk_status dcpk_output_job_publish(struct dcpk_output_job *job, struct dcpk_error *err)
{
    if (!dcpk_output_job_leads(job))
        return DCPK_OK;
    return dcpk_target_publish(job->target, &job->folder, err);
}

/* Collective. */
static dcpk_status run_steps(struct dcpk_output_job *job, const struct dcpk_output_step *steps,
                             struct dcpk_error *err)
{
    struct dcpk_error ignored = DCPK_ERROR_INIT;

    for (; steps->run != NULL; steps++) {
        const dcpk_status st = dcpk_ranks_agree(job->env->ranks, steps->run(job, err), err);

        if (st == DCPK_OK)
            continue;
        job->is_wrong = steps->judges && (st == DCPK_EMISMATCH || st == DCPK_EFORMAT);
        if (job->is_wrong && dcpk_output_job_leads(job) && job->folder != NULL)
            (void)dcpk_folder_clear(job->folder, &ignored); /* the first error counts */
        return st;
    }
    return DCPK_OK;
}

/* Collective. */
static dcpk_status run_either(struct dcpk_output_job *job, const struct dcpk_output_step *steps,
                              struct dcpk_error *err)
{
    if (dcpk_ranks_agree(job->env->ranks, share_found(job, err), err) != DCPK_OK)
        return err->status;
    return run_steps(job, job->target->is_there ? job->there_steps : steps, err);
}

/* True if the work of this run is worth keeping, and was kept. */
static bool job_keep(const struct dcpk_output_job *job)
{
    return dcpk_output_job_leads(job) && job->w != NULL && job->folder != NULL && !job->is_wrong &&
           !job->is_once && dcpk_writing_keep(job->w);
}

dcpk_status dcpk_output_job_run(struct dcpk_output_job *job, const struct dcpk_output_step *steps,
                                struct dcpk_error *err)
{
    struct dcpk_error ignored = DCPK_ERROR_INIT;
    const dcpk_status st = run_either(job, steps, err);
    const bool is_kept = st != DCPK_OK && job_keep(job);

    dcpk_writing_free(job->w);
    dcpk_exec_free(job->exec);
    dcpk_checkpoint_close(job->there);
    if (st != DCPK_OK) /* network file systems keep a deleted file in its folder while it is open */
        (void)dcpk_ranks_agree(job->env->ranks, DCPK_OK, &ignored);
    dcpk_folder_abandon(job->folder);
    if (st != DCPK_OK)
        dcpk_target_context(job->target, is_kept, err);
    return st;
}

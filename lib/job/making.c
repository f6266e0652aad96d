/* SPDX-License-Identifier: Apache-2.0 */
/* making.c - the steps that all outputs share, and what is kept of an output that fails. */
#include "lib/job/making.h"

#include <string.h>

#include "lib/exec/ranks.h"
#include "lib/write/journal.h"

/* How late a file system may show the folder of rank 0 to others: NFS takes 30 s by default
 * (acdirmin, nfs(5)). */
#define JOIN_SECONDS 40

bool dcpk_making_leads(const struct dcpk_making *m)
{
    return dcpk_ranks_self(m->env->ranks) == 0;
}

static unsigned making_flags(const struct dcpk_making *m)
{
    const unsigned shared = m->env->ranks != NULL ? DCPK_FOLDER_SHARED : 0;

    return m->folder_flags | shared | dcpk_target_flags(m->out);
}

/* Collective inside the work: what rank 0 has marked its folder with. */
static dcpk_status share_mark(const struct dcpk_making *m, uint64_t *mark, dcpk_status st,
                              struct dcpk_error *err)
{
    struct dcpk_bytes all = {0};

    st = dcpk_ranks_share_each(m->env->ranks, mark, sizeof *mark, &all, st, err);
    if (st == DCPK_OK)
        memcpy(mark, all.data, sizeof *mark);
    dcpk_bytes_release(&all);
    return st;
}

/* Collective inside the work: what rank 0 has found at the output's place holds for all. */
static dcpk_status share_found(struct dcpk_making *m, struct dcpk_error *err)
{
    const uint8_t mine = m->target->is_there;
    struct dcpk_bytes all = {0};
    const dcpk_status st =
        dcpk_ranks_share_each(m->env->ranks, &mine, sizeof mine, &all, DCPK_OK, err);

    if (st == DCPK_OK)
        m->target->is_there = all.data[0] != 0;
    dcpk_bytes_release(&all);
    return st;
}

/* Rank 0 makes the folder and marks it; the others join the one with that mark. */
static dcpk_status begin_shared(struct dcpk_making *m, struct dcpk_error *err)
{
    uint64_t mark = 0;
    dcpk_status st = DCPK_OK;

    if (dcpk_making_leads(m)) {
        st = dcpk_target_begin(m->target, making_flags(m), &m->folder, err);
        if (st == DCPK_OK)
            st = dcpk_folder_mark(m->folder, &mark, err);
    }
    st = share_mark(m, &mark, st, err);
    if (st != DCPK_OK || dcpk_making_leads(m))
        return st;
    return dcpk_folder_join(m->target->folder, making_flags(m), mark, JOIN_SECONDS, &m->folder,
                            err);
}

dcpk_status dcpk_making_begin_folder(struct dcpk_making *m, struct dcpk_error *err)
{
    if (m->env->ranks == NULL)
        return dcpk_target_begin(m->target, making_flags(m), &m->folder, err);
    return begin_shared(m, err);
}

dcpk_status dcpk_making_unmark_folder(struct dcpk_making *m, struct dcpk_error *err)
{
    if (!dcpk_making_leads(m) || m->env->ranks == NULL)
        return DCPK_OK;
    return dcpk_folder_unmark(m->folder, err);
}

dcpk_status dcpk_making_begin_exec(struct dcpk_making *m, struct dcpk_error *err)
{
    return dcpk_exec_new(m->ckpt, m->env, &m->exec, err);
}

/* Collective inside the work: all ranks see the same input and have come to the same plan. */
static dcpk_status compare_plans(const struct dcpk_making *m, struct dcpk_error *err)
{
    uint64_t input, plan;

    memcpy(&input, m->subject.input.digest, sizeof input);
    memcpy(&plan, m->subject.plan.digest, sizeof plan);
    if (dcpk_ranks_check_same(m->env->ranks, input, "input", err) ||
        dcpk_ranks_check_same(m->env->ranks, plan, "plan", err))
        return err->status;
    return DCPK_OK;
}

dcpk_status dcpk_making_begin_writing(struct dcpk_making *m, struct dcpk_error *err)
{
    dcpk_progress_begin(&m->env->progress, m->label);
    if (dcpk_writing_new(m->exec, m->out, m->folder, &m->w, err) != DCPK_OK)
        return err->status;
    if (!m->target->is_archive &&
        dcpk_journal_describe(dcpk_writing_units(m->w), m->in, &m->subject, err) != DCPK_OK)
        return err->status;
    return compare_plans(m, err);
}

dcpk_status dcpk_making_resume(struct dcpk_making *m, struct dcpk_error *err)
{
    if (!dcpk_making_leads(m) || m->target->is_archive)
        return DCPK_OK;
    if ((m->folder_flags & DCPK_FOLDER_REPLACE) != 0)
        return dcpk_writing_resume_or_clear(m->w, &m->subject, &m->resumed_bytes, err);
    return dcpk_writing_resume(m->w, &m->subject, &m->resumed_bytes, err);
}

dcpk_status dcpk_making_write(struct dcpk_making *m, struct dcpk_error *err)
{
    return dcpk_writing_run_all(m->w, err);
}

dcpk_status dcpk_making_finish(struct dcpk_making *m, struct dcpk_error *err)
{
    if (!dcpk_making_leads(m))
        return DCPK_OK;
    return dcpk_writing_finish(m->w, &m->stats, err);
}

dcpk_status dcpk_making_settle_there(struct dcpk_making *m, struct dcpk_error *err)
{
    if (!dcpk_making_leads(m))
        return DCPK_OK;
    return dcpk_target_settle(m->target, err);
}

dcpk_status dcpk_making_publish(struct dcpk_making *m, struct dcpk_error *err)
{
    if (!dcpk_making_leads(m))
        return DCPK_OK;
    return dcpk_target_publish(m->target, &m->folder, err);
}

/* Collective. */
static dcpk_status run_steps(struct dcpk_making *m, const struct dcpk_making_step *steps,
                             struct dcpk_error *err)
{
    struct dcpk_error ignored = DCPK_ERROR_INIT;

    for (; steps->run != NULL; steps++) {
        const dcpk_status st = dcpk_ranks_agree(m->env->ranks, steps->run(m, err), err);

        if (st == DCPK_OK)
            continue;
        m->is_wrong = steps->judges && (st == DCPK_EMISMATCH || st == DCPK_EFORMAT);
        if (m->is_wrong && dcpk_making_leads(m) && m->folder != NULL)
            (void)dcpk_folder_clear(m->folder, &ignored); /* the first error counts */
        return st;
    }
    return DCPK_OK;
}

/* Collective. */
static dcpk_status run_either(struct dcpk_making *m, const struct dcpk_making_step *steps,
                              struct dcpk_error *err)
{
    if (dcpk_ranks_agree(m->env->ranks, share_found(m, err), err) != DCPK_OK)
        return err->status;
    return run_steps(m, m->target->is_there ? m->there_steps : steps, err);
}

/* Is what was done worth keeping, and kept? */
static bool making_keep(const struct dcpk_making *m)
{
    return dcpk_making_leads(m) && m->w != NULL && m->folder != NULL && !m->is_wrong &&
           !m->is_once && dcpk_writing_keep(m->w);
}

dcpk_status dcpk_making_run(struct dcpk_making *m, const struct dcpk_making_step *steps,
                            struct dcpk_error *err)
{
    struct dcpk_error ignored = DCPK_ERROR_INIT;
    const dcpk_status st = run_either(m, steps, err);
    const bool is_kept = st != DCPK_OK && making_keep(m);

    dcpk_writing_free(m->w);
    dcpk_exec_free(m->exec);
    dcpk_checkpoint_close(m->there);
    if (st != DCPK_OK) /* network file systems keep a deleted file in its folder while it is open */
        (void)dcpk_ranks_agree(m->env->ranks, DCPK_OK, &ignored);
    dcpk_folder_abandon(m->folder);
    if (st != DCPK_OK)
        dcpk_target_context(m->target, is_kept, err);
    return st;
}

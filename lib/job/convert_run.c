/* SPDX-License-Identifier: Apache-2.0 */
/* convert_run.c - a planned conversion is carried out, by one process or several ranks: folder,
 * journal, proof, data, check, publication. */
#include <string.h>

#include "lib/ckpt/integrity.h"
#include "lib/exec/extras.h"
#include "lib/job/convert.h"
#include "lib/job/convert_check.h"
#include "lib/job/target.h"
#include "lib/write/journal.h"
#include "lib/write/writing.h"

/* How late a file system may show the folder of rank 0 to others: NFS takes 30 s by default
 * (acdirmin, nfs(5)). */
#define JOIN_SECONDS 40

/* What is made on the way, of each rank. */
struct making {
    struct dcpk_conversion *c;
    struct dcpk_ranks *ranks;
    struct dcpk_folder *folder;
    struct dcpk_exec *exec;
    struct dcpk_writing *w;
    struct dcpk_journal_subject subject;
    bool compares; /* nothing is written, as rank 0 has found the output there already */
    bool is_wrong; /* what was written is not what it should be, and nothing to go on with */
};

/* Rank 0 makes the folder, keeps the journal, finishes and publishes. */
static bool leads(const struct making *m)
{
    return dcpk_ranks_self(m->ranks) == 0;
}

static unsigned folder_flags(const struct making *m)
{
    const unsigned flags = m->c->options->flags;

    return ((flags & DCPK_CONVERT_FORCE) != 0 ? DCPK_FOLDER_REPLACE : 0u) |
           ((flags & DCPK_CONVERT_RESUME) != 0 ? DCPK_FOLDER_RESUME : 0u) |
           (m->ranks != NULL ? DCPK_FOLDER_SHARED : 0u) | dcpk_target_flags(m->c->out);
}

/* Its own checksums, and those of Megatron's list where there is one. */
static dcpk_status check_input(const struct making *m, struct dcpk_error *err)
{
    const struct dcpk_conversion *c = m->c;
    bool has_integrity = false;
    size_t n_files;
    dcpk_status st;

    if ((c->options->flags & DCPK_CONVERT_CHECK_INPUT) == 0)
        return DCPK_OK;
    dcpk_progress_begin(&c->options->env.progress, "checking the input");
    st = dcpk_exec_check_items(m->exec, NULL, err);
    if (st == DCPK_OK)
        st = dcpk_exec_find_integrity(m->exec, &has_integrity, err);
    if (st == DCPK_OK && has_integrity)
        st = dcpk_exec_check_integrity(m->exec, &n_files, NULL, err);
    return st;
}

/* Collective inside the work: all ranks see the same input and have come to the same plan. */
static dcpk_status compare_plans(const struct making *m, struct dcpk_error *err)
{
    uint64_t input, plan;
    dcpk_status st;

    memcpy(&input, m->subject.input.digest, sizeof input);
    memcpy(&plan, m->subject.plan.digest, sizeof plan);
    st = dcpk_ranks_check_same(m->ranks, input, "input", err);
    return st == DCPK_OK ? dcpk_ranks_check_same(m->ranks, plan, "plan", err) : st;
}

/* On rank 0: keep a journal, and go on from one that is there; with FORCE one that does not fit
 * gives way. */
static dcpk_status resume(struct making *m, struct dcpk_error *err)
{
    struct dcpk_conversion *c = m->c;

    if (!leads(m) || c->target.is_archive || m->compares)
        return DCPK_OK;
    if ((c->options->flags & DCPK_CONVERT_FORCE) != 0)
        return dcpk_writing_resume_or_clear(m->w, &m->subject, &c->resumed_bytes, err);
    return dcpk_writing_resume(m->w, &m->subject, &c->resumed_bytes, err);
}

/* Collective inside the work: what rank 0 has marked its folder with. */
static dcpk_status share_mark(const struct making *m, uint64_t *mark, dcpk_status st,
                              struct dcpk_error *err)
{
    struct dcpk_bytes all = {0};

    st = dcpk_ranks_share(m->ranks, mark, leads(m) ? sizeof *mark : 0, &all, st, err);
    if (st == DCPK_OK)
        memcpy(mark, all.data, sizeof *mark);
    dcpk_bytes_release(&all);
    return st;
}

/* Collective inside the work: what rank 0 has found at the output's place holds for all. */
static dcpk_status share_found(struct making *m, struct dcpk_error *err)
{
    const uint8_t mine = m->c->target.is_there;
    struct dcpk_bytes all = {0};
    const dcpk_status st = dcpk_ranks_share(m->ranks, &mine, sizeof mine, &all, DCPK_OK, err);

    if (st == DCPK_OK)
        m->compares = m->c->target.is_there = all.data[0] != 0;
    dcpk_bytes_release(&all);
    return st;
}

/* The folder of rank 0, then the others in it. */
static dcpk_status begin_folder(struct making *m, struct dcpk_error *err)
{
    const struct dcpk_run *target = &m->c->target;
    uint64_t mark = 0;
    dcpk_status st = share_found(m, err);

    if (st != DCPK_OK)
        return st;
    if (m->compares)
        return dcpk_target_compare(target, m->c->out, &m->folder, err);

    if (leads(m))
        st = dcpk_target_begin(target, folder_flags(m), &m->folder, err);
    if (m->ranks == NULL)
        return st;
    if (leads(m) && st == DCPK_OK)
        st = dcpk_folder_mark(m->folder, &mark, err);
    st = share_mark(m, &mark, st, err);
    if (st == DCPK_OK && !leads(m))
        st = dcpk_folder_join(target->folder, folder_flags(m), mark, JOIN_SECONDS, &m->folder, err);
    return st;
}

/* All have found the folder by its mark. */
static dcpk_status unmark_folder(struct making *m, struct dcpk_error *err)
{
    const bool is_marked = leads(m) && m->ranks != NULL && !m->compares;

    return is_marked ? dcpk_folder_unmark(m->folder, err) : DCPK_OK;
}

static dcpk_status new_writing(struct making *m, struct dcpk_error *err)
{
    struct dcpk_conversion *c = m->c;
    dcpk_status st = dcpk_exec_new(c->ckpt, &c->options->env, &m->exec, err);

    if (st == DCPK_OK)
        st = check_input(m, err);
    dcpk_progress_begin(&c->options->env.progress,
                        m->compares ? "comparing with what is there" : "converting");
    if (st == DCPK_OK)
        st = dcpk_writing_new(m->exec, c->out, m->folder, &m->w, err);
    if (st == DCPK_OK && !c->target.is_archive)
        st = dcpk_journal_describe(dcpk_writing_units(m->w), c->options->in, &m->subject, err);
    return st;
}

/* The writer of each rank, for the same input and plan. */
static dcpk_status begin_writing(struct making *m, struct dcpk_error *err)
{
    const dcpk_status st = new_writing(m, err);

    return st == DCPK_OK ? compare_plans(m, err) : st;
}

static dcpk_status write(struct making *m, struct dcpk_error *err)
{
    return dcpk_writing_run_all(m->w, err);
}

/* On rank 0, when all data is written. */
static dcpk_status finish(struct making *m, struct dcpk_error *err)
{
    struct dcpk_conversion *c = m->c;
    dcpk_status st = DCPK_OK;

    if (leads(m) && c->options->env.extras != NULL)
        st = dcpk_extras_copy(c->out, c->options->env.extras, m->folder, err);
    if (leads(m) && st == DCPK_OK)
        st = dcpk_writing_finish(m->w, &c->stats, err);
    if (leads(m) && st == DCPK_OK && dcpk_conversion_reads_back(c)) /* what was written, no more */
        st = dcpk_folder_settle(m->folder, err);
    if (m->compares && st == DCPK_OK) {
        c->is_complete = true;
        c->compared_bytes = c->stats.written_bytes;
        c->stats.written_bytes = 0;
    }
    return st;
}

/*
 * What the view says of masters that only their weights can confirm. An earlier run that has
 * written tensor data from the same input by the same plan has had the proof before.
 */
static dcpk_status check_masters(const struct making *m, bool was_proven, struct dcpk_error *err)
{
    const struct dcpk_model *model = m->c->model;
    const struct dcpk_convert_options *o = m->c->options;
    dcpk_status st;

    if (model == NULL || (!model->needs_proof && !model->needs_sample) ||
        (model->needs_proof && was_proven) || m->compares)
        return DCPK_OK;
    dcpk_progress_begin(&o->env.progress, "proving masters");
    st = model->needs_proof ? dcpk_prove_masters(model, &o->env, err)
                            : dcpk_sample_masters(model, &o->env, err);
    dcpk_progress_begin(&o->env.progress, "converting");
    return st;
}

/* Collective inside the work: the proof, unless rank 0 goes on with what had it. */
static dcpk_status prove(struct making *m, struct dcpk_error *err)
{
    const uint8_t mine = m->c->resumed_bytes > 0 || m->compares;
    struct dcpk_bytes all = {0};
    dcpk_status st = dcpk_ranks_share(m->ranks, &mine, sizeof mine, &all, DCPK_OK, err);

    if (st == DCPK_OK)
        st = check_masters(m, all.data[0] != 0, err);
    dcpk_bytes_release(&all);
    return st;
}

/* What reads the output back. */
static dcpk_status check_output(struct making *m, struct dcpk_error *err)
{
    return dcpk_conversion_check(m->c, m->folder, err);
}

static dcpk_status publish(struct making *m, struct dcpk_error *err)
{
    return leads(m) ? dcpk_target_publish(&m->c->target, &m->folder, err) : DCPK_OK;
}

/* On all ranks, one after the other: none begins before the one before it is done by all. */
static dcpk_status (*const steps[])(struct making *m, struct dcpk_error *err) = {
    begin_folder, unmark_folder, begin_writing, resume, prove,
    write,        finish,        check_output,  publish};

/* Collective. */
static dcpk_status make(struct making *m, struct dcpk_error *err)
{
    struct dcpk_error ignored = DCPK_ERROR_INIT;

    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        const dcpk_status st = dcpk_ranks_agree(m->ranks, steps[i](m, err), err);

        if (st == DCPK_OK)
            continue;
        m->is_wrong = steps[i] == check_output && (st == DCPK_EMISMATCH || st == DCPK_EFORMAT);
        if (m->is_wrong && leads(m) && !m->compares)
            (void)dcpk_folder_clear(m->folder, &ignored); /* the first error is the one to tell */
        return st;
    }
    return DCPK_OK;
}

/* Is what was done worth keeping, and kept? */
static bool keep(const struct making *m)
{
    return leads(m) && m->w != NULL && m->folder != NULL && !m->is_wrong && !m->compares &&
           dcpk_writing_keep(m->w);
}

dcpk_status dcpk_conversion_run(struct dcpk_conversion *c, struct dcpk_error *err)
{
    struct making m = {.c = c, .ranks = c->options->env.ranks};
    struct dcpk_error ignored = DCPK_ERROR_INIT;
    bool is_kept;
    dcpk_status st;

    st = make(&m, err);
    is_kept = st != DCPK_OK && keep(&m);
    dcpk_writing_free(m.w);
    dcpk_exec_free(m.exec);
    if (st != DCPK_OK) /* network file systems keep a deleted file in its folder while it is open */
        (void)dcpk_ranks_agree(m.ranks, DCPK_OK, &ignored);
    dcpk_folder_abandon(m.folder);
    if (st != DCPK_OK)
        dcpk_target_context(&c->target, is_kept, err);
    return st;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* convert_run.c - carries out a planned conversion: the steps of its own between those that all
 * outputs share. */
#include <inttypes.h>

#include "lib/exec/ranks.h"
#include "lib/exec/side_files.h"
#include "lib/job/convert.h"
#include "lib/job/convert_check.h"
#include "lib/job/making.h"

static struct dcpk_conversion *conversion_of(const struct dcpk_making *m)
{
    return m->job;
}

static dcpk_status conversion_check_input(struct dcpk_making *m, struct dcpk_error *err)
{
    if ((conversion_of(m)->options->flags & DCPK_CONVERT_CHECK_INPUT) == 0)
        return DCPK_OK;
    dcpk_progress_begin(&m->env->progress, "checking the input");
    return dcpk_check_input(m->exec, &conversion_of(m)->checked, err);
}

/* Casts that make finite elements infinite are refused by name, or noted where they are allowed. */
static dcpk_status conversion_check_range(struct dcpk_making *m, struct dcpk_error *err)
{
    struct dcpk_conversion *c = conversion_of(m);
    const struct dcpk_overflow *found = &c->overflow;
    struct dcpk_bytes names = {0};
    dcpk_status st;

    dcpk_progress_begin(&m->env->progress, "looking for overflow");
    st = dcpk_output_find_overflow(m->exec, m->out, &c->overflow, &names, err);
    dcpk_progress_begin(&m->env->progress, m->label);
    if (st == DCPK_OK && found->n_elems > 0) {
        static const char text[] = "%" PRIu64 " finite elements %s infinite in %s: %s";
        const char *dtype = dcpk_dtype_name(found->dtype), *keys = (const char *)names.data;

        if ((c->options->flags & DCPK_CONVERT_ALLOW_OVERFLOW) == 0)
            st = dcpk_fail_fix(err, DCPK_ERANGE, DCPK_FIX_ALLOW_OVERFLOW, text, found->n_elems,
                               "would become", dtype, keys);
        else
            dcpk_output_event(m->out, DCPK_EVENT_NOTE, "overflow", text, found->n_elems, "became",
                              dtype, keys);
    }
    dcpk_bytes_release(&names);
    return st;
}

/*
 * What the view takes as masters, which only their weights can confirm. An earlier run that has
 * written tensor data from the same input by the same plan has had the proof before.
 */
static dcpk_status making_check_masters(const struct dcpk_making *m, bool was_proven,
                                        struct dcpk_error *err)
{
    const struct dcpk_conversion *c = conversion_of(m);
    const bool checks_all = (c->options->flags & DCPK_CONVERT_CHECK_INPUT) != 0;
    dcpk_status st;

    if (c->model == NULL || was_proven)
        return DCPK_OK;
    dcpk_progress_begin(&m->env->progress, "comparing masters");
    st = dcpk_check_masters_with(c->model, m->env, m->exec,
                                 checks_all ? DCPK_MASTERS_ALL : DCPK_MASTERS_SAMPLE, err);
    dcpk_progress_begin(&m->env->progress, m->label);
    return st;
}

/* The proof, unless rank 0 resumes what has had it. */
static dcpk_status conversion_prove(struct dcpk_making *m, struct dcpk_error *err)
{
    const uint8_t mine = m->resumed_bytes > 0;
    struct dcpk_bytes all = {0};
    dcpk_status st = dcpk_ranks_share_each(m->env->ranks, &mine, sizeof mine, &all, DCPK_OK, err);

    if (st == DCPK_OK)
        st = making_check_masters(m, all.data[0] != 0, err);
    dcpk_bytes_release(&all);
    return st;
}

static dcpk_status conversion_copy_side_files(struct dcpk_making *m, struct dcpk_error *err)
{
    if (!dcpk_making_leads(m))
        return DCPK_OK;
    return dcpk_side_files_copy(m->out, m->env->side_files, m->folder, err);
}

/* What is read back is what was written, and no more. */
static dcpk_status conversion_settle(struct dcpk_making *m, struct dcpk_error *err)
{
    if (!dcpk_making_leads(m) || !dcpk_conversion_reads_back(conversion_of(m)))
        return DCPK_OK;
    return dcpk_folder_settle(m->folder, err);
}

static dcpk_status conversion_check_output(struct dcpk_making *m, struct dcpk_error *err)
{
    return dcpk_conversion_check(conversion_of(m), m->folder, err);
}

static size_t count_keys(const struct dcpk_output *out)
{
    size_t n = out->n_objects;

    for (size_t i = 0; i < out->n_tensors; i++)
        n += out->tensors[i].n_keys;
    return n;
}

static const struct dcpk_making_step there_steps[] = {{dcpk_making_begin_exec, false},
                                                      {conversion_check_input, false},
                                                      {dcpk_making_open_there, false},
                                                      {dcpk_making_compare_there, false},
                                                      {conversion_check_output, false},
                                                      {dcpk_making_settle_there, false},
                                                      {NULL, false}};

static const struct dcpk_making_step steps[] = {{dcpk_making_begin_folder, false},
                                                {dcpk_making_unmark_folder, false},
                                                {dcpk_making_begin_exec, false},
                                                {conversion_check_input, false},
                                                {dcpk_making_begin_writing, false},
                                                {dcpk_making_resume, false},
                                                {conversion_check_range, false},
                                                {conversion_prove, false},
                                                {dcpk_making_write, false},
                                                {conversion_copy_side_files, false},
                                                {dcpk_making_finish, false},
                                                {conversion_settle, false},
                                                {conversion_check_output, true},
                                                {dcpk_making_publish, false},
                                                {NULL, false}};

dcpk_status dcpk_conversion_run(struct dcpk_conversion *c, struct dcpk_error *err)
{
    struct dcpk_making m = {.env = &c->options->env,
                            .in = c->options->in,
                            .ckpt = c->ckpt,
                            .out = c->out,
                            .target = &c->target,
                            .folder_flags = c->options->folder_flags,
                            .is_once = (c->options->flags & DCPK_CONVERT_ONCE) != 0,
                            .label = "converting",
                            .job = c,
                            .there_steps = there_steps,
                            .n_keys = count_keys(c->out)};
    const dcpk_status st = dcpk_making_run(&m, steps, err);

    c->stats = m.stats;
    c->resumed_bytes = m.resumed_bytes;
    c->is_complete = st == DCPK_OK && c->target.is_there;
    if (c->is_complete)
        c->compared_bytes = c->totals.file_bytes;
    return st;
}

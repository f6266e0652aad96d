/* SPDX-License-Identifier: Apache-2.0 */
/* convert_run.c - carries out a planned conversion: the steps of its own between those that all
 * outputs share. */
#include <inttypes.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/ckpt/output.h"
#include "lib/exec/exec.h"
#include "lib/exec/ranks.h"
#include "lib/exec/side_files.h"
#include "lib/job/convert.h"
#include "lib/job/output_job.h"
#include "lib/tensor/elem.h"
#include "lib/write/writing.h"

/* ---- compares what a cast makes with what it is made of, before anything is written ---- */

#define MAX_NAMED 4

/* Tensors that are cast to a narrower dtype: as they are written, and as they are stored. */
struct narrowed {
    struct dcpk_view *written, *stored;
    const char **keys;
    struct dcpk_compare *results;
    size_t n;
};

/* The widest dtype of a tensor's sources of which its own is narrower; NONE: there is none. */
static enum dcpk_dtype find_wider(const struct dcpk_checkpoint *ckpt,
                                  const struct dcpk_out_tensor *tensor)
{
    enum dcpk_dtype widest = DCPK_DTYPE_NONE;

    for (size_t i = 0; i < tensor->n_pieces; i++) {
        const uint32_t src = tensor->pieces[i].src;

        if (src != DCPK_PIECE_FILL && tensor->blocks == NULL && /* they refuse it themselves */
            dcpk_elem_is_narrower(tensor->dtype, ckpt->tensors[src].dtype) &&
            (widest == DCPK_DTYPE_NONE || dcpk_elem_is_narrower(widest, ckpt->tensors[src].dtype)))
            widest = ckpt->tensors[src].dtype;
    }
    return widest;
}

static dcpk_status list_narrowed(const struct dcpk_output *out, struct narrowed *n,
                                 struct dcpk_error *err)
{
    n->written = dcpk_alloc_array(out->n_tensors, sizeof *n->written, err);
    if (n->written != NULL)
        n->stored = dcpk_alloc_array(out->n_tensors, sizeof *n->stored, err);
    if (n->stored != NULL)
        n->keys = dcpk_alloc_array(out->n_tensors, sizeof *n->keys, err);
    if (n->keys == NULL)
        return err->status;
    for (size_t t = 0; t < out->n_tensors; t++) {
        const enum dcpk_dtype wider = find_wider(out->source, &out->tensors[t]);

        if (wider == DCPK_DTYPE_NONE)
            continue;
        n->written[n->n] = n->stored[n->n] = dcpk_write_view(&out->tensors[t]);
        n->stored[n->n].dtype = wider;
        n->keys[n->n++] = out->tensors[t].keys[0];
    }
    n->results = dcpk_alloc_array(n->n, sizeof *n->results, err);
    if (n->results == NULL)
        return err->status;
    return DCPK_OK;
}

static void add_overflow(const char *key, const struct dcpk_compare *result,
                         struct dcpk_overflow *found, struct dcpk_bytes *names)
{
    uint64_t n;

    if (result->n_not_finite[0] <= result->n_not_finite[1])
        return;
    n = result->n_not_finite[0] - result->n_not_finite[1];
    if (found->n_tensors < MAX_NAMED)
        dcpk_bytes_printf(names, "%s'%s' (%" PRIu64 ")", dcpk_joint(found->n_tensors > 0, ", "),
                          key, n);
    else if (found->n_tensors == MAX_NAMED)
        dcpk_bytes_text(names, ", ...");
    found->n_elems += n;
    found->n_tensors++;
}

/* Counts them in all tensors of a planned output whose dtype has a smaller exponent than that of a
 * source (float16 of bfloat16): reads and casts these once more than their writing does. `names`
 * gets a text of the first few: "'a' (12), 'b' (3), ...". Collective where the executor has ranks.
 * Errors: those of reading. */
static dcpk_status find_overflow(struct dcpk_exec *exec, const struct dcpk_output *out,
                                 struct dcpk_overflow *found, struct dcpk_bytes *names,
                                 struct dcpk_error *err)
{
    struct narrowed n = {.n = 0};
    struct dcpk_view_pairs pairs = {.left_exec = exec, .right_exec = exec};
    dcpk_status st = list_narrowed(out, &n, err);

    if (st != DCPK_OK || n.n == 0)
        goto out;
    pairs.left = n.written;
    pairs.right = n.stored;
    pairs.n = n.n;
    st = dcpk_exec_compare(&pairs, n.results, NULL, err);
    if (st != DCPK_OK)
        goto out;
    for (size_t i = 0; i < n.n; i++) {
        add_overflow(n.keys[i], &n.results[i], found, names);
        if (found->n_tensors == 1)
            found->dtype = n.written[i].dtype;
    }
    dcpk_bytes_u8(names, 0);
    st = dcpk_bytes_status(names, err);
out:
    dcpk_free(n.results);
    dcpk_free(n.keys);
    dcpk_free(n.stored);
    dcpk_free(n.written);
    return st;
}

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
    st = find_overflow(job->exec, job->out, &c->overflow, &names, err);
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

/* The least and the most of any rank. */
static void sum_up(const struct dcpk_unit_share *each, struct dcpk_conversion_shares *shares)
{
    struct dcpk_unit_share *least = &shares->least, *most = &shares->most;

    *least = *most = each[0];
    for (int r = 0; r < shares->n_ranks; r++) {
        shares->read_bytes += each[r].read_bytes;
        least->read_bytes = dcpk_min_u64(least->read_bytes, each[r].read_bytes);
        least->written_bytes = dcpk_min_u64(least->written_bytes, each[r].written_bytes);
        most->read_bytes = dcpk_max_u64(most->read_bytes, each[r].read_bytes);
        most->written_bytes = dcpk_max_u64(most->written_bytes, each[r].written_bytes);
    }
}

dcpk_status dcpk_conversion_share(const struct dcpk_conversion *c, int n_ranks,
                                  struct dcpk_conversion_shares *shares, struct dcpk_error *err)
{
    struct dcpk_unit_share *each = dcpk_alloc_array((size_t)n_ranks, sizeof *each, err);
    struct dcpk_units units = {0};
    dcpk_status st;

    *shares = (struct dcpk_conversion_shares){.n_ranks = n_ranks};
    if (each == NULL)
        return err->status;
    st = dcpk_units_cut(c->out, dcpk_exec_unit_bytes(&c->options->env), &units, err);
    if (st == DCPK_OK)
        st = dcpk_units_share(&units, n_ranks, each, err);
    if (st == DCPK_OK)
        sum_up(each, shares);
    dcpk_units_release(&units);
    dcpk_free(each);
    return st;
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

/* A variant without a least scale loses blocks of tiny numbers: that of transformers, by its name.
 */
static void note_zero_scales(struct dcpk_conversion *c)
{
    if (c->stats.n_zero_scales > 0)
        dcpk_output_event(c->out, DCPK_EVENT_NOTE, "fp8",
                          "blocks of fp8 with the scale 0: %" PRIu64 ", as the quantizer of "
                          "transformers makes of numbers below 448 / 2^128; their zeros are NaN "
                          "(deepgemm and ue8m0 have a least scale)",
                          c->stats.n_zero_scales);
}

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
                                  .n_keys = dcpk_output_count_keys(c->out)};
    dcpk_status st = dcpk_conversion_check_space(c, err);

    st = dcpk_ranks_agree(c->options->env.ranks, st, err);
    if (st == DCPK_OK)
        st = dcpk_output_job_run(&job, steps, err);
    c->stats = job.stats;
    note_zero_scales(c);
    c->resumed_bytes = job.resumed_bytes;
    c->is_complete = st == DCPK_OK && c->target.is_there;
    if (c->is_complete)
        c->compared_bytes = c->totals.file_bytes;
    return st;
}

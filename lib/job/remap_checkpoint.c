/* SPDX-License-Identifier: Apache-2.0 */
/* remap_checkpoint.c - a process's part of a remap: the model, two layouts, the files'
 * fingerprints. */
#include "lib/job/remap_checkpoint.h"

#include <inttypes.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/exec/ranks.h"
#include "lib/exec/slab.h"
#include "lib/job/remap_checkpoint_priv.h"
#include "lib/model/account.h"
#include "lib/model/registered.h"

/* ---- load, there, back: what a rank does, and what comes of it in figures ---- */

/* ---- figures of all ranks ---- */

/* A rank's share of a step. */
struct share {
    uint64_t in_bytes, out_bytes, local_bytes;
    uint64_t n_tiles, n_messages, table_bytes, staging_bytes;
    uint64_t ns;
};

/* Collective: adds the shares of all ranks. */
static dcpk_status step_share(struct dcpk_remap_step *step, struct dcpk_ranks *ranks,
                              const struct share *mine, struct dcpk_error *err)
{
    uint64_t sums[] = {mine->in_bytes, mine->local_bytes, mine->n_tiles, mine->n_messages};
    uint64_t most[] = {mine->in_bytes, mine->out_bytes, mine->table_bytes, mine->staging_bytes,
                       mine->ns};
    dcpk_status st = dcpk_ranks_sum(ranks, sums, DCPK_COUNT(sums), DCPK_OK, err);

    if (st == DCPK_OK)
        st = dcpk_ranks_most(ranks, most, DCPK_COUNT(most), DCPK_OK, err);
    if (dcpk_ranks_agree(ranks, st, err))
        return err->status;
    step->moved_bytes = sums[0];
    step->local_bytes = sums[1];
    step->n_tiles = sums[2];
    step->n_messages = sums[3];
    step->most_in_bytes = most[0];
    step->most_out_bytes = most[1];
    step->table_bytes = most[2];
    step->staging_bytes = most[3];
    step->seconds = (double)most[4] / 1e9;
    return DCPK_OK;
}

/* ---- steps ---- */

static dcpk_status step_load(struct dcpk_remap_held *from, struct dcpk_remap_step *step,
                             struct dcpk_error *err)
{
    struct share mine = {.in_bytes = from->n_bytes};
    struct dcpk_remap_files_stats stats;

    if (dcpk_remap_held_load(from, from->rank->max_bytes, &stats, err))
        return err->status;
    mine.out_bytes = stats.out_bytes;
    mine.n_tiles = stats.n_tiles;
    mine.table_bytes = stats.table_bytes;
    mine.staging_bytes = stats.ring_bytes + stats.slot_bytes;
    mine.ns = (uint64_t)(stats.seconds * 1e9);
    if (step_share(step, from->rank->ranks, &mine, err))
        return err->status;
    return dcpk_remap_held_prove(from, step, err);
}

/* The figures of a remap that was run. */
static dcpk_status step_count(const struct dcpk_remap *remap, struct dcpk_ranks *ranks,
                              struct dcpk_remap_step *step, struct dcpk_error *err)
{
    const struct dcpk_remap_plan *plan = dcpk_remap_plan(remap);
    const struct dcpk_remap_stats *stats = dcpk_remap_stats(remap);
    const struct dcpk_remap_totals *totals = &plan->totals[dcpk_ranks_self(ranks)];
    const struct share mine = {.in_bytes = totals->in_bytes,
                               .out_bytes = totals->out_bytes,
                               .local_bytes = totals->local_bytes,
                               .n_tiles = stats->n_tiles,
                               .n_messages = stats->n_messages,
                               .table_bytes = stats->table_bytes,
                               .staging_bytes = stats->staging_bytes};

    step->predicted_seconds = plan->seconds;
    step->n_units = plan->n_units;
    return step_share(step, ranks, &mine, err);
}

/* Run it into targets that hold nothing of it yet. */
static dcpk_status step_run(struct dcpk_remap *remap, struct dcpk_remap_held *to,
                            struct dcpk_remap_step *step, struct dcpk_error *err)
{
    struct dcpk_remap_rank *rank = to->rank;

    if (dcpk_ranks_agree(rank->ranks, dcpk_remap_held_wipe(to, err), err) ||
        dcpk_remap_rank_time(rank, remap, &step->seconds, err) ||
        dcpk_remap_held_prove(to, step, err))
        return err->status;
    return DCPK_OK;
}

/* The first run whose proof fails is the last one. */
static dcpk_status step_remap(struct dcpk_remap_held *from, struct dcpk_remap_held *to,
                              struct dcpk_remap_step *step, struct dcpk_error *err)
{
    const struct dcpk_remap_shards shards = {from->shards, to->shards, from->n_shards,
                                             to->n_shards};
    struct dcpk_remap_rank *rank = from->rank;
    struct dcpk_remap *remap = NULL;
    dcpk_status st = dcpk_remap_rank_plan(rank, &shards, &remap, err);

    if (st == DCPK_OK)
        st = step_count(remap, rank->ranks, step, err);
    for (int i = 0; i < rank->job->options->n_runs && st == DCPK_OK && step->n_different == 0; i++)
        st = step_run(remap, to, step, err);
    dcpk_remap_free(remap); /* all are idle: they have met since */
    return st;
}

/* Make a step, and keep what came of it. */
static dcpk_status rank_make_step(struct dcpk_remap_rank *rank, enum dcpk_remap_step_number number,
                                  struct dcpk_remap_held held[2], struct dcpk_error *err)
{
    struct dcpk_remap_step step = {.is_made = true};
    dcpk_status st;

    if (number == DCPK_STEP_LOAD)
        st = step_load(&held[0], &step, err);
    else if (number == DCPK_STEP_THERE)
        st = step_remap(&held[0], &held[1], &step, err);
    else
        st = step_remap(&held[1], &held[0], &step, err);
    rank->proven = st == DCPK_OK && step.n_different == 0;
    if (st == DCPK_OK && rank->result != NULL)
        rank->result->steps[number] = step;
    return st;
}

/* ---- a rank ---- */

static dcpk_status rank_prepare(struct dcpk_remap_rank *rank, struct dcpk_remap_held held[2],
                                struct dcpk_error *err)
{
    const struct dcpk_remap_job *job = rank->job;
    uint64_t most[2];
    dcpk_status st = dcpk_remap_held_make(rank, &job->from, &held[0], err);

    if (st == DCPK_OK)
        st = dcpk_remap_held_make(rank, &job->to, &held[1], err);
    if (dcpk_ranks_agree(rank->ranks, st, err))
        return err->status;
    most[0] = held[0].n_bytes;
    most[1] = held[1].n_bytes;
    st = dcpk_ranks_most(rank->ranks, most, DCPK_COUNT(most), DCPK_OK, err);
    if (dcpk_ranks_agree(rank->ranks, st, err))
        return err->status;
    rank->max_bytes = most[0];
    if (job->options->link_bytes_a_second == 0 &&
        dcpk_remap_rank_measure(rank, held[0].at, held[1].at,
                                dcpk_min_u64(held[0].n_bytes, held[1].n_bytes), err))
        return err->status;
    if (rank->result == NULL)
        return DCPK_OK;
    rank->result->from_bytes = most[0];
    rank->result->to_bytes = most[1];
    rank->result->link_bytes_a_second = rank->link_bytes_a_second;
    rank->result->is_link_measured = job->options->link_bytes_a_second == 0;
    return DCPK_OK;
}

static dcpk_status rank_work(struct dcpk_remap_rank *rank, struct dcpk_error *err)
{
    struct dcpk_remap_held held[2] = {{.rank = NULL}, {.rank = NULL}};
    dcpk_status st = dcpk_remap_rank_open(rank, err);

    if (st == DCPK_OK)
        st = rank_prepare(rank, held, err);
    rank->proven = true;
    for (unsigned i = 0; i < DCPK_N_STEPS && st == DCPK_OK && rank->proven; i++)
        st = rank_make_step(rank, (enum dcpk_remap_step_number)i, held, err);
    if (st == DCPK_OK && rank->result != NULL)
        rank->result->ok = rank->proven;
    dcpk_remap_held_release(&held[0]);
    dcpk_remap_held_release(&held[1]);
    return st;
}

/* Runs one of `ranks`. Collective. context: the struct dcpk_remap_job. */
static dcpk_status rank_run(struct dcpk_ranks *ranks, void *context, struct dcpk_error *err)
{
    struct dcpk_remap_job *job = context;
    struct dcpk_remap_rank rank = {.job = job, .ranks = ranks};
    struct dcpk_error ignored = DCPK_ERROR_INIT;

    if (job->options->env.ranks != NULL || dcpk_ranks_self(ranks) == 0)
        rank.result = job->result;
    (void)rank_work(&rank, err);
    dcpk_remap_rank_close(&rank);
    (void)dcpk_ranks_agree(ranks, DCPK_OK, &ignored); /* none maps another's memory any more */
    return err->status;
}

/* The canonical view, with all that a layout needs to know of it. */
static dcpk_status job_read_model(struct dcpk_remap_job *job, struct dcpk_error *err)
{
    const struct dcpk_remap_job_options *o = job->options;
    const struct dcpk_rule_options rules = {.swiglu = o->swiglu};
    unsigned flags = 0;

    if (o->weights_only)
        flags = DCPK_MODEL_WEIGHTS_ONLY;
    if (dcpk_checkpoint_check_cover(job->ckpt, err) ||
        dcpk_model_read(job->ckpt, flags, &job->model, err) ||
        dcpk_model_check_known(job->model, err) || dcpk_rules_check_model_rows(job->model, err) ||
        dcpk_rules_canonical(job->model, err) || dcpk_rules_gate(job->model, &rules, err) ||
        dcpk_rules_parallel(job->model, rules.impl, err))
        return err->status;
    return DCPK_OK;
}

/* "decoder.final_layernorm.weight", "....exp_avg" */
static const char *tensor_name(struct dcpk_remap_job *job, const struct dcpk_model_tensor *t,
                               struct dcpk_error *err)
{
    static const char *const roles[DCPK_N_ROLES] = {[DCPK_MASTER] = "master",
                                                    [DCPK_EXP_AVG] = "exp_avg",
                                                    [DCPK_EXP_AVG_SQ] = "exp_avg_sq",
                                                    [DCPK_STEP] = "step"};
    const char *param = job->model->params[t->param].name;

    if (t->role == DCPK_WEIGHT)
        return param;
    if (t->role == DCPK_STATE)
        return dcpk_arena_printf(job->arena, err, "%s.%s", param, t->state);
    return dcpk_arena_printf(job->arena, err, "%s.%s", param, roles[t->role]);
}

static dcpk_status job_list_tensors(struct dcpk_remap_job *job, struct dcpk_error *err)
{
    job->n = job->model->n_tensors;
    job->views = dcpk_arena_array(job->arena, job->n, sizeof *job->views, err);
    job->sums = dcpk_arena_array(job->arena, job->n, sizeof *job->sums, err);
    if (job->views == NULL || job->sums == NULL)
        return err->status;
    if (job->n == 0)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "the checkpoint has no tensor of a model");
    for (size_t i = 0; i < job->n; i++) {
        const struct dcpk_model_tensor *t = &job->model->tensors[i];

        job->views[i].name = tensor_name(job, t, err);
        if (job->views[i].name == NULL)
            return err->status;
        job->views[i].view = dcpk_model_view(t);
    }
    return DCPK_OK;
}

static dcpk_status check_size(const struct dcpk_placing *layout, const char *what, int n_ranks,
                              struct dcpk_error *err)
{
    const int64_t n = dcpk_grid_ranks(&layout->grid);

    if (n <= n_ranks)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EUSAGE, "the layout %s has %" PRId64 " ranks, there are %d", what, n,
                     n_ranks);
}

/* Checks that the model fits the layout. Sizes that add no constraint are left to the rules. */
static dcpk_status check_mesh(struct dcpk_model *model, const struct dcpk_placing *layout,
                              struct dcpk_error *err)
{
    struct dcpk_grid mesh = layout->grid;

    if (mesh.etp == mesh.tp)
        mesh.etp = 0;
    return dcpk_rules_mesh(model, &mesh, err);
}

static dcpk_status job_lay_out(struct dcpk_remap_job *job, struct dcpk_error *err)
{
    const struct dcpk_remap_job_options *o = job->options;
    int n_ranks = o->n_ranks;

    if (o->env.ranks != NULL)
        n_ranks = dcpk_ranks_count(o->env.ranks);
    if (check_size(&o->from, "to load", n_ranks, err) ||
        check_size(&o->to, "to remap to", n_ranks, err) || check_mesh(job->model, &o->from, err) ||
        check_mesh(job->model, &o->to, err) ||
        dcpk_lay_out(job->model, &o->from, &job->from, err) ||
        dcpk_lay_out(job->model, &o->to, &job->to, err))
        return err->status;
    return DCPK_OK;
}

/* The fingerprints of the files. Collective over processes. */
static dcpk_status job_sum_files(struct dcpk_remap_job *job, struct dcpk_error *err)
{
    struct dcpk_exec *exec = NULL;
    struct dcpk_view *views = dcpk_alloc_array(job->n, sizeof *views, err);
    dcpk_status st = dcpk_made(views, err);

    for (size_t i = 0; i < job->n && st == DCPK_OK; i++)
        views[i] = job->views[i].view;
    if (st == DCPK_OK)
        st = dcpk_exec_new(job->ckpt, &job->options->env, &exec, err);
    st = dcpk_ranks_agree(job->options->env.ranks, st, err);
    if (st == DCPK_OK)
        st = dcpk_exec_fingerprint(exec, views, job->n, job->sums, err);
    dcpk_exec_free(exec);
    dcpk_free(views);
    return dcpk_ranks_agree(job->options->env.ranks, st, err);
}

static dcpk_status job_fill(struct dcpk_remap_job *job, struct dcpk_error *err)
{
    job->arena = dcpk_arena_new();
    if (job_read_model(job, err) || job_list_tensors(job, err) || job_lay_out(job, err))
        return err->status;
    return DCPK_OK;
}

dcpk_status dcpk_remap_job_new(struct dcpk_checkpoint *ckpt,
                               const struct dcpk_remap_job_options *options,
                               struct dcpk_remap_job **job, struct dcpk_error *err)
{
    struct dcpk_remap_job *made = dcpk_alloc(sizeof *made, err);
    dcpk_status st = err->status;

    if (made != NULL) {
        made->options = options;
        made->ckpt = ckpt;
        st = job_fill(made, err);
    }
    st = dcpk_ranks_agree(options->env.ranks, st, err);
    if (st == DCPK_OK)
        st = job_sum_files(made, err);
    if (st == DCPK_OK)
        *job = made;
    else
        dcpk_remap_job_free(made);
    return st;
}

dcpk_status dcpk_remap_job_run(struct dcpk_remap_job *job, struct dcpk_remap_result *result,
                               struct dcpk_error *err)
{
    const struct dcpk_remap_job_options *o = job->options;

    *result = (struct dcpk_remap_result){.n_ranks = o->n_ranks, .n_tensors = job->n};
    for (size_t i = 0; i < job->n; i++) {
        struct dcpk_box whole;

        dcpk_box_whole(job->views[i].view.shape, job->views[i].view.rank, &whole);
        result->tensor_bytes += dcpk_box_elems(&whole) * dcpk_dtype_bytes(job->views[i].view.dtype);
    }
    job->result = result;
    if (o->env.ranks == NULL)
        return dcpk_thread_ranks_run(o->n_ranks, rank_run, job, err);
    result->n_ranks = dcpk_ranks_count(o->env.ranks);
    return rank_run(o->env.ranks, job, err);
}

void dcpk_remap_job_free(struct dcpk_remap_job *job)
{
    if (job == NULL)
        return;
    dcpk_laid_out_release(&job->to);
    dcpk_laid_out_release(&job->from);
    dcpk_model_free(job->model);
    dcpk_arena_free(job->arena);
    dcpk_free(job);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* remap_steps.c - load, there, back: what a rank does, and what comes of it in figures. */
#include <stdio.h>
#include <string.h>

#include "lib/base/order.h"
#include "lib/exec/slab.h"
#include "lib/exec/thread_ranks.h"
#include "lib/job/remap_checkpoint_priv.h"

/* Of what the link is measured with, a rank. */
#define LEAST_PROBE_BYTES ((size_t)16 << 20)
#define MOST_PROBE_BYTES  (UINT64_C(1) << 30)
#define N_PROBES          3

/* ---- the link ---- */

struct probe {
    char names[2][32]; /* of this rank's tensor, and of the one that it gets */
    int64_t shape[1], span[2], stride_bytes[1];
    struct dcpk_shard source, target;
};

static void probe_make(struct probe *p, const struct dcpk_remap_rank *rank, uint64_t n_bytes,
                       const uint8_t *from, uint8_t *to)
{
    const int n = dcpk_ranks_count(rank->ranks), self = dcpk_ranks_self(rank->ranks);

    snprintf(p->names[0], sizeof p->names[0], "probe of rank %d", self);
    snprintf(p->names[1], sizeof p->names[1], "probe of rank %d", (self + n - 1) % n);
    p->shape[0] = p->span[1] = (int64_t)n_bytes;
    p->span[0] = 0;
    p->stride_bytes[0] = 1;
    p->source = (struct dcpk_shard){.name = p->names[0],
                                    .dtype = DCPK_U8,
                                    .rank = 1,
                                    .holder = self,
                                    .shape = p->shape,
                                    .span = p->span,
                                    .stride_bytes = p->stride_bytes,
                                    .at = (uint64_t)(uintptr_t)from};
    p->target = p->source;
    p->target.name = p->names[1];
    p->target.at = (uint64_t)(uintptr_t)to;
}

static dcpk_status probe_time(struct dcpk_remap_rank *rank, const struct probe *p, double *seconds,
                              struct dcpk_error *err)
{
    const struct dcpk_remap_shards shards = {&p->source, &p->target, 1, 1};
    struct dcpk_remap *remap = NULL;
    dcpk_status st = dcpk_remap_rank_plan(rank, &shards, &remap, err);

    for (int i = 0; i < N_PROBES && st == DCPK_OK; i++)
        st = dcpk_remap_rank_time(rank, remap, seconds, err);
    dcpk_remap_free(remap);
    return st;
}

/* The least that a rank holds under one of two layouts. */
static dcpk_status find_least(struct dcpk_ranks *ranks, const struct dcpk_remap_held held[2],
                              uint64_t *least, struct dcpk_error *err)
{
    const uint64_t mine = dcpk_min_u64(held[0].n_bytes, held[1].n_bytes);
    struct dcpk_bytes all = {0};
    dcpk_status st = dcpk_ranks_share_each(ranks, &mine, sizeof mine, &all, DCPK_OK, err);

    *least = mine;
    for (size_t r = 0; st == DCPK_OK && r < all.n_bytes / sizeof mine; r++) {
        uint64_t its;

        memcpy(&its, all.data + r * sizeof its, sizeof its);
        *least = dcpk_min_u64(*least, its);
    }
    dcpk_bytes_release(&all);
    return dcpk_ranks_agree(ranks, st, err);
}

dcpk_status dcpk_remap_measure_link(struct dcpk_remap_rank *rank,
                                    const struct dcpk_remap_held held[2], double *bytes_a_second,
                                    struct dcpk_error *err)
{
    struct dcpk_space *space = rank->space;
    const uint8_t *from = held[0].at;
    uint8_t *to = held[1].at;
    double seconds = 0;
    uint64_t n_bytes;
    struct probe p;
    void *at = NULL;
    dcpk_status st = find_least(rank->ranks, held, &n_bytes, err);

    if (st == DCPK_OK && n_bytes < LEAST_PROBE_BYTES) { /* on all ranks, or on none */
        n_bytes = LEAST_PROBE_BYTES;
        st = space->ops->alloc(space, DCPK_MEMORY_DEVICE, 2 * LEAST_PROBE_BYTES, &at, err);
        from = at;
    }
    n_bytes = dcpk_min_u64(n_bytes, MOST_PROBE_BYTES);
    st = dcpk_ranks_agree(rank->ranks, st, err);
    if (st == DCPK_OK && at != NULL)
        to = (uint8_t *)at + n_bytes;
    if (st == DCPK_OK) {
        probe_make(&p, rank, n_bytes, from, to);
        st = probe_time(rank, &p, &seconds, err);
    }
    if (st == DCPK_OK && seconds > 0)
        *bytes_a_second = (double)n_bytes / seconds;
    space->ops->free(space, at);
    return st;
}

/* ---- figures of all ranks ---- */

/* What a rank adds to a step. */
struct share_of_step {
    uint64_t in_bytes, out_bytes, local_bytes;
    uint64_t n_tiles, n_messages, table_bytes, staging_bytes;
    double seconds;
};

static void step_add(struct dcpk_remap_step *step, const struct share_of_step *share)
{
    step->moved_bytes += share->in_bytes;
    step->local_bytes += share->local_bytes;
    step->most_in_bytes = dcpk_max_u64(step->most_in_bytes, share->in_bytes);
    step->most_out_bytes = dcpk_max_u64(step->most_out_bytes, share->out_bytes);
    step->n_tiles += share->n_tiles;
    step->n_messages += share->n_messages;
    step->table_bytes = dcpk_max_u64(step->table_bytes, share->table_bytes);
    step->staging_bytes = dcpk_max_u64(step->staging_bytes, share->staging_bytes);
    if (share->seconds > step->seconds)
        step->seconds = share->seconds;
}

/* Collective. st, err: of what the share is about. */
static dcpk_status step_share(struct dcpk_remap_step *step, struct dcpk_ranks *ranks,
                              const struct share_of_step *mine, dcpk_status st,
                              struct dcpk_error *err)
{
    struct dcpk_bytes all = {0};

    st = dcpk_ranks_share_each(ranks, mine, sizeof *mine, &all, st, err);
    for (size_t r = 0; st == DCPK_OK && r < all.n_bytes / sizeof *mine; r++) {
        struct share_of_step share;

        memcpy(&share, all.data + r * sizeof share, sizeof share);
        step_add(step, &share);
    }
    dcpk_bytes_release(&all);
    return dcpk_ranks_agree(ranks, st, err);
}

/* ---- steps ---- */

static dcpk_status step_load(struct dcpk_remap_held *from, struct dcpk_remap_step *step,
                             struct dcpk_error *err)
{
    struct share_of_step mine = {.in_bytes = from->n_bytes};
    struct dcpk_remap_files_stats stats;

    if (dcpk_remap_held_load(from, from->rank->most_bytes, &stats, err))
        return err->status;
    mine.out_bytes = stats.out_bytes;
    mine.n_tiles = stats.n_tiles;
    mine.table_bytes = stats.table_bytes;
    mine.staging_bytes = stats.ring_bytes + stats.slot_bytes;
    mine.seconds = stats.seconds;
    if (step_share(step, from->rank->ranks, &mine, DCPK_OK, err))
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
    const struct share_of_step mine = {.in_bytes = totals->in_bytes,
                                       .out_bytes = totals->out_bytes,
                                       .local_bytes = totals->local_bytes,
                                       .n_tiles = stats->n_tiles,
                                       .n_messages = stats->n_messages,
                                       .table_bytes = stats->table_bytes,
                                       .staging_bytes = stats->staging_bytes};

    step->predicted_seconds = plan->seconds;
    step->n_units = plan->n_units;
    return step_share(step, ranks, &mine, DCPK_OK, err);
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

/* The most bytes that a rank holds under each layout. */
static dcpk_status rank_find_most(struct dcpk_remap_rank *rank,
                                  const struct dcpk_remap_held held[2], uint64_t most[2],
                                  struct dcpk_error *err)
{
    const uint64_t mine[2] = {held[0].n_bytes, held[1].n_bytes};
    struct dcpk_bytes all = {0};
    dcpk_status st = dcpk_ranks_share_each(rank->ranks, mine, sizeof mine, &all, DCPK_OK, err);

    most[0] = most[1] = 0;
    for (size_t r = 0; st == DCPK_OK && r < all.n_bytes / sizeof mine; r++) {
        uint64_t its[2];

        memcpy(its, all.data + r * sizeof its, sizeof its);
        most[0] = dcpk_max_u64(most[0], its[0]);
        most[1] = dcpk_max_u64(most[1], its[1]);
    }
    dcpk_bytes_release(&all);
    return dcpk_ranks_agree(rank->ranks, st, err);
}

static dcpk_status rank_prepare(struct dcpk_remap_rank *rank, struct dcpk_remap_held held[2],
                                struct dcpk_error *err)
{
    const struct dcpk_remap_job *job = rank->job;
    uint64_t most[2];
    dcpk_status st = dcpk_remap_held_make(rank, &job->from, &held[0], err);

    if (st == DCPK_OK)
        st = dcpk_remap_held_make(rank, &job->to, &held[1], err);
    if (dcpk_ranks_agree(rank->ranks, st, err) || rank_find_most(rank, held, most, err))
        return err->status;
    rank->most_bytes = most[0];
    if (job->options->link_bytes_a_second == 0 &&
        dcpk_remap_measure_link(rank, held, &rank->link_bytes_a_second, err))
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

/* The script of a rank. */
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

dcpk_status dcpk_remap_job_run(struct dcpk_remap_job *job, struct dcpk_remap_result *result,
                               struct dcpk_error *err)
{
    const struct dcpk_remap_job_options *o = job->options;

    *result = (struct dcpk_remap_result){.n_ranks = o->n_ranks, .n_tensors = job->n};
    for (size_t i = 0; i < job->n; i++) {
        struct dcpk_box whole;

        dcpk_box_whole(job->views[i].view.shape, job->views[i].view.rank, &whole);
        result->tensor_bytes +=
            dcpk_slab_elems(&whole) * dcpk_dtype_bytes(job->views[i].view.dtype);
    }
    job->result = result;
    if (o->env.ranks == NULL)
        return dcpk_thread_ranks_run(o->n_ranks, rank_run, job, err);
    result->n_ranks = dcpk_ranks_count(o->env.ranks);
    return rank_run(o->env.ranks, job, err);
}

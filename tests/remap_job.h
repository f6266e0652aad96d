/* SPDX-License-Identifier: Apache-2.0 */
/* remap_job.h - a case of remap_case.h remapped by ranks that are threads. */
#ifndef DCPK_TESTS_REMAP_JOB_H
#define DCPK_TESTS_REMAP_JOB_H

#define RANK_MAX_BYTES (1 << 20)

#include "lib/exec/remap.h"
#include "tests/rank_threads.h"
#include "tests/remap_case.h"

struct remap_job {
    struct remap_case *c;
    int from, to; /* sides of the case */
    struct dcpk_remap_options options;
    int n_runs;
    bool has_no_link;
    bool only_gathers; /* the ranks can send no messages, as under a caller's own all_gather */
    int quitter; /* this rank, from 1, leaves where the others run for the first time; 0: none */
    const struct dcpk_device_ops *device;    /* NULL: dcpk_devices[0] */
    const struct dcpk_link_ops *link;        /* of the opened link; NULL: those of dcpk_links[0] */
    void (*before)(struct remap_job *, int); /* on every rank once all are ready; NULL: nothing */
    void (*after)(struct remap_job *, int, const struct dcpk_remap *); /* the same, once all ran */
    /* What came of it, of each rank: */
    dcpk_status ends[CASE_RANKS];
    struct dcpk_error errs[CASE_RANKS];
    struct dcpk_remap_stats stats[CASE_RANKS];
    char notes[CASE_RANKS][512];
    uint64_t moved_bytes[CASE_RANKS];
};

static inline dcpk_status job_remap(struct remap_job *job, int self,
                                    const struct dcpk_remap_options *options,
                                    struct dcpk_error *err)
{
    struct dcpk_remap_shards mine;
    struct dcpk_remap *remap = NULL;
    dcpk_status st;

    if (job->before != NULL)
        job->before(job, self);
    mine.sources = case_shards(&job->c->sides[job->from], self, &mine.n_sources);
    mine.targets = case_shards(&job->c->sides[job->to], self, &mine.n_targets);
    st = dcpk_remap_new(options, &mine, &remap, err);
    if (st != DCPK_OK)
        return st;
    for (int i = 0; i < job->n_runs && st == DCPK_OK && job->quitter != self + 1; i++)
        st = dcpk_remap_run(remap, NULL, NULL, err);
    job->stats[self] = *dcpk_remap_stats(remap);
    snprintf(job->notes[self], sizeof job->notes[self], "%s", job->stats[self].note);
    job->stats[self].note = job->notes[self];
    job->moved_bytes[self] = dcpk_remap_plan(remap)->totals[self].in_bytes;
    if (job->quitter != self + 1) /* all are idle */
        (void)dcpk_ranks_agree(options->ranks, DCPK_OK, &(struct dcpk_error){0});
    if (job->after != NULL)
        job->after(job, self, remap);
    dcpk_remap_free(remap);
    return st;
}

/* Take the messages from the ranks, or give them back. */
static inline void job_set_transport(const struct remap_job *job, struct dcpk_ranks *ranks,
                                     bool is_begin)
{
    static const struct dcpk_transport gathering = {.name = "gathering",
                                                    .all_gather = rank_any_gather,
                                                    .broadcast = rank_any_broadcast,
                                                    .leave = rank_leave,
                                                    .abandon = rank_abandon};

    if (job->only_gathers && ranks != NULL)
        dcpk_ranks_comm(ranks)->transport = is_begin ? &gathering : &rank_transport;
}

static inline void job_rank(struct dcpk_ranks *ranks, int self, void *context)
{
    static const struct dcpk_device_options first = {0};
    struct remap_job *job = context;
    struct dcpk_remap_options options = job->options;
    struct dcpk_error *err = &job->errs[self];
    const struct dcpk_device_ops *device = job->device == NULL ? dcpk_devices[0] : job->device;
    dcpk_status st;

    options.ranks = ranks;
    job_set_transport(job, ranks, true);
    st = device->open(&first, &options.device, err);
    if (st == DCPK_OK && !job->has_no_link && ranks != NULL)
        st = dcpk_links[0]->open(dcpk_ranks_comm(ranks), options.device, &options.link, err);
    if (st == DCPK_OK && options.link != NULL && job->link != NULL)
        options.link->ops = job->link;
    st = dcpk_ranks_agree(ranks, st, err);
    if (st == DCPK_OK)
        st = job_remap(job, self, &options, err);
    job->ends[self] = st;
    if (options.link != NULL)
        options.link->ops->close(options.link);
    device->close(options.device);
    if (job->quitter != self + 1) /* with the same transport */
        (void)dcpk_ranks_agree(ranks, DCPK_OK, &(struct dcpk_error){0});
    job_set_transport(job, ranks, false);
}

/* Run by all ranks, which leave well whatever the end of the remap. */
static inline void job_run(struct remap_job *job, uint64_t seed, const char *label)
{
    for (int r = 0; r < CASE_RANKS; r++)
        job->errs[r] = (struct dcpk_error)DCPK_ERROR_INIT;
    if (job->c->n_ranks == 1) {
        job_rank(NULL, 0, job);
        return;
    }
    rank_threads_begin(job->c->n_ranks, seed);
    rank_threads_run(job_rank, job, label);
}

static inline void job_check_ends(const struct remap_job *job, const char *label)
{
    for (int r = 0; r < job->c->n_ranks; r++)
        if (job->ends[r] != DCPK_OK)
            fail_msg("%s: rank %d: %s", label, r, job->errs[r].text);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* remap.c - the way from shards to something that can be run, agreed on by all ranks. */
#include "lib/exec/remap.h"

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/exec/remap_inside.h"

int dcpk_remap_timeout(const struct dcpk_remap *remap)
{
    const struct dcpk_remap_totals *totals = &remap->plan->totals[remap->self];
    const uint64_t n_bytes = totals->in_bytes + totals->out_bytes + totals->local_bytes;

    if (remap->options.timeout_ms > 0)
        return remap->options.timeout_ms;
    return (int)(DCPK_REMAP_TIMEOUT_MS + dcpk_min_u64(n_bytes / 1000000, INT32_MAX / 2));
}

int dcpk_remap_times(int factor, int timeout_ms)
{
    return (int)dcpk_min_i64(factor * (int64_t)timeout_ms, INT32_MAX);
}

/* The first pair of ranks that have to talk and do not reach each other. */
static bool find_staged(const struct dcpk_remap *remap, int *from, int *to)
{
    const struct dcpk_remap_plan *plan = remap->plan;

    for (size_t i = 0; i < plan->n_moves; i++) {
        *from = plan->input.sources[plan->moves[i].source].holder;
        *to = plan->input.targets[plan->moves[i].target].holder;
        if (remap->is_staged[*from * remap->n_ranks + *to])
            return true;
    }
    return false;
}

dcpk_status dcpk_remap_check_link(const struct dcpk_remap *remap, struct dcpk_error *err)
{
    const struct dcpk_link *link = remap->options.link;

    if (link->is_broken)
        return dcpk_fail(err, DCPK_EIO, "the link '%s' broke in an earlier run", link->ops->name);
    return DCPK_OK;
}

/* Ranks that have to talk must reach each other, or have a link. */
static dcpk_status check_paths(struct dcpk_remap *remap, struct dcpk_error *err)
{
    const struct dcpk_remap_options *options = &remap->options;
    int from, to;

    remap->is_staging_used = find_staged(remap, &from, &to);
    if (!remap->is_staging_used) {
        remap->note[0] = '\0'; /* others do not matter */
        return DCPK_OK;
    }
    if (options->path != DCPK_REMAP_DIRECT && options->link != NULL)
        return dcpk_remap_check_link(remap, err);
    return dcpk_fail(err, DCPK_EUNSUPPORTED,
                     "ranks %d and %d cannot map each other's memory, and %s%s%s", from, to,
                     options->link == NULL ? "there is no link" : "links are switched off",
                     remap->note[0] == '\0' ? "" : ": ", remap->note);
}

static dcpk_status make_plan(struct dcpk_remap *remap, struct dcpk_error *err)
{
    const struct dcpk_remap_options *options = &remap->options;
    const struct dcpk_remap_input input = {.sources = remap->sources,
                                           .targets = remap->targets,
                                           .n_sources = remap->n_sources,
                                           .n_targets = remap->n_targets,
                                           .n_ranks = remap->n_ranks,
                                           .reaches = remap->reaches,
                                           .unit_bytes = options->unit_bytes,
                                           .link_bytes_a_second = options->link_bytes_a_second};

    if (dcpk_remap_plan_new(&input, &remap->plan, err) ||
        dcpk_remap_check_memory(remap->plan, remap->self, err))
        return err->status;
    return check_paths(remap, err);
}

static dcpk_status remap_fill(struct dcpk_remap *remap, const struct dcpk_remap_shards *mine,
                              struct dcpk_error *err)
{
    remap->arena = dcpk_arena_new();
    if (dcpk_remap_gather(remap, mine, err) || dcpk_remap_reach(remap, err) ||
        make_plan(remap, err) ||
        dcpk_ranks_check_same(remap->options.ranks, remap->plan->digest, "the plan", err) ||
        dcpk_remap_make_tables(remap, err))
        return err->status;
    return DCPK_OK;
}

dcpk_status dcpk_remap_new(const struct dcpk_remap_options *options,
                           const struct dcpk_remap_shards *mine, struct dcpk_remap **remap,
                           struct dcpk_error *err)
{
    const int timeout_ms = options->timeout_ms > 0 ? options->timeout_ms : DCPK_REMAP_TIMEOUT_MS;
    const int before =
        dcpk_ranks_set_timeout(options->ranks, dcpk_remap_times(REMAP_RANKS_FACTOR, timeout_ms));
    struct dcpk_remap *made = dcpk_alloc(sizeof *made, err);
    dcpk_status st = err->status;

    if (made != NULL) {
        made->options = *options;
        if (options->staging_bytes == 0)
            made->options.staging_bytes = DCPK_REMAP_STAGING_BYTES;
        made->self = dcpk_ranks_self(options->ranks);
        made->n_ranks = dcpk_ranks_count(options->ranks);
        made->stats.note = made->note;
        st = remap_fill(made, mine, err);
    }
    st = dcpk_ranks_agree(options->ranks, st, err);
    (void)dcpk_ranks_set_timeout(options->ranks, before);
    if (st == DCPK_OK)
        *remap = made;
    else
        dcpk_remap_free(made);
    return st;
}

void dcpk_remap_free(struct dcpk_remap *remap)
{
    if (remap == NULL)
        return;
    dcpk_remap_free_delta(remap->delta);
    dcpk_remap_free_tables(remap);
    dcpk_remap_plan_free(remap->plan);
    dcpk_bytes_release(&remap->gathered);
    dcpk_arena_free(remap->arena);
    dcpk_free(remap);
}

const struct dcpk_remap_plan *dcpk_remap_plan(const struct dcpk_remap *remap)
{
    return remap->plan;
}

const struct dcpk_remap_stats *dcpk_remap_stats(const struct dcpk_remap *remap)
{
    return &remap->stats;
}

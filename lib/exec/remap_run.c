/* SPDX-License-Identifier: Apache-2.0 */
/* remap_run.c - the units of a plan, one after the other: move, meet, compare. */
/*
 * A rank that fails in the middle of a unit still takes part in all of its exchanges, with whatever
 * its messages hold, so that no other waits for it; the others learn of the failure when they meet.
 */
#include <inttypes.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/exec/remap_inside.h"

dcpk_status dcpk_remap_run_table(struct dcpk_remap *remap, int queue,
                                 const struct dcpk_table *table, uint64_t *sums,
                                 struct dcpk_error *err)
{
    struct dcpk_device *device = remap->options.device;

    if (table == NULL)
        return DCPK_OK;
    return device->ops->run(device, queue, table, sums, err);
}

static dcpk_status wait_for(struct dcpk_remap *remap, int queue, struct dcpk_error *err)
{
    return dcpk_device_wait(remap->options.device, queue, dcpk_remap_timeout(remap), err);
}

dcpk_status dcpk_remap_drain(struct dcpk_remap *remap, dcpk_status st, struct dcpk_error *err)
{
    int timeout_ms = dcpk_remap_timeout(remap);

    for (int queue = 0; queue < DCPK_N_QUEUES; queue++) {
        struct dcpk_error why = DCPK_ERROR_INIT;

        if (dcpk_device_wait(remap->options.device, queue, timeout_ms, &why) == DCPK_OK)
            continue;
        timeout_ms = 0; /* the others have had that time, too */
        if (st == DCPK_OK)
            *err = why;
        st = err->status;
    }
    return st;
}

/* Queue the packing of a round's messages; after the last round there is nothing to do. */
static dcpk_status pack_round(struct dcpk_remap *remap, const struct remap_unit *unit, size_t round,
                              struct dcpk_error *err)
{
    if (round >= unit->n_rounds)
        return DCPK_OK;
    return dcpk_remap_run_table(remap, QUEUE_PACK, unit->rounds[round].pack, remap->stored, err);
}

/* Runs the moves that need no messages. */
static dcpk_status run_direct(struct dcpk_remap *remap, const struct remap_unit *unit,
                              struct dcpk_error *err)
{
    if (dcpk_remap_run_table(remap, QUEUE_MOVE, unit->peers, remap->stored, err) ||
        dcpk_remap_run_table(remap, QUEUE_LOCAL, unit->local, remap->stored, err))
        return err->status;
    return DCPK_OK;
}

/* While the messages of a round are on the link: unpack those before, pack those after. The first
 * ones leave time for all that needs none. */
static dcpk_status work_beside(struct dcpk_remap *remap, const struct remap_unit *unit,
                               size_t round, struct dcpk_error *err)
{
    if (round == 0 && run_direct(remap, unit, err))
        return err->status;
    if (round > 0 &&
        dcpk_remap_run_table(remap, QUEUE_UNPACK, unit->rounds[round - 1].unpack, NULL, err))
        return err->status;
    return pack_round(remap, unit, round + 1, err);
}

/* Until what is packed can be sent, and what is unpacked be received again. */
static dcpk_status wait_for_messages(struct dcpk_remap *remap, struct dcpk_error *err)
{
    if (wait_for(remap, QUEUE_PACK, err) || wait_for(remap, QUEUE_UNPACK, err))
        return err->status;
    return DCPK_OK;
}

/* The link's part of a round. After its failure no further exchange is tried. */
static dcpk_status finish_exchange(struct dcpk_remap *remap, dcpk_status st, struct dcpk_error *err)
{
    const int timeout_ms = dcpk_remap_times(REMAP_LINK_FACTOR, dcpk_remap_timeout(remap));
    struct dcpk_error why = DCPK_ERROR_INIT;

    if (dcpk_link_wait(remap->options.link, timeout_ms, &why) == DCPK_OK)
        return st;
    remap->options.link->is_broken = true;
    if (st == DCPK_OK)
        *err = why;
    return err->status;
}

/* Begin a round. */
static dcpk_status begin_exchange(struct dcpk_remap *remap, const struct remap_round *round,
                                  dcpk_status st, struct dcpk_error *err)
{
    struct dcpk_link *link = remap->options.link;
    struct dcpk_error why = DCPK_ERROR_INIT;

    if (link->ops->begin(link, &round->exchange, &why) == DCPK_OK)
        return st;
    link->ops->abort(link);
    link->is_broken = true;
    if (st == DCPK_OK)
        *err = why;
    return err->status;
}

/*
 * Round k begins when its messages are packed and those of round k - 2, which had the same memory,
 * are unpacked. A link that takes two exchanges has the next one before this one is done, and never
 * waits for this rank.
 */
static dcpk_status run_rounds(struct dcpk_remap *remap, const struct remap_unit *unit,
                              dcpk_status st, struct dcpk_error *err)
{
    const struct dcpk_link *link = remap->options.link;
    const bool is_ahead = link->ops->n_under_way > 1;
    const size_t n = unit->n_rounds;

    if (st == DCPK_OK)
        st = pack_round(remap, unit, 0, err);
    for (size_t k = 0; k <= n && !link->is_broken; k++) {
        if (st == DCPK_OK)
            st = wait_for_messages(remap, err);
        if (k < n)
            st = begin_exchange(remap, &unit->rounds[k], st, err);
        if (is_ahead && k > 0 && !link->is_broken)
            st = finish_exchange(remap, st, err);
        if (st == DCPK_OK)
            st = work_beside(remap, unit, k, err);
        if (!is_ahead && k < n && !link->is_broken)
            st = finish_exchange(remap, st, err);
    }
    return st;
}

dcpk_status dcpk_remap_move_unit(struct dcpk_remap *remap, size_t unit, struct dcpk_error *err)
{
    struct dcpk_device *device = remap->options.device;
    const size_t sums_bytes = 2 * remap->n_sums * sizeof *remap->sums;
    dcpk_status st = DCPK_OK;

    if (remap->sums != NULL) {
        memset(remap->host_sums, 0, sums_bytes);
        st = device->ops->copy(device, QUEUE_MOVE, remap->sums, remap->host_sums, sums_bytes, err);
        if (st == DCPK_OK) /* for the other queue, too */
            st = wait_for(remap, QUEUE_MOVE, err);
    }
    if (remap->units[unit].n_rounds > 0)
        st = run_rounds(remap, &remap->units[unit], st, err);
    else if (st == DCPK_OK)
        st = run_direct(remap, &remap->units[unit], err);
    return dcpk_remap_drain(remap, st, err);
}

/* The sums of a unit's tensors over all ranks: what was stored against what has landed. */
static dcpk_status compare_unit_sums(const struct dcpk_remap *remap, size_t u,
                                     const struct dcpk_bytes *all, struct dcpk_error *err)
{
    const struct dcpk_remap_plan *plan = remap->plan;
    const size_t first = plan->units[u].first_tensor;

    for (size_t t = 0; first + t < plan->units[u + 1].first_tensor; t++) {
        uint64_t stored = 0, landed = 0;

        for (size_t r = 0; r < (size_t)remap->n_ranks; r++) {
            const uint8_t *sums = all->data + r * 2 * remap->n_sums * sizeof stored;
            uint64_t sum;

            memcpy(&sum, sums + t * sizeof sum, sizeof sum);
            stored += sum;
            memcpy(&sum, sums + (remap->n_sums + t) * sizeof sum, sizeof sum);
            landed += sum;
        }
        if (stored != landed)
            return dcpk_fail(err, DCPK_EIO,
                             "'%.200s' (unit %zu): what was sent has the fingerprint %016" PRIx64
                             ", what has arrived %016" PRIx64,
                             plan->tensors[first + t].name, u, stored, landed);
    }
    return DCPK_OK;
}

dcpk_status dcpk_remap_sum_landed(struct dcpk_remap *remap, size_t unit, struct dcpk_error *err)
{
    struct dcpk_device *device = remap->options.device;
    const size_t sums_bytes = 2 * remap->n_sums * sizeof *remap->sums;
    dcpk_status st;

    st = dcpk_remap_run_table(remap, QUEUE_MOVE, remap->units[unit].landed,
                              remap->sums + remap->n_sums, err);
    if (st == DCPK_OK)
        st = device->ops->copy(device, QUEUE_MOVE, remap->host_sums, remap->sums, sums_bytes, err);
    return dcpk_remap_drain(remap, st, err);
}

dcpk_status dcpk_remap_compare_unit(struct dcpk_remap *remap, size_t unit, dcpk_status st,
                                    struct dcpk_error *err)
{
    struct dcpk_bytes all = {0};

    st = dcpk_ranks_share_each(remap->options.ranks, remap->host_sums,
                               2 * remap->n_sums * sizeof *remap->sums, &all, st, err);
    if (st == DCPK_OK)
        st = compare_unit_sums(remap, unit, &all, err);
    dcpk_bytes_release(&all);
    return dcpk_ranks_agree(remap->options.ranks, st, err);
}

dcpk_status dcpk_remap_begin_run(struct dcpk_remap *remap, struct dcpk_error *err)
{
    dcpk_status st = DCPK_OK;

    for (size_t u = 0; u < remap->plan->n_units && st == DCPK_OK; u++)
        if (remap->units[u].n_rounds > 0)
            st = dcpk_remap_check_link(remap, err);
    return dcpk_ranks_agree(remap->options.ranks, st, err);
}

dcpk_status dcpk_remap_run_units(struct dcpk_remap *remap, dcpk_remap_done *done, void *context,
                                 struct dcpk_error *err)
{
    struct dcpk_ranks *ranks = remap->options.ranks;

    remap->stats.units_done = 0;
    if (dcpk_remap_begin_run(remap, err))
        return err->status;
    for (size_t u = 0; u < remap->plan->n_units; u++) {
        if (dcpk_ranks_agree(ranks, dcpk_remap_move_unit(remap, u, err), err))
            return err->status;
        if (remap->sums != NULL &&
            dcpk_remap_compare_unit(remap, u, dcpk_remap_sum_landed(remap, u, err), err))
            return err->status;
        remap->stats.units_done++;
        if (done != NULL)
            done(context, u);
    }
    return DCPK_OK;
}

dcpk_status dcpk_remap_run(struct dcpk_remap *remap, dcpk_remap_done *done, void *context,
                           struct dcpk_error *err)
{
    const double begun = dcpk_now_seconds();
    const int timeout_ms = dcpk_remap_times(REMAP_RANKS_FACTOR, dcpk_remap_timeout(remap));
    const int before = dcpk_ranks_set_timeout(remap->options.ranks, timeout_ms);
    dcpk_status st;

    dcpk_remap_forget(remap->delta);
    st = dcpk_remap_run_units(remap, done, context, err);
    (void)dcpk_ranks_set_timeout(remap->options.ranks, before);
    remap->stats.seconds = dcpk_now_seconds() - begun;
    return st;
}

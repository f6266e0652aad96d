/* SPDX-License-Identifier: Apache-2.0 */
/* write_ranks.c - one output written by several ranks: shares of the units, and what they came
 * to. */
#include <assert.h>

#include "lib/base/bytes.h"
#include "lib/base/cursor.h"
#include "lib/write/write_priv.h"

/* A unit and what it came to, as one word of dcpk_ranks_send: 2^30 units are 64 EiB. */
#define CRC_BITS 32
static uint64_t pack_result(uint64_t unit, uint32_t crc32)
{
    assert(unit >> (DCPK_RANKS_WORD_BITS - CRC_BITS) == 0);
    return unit << CRC_BITS | crc32;
}

/* Numbers of units that do not exist are left out: units without a result are found at the end. */
static void unpack_result(void *writing, uint64_t word)
{
    const struct dcpk_writing *w = writing;

    if (word >> CRC_BITS < w->units.n)
        dcpk_writing_set_result(writing, (size_t)(word >> CRC_BITS), (uint32_t)word);
}

static dcpk_status tell_result(void *ranks, uint64_t unit, uint32_t crc32, struct dcpk_error *err)
{
    return dcpk_ranks_send(ranks, pack_result(unit, crc32), err);
}

/* Collective: what rank 0 found done by an earlier run is done for all. */
static dcpk_status share_found(struct dcpk_writing *w, struct dcpk_ranks *ranks,
                               struct dcpk_error *err)
{
    struct dcpk_bytes mine = {0}, all = {0};
    dcpk_status st;

    for (size_t i = 0; i < w->units.n && dcpk_ranks_self(ranks) == 0; i++)
        if (w->states[i].is_done)
            dcpk_bytes_u64(&mine, pack_result(i, w->states[i].crc32));
    st = dcpk_ranks_share(ranks, mine.data, mine.n_bytes, &all, dcpk_bytes_status(&mine, err), err);
    if (st == DCPK_OK && all.n_bytes % 8 != 0)
        st = dcpk_fail(err, DCPK_EIO, "rank 0 has %zu bytes of results", all.n_bytes);
    for (size_t at = 0; st == DCPK_OK && at < all.n_bytes && dcpk_ranks_self(ranks) != 0; at += 8)
        unpack_result(w, dcpk_load_u64le(all.data + at));
    dcpk_bytes_release(&mine);
    dcpk_bytes_release(&all);
    return st;
}

/* Work of a unit that is left. */
static uint64_t left_of(const void *writing, uint64_t unit)
{
    const struct dcpk_writing *w = writing;

    return w->states[unit].is_done ? 0 : dcpk_unit_work(&w->units, (size_t)unit);
}

static dcpk_status record_turn(void *writing, struct dcpk_error *err)
{
    return dcpk_writing_record(writing, err);
}

/*
 * Units that are done count also when the rest fails: they are sent, and rank 0 records them,
 * before the agreement, which may never come when another rank has died.
 */
static dcpk_status run_share(struct dcpk_writing *w, struct dcpk_ranks *ranks,
                             struct dcpk_error *err)
{
    const bool keeps_journal = dcpk_ranks_self(ranks) == 0;
    struct dcpk_work work = {.n = w->units.n, .bytes_of = left_of, .context = w};
    struct dcpk_error ignored = DCPK_ERROR_INIT;
    dcpk_status st = DCPK_OK;

    dcpk_ranks_divide(ranks, &work); /* before any unit is done */
    w->meter.progress = dcpk_ranks_progress(ranks, w->exec->progress, w->meter.total_bytes);
    if (keeps_journal)
        dcpk_ranks_listen(ranks, unpack_result, w);
    else
        dcpk_writing_report(w, tell_result, ranks);
    if (keeps_journal)
        st = dcpk_writing_payloads(w, err);
    if (st == DCPK_OK)
        st = dcpk_writing_run(w, (size_t)work.first, (size_t)work.last, err);
    if (st == DCPK_OK)
        st = dcpk_writing_record(w, err);
    if (st == DCPK_OK)
        st = dcpk_ranks_wait(ranks, record_turn, w, err);
    if (st != DCPK_OK && keeps_journal)
        (void)dcpk_writing_keep(w);
    else if (st != DCPK_OK)
        (void)dcpk_writing_record(w, &ignored);
    return st;
}

dcpk_status dcpk_writing_run_all(struct dcpk_writing *w, struct dcpk_error *err)
{
    struct dcpk_ranks *ranks = w->exec->ranks;
    dcpk_status st;

    if (ranks == NULL) {
        if (dcpk_writing_payloads(w, err) != DCPK_OK)
            return err->status;
        return dcpk_writing_run(w, 0, w->units.n, err);
    }
    st = share_found(w, ranks, err);
    if (st != DCPK_OK)
        return st;
    st = run_share(w, ranks, err);
    return dcpk_workers_share(w->exec, w->workers, &w->elsewhere, st, err);
}

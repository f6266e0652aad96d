/* SPDX-License-Identifier: Apache-2.0 */
/* write_ranks.c - one output written by several ranks: shares of the units, and what they came to.
 */
#include <assert.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/cursor.h"
#include "lib/exec/write_priv.h"

/* A unit and what it came to, as one word of dcpk_ranks_tell: 2^30 units are 64 EiB. */
#define CRC_BITS 32
static uint64_t pack_result(uint64_t unit, uint32_t crc32)
{
    assert(unit >> (DCPK_RANKS_WORD_BITS - CRC_BITS) == 0);
    return unit << CRC_BITS | crc32;
}

static void unpack_result(void *writing, uint64_t word)
{
    dcpk_writing_set_result(writing, (size_t)(word >> CRC_BITS), (uint32_t)word);
}

static dcpk_status tell_result(void *ranks, uint64_t unit, uint32_t crc32, struct dcpk_error *err)
{
    return dcpk_ranks_tell(ranks, pack_result(unit, crc32), err);
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
    for (size_t at = 0; st == DCPK_OK && at < all.n_bytes && dcpk_ranks_self(ranks) != 0; at += 8)
        unpack_result(w, dcpk_load_u64le(all.data + at));
    dcpk_bytes_release(&mine);
    dcpk_bytes_release(&all);
    return st;
}

/* Bytes of the units that are still to be done. */
static uint64_t bytes_left(const struct dcpk_writing *w)
{
    uint64_t n_bytes = 0;

    for (size_t i = 0; i < w->units.n; i++)
        n_bytes += w->states[i].is_done ? 0 : dcpk_unit_bytes(&w->units, i);
    return n_bytes;
}

/*
 * This rank's units, *first .. *last - 1: of the bytes that are left as many as of any other, to a
 * unit. All ranks must ask before any of them begins.
 */
static void find_share(const struct dcpk_writing *w, const struct dcpk_ranks *ranks, size_t *first,
                       size_t *last)
{
    const uint64_t n_ranks = (uint64_t)dcpk_ranks_count(ranks);
    const uint64_t self = (uint64_t)dcpk_ranks_self(ranks);
    const uint64_t share = bytes_left(w) / n_ranks + 1;
    uint64_t before = 0;

    *first = *last = 0;
    for (size_t i = 0; i < w->units.n; i++) {
        *first += before < self * share;
        *last += before < (self + 1) * share;
        before += w->states[i].is_done ? 0 : dcpk_unit_bytes(&w->units, i);
    }
}

static dcpk_status record(void *writing, struct dcpk_error *err)
{
    return dcpk_writing_record(writing, err);
}

/*
 * What has been done counts also when the rest fails: it is told, and rank 0 writes it down, before
 * the agreement, which may never come when another rank has died.
 */
static dcpk_status run_share(struct dcpk_writing *w, struct dcpk_ranks *ranks,
                             struct dcpk_error *err)
{
    const bool keeps_journal = dcpk_ranks_self(ranks) == 0;
    struct dcpk_error ignored = DCPK_ERROR_INIT;
    size_t first, last;
    dcpk_status st;

    find_share(w, ranks, &first, &last);
    if (keeps_journal)
        dcpk_ranks_listen(ranks, unpack_result, w);
    else
        dcpk_writing_report(w, tell_result, ranks);
    st = keeps_journal ? dcpk_writing_payloads(w, err) : DCPK_OK;
    if (st == DCPK_OK)
        st = dcpk_writing_run(w, first, last, err);
    if (st == DCPK_OK)
        st = dcpk_writing_record(w, err);
    if (st == DCPK_OK)
        st = dcpk_ranks_wait(ranks, record, w, err);
    if (st != DCPK_OK && keeps_journal)
        (void)dcpk_writing_keep(w);
    else if (st != DCPK_OK)
        (void)dcpk_writing_record(w, &ignored);
    return st;
}

/* Collective: rank 0 learns how much the others have moved. */
static dcpk_status share_counts(struct dcpk_writing *w, struct dcpk_ranks *ranks, dcpk_status st,
                                struct dcpk_error *err)
{
    struct dcpk_bytes all = {0};
    struct dcpk_exec_stats mine = {0};

    if (dcpk_ranks_self(ranks) != 0)
        dcpk_workers_count(w->exec, w->workers, &mine);
    st = dcpk_ranks_share(ranks, &mine, sizeof mine, &all, st, err);
    for (size_t at = 0; st == DCPK_OK && at < all.n_bytes; at += sizeof mine) {
        memcpy(&mine, all.data + at, sizeof mine);
        w->elsewhere.read_bytes += mine.read_bytes;
        w->elsewhere.written_bytes += mine.written_bytes;
    }
    dcpk_bytes_release(&all);
    return st;
}

dcpk_status dcpk_writing_run_ranks(struct dcpk_writing *w, struct dcpk_ranks *ranks,
                                   struct dcpk_error *err)
{
    dcpk_status st;

    if (ranks == NULL) {
        st = dcpk_writing_payloads(w, err);
        return st == DCPK_OK ? dcpk_writing_run(w, 0, w->units.n, err) : st;
    }
    st = share_found(w, ranks, err);
    return st == DCPK_OK ? share_counts(w, ranks, run_share(w, ranks, err), err) : st;
}

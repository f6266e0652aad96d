/* SPDX-License-Identifier: Apache-2.0 */
/* writing.c - writes a planned output: payloads, then units of tensor data in the order of the
 * files, then the format's finish. */
#include <assert.h>

#include "lib/base/alloc.h"
#include "lib/base/bytes.h"
#include "lib/base/cursor.h"
#include "lib/base/digest.h"
#include "lib/base/order.h"
#include "lib/exec/pool.h"
#include "lib/write/write_priv.h"

void dcpk_writing_free(struct dcpk_writing *w)
{
    if (w == NULL)
        return;
    for (size_t f = 0; w->files != NULL && f < w->out->n_files; f++)
        dcpk_sink_abandon(w->files[f].sink);
    for (size_t t = 0; w->trees != NULL && t < w->out->n_tensors; t++) {
        if (w->trees[t] != NULL)
            dcpk_box_tree_release(w->trees[t]);
        dcpk_free(w->trees[t]);
    }
    dcpk_free(w->trees);
    dcpk_free(w->files);
    dcpk_free(w->states);
    dcpk_free(w->entries);
    dcpk_free(w->keeping.records);
    dcpk_journal_release(&w->keeping.journal);
    dcpk_units_release(&w->units);
    dcpk_workers_free(w->exec, w->workers);
    pthread_mutex_destroy(&w->mutex);
    if (!w->meter_ended)
        (void)dcpk_meter_end(&w->meter, w->exec, w->workers, NULL, DCPK_ECANCELLED);
    dcpk_free(w);
}

static uint64_t total_bytes(const struct dcpk_output *out)
{
    uint64_t n = 0;

    for (size_t i = 0; i < out->n_chunks; i++)
        n += out->chunks[i].data_bytes;
    for (size_t i = 0; i < out->n_payloads; i++)
        n += out->payloads[i].n_bytes;
    return n;
}

static dcpk_status allocate(struct dcpk_writing *w, struct dcpk_error *err)
{
    w->workers = dcpk_workers_new(w->exec, err);
    if (w->workers == NULL)
        return err->status;
    w->files = dcpk_alloc_array(w->out->n_files, sizeof *w->files, err);
    if (w->files == NULL)
        return err->status;
    w->states = dcpk_alloc_array(w->units.n, sizeof *w->states, err);
    if (w->states == NULL)
        return err->status;
    for (size_t i = 0; i < w->out->n_chunks; i++)
        w->files[w->out->chunks[i].file].has_chunks = true;
    return DCPK_OK;
}

dcpk_status dcpk_writing_new(struct dcpk_exec *exec, struct dcpk_output *out,
                             struct dcpk_folder *folder, struct dcpk_writing **writing,
                             struct dcpk_error *err)
{
    struct dcpk_writing *w = dcpk_alloc(sizeof *w, err);
    dcpk_status st;

    if (w == NULL)
        return err->status;
    w->exec = exec;
    w->out = out;
    w->folder = folder;
    w->is_ahead = out->format->writer->write_ahead == NULL;
    pthread_mutex_init(&w->mutex, NULL);
    dcpk_meter_begin(&w->meter, &exec->progress, total_bytes(out));
    st = dcpk_units_cut(out, exec->unit_bytes, &w->units, err);
    if (st == DCPK_OK)
        st = allocate(w, err);
    if (st == DCPK_OK)
        st = dcpk_write_make_trees(w, err);
    for (size_t f = 0; f < out->n_files && st == DCPK_OK; f++)
        st = dcpk_folder_reserve(folder, out->files[f].name, out->files[f].n_bytes, err);
    if (st == DCPK_OK)
        *writing = w;
    else
        dcpk_writing_free(w);
    return st;
}

const struct dcpk_units *dcpk_writing_units(const struct dcpk_writing *w)
{
    return &w->units;
}

/* On rank 0, once. */
static dcpk_status write_ahead(struct dcpk_writing *w, struct dcpk_error *err)
{
    if (w->is_ahead || dcpk_ranks_self(w->exec->ranks) != 0)
        return DCPK_OK;
    w->is_ahead = true;
    return w->out->format->writer->write_ahead(w->out, w->folder, err);
}

/* The metadata written ahead is the first task; other threads begin with the units meanwhile. */
static dcpk_status run_task(void *writing, int worker, uint64_t task, struct dcpk_error *err)
{
    if (task == 0)
        return write_ahead(writing, err);
    return dcpk_write_task(writing, worker, dcpk_write_spread(writing, task - 1), err);
}

dcpk_status dcpk_writing_run(struct dcpk_writing *w, size_t first, size_t last,
                             struct dcpk_error *err)
{
    if (dcpk_write_prepare(w, first, last, err) != DCPK_OK)
        return err->status;
    w->n_streams = dcpk_min_u64((uint64_t)w->exec->n_threads, dcpk_max_u64(w->out->n_files, 1));
    return dcpk_pool_run(w->exec->n_threads, 1 + w->n_tasks, run_task, w, err);
}

/* The checksum of a chunk whose parts are the units from `first` on; *last: after them. */
static uint32_t join_parts(const struct dcpk_writing *w, size_t first, size_t *last)
{
    const uint32_t chunk = w->units.units[first].first;
    uint32_t crc32 = 0;
    size_t i;

    for (i = first; i < w->units.n && w->units.units[i].first == chunk; i++) {
        assert(w->states[i].is_done);
        crc32 = dcpk_crc32_combine(crc32, w->states[i].crc32, dcpk_unit_bytes(&w->units, i));
    }
    *last = i;
    return crc32;
}

/* Other ranks report what they have written. */
static dcpk_status check_all_done(const struct dcpk_writing *w, struct dcpk_error *err)
{
    for (size_t i = 0; i < w->units.n; i++)
        if (!w->states[i].is_done)
            return dcpk_fail(err, DCPK_EIO,
                             "no rank has reported unit %zu of %zu (please report this)", i,
                             w->units.n);
    return DCPK_OK;
}

/* Frames of the chunks in parts, which no unit writes. */
static dcpk_status write_frames(struct dcpk_writing *w, struct dcpk_error *err)
{
    dcpk_status st = check_all_done(w, err);

    for (size_t i = 0, next; i < w->units.n && st == DCPK_OK; i = next) {
        const struct dcpk_unit *unit = &w->units.units[i];
        const struct dcpk_out_chunk *chunk = dcpk_units_chunk(&w->units, unit->first);
        struct dcpk_sink *sink;
        uint32_t crc32;

        next = i + 1;
        if (unit->n_chunks > 0)
            continue;
        crc32 = join_parts(w, i, &next);
        st = dcpk_write_open(w, chunk->file, &sink, err);
        if (st == DCPK_OK)
            st = dcpk_write_frame(w, &w->workers[0], chunk, crc32, sink, err);
        if (st != DCPK_OK)
            dcpk_context(err, "writing '%s'", w->out->tensors[chunk->tensor].keys[0]);
    }
    return st;
}

/* Syncs files that hold only payloads and frames, makes empty ones, and takes over files that other
 * ranks made. */
static dcpk_status close_files(struct dcpk_writing *w, struct dcpk_error *err)
{
    for (uint32_t f = 0; f < w->out->n_files; f++) {
        const struct dcpk_out_file *out = &w->out->files[f];
        struct dcpk_sink *sink;
        bool taken;

        if ((!w->files[f].was_opened && dcpk_write_open(w, f, &sink, err) != DCPK_OK) ||
            dcpk_write_close(w, f, err) != DCPK_OK ||
            dcpk_folder_take(w->folder, out->name, out->n_bytes, &taken, err) != DCPK_OK)
            return err->status;
        if (!taken)
            return dcpk_fail(
                err, DCPK_EIO,
                "'%s' is not the file that another rank wrote: something has replaced it",
                out->name);
    }
    return DCPK_OK;
}

static dcpk_status write_small_files(struct dcpk_writing *w, struct dcpk_error *err)
{
    for (size_t i = 0; i < w->out->n_small_files; i++) {
        const struct dcpk_small_file *file = &w->out->small_files[i];

        if (dcpk_folder_put(w->folder, file->name, file->data, file->n_bytes, err) != DCPK_OK)
            return dcpk_context(err, "writing '%s'", file->name);
    }
    return DCPK_OK;
}

dcpk_status dcpk_writing_finish(struct dcpk_writing *w, struct dcpk_exec_stats *stats,
                                struct dcpk_error *err)
{
    dcpk_status st = write_frames(w, err);

    if (st == DCPK_OK)
        st = close_files(w, err);
    if (st == DCPK_OK)
        st = write_ahead(w, err);
    if (st == DCPK_OK)
        st = w->out->format->writer->finish(w->out, w->folder, err);
    if (st == DCPK_OK)
        st = write_small_files(w, err);
    w->meter_ended = true;
    st = dcpk_meter_end(&w->meter, w->exec, w->workers, stats, st);
    if (st == DCPK_OK && stats != NULL) {
        stats->read_bytes += w->elsewhere.read_bytes;
        stats->written_bytes += w->elsewhere.written_bytes;
        stats->n_zero_scales += w->elsewhere.n_zero_scales;
    }
    return st;
}

/* ---- ranks ---- */

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

/* SPDX-License-Identifier: Apache-2.0 */
/* write_task.c - one task of a conversion: a batch of small items, or a slab of a large one. */
#include <assert.h>

#include "lib/base/digest.h"
#include "lib/base/order.h"
#include "lib/write/write_priv.h"

/* A task of the unit is done; the last one leaves its file, and may have to commit. */
static dcpk_status task_done(struct dcpk_writing *w, uint32_t unit, struct dcpk_error *err)
{
    struct dcpk_unit_state *state = &w->states[unit];
    bool is_last, is_due = false;
    dcpk_status st;

    pthread_mutex_lock(&w->mutex);
    is_last = --state->n_tasks_left == 0;
    if (is_last) {
        state->is_done = true;
        dcpk_write_note_done(w, unit);
        is_due = dcpk_write_commit_is_due(w);
    }
    pthread_mutex_unlock(&w->mutex);
    if (!is_last)
        return DCPK_OK;
    st = dcpk_write_leave(w, dcpk_unit_file(&w->units, unit), err);
    if (st != DCPK_OK || !is_due)
        return st;
    return dcpk_write_commit(w, err);
}

dcpk_status dcpk_write_out(struct dcpk_worker *worker, struct dcpk_sink *sink,
                           uint64_t offset_bytes, const void *data, uint64_t n_bytes,
                           struct dcpk_error *err)
{
    const dcpk_status st = dcpk_sink_write(sink, offset_bytes, data, (size_t)n_bytes, err);

    if (st == DCPK_OK)
        worker->written_bytes += n_bytes;
    return st;
}

static dcpk_status fetch_box(struct dcpk_writing *w, struct dcpk_worker *worker,
                             const struct dcpk_out_chunk *chunk, const struct dcpk_box *box,
                             void *out, struct dcpk_error *err)
{
    const struct dcpk_view view = dcpk_write_view(&w->out->tensors[chunk->tensor]);
    struct dcpk_gather_from from = {&view, w->trees[chunk->tensor]};
    struct dcpk_box_tree few;
    dcpk_status st;

    if (from.pieces != NULL)
        return dcpk_gather(w->exec, worker, &from, box, out, err);
    from.pieces = &few;
    st = dcpk_piece_tree_build(&view, &few, err);
    if (st == DCPK_OK)
        st = dcpk_gather(w->exec, worker, &from, box, out, err);
    dcpk_box_tree_release(&few);
    return st;
}

/* Chunks of the unit are written whole; sum: of those. */
static void add_sum(struct dcpk_writing *w, uint32_t unit, uint32_t sum)
{
    pthread_mutex_lock(&w->mutex);
    w->states[unit].crc32 ^= sum;
    pthread_mutex_unlock(&w->mutex);
}

/* Put a whole item into memory: lead, data, tail. Adds to the sum of its unit. */
static dcpk_status make_item(struct dcpk_writing *w, struct dcpk_worker *worker,
                             const struct dcpk_out_chunk *chunk, uint8_t *item, uint32_t *sum,
                             struct dcpk_error *err)
{
    const struct dcpk_out_tensor *tensor = &w->out->tensors[chunk->tensor];
    uint8_t *data = item + chunk->lead_bytes;
    struct dcpk_box box;
    uint32_t crc32;
    dcpk_status st;

    dcpk_box_unpack(chunk->span, tensor->rank, &box);
    st = fetch_box(w, worker, chunk, &box, data, err);
    if (st == DCPK_OK) {
        crc32 = dcpk_crc32(0, data, (size_t)chunk->data_bytes);
        *sum ^= dcpk_write_sum(chunk, crc32);
        st = dcpk_write_make_frame(w, chunk, crc32, item, data + chunk->data_bytes, err);
    }
    if (st != DCPK_OK)
        dcpk_context(err, "writing '%s'", tensor->keys[0]);
    return st;
}

static dcpk_status write_batch(struct dcpk_writing *w, struct dcpk_worker *worker,
                               const struct dcpk_entry *entry, struct dcpk_sink *sink,
                               struct dcpk_error *err)
{
    const uint64_t first = dcpk_units_chunk(&w->units, entry->first)->offset_bytes;
    uint64_t n_bytes = 0, data_bytes = 0;
    dcpk_status st = DCPK_OK;
    uint32_t sum = 0;

    for (uint32_t i = 0; i < entry->n_batch && st == DCPK_OK; i++) {
        const struct dcpk_out_chunk *chunk = dcpk_units_chunk(&w->units, entry->first + i);

        assert(chunk->offset_bytes == first + n_bytes);
        st = make_item(w, worker, chunk, worker->buffer + n_bytes, &sum, err);
        n_bytes += dcpk_write_item_bytes(chunk);
        data_bytes += chunk->data_bytes;
    }
    if (st == DCPK_OK)
        st = dcpk_write_out(worker, sink, first, worker->buffer, n_bytes, err);
    if (st != DCPK_OK)
        return st;
    add_sum(w, entry->unit, sum);
    dcpk_sink_flush(sink, first, n_bytes);
    return dcpk_meter_add(&w->meter, data_bytes, err);
}

/*
 * Account for a slab of `entry` whose checksum is crc32, with bytes_after of the entry's bytes
 * after it. Returns whether it was the last one, *entry_crc32 then the checksum of all. CRC(A B) =
 * shift(CRC(A), bytes of B) ^ CRC(B), and combine(a, b, n) = shift(a, n) ^ b: so the checksum of
 * the whole is the sum of its slabs', each shifted by what follows, in any order.
 */
static bool slab_done(struct dcpk_writing *w, struct dcpk_entry *entry, uint32_t crc32,
                      uint64_t bytes_after, uint32_t *entry_crc32)
{
    const uint32_t shifted = dcpk_crc32_combine(crc32, 0, bytes_after);
    bool is_last;

    pthread_mutex_lock(&w->mutex);
    entry->crc32 ^= shifted;
    *entry_crc32 = entry->crc32;
    is_last = --entry->n_slabs_left == 0;
    pthread_mutex_unlock(&w->mutex);
    return is_last;
}

dcpk_status dcpk_write_frame(struct dcpk_writing *w, struct dcpk_worker *worker,
                             const struct dcpk_out_chunk *chunk, uint32_t crc32,
                             struct dcpk_sink *sink, struct dcpk_error *err)
{
    uint8_t *lead = worker->buffer, *tail = lead + chunk->lead_bytes;

    assert((uint64_t)chunk->lead_bytes + chunk->tail_bytes <= worker->buffer_bytes);
    if (dcpk_write_make_frame(w, chunk, crc32, lead, tail, err) ||
        dcpk_write_out(worker, sink, chunk->offset_bytes, lead, chunk->lead_bytes, err) ||
        dcpk_write_out(worker, sink, chunk->offset_bytes + chunk->lead_bytes + chunk->data_bytes,
                       tail, chunk->tail_bytes, err))
        return err->status;
    return DCPK_OK;
}

/* All slabs of an entry are written; crc32 is that of its bytes. */
static dcpk_status entry_done(struct dcpk_writing *w, struct dcpk_worker *worker,
                              const struct dcpk_entry *entry, uint32_t crc32,
                              struct dcpk_sink *sink, struct dcpk_error *err)
{
    const struct dcpk_out_chunk *chunk = dcpk_units_chunk(&w->units, entry->first);

    if (w->units.units[entry->unit].n_chunks == 0) {
        w->states[entry->unit].crc32 = crc32;
        return DCPK_OK;
    }
    add_sum(w, entry->unit, dcpk_write_sum(chunk, crc32));
    return dcpk_write_frame(w, worker, chunk, crc32, sink, err);
}

static dcpk_status write_slab(struct dcpk_writing *w, struct dcpk_worker *worker,
                              struct dcpk_entry *entry, uint64_t slab_number,
                              struct dcpk_sink *sink, struct dcpk_error *err)
{
    const struct dcpk_out_chunk *chunk = dcpk_units_chunk(&w->units, entry->first);
    const struct dcpk_out_tensor *tensor = &w->out->tensors[chunk->tensor];
    const size_t elem_bytes = dcpk_dtype_bytes(tensor->dtype);
    uint64_t before, first, n_bytes, at;
    struct dcpk_slabs slabs;
    struct dcpk_box box;
    uint32_t crc32;
    dcpk_status st;

    dcpk_write_cut(w, entry, &slabs, &before);
    dcpk_slabs_box(&slabs, slab_number, &box);
    first = dcpk_slabs_first(&slabs, slab_number) * elem_bytes;
    n_bytes = dcpk_box_elems(&box) * elem_bytes;
    at = chunk->offset_bytes + chunk->lead_bytes + before + first;
    st = fetch_box(w, worker, chunk, &box, worker->buffer, err);
    if (st != DCPK_OK)
        goto out;
    crc32 = dcpk_crc32(0, worker->buffer, (size_t)n_bytes);
    st = dcpk_write_out(worker, sink, at, worker->buffer, n_bytes, err);
    if (st != DCPK_OK)
        goto out;
    dcpk_sink_flush(sink, at, n_bytes);
    if (slab_done(w, entry, crc32, dcpk_box_elems(&slabs.box) * elem_bytes - first - n_bytes,
                  &crc32))
        st = entry_done(w, worker, entry, crc32, sink, err);
    if (st == DCPK_OK)
        st = dcpk_meter_add(&w->meter, n_bytes, err);
out:
    if (st != DCPK_OK)
        dcpk_context(err, "writing '%s'", tensor->keys[0]);
    return st;
}

/* The entry that holds a task. */
static struct dcpk_entry *find_entry(const struct dcpk_writing *w, uint64_t task)
{
    struct dcpk_entry *all = w->entries;

    return &all[dcpk_find_last(&all->first_task, sizeof *all, w->n_entries, task)];
}

uint64_t dcpk_write_spread(const struct dcpk_writing *w, uint64_t i)
{
    const uint64_t stream = i % w->n_streams, longer = w->n_tasks % w->n_streams;

    return stream * (w->n_tasks / w->n_streams) + dcpk_min_u64(stream, longer) + i / w->n_streams;
}

/*
 * Let the system read what the task after the next one of each thread wants, while this one works.
 */
static void advise_task(struct dcpk_writing *w, uint64_t task)
{
    const struct dcpk_out_chunk *chunk;
    const struct dcpk_entry *entry;
    struct dcpk_box_tree pieces;
    struct dcpk_error ignored = DCPK_ERROR_INIT;
    struct dcpk_view view;
    struct dcpk_slabs slabs;
    struct dcpk_box box;
    uint64_t before;

    if (task >= w->n_tasks)
        return;
    entry = find_entry(w, task);
    chunk = dcpk_units_chunk(&w->units, entry->first);
    if (entry->n_batch > 1 || w->trees[chunk->tensor] != NULL)
        return;
    dcpk_write_cut(w, entry, &slabs, &before);
    if (entry->n_batch == 0)
        dcpk_slabs_box(&slabs, task - entry->first_task, &box);
    else
        box = slabs.box;
    view = dcpk_write_view(&w->out->tensors[chunk->tensor]);
    if (dcpk_piece_tree_build(&view, &pieces, &ignored) == DCPK_OK)
        dcpk_gather_advise(w->exec, &(struct dcpk_gather_from){&view, &pieces}, &box);
    dcpk_box_tree_release(&pieces);
}

dcpk_status dcpk_write_task(void *writing, int worker_number, uint64_t task, struct dcpk_error *err)
{
    struct dcpk_writing *w = writing;
    struct dcpk_worker *worker = &w->workers[worker_number];
    struct dcpk_entry *entry = find_entry(w, task);
    struct dcpk_sink *sink;
    dcpk_status st;

    st = dcpk_write_open(w, dcpk_unit_file(&w->units, entry->unit), &sink, err);
    if (st != DCPK_OK)
        return st;
    advise_task(w, task + (uint64_t)w->exec->n_threads / w->n_streams);
    if (entry->n_batch > 0)
        st = write_batch(w, worker, entry, sink, err);
    else
        st = write_slab(w, worker, entry, task - entry->first_task, sink, err);
    if (st != DCPK_OK)
        return st;
    return task_done(w, entry->unit, err);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* write_check.c - reads back what an earlier run has written before it is continued. */
/*
 * A journal records what was on disk once. Since then the disk, another program or another hand may
 * have changed it: every byte that is taken over is read once, its checksums are compared with
 * those of the journal, and frames with those that would be written.
 */
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/digest.h"
#include "lib/base/order.h"
#include "lib/exec/pool.h"
#include "lib/write/write_priv.h"

/* The units to be checked. */
struct checking {
    struct dcpk_writing *w;
    uint32_t *units;
    bool *is_bad;
    size_t n;
};

/* A unit's bytes of a file, read from the front to the end through a worker's buffer. */
struct reading {
    struct dcpk_writing *w;
    struct dcpk_worker *worker;
    struct dcpk_sink *sink;
    uint64_t offset_bytes, end_bytes; /* of the bytes in the buffer, and of the unit */
    size_t n_bytes;                   /* in the buffer */
    uint8_t *frames;                  /* of one chunk: as it is there, then as it should be */
    size_t frame_bytes;
};

/* The bytes at a place: *data, *n of them, at most `most`. */
static dcpk_status reading_get(struct reading *r, uint64_t at, uint64_t most, const uint8_t **data,
                               size_t *n, struct dcpk_error *err)
{
    const uint64_t left = r->end_bytes - at;
    uint64_t there;

    if (at < r->offset_bytes || at >= r->offset_bytes + r->n_bytes) {
        r->offset_bytes = at;
        r->n_bytes = (size_t)dcpk_min_u64(left, r->worker->buffer_bytes);
        if (dcpk_sink_read(r->sink, at, r->worker->buffer, r->n_bytes, err) != DCPK_OK) {
            r->n_bytes = 0;
            return err->status;
        }
        r->worker->read_bytes += r->n_bytes;
    }
    there = r->offset_bytes + r->n_bytes - at;
    *data = r->worker->buffer + (at - r->offset_bytes);
    *n = (size_t)dcpk_min_u64(there, most);
    return DCPK_OK;
}

static dcpk_status reading_copy(struct reading *r, uint64_t at, uint8_t *out, size_t n_bytes,
                                struct dcpk_error *err)
{
    const uint8_t *data;
    size_t n;

    for (; n_bytes > 0; n_bytes -= n, at += n, out += n) {
        if (reading_get(r, at, n_bytes, &data, &n, err) != DCPK_OK)
            return err->status;
        memcpy(out, data, n);
    }
    return DCPK_OK;
}

static dcpk_status reading_sum(struct reading *r, uint64_t at, uint64_t n_bytes, uint32_t *crc32,
                               struct dcpk_error *err)
{
    const uint8_t *data;
    size_t n;

    for (*crc32 = 0; n_bytes > 0; n_bytes -= n, at += n) {
        if (reading_get(r, at, n_bytes, &data, &n, err) != DCPK_OK)
            return err->status;
        *crc32 = dcpk_crc32(*crc32, data, n);
    }
    return DCPK_OK;
}

/* A part of a chunk: its frame is written in any case. */
static dcpk_status write_check_part(struct reading *r, size_t unit, bool *is_bad,
                                    struct dcpk_error *err)
{
    const struct dcpk_units *units = &r->w->units;
    const struct dcpk_out_chunk *chunk = dcpk_units_chunk(units, units->units[unit].first);
    struct dcpk_box box;
    uint64_t before, at;
    uint32_t crc32;

    dcpk_unit_part_box(units, unit, &box, &before);
    at = chunk->offset_bytes + chunk->lead_bytes + before;
    r->end_bytes = at + dcpk_unit_bytes(units, unit);
    if (reading_sum(r, at, r->end_bytes - at, &crc32, err) != DCPK_OK)
        return err->status;
    *is_bad = crc32 != r->w->states[unit].crc32;
    return DCPK_OK;
}

/* One chunk with its frame: adds to the sum of its unit. */
static dcpk_status check_chunk(struct reading *r, const struct dcpk_out_chunk *chunk, uint32_t *sum,
                               bool *is_bad, struct dcpk_error *err)
{
    const uint64_t data_at = chunk->offset_bytes + chunk->lead_bytes;
    const size_t frame_bytes = (size_t)chunk->lead_bytes + chunk->tail_bytes;
    uint8_t *there = r->frames, *wanted = r->frames + r->frame_bytes;
    uint32_t crc32 = 0;
    dcpk_status st;

    st = reading_copy(r, chunk->offset_bytes, there, chunk->lead_bytes, err);
    if (st == DCPK_OK)
        st = reading_sum(r, data_at, chunk->data_bytes, &crc32, err);
    if (st == DCPK_OK)
        st = reading_copy(r, data_at + chunk->data_bytes, there + chunk->lead_bytes,
                          chunk->tail_bytes, err);
    if (st == DCPK_OK)
        st = dcpk_write_make_frame(r->w, chunk, crc32, wanted, wanted + chunk->lead_bytes, err);
    if (st != DCPK_OK)
        return st;
    *sum ^= dcpk_write_sum(chunk, crc32);
    *is_bad = *is_bad || memcmp(there, wanted, frame_bytes) != 0;
    return DCPK_OK;
}

/* Measures where the last chunk of a unit ends, and the largest frame of one. */
static void measure(struct reading *r, size_t unit)
{
    const struct dcpk_unit *u = &r->w->units.units[unit];

    for (uint32_t i = 0; i < u->n_chunks; i++) {
        const struct dcpk_out_chunk *chunk = dcpk_units_chunk(&r->w->units, u->first + i);
        const size_t frame_bytes = (size_t)chunk->lead_bytes + chunk->tail_bytes;
        const uint64_t end = chunk->offset_bytes + dcpk_write_item_bytes(chunk);

        r->frame_bytes = dcpk_max_size(r->frame_bytes, frame_bytes);
        r->end_bytes = dcpk_max_u64(r->end_bytes, end);
    }
}

/* Chunks as a whole. */
static dcpk_status check_chunks(struct reading *r, size_t unit, bool *is_bad,
                                struct dcpk_error *err)
{
    const struct dcpk_unit *u = &r->w->units.units[unit];
    dcpk_status st = DCPK_OK;
    uint32_t sum = 0;

    measure(r, unit);
    r->frames = dcpk_alloc_array(2, r->frame_bytes + 1, err);
    if (r->frames == NULL)
        return err->status;
    for (uint32_t i = 0; i < u->n_chunks && st == DCPK_OK; i++)
        st = check_chunk(r, dcpk_units_chunk(&r->w->units, u->first + i), &sum, is_bad, err);
    *is_bad = *is_bad || sum != r->w->states[unit].crc32;
    dcpk_free(r->frames);
    return st;
}

/* A dcpk_task over a struct checking. */
static dcpk_status check_unit(void *checking, int worker, uint64_t task, struct dcpk_error *err)
{
    struct checking *c = checking;
    const uint32_t unit = c->units[task], file = dcpk_unit_file(&c->w->units, unit);
    struct reading r = {.w = c->w, .worker = &c->w->workers[worker]};
    dcpk_status st = dcpk_write_open(c->w, file, &r.sink, err);

    if (st != DCPK_OK)
        return st;
    if (c->w->units.units[unit].n_chunks == 0)
        st = write_check_part(&r, unit, &c->is_bad[task], err);
    else
        st = check_chunks(&r, unit, &c->is_bad[task], err);
    if (st == DCPK_OK)
        st = dcpk_write_leave(c->w, file, err);
    if (st == DCPK_OK)
        st = dcpk_meter_add(&c->w->meter, dcpk_unit_bytes(&c->w->units, unit), err);
    return st;
}

static dcpk_status list_units(struct checking *c, struct dcpk_error *err)
{
    c->units = dcpk_alloc_array(c->w->units.n, sizeof *c->units, err);
    c->is_bad = dcpk_alloc_array(c->w->units.n, sizeof *c->is_bad, err);
    if (c->units == NULL || c->is_bad == NULL)
        return err->status;
    for (size_t i = 0; i < c->w->units.n; i++) {
        if (!c->w->states[i].is_done)
            continue;
        c->units[c->n++] = (uint32_t)i;
        c->w->files[dcpk_unit_file(&c->w->units, i)].n_users++;
    }
    return DCPK_OK;
}

dcpk_status dcpk_write_check_found(struct dcpk_writing *w, uint64_t *bad_bytes,
                                   struct dcpk_error *err)
{
    struct checking c = {.w = w};
    dcpk_status st = list_units(&c, err);

    *bad_bytes = 0;
    if (st == DCPK_OK)
        st = dcpk_pool_run(w->exec->n_threads, c.n, check_unit, &c, err);
    for (size_t i = 0; st == DCPK_OK && i < c.n; i++) {
        if (!c.is_bad[i])
            continue;
        *bad_bytes += dcpk_unit_bytes(&w->units, c.units[i]);
        w->states[c.units[i]].is_done = false;
    }
    atomic_fetch_sub(&w->meter.done_bytes, *bad_bytes);
    dcpk_free(c.units);
    dcpk_free(c.is_bad);
    return st;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* exec_check.c - checks the stored checksums of a checkpoint's items, each place in its files once.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "lib/base/alloc.h"
#include "lib/exec/exec_priv.h"

struct checking {
    struct dcpk_exec *exec;
    struct dcpk_pass pass;
    uint32_t *chunks; /* in the order of the files, one of those that share a place */
    size_t n_chunks;
    uint32_t *objects;
    size_t n_objects;
};

static int compare_places(const struct dcpk_place *a, const struct dcpk_place *b)
{
    if (a->file != b->file)
        return a->file < b->file ? -1 : 1;
    if (a->offset_bytes != b->offset_bytes)
        return a->offset_bytes < b->offset_bytes ? -1 : 1;
    return (a->n_bytes > b->n_bytes) - (a->n_bytes < b->n_bytes);
}

static int compare_numbers(uint32_t a, uint32_t b)
{
    return (a > b) - (a < b);
}

static int compare_chunks(const void *a, const void *b, void *context)
{
    const struct dcpk_chunk *chunks = ((const struct dcpk_checkpoint *)context)->chunks;
    const uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    const int by_place = compare_places(&chunks[i].place, &chunks[j].place);

    return by_place != 0 ? by_place : compare_numbers(i, j);
}

static int compare_objects(const void *a, const void *b, void *context)
{
    const struct dcpk_object *objects = ((const struct dcpk_checkpoint *)context)->objects;
    const uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    const int by_place = compare_places(&objects[i].place, &objects[j].place);

    return by_place != 0 ? by_place : compare_numbers(i, j);
}

/*
 * The numbers of n items in the order of their places. Items that share a place also share their
 * bytes (aliases), but not tensors of different shape or dtype, of which each is looked at: `same`
 * says.
 */
static dcpk_status order_items(struct dcpk_checkpoint *ckpt, size_t n,
                               int (*compare)(const void *, const void *, void *),
                               bool (*same)(const struct dcpk_checkpoint *, uint32_t, uint32_t),
                               uint32_t **items, size_t *n_items, struct dcpk_error *err)
{
    uint32_t *order;
    size_t n_kept = 0;

    if (n > UINT32_MAX)
        return dcpk_fail(err, DCPK_ERANGE, "%zu items, the limit is %" PRIu32, n, UINT32_MAX);
    order = dcpk_alloc_array(n, sizeof *order, err);
    if (order == NULL)
        return err->status;
    for (size_t i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    qsort_r(order, n, sizeof *order, compare, ckpt);
    for (size_t i = 0; i < n; i++)
        if (n_kept == 0 || !same(ckpt, order[n_kept - 1], order[i]))
            order[n_kept++] = order[i];
    *items = order;
    *n_items = n_kept;
    return DCPK_OK;
}

/* The chunks of aliases: one place, one dtype, the same extents. */
static bool same_chunk(const struct dcpk_checkpoint *ckpt, uint32_t i, uint32_t j)
{
    const struct dcpk_chunk *a = &ckpt->chunks[i], *b = &ckpt->chunks[j];
    const struct dcpk_tensor *s = &ckpt->tensors[a->tensor], *t = &ckpt->tensors[b->tensor];

    if (compare_places(&a->place, &b->place) != 0 || s->dtype != t->dtype || s->rank != t->rank)
        return false;
    for (int axis = 0; axis < s->rank; axis++)
        if (a->span[s->rank + axis] != b->span[t->rank + axis])
            return false;
    return true;
}

static bool same_object(const struct dcpk_checkpoint *ckpt, uint32_t i, uint32_t j)
{
    return compare_places(&ckpt->objects[i].place, &ckpt->objects[j].place) == 0;
}

/* Read the record in slabs and compare its checksum. */
static dcpk_status check_record(struct checking *c, struct dcpk_worker *worker,
                                const struct dcpk_extent *where, struct dcpk_error *err)
{
    uint32_t crc32 = 0;
    dcpk_status st;

    for (uint64_t at = 0; at < where->record_bytes; at += worker->buffer_bytes) {
        const uint64_t left = where->record_bytes - at;
        const size_t n = left < worker->buffer_bytes ? (size_t)left : worker->buffer_bytes;

        if (left > n)
            dcpk_source_advise(where->source, where->record_offset_bytes + at + n,
                               worker->buffer_bytes, DCPK_WILL_NEED);
        st = dcpk_worker_read(worker, where->source, where->record_offset_bytes + at,
                              worker->buffer, n, err);
        if (st != DCPK_OK)
            return st;
        crc32 = c->exec->backend->crc32(crc32, worker->buffer, n);
        st = dcpk_meter_add(&c->pass.meter, n, err);
        if (st != DCPK_OK)
            return st;
    }
    if (crc32 != where->crc32)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "the %" PRIu64 " data bytes at byte %" PRIu64
                         " of '%s' have CRC-32 %08" PRIx32 ", %08" PRIx32
                         " was stored with them (the file is damaged)",
                         where->record_bytes, where->record_offset_bytes,
                         dcpk_source_name(where->source), crc32, where->crc32);
    return DCPK_OK;
}

static dcpk_status check_chunk(struct checking *c, struct dcpk_worker *worker,
                               const struct dcpk_chunk *chunk, struct dcpk_error *err)
{
    struct dcpk_checkpoint *ckpt = c->exec->ckpt;
    struct dcpk_extent where = {0};
    const uint8_t *data;
    dcpk_status st = ckpt->format->locate(ckpt, chunk, &worker->reader, &where, err);

    if (st == DCPK_OK && where.has_crc32)
        st = check_record(c, worker, &where, err);
    else
        where.record_bytes = 0;
    if (st == DCPK_OK && where.decoded_bytes > 0) { /* that it can be decoded is all to check */
        st = dcpk_decoded_get(c->exec->decoded, chunk, &where, &data, err);
        if (st == DCPK_OK)
            dcpk_decoded_put(c->exec->decoded, chunk);
    }
    if (st == DCPK_OK) /* what is around the record, or was not read as one */
        st = dcpk_meter_add(&c->pass.meter, chunk->place.n_bytes - where.record_bytes, err);
    return st;
}

/* Checking the records of one object. */
struct object_check {
    struct checking *c;
    struct dcpk_worker *worker;
    struct dcpk_source *source;
    uint64_t checked_bytes;
};

static dcpk_status check_object_record(void *context, const struct dcpk_record *record,
                                       struct dcpk_error *err)
{
    struct object_check *o = context;
    const struct dcpk_extent where = {.source = o->source,
                                      .crc32 = record->crc32,
                                      .record_offset_bytes = record->offset_bytes,
                                      .record_bytes = record->n_bytes};

    o->checked_bytes += record->n_bytes;
    return check_record(o->c, o->worker, &where, err);
}

/* One that is larger than a buffer (gathered optimizer state has 12 bytes a parameter): each record
 * as a stream, then its outline. */
static dcpk_status check_large_object(struct checking *c, struct dcpk_worker *worker,
                                      const struct dcpk_object *object, struct dcpk_arena *arena,
                                      struct dcpk_error *err)
{
    struct dcpk_checkpoint *ckpt = c->exec->ckpt;
    struct object_check o = {.c = c, .worker = worker, .source = ckpt->files[object->place.file]};
    const struct dcpk_value *value;
    dcpk_status st = ckpt->format->each_record(ckpt, object, check_object_record, &o, err);

    if (st == DCPK_OK)
        st = ckpt->format->outline_object(ckpt, object, arena, &value, err);
    if (st == DCPK_OK)
        st = dcpk_meter_add(&c->pass.meter, object->place.n_bytes - o.checked_bytes, err);
    return st;
}

static dcpk_status check_object(struct checking *c, struct dcpk_worker *worker,
                                const struct dcpk_object *object, struct dcpk_error *err)
{
    struct dcpk_checkpoint *ckpt = c->exec->ckpt;
    struct dcpk_arena *arena = dcpk_arena_new(0, err);
    const struct dcpk_value *value;
    dcpk_status st;

    if (arena == NULL)
        return err->status;
    if (object->place.n_bytes > worker->buffer_bytes) {
        st = check_large_object(c, worker, object, arena, err);
    } else {
        st = ckpt->format->load_object(ckpt, object, arena, &value, err);
        if (st == DCPK_OK)
            st = dcpk_meter_add(&c->pass.meter, object->place.n_bytes, err);
    }
    dcpk_arena_free(arena);
    return st;
}

static dcpk_status check_task(void *context, int worker, uint64_t task, struct dcpk_error *err)
{
    struct checking *c = context;
    const struct dcpk_checkpoint *ckpt = c->exec->ckpt;
    const struct dcpk_place *place;
    const char *key;
    dcpk_status st;

    if (task < c->n_chunks) {
        const struct dcpk_chunk *chunk = &ckpt->chunks[c->chunks[task]];

        place = &chunk->place;
        key = ckpt->tensors[chunk->tensor].key;
        st = check_chunk(c, &c->pass.workers[worker], chunk, err);
    } else {
        const struct dcpk_object *object = &ckpt->objects[c->objects[task - c->n_chunks]];

        place = &object->place;
        key = object->key;
        st = check_object(c, &c->pass.workers[worker], object, err);
    }
    if (st != DCPK_OK)
        dcpk_context(err, "checking '%s', item at byte %" PRIu64 " of '%s'", key,
                     place->offset_bytes, dcpk_source_name(ckpt->files[place->file]));
    return st;
}

static uint64_t task_bytes(const void *context, uint64_t task)
{
    const struct checking *c = context;
    const struct dcpk_checkpoint *ckpt = c->exec->ckpt;

    return task < c->n_chunks ? ckpt->chunks[c->chunks[task]].place.n_bytes
                              : ckpt->objects[c->objects[task - c->n_chunks]].place.n_bytes;
}

static dcpk_status checking_init(struct checking *c, struct dcpk_error *err)
{
    struct dcpk_checkpoint *ckpt = c->exec->ckpt;
    dcpk_status st = order_items(ckpt, ckpt->n_chunks, compare_chunks, same_chunk, &c->chunks,
                                 &c->n_chunks, err);

    if (st == DCPK_OK)
        st = order_items(ckpt, ckpt->n_objects, compare_objects, same_object, &c->objects,
                         &c->n_objects, err);
    return st;
}

dcpk_status dcpk_exec_check_items(struct dcpk_exec *exec, struct dcpk_exec_stats *stats,
                                  struct dcpk_error *err)
{
    struct checking c = {.exec = exec};
    dcpk_status st = dcpk_pass_begin(&c.pass, exec, err);

    if (st == DCPK_OK)
        st = checking_init(&c, err);
    if (st == DCPK_OK) {
        c.pass.work = (struct dcpk_work){.n = c.n_chunks + c.n_objects, .bytes_of = task_bytes};
        c.pass.task = check_task;
        c.pass.context = &c;
        st = dcpk_pass_share(&c.pass, NULL, NULL, dcpk_pass_run(&c.pass, err), err);
    }
    st = dcpk_pass_end(&c.pass, stats, st);
    if (st == DCPK_OK && stats != NULL)
        stats->item_bytes = c.pass.work.total_bytes;
    dcpk_free(c.chunks);
    dcpk_free(c.objects);
    return st;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* exec_check.c - checks the stored checksums of a checkpoint's items, each place in its files
 * once. */
#include <inttypes.h>

#include "lib/base/alloc.h"
#include "lib/base/digest.h"
#include "lib/base/order.h"
#include "lib/exec/workers.h"

struct checking {
    struct dcpk_exec *exec;
    struct dcpk_pass pass;
    uint32_t *chunks; /* in the order of the files, one of those that share a place */
    size_t n_chunks;
    uint32_t *objects;
    size_t n_objects;
};

dcpk_status dcpk_worker_check_record(struct dcpk_worker *worker, const struct dcpk_extent *where,
                                     struct dcpk_meter *meter, struct dcpk_error *err)
{
    uint32_t crc32 = 0;

    for (uint64_t at = 0; at < where->record_bytes; at += worker->buffer_bytes) {
        const uint64_t left = where->record_bytes - at;
        const size_t n = (size_t)dcpk_min_u64(left, worker->buffer_bytes);

        if (left > n)
            dcpk_source_advise(where->source, where->record_offset_bytes + at + n,
                               worker->buffer_bytes, DCPK_WILL_NEED);
        if (dcpk_worker_read(worker, where->source, where->record_offset_bytes + at, worker->buffer,
                             n, err) ||
            dcpk_meter_add(meter, n, err))
            return err->status;
        crc32 = dcpk_crc32(crc32, worker->buffer, n);
    }
    if (crc32 != where->crc32)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "the %" PRIu64 " data bytes at byte %" PRIu64
                         " of '%s' have CRC-32 %08" PRIx32 ", %08" PRIx32
                         " was stored with them (the file is damaged)",
                         where->record_bytes, where->record_offset_bytes,
                         dcpk_source_name(where->source), crc32, where->crc32);
    worker->checked_bytes += where->record_bytes;
    return DCPK_OK;
}

static dcpk_status check_stored_chunk(struct checking *c, struct dcpk_worker *worker,
                                      const struct dcpk_chunk *chunk, struct dcpk_error *err)
{
    struct dcpk_checkpoint *ckpt = c->exec->ckpt;
    struct dcpk_extent where = {0};
    const uint8_t *data;

    if (ckpt->format->reader->locate(ckpt, chunk, &worker->reader, &where, err) != DCPK_OK)
        return err->status;
    if (!where.has_crc32)
        where.record_bytes = 0;
    else if (dcpk_worker_check_record(worker, &where, &c->pass.meter, err) != DCPK_OK)
        return err->status;
    if (where.decoded_bytes > 0) { /* checks only that it can be decoded */
        if (dcpk_decoded_get(c->exec->decoded, chunk, &where, &data, &worker->read_bytes, err) !=
            DCPK_OK)
            return err->status;
        dcpk_decoded_put(c->exec->decoded, chunk);
    }
    /* the bytes around the record, or those not read as one; a record may hold more than the chunk
     */
    return dcpk_meter_add(
        &c->pass.meter,
        chunk->place.n_bytes - dcpk_min_u64(where.record_bytes, chunk->place.n_bytes), err);
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
    return dcpk_worker_check_record(o->worker, &where, &o->c->pass.meter, err);
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

    if (ckpt->format->reader->each_record(ckpt, object, check_object_record, &o, err) ||
        dcpk_checkpoint_outline_item(ckpt, object, arena, &value, err))
        return err->status;
    return dcpk_meter_add(&c->pass.meter, object->place.n_bytes - o.checked_bytes, err);
}

static dcpk_status check_object(struct checking *c, struct dcpk_worker *worker,
                                const struct dcpk_object *object, struct dcpk_error *err)
{
    struct dcpk_checkpoint *ckpt = c->exec->ckpt;
    struct dcpk_arena *arena = dcpk_arena_new();
    const struct dcpk_value *value;
    dcpk_status st;

    if (object->place.n_bytes > worker->buffer_bytes) {
        st = check_large_object(c, worker, object, arena, err);
    } else {
        st = dcpk_checkpoint_load_item(ckpt, object, arena, &value, err);
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
    const char *key;
    dcpk_status st;

    if (task < c->n_chunks) {
        const struct dcpk_chunk *chunk = &ckpt->chunks[c->chunks[task]];

        key = ckpt->tensors[chunk->tensor].key;
        st = check_stored_chunk(c, &c->pass.workers[worker], chunk, err);
    } else {
        const struct dcpk_object *object = &ckpt->objects[c->objects[task - c->n_chunks]];

        key = object->key;
        st = check_object(c, &c->pass.workers[worker], object, err);
    }
    if (st != DCPK_OK)
        dcpk_context(err, "checking '%s'", key);
    return st;
}

static uint64_t check_task_bytes(const void *context, uint64_t task)
{
    const struct checking *c = context;
    const struct dcpk_checkpoint *ckpt = c->exec->ckpt;

    if (task < c->n_chunks)
        return ckpt->chunks[c->chunks[task]].place.n_bytes;
    return ckpt->objects[c->objects[task - c->n_chunks]].place.n_bytes;
}

static dcpk_status checking_init(struct checking *c, struct dcpk_error *err)
{
    struct dcpk_checkpoint *ckpt = c->exec->ckpt;

    if (dcpk_order_chunks(ckpt, &c->chunks, &c->n_chunks, err) ||
        dcpk_order_objects(ckpt, NULL, &c->objects, &c->n_objects, err))
        return err->status;
    return DCPK_OK;
}

/* Bytes that are stored more than once are read from one place: rank 0 looks at the others. */
static dcpk_status check_copies(struct dcpk_exec *exec, struct dcpk_error *err)
{
    if (exec->ckpt->format->check_copies == NULL)
        return DCPK_OK;
    if (dcpk_ranks_self(exec->ranks) == 0)
        (void)exec->ckpt->format->check_copies(exec->ckpt, err);
    return dcpk_ranks_agree(exec->ranks, err->status, err);
}

dcpk_status dcpk_exec_check_items(struct dcpk_exec *exec, struct dcpk_exec_stats *stats,
                                  struct dcpk_error *err)
{
    struct checking c = {.exec = exec};
    dcpk_status st = check_copies(exec, err);

    if (st == DCPK_OK)
        st = dcpk_pass_begin(&c.pass, exec, err);
    if (st == DCPK_OK)
        st = checking_init(&c, err);
    if (st == DCPK_OK) {
        c.pass.work =
            (struct dcpk_work){.n = c.n_chunks + c.n_objects, .bytes_of = check_task_bytes};
        c.pass.task = check_task;
        c.pass.context = &c;
        st = dcpk_pass_share(&c.pass, NULL, 0, NULL, dcpk_pass_run(&c.pass, err), err);
    }
    st = dcpk_pass_end(&c.pass, stats, st);
    if (st == DCPK_OK && stats != NULL)
        stats->item_bytes = c.pass.work.total_bytes;
    dcpk_free(c.chunks);
    dcpk_free(c.objects);
    return st;
}

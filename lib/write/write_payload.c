/* SPDX-License-Identifier: Apache-2.0 */
/* write_payload.c - object payloads: neighbours are put together in a buffer and written at
 * once. */
#include <inttypes.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/order.h"
#include "lib/write/write_priv.h"

/* Bytes of a file in the first worker's buffer, not yet written. */
struct run {
    uint32_t file;
    uint64_t offset_bytes;
    size_t n_bytes;
};

static dcpk_status write_run(struct dcpk_writing *w, struct run *run, struct dcpk_error *err)
{
    struct dcpk_worker *worker = &w->workers[0];
    struct dcpk_sink *sink;
    dcpk_status st;

    if (run->n_bytes == 0)
        return DCPK_OK;
    st = dcpk_write_open(w, run->file, &sink, err);
    if (st == DCPK_OK)
        st = dcpk_write_out(worker, sink, run->offset_bytes, worker->buffer, run->n_bytes, err);
    run->offset_bytes += run->n_bytes;
    run->n_bytes = 0;
    return st;
}

/*
 * Move to another place. A file that only payloads go into is complete once they leave it:
 * formats that give each its own file would else run out of descriptors.
 */
static dcpk_status move_run(struct dcpk_writing *w, struct run *run, uint32_t file,
                            uint64_t offset_bytes, struct dcpk_error *err)
{
    dcpk_status st = write_run(w, run, err);

    if (st == DCPK_OK && file != run->file && !w->files[run->file].has_chunks)
        st = dcpk_write_close(w, run->file, err);
    run->file = file;
    run->offset_bytes = offset_bytes;
    return st;
}

/* Append bytes to the run, writing it out whenever the buffer is full. */
static dcpk_status run_put(struct dcpk_writing *w, struct run *run, const uint8_t *data, uint64_t n,
                           struct dcpk_error *err)
{
    struct dcpk_worker *worker = &w->workers[0];
    dcpk_status st = DCPK_OK;

    while (n > 0 && st == DCPK_OK) {
        const size_t room = worker->buffer_bytes - run->n_bytes;
        const size_t part = (size_t)dcpk_min_u64(n, room);

        memcpy(worker->buffer + run->n_bytes, data, part);
        run->n_bytes += part;
        data += part;
        n -= part;
        if (run->n_bytes == worker->buffer_bytes)
            st = write_run(w, run, err);
    }
    return st;
}

/* The bytes of a source's object item, read through scratch. */
static dcpk_status copy_payload(struct dcpk_writing *w, const struct dcpk_out_payload *payload,
                                struct run *run, struct dcpk_error *err)
{
    struct dcpk_worker *worker = &w->workers[0];
    const struct dcpk_place *place = &payload->source->place;
    struct dcpk_source *source = w->exec->ckpt->files[place->file];
    dcpk_status st = DCPK_OK;

    if (place->n_bytes != payload->n_bytes)
        return dcpk_fail(err, DCPK_EMISMATCH, "laid out as %" PRIu64 " bytes, stored as %" PRIu64,
                         payload->n_bytes, place->n_bytes);
    for (uint64_t at = 0; at < place->n_bytes && st == DCPK_OK; at += worker->scratch_bytes) {
        const uint64_t left = place->n_bytes - at;
        const size_t n = (size_t)dcpk_min_u64(left, worker->scratch_bytes);

        st = dcpk_worker_read(worker, source, place->offset_bytes + at, worker->scratch, n, err);
        if (st == DCPK_OK)
            st = run_put(w, run, worker->scratch, n, err);
    }
    return st;
}

static dcpk_status encode_payload(struct dcpk_writing *w, const struct dcpk_out_payload *payload,
                                  struct run *run, struct dcpk_error *err)
{
    struct dcpk_bytes bytes = {0};
    dcpk_status st = w->out->format->writer->encode(w->out, payload, &bytes, err);

    if (st == DCPK_OK)
        st = dcpk_bytes_status(&bytes, err);
    if (st == DCPK_OK && bytes.n_bytes != payload->n_bytes)
        st = dcpk_fail(err, DCPK_EMISMATCH, "laid out as %" PRIu64 " bytes, encoded as %zu",
                       payload->n_bytes, bytes.n_bytes);
    if (st == DCPK_OK)
        st = run_put(w, run, bytes.data, bytes.n_bytes, err);
    dcpk_bytes_release(&bytes);
    return st;
}

static dcpk_status put_payload(struct dcpk_writing *w, const struct dcpk_out_payload *payload,
                               struct run *run, struct dcpk_error *err)
{
    if ((payload->file != run->file || payload->offset_bytes != run->offset_bytes + run->n_bytes) &&
        move_run(w, run, payload->file, payload->offset_bytes, err) != DCPK_OK)
        return err->status;
    if (payload->source == NULL)
        return encode_payload(w, payload, run, err);
    return copy_payload(w, payload, run, err);
}

dcpk_status dcpk_writing_payloads(struct dcpk_writing *w, struct dcpk_error *err)
{
    struct run run = {0};

    for (size_t p = 0; p < w->out->n_payloads; p++) {
        const struct dcpk_out_payload *payload = &w->out->payloads[p];

        if (put_payload(w, payload, &run, err) || dcpk_meter_add(&w->meter, payload->n_bytes, err))
            return dcpk_context(err, "writing '%s'", dcpk_output_payload_name(w->out, (uint32_t)p));
    }
    return write_run(w, &run, err);
}

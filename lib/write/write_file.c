/* SPDX-License-Identifier: Apache-2.0 */
/* write_file.c - the files of an output under way: open while units need them; frames of chunks. */
#include <assert.h>

#include "lib/base/cursor.h"
#include "lib/base/digest.h"
#include "lib/write/write_priv.h"

dcpk_status dcpk_write_open(struct dcpk_writing *w, uint32_t file, struct dcpk_sink **sink,
                            struct dcpk_error *err)
{
    const struct dcpk_out_file *out = &w->out->files[file];
    struct dcpk_open_file *f = &w->files[file];
    dcpk_status st = DCPK_OK;

    pthread_mutex_lock(&w->mutex);
    if (f->sink == NULL && f->was_opened)
        st = dcpk_folder_reopen(w->folder, out->name, out->n_bytes, &f->sink, err);
    else if (f->sink == NULL)
        st = dcpk_folder_create(w->folder, out->name, out->n_bytes, &f->sink, err);
    f->was_opened = f->was_opened || st == DCPK_OK;
    f->is_synced = false;
    *sink = f->sink;
    pthread_mutex_unlock(&w->mutex);
    return st;
}

/* Take the sink out of its file, which no thread can use or hold from then on. Under the lock. */
static struct dcpk_sink *take_sink(struct dcpk_open_file *f)
{
    struct dcpk_sink *sink = f->sink;

    f->sink = NULL;
    return sink;
}

static dcpk_status close_taken(struct dcpk_writing *w, struct dcpk_open_file *f,
                               struct dcpk_sink *sink, struct dcpk_error *err)
{
    dcpk_status st;

    if (sink == NULL)
        return DCPK_OK;
    st = dcpk_sink_close(sink, err);
    pthread_mutex_lock(&w->mutex);
    f->is_synced = st == DCPK_OK;
    pthread_mutex_unlock(&w->mutex);
    return st;
}

dcpk_status dcpk_write_close(struct dcpk_writing *w, uint32_t file, struct dcpk_error *err)
{
    struct dcpk_open_file *f = &w->files[file];
    struct dcpk_sink *sink;

    pthread_mutex_lock(&w->mutex);
    sink = take_sink(f);
    pthread_mutex_unlock(&w->mutex);
    return close_taken(w, f, sink, err);
}

dcpk_status dcpk_write_leave(struct dcpk_writing *w, uint32_t file, struct dcpk_error *err)
{
    struct dcpk_open_file *f = &w->files[file];
    struct dcpk_sink *last;

    pthread_mutex_lock(&w->mutex);
    last = --f->n_users == 0 ? take_sink(f) : NULL;
    pthread_mutex_unlock(&w->mutex);
    return close_taken(w, f, last, err);
}

uint32_t dcpk_write_sum(const struct dcpk_out_chunk *chunk, uint32_t crc32)
{
    uint8_t place[8];

    dcpk_store_u64le(place, chunk->offset_bytes);
    return dcpk_crc32(crc32, place, sizeof place);
}

dcpk_status dcpk_write_make_frame(const struct dcpk_writing *w, const struct dcpk_out_chunk *chunk,
                                  uint32_t crc32, uint8_t *lead, uint8_t *tail,
                                  struct dcpk_error *err)
{
    const struct dcpk_format_writer *writer = w->out->format->writer;

    if (writer->frame == NULL) {
        assert(chunk->lead_bytes == 0 && chunk->tail_bytes == 0);
        return DCPK_OK;
    }
    return writer->frame(w->out, chunk, crc32, lead, tail, err);
}

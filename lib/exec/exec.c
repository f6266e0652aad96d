/* SPDX-License-Identifier: Apache-2.0 */
/* exec.c - the executor's object: threads, their memory, located chunks, progress. */
#include "lib/exec/exec.h"

#include <assert.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/base/order.h"
#include "lib/exec/pool.h"
#include "lib/exec/workers.h"

#define MIB             ((size_t)1 << 20)
#define MIN_SHARE_BYTES MIB
/*
 * Larger shares gain nothing, smaller ones lose nothing above the disk's noise: 2.0 GB to
 * fsdp_dtensor on two cores of an EPYC, 2026-11-22, all cached, best of six runs by turns with
 * shares of 1, 2, 4, 8, 16 MiB: 0.55, 0.74, 0.63, 0.56, 0.51 s.
 */
#define MAX_SHARE_BYTES   (8 * MIB)
#define MAX_LOCATED_BYTES (16 * MIB)

static int choose_threads(int wanted, uint64_t memory_bytes)
{
    const uint64_t most = memory_bytes / MIN_SHARE_BYTES;

    if (wanted <= 0)
        wanted = dcpk_pool_default_threads();
    return (int)dcpk_min_u64((uint64_t)wanted, most);
}

/* Room for located chunks: all of them, or what a sixteenth of the memory holds. */
static size_t choose_located(size_t n_chunks, uint64_t memory_bytes)
{
    const uint64_t limit = dcpk_min_u64(memory_bytes / 16, MAX_LOCATED_BYTES);
    size_t n = 64;

    while (n < n_chunks && 2 * n * sizeof(struct dcpk_located) <= limit)
        n *= 2;
    return n;
}

uint64_t dcpk_exec_memory_bytes(const struct dcpk_env *env)
{
    if (env->memory_bytes == 0)
        return DCPK_EXEC_USUAL_MEMORY_BYTES;
    return dcpk_max_u64(env->memory_bytes, DCPK_EXEC_MIN_MEMORY_BYTES);
}

uint64_t dcpk_exec_unit_bytes(const struct dcpk_env *env)
{
    return env->unit_bytes == 0 ? DCPK_UNIT_BYTES : env->unit_bytes;
}

dcpk_status dcpk_exec_new(struct dcpk_checkpoint *ckpt, const struct dcpk_env *env,
                          struct dcpk_exec **exec, struct dcpk_error *err)
{
    struct dcpk_exec *made = dcpk_alloc(sizeof *made, err);
    uint64_t memory_bytes = dcpk_exec_memory_bytes(env), decoded_bytes = 0, share_bytes;

    if (made == NULL)
        return err->status;
    made->ckpt = ckpt;
    assert(env->kernels != NULL);
    made->kernels = env->kernels;
    made->progress = env->progress;
    made->ranks = env->ranks;
    made->unit_bytes = dcpk_exec_unit_bytes(env);
    if (ckpt->format->reader->decode != NULL)
        decoded_bytes = memory_bytes / 2;
    memory_bytes -= decoded_bytes;
    made->n_located = choose_located(ckpt->n_chunks + ckpt->n_view_chunks, memory_bytes);
    memory_bytes -= made->n_located * sizeof *made->located;
    made->n_threads = choose_threads(env->n_threads, memory_bytes);
    share_bytes = memory_bytes / (uint64_t)made->n_threads;
    made->share_bytes = (size_t)dcpk_min_u64(share_bytes, MAX_SHARE_BYTES);
    for (int i = 0; i < DCPK_LOCATED_LOCKS; i++)
        pthread_mutex_init(&made->locks[i], NULL);
    made->located = dcpk_alloc_array(made->n_located, sizeof *made->located, err);
    if (made->located == NULL || dcpk_chunk_index_new(ckpt, &made->index, err) ||
        (decoded_bytes > 0 && dcpk_decoded_new(ckpt, decoded_bytes, &made->decoded, err))) {
        dcpk_exec_free(made);
        return err->status;
    }
    *exec = made;
    return DCPK_OK;
}

void dcpk_exec_free(struct dcpk_exec *exec)
{
    if (exec == NULL)
        return;
    for (int i = 0; i < DCPK_LOCATED_LOCKS; i++)
        pthread_mutex_destroy(&exec->locks[i]);
    dcpk_chunk_index_free(exec->index);
    dcpk_decoded_free(exec->decoded);
    dcpk_free(exec->located);
    dcpk_free(exec);
}

dcpk_status dcpk_exec_locate(struct dcpk_exec *exec, const struct dcpk_chunk *chunk,
                             const struct dcpk_reader *reader, struct dcpk_extent *where,
                             struct dcpk_error *err)
{
    const struct dcpk_tensor *tensor = &exec->ckpt->tensors[chunk->tensor];
    const uint32_t number = (uint32_t)(chunk - exec->ckpt->chunks);
    const size_t slot = number & (exec->n_located - 1);
    pthread_mutex_t *lock = &exec->locks[slot % DCPK_LOCATED_LOCKS];
    struct dcpk_located found;
    dcpk_status st;

    pthread_mutex_lock(lock);
    found = exec->located[slot];
    pthread_mutex_unlock(lock);
    if (found.source != NULL && found.chunk == number) {
        *where = (struct dcpk_extent){
            .source = found.source, .first_bytes = found.first_bytes, .is_row_major = true};
        dcpk_row_major_strides(dcpk_dtype_bytes(tensor->dtype), chunk->span + tensor->rank,
                               tensor->rank, where->stride_bytes);
        return DCPK_OK;
    }
    memset(where, 0, sizeof *where);
    st = dcpk_checkpoint_locate(exec->ckpt, chunk, reader, where, err);
    if (st != DCPK_OK)
        return dcpk_context(err, "finding '%s'", tensor->key);
    for (int axis = 0; axis < tensor->rank; axis++)
        if (where->stride_bytes[axis] < 0)
            return dcpk_fail(err, DCPK_EUNSUPPORTED, "'%s' is stored backwards along axis %d",
                             tensor->key, axis);
    if (where->is_row_major && !where->is_zero && where->decoded_bytes == 0) {
        pthread_mutex_lock(lock);
        exec->located[slot] = (struct dcpk_located){where->source, where->first_bytes, number};
        pthread_mutex_unlock(lock);
    }
    return DCPK_OK;
}

static dcpk_status read_for(void *worker, struct dcpk_source *source, uint64_t offset_bytes,
                            void *out, size_t n_bytes, struct dcpk_error *err)
{
    return dcpk_worker_read(worker, source, offset_bytes, out, n_bytes, err);
}

/* Cut a share: half for the consumer, a quarter for spans, an eighth each for casts and windows. */
static dcpk_status worker_init(struct dcpk_worker *worker, size_t share_bytes,
                               struct dcpk_error *err)
{
    const size_t unit = share_bytes / 64 / 64 * 64; /* whole cache lines */
    uint8_t *at;

    worker->memory = dcpk_alloc_aligned(4096, share_bytes, err);
    if (worker->memory == NULL)
        return err->status;
    at = worker->memory;
    worker->buffer = at;
    worker->buffer_bytes = 32 * unit;
    at += worker->buffer_bytes;
    worker->scratch = at;
    worker->scratch_bytes = 16 * unit;
    at += worker->scratch_bytes;
    worker->cast_from = at;
    worker->cast_to = at + 4 * unit;
    worker->cast_bytes = 4 * unit;
    at += 8 * unit;
    worker->window_bytes = 8 * unit / DCPK_N_WINDOWS;
    worker->reader = (struct dcpk_reader){read_for, worker};
    for (int i = 0; i < DCPK_N_WINDOWS; i++)
        worker->windows[i].data = at + (size_t)i * worker->window_bytes;
    return DCPK_OK;
}

struct dcpk_worker *dcpk_workers_new(const struct dcpk_exec *exec, struct dcpk_error *err)
{
    struct dcpk_worker *workers = dcpk_alloc_array((size_t)exec->n_threads, sizeof *workers, err);

    for (int i = 0; workers != NULL && i < exec->n_threads; i++) {
        if (worker_init(&workers[i], exec->share_bytes, err) != DCPK_OK) {
            dcpk_workers_free(exec, workers);
            return NULL;
        }
    }
    return workers;
}

void dcpk_workers_free(const struct dcpk_exec *exec, struct dcpk_worker *workers)
{
    for (int i = 0; workers != NULL && i < exec->n_threads; i++)
        dcpk_free(workers[i].memory);
    dcpk_free(workers);
}

/* An empty window if there is one, else the one not used for longest. */
static struct dcpk_window *oldest_window(struct dcpk_worker *worker)
{
    struct dcpk_window *oldest = &worker->windows[0];

    for (int i = 1; i < DCPK_N_WINDOWS; i++)
        if (worker->windows[i].used < oldest->used)
            oldest = &worker->windows[i];
    return oldest;
}

/* The window that holds the range or lies shortly before it (then *follows), or NULL. */
static struct dcpk_window *find_window(struct dcpk_worker *worker, const struct dcpk_source *source,
                                       uint64_t offset_bytes, size_t n_bytes, bool *follows)
{
    *follows = false;
    for (int i = 0; i < DCPK_N_WINDOWS; i++) {
        struct dcpk_window *window = &worker->windows[i];
        const uint64_t end = window->offset_bytes + window->n_bytes;

        if (window->source != source || offset_bytes < window->offset_bytes ||
            offset_bytes > end + worker->window_bytes)
            continue;
        *follows = offset_bytes + n_bytes > end;
        return window;
    }
    return NULL;
}

/*
 * The amount to read ahead into `window` for a range: at first a page or so, for one that follows
 * twice what the window held, so that scattered reads stay small and neighbours come many at once.
 */
static size_t window_bytes_for(const struct dcpk_worker *worker, const struct dcpk_window *window,
                               bool follows, size_t n_bytes)
{
    const size_t n = follows ? 2 * window->n_bytes : 4096;

    return dcpk_min_size(dcpk_max_size(n, n_bytes), worker->window_bytes);
}

/* Let `window` begin at the offset. */
static dcpk_status fill_window(struct dcpk_worker *worker, struct dcpk_window *window,
                               struct dcpk_source *source, uint64_t offset_bytes, size_t n,
                               struct dcpk_error *err)
{
    window->source = NULL;
    if (dcpk_source_read(source, offset_bytes, window->data, n, err) != DCPK_OK)
        return err->status;
    worker->read_bytes += n;
    window->source = source;
    window->offset_bytes = offset_bytes;
    window->n_bytes = n;
    return DCPK_OK;
}

dcpk_status dcpk_worker_read(struct dcpk_worker *worker, struct dcpk_source *source,
                             uint64_t offset_bytes, void *out, size_t n_bytes,
                             struct dcpk_error *err)
{
    const uint64_t source_bytes = dcpk_source_bytes(source);
    struct dcpk_window *window;
    bool follows;
    size_t n;

    if (n_bytes > worker->window_bytes / 2 || n_bytes > source_bytes) {
        worker->read_bytes += n_bytes;
        return dcpk_source_read(source, offset_bytes, out, n_bytes, err);
    }
    window = find_window(worker, source, offset_bytes, n_bytes, &follows);
    if (window == NULL || follows) {
        if (window == NULL)
            window = oldest_window(worker);
        n = window_bytes_for(worker, window, follows, n_bytes);
        if (offset_bytes <= source_bytes - n_bytes)
            n = (size_t)dcpk_min_u64(n, source_bytes - offset_bytes);
        if (fill_window(worker, window, source, offset_bytes, n, err) != DCPK_OK)
            return err->status;
    }
    window->used = ++worker->n_reads;
    memcpy(out, window->data + (offset_bytes - window->offset_bytes), n_bytes);
    return DCPK_OK;
}

void dcpk_meter_begin(struct dcpk_meter *meter, const struct dcpk_progress *progress,
                      uint64_t total_bytes)
{
    meter->progress = *progress;
    meter->total_bytes = total_bytes;
    atomic_init(&meter->done_bytes, 0);
    atomic_init(&meter->stopped, false);
    pthread_mutex_init(&meter->mutex, NULL);
    meter->begun = meter->next = dcpk_now_seconds();
}

dcpk_status dcpk_meter_add(struct dcpk_meter *meter, uint64_t n_bytes, struct dcpk_error *err)
{
    const struct dcpk_progress *progress = &meter->progress;
    const uint64_t done = atomic_fetch_add(&meter->done_bytes, n_bytes) + n_bytes;

    if (progress->update == NULL)
        return DCPK_OK;
    if (pthread_mutex_trylock(&meter->mutex) == 0) { /* else another thread reports it just now */
        const double now = dcpk_now_seconds();

        if (now >= meter->next && !atomic_load(&meter->stopped)) {
            meter->next = now + 0.1;
            if (!progress->update(progress->context, done, meter->total_bytes))
                atomic_store(&meter->stopped, true);
        }
        pthread_mutex_unlock(&meter->mutex);
    }
    if (atomic_load(&meter->stopped))
        return dcpk_fail(err, DCPK_ECANCELLED, "stopped on request");
    return DCPK_OK;
}

void dcpk_workers_count(const struct dcpk_exec *exec, const struct dcpk_worker *workers,
                        struct dcpk_exec_stats *stats)
{
    for (int i = 0; i < exec->n_threads; i++) {
        stats->read_bytes += workers[i].read_bytes;
        stats->written_bytes += workers[i].written_bytes;
        stats->checked_bytes += workers[i].checked_bytes;
        stats->n_zero_scales += workers[i].n_zero_scales;
    }
}

dcpk_status dcpk_meter_end(struct dcpk_meter *meter, const struct dcpk_exec *exec,
                           const struct dcpk_worker *workers, struct dcpk_exec_stats *stats,
                           dcpk_status st)
{
    const uint64_t done = atomic_load(&meter->done_bytes);

    if (st == DCPK_OK && meter->progress.update != NULL)
        (void)meter->progress.update(meter->progress.context, done, meter->total_bytes);
    if (st == DCPK_OK && stats != NULL) {
        *stats = (struct dcpk_exec_stats){.seconds = dcpk_now_seconds() - meter->begun};
        dcpk_workers_count(exec, workers, stats);
    }
    pthread_mutex_destroy(&meter->mutex);
    return st;
}

/* ---- boxes of a view into memory ---- */

struct dcpk_view_reader {
    struct dcpk_exec *exec;
    const struct dcpk_view *view;
    struct dcpk_worker *workers; /* the first one is used */
    struct dcpk_box_tree pieces;
};

dcpk_status dcpk_view_reader_new(struct dcpk_exec *exec, const struct dcpk_view *view,
                                 struct dcpk_view_reader **reader, struct dcpk_error *err)
{
    struct dcpk_view_reader *r = dcpk_alloc(sizeof *r, err);

    if (r == NULL)
        return err->status;
    r->exec = exec;
    r->view = view;
    if (dcpk_piece_tree_build(view, &r->pieces, err) ||
        (r->workers = dcpk_workers_new(exec, err)) == NULL) {
        dcpk_view_reader_free(r);
        return err->status;
    }
    *reader = r;
    return DCPK_OK;
}

dcpk_status dcpk_view_reader_read(struct dcpk_view_reader *reader, const struct dcpk_box *region,
                                  void *out, struct dcpk_error *err)
{
    const struct dcpk_gather_from from = {reader->view, &reader->pieces};

    return dcpk_gather(reader->exec, &reader->workers[0], &from, region, out, err);
}

void dcpk_view_reader_free(struct dcpk_view_reader *reader)
{
    if (reader == NULL)
        return;
    dcpk_box_tree_release(&reader->pieces);
    dcpk_workers_free(reader->exec, reader->workers);
    dcpk_free(reader);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* remap_files_run.c - one rank's stages: threads read slices, the caller copies and pushes them. */
/*
 *   readers   take a slice whose stage is free in the ring, and a slot -> read -> arrival
 *   caller    arrivals -> copy to the ring -> all of a stage is there: run its tiles -> done: the
 *             stage is free again
 *
 * The device is the caller's alone. It only asks whether work is done, and while it has nothing to
 * do and no thread reads (none could be started), it reads a slice itself.
 */
#include <pthread.h>

#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/base/order.h"
#include "lib/exec/remap_files_inside.h"

#define QUEUE_COPY QUEUE_UNPACK /* it has nothing else to do here */

/* A slice of a stage, and where its bytes are until they are in the ring. */
struct slice {
    size_t stage, number;
    size_t slot;
};

/* A slice on its way from its slot to the ring. */
struct copying {
    struct slice slice;
    uint64_t ticket;
};

/* A stage whose tiles run. */
struct running {
    uint64_t local, peers; /* tickets */
};

struct feeder {
    struct dcpk_remap_files *files;
    struct dcpk_meter meter;
    pthread_mutex_t mutex; /* of all up to `failed` */
    pthread_cond_t changed;
    struct slice next; /* to be read */
    size_t n_done;     /* stages that are free again */
    size_t n_reading;  /* threads */
    struct slice *arrivals;
    size_t first_arrival, n_arrivals;
    size_t *free_slots, n_free_slots;
    bool failed;
    /* The caller's: */
    struct copying *copies; /* by ticket */
    size_t first_copy, n_copies;
    uint64_t n_there[FEED_N_STAGES]; /* slices in the ring, of each stage that has a place there */
    struct running running[FEED_N_STAGES];
    size_t n_run; /* stages whose tiles were run */
    size_t room;  /* of arrivals and copies */
};

static uint64_t slices_of(const struct dcpk_remap_files *files, size_t stage)
{
    return (files->stages[stage].n_bytes + files->slice_bytes - 1) / files->slice_bytes;
}

/* The first range of a stage that does not end before `at`. */
static size_t find_range(const struct dcpk_remap_files *files, size_t stage, uint64_t at)
{
    size_t low = files->stages[stage].first_range, high = files->n_ranges;

    if (stage + 1 < files->n_stages)
        high = files->stages[stage + 1].first_range;
    for (size_t i; dcpk_bisect(low, high, &i);)
        if (files->ranges[i].at + files->ranges[i].n_bytes <= at)
            low = i + 1;
        else
            high = i;
    return low;
}

/* The name of the tensor whose bytes lie at a place of the stream. */
static const char *name_at(const struct dcpk_remap_files *files, const struct feed_range *range,
                           uint64_t at)
{
    size_t load = range->load;

    while (load + 1 < files->n_loads && files->loads[load + 1].n_bytes > 0 &&
           files->loads[load + 1].at <= at)
        load++;
    return dcpk_feed_load_name(files, load);
}

/* The elements of a load that are not stored as they are wanted. */
static dcpk_status gather_range(struct dcpk_remap_files *files, int worker,
                                const struct feed_range *range, uint8_t *out,
                                struct dcpk_error *err)
{
    const struct feed_part *part = &files->parts[files->first_part + range->load];
    struct dcpk_view view = files->options.views[part->view].view;
    struct dcpk_box_tree pieces;
    const struct dcpk_gather_from from = {&view, &pieces};
    struct dcpk_box box;

    view.dtype = files->dtypes[part->view];
    if (part->piece != FEED_NONE) {
        view.pieces += part->piece;
        view.n_pieces = 1;
    }
    if (dcpk_piece_tree_build(&view, &pieces, err)) /* of one: it holds no memory */
        return err->status;
    (void)dcpk_feed_wanted_box(files, range->load, &box);
    return dcpk_gather(files->exec, &files->workers[worker], &from, &box, out, err);
}

/* Read all of a slice into `out`: *n_bytes of elements, its gaps left out. */
static dcpk_status slice_read(struct dcpk_remap_files *files, int worker, const struct slice *slice,
                              uint8_t *out, uint64_t *n_bytes, struct dcpk_error *err)
{
    const uint64_t stage_at = slice->stage * files->stage_bytes;
    const uint64_t begin = stage_at + slice->number * files->slice_bytes;
    const uint64_t end =
        dcpk_min_u64(begin + files->slice_bytes, stage_at + files->stages[slice->stage].n_bytes);

    *n_bytes = 0;
    for (size_t i = find_range(files, slice->stage, begin);
         i < files->n_ranges && files->ranges[i].at < end; i++) {
        const struct feed_range *range = &files->ranges[i];
        const uint64_t low = dcpk_max_u64(range->at, begin);
        const uint64_t high = dcpk_min_u64(range->at + range->n_bytes, end);

        *n_bytes += high - low;
        if (range->source == NULL) {
            if (gather_range(files, worker, range, out + (low - begin), err))
                return err->status;
            continue;
        }
        if (dcpk_source_read(range->source, range->file_bytes + (low - range->at),
                             out + (low - begin), (size_t)(high - low), err)) {
            dcpk_context(err, "reading '%s' from '%s'", name_at(files, range, low),
                         dcpk_source_name(range->source));
            return err->status;
        }
        files->workers[worker].read_bytes += high - low;
    }
    return DCPK_OK;
}

/* The place of a slice in the ring. */
static uint8_t *place_in_ring(const struct dcpk_remap_files *files, const struct slice *slice)
{
    return files->ring + slice->stage % files->n_ring_stages * files->stage_bytes +
           slice->number * files->slice_bytes;
}

enum turn { TURN_READ, TURN_WAIT, TURN_OVER };

/* Take the next slice, where there is room for it. Under the lock. */
static enum turn take_slice(struct feeder *f, struct slice *slice)
{
    const struct dcpk_remap_files *files = f->files;

    if (f->failed || f->next.stage == files->n_stages)
        return TURN_OVER;
    if (f->next.stage >= f->n_done + files->n_ring_stages)
        return TURN_WAIT;
    if (files->slots != NULL && f->n_free_slots == 0)
        return TURN_WAIT;
    *slice = f->next;
    if (files->slots != NULL)
        slice->slot = f->free_slots[--f->n_free_slots];
    if (++f->next.number == slices_of(files, f->next.stage))
        f->next = (struct slice){.stage = f->next.stage + 1};
    return TURN_READ;
}

/* Read a slice that was taken, and give it to the caller. Under the lock, which is released
 * meanwhile. */
static dcpk_status bring_slice(struct feeder *f, int worker, const struct slice *slice,
                               struct dcpk_error *err)
{
    struct dcpk_remap_files *files = f->files;
    uint8_t *out = place_in_ring(files, slice);
    uint64_t n_bytes;
    dcpk_status st;

    if (files->slots != NULL)
        out = files->slots + slice->slot * files->slice_bytes;
    pthread_mutex_unlock(&f->mutex);
    st = slice_read(files, worker, slice, out, &n_bytes, err);
    if (st == DCPK_OK)
        st = dcpk_meter_add(&f->meter, n_bytes, err);
    pthread_mutex_lock(&f->mutex);
    if (st == DCPK_OK)
        f->arrivals[(f->first_arrival + f->n_arrivals++) % f->room] = *slice;
    else
        f->failed = true;
    pthread_cond_broadcast(&f->changed);
    return st;
}

static dcpk_status read_slices(struct feeder *f, int worker, struct dcpk_error *err)
{
    dcpk_status st = DCPK_OK;
    struct slice slice;
    enum turn turn;

    pthread_mutex_lock(&f->mutex);
    f->n_reading++;
    while (st == DCPK_OK && (turn = take_slice(f, &slice)) != TURN_OVER) {
        if (turn == TURN_WAIT)
            pthread_cond_wait(&f->changed, &f->mutex);
        else
            st = bring_slice(f, worker, &slice, err);
    }
    f->n_reading--;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->mutex);
    return st;
}

/* Copy what has arrived, or count it where it is in the ring already. */
static dcpk_status take_arrivals(struct feeder *f, bool *moved, struct dcpk_error *err)
{
    struct dcpk_remap_files *files = f->files;
    struct dcpk_device *device = files->base.options.device;

    for (;;) {
        struct copying *copy = &f->copies[(f->first_copy + f->n_copies) % f->room];
        bool is_there;

        pthread_mutex_lock(&f->mutex);
        is_there = f->n_arrivals > 0;
        if (is_there) {
            copy->slice = f->arrivals[f->first_arrival];
            f->first_arrival = (f->first_arrival + 1) % f->room;
            f->n_arrivals--;
        }
        pthread_mutex_unlock(&f->mutex);
        if (!is_there)
            return DCPK_OK;
        *moved = true;
        if (files->slots == NULL) {
            f->n_there[copy->slice.stage % FEED_N_STAGES]++;
            continue;
        }
        if (device->ops->copy(device, QUEUE_COPY, place_in_ring(files, &copy->slice),
                              files->slots + copy->slice.slot * files->slice_bytes,
                              (size_t)files->slice_bytes, err) ||
            device->ops->ticket(device, QUEUE_COPY, &copy->ticket, err))
            return err->status;
        f->n_copies++;
    }
}

/* Free the slots of copies that are done. */
static dcpk_status finish_copies(struct feeder *f, bool *moved, struct dcpk_error *err)
{
    struct dcpk_device *device = f->files->base.options.device;

    while (f->n_copies > 0) {
        const struct copying *copy = &f->copies[f->first_copy];
        bool done;

        if (device->ops->poll(device, copy->ticket, &done, err))
            return err->status;
        if (!done)
            return DCPK_OK;
        *moved = true;
        f->n_there[copy->slice.stage % FEED_N_STAGES]++;
        f->first_copy = (f->first_copy + 1) % f->room;
        f->n_copies--;
        pthread_mutex_lock(&f->mutex);
        f->free_slots[f->n_free_slots++] = copy->slice.slot;
        pthread_cond_broadcast(&f->changed);
        pthread_mutex_unlock(&f->mutex);
    }
    return DCPK_OK;
}

/* Run the tiles of stages that are complete, in order. */
static dcpk_status run_stages(struct feeder *f, bool *moved, struct dcpk_error *err)
{
    struct dcpk_remap_files *files = f->files;
    struct dcpk_remap *base = &files->base;
    struct dcpk_device *device = base->options.device;

    while (f->n_run < files->n_stages &&
           f->n_there[f->n_run % FEED_N_STAGES] == slices_of(files, f->n_run)) {
        const struct feed_stage *stage = &files->stages[f->n_run];
        struct running *running = &f->running[f->n_run % FEED_N_STAGES];

        if (dcpk_remap_run_table(base, QUEUE_MOVE, stage->peers, base->sums, err) ||
            dcpk_remap_run_table(base, QUEUE_LOCAL, stage->local, base->sums, err) ||
            dcpk_remap_queue_reading(base, &stage->reading, base->sums, err) ||
            device->ops->ticket(device, QUEUE_MOVE, &running->peers, err) ||
            device->ops->ticket(device, QUEUE_LOCAL, &running->local, err))
            return err->status;
        f->n_there[f->n_run % FEED_N_STAGES] = 0;
        f->n_run++;
        *moved = true;
    }
    return DCPK_OK;
}

/* Give back the place of stages whose tiles are done. */
static dcpk_status finish_stages(struct feeder *f, bool *moved, struct dcpk_error *err)
{
    struct dcpk_device *device = f->files->base.options.device;

    while (f->n_done < f->n_run) {
        const struct running *running = &f->running[f->n_done % FEED_N_STAGES];
        bool peers, local;

        if (device->ops->poll(device, running->peers, &peers, err) ||
            device->ops->poll(device, running->local, &local, err))
            return err->status;
        if (!peers || !local)
            return DCPK_OK;
        *moved = true;
        pthread_mutex_lock(&f->mutex);
        f->n_done++;
        pthread_cond_broadcast(&f->changed);
        pthread_mutex_unlock(&f->mutex);
    }
    return DCPK_OK;
}

/* Nothing is under way on the device: wait for an arrival, or read one where no thread does. */
static dcpk_status await_arrival(struct feeder *f, int worker, struct dcpk_error *err)
{
    dcpk_status st = DCPK_OK;
    struct slice slice;

    pthread_mutex_lock(&f->mutex);
    if (f->n_arrivals == 0 && !f->failed) {
        if (f->n_reading > 0)
            pthread_cond_wait(&f->changed, &f->mutex);
        else if (take_slice(f, &slice) == TURN_READ)
            st = bring_slice(f, worker, &slice, err);
    }
    pthread_mutex_unlock(&f->mutex);
    return st;
}

/* Work is under way: look again soon, but not for ever. since: when something was done. */
static dcpk_status await_space(struct feeder *f, double since, struct dcpk_error *err)
{
    const int timeout_ms = dcpk_remap_timeout(&f->files->base);
    const double waited = dcpk_now_seconds() - since;

    if (waited * 1000 > timeout_ms)
        return dcpk_fail(err, DCPK_EIO, "the device was not done after %d ms", timeout_ms);
    dcpk_pause(waited);
    return DCPK_OK;
}

static bool has_failed(struct feeder *f)
{
    bool failed;

    pthread_mutex_lock(&f->mutex);
    failed = f->failed;
    pthread_mutex_unlock(&f->mutex);
    return failed;
}

/* The caller's part, until all stages are done or a reader has failed. */
static dcpk_status push_stages(struct feeder *f, int worker, struct dcpk_error *err)
{
    double since = dcpk_now_seconds();

    while (f->n_done < f->files->n_stages && !has_failed(f)) {
        bool moved = false;

        if (take_arrivals(f, &moved, err) || finish_copies(f, &moved, err) ||
            run_stages(f, &moved, err) || finish_stages(f, &moved, err))
            return err->status;
        if (!moved && (f->n_copies > 0 || f->n_done < f->n_run)) {
            if (await_space(f, since, err))
                return err->status;
            continue;
        }
        if (!moved && await_arrival(f, worker, err))
            return err->status;
        since = dcpk_now_seconds();
    }
    return DCPK_OK;
}

/* A task of the pool: worker 0 is the caller's thread. */
static dcpk_status feed_task(void *context, int worker, uint64_t i, struct dcpk_error *err)
{
    struct feeder *f = context;

    (void)i;
    if (worker > 0)
        return read_slices(f, worker, err);
    if (push_stages(f, worker, err) == DCPK_OK)
        return DCPK_OK;
    pthread_mutex_lock(&f->mutex);
    f->failed = true;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->mutex);
    return err->status;
}

static void feeder_release(struct feeder *f)
{
    pthread_mutex_destroy(&f->mutex);
    pthread_cond_destroy(&f->changed);
    dcpk_free(f->arrivals);
    dcpk_free(f->copies);
    dcpk_free(f->free_slots);
}

static dcpk_status feeder_init(struct feeder *f, struct dcpk_remap_files *files,
                               struct dcpk_error *err)
{
    pthread_mutex_init(&f->mutex, NULL);
    pthread_cond_init(&f->changed, NULL);
    f->files = files;
    f->room = files->n_ring_stages * (size_t)(files->stage_bytes / files->slice_bytes) + 1;
    f->arrivals = dcpk_alloc_array(f->room, sizeof *f->arrivals, err);
    if (f->arrivals != NULL)
        f->copies = dcpk_alloc_array(f->room, sizeof *f->copies, err);
    if (f->copies != NULL)
        f->free_slots = dcpk_alloc_array(files->n_slots, sizeof *f->free_slots, err);
    if (f->free_slots == NULL)
        return err->status;
    for (size_t i = 0; i < files->n_slots; i++)
        f->free_slots[f->n_free_slots++] = i;
    return DCPK_OK;
}

/* Check the checksum of the chunk that a load is of. A task of the pool. */
static dcpk_status load_check(void *context, int worker, uint64_t i, struct dcpk_error *err)
{
    struct feeder *f = context;
    struct dcpk_remap_files *files = f->files;
    const struct dcpk_checkpoint *ckpt = files->options.ckpt;
    const struct feed_part *part = &files->parts[files->first_part + i];

    if (files->records[i].has_crc32 &&
        dcpk_worker_check_record(&files->workers[worker], &files->records[i], &f->meter, err))
        dcpk_context(err, "checking '%s'", ckpt->tensors[ckpt->chunks[part->chunk].tensor].key);
    return err->status;
}

dcpk_status dcpk_feed_push(struct dcpk_remap_files *files, struct dcpk_error *err)
{
    const int n_threads = files->exec->n_threads;
    struct dcpk_exec_stats stats = {0};
    struct feeder f = {.files = NULL};
    dcpk_status st = feeder_init(&f, files, err);

    if (st != DCPK_OK) {
        feeder_release(&f);
        return st;
    }
    for (int i = 0; i < n_threads; i++)
        files->workers[i].read_bytes = 0;
    dcpk_meter_begin(&f.meter, &files->exec->progress,
                     files->record_bytes + files->stats.plan_bytes + files->stats.gathered_bytes);
    if (files->records != NULL)
        st = dcpk_pool_run(n_threads, files->n_loads, load_check, &f, err);
    if (st == DCPK_OK)
        st = dcpk_pool_run(n_threads, (uint64_t)n_threads, feed_task, &f, err);
    if (st == DCPK_OK) /* work left when the readers took all tasks */
        st = feed_task(&f, 0, 0, err);
    st = dcpk_meter_end(&f.meter, files->exec, files->workers, &stats, st);
    if (st != DCPK_OK) /* the ring and the slots are used again */
        st = dcpk_remap_drain(&files->base, st, err);
    files->stats.read_bytes = stats.read_bytes;
    feeder_release(&f);
    return st;
}

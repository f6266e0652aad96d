/* SPDX-License-Identifier: Apache-2.0 */
/* exec_pass.c - a pass over a checkpoint: tasks on all threads of all ranks; items in the order of
 * their places. */
#include <inttypes.h>
#include <stdlib.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/exec/env.h"
#include "lib/exec/workers.h"

/* ---- items in the order of their places ---- */

static int compare_places(const struct dcpk_place *a, const struct dcpk_place *b)
{
    return DCPK_ORDER_BY_3(a, b, file, offset_bytes, n_bytes);
}

static int compare_chunks(const void *a, const void *b, void *context)
{
    const struct dcpk_chunk *chunks = ((const struct dcpk_checkpoint *)context)->chunks;
    const uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    const int order = compare_places(&chunks[i].place, &chunks[j].place);

    return order != 0 ? order : DCPK_THREE_WAY(i, j);
}

static int compare_objects(const void *a, const void *b, void *context)
{
    const struct dcpk_object *objects = ((const struct dcpk_checkpoint *)context)->objects;
    const uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    const int order = compare_places(&objects[i].place, &objects[j].place);

    return order != 0 ? order : DCPK_THREE_WAY(i, j);
}

/* A kind of items: their order, and which of neighbours are one. */
struct item_kind {
    size_t n;
    int (*compare)(const void *, const void *, void *);
    bool (*same)(const struct dcpk_checkpoint *, uint32_t, uint32_t);
};

/* first: by item, the place in *items of the one that it shares its bytes with; NULL: not
 * wanted. */
static dcpk_status order_items(struct dcpk_checkpoint *ckpt, const struct item_kind *kind,
                               uint32_t *first, uint32_t **items, size_t *n_items,
                               struct dcpk_error *err)
{
    const size_t n = kind->n;
    uint32_t *order;
    size_t n_kept = 0;

    if (n > UINT32_MAX)
        return dcpk_fail(err, DCPK_ERANGE, "%zu items, the limit is %" PRIu32, n, UINT32_MAX);
    order = dcpk_alloc_array(n, sizeof *order, err);
    if (order == NULL)
        return err->status;
    for (size_t i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    qsort_r(order, n, sizeof *order, kind->compare, ckpt);
    for (size_t i = 0; i < n; i++) {
        const uint32_t item = order[i];

        if (n_kept == 0 || !kind->same(ckpt, order[n_kept - 1], item))
            order[n_kept++] = item;
        if (first != NULL)
            first[item] = (uint32_t)(n_kept - 1);
    }
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

dcpk_status dcpk_order_chunks(struct dcpk_checkpoint *ckpt, uint32_t **chunks, size_t *n_chunks,
                              struct dcpk_error *err)
{
    const struct item_kind kind = {ckpt->n_chunks, compare_chunks, same_chunk};

    return order_items(ckpt, &kind, NULL, chunks, n_chunks, err);
}

dcpk_status dcpk_order_objects(struct dcpk_checkpoint *ckpt, uint32_t *first, uint32_t **objects,
                               size_t *n_objects, struct dcpk_error *err)
{
    const struct item_kind kind = {ckpt->n_objects, compare_objects, same_object};

    return order_items(ckpt, &kind, first, objects, n_objects, err);
}

/* ---- the pass ---- */

dcpk_status dcpk_pass_begin(struct dcpk_pass *pass, struct dcpk_exec *exec, struct dcpk_error *err)
{
    pass->exec = exec;
    dcpk_meter_begin(&pass->meter, &exec->progress, 0);
    pass->workers = dcpk_workers_new(exec, err);
    if (pass->workers == NULL)
        return err->status;
    return DCPK_OK;
}

static dcpk_status pass_run_task(void *context, int worker, uint64_t i, struct dcpk_error *err)
{
    struct dcpk_pass *pass = context;

    return pass->task(pass->context, worker, pass->work.first + i, err);
}

/* A hash of all that decides the shares: the number of tasks, and their sizes. */
static uint64_t fingerprint(const struct dcpk_work *work)
{
    return work->n ^ work->total_bytes * UINT64_C(0x9e3779b97f4a7c15);
}

dcpk_status dcpk_pass_run(struct dcpk_pass *pass, struct dcpk_error *err)
{
    struct dcpk_ranks *ranks = pass->exec->ranks;
    struct dcpk_work *work = &pass->work;
    struct dcpk_meter *meter = &pass->meter;
    dcpk_status st;

    work->context = pass->context;
    dcpk_ranks_divide(ranks, work);
    if (dcpk_ranks_check_checkpoint(ranks, pass->exec->ckpt, err) ||
        dcpk_ranks_check_same(ranks, fingerprint(work), "checkpoint", err))
        return err->status;
    meter->total_bytes = work->total_bytes;
    meter->progress = dcpk_ranks_progress(ranks, pass->exec->progress, work->total_bytes);
    st = dcpk_pool_run(pass->exec->n_threads, work->last - work->first, pass_run_task, pass, err);
    if (st == DCPK_OK)
        st = dcpk_ranks_wait(ranks, NULL, NULL, err);
    meter->progress = pass->exec->progress;
    if (st == DCPK_OK && ranks != NULL) /* by all: the others are done as well */
        atomic_store(&meter->done_bytes, work->total_bytes);
    return st;
}

dcpk_status dcpk_workers_share(const struct dcpk_exec *exec, const struct dcpk_worker *workers,
                               struct dcpk_exec_stats *elsewhere, dcpk_status st,
                               struct dcpk_error *err)
{
    struct dcpk_exec_stats moved = {0};
    uint64_t sums[4];

    dcpk_workers_count(exec, workers, &moved);
    sums[0] = moved.read_bytes;
    sums[1] = moved.written_bytes;
    sums[2] = moved.checked_bytes;
    sums[3] = moved.n_zero_scales;
    st = dcpk_ranks_sum(exec->ranks, sums, DCPK_COUNT(sums), st, err);
    if (st != DCPK_OK)
        return st;
    elsewhere->read_bytes += sums[0] - moved.read_bytes;
    elsewhere->written_bytes += sums[1] - moved.written_bytes;
    elsewhere->checked_bytes += sums[2] - moved.checked_bytes;
    elsewhere->n_zero_scales += sums[3] - moved.n_zero_scales;
    return DCPK_OK;
}

dcpk_status dcpk_pass_share(struct dcpk_pass *pass, const struct dcpk_bytes *mine,
                            size_t task_bytes, struct dcpk_bytes *all, dcpk_status st,
                            struct dcpk_error *err)
{
    if (mine != NULL && st == DCPK_OK)
        st = dcpk_bytes_status(mine, err);
    if (mine != NULL)
        st = dcpk_ranks_share(pass->exec->ranks, mine->data, mine->n_bytes, all, st, err);
    if (task_bytes > 0 && st == DCPK_OK && all->n_bytes != pass->work.n * task_bytes)
        st = dcpk_fail(err, DCPK_EIO, "%zu bytes are no results of %" PRIu64 " tasks of all ranks",
                       all->n_bytes, pass->work.n);
    return dcpk_workers_share(pass->exec, pass->workers, &pass->elsewhere, st, err);
}

dcpk_status dcpk_pass_end(struct dcpk_pass *pass, struct dcpk_exec_stats *stats, dcpk_status st)
{
    st = dcpk_meter_end(&pass->meter, pass->exec, pass->workers, stats, st);
    if (st == DCPK_OK && stats != NULL) {
        stats->read_bytes += pass->elsewhere.read_bytes;
        stats->written_bytes += pass->elsewhere.written_bytes;
        stats->checked_bytes += pass->elsewhere.checked_bytes;
    }
    dcpk_workers_free(pass->exec, pass->workers);
    return st;
}

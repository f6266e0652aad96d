/* SPDX-License-Identifier: Apache-2.0 */
/* exec_pass.c - a pass over a checkpoint: tasks on all threads of all ranks. */
#include <inttypes.h>

#include "lib/base/order.h"
#include "lib/exec/env.h"
#include "lib/exec/workers.h"

dcpk_status dcpk_pass_begin(struct dcpk_pass *pass, struct dcpk_exec *exec, struct dcpk_error *err)
{
    pass->exec = exec;
    dcpk_meter_begin(&pass->meter, exec, 0);
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
    uint64_t sums[3];

    dcpk_workers_count(exec, workers, &moved);
    sums[0] = moved.read_bytes;
    sums[1] = moved.written_bytes;
    sums[2] = moved.checked_bytes;
    st = dcpk_ranks_sum(exec->ranks, sums, DCPK_COUNT(sums), st, err);
    if (st != DCPK_OK)
        return st;
    elsewhere->read_bytes += sums[0] - moved.read_bytes;
    elsewhere->written_bytes += sums[1] - moved.written_bytes;
    elsewhere->checked_bytes += sums[2] - moved.checked_bytes;
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

/* SPDX-License-Identifier: Apache-2.0 */
/* exec_convert.c - writes a planned output: payloads, then tensors in the order of the files, then
 * the format's finish. */
#include "lib/base/alloc.h"
#include "lib/exec/pool.h"
#include "lib/exec/write_priv.h"

static void writing_release(struct dcpk_writing *c)
{
    for (size_t f = 0; c->files != NULL && f < c->out->n_files; f++)
        dcpk_sink_abandon(c->files[f].sink);
    for (size_t t = 0; c->trees != NULL && t < c->out->n_tensors; t++) {
        if (c->trees[t] != NULL)
            dcpk_box_tree_release(c->trees[t]);
        dcpk_free(c->trees[t]);
    }
    dcpk_free(c->trees);
    dcpk_free(c->files);
    dcpk_free(c->half_written);
    dcpk_free(c->entries);
    dcpk_free(c->order);
    dcpk_workers_free(c->exec, c->workers);
    pthread_mutex_destroy(&c->mutex);
}

static dcpk_status allocate(struct dcpk_writing *c, struct dcpk_error *err)
{
    const size_t n_slots = (size_t)c->exec->n_threads + 1;

    c->workers = dcpk_workers_new(c->exec, err);
    if (c->workers == NULL)
        return err->status;
    c->files = dcpk_alloc_array(c->out->n_files, sizeof *c->files, err);
    if (c->files == NULL)
        return err->status;
    c->half_written = dcpk_alloc_array(n_slots, sizeof *c->half_written, err);
    return c->half_written == NULL ? err->status : DCPK_OK;
}

/* Sync the files that only payloads went into, and make those that nothing went into. */
static dcpk_status close_files(struct dcpk_writing *c, struct dcpk_error *err)
{
    for (uint32_t f = 0; f < c->out->n_files; f++) {
        struct dcpk_sink *sink = c->files[f].sink;

        if (!c->files[f].was_opened && dcpk_write_open(c, f, &sink, err) != DCPK_OK)
            return err->status;
        c->files[f].sink = NULL;
        if (sink != NULL && dcpk_sink_close(sink, err) != DCPK_OK)
            return err->status;
    }
    return DCPK_OK;
}

static uint64_t total_bytes(const struct dcpk_output *out)
{
    uint64_t n = 0;

    for (size_t i = 0; i < out->n_chunks; i++)
        n += out->chunks[i].data_bytes;
    for (size_t i = 0; i < out->n_payloads; i++)
        n += out->payloads[i].n_bytes;
    return n;
}

dcpk_status dcpk_exec_convert(struct dcpk_exec *exec, struct dcpk_output *out,
                              struct dcpk_folder *folder, struct dcpk_exec_stats *stats,
                              struct dcpk_error *err)
{
    struct dcpk_writing c = {.exec = exec, .out = out, .folder = folder};
    dcpk_status st;

    pthread_mutex_init(&c.mutex, NULL);
    dcpk_meter_begin(&c.meter, exec, total_bytes(out));
    st = allocate(&c, err);
    if (st == DCPK_OK)
        st = dcpk_write_prepare(&c, err);
    for (size_t f = 0; f < out->n_files && st == DCPK_OK; f++)
        st = dcpk_folder_reserve(folder, out->files[f].name, out->files[f].n_bytes, err);
    if (st == DCPK_OK)
        st = dcpk_write_payloads(&c, err);
    if (st == DCPK_OK)
        st = dcpk_pool_run(exec->n_threads, c.n_tasks, dcpk_write_task, &c, err);
    if (st == DCPK_OK)
        st = close_files(&c, err);
    if (st == DCPK_OK)
        st = out->format->finish(out, folder, err);
    st = dcpk_meter_end(&c.meter, exec, c.workers, stats, st);
    writing_release(&c);
    return st;
}

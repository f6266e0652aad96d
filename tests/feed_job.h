/* SPDX-License-Identifier: Apache-2.0 */
/* feed_job.h - tensors of a checkpoint, fed by ranks that are threads into random layouts, and put
 * together again. */
#ifndef DCPK_TESTS_FEED_JOB_H
#define DCPK_TESTS_FEED_JOB_H

#define RANK_MAX_BYTES (4 << 20)

#include <stdlib.h>

#include "kernels/kernels.h"
#include "lib/exec/exec.h"
#include "lib/exec/remap_files.h"
#include "tests/check.h"
#include "tests/placed.h"
#include "tests/rank_threads.h"

#define FEED_POISON 0xdb

/* What is fed, and how. Made by feed_make, which sets all but what stands first. */
struct feed_job {
    int n_ranks;
    struct dcpk_remap_files_options options; /* of all but device, ranks */
    const enum dcpk_dtype *wanted;           /* of each view; NULL: its own */
    int n_threads, n_runs;
    const struct dcpk_device_ops *device; /* NULL: dcpk_devices[0] */
    struct dcpk_progress progress;        /* of each rank */
    bool drops;                           /* not all shards are wanted */
    void (*before)(int self); /* called on every rank once all are ready; NULL: nothing */
    /* What the last rank has in the place of options.ckpt and views; NULL: the same. */
    struct dcpk_checkpoint *last_ckpt;
    const struct dcpk_remap_view *last_views;

    struct dcpk_arena *arena;
    struct dcpk_shard *targets; /* by holder */
    size_t n_targets, capacity;
    size_t first[RANK_THREADS_MAX + 1]; /* of each holder */
    uint8_t *memory[RANK_THREADS_MAX];
    size_t n_bytes[RANK_THREADS_MAX], room[RANK_THREADS_MAX];
    dcpk_status ends[RANK_THREADS_MAX];
    struct dcpk_error errs[RANK_THREADS_MAX];
    struct dcpk_remap_files_stats stats[RANK_THREADS_MAX];
};

static inline enum dcpk_dtype feed_dtype(const struct feed_job *job, size_t view)
{
    return job->wanted == NULL ? job->options.views[view].view.dtype : job->wanted[view];
}

/* Tensor parallel (an axis, perhaps of gated halves), FSDP (uneven rows), both, or replicas. */
static inline void feed_choose_layout(const struct feed_job *job, const struct dcpk_view *view,
                                      uint64_t *seed, struct placed *l)
{
    const int n = job->n_ranks;
    const bool has_two = n == 4 && random_below(seed, 3) == 0;

    *l = (struct placed){.n_dims = 1 + has_two, .dim = {{.size = n}, {.size = 1}}};
    if (has_two) {
        l->dim[0].size = 2;
        l->dim[1].size = n / 2;
    }
    for (int d = 0; d < l->n_dims; d++) {
        struct placed_dim *p = &l->dim[d];
        const uint64_t kind = random_below(seed, d == 0 ? 7 : 4);

        p->kind = PLACED_COPY;
        p->axis = view->rank == 0 ? -1 : (int)random_below(seed, (uint64_t)view->rank);
        p->split = 1;
        if (view->rank == 0 || kind == 0)
            continue;
        p->kind = PLACED_SHARD;
        if (kind == 1 && !has_two && view->shape[p->axis] % 2 == 0) {
            p->kind = PLACED_STRIDED;
            p->split = 2;
        }
        if (kind < 4)
            continue;
        p->kind = PLACED_UNEVEN;
        p->axis = 0;
        for (int64_t i = 0; i < p->size; i++) {
            const int64_t left = view->shape[0] - p->cut[i];

            p->cut[i + 1] = view->shape[0];
            if (i + 1 < p->size)
                p->cut[i + 1] = p->cut[i] + (int64_t)random_below(seed, (uint64_t)left + 1);
        }
    }
}

/* Append the local tensor of a rank to its memory. `at` of its shards counts from the memory. */
static inline void feed_put_local(struct feed_job *job, size_t view, int holder,
                                  const struct dcpk_local *boxes, uint64_t *seed)
{
    const struct dcpk_remap_view *v = &job->options.views[view];
    const enum dcpk_dtype dtype = feed_dtype(job, view);
    struct dcpk_error err = DCPK_ERROR_INIT;
    int64_t *stride = dcpk_arena_array(job->arena, DCPK_MAX_RANK, sizeof *stride, &err);
    int64_t n_bytes = (int64_t)dcpk_dtype_bytes(dtype);

    CHECK(stride != NULL, v->name);
    for (int a = v->view.rank - 1; a >= 0; a--) {
        stride[a] = n_bytes;
        n_bytes *= boxes->shape[a];
    }
    for (size_t b = 0; b < boxes->n; b++) {
        struct dcpk_shard *s;

        if (job->drops && random_below(seed, 3) == 0)
            continue;
        if (job->n_targets == job->capacity) {
            job->capacity = 2 * job->capacity + 16;
            job->targets = realloc(job->targets, job->capacity * sizeof *job->targets);
            CHECK(job->targets != NULL, v->name);
        }
        s = &job->targets[job->n_targets++];
        *s = (struct dcpk_shard){.name = v->name,
                                 .dtype = dtype,
                                 .rank = v->view.rank,
                                 .holder = holder,
                                 .shape = v->view.shape,
                                 .span = boxes->spans[b],
                                 .stride_bytes = stride,
                                 .at = job->n_bytes[holder]};
        for (int a = 0; a < s->rank; a++)
            s->at += (uint64_t)(boxes->spans[b][2 * s->rank + a] * stride[a]);
    }
    job->n_bytes[holder] += (size_t)n_bytes;
}

/* Choose layouts and make the memory of all ranks. free with feed_release. */
static inline void feed_make(struct feed_job *job, uint64_t seed, const char *label)
{
    const size_t n_views = job->options.n_views;
    struct placed *layouts = calloc(n_views + 1, sizeof *layouts);

    job->arena = dcpk_arena_new();
    CHECK(layouts != NULL, label);
    for (size_t v = 0; v < n_views; v++)
        feed_choose_layout(job, &job->options.views[v].view, &seed, &layouts[v]);
    for (int r = 0; r < job->n_ranks; r++) {
        job->first[r] = job->n_targets;
        for (size_t v = 0; v < n_views; v++) {
            const struct dcpk_view *view = &job->options.views[v].view;
            struct dcpk_local boxes;

            CHECK(placed_local(&layouts[v], view->shape, view->rank, r, job->arena, &boxes), label);
            feed_put_local(job, v, r, &boxes, &seed);
        }
        job->memory[r] = malloc(job->n_bytes[r] + 1);
        CHECK(job->memory[r] != NULL, label);
        memset(job->memory[r], FEED_POISON, job->n_bytes[r] + 1);
        for (size_t i = job->first[r]; i < job->n_targets; i++)
            job->targets[i].at += (uint64_t)(uintptr_t)job->memory[r];
    }
    job->first[job->n_ranks] = job->n_targets;
    free(layouts);
}

static inline void feed_release(struct feed_job *job)
{
    for (int r = 0; r < job->n_ranks; r++) {
        free(job->memory[r]);
        job->memory[r] = NULL;
        job->n_bytes[r] = 0;
    }
    free(job->targets);
    job->targets = NULL;
    job->n_targets = job->capacity = 0;
    dcpk_arena_free(job->arena);
}

static inline dcpk_status feed_run_all(struct feed_job *job, int self,
                                       const struct dcpk_remap_files_options *options,
                                       struct dcpk_error *err)
{
    struct dcpk_remap_files *files = NULL;
    dcpk_status st;

    if (job->before != NULL)
        job->before(self);
    st = dcpk_remap_files_new(options, job->targets + job->first[self],
                              job->first[self + 1] - job->first[self], &files, err);
    for (int i = 0; i < job->n_runs && st == DCPK_OK; i++)
        st = dcpk_remap_files_run(files, err);
    if (files != NULL)
        job->stats[self] = *dcpk_remap_files_stats(files);
    job->stats[self].note = NULL;
    /* All are idle. */
    (void)dcpk_ranks_agree(options->env->ranks, DCPK_OK, &(struct dcpk_error){0});
    dcpk_remap_files_free(files);
    return st;
}

static inline void feed_rank(struct dcpk_ranks *ranks, int self, void *context)
{
    static const struct dcpk_device_options first = {0};
    struct feed_job *job = context;
    const struct dcpk_env env = {.kernels = dcpk_host_kernel_sets[0],
                                 .n_threads = job->n_threads,
                                 .memory_bytes = DCPK_EXEC_MIN_MEMORY_BYTES,
                                 .progress = job->progress,
                                 .ranks = ranks};
    struct dcpk_remap_files_options options = job->options;
    const struct dcpk_device_ops *device = job->device == NULL ? dcpk_devices[0] : job->device;
    struct dcpk_error *err = &job->errs[self];
    dcpk_status st;

    dcpk_error_clear(err);
    options.env = &env;
    if (self == job->n_ranks - 1 && job->last_ckpt != NULL)
        options.ckpt = job->last_ckpt;
    if (self == job->n_ranks - 1 && job->last_views != NULL)
        options.views = job->last_views;
    st = device->open(&first, &options.device, err);
    st = dcpk_ranks_agree(ranks, st, err);
    if (st == DCPK_OK)
        st = feed_run_all(job, self, &options, err);
    job->ends[self] = st;
    device->close(options.device);
}

/* Run by all ranks, which leave well whatever the end. */
static inline void feed_run(struct feed_job *job, uint64_t seed, const char *label)
{
    if (job->n_ranks == 1) {
        feed_rank(NULL, 0, job);
        return;
    }
    rank_threads_begin(job->n_ranks, seed);
    rank_threads_run(feed_rank, job, label);
}

static inline void feed_check_ends(const struct feed_job *job, const char *label)
{
    for (int r = 0; r < job->n_ranks; r++)
        if (job->ends[r] != DCPK_OK)
            fail_msg("%s: rank %d: %s", label, r, job->errs[r].text);
}

/* The whole tensor of a view, row-major, into `out`, from all shards: replicas must be equal.
 * was_set: scratch, an element each. */
static inline void feed_put_together(const struct feed_job *job, size_t view, uint8_t *out,
                                     uint8_t *was_set, int64_t n_elems)
{
    const struct dcpk_remap_view *v = &job->options.views[view];
    const size_t elem_bytes = dcpk_dtype_bytes(feed_dtype(job, view));

    memset(was_set, 0, (size_t)n_elems);
    for (size_t i = 0; i < job->n_targets; i++) {
        const struct dcpk_shard *s = &job->targets[i];
        int64_t index[DCPK_MAX_RANK] = {0};
        int a = 0;

        for (int axis = 0; axis < s->rank; axis++)
            a = s->span[s->rank + axis] == 0 ? -1 : a;
        while (s->name == v->name && a >= 0) {
            uint64_t number = 0, at = s->at;

            for (a = 0; a < s->rank; a++) {
                number = number * (uint64_t)s->shape[a] + (uint64_t)(s->span[a] + index[a]);
                at += (uint64_t)(index[a] * s->stride_bytes[a]);
            }
            if (was_set[number] &&
                memcmp(out + number * elem_bytes, (const void *)(uintptr_t)at, elem_bytes) != 0)
                fail_msg("%s: replicas differ at element %" PRIu64, v->name, number);
            memcpy(out + number * elem_bytes, (const void *)(uintptr_t)at, elem_bytes);
            was_set[number] = 1;
            for (a = s->rank - 1; a >= 0 && ++index[a] == s->span[s->rank + a]; a--)
                index[a] = 0;
        }
    }
    for (int64_t i = 0; i < n_elems; i++)
        if (!was_set[i])
            fail_msg("%s: no rank has element %" PRId64, v->name, i);
}

#endif

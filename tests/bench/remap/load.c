/* SPDX-License-Identifier: Apache-2.0 */
/* load.c - how fast a checkpoint's files come into the shards of ranks. */
/*
 *     mpirun -n 2 load SPACE DIR [AS [THREADS [RING_MIB]]]
 *
 * SPACE: cpu or cuda (GPU i for rank i). DIR: a checkpoint that fits into the devices' memory, and
 * into the page cache. AS: a format whose names and pieces are asked for, stored (default): its
 * own. THREADS: of a rank; 0 (default): all that it may use, at most 16.
 * Row G10 of tests/bench/README.md: every tensor is cut by rows over the ranks, as FSDP does. First
 * the limit: the ranks read all bytes once into page-locked host memory, 4 MiB at a time, and leave
 * them there. Then one run that proves its fingerprints, then 5 that are timed: the time of the
 * slowest rank between meetings, best and median.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/formats.h"
#include "kernels/kernels.h"
#include "lib/base/clock.h"
#include "lib/base/order.h"
#include "lib/exec/env.h"
#include "lib/exec/pool.h"
#include "lib/job/feed_views.h"

#define N_RUNS     5
#define TIMEOUT_MS 600000
#define READ_BYTES ((size_t)4 << 20)
#define MAX_RANKS  64

struct bench {
    struct dcpk_ranks *ranks;
    int self, n_ranks, n_threads;
    const struct dcpk_device_ops *ops;
    struct dcpk_device *device;
    struct dcpk_checkpoint *ckpt;
    struct dcpk_feed_views *views;
    struct dcpk_shard *targets;
    size_t n_targets;
    int64_t (*numbers)[4 * DCPK_MAX_RANK]; /* of each target: span, strides */
};

static void must(struct bench *b, dcpk_status st, struct dcpk_error *err)
{
    if (dcpk_ranks_agree(b->ranks, st, err) == DCPK_OK)
        return;
    if (b->self == 0)
        fprintf(stderr, "load: %s\n", err->text);
    exit(4);
}

/* The largest of all ranks. */
static double slowest(struct bench *b, double seconds)
{
    struct dcpk_comm *comm = dcpk_ranks_comm(b->ranks);
    struct dcpk_error err = DCPK_ERROR_INIT;
    double all[MAX_RANKS] = {seconds};

    if (comm != NULL)
        must(b, comm->transport->all_gather(comm, &seconds, sizeof seconds, all, &err), &err);
    for (int r = 0; r < b->n_ranks; r++)
        seconds = all[r] > seconds ? all[r] : seconds;
    return seconds;
}

/* Rows of every tensor; what has none is on all ranks. Returns the bytes that they take. */
static uint64_t make_targets(struct bench *b)
{
    size_t n;
    const struct dcpk_remap_view *views = dcpk_feed_views(b->views, &n);
    uint64_t at = 0;

    b->targets = calloc(n + 1, sizeof *b->targets);
    b->numbers = calloc(n + 1, sizeof *b->numbers);
    if (b->targets == NULL || b->numbers == NULL)
        abort();
    for (size_t i = 0; i < n; i++) {
        const struct dcpk_view *view = &views[i].view;
        struct dcpk_shard *s = &b->targets[b->n_targets];
        int64_t *span = b->numbers[b->n_targets], *strides = span + 2 * DCPK_MAX_RANK;
        uint64_t n_bytes = dcpk_dtype_bytes(view->dtype);
        struct dcpk_box box;

        dcpk_box_whole(view->shape, view->rank, &box);
        if (view->rank > 0) {
            const int64_t rows = (view->shape[0] + b->n_ranks - 1) / b->n_ranks;

            box.offset[0] = dcpk_min_i64(b->self * rows, view->shape[0]);
            box.extent[0] = dcpk_min_i64(rows, view->shape[0] - box.offset[0]);
        }
        dcpk_box_pack(&box, span);
        dcpk_row_major_strides((size_t)n_bytes, box.extent, box.rank, strides);
        for (int a = 0; a < box.rank; a++)
            n_bytes *= (uint64_t)box.extent[a];
        if (n_bytes == 0)
            continue;
        *s = (struct dcpk_shard){.name = views[i].name,
                                 .dtype = view->dtype,
                                 .rank = view->rank,
                                 .holder = b->self,
                                 .shape = view->shape,
                                 .span = span,
                                 .stride_bytes = strides,
                                 .at = at};
        at += (n_bytes + 255) / 256 * 256;
        b->n_targets++;
    }
    return at;
}

/* A rank's share of all files, read once. */
struct reading {
    struct bench *b;
    uint8_t *slots; /* two for each thread */
    uint64_t first, end, n_each;
};

static dcpk_status read_task(void *context, int worker, uint64_t i, struct dcpk_error *err)
{
    const struct reading *r = context;
    const struct dcpk_checkpoint *ckpt = r->b->ckpt;
    uint8_t *slot = r->slots + (2 * (size_t)worker + i % 2) * READ_BYTES;
    uint64_t at = r->first + i * READ_BYTES, left = READ_BYTES;

    for (size_t file = 0; file < ckpt->n_files && left > 0; file++) {
        const uint64_t file_bytes = dcpk_source_bytes(ckpt->files[file]);
        const uint64_t n = at < file_bytes ? dcpk_min_u64(left, file_bytes - at) : 0;

        if (n > 0 &&
            dcpk_source_read(ckpt->files[file], at, slot + (READ_BYTES - left), (size_t)n, err))
            return err->status;
        at = at > file_bytes ? at - file_bytes : 0;
        left -= n;
    }
    return DCPK_OK;
}

/* Bytes a second of all ranks together, the best of some. */
static double measure_limit(struct bench *b)
{
    struct reading r = {.b = b};
    struct dcpk_error err = DCPK_ERROR_INIT;
    uint64_t total = 0;
    double best = 1e9;
    void *slots;

    for (size_t i = 0; i < b->ckpt->n_files; i++)
        total += dcpk_source_bytes(b->ckpt->files[i]);
    must(b,
         b->ops->alloc(b->device, DCPK_MEMORY_HOST, 2 * (size_t)b->n_threads * READ_BYTES, &slots,
                       &err),
         &err);
    r.slots = slots;
    r.first = total / (uint64_t)b->n_ranks * (uint64_t)b->self;
    r.n_each = total / (uint64_t)b->n_ranks / READ_BYTES + 1;
    for (int i = 0; i < 3; i++) {
        double begun;

        must(b, DCPK_OK, &err);
        begun = dcpk_now_seconds();
        must(b, dcpk_pool_run(b->n_threads, r.n_each, read_task, &r, &err), &err);
        begun = slowest(b, dcpk_now_seconds() - begun);
        best = begun < best ? begun : best;
    }
    b->ops->free(b->device, slots);
    return (double)total / best;
}

static int compare_seconds(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return DCPK_THREE_WAY(*x, *y);
}

static void report(struct bench *b, const struct dcpk_remap_files *files, const double *seconds,
                   double limit, double planned)
{
    const struct dcpk_remap_files_stats *s = dcpk_remap_files_stats(files);
    const uint64_t mine[2] = {s->read_bytes, s->local_bytes + s->in_bytes};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_bytes all = {0};
    uint64_t read = 0;

    must(b, dcpk_ranks_share(b->ranks, mine, sizeof mine, &all, DCPK_OK, &err), &err);
    for (int r = 0; r < b->n_ranks; r++) {
        uint64_t n;

        memcpy(&n, all.data + (size_t)r * sizeof mine, sizeof n);
        read += n;
    }
    dcpk_bytes_release(&all);
    if (b->self != 0)
        return;
    printf("G10 %s, %d ranks x %d threads: %.3f GB read in %.1f ms (median %.1f), %.2f GB/s\n",
           b->ops->name, b->n_ranks, b->n_threads, (double)read / 1e9, 1e3 * seconds[0],
           1e3 * seconds[N_RUNS / 2], (double)read / seconds[0] / 1e9);
    printf("    limit %.2f GB/s (reading alone): %.2f of it; planned in %.1f ms\n", limit / 1e9,
           (double)read / seconds[0] / limit, 1e3 * planned);
    printf("    a rank: %" PRIu64 " parts, %" PRIu64 " tiles, MiB: %.1f tables, %.0f ring, %.0f "
           "slots, %.1f gathered %s\n",
           s->n_parts, s->n_tiles, (double)s->table_bytes / (1 << 20),
           (double)s->ring_bytes / (1 << 20), (double)s->slot_bytes / (1 << 20),
           (double)s->gathered_bytes / (1 << 20), s->note);
}

static struct dcpk_remap_files *feed_new(struct bench *b, struct dcpk_env *env, uint64_t ring_bytes,
                                         bool checks)
{
    struct dcpk_remap_files_options options = {.env = env,
                                               .ckpt = b->ckpt,
                                               .device = b->device,
                                               .ring_bytes = ring_bytes,
                                               .timeout_ms = TIMEOUT_MS,
                                               .checks = checks};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_remap_files *files = NULL;

    options.views = dcpk_feed_views(b->views, &options.n_views);
    must(b, dcpk_remap_files_new(&options, b->targets, b->n_targets, &files, &err), &err);
    return files;
}

static void run(struct bench *b, struct dcpk_env *env, uint64_t ring_bytes)
{
    const double limit = measure_limit(b);
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_remap_files *files = feed_new(b, env, ring_bytes, true);
    double seconds[N_RUNS], planned;

    must(b, dcpk_remap_files_run(files, &err), &err); /* proves what landed */
    dcpk_remap_files_free(files);
    planned = dcpk_now_seconds();
    files = feed_new(b, env, ring_bytes, false);
    planned = dcpk_now_seconds() - planned;
    for (int i = 0; i < N_RUNS; i++) {
        must(b, dcpk_remap_files_run(files, &err), &err);
        seconds[i] = slowest(b, dcpk_remap_files_stats(files)->seconds);
    }
    qsort(seconds, N_RUNS, sizeof *seconds, compare_seconds);
    report(b, files, seconds, limit, planned);
    must(b, DCPK_OK, &err);
    dcpk_remap_files_free(files);
}

int main(int argc, char **argv)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_device_options where = {0};
    const struct dcpk_format *as = NULL;
    struct bench b = {0};
    struct dcpk_env env = {.formats = dcpk_formats, .kernels = dcpk_host_kernel_sets[0]};
    uint64_t n_bytes, ring_bytes = argc > 5 ? strtoull(argv[5], NULL, 10) << 20 : 0;
    void *at;

    if (dcpk_ranks_join(dcpk_transports, &b.ranks, &err) != DCPK_OK) {
        fprintf(stderr, "load: %s\n", err.text);
        return 4;
    }
    b.self = dcpk_ranks_self(b.ranks);
    b.n_ranks = dcpk_ranks_count(b.ranks);
    for (size_t i = 0; argc > 2 && dcpk_devices[i] != NULL; i++)
        if (strcmp(dcpk_devices[i]->name, argv[1]) == 0)
            b.ops = dcpk_devices[i];
    if (b.ops == NULL || b.n_ranks > MAX_RANKS)
        must(&b, dcpk_fail(&err, DCPK_EUSAGE, "usage: load SPACE DIR [AS [THREADS [RING_MIB]]]"),
             &err);
    if (argc > 3 && strcmp(argv[3], "stored") != 0)
        as = dcpk_format_find(argv[3]);
    b.n_threads = argc > 4 ? (int)strtol(argv[4], NULL, 10) : 0;
    if (b.n_threads <= 0)
        b.n_threads = dcpk_pool_default_threads();
    env.n_threads = b.n_threads;
    env.ranks = b.ranks;
    where.ordinal = strcmp(b.ops->name, "cuda") == 0 ? b.self : 0;
    must(&b, b.ops->open(&where, &b.device, &err), &err);
    must(&b, dcpk_env_open(&env, argv[2], NULL, NULL, &b.ckpt, &err), &err);
    must(&b, dcpk_feed_views_new(b.ckpt, as, NULL, 0, &b.views, &err), &err);
    n_bytes = make_targets(&b);
    must(&b, b.ops->alloc(b.device, DCPK_MEMORY_DEVICE, n_bytes + 1, &at, &err), &err);
    for (size_t i = 0; i < b.n_targets; i++)
        b.targets[i].at += (uint64_t)(uintptr_t)at;
    run(&b, &env, ring_bytes);
    b.ops->free(b.device, at);
    b.ops->close(b.device);
    dcpk_feed_views_free(b.views);
    dcpk_checkpoint_close(b.ckpt);
    free(b.targets);
    free(b.numbers);
    return dcpk_ranks_leave(b.ranks, &err) == DCPK_OK ? 0 : 4;
}

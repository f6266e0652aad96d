/* SPDX-License-Identifier: Apache-2.0 */
/* layouts.c - how fast tensors go from one layout over ranks to another, and back. */
/*
 *     mpirun -n 2 layouts SPACE [MIB [PATH [CHECK [STAGING_MIB [BLOCK_KIB]]]]]
 *
 * SPACE: cpu or cuda (GPU i for rank i). MIB: of a rank, default 1024. PATH: direct (default) or
 * staged, then over NCCL between GPUs, else MPI. CHECK: 1 compares fingerprints in each run.
 * A line a row of the table G6 to G8 of tests/bench/README.md: one large tensor, layers of an 8B,
 * thousands of small tensors; rows to columns. Sources are random, targets poisoned; after one run
 * the way back must give the first bytes again, compared on the host, before anything is timed.
 * Time: of the slowest rank, the best of 5. BLOCK_KIB: then also runs of what changed, by blocks of
 * that size: a word in 0 to 100 % of the pieces of 256 KiB of the sources; the slowest of 5 is that
 * after fewer changes, which reads the sources first. What lands is verified.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "lib/base/order.h"
#include "lib/exec/remap.h"
#include "tests/random.h"

#define N_RUNS      5
#define TIMEOUT_MS  60000
#define PIECE_BYTES (UINT64_C(256) << 10)

struct bench {
    struct dcpk_ranks *ranks;
    int self, n_ranks;
    const struct dcpk_device_ops *ops;
    struct dcpk_remap_options options;
    char *a, *b, *back; /* of the device: source, target, what came back */
    uint64_t n_bytes;   /* of each */
    uint64_t seed;      /* of what changes: no two scenes may make the same changes */
};

/* Tensors of one shape, each cut along one axis before and another one after. */
struct scene {
    const char *name;
    size_t n;
    int64_t shape[2];
};

static void must(struct bench *b, dcpk_status st, struct dcpk_error *err)
{
    if (dcpk_ranks_agree(b->ranks, st, err) == DCPK_OK)
        return;
    if (b->self == 0)
        fprintf(stderr, "layouts: %s\n", err->text);
    exit(4);
}

/* The same, where other ranks are not asked. */
static void must_alone(dcpk_status st, struct dcpk_error *err)
{
    if (st == DCPK_OK)
        return;
    fprintf(stderr, "layouts: %s\n", err->text);
    exit(4);
}

/* One side: every tensor's part of this rank, packed one behind the other from `at` on. */
struct side {
    struct dcpk_shard *shards;
    char (*names)[24];
    int64_t (*spans)[4], (*strides)[2];
    size_t n;
};

static void side_make(const struct bench *b, const struct scene *scene, int axis, char *at,
                      struct side *side)
{
    uint64_t next = (uint64_t)(uintptr_t)at;

    *side = (struct side){.n = scene->n};
    side->shards = calloc(scene->n, sizeof *side->shards);
    side->names = calloc(scene->n, sizeof *side->names);
    side->spans = calloc(scene->n, sizeof *side->spans);
    side->strides = calloc(scene->n, sizeof *side->strides);
    if (side->shards == NULL || side->names == NULL || side->spans == NULL || side->strides == NULL)
        abort();
    for (size_t i = 0; i < scene->n; i++) {
        int64_t extent[2] = {scene->shape[0], scene->shape[1]};

        extent[axis] /= b->n_ranks;
        snprintf(side->names[i], sizeof side->names[i], "t%zu", i);
        side->spans[i][axis] = extent[axis] * b->self;
        memcpy(side->spans[i] + 2, extent, sizeof extent);
        side->strides[i][0] = 4 * extent[1];
        side->strides[i][1] = 4;
        side->shards[i] = (struct dcpk_shard){.name = side->names[i],
                                              .dtype = DCPK_F32,
                                              .rank = 2,
                                              .holder = b->self,
                                              .shape = scene->shape,
                                              .span = side->spans[i],
                                              .stride_bytes = side->strides[i],
                                              .at = next};
        next += (uint64_t)extent[0] * (uint64_t)extent[1] * 4;
    }
}

static void side_free(struct side *side)
{
    free(side->shards);
    free(side->names);
    free(side->spans);
    free(side->strides);
}

static struct dcpk_remap *plan(struct bench *b, const struct side *from, const struct side *to)
{
    const struct dcpk_remap_shards mine = {from->shards, to->shards, from->n, to->n};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_remap *remap = NULL;

    must(b, dcpk_remap_new(&b->options, &mine, &remap, &err), &err);
    return remap;
}

/* Seconds of the slowest rank. */
static double slowest_of(struct bench *b, const struct dcpk_remap *remap)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    double all[64] = {dcpk_remap_stats(remap)->seconds}, slowest = 0;
    struct dcpk_comm *comm;

    if (b->n_ranks > 1) {
        comm = dcpk_ranks_comm(b->ranks);
        must(b, comm->transport->all_gather(comm, &all[0], sizeof all[0], all, &err), &err);
    }
    for (int r = 0; r < b->n_ranks; r++)
        slowest = all[r] > slowest ? all[r] : slowest;
    return slowest;
}

/* Seconds of the slowest rank, the best of n runs. */
static double best_of(struct bench *b, struct dcpk_remap *remap, int n)
{
    double best = 1e9;

    for (int i = 0; i < n; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        double slowest;

        must(b, dcpk_remap_run(remap, NULL, NULL, &err), &err);
        slowest = slowest_of(b, remap);
        best = slowest < best ? slowest : best;
    }
    return best;
}

/* What came back is what was there at first. */
static void compare(struct bench *b, const struct scene *scene)
{
    const size_t chunk = (size_t)64 << 20;
    char *one = malloc(chunk), *other = malloc(chunk);
    struct dcpk_error err = DCPK_ERROR_INIT;

    if (one == NULL || other == NULL)
        abort();
    for (uint64_t at = 0; at < b->n_bytes; at += chunk) {
        const size_t n = dcpk_min_size(chunk, b->n_bytes - at);

        must(b, b->ops->copy(b->options.device, 0, one, b->a + at, n, &err), &err);
        must(b, b->ops->copy(b->options.device, 0, other, b->back + at, n, &err), &err);
        must(b, dcpk_device_wait(b->options.device, 0, TIMEOUT_MS, &err), &err);
        if (memcmp(one, other, n) != 0)
            must(b, dcpk_fail(&err, DCPK_EMISMATCH, "%s: what came back differs", scene->name),
                 &err);
        must(b, DCPK_OK, &err);
    }
    free(one);
    free(other);
}

/* Change a word in each of `percent` of the pieces of the sources. */
static void touch(struct bench *b, double percent)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    uint64_t word = 0;

    for (uint64_t at = 0; at + PIECE_BYTES <= b->n_bytes; at += PIECE_BYTES) {
        const uint64_t draw = random_next(&b->seed);

        if ((double)(draw % 100000) >= 1000 * percent)
            continue;
        word = draw;
        must_alone(b->ops->copy(b->options.device, 0, b->a + at + draw / 8 % (PIECE_BYTES / 8) * 8,
                                &word, sizeof word, &err),
                   &err);
        must_alone(dcpk_device_wait(b->options.device, 0, TIMEOUT_MS, &err), &err);
    }
}

/* Targets hold what sources do. */
static void verify(struct bench *b, struct dcpk_remap *remap)
{
    const size_t n = dcpk_remap_plan(remap)->n_tensors;
    uint64_t *sums = calloc(2 * n, sizeof *sums);
    struct dcpk_error err = DCPK_ERROR_INIT;

    if (sums == NULL)
        abort();
    must(b, dcpk_remap_verify(remap, sums, &err), &err);
    if (memcmp(sums, sums + n, n * sizeof *sums) != 0)
        must(b, dcpk_fail(&err, DCPK_EMISMATCH, "a run of what changed left something out"), &err);
    free(sums);
}

static void run_changes(struct bench *b, struct dcpk_remap *remap, double full)
{
    static const double percents[] = {0, 0.1, 1, 3, 10, 100};
    for (size_t p = 0; p < DCPK_COUNT(percents); p++) {
        struct dcpk_remap_changes changes = {0};
        double best = 1e9, worst = 0;

        for (int i = 0; i < N_RUNS + 2; i++) { /* the first two make tables */
            struct dcpk_error err = DCPK_ERROR_INIT;
            double seconds;

            touch(b, percents[p]);
            must(b, DCPK_OK, &err); /* no rank waits for another one's touches below */
            must(b, dcpk_remap_run_changed(remap, NULL, NULL, &changes, &err), &err);
            seconds = slowest_of(b, remap);
            if (p == 0 && i < 2)
                continue;
            best = seconds < best ? seconds : best;
            worst = seconds > worst ? seconds : worst;
        }
        verify(b, remap);
        if (b->self == 0)
            printf("    %5.1f %% changed: sent %5.1f %% of %" PRIu64 " blocks, %7.1f MB, %8.3f ms, "
                   "slowest %8.3f; %.2f of a full run\n",
                   percents[p], 100.0 * (double)changes.n_sent_blocks / (double)changes.n_blocks,
                   changes.n_blocks, (double)changes.sent_bytes / 1e6, 1e3 * best, 1e3 * worst,
                   best / full);
    }
    fflush(stdout);
}

static void run(struct bench *b, const struct scene *scene)
{
    const uint64_t used =
        scene->n * (uint64_t)scene->shape[0] * (uint64_t)scene->shape[1] * 4 / (uint64_t)b->n_ranks;
    struct side rows, columns, again;
    struct dcpk_remap *there, *back;
    double seconds, home;

    if (scene->n == 0)
        return; /* it does not fit */
    b->n_bytes = used;
    side_make(b, scene, 0, b->a, &rows);
    side_make(b, scene, 1, b->b, &columns);
    side_make(b, scene, 0, b->back, &again);
    there = plan(b, &rows, &columns);
    back = plan(b, &columns, &again);
    best_of(b, there, 1);
    best_of(b, back, 1);
    compare(b, scene);
    seconds = best_of(b, there, N_RUNS);
    home = best_of(b, back, N_RUNS);
    if (b->self == 0) {
        const struct dcpk_remap_stats *stats = dcpk_remap_stats(there);
        const double in = (double)dcpk_remap_plan(there)->totals[0].in_bytes;

        printf("%-34s %8.3f ms %6.0f GB/s into each; back %8.3f ms; %" PRIu64 " tiles, %" PRIu64
               " messages, %.1f MiB of tables, %.0f of staging %s\n",
               scene->name, 1e3 * seconds, in / seconds / 1e9, 1e3 * home, stats->n_tiles,
               stats->n_messages, (double)stats->table_bytes / (1 << 20),
               (double)stats->staging_bytes / (1 << 20), stats->note == NULL ? "" : stats->note);
        fflush(stdout);
    }
    if (b->options.block_bytes > 0)
        run_changes(b, there, seconds);
    dcpk_remap_free(there);
    dcpk_remap_free(back);
    side_free(&rows);
    side_free(&columns);
    side_free(&again);
}

static void fill(struct bench *b, uint64_t most)
{
    const size_t chunk = (size_t)64 << 20;
    uint64_t *random = malloc(chunk), seed = (uint64_t)b->self;
    struct dcpk_error err = DCPK_ERROR_INIT;

    if (random == NULL)
        abort();
    for (size_t i = 0; i < chunk / sizeof *random; i++)
        random[i] = random_next(&seed);
    for (uint64_t at = 0; at < most; at += chunk) {
        const size_t n = dcpk_min_size(chunk, most - at);

        random[0] = at; /* no two chunks are alike */
        must(b, b->ops->copy(b->options.device, 0, b->a + at, random, n, &err), &err);
        must(b, dcpk_device_wait(b->options.device, 0, TIMEOUT_MS, &err), &err);
    }
    free(random);
}

static char *take(struct bench *b, uint64_t n_bytes)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    void *at = NULL;

    must(b, b->ops->alloc(b->options.device, DCPK_MEMORY_DEVICE, n_bytes, &at, &err), &err);
    return at;
}

static dcpk_status open_link(struct bench *b, struct dcpk_error *err)
{
    const char *const wanted = strcmp(b->ops->name, "cuda") == 0 ? "nccl" : "mpi";

    for (size_t i = 0; dcpk_links[i] != NULL; i++)
        if (strcmp(dcpk_links[i]->name, wanted) == 0)
            return dcpk_links[i]->open(dcpk_ranks_comm(b->ranks), b->options.device,
                                       &b->options.link, err);
    return dcpk_fail(err, DCPK_EUNSUPPORTED, "no link '%s' was built in", wanted);
}

int main(int argc, char **argv)
{
    const uint64_t most = (argc > 2 ? strtoull(argv[2], NULL, 10) : 1024) << 20;
    struct dcpk_device_options where = {0};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct bench b = {0};
    int64_t side = 1024;

    if (dcpk_ranks_join(dcpk_transports, &b.ranks, &err) != DCPK_OK) {
        fprintf(stderr, "layouts: %s\n", err.text);
        return 4;
    }
    b.self = dcpk_ranks_self(b.ranks);
    b.n_ranks = dcpk_ranks_count(b.ranks);
    b.seed = 77 + (uint64_t)b.self;
    for (size_t i = 0; argc > 1 && dcpk_devices[i] != NULL; i++)
        if (strcmp(dcpk_devices[i]->name, argv[1]) == 0)
            b.ops = dcpk_devices[i];
    if (b.ops == NULL)
        must(&b, dcpk_fail(&err, DCPK_EUSAGE, "usage: layouts SPACE [MIB [PATH [CHECK]]]"), &err);
    where.ordinal = strcmp(b.ops->name, "cuda") == 0 ? b.self : 0;
    must(&b, b.ops->open(&where, &b.options.device, &err), &err);
    b.options.ranks = b.ranks;
    b.options.checks = argc > 4 && strcmp(argv[4], "1") == 0;
    b.options.staging_bytes = argc > 5 ? strtoull(argv[5], NULL, 10) << 20 : 0;
    b.options.block_bytes = argc > 6 ? (uint32_t)strtoul(argv[6], NULL, 10) << 10 : 0;
    b.options.path = DCPK_REMAP_DIRECT;
    if (argc > 3 && strcmp(argv[3], "staged") == 0) {
        b.options.path = DCPK_REMAP_STAGED;
        must(&b, open_link(&b, &err), &err);
    }
    b.a = take(&b, most);
    b.b = take(&b, most);
    b.back = take(&b, most);
    fill(&b, most);
    while (2 * side * 2 * side * 4 <= (int64_t)most * b.n_ranks)
        side *= 2;
    run(&b, &(struct scene){"G6 one tensor", 1, {side, side}});
    run(&b, &(struct scene){"G7 matrices of 4096 x 14336",
                            most * (uint64_t)b.n_ranks / (4096 * 14336 * 4),
                            {4096, 14336}});
    run(&b, &(struct scene){"G8 tensors of 256 KiB",
                            dcpk_min_size(4000, most * (uint64_t)b.n_ranks >> 18),
                            {256, 256}});
    if (b.options.link != NULL)
        b.options.link->ops->close(b.options.link);
    b.ops->close(b.options.device);
    return dcpk_ranks_leave(b.ranks, &err) == DCPK_OK ? 0 : 4;
}

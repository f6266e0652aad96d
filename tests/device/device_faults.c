/* SPDX-License-Identifier: Apache-2.0 */
/* device_faults.c - one rank of two that remap in a device's memory while something goes wrong. */
/*
 *     mpirun --enable-recovery -n 2 device_faults SPACE CASE [direct|staged]
 *
 * CASE: kill, sleep (rank 1, between two calls of a run), memory (none is left), flip (a byte of a
 * target behind its rank's back), refuse (memory of others cannot be mapped). Each rank that lives
 * prints the message it got, and ends with 0 when that, its sources and the time are as they have
 * to be. run.sh starts it.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "lib/exec/remap.h"

#define SIDE       8192 /* of the tensor; a rank has half of its rows, wants half of its columns */
#define PART_BYTES ((size_t)SIDE * SIDE / 2 * 4)
#define TIMEOUT_MS 2000
#define VICTIM     1
#define N_RUNS     5000

static struct {
    struct dcpk_ranks *ranks;
    struct dcpk_device *device;
    const struct dcpk_device_ops *ops; /* as the kernels have them */
    struct dcpk_device_ops altered;    /* with one call that fails */
    struct dcpk_remap_options options;
    char *source, *target, *kept; /* kept: the source's bytes, in host memory */
    int self, n_table_runs;
} job;

static void stop(const char *what, const struct dcpk_error *err)
{
    printf("rank %d: WRONG: %s: %s\n", job.self, what, err->text);
    fflush(stdout);
    _exit(1);
}

static void must(dcpk_status st, const struct dcpk_error *err)
{
    if (st != DCPK_OK)
        stop("before the fault", err);
}

static void copy_now(void *to, const void *from, size_t n_bytes)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    must(job.ops->copy(job.device, 0, to, from, n_bytes, &err), &err);
    must(dcpk_device_wait(job.device, 0, 10 * TIMEOUT_MS, &err), &err);
}

static bool is_source_kept(void)
{
    char *now = malloc(PART_BYTES);
    bool is_same;

    if (now == NULL)
        return false;
    copy_now(now, job.source, PART_BYTES);
    is_same = memcmp(now, job.kept, PART_BYTES) == 0;
    free(now);
    return is_same;
}

/* What is planned: rows to columns. */
static dcpk_status plan(struct dcpk_remap **remap, struct dcpk_error *err)
{
    static const int64_t shape[] = {SIDE, SIDE};
    static const int64_t strides[2][2] = {{4 * SIDE, 4}, {4 * SIDE / 2, 4}};
    static int64_t spans[2][4];
    struct dcpk_shard shards[2];

    for (int side = 0; side < 2; side++) {
        const char *at = side == 0 ? job.source : job.target;

        spans[side][side] = SIDE / 2 * job.self;
        spans[side][2] = side == 0 ? SIDE / 2 : SIDE;
        spans[side][3] = side == 0 ? SIDE : SIDE / 2;
        shards[side] = (struct dcpk_shard){.name = "weight",
                                           .dtype = DCPK_F32,
                                           .rank = 2,
                                           .holder = job.self,
                                           .shape = shape,
                                           .span = spans[side],
                                           .stride_bytes = strides[side],
                                           .at = (uint64_t)(uintptr_t)at};
    }
    return dcpk_remap_new(&job.options, &(struct dcpk_remap_shards){shards, shards + 1, 1, 1},
                          remap, err);
}

/* The run has to end with `wanted`, in time, with all sources as they were. */
static int end_with(dcpk_status st, dcpk_status wanted, double seconds,
                    const struct dcpk_error *err)
{
    if (st != wanted)
        stop("another end", err);
    if (seconds * 1000 > 10.0 * TIMEOUT_MS)
        stop("it took too long", err);
    if (!is_source_kept())
        stop("sources have changed", err);
    printf("rank %d: %.1f s: %s\n", job.self, seconds, err->text);
    fflush(stdout);
    return 0;
}

static double now_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void nap(long ms)
{
    const struct timespec time = {ms / 1000, ms % 1000 * 1000000};

    nanosleep(&time, NULL);
}

static void end_now(int signal_number)
{
    (void)signal_number;
    (void)raise(SIGKILL);
}

static void kill_soon(void)
{
    const struct itimerval time = {.it_value = {.tv_usec = 300000}};

    signal(SIGALRM, end_now);
    setitimer(ITIMER_REAL, &time, NULL);
}

/* Runs follow one another until rank 1 is gone, or late. */
static int lose_rank(bool sleeps)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_remap *remap;
    double begun = now_seconds();
    dcpk_status st = DCPK_OK;

    must(plan(&remap, &err), &err);
    if (!sleeps && job.self == VICTIM)
        kill_soon();
    for (int i = 0; i < N_RUNS && st == DCPK_OK; i++) {
        if (sleeps && job.self == VICTIM && i == 20)
            nap(6L * TIMEOUT_MS);
        begun = now_seconds();
        st = dcpk_remap_run(remap, NULL, NULL, &err);
    }
    return end_with(st, DCPK_EIO, now_seconds() - begun, &err);
}

/* Staging and tables find no room. */
static int lack_memory(void)
{
    const double begun = now_seconds();
    struct dcpk_error err = DCPK_ERROR_INIT;
    uint64_t free_bytes, total_bytes;
    struct dcpk_remap *remap;
    void *all;

    must(job.ops->memory_info(job.device, &free_bytes, &total_bytes, &err), &err);
    must(job.ops->alloc(job.device, DCPK_MEMORY_DEVICE, free_bytes - (8 << 20), &all, &err), &err);
    return end_with(plan(&remap, &err), DCPK_ENOMEM, now_seconds() - begun, &err);
}

/* A unit's third table reads what has landed: behind the moves to others and to itself. */
static dcpk_status run_flipped(struct dcpk_device *device, int queue,
                               const struct dcpk_table *table, uint64_t *sums,
                               struct dcpk_error *err)
{
    char byte;

    if (++job.n_table_runs == 3 && job.self == VICTIM) {
        copy_now(&byte, job.target + 12345, 1);
        byte ^= 4;
        copy_now(job.target + 12345, &byte, 1);
    }
    return job.ops->run(device, queue, table, sums, err);
}

static int flip_byte(void)
{
    const double begun = now_seconds();
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_remap *remap;

    job.options.checks = true;
    must(plan(&remap, &err), &err);
    job.altered.run = run_flipped;
    return end_with(dcpk_remap_run(remap, NULL, NULL, &err), DCPK_EIO, now_seconds() - begun, &err);
}

static dcpk_status import_refused(struct dcpk_device *device, const struct dcpk_memory_id *id,
                                  void **at, struct dcpk_error *err)
{
    if (dcpk_memory_id_is_own(id))
        return job.ops->import_memory(device, id, at, err);
    return dcpk_fail(err, DCPK_EUNSUPPORTED, "memory of process %" PRIu64 " is refused",
                     id->process);
}

/* By itself the remap takes the link, with a note; where direct is wanted, it is an error. */
static int refuse_memory(void)
{
    const double begun = now_seconds();
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_remap *remap;

    job.altered.import_memory = import_refused;
    job.options.path = DCPK_REMAP_AUTO;
    job.options.checks = true;
    must(plan(&remap, &err), &err);
    must(dcpk_remap_run(remap, NULL, NULL, &err), &err);
    if (dcpk_remap_stats(remap)->note[0] == '\0')
        stop("no note", &err);
    printf("rank %d: over the link '%s': %s\n", job.self, job.options.link->ops->name,
           dcpk_remap_stats(remap)->note);
    dcpk_remap_free(remap);
    job.options.path = DCPK_REMAP_DIRECT;
    return end_with(plan(&remap, &err), DCPK_EUNSUPPORTED, now_seconds() - begun, &err);
}

static void open_link(bool is_cuda)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    for (size_t i = 0; dcpk_links[i] != NULL; i++)
        if (strcmp(dcpk_links[i]->name, is_cuda ? "nccl" : "mpi") == 0)
            must(dcpk_links[i]->open(dcpk_ranks_comm(job.ranks), job.device, &job.options.link,
                                     &err),
                 &err);
}

static char *take(void)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    void *at;

    must(job.ops->alloc(job.device, DCPK_MEMORY_DEVICE, PART_BYTES, &at, &err), &err);
    return at;
}

static void begin(const char *device, bool is_staged)
{
    const bool is_cuda = strcmp(device, "cuda") == 0;
    struct dcpk_device_options where = {0};
    struct dcpk_error err = DCPK_ERROR_INIT;

    must(dcpk_ranks_join(dcpk_transports, &job.ranks, &err), &err);
    job.self = dcpk_ranks_self(job.ranks);
    for (size_t i = 0; dcpk_devices[i] != NULL; i++)
        if (strcmp(dcpk_devices[i]->name, device) == 0)
            job.ops = dcpk_devices[i];
    if (job.ops == NULL || dcpk_ranks_count(job.ranks) != 2)
        exit(77);
    where.ordinal = is_cuda ? job.self : 0;
    must(job.ops->open(&where, &job.device, &err), &err);
    job.altered = *job.ops;
    job.device->ops = &job.altered;
    open_link(is_cuda);
    job.options.ranks = job.ranks;
    job.options.device = job.device;
    job.options.path = is_staged ? DCPK_REMAP_STAGED : DCPK_REMAP_DIRECT;
    job.options.timeout_ms = TIMEOUT_MS;
    job.source = take();
    job.target = take();
    job.kept = malloc(PART_BYTES);
    if (job.kept == NULL)
        exit(1);
    for (size_t i = 0; i < PART_BYTES; i++)
        job.kept[i] = (char)(i * 2654435761u >> 13);
    copy_now(job.source, job.kept, PART_BYTES);
}

static int run_case(const char *name)
{
    if (strcmp(name, "kill") == 0 || strcmp(name, "sleep") == 0)
        return lose_rank(strcmp(name, "sleep") == 0);
    if (strcmp(name, "memory") == 0)
        return lack_memory();
    if (strcmp(name, "flip") == 0)
        return flip_byte();
    if (strcmp(name, "refuse") == 0)
        return refuse_memory();
    return 2;
}

int main(int argc, char **argv)
{
    int end;

    if (argc < 3)
        return 2;
    begin(argv[1], argc > 3 && strcmp(argv[3], "staged") == 0);
    alarm(60); /* a rank that hangs is one more fault */
    end = run_case(argv[2]);
    job.options.link->ops->close(job.options.link);
    job.ops->close(job.device);
    fflush(stdout);
    _exit(end); /* MPI would wait for the rank that is gone */
}

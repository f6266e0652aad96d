/* SPDX-License-Identifier: Apache-2.0 */
/* roofline.c - how fast this machine reads, copies, checks and writes: what a conversion can reach.
 */
/*
 * roofline DIR [GB [THREADS...]]: for each number of threads one line a way of moving GB (default
 * 2) through a file of DIR in blocks of 4 MiB. Writing includes the sync.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "lib/base/digest.h"
#include "lib/exec/pool.h"
#include "tests/bench/roofline_ring.h"
#include "tests/random.h"

#define BLOCK_BYTES   ((size_t)4 << 20)
#define PART_BYTES    ((size_t)1 << 20) /* of one pwrite in dcpk_sink_write_all */
#define MAX_THREADS   64
#define N_RING_BLOCKS 32 /* under way at a time; buffers of MAX_THREADS are there */

/* What every thread works on. */
static struct {
    int in, out;
    uint8_t *from[MAX_THREADS], *to[MAX_THREADS];
} ground;

static bool read_block(int thread, off_t at)
{
    return pread(ground.in, ground.from[thread], BLOCK_BYTES, at) == (ssize_t)BLOCK_BYTES;
}

/* Asks for what comes later, as dcpk_gather_advise does. */
static bool advise_read_block(int thread, off_t at)
{
    posix_fadvise(ground.in, at + 8 * (off_t)BLOCK_BYTES, BLOCK_BYTES, POSIX_FADV_WILLNEED);
    return read_block(thread, at);
}

static bool write_block(int thread, off_t at)
{
    return pwrite(ground.out, ground.from[thread], BLOCK_BYTES, at) == (ssize_t)BLOCK_BYTES;
}

/* Starts writing back at once, as dcpk_sink_flush does. */
static bool flush_block(off_t at)
{
    return sync_file_range(ground.out, at, BLOCK_BYTES, SYNC_FILE_RANGE_WRITE) == 0;
}

static bool write_flush_block(int thread, off_t at)
{
    return write_block(thread, at) && flush_block(at);
}

/* Without huge pages in the page cache, as dcpk_sink_write_all does. */
static bool write_parts_flush_block(int thread, off_t at)
{
    const uint8_t *from = ground.from[thread];

    for (size_t done = 0; done < BLOCK_BYTES; done += PART_BYTES)
        if (pwrite(ground.out, from + done, PART_BYTES, at + (off_t)done) != (ssize_t)PART_BYTES)
            return false;
    return flush_block(at);
}

static bool copy_block(int thread, off_t at)
{
    (void)at;
    memcpy(ground.to[thread], ground.from[thread], BLOCK_BYTES);
    return true;
}

static bool crc_block(int thread, off_t at)
{
    (void)at;
    ground.to[thread][0] = (uint8_t)dcpk_crc32(0, ground.from[thread], BLOCK_BYTES);
    return true;
}

static bool convert_parts_block(int thread, off_t at)
{
    return read_block(thread, at) && crc_block(thread, at) && write_parts_flush_block(thread, at);
}

static bool convert_block(int thread, off_t at)
{
    return read_block(thread, at) && crc_block(thread, at) && write_flush_block(thread, at);
}

static bool advise_convert_block(int thread, off_t at)
{
    return advise_read_block(thread, at) && crc_block(thread, at) && write_flush_block(thread, at);
}

static bool copy_range_block(int thread, off_t at)
{
    off_t to = at;
    size_t left = BLOCK_BYTES;

    (void)thread;
    while (left > 0) {
        const ssize_t n = copy_file_range(ground.in, &at, ground.out, &to, left, 0);

        if (n <= 0)
            return false;
        left -= (size_t)n;
    }
    return true;
}

static const struct way {
    const char *name;
    bool (*block)(int thread, off_t at); /* NULL: one thread, N_RING_BLOCKS blocks in an io_uring */
    int in_flags, out_flags;             /* further flags of open; -1: not opened */
    bool is_cold;                        /* the input is dropped from the page cache before */
} ways[] = {
    {"read, page cache", read_block, 0, -1, false},
    {"read, page cache, io_uring", NULL, 0, -1, false},
    {"read, disk", read_block, 0, -1, true},
    {"read, disk, advised", advise_read_block, 0, -1, true},
    {"read, disk, O_DIRECT", read_block, O_DIRECT, -1, true},
    {"read, disk, io_uring", NULL, 0, -1, true},
    {"read, disk, io_uring O_DIRECT", NULL, O_DIRECT, -1, true},
    {"memcpy", copy_block, -1, -1, false},
    {"CRC-32", crc_block, -1, -1, false},
    {"write", write_block, -1, 0, false},
    {"write, flushed on the way", write_flush_block, -1, 0, false},
    {"the same, a MiB a call", write_parts_flush_block, -1, 0, false},
    {"write, O_DIRECT", write_block, -1, O_DIRECT, false},
    {"read, CRC, write, page cache", convert_block, 0, 0, false},
    {"the same, a MiB a call", convert_parts_block, 0, 0, false},
    {"read, CRC, write, disk", convert_block, 0, 0, true},
    {"the same, advised", advise_convert_block, 0, 0, true},
    {"the same, read O_DIRECT", convert_block, O_DIRECT, 0, true},
    {"the same, both O_DIRECT", convert_block, O_DIRECT, O_DIRECT, true},
    {"the same, io_uring", NULL, 0, 0, true},
    {"the same, io_uring O_DIRECT", NULL, O_DIRECT, O_DIRECT, true},
    {"copy_file_range, page cache", copy_range_block, 0, 0, false},
};

static dcpk_status run_block(void *context, int thread, uint64_t i, struct dcpk_error *err)
{
    const struct way *way = context;

    return way->block(thread, (off_t)(i * BLOCK_BYTES))
               ? DCPK_OK
               : dcpk_fail_errno(err, errno, "%s", way->name);
}

static void crc_bytes(uint8_t *bytes, size_t n_bytes)
{
    ground.to[0][0] = (uint8_t)dcpk_crc32(0, bytes, n_bytes);
}

static dcpk_status run_ring(const struct way *way, uint64_t n_blocks, struct dcpk_error *err)
{
    const struct ring_job job = {.in = ground.in,
                                 .out = ground.out,
                                 .buffers = ground.from,
                                 .n_buffers = N_RING_BLOCKS,
                                 .block_bytes = BLOCK_BYTES,
                                 .n_blocks = n_blocks,
                                 .between = ground.out >= 0 ? crc_bytes : NULL};
    const int error = ring_run(&job);

    return error == 0 ? DCPK_OK : dcpk_fail_errno(err, error, "%s", way->name);
}

static double now_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* A file of n blocks that is read into the page cache, or dropped from it. */
static int open_input(const char *path, const struct way *way, off_t n_bytes)
{
    const int plain = open(path, O_RDONLY | O_CLOEXEC);

    if (plain < 0)
        return -1;
    if (way->is_cold)
        posix_fadvise(plain, 0, 0, POSIX_FADV_DONTNEED);
    else
        readahead(plain, 0, (size_t)n_bytes);
    close(plain);
    return open(path, O_RDONLY | O_CLOEXEC | way->in_flags);
}

static int open_output(const char *path, const struct way *way, off_t n_bytes)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | way->out_flags, 0666);

    if (fd >= 0 && posix_fallocate(fd, 0, n_bytes) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static bool measure(const struct way *way, const char *in, const char *out, uint64_t n_blocks,
                    int n_threads)
{
    const off_t n_bytes = (off_t)(n_blocks * BLOCK_BYTES);
    struct dcpk_error err = DCPK_ERROR_INIT;
    double start, seconds;
    dcpk_status st;

    if (way->block == NULL && (!ring_is_there() || n_threads > 1))
        return true; /* it has one thread, whatever is asked for */
    ground.in = way->in_flags < 0 ? -1 : open_input(in, way, n_bytes);
    ground.out = way->out_flags < 0 ? -1 : open_output(out, way, n_bytes);
    if ((ground.in < 0) != (way->in_flags < 0) || (ground.out < 0) != (way->out_flags < 0)) {
        printf("%-30s cannot be opened: %s\n", way->name, strerror(errno));
        return true; /* a file system without O_DIRECT */
    }
    start = now_seconds();
    st = way->block == NULL
             ? run_ring(way, n_blocks, &err)
             : dcpk_pool_run(n_threads, n_blocks, run_block, (void *)(uintptr_t)way, &err);
    if (st == DCPK_OK && ground.out >= 0 && fdatasync(ground.out) != 0)
        st = dcpk_fail_errno(&err, errno, "syncing");
    seconds = now_seconds() - start;
    if (st == DCPK_OK)
        printf("%-30s %2d threads %7.2f GB/s\n", way->name, n_threads,
               (double)n_bytes / seconds / 1e9);
    else
        fprintf(stderr, "roofline: %s\n", err.text);
    fflush(stdout);
    if (ground.in >= 0)
        close(ground.in);
    if (ground.out >= 0)
        close(ground.out);
    return st == DCPK_OK;
}

/* The input: bytes that no file system can make smaller. */
static bool make_input(const char *path, uint64_t n_blocks)
{
    uint64_t *words = (uint64_t *)(void *)ground.from[0], seed = 1;
    const struct way plain = {"making the input", write_block, -1, 0, false};
    bool ok;

    for (size_t i = 0; i < BLOCK_BYTES / sizeof *words; i++)
        words[i] = random_next(&seed);
    ground.out = open_output(path, &plain, (off_t)(n_blocks * BLOCK_BYTES));
    ok = ground.out >= 0;
    for (uint64_t i = 0; i < n_blocks && ok; i++)
        ok = write_block(0, (off_t)(i * BLOCK_BYTES));
    ok = ok && fsync(ground.out) == 0;
    if (!ok)
        fprintf(stderr, "roofline: %s: %s\n", path, strerror(errno));
    if (ground.out >= 0)
        close(ground.out);
    return ok;
}

int main(int argc, char **argv)
{
    const double gb = argc > 2 ? strtod(argv[2], NULL) : 2;
    const uint64_t n_blocks = (uint64_t)(gb * 1e9 / (double)BLOCK_BYTES) + 1;
    char in[4096], out[4096];
    bool ok;

    if (argc < 2 || gb <= 0) {
        fprintf(stderr, "usage: roofline DIR [GB [THREADS...]]\n");
        return 2;
    }
    snprintf(in, sizeof in, "%s/roofline-in", argv[1]);
    snprintf(out, sizeof out, "%s/roofline-out", argv[1]);
    for (int i = 0; i < MAX_THREADS; i++) {
        ground.from[i] = aligned_alloc(4096, BLOCK_BYTES);
        ground.to[i] = aligned_alloc(4096, BLOCK_BYTES);
        if (ground.from[i] == NULL || ground.to[i] == NULL)
            return 4;
        memset(ground.from[i], i, BLOCK_BYTES);
        memset(ground.to[i], i, BLOCK_BYTES);
    }
    ok = make_input(in, n_blocks);
    for (int a = 3; ok && a < (argc > 3 ? argc : 4); a++) {
        const int n_threads =
            argc > 3 ? (int)strtol(argv[a], NULL, 10) : dcpk_pool_default_threads();

        for (size_t w = 0; ok && w < sizeof ways / sizeof *ways; w++)
            ok = n_threads > 0 && n_threads <= MAX_THREADS &&
                 measure(&ways[w], in, out, n_blocks, n_threads);
    }
    unlink(in);
    unlink(out);
    return ok ? 0 : 4;
}

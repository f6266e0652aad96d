/* SPDX-License-Identifier: Apache-2.0 */
/* tiles.c - how fast a device moves tiles: in its memory, cast, misaligned, to a peer, added up. */
/*
 *     tiles DEVICE [MIB]
 *
 * A line a row of the table G1 to G5 and G11 of tests/bench/README.md: bytes that arrived by
 * the best of 5 runs of 10, beside the device's own copy of as many bytes in the same process.
 * Sources are random, targets are poisoned; what arrived is proven by its fingerprint before
 * anything is timed. MIB: of a target, default 1024. Exit 77 where the device is not there.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/base/order.h"
#include "tests/random.h"

#define N_RUNS     5
#define RUNS_DEEP  10 /* queued at once: the host waits for all of them */
#define TIMEOUT_MS 60000

/* One GPU with what is moved in it. */
struct place {
    struct dcpk_device *device;
    uint8_t *src, *dst;
    uint64_t *sums;
};

static const struct dcpk_device_ops *ops;
static struct place places[2];
static uint64_t target_bytes;

static void must(dcpk_status st, const struct dcpk_error *err)
{
    if (st == DCPK_OK)
        return;
    fprintf(stderr, "tiles: %s\n", err->text);
    exit(4);
}

static void *take(struct place *p, uint64_t n_bytes)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    void *at;

    must(ops->alloc(p->device, DCPK_MEMORY_DEVICE, n_bytes, &at, &err), &err);
    return at;
}

/* Sources are twice as long as targets: rows at twice their length. */
static bool place_open(struct place *p, int ordinal)
{
    const struct dcpk_device_options options = {.ordinal = ordinal};
    struct dcpk_error err = DCPK_ERROR_INIT;
    const size_t chunk = (size_t)64 << 20;
    uint64_t *random = malloc(chunk), seed = 1;

    if (random == NULL || ops->open(&options, &p->device, &err) != DCPK_OK) {
        fprintf(stderr, "tiles: GPU %d: %s\n", ordinal, err.text);
        free(random);
        return false;
    }
    p->src = take(p, 2 * target_bytes + 4096);
    p->dst = take(p, 2 * target_bytes + 4096);
    p->sums = take(p, 2 * sizeof *p->sums);
    for (size_t i = 0; i < chunk / sizeof *random; i++)
        random[i] = random_next(&seed) & UINT64_C(0xbfffbfffbfffbfff); /* no NaN in any type */
    for (uint64_t at = 0; at < 2 * target_bytes; at += chunk)
        must(ops->copy(p->device, 0, p->src + at, random,
                       dcpk_min_size(chunk, 2 * target_bytes - at), &err),
             &err);
    must(dcpk_device_wait(p->device, 0, TIMEOUT_MS, &err), &err);
    free(random);
    return true;
}

/* Tiles of one row of the table, which may grow to any number. */
struct list {
    struct dcpk_tile *tiles;
    struct dcpk_tile_words *words;
    size_t n, capacity;
    uint64_t n_bytes; /* at the target */
    enum dcpk_pace pace;
};

static void list_add(struct list *l, struct dcpk_tile tile, uint64_t first, uint64_t row_step)
{
    if (l->n == l->capacity) {
        l->capacity = dcpk_max_size(2 * l->capacity, 1024);
        l->tiles = realloc(l->tiles, l->capacity * sizeof *l->tiles);
        l->words = realloc(l->words, l->capacity * sizeof *l->words);
        if (l->tiles == NULL || l->words == NULL)
            abort();
    }
    l->tiles[l->n] = tile;
    l->words[l->n++] = (struct dcpk_tile_words){.first = first, .row_step = row_step};
    l->n_bytes += (uint64_t)tile.n_rows * tile.n_elems * dcpk_dtype_bytes((enum dcpk_dtype)tile.to);
}

static void list_free(struct list *l)
{
    free(l->tiles);
    free(l->words);
    *l = (struct list){0};
}

/* Rows of run bytes, pitch bytes apart at the source and dense at the target, in tiles of
 * tile_bytes; element type `from` cast to `to`. */
static struct list boxes(const struct place *from, uint8_t *target, uint64_t offset, uint64_t run,
                         uint64_t pitch, enum dcpk_dtype src_type, enum dcpk_dtype dst_type)
{
    const uint64_t in = dcpk_dtype_bytes(src_type), out = dcpk_dtype_bytes(dst_type);
    const uint64_t elems = run / out, n_rows = target_bytes / run;
    const uint64_t rows = dcpk_max_u64(DCPK_TILE_BYTES / run, 1);
    const uint64_t part = dcpk_min_u64(elems, DCPK_TILE_BYTES / out);
    struct list l = {0};

    for (uint64_t r = 0; r < n_rows; r += rows)
        for (uint64_t e = 0; e < elems; e += part)
            list_add(&l,
                     (struct dcpk_tile){
                         .src = (uint64_t)(uintptr_t)from->src + offset + r * pitch + e * in,
                         .dst = (uint64_t)(uintptr_t)target + r * run + e * out,
                         .src_stride_bytes = (int64_t)pitch,
                         .dst_stride_bytes = (int64_t)run,
                         .n_elems = (uint32_t)part,
                         .n_rows = (uint32_t)dcpk_min_u64(rows, n_rows - r),
                         .from = (uint8_t)src_type,
                         .to = (uint8_t)dst_type,
                     },
                     r * elems + e, elems);
    return l;
}

/* n pieces, in another order at the source. */
static struct list pieces(const struct place *from, uint8_t *target, uint64_t n, uint64_t bytes)
{
    struct list l = {0};

    for (uint64_t i = 0; i < n; i++)
        list_add(&l,
                 (struct dcpk_tile){
                     .src = (uint64_t)(uintptr_t)from->src + i * 7919 % n * bytes,
                     .dst = (uint64_t)(uintptr_t)target + i * bytes,
                     .n_elems = (uint32_t)(bytes / 4),
                     .n_rows = 1,
                     .from = DCPK_F32,
                     .to = DCPK_F32,
                 },
                 i * bytes / 4, 0);
    return l;
}

static struct dcpk_table *load(const struct place *p, const struct list *l)
{
    const struct dcpk_tiles tiles = {l->tiles, l->words, l->n, l->pace};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_table *table;

    must(ops->load(p->device, &tiles, &table, &err), &err);
    return table;
}

static void wait_for(const struct place *p)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    must(dcpk_device_wait(p->device, 0, TIMEOUT_MS, &err), &err);
}

static void run(const struct place *p, const struct dcpk_table *table, uint64_t *sums)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    must(ops->run(p->device, 0, table, sums, &err), &err);
}

static uint64_t sum_of(const struct place *p, const struct list *l)
{
    struct dcpk_table *table = load(p, l);
    struct dcpk_error err = DCPK_ERROR_INIT;
    uint64_t sum = 0;

    must(ops->copy(p->device, 0, p->sums, &sum, sizeof sum, &err), &err);
    run(p, table, p->sums);
    must(ops->copy(p->device, 0, &sum, p->sums, sizeof sum, &err), &err);
    wait_for(p);
    ops->unload(p->device, table);
    return sum;
}

/* What is at the targets of a list, read there: by other tiles and another kernel. */
static uint64_t target_sum(const struct place *p, const struct list *l)
{
    struct list read = {0};
    uint64_t sum;

    for (size_t i = 0; i < l->n; i++) {
        struct dcpk_tile t = l->tiles[i];

        t.src = t.dst;
        t.src_stride_bytes = t.dst_stride_bytes;
        t.dst = 0;
        t.from = t.to;
        list_add(&read, t, l->words[i].first, l->words[i].row_step);
    }
    sum = sum_of(p, &read);
    list_free(&read);
    return sum;
}

/* Seconds of one run of all lists at once, the best of N_RUNS. */
static double best_of(const struct list *lists, size_t n_lists)
{
    struct dcpk_table *tables[2];
    double best = 1e9;

    for (size_t i = 0; i < n_lists; i++)
        tables[i] = load(&places[i], &lists[i]);
    for (int k = 0; k < 1 + N_RUNS; k++) {
        const double begun = dcpk_now_seconds();
        double took;

        for (int deep = 0; deep < RUNS_DEEP; deep++)
            for (size_t i = 0; i < n_lists; i++)
                run(&places[i], tables[i], NULL);
        for (size_t i = 0; i < n_lists; i++)
            wait_for(&places[i]);
        took = (dcpk_now_seconds() - begun) / RUNS_DEEP;
        if (k > 0 && took < best)
            best = took;
    }
    for (size_t i = 0; i < n_lists; i++)
        ops->unload(places[i].device, tables[i]);
    return best;
}

/* Prove a list, time it, print a line; frees it. `at` has the targets. */
static void row(const char *id, const char *what, struct list *l, const struct place *at,
                double counted)
{
    const uint64_t moved = sum_of(&places[0], l), landed = target_sum(at, l);
    double seconds;

    if (moved != landed) {
        fprintf(stderr, "tiles: %s %s: the fingerprint of what landed differs\n", id, what);
        exit(1);
    }
    seconds = best_of(l, 1);
    printf("%-4s %-36s %8.0f GB/s\n", id, what, counted * (double)l->n_bytes / seconds / 1e9);
    fflush(stdout);
    list_free(l);
}

/* The device's own copy, between two places or in one. */
static double engine(const struct place *from, uint8_t *to)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    double best = 1e9;

    for (int k = 0; k < 1 + N_RUNS; k++) {
        const double begun = dcpk_now_seconds();
        double took;

        for (int deep = 0; deep < RUNS_DEEP; deep++)
            must(ops->copy(from->device, 0, to, from->src, target_bytes, &err), &err);
        wait_for(from);
        took = (dcpk_now_seconds() - begun) / RUNS_DEEP;
        if (k > 0 && took < best)
            best = took;
    }
    return (double)target_bytes / best / 1e9;
}

static void local_rows(void)
{
    const struct place *p = &places[0];
    char what[64];
    struct list l;

    printf("     %-36s %8.0f GB/s\n", "the device's own copy", engine(p, p->dst));
    for (uint64_t bytes = 64; bytes <= 1u << 20; bytes *= 4) {
        snprintf(what, sizeof what, "boxes, runs of %llu bytes", (unsigned long long)bytes);
        l = boxes(p, p->dst, 0, bytes, 2 * bytes, DCPK_F32, DCPK_F32);
        row("G1", what, &l, p, 1);
    }
    l = pieces(p, p->dst, dcpk_min_u64(100000, target_bytes / 10240), 10240);
    row("G2", "scattered pieces of 10 KiB", &l, p, 1);
    l = boxes(p, p->dst, 0, 32768, 65536, DCPK_F32, DCPK_BF16);
    row("G3", "f32 to bf16, read and written", &l, p, 3);
    l = boxes(p, p->dst, 0, 65536, 32768, DCPK_BF16, DCPK_F32);
    row("G3", "bf16 to f32, read and written", &l, p, 1.5);
    l = boxes(p, p->dst, 0, 32768, 65536, DCPK_BF16, DCPK_F8_E4M3FN);
    row("G3", "bf16 to f8_e4m3fn, read and written", &l, p, 3);
    for (uint64_t offset = 1; offset <= 8; offset *= 2) {
        snprintf(what, sizeof what, "source off by %llu bytes", (unsigned long long)offset);
        l = boxes(p, p->dst, offset, 65536, 131072, DCPK_U8, DCPK_U8);
        row("G4", what, &l, p, 1);
    }
    l = boxes(p, p->dst, 0, 2002, 4004, DCPK_BF16, DCPK_BF16);
    row("G4", "rows of 2002 bytes", &l, p, 1);
}

/* Tiles of four times the size, as a remap reads what has landed. */
static struct dcpk_table *load_read(const struct place *p, const struct list *moved)
{
    struct list read = {0};
    struct dcpk_table *table;

    for (size_t i = 0; i < moved->n; i += 4) { /* neighbours */
        struct dcpk_tile t = moved->tiles[i];

        t.dst = 0;
        t.n_elems *= 4;
        list_add(&read, t, moved->words[i].first, 0);
    }
    table = load(p, &read);
    list_free(&read);
    return table;
}

static void sum_rows(enum dcpk_dtype dtype, const char *name)
{
    const struct place *p = &places[0];
    struct list l = boxes(p, p->dst, 0, 1u << 20, 1u << 20, dtype, dtype);
    struct dcpk_table *move = load(p, &l), *read;
    double fused = 1e9, alone = 1e9, plain = best_of(&l, 1);

    read = load_read(p, &l);
    for (int k = 0; k < 1 + N_RUNS; k++)
        for (int which = 0; which < 2; which++) {
            const double begun = dcpk_now_seconds();
            double took, *best = which == 0 ? &fused : &alone;

            for (int deep = 0; deep < RUNS_DEEP; deep++)
                run(p, which == 0 ? move : read, p->sums);
            wait_for(p);
            took = (dcpk_now_seconds() - begun) / RUNS_DEEP;
            if (k > 0 && took < *best)
                *best = took;
        }
    printf("G11  fingerprint of %-20s %8.0f GB/s read alone; %.0f moved with it, %.0f without\n",
           name, (double)l.n_bytes / alone / 1e9, (double)l.n_bytes / fused / 1e9,
           (double)l.n_bytes / plain / 1e9);
    ops->unload(p->device, move);
    ops->unload(p->device, read);
    list_free(&l);
}

/* Where the targets of the other place lie for this one. */
static uint8_t *peer_target(const struct place *from, const struct place *to)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_memory_id id;
    void *at;

    must(ops->export_memory(to->device, to->dst, target_bytes, &id, &err), &err);
    must(ops->import_memory(from->device, &id, &at, &err), &err);
    return (uint8_t *)at + ((uint64_t)(uintptr_t)to->dst - id.base);
}

static void peer_rows(void)
{
    struct place *a = &places[0], *b = &places[1];
    uint8_t *at_b = peer_target(a, b), *at_a = peer_target(b, a);
    struct list l, both[2];
    double seconds;

    printf("     %-36s %8.0f GB/s\n", "the copy engine, to a peer", engine(a, at_b));
    l = pieces(a, at_b, dcpk_min_u64(100000, target_bytes / 10240), 10240);
    l.pace = DCPK_PACE_LINK;
    row("G2", "the pieces to a peer", &l, b, 1);
    for (uint64_t bytes = 64; bytes <= 65536; bytes *= 32) {
        char what[64];

        snprintf(what, sizeof what, "push, runs of %llu bytes", (unsigned long long)bytes);
        l = boxes(a, at_b, 0, bytes, 2 * bytes, DCPK_F32, DCPK_F32);
        l.pace = DCPK_PACE_LINK;
        row("G5", what, &l, b, 1);
    }
    both[0] = boxes(a, at_b, 0, 65536, 131072, DCPK_F32, DCPK_F32);
    both[1] = boxes(b, at_a, 0, 65536, 131072, DCPK_F32, DCPK_F32);
    both[0].pace = both[1].pace = DCPK_PACE_LINK;
    seconds = best_of(both, 2);
    printf("G5   %-36s %8.0f GB/s each way\n", "push both ways at once",
           (double)both[0].n_bytes / seconds / 1e9);
    list_free(&both[0]);
    list_free(&both[1]);
}

int main(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && dcpk_devices[i] != NULL; i++)
        if (strcmp(dcpk_devices[i]->name, argv[1]) == 0)
            ops = dcpk_devices[i];
    if (ops == NULL) {
        fprintf(stderr, "usage: tiles DEVICE [MIB]; no such device was built in\n");
        return argc > 1 ? 77 : 2;
    }
    target_bytes = (argc > 2 ? strtoull(argv[2], NULL, 10) : 1024) << 20;
    if (!place_open(&places[0], 0))
        return 77;
    local_rows();
    sum_rows(DCPK_F32, "float32");
    sum_rows(DCPK_BF16, "bfloat16");
    if (place_open(&places[1], 1)) {
        peer_rows();
        ops->close(places[1].device);
    }
    ops->close(places[0].device);
    return 0;
}

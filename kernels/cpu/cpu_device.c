/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_device.c - host memory as a device, the specification of all others: plain loops, and a queue
 * whose work is done before the call returns. */
/*
 * Memory that can be exported is a memory file (memfd): other processes open it as
 * /proc/PID/fd/NUMBER, so that nothing has a name that a killed rank could leave. Threads of
 * one process share all addresses anyway.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/cpu/cpu_ops.h"
#include "lib/base/alloc.h"
#include "lib/device/device.h"
#include "lib/tensor/fingerprint.h"

/* Memory of this process. */
struct cpu_memory {
    struct cpu_memory *next;
    struct dcpk_memory_id id; /* base, n_bytes and generation are set; zero: it is private */
    void *at;
    int fd; /* -1: it is private */
};

struct cpu_device {
    struct dcpk_device base;
    struct cpu_memory *own; /* the latest first */
    struct dcpk_imports imports;
    struct cpu_math math;
};

struct cpu_table {
    struct dcpk_table base;
    struct dcpk_tile *tiles; /* owned, as words, which may be NULL */
    struct dcpk_tile_words *words;
};

/* Map a memory file of another process, once it is sure that it still is the same file. */
static dcpk_status memory_map(void *context, const struct dcpk_memory_id *id, void **at,
                              struct dcpk_error *err)
{
    dcpk_status st = DCPK_OK;
    struct stat info;
    char path[64];
    int number, fd;

    (void)context;
    memcpy(&number, id->handle, sizeof number);
    snprintf(path, sizeof path, "/proc/%" PRIu64 "/fd/%d", id->process, number);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) != 0) {
        st = dcpk_fail(err, DCPK_EUNSUPPORTED, "memory of process %" PRIu64 ": %s: %s", id->process,
                       path, strerror(errno));
    } else if ((uint64_t)info.st_ino != id->generation || (uint64_t)info.st_size < id->n_bytes) {
        st = dcpk_fail(err, DCPK_EIO, "memory of process %" PRIu64 " was freed: %s is another file",
                       id->process, path);
    } else {
        *at = mmap(NULL, (size_t)id->n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (*at == MAP_FAILED)
            st = dcpk_fail(err, DCPK_ENOMEM, "out of memory: mapping %" PRIu64 " bytes",
                           id->n_bytes);
    }
    if (fd >= 0)
        close(fd);
    return st;
}

static void memory_unmap(void *context, const struct dcpk_import *import)
{
    (void)context;
    munmap(import->at, (size_t)import->id.n_bytes);
}

static dcpk_status cpu_open(const struct dcpk_device_options *options, struct dcpk_device **device,
                            struct dcpk_error *err)
{
    struct cpu_device *made;

    if (options->ordinal != 0)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "there is one CPU device, 0, and no %d",
                         options->ordinal);
    made = dcpk_alloc(sizeof *made, err);
    if (made == NULL)
        return err->status;
    made->base.ops = &dcpk_cpu_device;
    if (options->math != NULL) {
        made->math.base = (struct dcpk_math){options->math, &made->base, DCPK_ERROR_INIT};
        made->base.math = &made->math.base;
    }
    made->imports.map = memory_map;
    made->imports.unmap = memory_unmap;
    *device = &made->base;
    return DCPK_OK;
}

static void memory_release(struct cpu_memory *memory)
{
    if (memory->fd < 0)
        dcpk_free(memory->at);
    else if (memory->at != NULL)
        munmap(memory->at, (size_t)memory->id.n_bytes);
    if (memory->fd >= 0)
        close(memory->fd);
    dcpk_free(memory);
}

static void cpu_close(struct dcpk_device *device)
{
    struct cpu_device *s = (struct cpu_device *)device;

    if (s == NULL)
        return;
    for (struct cpu_memory *memory = s->own, *next; memory != NULL; memory = next) {
        next = memory->next;
        memory_release(memory);
    }
    dcpk_imports_release(&s->imports);
    dcpk_free(s->math.scratch);
    dcpk_free(s);
}

static dcpk_status cpu_memory_info(struct dcpk_device *device, uint64_t *free_bytes,
                                   uint64_t *total_bytes, struct dcpk_error *err)
{
    const long page = sysconf(_SC_PAGESIZE), total = sysconf(_SC_PHYS_PAGES);
    const long available = sysconf(_SC_AVPHYS_PAGES);

    (void)device;
    if (page <= 0 || total <= 0 || available < 0)
        return dcpk_fail_errno(err, errno, "asking for the size of the memory");
    *free_bytes = (uint64_t)available * (uint64_t)page;
    *total_bytes = (uint64_t)total * (uint64_t)page;
    return DCPK_OK;
}

static dcpk_status fail_short(size_t n_bytes, uint64_t free_bytes, struct dcpk_error *err)
{
    return dcpk_fail(err, DCPK_ENOMEM, "out of memory: %zu bytes asked, %" PRIu64 " are free",
                     n_bytes, free_bytes);
}

/* Make the memory file and map it. */
static dcpk_status memory_create(struct dcpk_device *device, struct cpu_memory *memory,
                                 size_t n_bytes, struct dcpk_error *err)
{
    uint64_t free_bytes, total_bytes;
    struct stat info;

    if (cpu_memory_info(device, &free_bytes, &total_bytes, err))
        return err->status;
    if (n_bytes > total_bytes)
        return fail_short(n_bytes, free_bytes, err);
    memory->fd = memfd_create("dcpkit", MFD_CLOEXEC);
    if (memory->fd < 0 || ftruncate(memory->fd, (off_t)n_bytes) != 0 ||
        fstat(memory->fd, &info) != 0)
        return dcpk_fail_errno(err, errno, "making a memory file of %zu bytes", n_bytes);
    memory->at = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd, 0);
    if (memory->at == MAP_FAILED) {
        memory->at = NULL;
        return fail_short(n_bytes, free_bytes, err);
    }
    memory->id.base = (uint64_t)(uintptr_t)memory->at;
    memory->id.n_bytes = n_bytes;
    memory->id.generation = (uint64_t)info.st_ino;
    return DCPK_OK;
}

static dcpk_status cpu_alloc(struct dcpk_device *device, enum dcpk_memory_kind kind, size_t n_bytes,
                             void **at, struct dcpk_error *err)
{
    struct cpu_device *s = (struct cpu_device *)device;
    struct cpu_memory *memory = dcpk_alloc(sizeof *memory, err);

    assert(n_bytes >= 1);
    if (memory == NULL)
        return err->status;
    memory->fd = -1;
    if (kind == DCPK_MEMORY_PRIVATE)
        memory->at = dcpk_alloc_aligned(CPU_ALIGNMENT, n_bytes, err);
    else
        (void)memory_create(device, memory, n_bytes, err);
    if (memory->at == NULL) {
        memory_release(memory);
        return err->status;
    }
    memory->next = s->own;
    s->own = memory;
    *at = memory->at;
    return DCPK_OK;
}

static void cpu_free(struct dcpk_device *device, void *at)
{
    struct cpu_device *s = (struct cpu_device *)device;

    for (struct cpu_memory **link = &s->own; at != NULL && *link != NULL; link = &(*link)->next) {
        struct cpu_memory *memory = *link;

        if (memory->at != at)
            continue;
        *link = memory->next;
        memory_release(memory);
        return;
    }
    assert(at == NULL);
}

static bool memory_holds(const struct cpu_memory *memory, uint64_t at, uint64_t n_bytes)
{
    return at >= memory->id.base && n_bytes <= memory->id.n_bytes &&
           at - memory->id.base <= memory->id.n_bytes - n_bytes;
}

static dcpk_status cpu_export(struct dcpk_device *device, const void *at, size_t n_bytes,
                              struct dcpk_memory_id *id, struct dcpk_error *err)
{
    const struct cpu_memory *memory = ((struct cpu_device *)device)->own;
    const uint64_t address = (uint64_t)(uintptr_t)at;

    (void)err;
    while (memory != NULL && !memory_holds(memory, address, n_bytes))
        memory = memory->next;
    *id = (struct dcpk_memory_id){.base = 0, .n_bytes = UINT64_MAX}; /* all that is private */
    dcpk_memory_id_sign(id);
    if (memory != NULL) {
        id->base = memory->id.base;
        id->n_bytes = memory->id.n_bytes;
        id->generation = memory->id.generation;
        memcpy(id->handle, &memory->fd, sizeof memory->fd);
    }
    return DCPK_OK;
}

static dcpk_status cpu_import(struct dcpk_device *device, const struct dcpk_memory_id *id,
                              void **at, struct dcpk_error *err)
{
    struct cpu_device *s = (struct cpu_device *)device;

    if (dcpk_memory_id_is_own(id)) {
        *at = (void *)(uintptr_t)id->base;
        return DCPK_OK;
    }
    if (dcpk_memory_id_is_near(id) && id->generation == 0)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "memory at %#" PRIx64 " of process %" PRIu64 " is private to it", id->base,
                         id->process);
    return dcpk_imports_get(&s->imports, id, at, err);
}

static void cpu_table_unload(struct dcpk_device *device, struct dcpk_table *table)
{
    struct cpu_table *t = (struct cpu_table *)table;

    (void)device;
    if (t == NULL)
        return;
    dcpk_free(t->tiles);
    dcpk_free(t->words);
    dcpk_free(t);
}

static dcpk_status cpu_table_load(struct dcpk_device *device, const struct dcpk_tiles *tiles,
                                  struct dcpk_table **table, struct dcpk_error *err)
{
    struct cpu_table *t;

    if (dcpk_tiles_check(tiles, err))
        return err->status;
    t = dcpk_alloc(sizeof *t, err);
    if (t == NULL)
        return err->status;
    t->base = (struct dcpk_table){tiles->n, tiles->words != NULL};
    t->tiles = dcpk_alloc_array(tiles->n, sizeof *t->tiles, err);
    if (t->tiles != NULL && tiles->words != NULL)
        t->words = dcpk_alloc_array(tiles->n, sizeof *t->words, err);
    if (t->tiles == NULL || (tiles->words != NULL && t->words == NULL)) {
        cpu_table_unload(device, &t->base);
        return err->status;
    }
    if (tiles->n > 0) {
        memcpy(t->tiles, tiles->tiles, tiles->n * sizeof *t->tiles);
        if (tiles->words != NULL)
            memcpy(t->words, tiles->words, tiles->n * sizeof *t->words);
    }
    *table = &t->base;
    return DCPK_OK;
}

/* One row: move it, then add up what was stored, or only read. */
static dcpk_status move_row(const struct dcpk_tile *tile, uint32_t row,
                            const struct dcpk_tile_words *words, uint64_t *sums,
                            struct dcpk_error *err)
{
    const enum dcpk_dtype from = (enum dcpk_dtype)tile->from, to = (enum dcpk_dtype)tile->to;
    const size_t to_bytes = dcpk_dtype_bytes(to);
    const size_t word_bytes = dcpk_fingerprint_word_bytes(to_bytes);
    const uint64_t src = tile->src + (uint64_t)row * (uint64_t)tile->src_stride_bytes;
    const uint64_t dst = tile->dst + (uint64_t)row * (uint64_t)tile->dst_stride_bytes;
    const void *in = (const void *)(uintptr_t)src;
    void *out = (void *)(uintptr_t)dst;

    if (tile->dst != 0 && from == to)
        memcpy(out, in, tile->n_elems * to_bytes);
    else if (tile->dst != 0 && dcpk_host_kernels_tuned.cast(from, in, to, out, tile->n_elems, err))
        return err->status;
    if (sums != NULL)
        sums[words->sum] += dcpk_fingerprint_sum(tile->dst != 0 ? out : in, word_bytes,
                                                 tile->n_elems * (to_bytes / word_bytes),
                                                 words->first + row * words->row_step);
    return DCPK_OK;
}

static dcpk_status cpu_run(struct dcpk_device *device, int queue, const struct dcpk_table *table,
                           uint64_t *sums, struct dcpk_error *err)
{
    const struct cpu_table *t = (const struct cpu_table *)table;

    (void)device;
    assert(queue >= 0 && queue < DCPK_N_QUEUES && (sums == NULL || t->words != NULL));
    for (size_t i = 0; i < t->base.n_tiles; i++)
        for (uint32_t row = 0; row < t->tiles[i].n_rows; row++)
            if (move_row(&t->tiles[i], row, sums == NULL ? NULL : &t->words[i], sums, err))
                return err->status;
    return DCPK_OK;
}

static dcpk_status cpu_copy(struct dcpk_device *device, int queue, void *to, const void *from,
                            size_t n_bytes, struct dcpk_error *err)
{
    (void)device;
    (void)err;
    assert(queue >= 0 && queue < DCPK_N_QUEUES);
    memcpy(to, from, n_bytes);
    return DCPK_OK;
}

static dcpk_status cpu_ticket(struct dcpk_device *device, int queue, uint64_t *ticket,
                              struct dcpk_error *err)
{
    (void)device;
    (void)err;
    assert(queue >= 0 && queue < DCPK_N_QUEUES);
    *ticket = 0;
    return DCPK_OK;
}

static dcpk_status cpu_poll(struct dcpk_device *device, uint64_t ticket, bool *done,
                            struct dcpk_error *err)
{
    (void)device;
    (void)ticket;
    (void)err;
    *done = true;
    return DCPK_OK;
}

const struct dcpk_device_ops dcpk_cpu_device = {
    .name = "cpu",
    .summary = "host memory, plain loops, the specification",
    .is_host = true,
    .open = cpu_open,
    .close = cpu_close,
    .memory_info = cpu_memory_info,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .export_memory = cpu_export,
    .import_memory = cpu_import,
    .load = cpu_table_load,
    .unload = cpu_table_unload,
    .run = cpu_run,
    .copy = cpu_copy,
    .ticket = cpu_ticket,
    .poll = cpu_poll,
};

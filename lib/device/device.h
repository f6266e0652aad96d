/* SPDX-License-Identifier: Apache-2.0 */
/* device.h - an opened device: its memory, the tiles that move in it, waiting for them; with the
 * mathematics of a training step (ops.h) where that was asked for. */
/*
 * One rank opens one device and makes all calls on it from one thread. Other devices of the process
 * may be used by other threads at the same time.
 *
 * Work is queued: `run` and `copy` return when the work is in its queue, and what they were given
 * must stay as it is until the work is done. Work of one queue is done in order, that of different
 * queues at the same time. Nothing that a device does waits for another rank, so that all queued
 * work comes to an end by itself; dcpk_device_wait and `poll` ask whether it has.
 *
 * A call that fails has queued nothing and leaves outputs untouched. Errors of work that was queued
 * show in a later call of the same device: DCPK_EIO, with the device's reason. After that the
 * device is only good for close, and where the reason is that the device was lost, so is the
 * process.
 */
#ifndef DCPK_LIB_DEVICE_DEVICE_H
#define DCPK_LIB_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"
#include "lib/device/tile.h"

/* Queues 0 .. DCPK_N_QUEUES - 1: none waits for another one. */
#define DCPK_N_QUEUES 4

enum dcpk_memory_kind {
    DCPK_MEMORY_DEVICE, /* the device's own; can be exported */
    DCPK_MEMORY_HOST,   /* the processor's, reached by tiles and copies as well (page-locked) */
    /* The device's own, for work of queue 0: it cannot be exported. It may be freed while queued
     * work uses it; the device keeps it for the next one, whose work comes later. */
    DCPK_MEMORY_PRIVATE,
};

/*
 * Memory that a rank lets the others reach: plain bytes, to be sent to ranks of the same build. It
 * stands for the whole allocation that holds what was exported; an address `a` in it is found at
 * imported + (a - base).
 */
struct dcpk_memory_id {
    uint64_t base, n_bytes; /* the allocation, in addresses of the process that exports it */
    uint64_t generation;    /* never the same for two allocations of a process */
    uint64_t process;
    uint8_t host[16]; /* of a boot of a machine: import refuses memory of another one */
    uint8_t handle[64];
};

struct dcpk_device_ops;
struct dcpk_ops;
struct dcpk_math;

struct dcpk_device_options {
    int ordinal;  /* number of the device among those of a kind, from 0 */
    int n_blocks; /* a GPU's blocks for moving to and from peers; 0: the fastest number */
    const struct dcpk_ops *math; /* mathematics of this device to open; NULL: none */
};

/* Made by `open`, which may keep more after it. */
struct dcpk_device {
    const struct dcpk_device_ops *ops;
    int ordinal;
    int gpu_major;          /* of the compute capability: 9 is Hopper; 0: no GPU */
    struct dcpk_math *math; /* as asked for in the options; NULL: none */
};

/* Tiles on the device, ready to run any number of times. Made by `load`, which may keep more after
 * it. */
struct dcpk_table {
    size_t n_tiles;
    bool has_words;
};

/* Functions that kernels/ implements for a kind of device; "cpu" is the specification. */
struct dcpk_device_ops {
    const char *name;
    const char *summary;
    bool is_host; /* DCPK_MEMORY_DEVICE is host memory: any thread, and any link, may take it */
    /* *device is set on success only; `close` frees it. Errors: DCPK_EUNSUPPORTED with the reason
     * (no such device, no driver, one that is too old); DCPK_ENOMEM; DCPK_EIO. */
    dcpk_status (*open)(const struct dcpk_device_options *options, struct dcpk_device **device,
                        struct dcpk_error *err);
    /* Waits for queued work, without end. Releases imports and all memory that was not freed. All
     * tables must have been unloaded. NULL is a no-op. */
    void (*close)(struct dcpk_device *device);

    /* Bytes of the device's memory, and how many of them are free now. */
    dcpk_status (*memory_info)(struct dcpk_device *device, uint64_t *free_bytes,
                               uint64_t *total_bytes, struct dcpk_error *err);
    /* Contents undefined; aligned to 256 bytes; n_bytes at least 1. For few and large pieces: each
     * takes whole pages. Errors: DCPK_ENOMEM with the bytes wanted and those free. */
    dcpk_status (*alloc)(struct dcpk_device *device, enum dcpk_memory_kind kind, size_t n_bytes,
                         void **at, struct dcpk_error *err);
    /* Frees memory of `alloc`; NULL is a no-op. No queued work may use it (DCPK_MEMORY_PRIVATE:
     * none of other queues), and no rank may use an import of it. */
    void (*free)(struct dcpk_device *device, void *at);
    /* Make host memory that lies elsewhere, written to before, as fast as DCPK_MEMORY_HOST, until
     * unlock_host, which waits for queue 0. Any thread may lock. Both NULL: a device without need
     * of it. Errors: DCPK_ENOMEM, DCPK_EIO; the memory may be used all the same. */
    dcpk_status (*lock_host)(struct dcpk_device *device, void *at, size_t n_bytes,
                             struct dcpk_error *err);
    void (*unlock_host)(struct dcpk_device *device, void *at);

    /*
     * Describe the allocation that holds [at, at + n_bytes): of DCPK_MEMORY_DEVICE, or memory of
     * the device that the caller has from elsewhere, whose allocation may begin before `at`. The
     * memory must not be freed while others use it. Errors: DCPK_EUNSUPPORTED with the reason where
     * it cannot be shared; DCPK_EIO.
     */
    dcpk_status (*export_memory)(struct dcpk_device *device, const void *at, size_t n_bytes,
                                 struct dcpk_memory_id *id, struct dcpk_error *err);
    /*
     * Map what another rank (or this one) has exported; *at is where its base lies here. The
     * mapping is kept until close and found again by process, base, size and generation; it is
     * dropped when the same process exports another generation at a place that meets it. Errors:
     * DCPK_EUNSUPPORTED with the reason: other machine, no peer access, memory private to its
     * process. The caller takes a link then (link.h). DCPK_ENOMEM, DCPK_EIO.
     */
    dcpk_status (*import_memory)(struct dcpk_device *device, const struct dcpk_memory_id *id,
                                 void **at, struct dcpk_error *err);

    /* Copies the tiles to where the device reads them; *table is freed by `unload`. No memory that
     * tiles name is touched. Errors: DCPK_EUNSUPPORTED for a pair of dtypes that cannot be cast;
     * DCPK_ENOMEM; DCPK_EIO. */
    dcpk_status (*load)(struct dcpk_device *device, const struct dcpk_tiles *tiles,
                        struct dcpk_table **table, struct dcpk_error *err);
    void (*unload)(struct dcpk_device *device, struct dcpk_table *table); /* NULL is a no-op */
    /*
     * Queue all tiles of a table. sums: memory of the device; to sums[words[i].sum] the terms of
     * what tile i stores (or reads, where its dst is 0) are added, modulo 2^64. NULL: none wanted;
     * required NULL for a table without words. Allocates nothing.
     */
    dcpk_status (*run)(struct dcpk_device *device, int queue, const struct dcpk_table *table,
                       uint64_t *sums, struct dcpk_error *err);
    /* Queue a copy of n_bytes between any two pieces of memory that this rank can address: the
     * device's, imported, host memory (soonest where it is DCPK_MEMORY_HOST). They do not meet. */
    dcpk_status (*copy)(struct dcpk_device *device, int queue, void *to, const void *from,
                        size_t n_bytes, struct dcpk_error *err);

    /* *ticket: stands for everything queued in `queue` so far. */
    dcpk_status (*ticket)(struct dcpk_device *device, int queue, uint64_t *ticket,
                          struct dcpk_error *err);
    /* Sets *done if the work of the ticket is done. Never blocks. Once it is done, its results are
     * visible to this process and, once they have been notified, to all ranks. */
    dcpk_status (*poll)(struct dcpk_device *device, uint64_t ticket, bool *done,
                        struct dcpk_error *err);

    /*
     * Clock of queue 0; both NULL where work is done when its call returns: the host's clock times
     * it. `mark`: mark `number` becomes the moment at which the work queued so far is done; at most
     * one more than the highest number yet. `between`: seconds from a mark to a later one, for
     * which it waits.
     */
    dcpk_status (*mark)(struct dcpk_device *device, size_t number, struct dcpk_error *err);
    dcpk_status (*between)(struct dcpk_device *device, size_t from, size_t to, double *seconds,
                           struct dcpk_error *err);
};

/* For `load`: checks that all of them can be moved. Errors: DCPK_EUNSUPPORTED for a pair of dtypes
 * that cannot be cast. Tiles that break the rules of tile.h are asserted. */
dcpk_status dcpk_tiles_check(const struct dcpk_tiles *tiles, struct dcpk_error *err);

/* For `export_memory`: this process and machine into id->process and id->host. Processes that know
 * each other by number are of one machine (one PID namespace of one boot). */
void dcpk_memory_id_sign(struct dcpk_memory_id *id);

/* True if `id` is memory of this process; of this machine. */
bool dcpk_memory_id_is_own(const struct dcpk_memory_id *id);
bool dcpk_memory_id_is_near(const struct dcpk_memory_id *id);

/* Wait until everything queued in `queue` is done, by polling. Errors: DCPK_EIO when that takes
 * more than timeout_ms; those of ticket and poll. */
dcpk_status dcpk_device_wait(struct dcpk_device *device, int queue, int timeout_ms,
                             struct dcpk_error *err);

/* ---- imports ---- */

struct dcpk_import {
    struct dcpk_import *next;
    struct dcpk_memory_id id;
    void *at; /* where its base lies here */
};

/* The imports of one device. Zeros except for the functions and what they are given. */
struct dcpk_imports {
    struct dcpk_import *first; /* the latest */
    /* *at: where the memory is mapped. On failure nothing is. */
    dcpk_status (*map)(void *context, const struct dcpk_memory_id *id, void **at,
                       struct dcpk_error *err);
    void (*unmap)(void *context, const struct dcpk_import *import);
    void *context;
};

/*
 * *at: the place of the memory, mapped unless it is already. Earlier exports of the same process at
 * a place that meets it are unmapped. Errors: DCPK_EUNSUPPORTED when the memory is of another
 * machine; DCPK_ENOMEM; those of `map`.
 */
dcpk_status dcpk_imports_get(struct dcpk_imports *imports, const struct dcpk_memory_id *id,
                             void **at, struct dcpk_error *err);

/* Unmap all. */
void dcpk_imports_release(struct dcpk_imports *imports);

#endif

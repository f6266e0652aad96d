/* SPDX-License-Identifier: Apache-2.0 */
/* write_priv.h - a conversion under way: shared by the write_*.c files and exec_convert.c. */
#ifndef DCPK_LIB_EXEC_WRITE_PRIV_H
#define DCPK_LIB_EXEC_WRITE_PRIV_H

#include "lib/exec/exec_priv.h"
#include "lib/exec/slab.h"

/*
 * Chunks in file order become entries. Small ones that touch share an entry, which is one task:
 * gathered into one buffer with all their frames and written at once. A chunk larger than the
 * buffer is an entry of its own, one task a slab; whoever finishes its last slab knows its checksum
 * and writes its frame:
 *
 *   file    | lead data tail | lead data tail | lead data
 * ................................................ tail | entry   |               batch |      slab
 * 0       |    slab 1         |      slab 2             |
 */
struct dcpk_entry {
    uint64_t first_task;
    uint32_t first;   /* index into order */
    uint32_t n_batch; /* chunks written at once; 0: one chunk in slabs */
};

/* Files are opened with their first byte and synced with their last: a few are open at any time. */
struct dcpk_open_file {
    struct dcpk_sink *sink; /* NULL: not open */
    uint64_t n_tasks_left;
    bool was_opened;
};

/* A chunk of which some slabs are written and some are not. */
struct dcpk_half_written {
    uint64_t n_slabs_left; /* 0: free slot */
    uint32_t chunk;
    uint32_t crc32; /* of the slabs so far, each shifted to its place */
};

struct dcpk_writing {
    struct dcpk_exec *exec;
    struct dcpk_output *out;
    struct dcpk_folder *folder;
    struct dcpk_worker *workers;
    uint32_t *order; /* chunks as they lie in the files */
    struct dcpk_entry *entries;
    size_t n_entries;
    uint64_t n_tasks;
    struct dcpk_box_tree **trees; /* of the pieces of tensors that have many, else NULL */
    pthread_mutex_t mutex;        /* of the two below */
    struct dcpk_open_file *files;
    struct dcpk_half_written *half_written; /* n_threads + 1: one is being handed out, the others
                                               wait for a thread each */
    struct dcpk_meter meter;
};

/* lead + data + tail. */
uint64_t dcpk_write_item_bytes(const struct dcpk_out_chunk *chunk);
struct dcpk_view dcpk_write_view(const struct dcpk_out_tensor *tensor);
/* The slabs of a chunk that is an entry of its own. */
void dcpk_write_cut(const struct dcpk_writing *c, const struct dcpk_out_chunk *chunk,
                    struct dcpk_slabs *slabs);

/* Set order, entries, trees and n_tasks_left of the files. On failure the caller releases what is
 * there. */
dcpk_status dcpk_write_prepare(struct dcpk_writing *c, struct dcpk_error *err);

/* The open file; made when this is its first byte. Thread-safe. */
dcpk_status dcpk_write_open(struct dcpk_writing *c, uint32_t file, struct dcpk_sink **sink,
                            struct dcpk_error *err);
/* Write and count. */
dcpk_status dcpk_write_out(struct dcpk_worker *worker, struct dcpk_sink *sink,
                           uint64_t offset_bytes, const void *data, uint64_t n_bytes,
                           struct dcpk_error *err);
/* Write all object payloads; by one thread, before the tasks. */
dcpk_status dcpk_write_payloads(struct dcpk_writing *c, struct dcpk_error *err);
/* A dcpk_task over a dcpk_conversion. */
dcpk_status dcpk_write_task(void *conversion, int worker, uint64_t task, struct dcpk_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* workers.h - what the executor's parts share: workers and their buffers, located chunks,
 * gathering. */
#ifndef DCPK_LIB_EXEC_WORKERS_H
#define DCPK_LIB_EXEC_WORKERS_H

#include <pthread.h>
#include <stdatomic.h>

#include "lib/ckpt/checkpoint.h"
#include "lib/ckpt/format.h"
#include "lib/exec/exec.h"
#include "lib/exec/pool.h"
#include "lib/exec/ranks.h"
#include "lib/plan/box_tree.h"

/* A located chunk, remembered. Chunks with strides of their own are not: they are rare. */
struct dcpk_located {
    struct dcpk_source *source; /* NULL: empty slot */
    uint64_t first_bytes;
    uint32_t chunk;
};

#define DCPK_LOCATED_LOCKS 64
struct dcpk_exec {
    struct dcpk_checkpoint *ckpt; /* borrowed */
    const struct dcpk_host_kernels *kernels;
    struct dcpk_progress progress;
    struct dcpk_ranks *ranks; /* borrowed; NULL: alone */
    struct dcpk_chunk_index *index;
    struct dcpk_decoded *decoded; /* NULL: the format encodes nothing */
    int n_threads;
    uint64_t unit_bytes;          /* of units of work (lib/write/units.h) */
    size_t share_bytes;           /* of each thread's buffers */
    struct dcpk_located *located; /* slot chunk % n_located, under lock slot % DCPK_LOCATED_LOCKS */
    size_t n_located;             /* a power of two */
    pthread_mutex_t locks[DCPK_LOCATED_LOCKS];
};

/* As reader->locate, answered from memory where it can be. Thread-safe. Errors name the key. */
dcpk_status dcpk_exec_locate(struct dcpk_exec *exec, const struct dcpk_chunk *chunk,
                             const struct dcpk_reader *reader, struct dcpk_extent *where,
                             struct dcpk_error *err);

/* Bytes of a source read ahead, for runs of small neighbouring reads. */
struct dcpk_window {
    struct dcpk_source *source; /* NULL: empty */
    uint64_t offset_bytes;
    size_t n_bytes;
    uint64_t used; /* when last; the oldest one gives way */
    uint8_t *data;
};
/*
 * Tensors of one kind lie together in a file, layer after layer, while a conversion goes through
 * all kinds of a layer: a dozen kinds with three states each from two files are 72 runs at a time.
 * With 132 000 small chunks, 8 windows saved no read; 64 windows of an eighth of the size saved
 * three of four.
 */
#define DCPK_N_WINDOWS 64

/* A thread's buffers, all cut from one allocation of share_bytes: nothing is allocated while
 * tensors move. */
struct dcpk_worker {
    uint8_t *memory;
    uint8_t *buffer; /* destination of the consumer's gathers */
    size_t buffer_bytes;
    uint8_t *scratch; /* spans of the source, before they are copied into place */
    size_t scratch_bytes;
    uint8_t *cast_from, *cast_to;
    size_t cast_bytes; /* of each of the two */
    struct dcpk_window windows[DCPK_N_WINDOWS];
    size_t window_bytes;
    uint64_t n_reads;          /* clock of the windows */
    struct dcpk_reader reader; /* dcpk_worker_read, for formats that locate chunks */
    uint64_t read_bytes, written_bytes;
    uint64_t checked_bytes; /* against a stored checksum */
    uint64_t n_zero_scales; /* of blocks of fp8 */
};

/* exec->n_threads of them; NULL and err on failure. */
struct dcpk_worker *dcpk_workers_new(const struct dcpk_exec *exec, struct dcpk_error *err);
void dcpk_workers_free(const struct dcpk_exec *exec,
                       struct dcpk_worker *workers); /* NULL is a no-op */
/* Add the bytes that all workers have moved to those of stats. */
void dcpk_workers_count(const struct dcpk_exec *exec, const struct dcpk_worker *workers,
                        struct dcpk_exec_stats *stats);
/* Collective inside the work: add to `elsewhere` what the workers of the other ranks have moved.
 * Returns st, as dcpk_ranks_share does. */
dcpk_status dcpk_workers_share(const struct dcpk_exec *exec, const struct dcpk_worker *workers,
                               struct dcpk_exec_stats *elsewhere, dcpk_status st,
                               struct dcpk_error *err);

/* One run of the executor: what is reported at its end and on the way. */
struct dcpk_meter {
    struct dcpk_progress progress;
    uint64_t total_bytes;
    atomic_uint_fast64_t done_bytes;
    atomic_bool stopped;
    pthread_mutex_t mutex; /* of progress.update and the time of the next call */
    double begun, next;    /* seconds */
};
void dcpk_meter_begin(struct dcpk_meter *meter, const struct dcpk_progress *progress,
                      uint64_t total_bytes);
/* Errors: DCPK_ECANCELLED once update has returned false. Thread-safe. */
dcpk_status dcpk_meter_add(struct dcpk_meter *meter, uint64_t n_bytes, struct dcpk_error *err);
/* The last call of update, when st is DCPK_OK; stats (NULL: not wanted) from the workers. Returns
 * st. */
dcpk_status dcpk_meter_end(struct dcpk_meter *meter, const struct dcpk_exec *exec,
                           const struct dcpk_worker *workers, struct dcpk_exec_stats *stats,
                           dcpk_status st);

/*
 * A pass over a checkpoint: numbered tasks on all threads of all ranks, each rank a share of them
 * by bytes. Fill `work` (n, bytes_of, context) and `task` between begin and run. begin, run and
 * share must be called in this order, each when the one before went well; end in any case.
 */
struct dcpk_pass {
    struct dcpk_exec *exec;
    struct dcpk_worker *workers; /* exec->n_threads */
    struct dcpk_meter meter;
    struct dcpk_work work; /* after run: which tasks were this rank's */
    dcpk_task *task;
    void *context;                    /* of task; that of work is the same */
    struct dcpk_exec_stats elsewhere; /* moved by other ranks */
};
dcpk_status dcpk_pass_begin(struct dcpk_pass *pass, struct dcpk_exec *exec, struct dcpk_error *err);
/* Collective inside the work. Errors: those of the tasks; DCPK_EMISMATCH when the ranks have
 * different tasks. */
dcpk_status dcpk_pass_run(struct dcpk_pass *pass, struct dcpk_error *err);
/* Collective inside the work: all ranks get the results of every rank's tasks, in the order of the
 * tasks. NULL: there are none. task_bytes: of the result of each task; 0: the caller knows how many
 * there are. st, err: of dcpk_pass_run. */
dcpk_status dcpk_pass_share(struct dcpk_pass *pass, const struct dcpk_bytes *mine,
                            size_t task_bytes, struct dcpk_bytes *all, dcpk_status st,
                            struct dcpk_error *err);
/* Releases all but what it was given; stats as for dcpk_meter_end. Returns st. */
dcpk_status dcpk_pass_end(struct dcpk_pass *pass, struct dcpk_exec_stats *stats, dcpk_status st);

/* Read bytes of a source; small reads come in larger ones where they follow one another. Counts
 * read_bytes. */
dcpk_status dcpk_worker_read(struct dcpk_worker *worker, struct dcpk_source *source,
                             uint64_t offset_bytes, void *out, size_t n_bytes,
                             struct dcpk_error *err);

/* Read the record of an extent, in slabs of the worker's buffer, and compare its checksum, which it
 * must have. Errors: DCPK_EFORMAT with both checksums; those of reading and of the meter. */
dcpk_status dcpk_worker_check_record(struct dcpk_worker *worker, const struct dcpk_extent *where,
                                     struct dcpk_meter *meter, struct dcpk_error *err);

/* A view, and the tree of its pieces (dcpk_piece_tree_build). A value; both are borrowed. */
struct dcpk_gather_from {
    const struct dcpk_view *view;
    const struct dcpk_box_tree *pieces;
};

/*
 * Gather the elements of `region` (a box in the view's coordinates) into `out`, row-major, in the
 * view's dtype. out: any memory but the worker's scratch and
 * cast buffers. Errors: those of locating, reading and casting, with key and file.
 */
dcpk_status dcpk_gather(struct dcpk_exec *exec, struct dcpk_worker *worker,
                        const struct dcpk_gather_from *from, const struct dcpk_box *region,
                        void *out, struct dcpk_error *err);

/* The same of a view with `blocks` (gather_blocks.c), which dcpk_gather calls. Errors:
 * DCPK_EUNSUPPORTED, naming the element, where the matrix is not finite. */
dcpk_status dcpk_gather_blocks(struct dcpk_exec *exec, struct dcpk_worker *worker,
                               const struct dcpk_gather_from *from, const struct dcpk_box *region,
                               void *out, struct dcpk_error *err);

/* Advises the system that dcpk_gather will read this region soon. Failures show when it is
 * gathered. */
void dcpk_gather_advise(struct dcpk_exec *exec, const struct dcpk_gather_from *from,
                        const struct dcpk_box *region);

/* Bytes in the cast buffers for an element of a computed tensor: in one its float32; in the other
 * its value, and a scale if it has one (of a product: compute.c). */
#define DCPK_COMPUTED_BYTES 8

/*
 * Compute the box of a tensor, not empty, into worker->cast_from, row-major, in float32. It must
 * have DCPK_COMPUTED_BYTES for each element there and in cast_to. Errors: as dcpk_gather.
 */
dcpk_status dcpk_compute(struct dcpk_exec *exec, struct dcpk_worker *worker,
                         const struct dcpk_computed *computed, const struct dcpk_box *box,
                         struct dcpk_error *err);
void dcpk_compute_advise(struct dcpk_exec *exec, const struct dcpk_computed *computed,
                         const struct dcpk_box *box);

/* Thread-safe: a chunk is decoded by the first thread that wants it, the others wait for it. */
struct dcpk_decoded;

/* limit_bytes: of all decoded chunks and of what they are decoded from, together. */
dcpk_status dcpk_decoded_new(struct dcpk_checkpoint *ckpt, uint64_t limit_bytes,
                             struct dcpk_decoded **decoded, struct dcpk_error *err);
void dcpk_decoded_free(struct dcpk_decoded *decoded); /* NULL is a no-op */

/*
 * The where->decoded_bytes of a stored chunk, borrowed until dcpk_decoded_put. A thread holds one
 * at a time, so that none waits for room that another one waiting holds.
 * *read_bytes: grows by what was read for it, which is nothing where it was there.
 * Errors: DCPK_ERANGE when the chunk does not fit into the limit; those of decode.
 */
dcpk_status dcpk_decoded_get(struct dcpk_decoded *decoded, const struct dcpk_chunk *chunk,
                             const struct dcpk_extent *where, const uint8_t **data,
                             uint64_t *read_bytes, struct dcpk_error *err);
void dcpk_decoded_put(struct dcpk_decoded *decoded, const struct dcpk_chunk *chunk);

/*
 * The numbers of the checkpoint's chunks in the order of the files, one of those that share a
 * place; but chunks of tensors of another shape or dtype are apart, so that each is looked at.
 * *chunks: dcpk_free. Errors: DCPK_ENOMEM; DCPK_ERANGE past 2^32 - 1 of them.
 */
dcpk_status dcpk_order_chunks(struct dcpk_checkpoint *ckpt, uint32_t **chunks, size_t *n_chunks,
                              struct dcpk_error *err);
/* The same of the objects. first: n_objects, by object the place in *objects of the one with its
 * bytes; NULL: not wanted. */
dcpk_status dcpk_order_objects(struct dcpk_checkpoint *ckpt, uint32_t *first, uint32_t **objects,
                               size_t *n_objects, struct dcpk_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* remap_files.h - tensors of a checkpoint's files go to shards in the memory of ranks: planned
 * once, run any number of times. */
/*
 *   files --threads--> slots of host memory --copies--> ring of the device --tiles--> targets
 *
 * Every byte that a target wants is read once, by one rank, in long runs; neighbours are read
 * together, and what no target wants is left out. De-striding, casts and the way to the ranks that
 * own the targets are the tiles' work. Ranks meet at both ends only. Chunks that are not stored as
 * plain
 * row-major elements (encoded, strided, or left out as zero) are gathered by the
 * reading threads first, a slice at a time, so that a strided chunk larger than a slice is read
 * more than once. Where DEVICE memory is host memory (dcpk_device_ops.is_host) threads read
 * into the ring.
 *
 * Ranks that cannot map each other's memory read apart: those that can are a team, and each team
 * reads what its own targets want; `note` has the reason. Memory: ring, slots, buffers of threads
 * (env->memory_bytes at most, used where chunks are gathered or located), 300 bytes for each chunk
 * and part of 4 MiB that is wanted and for each target of all ranks, and 48 for each tile (64 KiB
 * of a target, four times that where there are many).
 */
#ifndef DCPK_LIB_EXEC_REMAP_FILES_H
#define DCPK_LIB_EXEC_REMAP_FILES_H

#include "lib/exec/env.h"
#include "lib/exec/remap.h"
#include "lib/plan/plan.h"

/* A tensor of the checkpoint as targets call it. A value; all is borrowed. */
struct dcpk_remap_view {
    const char *name;
    struct dcpk_view view;
};

#define DCPK_REMAP_RING_BYTES     (UINT64_C(256) << 20)
#define DCPK_REMAP_MIN_RING_BYTES (UINT64_C(64) << 10)

/* Everything is borrowed until dcpk_remap_files_free. All but env, ckpt, views and device must be
 * equal on all ranks; the checkpoints and views are the same ones, opened by each rank. */
struct dcpk_remap_files_options {
    const struct dcpk_env *env;   /* device, n_threads, memory_bytes, progress (own bytes), ranks */
    struct dcpk_checkpoint *ckpt; /* checkpoint whose chunks cover its tensors */
    const struct dcpk_remap_view *views; /* no two of a name */
    size_t n_views;
    struct dcpk_device *device;
    enum dcpk_remap_path path; /* STAGED: each rank reads all that it wants; DIRECT: one team */
    uint64_t ring_bytes;       /* 0: DCPK_REMAP_RING_BYTES */
    double read_bytes_a_second, link_bytes_a_second; /* of a rank, for the prediction; 0: none */
    /* of the device's work, without progress; 0: as dcpk_remap_options. Ranks wait three times as
     * long for one another, and as long as a rank takes that reads all files at 10 MB/s. */
    int timeout_ms;
    bool checks; /* compare the fingerprints of what was stored and what has landed */
    /* Check the stored checksums of all chunks that are read, each before its bytes move. That is a
     * read of its own, of whole chunks; the one that follows finds them in the page cache. */
    bool checks_files;
    /* Runs read all and store nothing: they find out whether targets hold what they would store
     * (dcpk_remap_files_sums). With `checks`. */
    bool only_compares;
};

/* Results, of this rank unless stated differently. */
struct dcpk_remap_files_stats {
    double seconds;      /* of the last run */
    uint64_t read_bytes; /* from files by the last run, bytes between wanted ones included */
    uint64_t local_bytes, out_bytes; /* of targets, that a run stores here and in other ranks */
    uint64_t in_bytes;               /* that others store here */
    uint64_t plan_bytes;             /* that a run reads, except gathered chunks */
    uint64_t gathered_bytes;         /* of elements that reading threads gather */
    uint64_t ring_bytes, slot_bytes, table_bytes;
    uint64_t n_tiles, n_parts;
    size_t n_teams;           /* of all ranks */
    double predicted_seconds; /* of the team: of the rank with the most bytes to read or push */
    const char *note;         /* why there are several teams; "" where there is one */
};

struct dcpk_remap_files;

/*
 * Collective: gather the targets of all ranks, map memory, deal what must be read, find it in the
 * files, and make ready everything that runs need. mine: this rank's targets, as in
 * dcpk_remap_shards; copied, except for the memory at `at`, which must stay until
 * dcpk_remap_files_free.
 * Errors, the same on all ranks and with nothing moved: DCPK_EMISMATCH naming key, box and rank for
 * a target that no view has, whose shape is another, or which its view's chunks do not cover, and
 * for targets that overlap in memory; DCPK_EUNSUPPORTED for dtypes that cannot be cast, and for
 * several teams where path is DIRECT; those of finding chunks in files, naming file and tensor;
 * DCPK_ERANGE; DCPK_ENOMEM; DCPK_EIO.
 */
dcpk_status dcpk_remap_files_new(const struct dcpk_remap_files_options *options,
                                 const struct dcpk_shard *targets, size_t n_targets,
                                 struct dcpk_remap_files **files, struct dcpk_error *err);
/* Not collective; NULL is a no-op. Peers must not run any more: they may write into this rank. */
void dcpk_remap_files_free(struct dcpk_remap_files *files);

/* The last run's, and what the plan has; borrowed. */
const struct dcpk_remap_files_stats *dcpk_remap_files_stats(const struct dcpk_remap_files *files);

/*
 * Collective: fill all targets. Their memory must be idle. All calls on the device come from the
 * calling thread; others read.
 * Errors, the same on all ranks: those of reading, naming file and tensor; DCPK_EFORMAT for a
 * checksum that differs; DCPK_ECANCELLED;
 * DCPK_EIO when a device fails, is not done in time, or fingerprints differ (naming the tensor and
 * both; not where it only compares). Targets are undefined then, nothing is under way any more, and
 * another run may follow unless the device has failed.
 */
dcpk_status dcpk_remap_files_run(struct dcpk_remap_files *files, struct dcpk_error *err);

/* After a run that only compares: the tensors of this rank's team, and the fingerprints of each, of
 * all its targets: first what a run would store, then, n_tensors on, what they hold. Borrowed. */
const struct dcpk_remap_plan *dcpk_remap_files_plan(const struct dcpk_remap_files *files);
const uint64_t *dcpk_remap_files_sums(const struct dcpk_remap_files *files);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* remap_checkpoint_priv.h - what the parts of a remap job share. Each calls those before it:
 *
 *   remap_rank.c         a rank's device, link and engine
 *   remap_held.c         one layout in its memory
 *   remap_checkpoint.c   the job of a process: model, layouts, fingerprints; starts its ranks
 */
#ifndef DCPK_LIB_JOB_REMAP_CHECKPOINT_PRIV_H
#define DCPK_LIB_JOB_REMAP_CHECKPOINT_PRIV_H

#include "lib/exec/exec.h"
#include "lib/exec/remap_files.h"
#include "lib/job/remap_checkpoint.h"

/* One for each process; its ranks only read it. */
struct dcpk_remap_job {
    const struct dcpk_remap_job_options *options;
    struct dcpk_checkpoint *ckpt;
    struct dcpk_model *model;
    struct dcpk_laid_out from, to;
    struct dcpk_arena *arena;
    size_t n;                         /* tensors */
    struct dcpk_remap_view *views;    /* by tensor */
    uint64_t *sums;                   /* the same: fingerprints of the files */
    struct dcpk_remap_result *result; /* set by the ranks that report */
};

/* A rank. */
struct dcpk_remap_rank {
    struct dcpk_remap_job *job;
    struct dcpk_ranks *ranks; /* NULL: alone */
    struct dcpk_device *device;
    struct dcpk_link *link; /* NULL: not opened */
    double link_bytes_a_second;
    uint64_t max_bytes;               /* that a rank holds under the first layout */
    bool proven;                      /* by the last step */
    struct dcpk_remap_result *result; /* NULL: another rank of this process reports */
};

/* ---- remap_rank.c ---- */

/* Collective: open the device, and the link where the path always needs one. */
dcpk_status dcpk_remap_rank_open(struct dcpk_remap_rank *rank, struct dcpk_error *err);
void dcpk_remap_rank_close(struct dcpk_remap_rank *rank); /* not collective; zeroed: a no-op */

/* Collective: dcpk_remap_new, over a link where ranks need one that it opens then. */
dcpk_status dcpk_remap_rank_plan(struct dcpk_remap_rank *rank,
                                 const struct dcpk_remap_shards *shards, struct dcpk_remap **remap,
                                 struct dcpk_error *err);
/* Collective: run it. *seconds: of the slowest rank in the best run so far; 0 before the first. */
dcpk_status dcpk_remap_rank_time(struct dcpk_remap_rank *rank, struct dcpk_remap *remap,
                                 double *seconds, struct dcpk_error *err);

/*
 * Collective: sets rank->link_bytes_a_second, the rate from every rank to the next one, in one
 * piece, as the engine moves it; within the rank where there is one alone. Overwrites n_bytes at
 * `from` and `to`. Where a rank has little of them, it takes memory.
 */
dcpk_status dcpk_remap_rank_measure(struct dcpk_remap_rank *rank, const uint8_t *from, uint8_t *to,
                                    uint64_t n_bytes, struct dcpk_error *err);

/* Wait for all queued work, as long as the options allow. */
dcpk_status dcpk_remap_rank_wait(struct dcpk_remap_rank *rank, struct dcpk_error *err);

/* ---- remap_held.c ---- */

/* One layout in the memory of a rank: the tensors that it holds, one after the other. */
struct dcpk_remap_held {
    struct dcpk_remap_rank *rank;
    struct dcpk_arena *arena;
    struct dcpk_shard *shards; /* owned */
    uint32_t *tensor;          /* of each shard; owned */
    size_t n_shards, capacity, n_places;
    int64_t *copy;              /* by tensor: which one the rank has part of; -1: none */
    uint8_t *at;                /* of the device */
    uint64_t n_bytes;           /* 0: the rank holds nothing */
    struct dcpk_table *reading; /* fingerprints of all shards */
    uint64_t *sums;             /* of the device, by tensor */
    uint64_t *host_sums;        /* the same in host memory of the device: no copy of it blocks */
};

/* Finds the shards of the rank, allocates memory for them, and prepares their sums. Not collective.
 * Errors: DCPK_ENOMEM with the bytes wanted and free; those of dcpk_held_of. */
dcpk_status dcpk_remap_held_make(struct dcpk_remap_rank *rank, const struct dcpk_laid_out *laid,
                                 struct dcpk_remap_held *held, struct dcpk_error *err);
void dcpk_remap_held_release(struct dcpk_remap_held *held); /* zeroed: a no-op */

/* Collective: feed it from the files. max_bytes: that a rank holds, equal on all. *stats: except
 * `note`, which is gone. */
dcpk_status dcpk_remap_held_load(struct dcpk_remap_held *held, uint64_t max_bytes,
                                 struct dcpk_remap_files_stats *stats, struct dcpk_error *err);
/* Overwrite all of it. Not collective. */
dcpk_status dcpk_remap_held_wipe(struct dcpk_remap_held *held, struct dcpk_error *err);
/* Collective: hold every copy against the files; what differs goes into `step`. */
dcpk_status dcpk_remap_held_prove(struct dcpk_remap_held *held, struct dcpk_remap_step *step,
                                  struct dcpk_error *err);

#endif

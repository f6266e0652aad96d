/* SPDX-License-Identifier: Apache-2.0 */
/* delta.h - the difference of two checkpoints' folders on disk, and the folder rebuilt from it. */
#ifndef DCPK_LIB_JOB_DELTA_H
#define DCPK_LIB_JOB_DELTA_H

#include "lib/ckpt/checkpoint.h"
#include "lib/exec/env.h"

/* lib/job/DELTA.md describes how a delta works and what lies in its folder. */

/* The work of both; borrowed. */
struct dcpk_delta_job {
    const struct dcpk_env *env; /* its ranks are not used */
    const char *out;            /* the folder to write */
    unsigned folder_flags;      /* DCPK_FOLDER_REPLACE or 0 */
    bool is_dry;                /* find what would be written, write nothing */
};

/* Files and bytes of NEW; the bytes that are not at their place in BASE; those of the delta. */
struct dcpk_delta_counts {
    uint64_t n_files, n_bytes, changed_bytes, delta_bytes;
};

/*
 * Write the delta from one checkpoint's folder to another's: all files of theirs, in folders too.
 * Errors: DCPK_EUNSUPPORTED for a file deeper than a folder in the folder, and for a checkpoint
 * whose files are in two folders; DCPK_EUSAGE for a link to a private file; those of reading and of
 * the output folder.
 */
dcpk_status dcpk_delta_make(struct dcpk_checkpoint *base, struct dcpk_checkpoint *next,
                            const struct dcpk_delta_job *job, struct dcpk_delta_counts *counts,
                            struct dcpk_error *err);

/*
 * Rebuild NEW's folder from BASE's and the delta. The delta may be hostile: its tables are checked
 * before a byte is written, and every byte before the folder appears. Errors: DCPK_EFORMAT for a
 * delta that is malformed or damaged; DCPK_EMISMATCH for another base; DCPK_ERANGE for one that
 * claims far more than its bytes and the base's explain; DCPK_EUNSUPPORTED for blocks that this
 * build cannot unpack; those of the output folder.
 */
dcpk_status dcpk_delta_apply(struct dcpk_store *base, struct dcpk_store *delta,
                             const struct dcpk_delta_job *job, struct dcpk_delta_counts *counts,
                             struct dcpk_error *err);

#define DCPK_BLOCK_BYTES ((size_t)1 << 20)

/* The XXH3-128 of each DCPK_BLOCK_BYTES of a file; the last one may be shorter. */
struct dcpk_file_blocks {
    const char *name;
    uint64_t n_bytes;
    struct dcpk_hash *hashes;
};
struct dcpk_block_list {
    struct dcpk_arena *arena;       /* owns all */
    struct dcpk_file_blocks *files; /* by name */
    size_t n_files;
};
/* Hash all files of a store. Zero `blocks` before, release it in any case. */
dcpk_status dcpk_blocks_hash(struct dcpk_store *store, const struct dcpk_env *env,
                             struct dcpk_block_list *blocks, struct dcpk_error *err);
void dcpk_blocks_release(struct dcpk_block_list *blocks);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* remap_checkpoint.h - a checkpoint into the memory of ranks under one layout, to another one and
 * back, with a proof after each step. */
/*
 *   files --load--> memory as `from` has it --remap--> as `to` has it --remap--> as `from` has it
 *              |                               |                             |
 *              `-- fingerprints of every copy of every tensor, held against those of the files
 *
 * Before each run of a remap its targets are overwritten, so that nothing that was there can pass
 * for what should have come, and after each run they are proven.
 */
#ifndef DCPK_LIB_JOB_REMAP_CHECKPOINT_H
#define DCPK_LIB_JOB_REMAP_CHECKPOINT_H

#include "lib/exec/env.h"
#include "lib/exec/remap.h"
#include "lib/model/laid_out.h"
#include "lib/rules/rules.h"

enum dcpk_remap_step_number { DCPK_STEP_LOAD, DCPK_STEP_THERE, DCPK_STEP_BACK, DCPK_N_STEPS };

/* Everything is borrowed and equal on all ranks. */
struct dcpk_remap_job_options {
    /* ranks: processes, of which each is a rank; NULL: n_ranks threads of this one are. progress:
     * of reading, for the sums and for the load. */
    struct dcpk_env env;
    int n_ranks;
    const struct dcpk_device_ops *device;
    const struct dcpk_link_ops *link; /* opened where the path needs one; NULL: none */
    enum dcpk_remap_path path;
    struct dcpk_placing from, to;
    bool weights_only;
    enum dcpk_swiglu swiglu;
    bool checks; /* of the engine itself, too (remap.h) */
    uint64_t staging_bytes, unit_bytes;
    int timeout_ms;
    int n_runs;                 /* of each remap, at least 1; the best one counts */
    double link_bytes_a_second; /* of a rank; 0: measured */
};

/* A tensor that is not what the files have, after a step. */
struct dcpk_remap_difference {
    const char *name; /* lives as long as the model of the job; NULL: there is none */
    int64_t copy;
    uint64_t wanted, found; /* fingerprints */
    uint64_t n_elems_wanted, n_elems_found;
};

/* Results of a step, of all ranks together unless stated differently. */
struct dcpk_remap_step {
    bool is_made;
    uint64_t moved_bytes;     /* between ranks; of the load: into ranks */
    uint64_t local_bytes;     /* within ranks; of the load 0 */
    uint64_t most_in_bytes;   /* into a rank */
    uint64_t most_out_bytes;  /* out of one */
    double seconds;           /* of the slowest rank, in the best run */
    double predicted_seconds; /* 0: nothing crosses a link */
    uint64_t n_tiles, n_messages, table_bytes, staging_bytes;
    size_t n_units;
    uint64_t n_different; /* copies of tensors */
    struct dcpk_remap_difference first;
};

struct dcpk_remap_result {
    int n_ranks;
    uint64_t n_tensors, tensor_bytes; /* of the files */
    uint64_t from_bytes, to_bytes;    /* that the rank with the most of them holds */
    double link_bytes_a_second;       /* of a rank, given or measured; of one alone, within it */
    bool is_link_measured;
    const char *link;            /* that was opened; NULL: none */
    char note[DCPK_ERROR_BYTES]; /* why it was; "": it was asked for, or there is none */
    struct dcpk_remap_step steps[DCPK_N_STEPS];
    bool ok;
};

struct dcpk_remap_job;

/*
 * Read what the model of `ckpt` is, lay it out both ways, and sum up the files. Collective over the
 * processes of options->env. *job: dcpk_remap_job_free. Errors: DCPK_EMISMATCH for a layout that
 * does not fit the model; DCPK_EUSAGE for one of more ranks than there are; DCPK_EUNSUPPORTED for a
 * checkpoint that is not understood as a model; those of reading.
 */
dcpk_status dcpk_remap_job_new(struct dcpk_checkpoint *ckpt,
                               const struct dcpk_remap_job_options *options,
                               struct dcpk_remap_job **job, struct dcpk_error *err);
void dcpk_remap_job_free(struct dcpk_remap_job *job); /* NULL is a no-op */

/*
 * Make all steps; a step whose proof fails is the last one. Collective. *result is the same on all
 * processes. Errors: DCPK_EUNSUPPORTED where the device is not there or ranks cannot reach each
 * other; DCPK_ENOMEM with the bytes wanted and free; those of dcpk_remap_run and of reading.
 */
dcpk_status dcpk_remap_job_run(struct dcpk_remap_job *job, struct dcpk_remap_result *result,
                               struct dcpk_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* output_job.h - makes a planned output, by one process or several ranks: a table of steps, from
 * the folder to its publication. */
#ifndef DCPK_LIB_JOB_OUTPUT_JOB_H
#define DCPK_LIB_JOB_OUTPUT_JOB_H

#include "lib/ckpt/output.h"
#include "lib/exec/exec.h"
#include "lib/job/target.h"
#include "lib/write/writing.h"

struct dcpk_output_step;

/* An output under way, one for each rank; all ranks have come to the same plan. */
struct dcpk_output_job {
    /* Set by the caller; borrowed. */
    const struct dcpk_env *env;
    const char *in; /* path of the source */
    struct dcpk_checkpoint *ckpt;
    struct dcpk_output *out;
    struct dcpk_run *target;
    unsigned folder_flags; /* of DCPK_FOLDER_REPLACE and _RESUME */
    bool is_once;          /* the source ends with this process: what was cut short is not kept */
    const char *label;     /* of the progress of writing: "converting" */
    void *context;         /* for steps of the caller's own */
    /* Instead of the steps, where the output is there (target->is_there) and must be proven; the
     * number of keys it then has. */
    const struct dcpk_output_step *there_steps;
    size_t n_keys;

    /* Made on the way; released at the end. */
    struct dcpk_folder *folder;
    struct dcpk_exec *exec;
    struct dcpk_writing *w;
    struct dcpk_journal_subject subject;
    struct dcpk_checkpoint *there; /* the output that is there already; else NULL */
    bool is_wrong;                 /* the output is not what it should be: it is not kept */

    /* The result; rank 0's. */
    struct dcpk_exec_stats stats;
    uint64_t resumed_bytes; /* of tensor data that an earlier run had written */
};

/* Collective inside the work (lib/exec/ranks.h). A table of steps ends with run == NULL. */
struct dcpk_output_step {
    dcpk_status (*run)(struct dcpk_output_job *job, struct dcpk_error *err);
    bool judges; /* it reads what was written: where the content is not right, nothing is kept */
};

/*
 * Run the steps, or there_steps: all ranks agree on the status of one before any begins the next.
 * On failure nothing is left that looks whole; what is worth resuming stays in the partial folder
 * with its journal, and the error mentions it. Collective: all ranks return the same status.
 */
dcpk_status dcpk_output_job_run(struct dcpk_output_job *job, const struct dcpk_output_step *steps,
                                struct dcpk_error *err);

/* True if this rank makes the folder, keeps the journal, finishes and publishes. */
bool dcpk_output_job_leads(const struct dcpk_output_job *job);

/* The steps that outputs share, in their order. */
/* The folder: a new one, or one to be resumed. */
dcpk_status dcpk_output_job_begin_folder(struct dcpk_output_job *job, struct dcpk_error *err);
/* After begin_folder: all ranks have found the folder by its mark. */
dcpk_status dcpk_output_job_unmark_folder(struct dcpk_output_job *job, struct dcpk_error *err);
/* Sets job->exec. */
dcpk_status dcpk_output_job_begin_exec(struct dcpk_output_job *job, struct dcpk_error *err);
/* Sets job->w. Errors: DCPK_EIO where ranks have another input or plan. */
dcpk_status dcpk_output_job_begin_writing(struct dcpk_output_job *job, struct dcpk_error *err);
/* Keeps a journal, and resumes from one that is there; with REPLACE one that does not fit is
 * deleted. Sets job->resumed_bytes. */
dcpk_status dcpk_output_job_resume(struct dcpk_output_job *job, struct dcpk_error *err);
dcpk_status dcpk_output_job_write(struct dcpk_output_job *job, struct dcpk_error *err);
/* Writes what makes the folder readable. Sets job->stats. */
dcpk_status dcpk_output_job_finish(struct dcpk_output_job *job, struct dcpk_error *err);
/* The folder, then the tracker. */
dcpk_status dcpk_output_job_publish(struct dcpk_output_job *job, struct dcpk_error *err);

/* The steps that prove an output that is there (finished.c). Errors: DCPK_EUSAGE for one that is
 * not what would be written, with the place of the first difference. */
/* Sets job->there, and makes the checks of `dcpkit verify` (lib/job/verify.h). */
dcpk_status dcpk_output_job_open_there(struct dcpk_output_job *job, struct dcpk_error *err);
/* Compares it with the plan: its keys, and every element, object and file. After begin_exec. */
dcpk_status dcpk_output_job_compare_there(struct dcpk_output_job *job, struct dcpk_error *err);
/* Compares one of its files with a file of the source. */
dcpk_status dcpk_output_job_check_file(const struct dcpk_output_job *job, const char *name,
                                       struct dcpk_source *source, struct dcpk_error *err);
/* Finishes the work of a run that was killed after its last rename: the journal, the tracker. */
dcpk_status dcpk_output_job_settle_there(struct dcpk_output_job *job, struct dcpk_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* making.h - makes a planned output, by one process or several ranks: a table of steps, from the
 * folder to its publication. */
#ifndef DCPK_LIB_JOB_MAKING_H
#define DCPK_LIB_JOB_MAKING_H

#include "lib/ckpt/output.h"
#include "lib/exec/exec.h"
#include "lib/job/target.h"
#include "lib/write/writing.h"

struct dcpk_making_step;

/* An output under way. Of each rank; all ranks have come to the same plan. */
struct dcpk_making {
    /* Set by the caller; borrowed. */
    const struct dcpk_env *env;
    const char *in; /* path of the source */
    struct dcpk_checkpoint *ckpt;
    struct dcpk_output *out;
    struct dcpk_run *target;
    unsigned folder_flags; /* of DCPK_FOLDER_REPLACE and _RESUME */
    bool is_once;          /* the source ends with this process: what was cut short is not kept */
    const char *label;     /* of the progress of writing: "converting" */
    void *job;             /* for steps of the caller's own */
    /* Instead of the steps, where the output is there (target->is_there) and is to be proven; the
     * number of keys it then has. */
    const struct dcpk_making_step *there_steps;
    size_t n_keys;

    /* Made on the way; released at the end. */
    struct dcpk_folder *folder;
    struct dcpk_exec *exec;
    struct dcpk_writing *w;
    struct dcpk_journal_subject subject;
    struct dcpk_checkpoint *there; /* the output that is there already; else NULL */
    bool is_wrong;                 /* what was written is not what it should be: it is not kept */

    /* The result; rank 0's. */
    struct dcpk_exec_stats stats;
    uint64_t resumed_bytes; /* of tensor data that an earlier run had written */
};

/* Collective inside the work (lib/exec/ranks.h). A table of steps ends with run == NULL. */
struct dcpk_making_step {
    dcpk_status (*run)(struct dcpk_making *m, struct dcpk_error *err);
    bool judges; /* it reads what was written: where the content is not right, nothing is kept */
};

/*
 * Run the steps, or there_steps: all ranks agree on the status of one before any begins the next.
 * On failure nothing is left that looks whole; what is worth resuming stays in the partial folder
 * with its journal, and the error mentions it. Collective: all ranks return the same status.
 */
dcpk_status dcpk_making_run(struct dcpk_making *m, const struct dcpk_making_step *steps,
                            struct dcpk_error *err);

/* Does this rank make the folder, keep the journal, finish and publish? */
bool dcpk_making_leads(const struct dcpk_making *m);

/* The steps that outputs share, in their order. */
/* The folder: a new one, or one to be resumed. */
dcpk_status dcpk_making_begin_folder(struct dcpk_making *m, struct dcpk_error *err);
/* Behind begin_folder: all ranks have found the folder by its mark. */
dcpk_status dcpk_making_unmark_folder(struct dcpk_making *m, struct dcpk_error *err);
/* Sets m->exec. */
dcpk_status dcpk_making_begin_exec(struct dcpk_making *m, struct dcpk_error *err);
/* Sets m->w. Errors: DCPK_EIO where ranks have another input or plan. */
dcpk_status dcpk_making_begin_writing(struct dcpk_making *m, struct dcpk_error *err);
/* Keeps a journal, and resumes from one that is there; with REPLACE one that does not fit is
 * deleted. Sets m->resumed_bytes. */
dcpk_status dcpk_making_resume(struct dcpk_making *m, struct dcpk_error *err);
dcpk_status dcpk_making_write(struct dcpk_making *m, struct dcpk_error *err);
/* Writes what makes the folder readable. Sets m->stats. */
dcpk_status dcpk_making_finish(struct dcpk_making *m, struct dcpk_error *err);
/* The folder, then the tracker. */
dcpk_status dcpk_making_publish(struct dcpk_making *m, struct dcpk_error *err);

/* The steps that prove an output that is there (finished.c). Errors: DCPK_EUSAGE for one that is
 * not what would be written, with the place of the first difference. */
/* Sets m->there, and makes the checks of `dcpkit verify` (lib/job/verify.h). */
dcpk_status dcpk_making_open_there(struct dcpk_making *m, struct dcpk_error *err);
/* Compares it with the plan: its keys, and every element, object and file. After begin_exec. */
dcpk_status dcpk_making_compare_there(struct dcpk_making *m, struct dcpk_error *err);
/* Compares one of its files with a file of the source. */
dcpk_status dcpk_making_check_file(const struct dcpk_making *m, const char *name,
                                   struct dcpk_source *source, struct dcpk_error *err);
/* Does what a run that was killed after its last rename left undone: the journal, the tracker. */
dcpk_status dcpk_making_settle_there(struct dcpk_making *m, struct dcpk_error *err);

#endif

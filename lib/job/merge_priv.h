/* SPDX-License-Identifier: Apache-2.0 */
/* merge_priv.h - a merge under way: shared by the merge*.c files. */
#ifndef DCPK_LIB_JOB_MERGE_PRIV_H
#define DCPK_LIB_JOB_MERGE_PRIV_H

#include "lib/ckpt/run.h"
#include "lib/exec/weighted_sum.h"
#include "lib/job/merge.h"
#include "lib/model/model.h"

/* One of the checkpoints that are summed. */
struct dcpk_merged {
    struct dcpk_run run;
    struct dcpk_checkpoint *ckpt;
    struct dcpk_model *model;
    float norm_addend; /* converts weights of norms to the form that the first input stores */
    struct dcpk_exec *exec;
    struct dcpk_view *views; /* by sum; in the merge's arena */
};

struct dcpk_merge {
    const struct dcpk_merge_options *options;
    struct dcpk_arena *arena;
    struct dcpk_merged *inputs;
    size_t n_inputs;
    const struct dcpk_param **params; /* by sum: of the first input, in its order */
    size_t n_params;
    struct dcpk_weighted_sum *sum;
    struct dcpk_format format;    /* format that the sum is opened as */
    struct dcpk_checkpoint *ckpt; /* the sum */
};

/* ---- merge.c ---- */

/* Note in merge->ckpt what was aligned, and which inputs have no args. */
void dcpk_merge_note_args(const struct dcpk_merge *merge);

/* ---- merge_checkpoint.c ---- */

/* Make merge->ckpt, once all else is there. */
dcpk_status dcpk_merge_make(struct dcpk_merge *merge, struct dcpk_error *err);

#endif

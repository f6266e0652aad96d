/* SPDX-License-Identifier: Apache-2.0 */
/* prove.h - two checkpoints of one model compared through the canonical view, whatever their
 * formats. */
#ifndef DCPK_LIB_JOB_PROVE_H
#define DCPK_LIB_JOB_PROVE_H

#include "lib/ckpt/format.h"
#include "lib/exec/exec.h"
#include "lib/model/account.h"

/* A finding: why the answer is no, or what could not be compared. Owned by the report. */
struct dcpk_finding {
    const char *text;
    struct dcpk_finding *next;
};

struct dcpk_prove_report {
    struct dcpk_arena *arena;
    bool equal;         /* no difference */
    uint64_t n_params;  /* parameters and buffers of the source */
    uint64_t n_tensors; /* logical tensors compared: values, moments, other states */
    uint64_t n_masters; /* weights compared with their rounded masters, in the one or the other */
    struct dcpk_left left; /* stored tensors and objects of the source: all are accounted for */
    uint64_t n_values;     /* training state values compared: args, scheduler, groups, ... */
    uint64_t tensor_bytes; /* of the logical tensors, one side */
    /* Rows of the vocabulary, where they are padded otherwise in the source; else both 0. */
    int64_t vocab_rows, source_vocab_rows;
    struct dcpk_exec_stats stats;
    struct dcpk_finding *differences, **differences_end; /* at most DCPK_MAX_FINDINGS are kept */
    uint64_t n_differences;
};
#define DCPK_MAX_FINDINGS 1000

struct dcpk_prove_options {
    unsigned flags;     /* enum dcpk_model_flags */
    int64_t vocab_size; /* tokens, for rows of the vocabulary that were cut; 0: args.vocab_size */
    struct dcpk_env env;
};

/*
 * Is `ours` a faithful conversion of `source`? Every parameter of the source is in ours and the
 * other way round; its value (the fp32 master where the source has one, else the weight) and every
 * moment are equal bit for bit; no stored tensor of either is unknown to the rules; rounded masters
 * equal the weights beside them; iteration, scheduler, parameter groups and those args that ours
 * carries are equal. Where the vocabulary is padded otherwise, rows that ours adds are zero, and
 * rows that it lacks are of no token. report: filled also when the answer is no; release with
 * dcpk_prove_release. A checkpoint that has no optimizer state where the other has is a difference,
 * unless flags has DCPK_MODEL_WEIGHTS_ONLY. Errors: those of reading; DCPK_EMISMATCH for a
 * vocab_size below args.vocab_size.
 */
dcpk_status dcpk_prove(struct dcpk_checkpoint *ours, struct dcpk_checkpoint *source,
                       const struct dcpk_prove_options *options, struct dcpk_prove_report *report,
                       struct dcpk_error *err);
void dcpk_prove_release(struct dcpk_prove_report *report);

#endif

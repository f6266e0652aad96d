/* SPDX-License-Identifier: Apache-2.0 */
/* merge.h - the weighted sum of the weights of several checkpoints of one model, as a checkpoint: a
 * source of a conversion like any other. */
/*
 *     A  (torch_dist)  ---+      parameter by parameter, by its canonical name:
 *     B  (fsdp_dtensor) --+--->  w0 * A + w1 * B + w2 * C, in float32
 *     C  (huggingface) ---+
 *
 * Each operand is the master where a checkpoint has one, else the stored weight. The output is
 * rounded once, from the sum to the dtype of the output: that of the first stored weight. Tensors
 * of integers are those of A. Weights of norms are summed as A stores them, less one or as they are
 * (lib/model/norms.h). Optimizer states, scheduler and RNG states belong to one run and are left
 * out; args are A's; the iteration is that of a release.
 */
#ifndef DCPK_LIB_JOB_MERGE_H
#define DCPK_LIB_JOB_MERGE_H

#include "lib/ckpt/format.h"
#include "lib/exec/exec.h"
#include "lib/job/give_options.h"

#define DCPK_MAX_MERGED 64

struct dcpk_merge_input {
    const char *path; /* run or iteration folder, archive, a model's folder (lib/ckpt/run.h) */
    double weight;
};

/* Everything is borrowed until dcpk_merge_close. */
struct dcpk_merge_options {
    struct dcpk_env env;
    const struct dcpk_merge_input *inputs; /* 2 to DCPK_MAX_MERGED */
    size_t n_inputs;
    bool weights_only; /* leave optimizers out, and masters that lie in their buckets */
    struct dcpk_open_options given; /* of every input; its family's dtype is also the sum's */
    int64_t vocab_size; /* tokens, where the vocabulary's padding differs; 0: args.vocab_size */
};

struct dcpk_merge;

/*
 * Open the inputs, and list what must be summed; reads metadata alone. *merge: set on success
 * only, dcpk_merge_close. *n_different: set in any case, how many parameters keep the inputs from
 * being of one model: those that one of them lacks, or has in another shape; where there are none,
 * how many args that decide (lib/model/arg_table.h). Errors: DCPK_EMISMATCH
 * naming all of them, or as many as a message holds; DCPK_EUNSUPPORTED where args have rows in
 * another order, or a norm is not of plain floats and would have to be added to; those of opening
 * and viewing.
 */
dcpk_status dcpk_merge_open(const struct dcpk_merge_options *options, struct dcpk_merge **merge,
                            uint64_t *n_different, struct dcpk_error *err);
/* NULL is a no-op. */
void dcpk_merge_close(struct dcpk_merge *merge);

/* The sum. Borrowed until dcpk_merge_close; half of options->env.memory_bytes is its own, and at
 * least DCPK_EXEC_MIN_MEMORY_BYTES an input. */
struct dcpk_checkpoint *dcpk_merge_checkpoint(const struct dcpk_merge *merge);
/* The part of options->env that is left for readers of the merge. */
struct dcpk_env dcpk_merge_env(const struct dcpk_merge *merge);
/* One of the inputs. Borrowed as above. */
struct dcpk_checkpoint *dcpk_merge_input(const struct dcpk_merge *merge, size_t i);

/* Compare masters that were placed by inference with their weights (lib/job/compare.h): reads them
 * all. Collective where the options have ranks. Errors: DCPK_EMISMATCH; those of reading. */
dcpk_status dcpk_merge_prove(const struct dcpk_merge *merge, struct dcpk_error *err);
/* Check the checksums of every input (dcpk_check_input). Collective where the options have
 * ranks. */
dcpk_status dcpk_merge_check_inputs(const struct dcpk_merge *merge, struct dcpk_error *err);

#endif

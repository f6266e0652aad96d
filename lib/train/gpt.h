/* SPDX-License-Identifier: Apache-2.0 */
/* gpt.h - forward and backward of a GPT, on the part of it that one rank has. */
/*
 *   tokens -> embedding -> [ x + attention(norm(x)) -> x + mlp(norm(x)) ] x layers
 *          -> norm -> output -> loss of each token
 *
 * Every result has the same bits whatever the layout of ranks is (lib/device/ops.h gives the
 * reasons): tensor parallelism exchanges slices of sums, context parallelism keys and values,
 * expert parallelism the rows of tokens, the pipeline activations. Gradients of weights are given
 * leaf by leaf to their keeper (weights.h).
 */
#ifndef DCPK_LIB_TRAIN_GPT_H
#define DCPK_LIB_TRAIN_GPT_H

#include "lib/train/memory_account.h"
#include "lib/train/phases.h"
#include "lib/train/run_mesh.h"
#include "lib/train/weights.h"

/* All borrowed until free. Groups of the mesh move memory that the math allocates. */
struct dcpk_gpt_options {
    const struct dcpk_train_config *config;
    const struct dcpk_train_mesh *mesh;
    const struct dcpk_train_params *params;
    struct dcpk_memory_account *account;
    struct dcpk_weights *weights;
    struct dcpk_phases *phases; /* NULL: not timed */
};

/* A microbatch: [micro_batch, seq_length] each, whole samples also where context parallelism cuts
 * them. Host memory, borrowed for the call. */
struct dcpk_gpt_batch {
    const int32_t *tokens, *labels; /* 0 .. padded_vocab - 1 */
    const float *mask;              /* weight of a token's loss: 0 or 1 */
    float factor;                   /* factor of the gradients of a token's loss */
};

/* Summed over the tokens of this rank, which all tensor-parallel ranks have; 0 on all stages but
 * the last. Losses in units of 2^-32, so that no order of adding changes a sum. */
struct dcpk_gpt_loss {
    int64_t sum, tokens; /* tokens: sum of the mask */
    int64_t mtp_sum;     /* of multi-token prediction, over its layers, not scaled */
};

struct dcpk_gpt;

/*
 * All memory for activations. virtual_slices is a multiple of tp and divides what tensor
 * parallelism cuts; leaf_tokens divides a chunk, and is one by default: seq_length, with cp > 1
 * seq_length / (2 cp). Errors: DCPK_EUSAGE naming what does not divide; DCPK_ENOMEM.
 */
dcpk_status dcpk_gpt_new(const struct dcpk_gpt_options *options, struct dcpk_gpt **gpt,
                         struct dcpk_error *err);
void dcpk_gpt_free(struct dcpk_gpt *gpt); /* NULL is a no-op */

/* Counts in options->account, of dcpk_memory_counted, the memory that dcpk_gpt_new would take.
 * Errors: as there. */
dcpk_status dcpk_gpt_count(const struct dcpk_gpt_options *options, struct dcpk_error *err);

/*
 * Collective over tp, cp, ep and pp: forward and backward of n microbatches, 1F1B with stages.
 * Weights see for each microbatch a FORWARD and a BACKWARD pass over everything. Errors: those of
 * weights, groups and math; DCPK_ERANGE where a loss is not finite, or the sum of a rank's
 * passes 2^31 / ranks of a stage, at the end of the step: what other ranks wait for has been sent
 * then.
 */
dcpk_status dcpk_gpt_step(struct dcpk_gpt *gpt, const struct dcpk_gpt_batch *batches, int64_t n,
                          struct dcpk_gpt_loss *loss, struct dcpk_error *err);

/* The number of tokens of this rank that chose each expert of the layer whose bias is parameter
 * `param`, since the last call of dcpk_gpt_step began: `experts` numbers. */
const int64_t *dcpk_gpt_expert_tokens(const struct dcpk_gpt *gpt, size_t param);

#endif

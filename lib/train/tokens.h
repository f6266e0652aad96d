/* SPDX-License-Identifier: Apache-2.0 */
/* tokens.h - what a run is trained on: which samples a microbatch takes, and their tokens. */
/*
 *  consumed = 8, micro batch 2, 2 data-parallel ranks, 2 microbatches (a global batch of 8):
 *
 *    sample          8  9 | 10 11 | 12 13 | 14 15
 *    microbatch         0         |       1
 *    rank             0   |   1   |   0   |   1
 *
 *  Source: megatron/training/datasets/data_samplers.py @core_v0.19.0, MegatronPretrainingSampler.
 *  Data-parallel ranks are those of one place in tensor, context and pipeline parallelism: the
 *  others get the same samples.
 *
 *  A sample is seq_length + 1 tokens t. Place i reads t[i] and is asked for t[i + 1].
 *
 *  Mock data: t[i] = 2 t[i-1] - t[i-2] modulo the vocabulary; t[0], in its first quarter, and the
 *  difference t[1] - t[0], 1 or 2, are drawn for each sample. One place of the past does not
 *  determine the next token, two do.
 *
 *  Token file: little-endian int32, sample after sample, seq_length + 1 each. Token t is stored as
 *  t, or as -1 - t where what predicts it has no loss.
 */
#ifndef DCPK_LIB_TRAIN_TOKENS_H
#define DCPK_LIB_TRAIN_TOKENS_H

#include "lib/base/arena.h"
#include "lib/exec/ranks.h"
#include "lib/knobs/config.h"
#include "lib/train/gpt.h"

struct dcpk_tokens;

/* One sample as a model takes it: seq_length of each. */
struct dcpk_sample {
    int32_t *tokens, *labels;
    float *mask; /* weight of a place's loss: 0 or 1 */
};

/* Number of a microbatch, and its rank. */
struct dcpk_microbatch {
    int64_t consumed;      /* samples before this iteration */
    int64_t number;        /* of this iteration, from 0 */
    int64_t rank, n_ranks; /* data parallel */
};

/* config: borrowed until close. Errors: DCPK_EIO of the token file; DCPK_EFORMAT where it does not
 * hold whole samples, or none; DCPK_ENOMEM. */
dcpk_status dcpk_tokens_open(const struct dcpk_train_config *config, struct dcpk_tokens **tokens,
                             struct dcpk_error *err);
/* Collective inside the work: checks that all ranks see the same token file. ranks NULL: DCPK_OK.
 * Errors: those of dcpk_ranks_check_same. */
dcpk_status dcpk_tokens_check_same(const struct dcpk_tokens *tokens, struct dcpk_ranks *ranks,
                                   struct dcpk_error *err);
void dcpk_tokens_close(struct dcpk_tokens *tokens); /* NULL is a no-op */

/* Samples of a microbatch are micro_batch ones from here on. */
int64_t dcpk_tokens_first(const struct dcpk_train_data *data,
                          const struct dcpk_microbatch *microbatch);

/*
 * Fill `sample`, the caller's memory. Thread-safe. Errors: DCPK_ERANGE where the token file has no
 * such sample, or a token that is not of the vocabulary; DCPK_EIO; DCPK_ENOMEM.
 */
dcpk_status dcpk_tokens_read(const struct dcpk_tokens *tokens, int64_t number,
                             const struct dcpk_sample *sample, struct dcpk_error *err);

/* ---- microbatches ---- */

/* In an arena; tokens, labels and mask of all microbatches, one after the other. */
struct dcpk_batches {
    int64_t n;
    struct dcpk_gpt_batch *list;
    int32_t *tokens, *labels;
    float *mask;
};

/* Room for the microbatches of one step. Errors: DCPK_ENOMEM. */
dcpk_status dcpk_batches_make(const struct dcpk_train_config *config, struct dcpk_arena *arena,
                              struct dcpk_batches *batches, struct dcpk_error *err);

/* Read them, beginning with `first`; their factors are those of the loss scale `scale`. Errors:
 * those of dcpk_tokens_read. */
dcpk_status dcpk_batches_read(const struct dcpk_batches *batches,
                              const struct dcpk_train_config *config,
                              const struct dcpk_tokens *tokens, const struct dcpk_microbatch *first,
                              double scale, struct dcpk_error *err);

#endif

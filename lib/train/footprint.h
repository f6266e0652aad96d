/* SPDX-License-Identifier: Apache-2.0 */
/* footprint.h - what a rank of Megatron holds and sends, from a configuration alone. */
/*
 *                        weights           main    grads    adam    on their way
 *   no_shard             w P               4 P     g P      8 R     -
 *   optim                w P               4 P/D   g P      8 R     -
 *   optim_grads          w P               4 P/D   g P/D    8 R     gradients
 *   optim_grads_params   w P/D + w outside 4 P/D   g P/D    8 R     gathered units, gradients
 *
 * P: elements of the buffers of a tensor-, expert- and pipeline-parallel part, filled up where they
 * are shared out over D ranks; R: those of a rank's slices that are parameters; w, g: bytes of a
 * weight and of a kept gradient. HSDP: D are the inner ranks; HFSDP: main and adam are cut over
 * the outer ones, too. Source: megatron_fsdp/param_and_grad_buffer.py @core_v0.19.0. What this
 * loop holds itself, with its exact sums: dcpk_fsdp_predict_memory.
 */
#ifndef DCPK_LIB_TRAIN_FOOTPRINT_H
#define DCPK_LIB_TRAIN_FOOTPRINT_H

#include "lib/train/memory_account.h"
#include "lib/train/params.h"

/* Elements of one rank's buffers. */
struct dcpk_train_sizes {
    int64_t n_params;                 /* without what fills buffers up */
    int64_t n_whole, n_whole_outside; /* buffers; those outside units */
    int64_t n_slices, n_own;          /* of a rank: weights' slices; the optimizer's */
    int64_t n_own_least, n_own_most;  /* parameters among the latter, over ranks */
    int64_t n_sent, n_sent_outside;   /* (D - 1) / D of n_whole, of n_whole_outside */
    int64_t n_sent_outer;             /* (O - 1) / O of n_slices, over O outer ranks */
    int64_t n_units, n_largest_unit;  /* largest: elements of its buffers */
};

/* The sizes of the rank at `place` under config->fsdp.strategy. config: checked (knobs.h).
 * Errors: those of the table of parameters and of lib/place/fsdp_layout.h. */
dcpk_status dcpk_train_measure(const struct dcpk_train_config *config,
                               const struct dcpk_train_place *place, struct dcpk_train_sizes *sizes,
                               struct dcpk_error *err);

/*
 * Bytes by tag. DCPK_TAG_ACT is an estimate: what backward reads of each layer in its micro batches
 * under way, attention being computed without its scores; with recomputation the inputs of layers.
 */
void dcpk_train_footprint(const struct dcpk_train_config *config,
                          const struct dcpk_train_sizes *sizes, uint64_t n_bytes[DCPK_N_TAGS]);

/* Host memory for the copy of what a rank saves: main parameters and moments in fp32. */
uint64_t dcpk_train_copy_bytes(const struct dcpk_train_config *config,
                               const struct dcpk_train_sizes *sizes);

/*
 * Bytes that a rank sends in a step of m micro batches: weights gathered, gradients reduced.
 *
 *   no_shard             2 P g
 *   optim                P w + P g
 *   optim_grads          P w + m P g
 *   optim_grads_params   2 m P w of units, P w outside, m P g
 *
 * each times (D - 1) / D; g: bytes of a gradient on its way. With O outer ranks D are the inner
 * ones, but for no_shard, and a slice of S = P / D is sent besides, (O - 1) / O of it: HSDP 2 S of
 * kept gradients, HFSDP S of them and S w.
 */
struct dcpk_train_volume {
    uint64_t gather_bytes, reduce_bytes;
};
void dcpk_train_volume(const struct dcpk_train_config *config, const struct dcpk_train_sizes *sizes,
                       struct dcpk_train_volume *volume);

#endif

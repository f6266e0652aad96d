/* SPDX-License-Identifier: Apache-2.0 */
/* fits.h - other strategies, micro batches and layouts of a run, and what each needs. */
#ifndef DCPK_LIB_TRAIN_FITS_H
#define DCPK_LIB_TRAIN_FITS_H

#include "lib/train/footprint.h"

#define DCPK_TRAIN_MAX_RANKS 4096

/* The run as it would be under a strategy: Megatron-FSDP's, where DDP is configured.
 * DCPK_N_STRATEGIES: the run itself. */
struct dcpk_train_config dcpk_train_under(const struct dcpk_train_config *config, int strategy);

/* The run as Megatron's user has it with the least sharding: no_shard is DDP, optim is DDP with the
 * distributed optimizer, the others are Megatron-FSDP. It does not depend on the mode of the run.
 */
struct dcpk_train_config dcpk_train_choice(const struct dcpk_train_config *config,
                                           enum dcpk_strategy strategy);

/* All bytes of the rank that holds most. config: checked (knobs.h). Errors: those of
 * dcpk_train_footprint. */
dcpk_status dcpk_train_need(const struct dcpk_train_config *config, enum dcpk_footprint_of of,
                            uint64_t *n_bytes, struct dcpk_error *err);

/* The most samples of a micro batch with which every stage fits into limit_bytes; 0: not one. */
dcpk_status dcpk_train_largest_batch(const struct dcpk_train_config *config,
                                     enum dcpk_footprint_of of, uint64_t limit_bytes,
                                     int64_t *micro_batch, struct dcpk_error *err);

/*
 * The fewest ranks, up to 4096, by which the run fits into limit_bytes each; among layouts of as
 * many the least tensor parallelism, up to 8. All are layouts that `train` takes: data-parallel
 * ranks divide the batch, or, where it follows them, are what experts need times a power of two.
 * Stages, context and expert parallelism stay. layout: its sizes are 0 where none fits.
 */
dcpk_status dcpk_train_smallest_layout(const struct dcpk_train_config *config,
                                       enum dcpk_footprint_of of, uint64_t limit_bytes,
                                       struct dcpk_grid *layout, struct dcpk_error *err);

/* Sizes that a sweep changes. */
enum { DCPK_SWEEP_TP = 1, DCPK_SWEEP_PP = 2, DCPK_SWEEP_DP = 4 };

/* Read "tp,pp,dp", or some of them. Errors: DCPK_EUSAGE naming the word. */
dcpk_status dcpk_train_sweep_parse(const char *text, unsigned *axes, struct dcpk_error *err);

/* Takes a layout that makes a run, with its configuration. */
struct dcpk_layout_visit {
    dcpk_status (*visit)(void *context, const struct dcpk_train_config *c, struct dcpk_error *err);
    void *context;
};

/* Visits the layouts of as many ranks as `config` has, that make a run and differ from it in the
 * sizes of `axes` alone. Errors: of `visit`, which ends it. */
dcpk_status dcpk_train_each_layout(const struct dcpk_train_config *config, unsigned axes,
                                   const struct dcpk_layout_visit *visit, struct dcpk_error *err);

#endif

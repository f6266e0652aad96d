/* SPDX-License-Identifier: Apache-2.0 */
/* find_layout.h - the layout of the run that wrote a checkpoint, read off its chunks and files
 * instead of its args. */
#ifndef DCPK_LIB_EXEC_FIND_LAYOUT_H
#define DCPK_LIB_EXEC_FIND_LAYOUT_H

#include "lib/ckpt/checkpoint.h"

/* How Megatron-FSDP's ranks held the weights. */
enum dcpk_sharding {
    DCPK_SHARDING_UNKNOWN,
    DCPK_SHARDING_ROWS, /* each a part: optim, optim_grads and optim_grads_params look the same */
    DCPK_SHARDING_NONE, /* all of them whole: no_shard */
};

/* Sizes that nothing shows are 0. A value. */
struct dcpk_saved_layout {
    int64_t tp, etp; /* by the columns of row-parallel weights, dense ones and experts */
    int64_t pp;      /* by the names of RNG states: chunks have no trace of it */
    int64_t ep, dp;  /* by Megatron-FSDP's flat buffers */
    int64_t hsdp;    /* instances of dp ranks each, by the number of ranks */
    int64_t n_ranks; /* that wrote files; 0 also for one, which may stand for any number */
    enum dcpk_sharding sharding;
};

/*
 * Finds all of it. Whole weights count as tp 1 only where other chunks are those that ranks write;
 * a conversion leaves few and large ones. Flat buffers (mapping->has_flat_buffers) are laid out for
 * each number of ranks: the only one whose chunks those of the checkpoint are is the saver's. A
 * checkpoint that is not understood as a model shows less; that is not an error. Errors:
 * DCPK_ENOMEM.
 */
dcpk_status dcpk_find_layout(struct dcpk_checkpoint *ckpt, struct dcpk_saved_layout *saved,
                             struct dcpk_error *err);

/* "__3_1.distcp" was written by rank 3; -1: the name does not show it. */
int64_t dcpk_rank_of_file(const char *name);

#endif

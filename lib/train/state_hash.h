/* SPDX-License-Identifier: Apache-2.0 */
/* state_hash.h - one number for all parameters, moments and buffers of a run, the same under every
 * layout of ranks. */
/*
 *   sum modulo 2^64, over all parameters, their rows and the rows' virtual slices, of
 *
 *       H(name, row, slice, main parameters, exp_avg, exp_avg_sq)
 *
 * H: the first 8 bytes of XXH3-128. A row has `virtual_slices` slices where tensor parallelism cuts
 * its columns, else one. A buffer has no moments. No rank's shard cuts a slice, so each is hashed
 * by one rank, and no order of adding shows.
 */
#ifndef DCPK_LIB_TRAIN_STATE_HASH_H
#define DCPK_LIB_TRAIN_STATE_HASH_H

#include "lib/train/train_state.h"

/* Collective over all ranks of the mesh: sees what is counted (shards.h). Errors: DCPK_ENOMEM;
 * those of the mesh and of math. */
dcpk_status dcpk_state_hash(const struct dcpk_train_state *state, uint64_t *hash,
                            struct dcpk_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* memory_index.h - which rank of a run holds which box of which tensor, as all ranks know it. */
#ifndef DCPK_LIB_TRAIN_MEMORY_INDEX_H
#define DCPK_LIB_TRAIN_MEMORY_INDEX_H

#include "lib/base/arena.h"
#include "lib/exec/ranks.h"
#include "lib/model/model.h"
#include "lib/place/shard.h"

#define DCPK_MEMORY_STATE "momentum_buffer" /* DCPK_STATE of SGD */

/*
 * Shards of a run are boxes of the model's tensors, row-major, none of them empty. A rank has
 * several of a tensor where its rows do not follow each other in the model's (gate and up). The
 * name has the role in front: "exp_avg.decoder.layers.0...", canonical (lib/model/names.h).
 */
struct dcpk_memory_tensor {
    const char *param;
    enum dcpk_role role; /* DCPK_WEIGHT, _MASTER, _EXP_AVG, _EXP_AVG_SQ; _STATE: see above */
    const struct dcpk_shard *shard; /* the first of its parts */
    size_t n_parts;
};

/* A box of a tensor: a shard of the rank that saves it, the first of those that hold it. */
struct dcpk_memory_part {
    uint32_t tensor;
    const struct dcpk_shard *shard;
    uint64_t offset_bytes; /* in what the holder saves */
};

/* The same on all ranks. Zero it before use; release it in any case. */
struct dcpk_memory_index {
    struct dcpk_bytes text;             /* that the shards of all ranks borrow */
    struct dcpk_memory_tensor *tensors; /* as ranks have them, rank 0's first */
    size_t n_tensors;
    struct dcpk_memory_part *parts; /* by rank, then by shard */
    size_t n_parts;
    uint64_t *owned_bytes; /* shards that each rank saves */
    int n_ranks;
};

/* Splits the name of a shard into role and parameter. Returns false for any other. */
bool dcpk_memory_name(const char *name, enum dcpk_role *role, const char **param);

/* The most bytes that a rank of these shards saves: all of them, if no other rank holds any. */
uint64_t dcpk_memory_bytes(const struct dcpk_shard *shards, size_t n);

/*
 * Collective inside the work (lib/exec/ranks.h): all ranks' shards become the index, whose arrays
 * are in `arena`. Errors: DCPK_EMISMATCH when ranks differ in the shape or the dtype of a tensor;
 * DCPK_ENOMEM; those of dcpk_shards_take.
 */
dcpk_status dcpk_memory_index_gather(struct dcpk_ranks *ranks, const struct dcpk_shard *shards,
                                     size_t n, struct dcpk_arena *arena,
                                     struct dcpk_memory_index *index, struct dcpk_error *err);
void dcpk_memory_index_release(struct dcpk_memory_index *index); /* zeroed: a no-op */

#endif

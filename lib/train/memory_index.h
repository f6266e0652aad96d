/* SPDX-License-Identifier: Apache-2.0 */
/* memory_index.h - which rank of a run holds which box of which tensor, as all ranks know it. */
#ifndef DCPK_LIB_TRAIN_MEMORY_INDEX_H
#define DCPK_LIB_TRAIN_MEMORY_INDEX_H

#include "lib/base/arena.h"
#include "lib/base/bytes.h"
#include "lib/exec/ranks.h"
#include "lib/model/model.h"

#define DCPK_MEMORY_RANK  2                 /* the most axes of a parameter */
#define DCPK_MEMORY_STATE "momentum_buffer" /* what DCPK_STATE is: of SGD */

/*
 * What this rank holds of one tensor: a box, row-major. A rank has several of a tensor where its
 * rows do not follow each other in the model's (gate and up), and none of what it does not hold.
 * Everything is borrowed.
 */
struct dcpk_memory_shard {
    const char *param;   /* canonical (lib/model/names.h) */
    enum dcpk_role role; /* DCPK_WEIGHT, _MASTER, _EXP_AVG, _EXP_AVG_SQ; _STATE: see above */
    enum dcpk_dtype dtype;
    int rank;                        /* 1 or 2 */
    int64_t shape[DCPK_MEMORY_RANK]; /* of the model's tensor */
    struct dcpk_box box;             /* in it; not empty */
    void *at;                        /* memory of a dcpk_math: saved from there, loaded there */
};

/* A tensor that any rank holds a part of. */
struct dcpk_memory_tensor {
    const char *param;
    enum dcpk_role role;
    enum dcpk_dtype dtype;
    int rank;
    int64_t shape[DCPK_MEMORY_RANK];
    size_t n_parts;
};

/* A box of a tensor, and the rank that saves it: the first of those that hold it. */
struct dcpk_memory_part {
    uint32_t tensor;
    int owner;
    size_t shard; /* its number among the owner's shards */
    const int64_t *span;
    uint64_t offset_bytes, n_bytes; /* in what the owner saves */
};

/* In an arena. The same on all ranks. */
struct dcpk_memory_index {
    struct dcpk_memory_tensor *tensors; /* as ranks have them, rank 0's first */
    size_t n_tensors;
    struct dcpk_memory_part *parts; /* by rank, then by shard */
    size_t n_parts;
    uint64_t *owned_bytes; /* what each rank saves */
    int n_ranks;
};

/* The most bytes that a rank of these shards saves: all of them, if no other rank holds any. */
uint64_t dcpk_memory_bytes(const struct dcpk_memory_shard *shards, size_t n);

/*
 * Collective inside the work (lib/exec/ranks.h). Sets `text`, which dcpk_memory_index_read reads:
 * the shards of all ranks, without their memory. text: dcpk_bytes_release.
 */
dcpk_status dcpk_memory_index_gather(struct dcpk_ranks *ranks,
                                     const struct dcpk_memory_shard *shards, size_t n,
                                     struct dcpk_bytes *text, struct dcpk_error *err);
/*
 * index: in `arena`, set on success only. Errors: DCPK_EMISMATCH when ranks differ in the shape or
 * the dtype of a tensor; DCPK_EFORMAT for text that is cut short; DCPK_ENOMEM.
 */
dcpk_status dcpk_memory_index_read(const void *text, size_t n_bytes, int n_ranks,
                                   struct dcpk_arena *arena, struct dcpk_memory_index *index,
                                   struct dcpk_error *err);

#endif

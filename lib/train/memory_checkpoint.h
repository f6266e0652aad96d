/* SPDX-License-Identifier: Apache-2.0 */
/* memory_checkpoint.h - the state of a run in the memory of its ranks, as a checkpoint: a source of
 * a conversion like any other. */
/*
 *      rank 0                    rank 1
 *   +-----------+------+      +---------------+
 *   | fc2 [0:64]| qkv..|      | qkv [83:128]..|      each rank's shards, copied together
 *   +-----------+------+      +---------------+
 *         \                      /
 *   files "rank 0", "rank 1" of a store: every rank maps the memory of all
 *   tensor "exp_avg.decoder.layers.0...": a chunk for each box that a rank holds
 *
 * So the rules, the writers, plan and publish of a conversion serve it unchanged, and each rank of
 * the run is one of the conversion's.
 */
#ifndef DCPK_LIB_TRAIN_MEMORY_CHECKPOINT_H
#define DCPK_LIB_TRAIN_MEMORY_CHECKPOINT_H

#include "lib/base/arena.h"
#include "lib/ckpt/format.h"
#include "lib/device/device.h"
#include "lib/device/ops.h"
#include "lib/exec/ranks.h"
#include "lib/model/model.h"
#include "lib/place/shard.h"
#include "lib/train/reserve.h"

/* State of the run as a whole, the same on all ranks; values live until the checkpoint is closed.
 * NULL: there is none. */
struct dcpk_memory_state {
    const struct dcpk_value *args;          /* an argparse.Namespace */
    const struct dcpk_value *scheduler;     /* opt_param_scheduler, a dict */
    const struct dcpk_value *scaler;        /* of fp16 */
    const struct dcpk_value *flops;         /* num_floating_point_operations_so_far, a number */
    const struct dcpk_value *step;          /* of all parameters, a number */
    const struct dcpk_value *const *groups; /* parameter groups: dicts without "params" */
    size_t n_groups;
    const struct dcpk_rng *rng; /* run_rng.h */
    size_t n_rng;
    int64_t iteration;
    bool is_fp32; /* weights are their own masters */
};

/* The sources of the checkpoint. Borrowed during the call, except `state`. */
struct dcpk_memory_run {
    const struct dcpk_shard *shards; /* of this rank */
    size_t n_shards;
    struct dcpk_math *math; /* memory of the shards; may be NULL where there are none */
    const struct dcpk_memory_state *state;
    struct dcpk_ranks *ranks; /* of the run; NULL: it has one */
    /* A device of host memory that ranks of a host can import (is_host); must outlive the
     * checkpoint. */
    struct dcpk_device *host;
    int n_threads; /* 0: this rank's share of the CPUs */
    /* Memory that the shards are copied to, of at least dcpk_memory_bytes, kept by the caller until
     * the checkpoint is closed; NULL: memory that is taken and freed here. */
    struct dcpk_reserve *reserve;
};

struct dcpk_memory_checkpoint;

/*
 * Collective. Copies what this rank saves of its shards into memory that the others map: the run
 * may change its shards as soon as the call returns. A master alone stands for its weight, which is
 * the master rounded. *memory: dcpk_memory_close. Errors: DCPK_EUNSUPPORTED where ranks are on
 * several hosts, whose memory cannot be mapped; DCPK_EMISMATCH where ranks differ in a tensor;
 * DCPK_ENOMEM. All ranks return the same status.
 */
dcpk_status dcpk_memory_open(const struct dcpk_memory_run *run,
                             struct dcpk_memory_checkpoint **memory, struct dcpk_error *err);
/* Memory for n_bytes of the run's host device; its threads make it ready, its device locks it where
 * it is for the copies of several saves (reserve.h). */
dcpk_status dcpk_memory_reserve(const struct dcpk_memory_run *run, uint64_t n_bytes,
                                bool is_for_several, struct dcpk_reserve **reserve,
                                struct dcpk_error *err);

/* Other ranks read what this one frees: not before all have agreed on what they did with it. NULL
 * is a no-op. */
void dcpk_memory_close(struct dcpk_memory_checkpoint *memory);

/* Borrowed until dcpk_memory_close. */
struct dcpk_checkpoint *dcpk_memory_checkpoint(const struct dcpk_memory_checkpoint *memory);

/* ---- the index of all ranks' shards ---- */

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

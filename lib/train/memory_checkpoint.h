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

#include "lib/ckpt/format.h"
#include "lib/device/device.h"
#include "lib/device/ops.h"
#include "lib/model/model.h"
#include "lib/train/memory_index.h"
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

#endif

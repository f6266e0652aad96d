/* SPDX-License-Identifier: Apache-2.0 */
/* remap_plan.h - plans moves of tensors in the memory of n ranks into another layout: boxes,
 * sources and targets. Pure: addresses are numbers here, no pointer is followed. */
/*
 * Every rank gets the shards of all ranks and comes to the same plan:
 *
 *   shards of both sides -> moves (a box of one source shard to one target shard) in units
 *                        -> remap_tiles.h: what one rank's device runs for a unit
 *                        -> remap_rounds.h: what ranks send that cannot map each other's memory
 */
#ifndef DCPK_LIB_PLAN_REMAP_PLAN_H
#define DCPK_LIB_PLAN_REMAP_PLAN_H

#include "lib/base/arena.h"
#include "lib/place/shard.h"

struct dcpk_remap_input {
    const struct dcpk_shard *sources, *targets; /* of all ranks, by holder */
    size_t n_sources, n_targets;
    int n_ranks;
    /* reaches[a * n_ranks + b]: ranks a and b can map each other's memory. NULL: all can. */
    const uint8_t *reaches;
    uint64_t unit_bytes;        /* of targets that a rank gets in a unit; 0: one unit */
    double link_bytes_a_second; /* of a rank, in and out at the same time; 0: no prediction */
};

/*
 * A box of a source goes to the same box of a target, cast where the dtypes of the two differ. The
 * source's holder pushes, except a widening cast, which the target's holder pulls: half the bytes
 * cross the link.
 */
struct dcpk_move {
    uint32_t source, target; /* numbers of shards */
    const int64_t *span;     /* packed; NULL: all that the two boxes have in common */
};

/* A tensor that is wanted. */
struct dcpk_remap_tensor {
    const char *name;
    enum dcpk_dtype from, to;
    int rank;
    const int64_t *shape;
};

/* Tensors first_tensor .. of the next unit's - 1 and the moves that fill them. */
struct dcpk_remap_unit {
    size_t first_tensor, first_move;
};

/* One rank's work in a plan; bytes are those of the narrower dtype of a move. */
struct dcpk_remap_totals {
    uint64_t in_bytes, out_bytes; /* from and to other ranks */
    uint64_t local_bytes;         /* within the rank */
    uint64_t kept_bytes;          /* where they are already */
    uint64_t n_moves;             /* that it makes */
};

/* Read only. The input's shards are borrowed. */
struct dcpk_remap_plan {
    struct dcpk_arena *arena;
    struct dcpk_remap_input input;
    struct dcpk_remap_tensor *tensors;
    uint32_t n_tensors;
    uint32_t *source_tensor, *target_tensor; /* of each shard; UINT32_MAX: not wanted */
    struct dcpk_move *moves;                 /* by tensor, then by target */
    size_t n_moves;
    struct dcpk_remap_unit *units; /* n_units + 1: the last one is the end */
    size_t n_units;
    struct dcpk_remap_totals *totals; /* of each rank */
    uint64_t n_unwanted;              /* source shards of tensors without a target */
    double seconds;                   /* predicted: of the rank with the most bytes in or out */
    uint64_t digest;                  /* equal plans have equal ones */
    bool only_pushes;                 /* a widening cast is pushed, too; the planner sets false */
};

/*
 * Plan, deterministically: the same input gives the same plan on every rank. If a box has several
 * sources, a target takes that of its own rank, or else one that it reaches, or else any; among
 * equals the one whose holder has the fewest bytes to send so far, then the lowest rank. Tensors
 * are numbered so that the first targets of all ranks come first. Errors, naming tensor, box and
 * rank: DCPK_EMISMATCH for a box outside its tensor, shards that disagree in shape or dtype, an
 * element of a target that no source holds; DCPK_EUNSUPPORTED for dtypes that cannot be cast, and a
 * rank above DCPK_MAX_RANK; DCPK_ERANGE; DCPK_ENOMEM.
 */
dcpk_status dcpk_remap_plan_new(const struct dcpk_remap_input *input, struct dcpk_remap_plan **plan,
                                struct dcpk_error *err);
void dcpk_remap_plan_free(struct dcpk_remap_plan *plan); /* NULL is a no-op */

/*
 * Checks that the memory of rank `self` allows the plan. Its targets may not meet each other, nor a
 * source, unless each element that they share is the same one of the same tensor and dtype: that
 * costs nothing. Errors: DCPK_EMISMATCH naming both shards; DCPK_EUNSUPPORTED for two whose strides
 * are so different that it cannot be seen whether they meet; DCPK_ENOMEM.
 */
dcpk_status dcpk_remap_check_memory(const struct dcpk_remap_plan *plan, int self,
                                    struct dcpk_error *err);

/* The box of a move. */
void dcpk_move_box(const struct dcpk_remap_plan *plan, const struct dcpk_move *move,
                   struct dcpk_box *box);
/* The rank whose device moves it. */
int dcpk_move_mover(const struct dcpk_remap_plan *plan, const struct dcpk_move *move);
/* True if the bytes are in their place already. */
bool dcpk_move_is_kept(const struct dcpk_remap_plan *plan, const struct dcpk_move *move);

#endif

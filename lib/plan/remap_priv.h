/* SPDX-License-Identifier: Apache-2.0 */
/* remap_priv.h - what the parts of the planner share. */
#ifndef DCPK_LIB_PLAN_REMAP_PRIV_H
#define DCPK_LIB_PLAN_REMAP_PRIV_H

#include "lib/plan/remap_plan.h"

/* Shards of one side by tensor: those of tensor t are items[first[t]] .. items[first[t + 1] - 1],
 * by holder. In the planner's scratch memory. */
struct remap_side {
    const struct dcpk_shard *shards;
    uint32_t *first, *items;
};

/* A plan under way. */
struct remap_planner {
    struct dcpk_remap_plan *plan;
    struct dcpk_arena *scratch;
    struct remap_side sources, targets;
    size_t moves_capacity;
    uint32_t tensor; /* that is matched */
};

/* remap_match.c: append the moves that fill the targets of a tensor; count their bytes. */
dcpk_status dcpk_remap_match(struct remap_planner *planner, uint32_t tensor,
                             struct dcpk_error *err);

#endif

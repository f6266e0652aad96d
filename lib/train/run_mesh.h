/* SPDX-License-Identifier: Apache-2.0 */
/* run_mesh.h - which rank of a run is where, and the groups that it talks to. */
/*
 *  order tp-cp-ep-dp-pp (tp fastest):
 *
 *    rank = tp + T * (cp + C * (dp + D * pp))          dense: D data-parallel ranks
 *    rank = tp + T * (ep + E * (xdp + X * pp))         experts: E * X = C * D
 *
 *  order tp-cp-ep-pp-dp: dp (with what is left of it for experts) and pp change places.
 *  Source: megatron/core/parallel_state.py @core_v0.19.0, RankGenerator.
 */
#ifndef DCPK_LIB_TRAIN_RUN_MESH_H
#define DCPK_LIB_TRAIN_RUN_MESH_H

#include "lib/device/collectives.h"
#include "lib/train/config.h"

enum dcpk_train_group {
    DCPK_G_WORLD,
    DCPK_G_TP,
    DCPK_G_CP,
    DCPK_G_PP,
    DCPK_G_DP,        /* data-parallel ranks of one cp */
    DCPK_G_DP_CP,     /* what shards dense parameters */
    DCPK_G_INNER,     /* of DP_CP: one instance, which shards; all of DP_CP without HSDP */
    DCPK_G_OUTER,     /* of DP_CP: one rank of each instance */
    DCPK_G_EP,        /* ranks that share out the experts of one batch */
    DCPK_G_EXPERT_DP, /* what shards experts' parameters */
    DCPK_G_EMBEDDING, /* first and last stage, where both have word embeddings */
    DCPK_G_MODEL,     /* all ranks of one data-parallel place: tp x pp */
    DCPK_G_GATHER,    /* the ranks of INNER again, for gathers beside its reductions */
    DCPK_G_EXPERT_GATHER,
    DCPK_N_GROUPS,
};

struct dcpk_train_mesh {
    int64_t rank, n_ranks;
    int64_t tp, cp, dp, pp, ep, expert_dp; /* coordinates of this rank */
    int64_t n_expert_dp;
    struct dcpk_group *group[DCPK_N_GROUPS];
};

/*
 * Collective. layout: sizes whose product is the number of ranks of `world`, which is borrowed.
 * Errors: DCPK_EUSAGE naming what does not divide; those of split. dcpk_train_mesh_release in any
 * case.
 */
dcpk_status dcpk_train_mesh_init(const struct dcpk_train_layout *layout, struct dcpk_group *world,
                                 struct dcpk_train_mesh *mesh, struct dcpk_error *err);
void dcpk_train_mesh_release(struct dcpk_train_mesh *mesh); /* a zeroed one is a no-op */

/*
 * The same of a rank that does not run: groups, the caller's, have ranks and no calls. mesh borrows
 * them, and is not released. Errors: as above.
 */
dcpk_status dcpk_train_mesh_plan(const struct dcpk_train_layout *layout, int64_t rank,
                                 struct dcpk_group groups[DCPK_N_GROUPS],
                                 struct dcpk_train_mesh *mesh, struct dcpk_error *err);

/* The first rank of a pipeline stage. */
int64_t dcpk_train_mesh_stage(const struct dcpk_train_layout *layout, int64_t pp);

#endif

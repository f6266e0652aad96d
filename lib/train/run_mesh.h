/* SPDX-License-Identifier: Apache-2.0 */
/* run_mesh.h - a rank of a run in its grid, the groups that it talks to, sums over them. */
#ifndef DCPK_LIB_TRAIN_RUN_MESH_H
#define DCPK_LIB_TRAIN_RUN_MESH_H

#include "lib/device/collectives.h"
#include "lib/device/ops.h"
#include "lib/knobs/config.h"

enum dcpk_train_group {
    DCPK_G_WORLD,
    DCPK_G_TP,
    DCPK_G_CP,
    DCPK_G_PP,
    DCPK_G_DP,            /* data-parallel ranks of one cp */
    DCPK_G_DP_CP,         /* shards dense parameters */
    DCPK_G_INNER,         /* of DP_CP: one instance, which shards; all of DP_CP without HSDP */
    DCPK_G_OUTER,         /* of DP_CP: one rank of each instance */
    DCPK_G_EP,            /* ranks that share out the experts of one batch */
    DCPK_G_EXPERT_DP,     /* shards experts' parameters */
    DCPK_G_EXPERT_INNER,  /* of EXPERT_DP: one instance; OUTER has one rank of each of them, too */
    DCPK_G_EMBEDDING,     /* first and last stage, where both have word embeddings */
    DCPK_G_MODEL,         /* all ranks of one data-parallel place: tp x pp */
    DCPK_G_GATHER,        /* the ranks of INNER again, for gathers next to its reductions */
    DCPK_G_EXPERT_GATHER, /* the same of EXPERT_INNER */
    DCPK_N_GROUPS,
};

struct dcpk_train_mesh {
    int64_t rank, n_ranks;
    struct dcpk_coords at;
    struct dcpk_group *group[DCPK_N_GROUPS];
};

/*
 * Collective. grid: of the ranks of `world`, which is borrowed. Errors: those of
 * dcpk_grid_check_ranks and of split. dcpk_train_mesh_release in any case.
 */
dcpk_status dcpk_train_mesh_init(const struct dcpk_grid *grid, struct dcpk_group *world,
                                 struct dcpk_train_mesh *mesh, struct dcpk_error *err);
void dcpk_train_mesh_release(struct dcpk_train_mesh *mesh); /* a zeroed one is a no-op */

/*
 * The same of a rank that does not run: groups, the caller's, have ranks and no calls. mesh borrows
 * them, and is not released. Errors: as above.
 */
dcpk_status dcpk_train_mesh_plan(const struct dcpk_grid *grid, int64_t rank,
                                 struct dcpk_group groups[DCPK_N_GROUPS],
                                 struct dcpk_train_mesh *mesh, struct dcpk_error *err);

/*
 * Collective over the group: values, n of the host's (0: NULL), become their sums over all ranks,
 * modulo 2^64. st: this rank's status before; where one failed, all do, those that did not with
 * DCPK_ECANCELLED. math: its memory is what the group moves. Errors: DCPK_ENOMEM; those of the
 * group and of math.
 */
dcpk_status dcpk_totals_agree(struct dcpk_group *group, struct dcpk_math *math, dcpk_status st,
                              int64_t *values, size_t n, struct dcpk_error *err);

#endif

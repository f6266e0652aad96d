/* SPDX-License-Identifier: Apache-2.0 */
/* grid.h - the ranks of a run: sizes of its parallel dimensions, where each rank stands, which
 * layers a stage has. */
/*
 *   rank = tp + TP * (cp + CP * (dp + DP * pp))         dense parameters
 *   rank = etp + ETP * (ep + EP * (edp + EDP * pp))     routed experts, on the same ranks:
 *                                                       ETP * EP * EDP = TP * CP * DP
 *
 * In the order tp-cp-ep-pp-dp dp and pp change places, and so do edp and pp. Data-parallel ranks
 * count on over context parallelism, cp + CP * dp; those of one optimizer instance follow each
 * other: that number is shard + SHARDS * instance. An instance has whole groups of ep ranks.
 *
 *   layers of pp=2, vpp=2    chunk 0 of stage 0 | chunk 0 of stage 1 | chunk 1 of stage 0 | ...
 *
 * Sources: RankGenerator and initialize_model_parallel of megatron/core/parallel_state.py,
 * get_num_layers_to_build and get_transformer_layer_offset of megatron/core/transformer
 * @core_v0.19.0; tests/golden/grids.txt has what they answer.
 */
#ifndef DCPK_LIB_PLACE_GRID_H
#define DCPK_LIB_PLACE_GRID_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/error.h"

/* Up to `last`, the order is part of ids in outputs (lib/ckpt/output.c). Sizes of 0 are not given
 * or not known; they count as 1, etp as tp. */
struct dcpk_grid {
    int64_t tp, pp, dp, ep, cp, world;
    int64_t etp;         /* tensor parallelism of routed experts */
    int64_t vpp;         /* model chunks of a pipeline stage */
    int64_t first, last; /* layers of the stages at the ends, where they differ from the others */
    int64_t instances;   /* of the distributed optimizer: each holds all of its state (HSDP) */
    bool is_tp_pp_dp;    /* the order of ranks is tp-cp-ep-pp-dp, else tp-cp-ep-dp-pp */
};

/* A grid, and whether Megatron-FSDP shards the parameters over it; pp and cp are 1 then. */
struct dcpk_placing {
    struct dcpk_grid grid;
    bool is_fsdp;
    int64_t bucket_elems; /* lib/place/fsdp_layout.h */
};

/* The grid with every size at least 1, except first and last. */
struct dcpk_grid dcpk_grid_full(const struct dcpk_grid *grid);

/* The number of its ranks. */
int64_t dcpk_grid_ranks(const struct dcpk_grid *grid);

/* The coordinates of a rank. */
struct dcpk_coords {
    int64_t tp, cp, dp, pp;
    int64_t etp, ep, edp; /* for routed experts */
    int64_t shard, instance;
    int64_t expert_shard; /* the place of edp in its instance: edp % (EDP / instances) */
};
struct dcpk_coords dcpk_grid_coords(const struct dcpk_grid *grid, int64_t rank);

/* Axes along which the ranks of a group differ, dense ones or those of experts. */
enum dcpk_axes {
    DCPK_AXIS_TP = 1,
    DCPK_AXIS_CP = 2,
    DCPK_AXIS_DP = 4,
    DCPK_AXIS_PP = 8,
    DCPK_AXIS_SHARD = 16,
    DCPK_AXIS_INSTANCE = 32,
    DCPK_AXIS_EP = 64,
    DCPK_AXIS_EDP = 128,
    DCPK_AXIS_EXPERT_SHARD = 256,
};

/* The first rank of a rank's group along `axes` (enum dcpk_axes): ranks with the same first one are
 * a group. at: of the rank. */
int64_t dcpk_grid_first(const struct dcpk_grid *grid, const struct dcpk_coords *at, unsigned axes);

/* The first rank of a pipeline stage. */
int64_t dcpk_grid_stage_rank(const struct dcpk_grid *grid, int64_t pp);

/* Elements at which DDP and Megatron-FSDP close a bucket where nothing is given: the larger of 40
 * million and a million for each data-parallel rank. */
int64_t dcpk_grid_bucket_elems(int64_t n_data_parallel);

/* ---- layers ---- */

/* Parts that count as a layer where stages are cut. */
enum dcpk_stage_flags {
    DCPK_COUNTS_EMBEDDING = 1, /* account_for_embedding_in_pipeline_split */
    DCPK_COUNTS_LOSS = 2,      /* account_for_loss_in_pipeline_split */
};

/* Checks that n_layers can be cut into the grid's stages and chunks. flags: enum dcpk_stage_flags.
 * Errors: DCPK_EMISMATCH with the sizes that do not fit. */
dcpk_status dcpk_grid_check_stages(const struct dcpk_grid *grid, int64_t n_layers, unsigned flags,
                                   struct dcpk_error *err);

/* The number of layers of chunk `chunk` / pp of stage `chunk` % pp; the stages were checked. */
int64_t dcpk_grid_chunk_layers(const struct dcpk_grid *grid, int64_t n_layers, unsigned flags,
                               int64_t chunk);

/* The chunk of a layer, numbered as above, and the first layer of that chunk; no embedding or loss
 * counts as a layer. The stages were checked. */
int64_t dcpk_grid_layer_chunk(const struct dcpk_grid *grid, int64_t n_layers, int64_t layer,
                              int64_t *first);
/* The stage of that chunk. */
int64_t dcpk_grid_stage(const struct dcpk_grid *grid, int64_t n_layers, int64_t layer);

/* ---- divisibility ---- */

/* Sizes of a model; 0: not known, or none. */
struct dcpk_grid_model {
    int64_t heads, groups, layers, experts;
};

/*
 * Checks that the model can be cut over the grid: heads and query groups by tp, layers into stages,
 * experts by ep, and the ranks of an instance in a stage by etp times ep (where dp is given).
 * Errors: DCPK_EMISMATCH naming what does not divide, or what the model lacks.
 */
dcpk_status dcpk_grid_check_model(const struct dcpk_grid *grid, const struct dcpk_grid_model *model,
                                  struct dcpk_error *err);

/* Checks that the grid has n_ranks ranks, and that experts and instances divide them. Errors:
 * DCPK_EUSAGE naming the sizes that do not divide. */
dcpk_status dcpk_grid_check_ranks(const struct dcpk_grid *grid, int64_t n_ranks,
                                  struct dcpk_error *err);

/* ---- as text ---- */

bool dcpk_grid_has_size(const char *name); /* true for the name of a size of dcpk_grid_parse */

/*
 * Reads "tp=2,pp=2": sizes left out are 1; dp, etp, vpp, first and last 0. `option` begins each
 * message. Errors: DCPK_EUSAGE for what cannot be read, or passes 2^20 ranks.
 */
dcpk_status dcpk_grid_parse(const char *option, const char *text, struct dcpk_grid *grid,
                            struct dcpk_error *err);

/* Reads "4" or "4,tp=2,ep=2,hsdp=2,bucket=1000": the data-parallel ranks of Megatron-FSDP, context
 * parallelism and hsdp instances included. Errors: DCPK_EUSAGE. */
dcpk_status dcpk_placing_parse_fsdp(const char *option, const char *text,
                                    struct dcpk_placing *placing, struct dcpk_error *err);

/* Reads "tp=2,pp=2", or "fsdp=4,tp=2" with the same names, as a layout over n_ranks ranks; dp left
 * out: as many replicas as there is room for. Errors: DCPK_EUSAGE. */
dcpk_status dcpk_placing_parse(const char *option, const char *text, int n_ranks,
                               struct dcpk_placing *placing, struct dcpk_error *err);

#endif

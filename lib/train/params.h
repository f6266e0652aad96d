/* SPDX-License-Identifier: Apache-2.0 */
/* params.h - the one table of a model's parameters, as one rank of the mesh has them: names,
 * shapes, cuts. Parameters, gradients, buckets and saving are made of it. */
#ifndef DCPK_LIB_TRAIN_PARAMS_H
#define DCPK_LIB_TRAIN_PARAMS_H

#include "lib/base/arena.h"
#include "lib/base/error.h"
#include "lib/knobs/config.h"

/* The role of a parameter in its layer. */
enum dcpk_param_kind {
    DCPK_P_EMBEDDING,   /* (V/t, h) */
    DCPK_P_INPUT_NORM,  /* (h) */
    DCPK_P_PROJ,        /* (h, q/t), cut on axis 1 */
    DCPK_P_QKV,         /* ((q + 2 kv)/t, h), by query groups */
    DCPK_P_Q_NORM,      /* (d) */
    DCPK_P_K_NORM,      /* (d) */
    DCPK_P_MLP_NORM,    /* (h) */
    DCPK_P_FC1,         /* (2 F/t, h): gate rows, then up rows, of this rank */
    DCPK_P_FC2,         /* (h, F/t), cut on axis 1 */
    DCPK_P_ROUTER,      /* (E, h) */
    DCPK_P_EXPERT_BIAS, /* (E), fp32, a buffer: not trained by gradients */
    DCPK_P_EXPERT_FC1,  /* (2 Fm, h) of one expert (expert tensor parallelism is 1) */
    DCPK_P_EXPERT_FC2,  /* (h, Fm) */
    DCPK_P_SHARED_FC1,
    DCPK_P_SHARED_FC2,
    DCPK_P_ENORM, /* of multi-token prediction: (h) */
    DCPK_P_HNORM,
    DCPK_P_EH_PROJ, /* (h/t, 2h): columns of the embedding first */
    DCPK_P_MTP_NORM,
    DCPK_P_FINAL_NORM,
    DCPK_P_OUTPUT, /* (V/t, h) */
    DCPK_N_PARAM_KINDS,
};
_Static_assert(DCPK_N_PARAM_KINDS <= DCPK_TRAIN_MAX_LAYER_PARAMS, "knobs bound sizes by it");

/* One parameter of this rank. `shape` is what this rank's tensor-parallel part has; `whole` is that
 * of the model. */
struct dcpk_train_param {
    enum dcpk_param_kind kind;
    const char *canonical; /* lib/model/names.h, global layer and expert numbers */
    const char *live;      /* name of a module in the run: global layer numbers */
    int64_t layer;  /* global; of the decoder, or DCPK_TRAIN_MTP + number; -1 outside layers */
    int64_t expert; /* global; -1: dense */
    int rank;
    /* A second extent of rank 1 is 1. offset: of the part in the whole; has_halves: of its gate
     * rows in the gate's half. */
    int64_t shape[2], whole[2], offset[2];
    int tp_axis;                /* -1: every tensor-parallel rank has all of it */
    bool has_halves;            /* fc1: row r < n/2 of the part is a gate row, its place below */
    bool is_buffer, is_decayed; /* is_decayed: weight decay applies (2-D) */
    bool is_shared;             /* the last stage's copy of the word embedding, by its canonical
                                 * name: of a tied output layer, of multi-token prediction */
    int64_t unit;               /* FSDP unit of this rank, from 0; -1: outside */
    int64_t first;              /* its place in a row of all this rank's parameters, in elements */
};

#define DCPK_TRAIN_MTP 1000000 /* layer numbers of multi-token prediction start here */

/* In the order in which modules register them (the place of the layout code). In an arena. */
struct dcpk_train_params {
    struct dcpk_train_param *list;
    size_t n;
    int64_t n_units, n_elems;
};

/*
 * The parameters of the rank at `place`, of which tp, ep and pp count: ranks of tensor parallelism
 * have whole experts, so that edp of the grid counts each of them apart. config: checked (knobs.h),
 * borrowed during the call. Order and names: formats/fsdp_dtensor/FORMAT.md 5,
 * lib/model/registered.h, which tests hold this table against. Errors: DCPK_ENOMEM.
 */
dcpk_status dcpk_train_params(const struct dcpk_train_config *config,
                              const struct dcpk_coords *place, struct dcpk_arena *arena,
                              struct dcpk_train_params *params, struct dcpk_error *err);

/*
 * The row of the whole parameter that row `row` of this rank's part is (halves and query groups
 * are in order already: one part, two for has_halves).
 */
int64_t dcpk_train_param_row(const struct dcpk_train_param *param, int64_t row);

/* True if that layer of the decoder has experts. (Multi-token prediction: as the last one.) */
bool dcpk_train_is_moe(const struct dcpk_train_model *model, int64_t layer);

/* Decoder layers [*first, *last) of pipeline stage pp. */
void dcpk_train_stage(const struct dcpk_train_config *config, int64_t pp, int64_t *first,
                      int64_t *last);

#endif

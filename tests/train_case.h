/* SPDX-License-Identifier: Apache-2.0 */
/* train_case.h - parameters, gradients and moments of a run of one process, cut as a test likes. */
#ifndef DCPK_TESTS_TRAIN_CASE_H
#define DCPK_TESTS_TRAIN_CASE_H

#include "kernels/kernels.h"
#include "lib/train/train_state.h"
#include "tests/check.h"

#define TRAIN_CASE_SHARDS 16
#define TRAIN_CASE_ELEMS  4096

/* Parts of parameters that several ranks would have may stand beside each other: they are added up
 * by one. */
struct train_case {
    struct dcpk_train_config config;
    struct dcpk_train_param param[TRAIN_CASE_SHARDS];
    struct dcpk_train_shard shard[TRAIN_CASE_SHARDS];
    struct dcpk_train_params params;
    struct dcpk_train_shards shards;
    struct dcpk_train_mesh mesh;
    struct dcpk_math *math;
    struct dcpk_train_state state;
    float *memory; /* main, grad, exp_avg, exp_avg_sq: TRAIN_CASE_ELEMS each */
    int64_t n_elems;
};

static inline void train_case_begin(struct train_case *c)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    *c = (struct train_case){.config.precision.virtual_slices = 4};
    CHECK_OK(dcpk_math_open(dcpk_math_ops[0], 0, &c->math, &err), "math");
    CHECK_OK(dcpk_collectives_alone.world(NULL, 0, &c->mesh.group[DCPK_G_WORLD], &err), "world");
    CHECK_OK(c->math->device->ops->alloc(c->math->device, DCPK_MEMORY_PRIVATE,
                                         4 * TRAIN_CASE_ELEMS * sizeof *c->memory,
                                         (void **)&c->memory, &err),
             "memory");
    memset(c->memory, 0, 4 * TRAIN_CASE_ELEMS * sizeof *c->memory);
    c->params.list = c->param;
    c->shards.list = c->shard;
    c->state = (struct dcpk_train_state){.config = &c->config,
                                         .params = &c->params,
                                         .shards = &c->shards,
                                         .mesh = &c->mesh,
                                         .math = c->math};
}

static inline void train_case_end(struct train_case *c)
{
    c->math->device->ops->free(c->math->device, c->memory);
    dcpk_collectives_alone.free(c->mesh.group[DCPK_G_WORLD]);
    c->math->device->ops->close(c->math->device);
}

/* One more parameter, or part of one. */
static inline void train_case_param(struct train_case *c, const struct dcpk_train_param *param)
{
    CHECK(c->params.n < TRAIN_CASE_SHARDS, "room");
    c->param[c->params.n++] = *param;
}

/* Rows [row, row + n_rows) of the last parameter, which are counted. */
static inline void train_case_shard(struct train_case *c, int64_t row, int64_t n_rows)
{
    const struct dcpk_train_param *param = &c->param[c->params.n - 1];
    float *at = c->memory + c->n_elems;

    CHECK(c->shards.n < TRAIN_CASE_SHARDS, "room");
    c->shard[c->shards.n++] = (struct dcpk_train_shard){.param = c->params.n - 1,
                                                        .row = row,
                                                        .n_rows = n_rows,
                                                        .n_elems = n_rows * param->shape[1],
                                                        .main = at,
                                                        .grad = at + TRAIN_CASE_ELEMS,
                                                        .exp_avg = at + 2 * TRAIN_CASE_ELEMS,
                                                        .exp_avg_sq = at + 3 * TRAIN_CASE_ELEMS,
                                                        .is_counted = true};
    c->n_elems += n_rows * param->shape[1];
    CHECK(c->n_elems <= TRAIN_CASE_ELEMS, "room");
}

#endif

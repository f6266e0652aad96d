/* SPDX-License-Identifier: Apache-2.0 */
/* gpt_case.h - a small model in plain memory: weights by a formula, gradients as sums of integers,
 * for one rank or all ranks of a layout. */
/*
 * The whole model is numbered as one rank without parallelism has it (params.h, `first`). A rank of
 * any layout takes its parts of the whole weights, and its gradients go back to their places there,
 * so that sums over ranks are the gradients of the whole model.
 */
#ifndef DCPK_TESTS_GPT_CASE_H
#define DCPK_TESTS_GPT_CASE_H

#include <math.h>
#include <stdlib.h>

#include "kernels/kernels.h"
#include "lib/base/alloc.h"
#include "lib/train/gpt.h"
#include "tests/check.h"

#define GPT_LSB 44

/* The whole model. */
struct gpt_whole {
    struct dcpk_train_config config; /* of one rank */
    struct dcpk_arena *arena;
    struct dcpk_train_params params;
    float *values;
    int64_t *sums; /* gradients in units of 2^-GPT_LSB */
    struct dcpk_gpt_loss loss;
    const int32_t *tokens; /* [samples, seq_length + 1], none masked; NULL: by a formula */
};

/* One rank of a layout. */
struct gpt_rank {
    struct dcpk_weights weights;
    struct gpt_whole *whole;
    const struct dcpk_train_mesh *mesh;
    struct dcpk_train_params params;
    enum dcpk_dtype dtype;
    struct dcpk_math *math;
    uint8_t **at; /* weights in the compute dtype */
    int depth[2]; /* how often units are entered; [1]: outside units */
};

static inline const struct dcpk_train_param *gpt_find(const struct dcpk_train_params *params,
                                                      const char *canonical)
{
    for (size_t i = 0; i < params->n; i++)
        if (strcmp(params->list[i].canonical, canonical) == 0)
            return &params->list[i];
    fail_msg("no parameter is called %s", canonical);
    return NULL;
}

/* Element (row, column) of a rank's part, in the whole model. */
static inline int64_t gpt_place(const struct gpt_rank *rank, size_t param, int64_t row,
                                int64_t column)
{
    const struct dcpk_train_param *p = &rank->params.list[param];
    const struct dcpk_train_param *whole = gpt_find(&rank->whole->params, p->canonical);

    return whole->first + dcpk_train_param_row(p, row) * whole->shape[1] + p->offset[1] + column;
}

static dcpk_status gpt_enter(struct dcpk_weights *weights, int64_t unit, enum dcpk_train_pass pass,
                             struct dcpk_error *err)
{
    struct gpt_rank *rank = (struct gpt_rank *)weights;

    (void)pass;
    (void)err;
    CHECK_EQ_INT(rank->depth[unit < 0]++, 0, "units do not nest but in -1");
    CHECK_EQ_INT(rank->depth[1], 1, "-1 is entered first");
    return DCPK_OK;
}

static dcpk_status gpt_leave(struct dcpk_weights *weights, int64_t unit, enum dcpk_train_pass pass,
                             struct dcpk_error *err)
{
    struct gpt_rank *rank = (struct gpt_rank *)weights;

    (void)pass;
    (void)err;
    CHECK_EQ_INT(rank->depth[unit < 0]--, 1, "a unit is left once");
    return DCPK_OK;
}

static const void *gpt_weight_of(struct dcpk_weights *weights, size_t param)
{
    const struct gpt_rank *rank = (struct gpt_rank *)weights;

    CHECK_EQ_INT(rank->depth[rank->params.list[param].unit < 0], 1, "its unit is entered");
    return rank->at[param];
}

/* Of copies that tensor-parallel ranks have, one counts; q and k norms are of each rank's heads. */
static inline bool gpt_counts(const struct gpt_rank *rank, const struct dcpk_train_param *p)
{
    return p->tp_axis >= 0 || p->kind == DCPK_P_Q_NORM || p->kind == DCPK_P_K_NORM ||
           rank->mesh->at.tp == 0;
}

static void gpt_add(struct dcpk_weights *weights, size_t param, int64_t row, int64_t n_rows,
                    const float *grad)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct gpt_rank *rank = (struct gpt_rank *)weights;
    const struct dcpk_train_param *p = &rank->params.list[param];

    CHECK(row >= 0 && n_rows > 0 && row + n_rows <= p->shape[0], p->canonical);
    CHECK_OK(rank->math->ops->wait(rank->math, &err), p->canonical);
    if (!gpt_counts(rank, p))
        return;
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t c = 0; c < p->shape[1]; c++)
            rank->whole->sums[gpt_place(rank, param, row + r, c)] +=
                llrint(ldexp((double)grad[r * p->shape[1] + c], GPT_LSB));
}

static const struct dcpk_weights_ops gpt_plain_weights = {gpt_enter, gpt_leave, gpt_weight_of,
                                                          gpt_add};

/* A number in [-1, 1) of an element; the same for the same seed. */
static inline double gpt_number(uint64_t seed, uint64_t i)
{
    uint64_t x = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15) + i;

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return (double)(int64_t)(x ^ x >> 31) / 9223372036854775808.0;
}

/* config: without parallelism. Norms are about 1, the rest about 0. */
static inline void gpt_whole_init(struct gpt_whole *whole, const struct dcpk_train_config *config)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    size_t n;

    *whole = (struct gpt_whole){.config = *config, .arena = dcpk_arena_new()};
    CHECK_OK(
        dcpk_train_params(config, &(struct dcpk_coords){0}, whole->arena, &whole->params, &err),
        "table of parameters");
    n = (size_t)whole->params.n_elems;
    whole->values = dcpk_alloc_array(n, sizeof *whole->values, &err);
    whole->sums = dcpk_alloc_array(n, sizeof *whole->sums, &err);
    CHECK(whole->values != NULL && whole->sums != NULL, "memory");
    for (size_t i = 0; i < whole->params.n; i++) {
        const struct dcpk_train_param *p = &whole->params.list[i];

        for (int64_t e = 0; e < p->shape[0] * p->shape[1]; e++)
            whole->values[p->first + e] =
                (float)((p->rank == 1 && !p->is_buffer) + 0.4 * gpt_number(i, (uint64_t)e));
    }
}

static inline void gpt_whole_release(struct gpt_whole *whole)
{
    dcpk_free(whole->values);
    dcpk_free(whole->sums);
    dcpk_arena_free(whole->arena);
}

/* The rank's parts of the whole weights, in the math's memory. */
static inline void gpt_rank_fill(struct gpt_rank *rank)
{
    const struct dcpk_ops *ops = rank->math->ops;
    struct dcpk_device *device = rank->math->device;
    struct dcpk_error err = DCPK_ERROR_INIT;

    rank->at = dcpk_alloc_array(rank->params.n, sizeof *rank->at, &err);
    CHECK(rank->at != NULL, "memory");
    for (size_t i = 0; i < rank->params.n; i++) {
        const struct dcpk_train_param *p = &rank->params.list[i];
        const enum dcpk_dtype dtype = p->is_buffer ? DCPK_F32 : rank->dtype;
        const int64_t n = p->shape[0] * p->shape[1];
        void *at, *wide;

        CHECK_OK(device->ops->alloc(device, DCPK_MEMORY_PRIVATE,
                                    (size_t)n * dcpk_dtype_bytes(dtype), &at, &err),
                 "memory");
        CHECK_OK(
            device->ops->alloc(device, DCPK_MEMORY_PRIVATE, (size_t)n * sizeof(float), &wide, &err),
            "memory");
        for (int64_t e = 0; e < n; e++)
            ops->copy(rank->math, (float *)wide + e,
                      &rank->whole->values[gpt_place(rank, i, e / p->shape[1], e % p->shape[1])],
                      sizeof(float));
        ops->cast(rank->math, DCPK_F32, dtype, n, wide, at);
        device->ops->free(device, wide);
        rank->at[i] = at;
    }
}

/* Token `i` of sample `sample`; labels are the next one. */
static inline int32_t gpt_token(const struct gpt_whole *whole, int64_t sample, int64_t i)
{
    const struct dcpk_train_model *m = &whole->config.model;
    const uint64_t x = (uint64_t)(sample * 131 + i) * UINT64_C(0x9e3779b97f4a7c15);

    if (whole->tokens != NULL)
        return whole->tokens[sample * (m->seq_length + 1) + i];
    return (int32_t)((x >> 33) % (uint64_t)m->padded_vocab);
}

/* The microbatches of data-parallel rank `dp`: samples as Megatron's sampler gives them. Every
 * fifth token is masked. */
static inline struct dcpk_gpt_batch *gpt_batches(const struct gpt_whole *whole,
                                                 const struct dcpk_train_config *config, int64_t dp,
                                                 int64_t *n, struct dcpk_arena *arena)
{
    const struct dcpk_train_model *m = &config->model;
    const int64_t mbs = config->data.micro_batch, n_dp = config->layout.dp;
    const size_t n_elems = (size_t)(mbs * m->seq_length);
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_gpt_batch *batches;

    *n = config->data.global_batch / (mbs * n_dp);
    batches = dcpk_arena_array(arena, (size_t)*n, sizeof *batches, &err);
    for (int64_t k = 0; k < *n; k++) {
        int32_t *tokens = dcpk_arena_array(arena, n_elems, sizeof *tokens, &err);
        int32_t *labels = dcpk_arena_array(arena, n_elems, sizeof *labels, &err);
        float *mask = dcpk_arena_array(arena, n_elems, sizeof *mask, &err);

        for (int64_t i = 0; i < (int64_t)n_elems; i++) {
            const int64_t sample = (k * n_dp + dp) * mbs + i / m->seq_length;

            tokens[i] = gpt_token(whole, sample, i % m->seq_length);
            labels[i] = gpt_token(whole, sample, i % m->seq_length + 1);
            mask[i] = whole->tokens != NULL || (sample + i % m->seq_length) % 5 != 0;
        }
        batches[k] = (struct dcpk_gpt_batch){tokens, labels, mask, 1.0f};
    }
    return batches;
}

/* A step of the ranks of `world` in a layout: gradients of this rank are added to whole->sums. */
static inline void gpt_run(struct gpt_whole *whole, const struct dcpk_train_config *config,
                           struct dcpk_group *world, const struct dcpk_ops *ops)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_train_mesh mesh = {0};
    struct gpt_rank rank = {.weights = {&gpt_plain_weights},
                            .whole = whole,
                            .mesh = &mesh,
                            .dtype = config->precision.compute};
    struct dcpk_memory_account account = {0};
    struct dcpk_gpt *gpt = NULL;
    const struct dcpk_gpt_options options = {config,   &mesh,         &rank.params,
                                             &account, &rank.weights, NULL};
    struct dcpk_gpt_batch *batches;
    int64_t n;

    CHECK_OK(dcpk_math_open(ops, 0, &rank.math, &err), ops->name);
    account.math = rank.math;
    CHECK_OK(dcpk_train_mesh_init(&config->layout, world, &mesh, &err), "mesh");
    CHECK_OK(dcpk_train_params(config, &mesh.at, arena, &rank.params, &err), "table of parameters");
    gpt_rank_fill(&rank);
    CHECK_OK(dcpk_gpt_new(&options, &gpt, &err), "model");
    batches = gpt_batches(whole, config, mesh.at.dp, &n, arena);
    CHECK_OK(dcpk_gpt_step(gpt, batches, n, &whole->loss, &err), "step");
    dcpk_gpt_free(gpt);
    CHECK_EQ_INT(account.now_all, 0, "all memory is freed");
    dcpk_train_mesh_release(&mesh);
    for (size_t i = 0; i < rank.params.n; i++)
        rank.math->device->ops->free(rank.math->device, rank.at[i]);
    rank.math->device->ops->close(rank.math->device);
    dcpk_free(rank.at);
    dcpk_arena_free(arena);
}

/* The same by one rank alone: whole->sums and loss anew. */
static inline void gpt_run_alone(struct gpt_whole *whole, const struct dcpk_train_config *config)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_group *world = NULL;

    CHECK_OK(dcpk_collectives_alone.world(NULL, 0, &world, &err), "world");
    memset(whole->sums, 0, (size_t)whole->params.n_elems * sizeof *whole->sums);
    gpt_run(whole, config, world, dcpk_math_ops[0]);
    world->by->free(world);
}

/* The smallest model in which everything has several of its parts. */
static inline struct dcpk_train_config gpt_config(void)
{
    return (struct dcpk_train_config){
        .model = {.layers = 2,
                  .hidden = 16,
                  .ffn = 24,
                  .heads = 4,
                  .groups = 2,
                  .head_dim = 4,
                  .padded_vocab = 64,
                  .seq_length = 8,
                  .norm_epsilon = 1e-5,
                  .rotary_base = 10000,
                  .topk = 2,
                  .moe_ffn = 12,
                  .impl = DCPK_IMPL_LOCAL},
        .layout = {.tp = 1, .cp = 1, .ep = 1, .pp = 1, .dp = 1, .instances = 1},
        .precision = {.compute = DCPK_F32, .virtual_slices = 8},
        .data = {.micro_batch = 1, .global_batch = 4},
    };
}

#endif

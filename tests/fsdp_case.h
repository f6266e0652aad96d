/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_case.h - a run without a model: parameters and gradients are functions of their place, so
 * that every rank knows by itself what shards and weights have to be. */
#ifndef DCPK_TESTS_FSDP_CASE_H
#define DCPK_TESTS_FSDP_CASE_H

#include <math.h>
#include <stdio.h>

#include "kernels/kernels.h"
#include "lib/base/alloc.h"
#include "lib/train/fsdp.h"
#include "tests/check.h"
#include "tests/random.h"

#define CASE_SAMPLES 8    /* of a step */
#define CASE_LOG     4096 /* events */

struct fsdp_case {
    struct dcpk_train_config config;
    struct dcpk_train_mesh mesh;
    struct dcpk_arena *arena;
    struct dcpk_train_params params;
    struct dcpk_memory_account account;
    struct dcpk_fsdp *fsdp;
    /* Makes `buffers`, of groups that are there; NULL: there are none. */
    struct dcpk_user_buffers *(*make_buffers)(struct fsdp_case *c);
    struct dcpk_user_buffers *buffers;
    struct dcpk_fsdp_event log[CASE_LOG];
    size_t n_log;
    char label[160];
};

/* A small GPT; who calls changes what the case is about. */
static inline void case_config(struct dcpk_train_config *c)
{
    *c = (struct dcpk_train_config){
        .model = {.layers = 3,
                  .hidden = 16,
                  .ffn = 24,
                  .heads = 4,
                  .groups = 2,
                  .head_dim = 4,
                  .vocab_size = 32,
                  .padded_vocab = 32,
                  .seq_length = 8,
                  .moe_ffn = 12,
                  .topk = 2},
        .layout = {.tp = 1, .cp = 1, .ep = 1, .pp = 1, .dp = 1, .instances = 1},
        .fsdp = {.mode = DCPK_MODE_MEGATRON_FSDP,
                 .strategy = DCPK_OPTIM_GRADS_PARAMS,
                 .has_distributed_optimizer = true,
                 .bucket_elems = -1,
                 .checks_nan = true},
        .precision = {.compute = DCPK_BF16,
                      .main_params = DCPK_F32,
                      .main_grads = DCPK_F32,
                      .comm = DCPK_F32,
                      .is_exact = true,
                      .exact_lsb = 44},
        .optim = {.kind = DCPK_ADAM},
    };
}

static inline uint64_t case_hash(const struct dcpk_train_param *p, int64_t row, int64_t column,
                                 uint64_t more)
{
    const uint64_t kind = p->is_shared ? DCPK_P_EMBEDDING : p->kind;
    const uint64_t h = (kind * 4096 + (uint64_t)p->expert) * 4096 + (uint64_t)p->layer;

    return random_mix(h + random_mix((uint64_t)row * 131071 + (uint64_t)column) +
                      random_mix(more + 17));
}

/* In (-1, 1), with all bits of a float. */
static inline float case_number(uint64_t h)
{
    return (float)((double)(int64_t)h * 0x1p-63);
}

/* Element (row, column) of this rank's part, numbered in the whole parameter. */
static inline uint64_t case_element(const struct dcpk_train_param *p, int64_t row, int64_t column,
                                    uint64_t more)
{
    return case_hash(p, dcpk_train_param_row(p, row), p->offset[1] + column, more);
}

/* How many ranks give a part of a sample's gradient: heads of norms, stages of an embedding. */
static inline uint64_t case_parts(const struct dcpk_train_config *c,
                                  const struct dcpk_train_param *p)
{
    if (p->kind == DCPK_P_Q_NORM || p->kind == DCPK_P_K_NORM)
        return (uint64_t)c->layout.tp;
    if (c->layout.pp > 1 && c->model.is_tied &&
        (p->kind == DCPK_P_EMBEDDING || p->kind == DCPK_P_OUTPUT))
        return 2;
    return 1;
}

static inline uint64_t case_part(const struct fsdp_case *c, const struct dcpk_train_param *p)
{
    if (case_parts(&c->config, p) == 1)
        return 0;
    if (p->kind == DCPK_P_Q_NORM || p->kind == DCPK_P_K_NORM)
        return (uint64_t)c->mesh.at.tp;
    return p->is_shared;
}

static inline float case_grad(const struct dcpk_train_param *p, int64_t row, int64_t column,
                              uint64_t sample, uint64_t part)
{
    return case_number(case_element(p, row, column, 1 + sample * 8 + part));
}

/* The sum over all samples and parts, as integers of 2^-44, times factor. */
static inline float case_sum(const struct dcpk_train_config *c, const struct dcpk_train_param *p,
                             int64_t row, int64_t column, double factor)
{
    int64_t sum = 0;

    for (uint64_t s = 0; s < CASE_SAMPLES; s++)
        for (uint64_t part = 0; part < case_parts(c, p); part++)
            sum += llrint(ldexp((double)case_grad(p, row, column, s, part), 44));
    return (float)((double)sum * ldexp(factor, -44));
}

static inline uint16_t case_bf16(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float case_initial(const struct dcpk_train_param *p, int64_t row, int64_t column)
{
    return case_number(case_element(p, row, column, 0));
}

static inline void case_event(void *context, const struct dcpk_fsdp_event *event)
{
    struct fsdp_case *c = context;

    if (c->n_log < CASE_LOG)
        c->log[c->n_log++] = *event;
}

/* math: of a device whose memory is the host's. */
static inline dcpk_status case_begin(struct fsdp_case *c, struct dcpk_group *world,
                                     struct dcpk_math *math, struct dcpk_error *err)
{
    struct dcpk_fsdp_options options = {.config = &c->config,
                                        .mesh = &c->mesh,
                                        .params = &c->params,
                                        .account = &c->account,
                                        .event = case_event,
                                        .context = c};
    c->account = (struct dcpk_memory_account){.math = math};
    c->fsdp = NULL;
    c->n_log = 0;
    c->arena = dcpk_arena_new();
    if (c->arena == NULL || dcpk_train_mesh_init(&c->config.layout, world, &c->mesh, err))
        return err->status;
    if (dcpk_train_params(&c->config, &c->mesh.at, c->arena, &c->params, err))
        return err->status;
    if (c->make_buffers != NULL)
        options.buffers = c->buffers = c->make_buffers(c);
    return dcpk_fsdp_new(&options, &c->fsdp, err);
}

static inline void case_end(struct fsdp_case *c)
{
    dcpk_fsdp_free(c->fsdp);
    dcpk_user_buffers_unregister(c->buffers);
    dcpk_train_mesh_release(&c->mesh);
    dcpk_user_buffers_free(c->buffers);
    c->buffers = NULL;
    dcpk_arena_free(c->arena);
    CHECK_EQ_INT(c->account.now_all, 0, c->label);
}

static inline void case_initialise(struct fsdp_case *c)
{
    const struct dcpk_train_shards *shards = dcpk_fsdp_shards(c->fsdp);

    for (size_t i = 0; i < shards->n; i++) {
        const struct dcpk_train_shard *s = &shards->list[i];
        const struct dcpk_train_param *p = &c->params.list[s->param];

        for (int64_t e = 0; e < s->n_elems; e++)
            s->main[e] = case_initial(p, s->row + e / p->shape[1], e % p->shape[1]);
    }
}

/* The gradients of the unit's parameters for microbatch k, in two pieces a sample. */
static inline void case_add(struct fsdp_case *c, int64_t unit, int64_t k)
{
    struct dcpk_weights *w = dcpk_fsdp_weights(c->fsdp);
    const int64_t n_dp = c->config.layout.cp * c->config.layout.dp;
    const int64_t self = c->mesh.at.cp + c->config.layout.cp * c->mesh.at.dp;
    float grad[4096];

    for (size_t i = 0; i < c->params.n; i++) {
        const struct dcpk_train_param *p = &c->params.list[i];

        if (p->unit != unit || p->is_buffer)
            continue;
        for (int64_t rank = 0; rank < n_dp; rank++) {
            const uint64_t sample = (uint64_t)(k * n_dp + rank);
            const int64_t half = p->shape[0] / 2, n = p->shape[0] * p->shape[1];

            /* tokens of a batch go to all experts of its expert-parallel group */
            if (p->expert < 0 ? rank != self
                              : rank / c->config.layout.ep != self / c->config.layout.ep)
                continue;
            CHECK(n <= 4096, c->label);
            for (int64_t e = 0; e < n; e++)
                grad[e] = case_grad(p, e / p->shape[1], e % p->shape[1], sample, case_part(c, p));
            w->ops->add(w, i, half, p->shape[0] - half, grad + half * p->shape[1]);
            w->ops->add(w, i, 0, half, grad);
        }
    }
}

/* Weights of the unit are what the shards of all ranks have been set to. */
static inline void case_check_weights(struct fsdp_case *c, int64_t unit, int n_steps, double factor)
{
    struct dcpk_weights *w = dcpk_fsdp_weights(c->fsdp);

    for (size_t i = 0; i < c->params.n; i++) {
        const struct dcpk_train_param *p = &c->params.list[i];
        const uint16_t *weight;

        if (p->unit != unit || p->is_buffer)
            continue;
        weight = w->ops->weight(w, i);
        for (int64_t e = 0; e < p->shape[0] * p->shape[1]; e++) {
            const int64_t row = e / p->shape[1], column = e % p->shape[1];
            float want = case_initial(p, row, column);

            for (int s = 0; s < n_steps; s++)
                want -= case_sum(&c->config, p, row, column, factor);
            CHECK_EQ_INT(weight[e], case_bf16(want), c->label);
        }
    }
}

static inline void case_pass(struct fsdp_case *c, int64_t k, enum dcpk_train_pass pass, int n_steps,
                             double factor)
{
    struct dcpk_weights *w = dcpk_fsdp_weights(c->fsdp);
    const int64_t n = c->params.n_units;
    struct dcpk_error err = DCPK_ERROR_INIT;

    CHECK_OK(w->ops->enter(w, -1, pass, &err), c->label);
    for (int64_t i = 0; i < n; i++) {
        const int64_t unit = pass == DCPK_FORWARD ? i : n - 1 - i;

        if (pass == DCPK_BACKWARD && c->config.fsdp.recomputes) {
            CHECK_OK(w->ops->enter(w, unit, DCPK_RECOMPUTE, &err), c->label);
            CHECK_OK(w->ops->leave(w, unit, DCPK_RECOMPUTE, &err), c->label);
        }
        CHECK_OK(w->ops->enter(w, unit, pass, &err), c->label);
        case_check_weights(c, unit, n_steps, factor);
        if (i == 0)
            case_check_weights(c, -1, n_steps, factor);
        if (pass == DCPK_BACKWARD)
            case_add(c, unit, k);
        CHECK_OK(w->ops->leave(w, unit, pass, &err), c->label);
    }
    if (pass == DCPK_BACKWARD)
        case_add(c, -1, k);
    CHECK_OK(w->ops->leave(w, -1, pass, &err), c->label);
}

static inline int64_t case_microbatches(const struct fsdp_case *c)
{
    return CASE_SAMPLES / (c->config.layout.cp * c->config.layout.dp);
}

/* One step, whose optimizer subtracts gradients. n_steps: made before. */
static inline void case_step(struct fsdp_case *c, int n_steps, double factor)
{
    const struct dcpk_train_shards *shards = dcpk_fsdp_shards(c->fsdp);
    const int64_t n = case_microbatches(c);
    struct dcpk_error err = DCPK_ERROR_INIT;

    CHECK_OK(dcpk_fsdp_begin(c->fsdp, n, &err), c->label);
    for (int64_t k = 0; k < n; k++) {
        case_pass(c, k, DCPK_FORWARD, n_steps, factor);
        case_pass(c, k, DCPK_BACKWARD, n_steps, factor);
    }
    CHECK_OK(dcpk_fsdp_finish(c->fsdp, factor, &err), c->label);
    for (size_t i = 0; i < shards->n; i++) {
        const struct dcpk_train_shard *s = &shards->list[i];
        const struct dcpk_train_param *p = &c->params.list[s->param];

        for (int64_t e = 0; e < s->n_elems; e++) {
            const int64_t row = s->row + e / p->shape[1], column = e % p->shape[1];

            if (c->config.precision.is_exact)
                CHECK(s->grad[e] == case_sum(&c->config, p, row, column, factor), c->label);
            s->main[e] -= case_sum(&c->config, p, row, column, factor);
        }
    }
    CHECK_OK(dcpk_fsdp_install(c->fsdp, &err), c->label);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* fake_run.h - a run whose every number is known: shards of a small model, cut as ranks keep them,
 * filled by name and place instead of by training. */
#ifndef DCPK_TESTS_TRAIN_FAKE_RUN_H
#define DCPK_TESTS_TRAIN_FAKE_RUN_H

#include <stdio.h>
#include <stdlib.h>

#include "formats/formats.h"
#include "kernels/kernels.h"
#include "lib/exec/ranks.h"
#include "lib/train/resume.h"
#include "lib/train/save.h"

#define FAKE_ITERATION 10
#define FAKE_FLOPS     1e15
#define FAKE_LAYERS    4

struct fake_run {
    struct dcpk_train_config config;
    struct dcpk_arena *arena;
    struct dcpk_train_params params;
    struct dcpk_train_shards shards;
    float **buffers;
    struct dcpk_schedule schedule;
    struct dcpk_train_progress progress;
    struct dcpk_loss_scale loss_scale;
    struct dcpk_env env;
    struct dcpk_device *host;
    struct dcpk_math *math;
    struct dcpk_train_state state;
    struct dcpk_saved_run saved;
};

/* The layers with experts, of a model that has some. */
static const uint8_t fake_moe_layers[FAKE_LAYERS + 1] = {0, 1, 0, 1, 0};
static const uint8_t fake_more_layers[FAKE_LAYERS] = {0, 1, 1, 1};

/* Sizes that TP 2, PP 2, EP 2 divide, and no two of which are the same. */
static inline void fake_config(struct dcpk_train_config *c)
{
    *c = (struct dcpk_train_config){
        .model = {.layers = FAKE_LAYERS,
                  .hidden = 32,
                  .ffn = 48,
                  .heads = 4,
                  .groups = 2,
                  .head_dim = 8,
                  .vocab_size = 100,
                  .padded_vocab = 128,
                  .vocab_divisible_by = 64,
                  .seq_length = 16,
                  .max_positions = 16,
                  .norm_epsilon = 1e-5,
                  .rotary_base = 10000.0,
                  .init_std = 0.02,
                  .topk = 2,
                  .impl = DCPK_IMPL_LOCAL},
        .layout = {.tp = 1, .cp = 1, .ep = 1, .pp = 1, .dp = 1, .instances = 1},
        .fsdp = {.strategy = DCPK_OPTIM, .has_distributed_optimizer = true, .bucket_elems = -1},
        .precision = {.compute = DCPK_BF16},
        .optim = {.beta1 = 0.9,
                  .beta2 = 0.95,
                  .eps = 1e-8,
                  .lr = 1e-3,
                  .min_lr = 1e-4,
                  .lr_style = "cosine",
                  .wd_style = "constant",
                  .wsd_style = "exponential",
                  .decay_iters = 40,
                  .weight_decay = 0.1,
                  .start_wd = 0.1,
                  .end_wd = 0.1},
        .data = {.micro_batch = 1, .global_batch = 8, .train_iters = 40, .seed = 1234},
        .files = {.ckpt_format = "torch_dist"}};
}

/* "tp=2,pp=2,moe,te,fp32,...": layout and model. Unknown words end the program. */
static inline void fake_parse(struct dcpk_train_config *c, char *words)
{
    for (char *word, *text; (word = strsep(&words, ",")) != NULL;) {
        const struct {
            const char *name;
            int64_t *at;
        } numbers[] = {{"tp", &c->layout.tp},           {"pp", &c->layout.pp},
                       {"ep", &c->layout.ep},           {"dp", &c->layout.dp},
                       {"cp", &c->layout.cp},           {"hidden", &c->model.hidden},
                       {"layers", &c->model.layers},    {"vocab", &c->model.padded_vocab},
                       {"mtp", &c->model.mtp_layers},   {"shared", &c->model.shared_ffn},
                       {"ffn", &c->model.ffn},          {"head", &c->model.head_dim},
                       {"width", &c->model.moe_ffn},    {"groups", &c->model.groups},
                       {"tokens", &c->model.vocab_size}};
        bool is_known = true;

        text = strchr(word, '=');
        for (size_t i = 0; text != NULL && i < sizeof numbers / sizeof numbers[0]; i++)
            if (strncmp(numbers[i].name, word, (size_t)(text - word)) == 0)
                *numbers[i].at = strtoll(text + 1, NULL, 10);
        if (strcmp(word, "moe") == 0) {
            c->model.experts = 4;
            if (c->model.moe_ffn == 0)
                c->model.moe_ffn = 24;
            c->model.moe_layers = fake_moe_layers;
            c->model.is_moe_list = true;
        } else if (strcmp(word, "more") == 0) {
            c->model.moe_layers = fake_more_layers;
        } else if (strcmp(word, "te") == 0) {
            c->model.impl = DCPK_IMPL_TE;
            c->model.is_grouped = true;
        } else if (strcmp(word, "tied") == 0) {
            c->model.is_tied = true;
        } else if (strcmp(word, "bias") == 0) {
            c->model.has_expert_bias = true;
        } else if (strcmp(word, "fp32") == 0) {
            c->precision.compute = DCPK_F32;
        } else if (strcmp(word, "fsdp") == 0) {
            c->fsdp.mode = DCPK_MODE_MEGATRON_FSDP;
            c->fsdp.strategy = DCPK_OPTIM_GRADS_PARAMS;
        } else if (strcmp(word, "fp16") == 0) {
            c->precision.compute = DCPK_F16;
        } else if (strcmp(word, "buckets") == 0) {
            c->files.optimizer_layout = DCPK_DP_RESHARDABLE;
        } else if (strcmp(word, "sgd") == 0) {
            c->optim.kind = DCPK_SGD;
            c->optim.momentum = 0.9;
        } else if (strcmp(word, "qk") == 0) {
            c->model.has_qk_norm = true;
        } else {
            is_known = text != NULL;
        }
        if (!is_known) {
            fprintf(stderr, "no layout word is '%s'\n", word);
            exit(2);
        }
    }
}

/* What element (row, column) of the model's tensor is: a number that neither bf16 nor another place
 * has. which: 0 parameter, 1 exp_avg, 2 exp_avg_sq. */
static inline float fake_number(const char *name, int which, int64_t row, int64_t column)
{
    uint64_t h = 1469598103934665603u + (uint64_t)which;

    for (; *name != '\0'; name++)
        h = (h ^ (uint8_t)*name) * 1099511628211u;
    h = (h ^ (uint64_t)row) * 1099511628211u;
    h = (h ^ (uint64_t)column) * 1099511628211u;
    h ^= h >> 29;
    return (float)((double)(h >> 40) / (double)(1 << 24)) + (which == 2 ? 0.0f : -0.5f);
}

/* Visit the elements of a shard: write them, or count those that differ. */
static inline size_t fake_visit(const struct dcpk_train_param *p, const struct dcpk_train_shard *s,
                                bool writes)
{
    float *const at[3] = {s->main, s->exp_avg, s->exp_avg_sq};
    size_t n_wrong = 0;

    for (int64_t r = 0; r < s->n_rows; r++)
        for (int64_t c = 0; c < p->shape[1]; c++)
            for (int which = 0; which < 3; which++) {
                const int64_t row = dcpk_train_param_row(p, s->row + r);
                const float want = fake_number(p->canonical, which, row, p->offset[1] + c);

                if (at[which] == NULL)
                    continue;
                if (writes)
                    at[which][r * p->shape[1] + c] = want;
                else
                    n_wrong += memcmp(&at[which][r * p->shape[1] + c], &want, sizeof want) != 0;
            }
    return n_wrong;
}

/* The rows of a parameter that rank d of n keeps. */
static inline dcpk_status fake_shard(struct fake_run *run, size_t p, int64_t d, int64_t n,
                                     bool is_counted, struct dcpk_error *err)
{
    const struct dcpk_train_param *param = &run->params.list[p];
    struct dcpk_train_shard s = {
        .param = p, .row = param->shape[0] * d / n, .is_counted = is_counted};

    s.n_rows = param->shape[0] * (d + 1) / n - s.row;
    s.n_elems = s.n_rows * param->shape[1];
    if (s.n_elems == 0 || param->is_buffer)
        return DCPK_OK;
    if ((s.main = dcpk_arena_array(run->arena, (size_t)s.n_elems, sizeof(float), err)) == NULL ||
        (s.exp_avg = dcpk_arena_array(run->arena, (size_t)s.n_elems, sizeof(float), err)) == NULL)
        return err->status;
    if (run->config.optim.kind == DCPK_ADAM &&
        (s.exp_avg_sq = dcpk_arena_array(run->arena, (size_t)s.n_elems, sizeof(float), err)) ==
            NULL)
        return err->status;
    run->shards.list[run->shards.n++] = s;
    return DCPK_OK;
}

/* Order tp-cp-ep-dp-pp (run_mesh.h); context- and data-parallel ranks share parameters out. */
static inline dcpk_status fake_shards(struct fake_run *run, int64_t rank, struct dcpk_error *err)
{
    const struct dcpk_grid *l = &run->config.layout;
    const int64_t n_dp = l->dp * l->cp, dp = rank / l->tp % n_dp;
    const struct dcpk_coords place = {
        .tp = rank % l->tp, .ep = dp % l->ep, .pp = rank / (l->tp * n_dp)};

    if (dcpk_train_params(&run->config, &place, run->arena, &run->params, err) != DCPK_OK)
        return err->status;
    run->shards.list = dcpk_arena_array(run->arena, run->params.n, sizeof *run->shards.list, err);
    run->buffers = dcpk_arena_array(run->arena, run->params.n, sizeof *run->buffers, err);
    if (run->shards.list == NULL || run->buffers == NULL)
        return err->status;
    for (size_t p = 0; p < run->params.n; p++) {
        const struct dcpk_train_param *param = &run->params.list[p];
        const bool is_copy = param->is_shared || ((param->tp_axis < 0) && place.tp > 0);
        const bool is_expert = param->expert >= 0;

        if (fake_shard(run, p, is_expert ? dp / l->ep : dp, is_expert ? n_dp / l->ep : n_dp,
                       !is_copy, err) != DCPK_OK)
            return err->status;
        if (!param->is_buffer)
            continue;
        run->buffers[p] = dcpk_arena_array(run->arena, (size_t)param->whole[0], sizeof(float), err);
        if (run->buffers[p] == NULL)
            return err->status;
    }
    return DCPK_OK;
}

/* Write the numbers, or count those that are others. A copy of the word embedding has its. */
static inline size_t fake_numbers(struct fake_run *run, bool writes)
{
    size_t n_wrong = 0;

    for (size_t i = 0; i < run->shards.n; i++)
        n_wrong +=
            fake_visit(&run->params.list[run->shards.list[i].param], &run->shards.list[i], writes);
    for (size_t p = 0; p < run->params.n; p++)
        for (int64_t i = 0; run->buffers[p] != NULL && i < run->params.list[p].whole[0]; i++) {
            const float want = fake_number(run->params.list[p].canonical, 0, i, 0);

            if (writes)
                run->buffers[p][i] = want;
            else
                n_wrong += memcmp(&run->buffers[p][i], &want, sizeof want) != 0;
        }
    return n_wrong;
}

static inline dcpk_status fake_begin(struct fake_run *run, struct dcpk_ranks *ranks,
                                     struct dcpk_error *err)
{
    const struct dcpk_device_options first = {0};

    run->arena = dcpk_arena_new();
    if (run->arena == NULL || fake_shards(run, dcpk_ranks_self(ranks), err) ||
        dcpk_schedule_init(&run->config, &run->schedule, err) ||
        dcpk_devices[0]->open(&first, &run->host, err) ||
        dcpk_math_open(dcpk_math_ops[0], 0, &run->math, err))
        return err->status;
    run->env = (struct dcpk_env){.formats = dcpk_formats,
                                 .open_file = dcpk_archive_opener,
                                 .kernels = dcpk_host_kernel_sets[0],
                                 .memory_bytes = (uint64_t)64 << 20,
                                 .unit_bytes = 4096,
                                 .ranks = ranks};
    run->state = (struct dcpk_train_state){.config = &run->config,
                                           .params = &run->params,
                                           .shards = &run->shards,
                                           .math = run->math,
                                           .buffers = run->buffers};
    run->saved = (struct dcpk_saved_run){.state = &run->state,
                                         .schedule = &run->schedule,
                                         .progress = &run->progress,
                                         .loss_scale = &run->loss_scale,
                                         .env = &run->env,
                                         .host = run->host};
    return DCPK_OK;
}

static inline void fake_end(struct fake_run *run)
{
    if (run->host != NULL)
        run->host->ops->close(run->host);
    if (run->math != NULL)
        run->math->device->ops->close(run->math->device);
    dcpk_arena_free(run->arena);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* gpt.c - the model of one rank: finds its parameters in the table, its rows in a batch. */
/*
 *   table (params.h)        layer 3: qkv, proj, ..., expert 8 fc1, expert 8 fc2, expert 9 fc1, ...
 *                                 |                        |
 *   struct gpt_layer        param[kind]              experts[local number][fc1, fc2]
 *
 *   rows of a rank          | sample 0: its tokens | sample 1: its tokens | ...
 *   leaves                  | leaf | leaf |   ...  | rows whose gradients are added in fp32
 *
 * With context parallelism a rank has two chunks of each sample (gpt_attention.c).
 */
#include "lib/train/gpt.h"

#include <string.h>

#include "lib/base/alloc.h"
#include "lib/train/gpt_priv.h"

/* The layer's parameters of every kind; experts by their local number. */
static void layer_find(struct dcpk_gpt *gpt, int64_t number, struct gpt_layer *layer)
{
    const int64_t n_local = gpt->model->experts / gpt->options.config->layout.ep;

    for (int kind = 0; kind < DCPK_N_PARAM_KINDS; kind++)
        layer->param[kind] = DCPK_NO_PARAM;
    layer->unit = -1;
    for (size_t i = 0; i < gpt->options.params->n; i++) {
        const struct dcpk_train_param *p = gpt_param(gpt, i);

        if (p->layer != number)
            continue;
        if (p->kind == DCPK_P_EXPERT_FC1 || p->kind == DCPK_P_EXPERT_FC2)
            layer->experts[p->expert % n_local][p->kind == DCPK_P_EXPERT_FC2] = i;
        layer->param[p->kind] = i;
        if (p->unit >= 0)
            layer->unit = p->unit;
    }
}

/* of: the decoder's layer that it is like, which is itself but in multi-token prediction. */
static dcpk_status layer_new(struct dcpk_gpt *gpt, int64_t number, int64_t of,
                             struct gpt_layer *layer, struct dcpk_error *err)
{
    const size_t n = (size_t)gpt->model->experts;

    *layer = (struct gpt_layer){.unit = -1};
    if (dcpk_train_is_moe(gpt->model, of)) {
        layer->experts = dcpk_arena_array(gpt->arena, n, sizeof *layer->experts, err);
        layer->expert_tokens = dcpk_arena_array(gpt->arena, n, sizeof *layer->expert_tokens, err);
        if (layer->experts == NULL || layer->expert_tokens == NULL)
            return err->status;
    }
    layer_find(gpt, number, layer);
    return DCPK_OK;
}

static dcpk_status layers_new(struct dcpk_gpt *gpt, struct dcpk_error *err)
{
    int64_t first, last;

    dcpk_train_stage(gpt->options.config, gpt->options.mesh->at.pp, &first, &last);
    gpt->n_layers = last - first;
    if (gpt->is_last)
        gpt->n_mtp = gpt->model->mtp_layers;
    gpt->layers = dcpk_arena_array(gpt->arena, (size_t)(gpt->n_layers + gpt->n_mtp),
                                   sizeof *gpt->layers, err);
    if (gpt->layers == NULL)
        return err->status;
    for (int64_t i = 0; i < gpt->n_layers; i++)
        if (layer_new(gpt, first + i, first + i, &gpt->layers[i], err))
            return err->status;
    for (int64_t i = 0; i < gpt->n_mtp; i++)
        if (layer_new(gpt, DCPK_TRAIN_MTP + i, gpt->model->layers - 1,
                      &gpt->layers[gpt->n_layers + i], err))
            return err->status;
    layer_find(gpt, -1, &gpt->outer);
    return DCPK_OK;
}

/* Sums of floats on a device need no leaves: the rows of a microbatch are one. */
static int64_t leaf_rows(const struct dcpk_gpt *gpt)
{
    if (gpt->options.config->precision.is_exact || gpt->math->device->ops->is_host)
        return gpt->size.leaf;
    return gpt->size.rows;
}

static dcpk_status leaves_new(struct dcpk_gpt *gpt, struct dcpk_error *err)
{
    const int64_t n = leaf_rows(gpt);

    gpt->n_leaves = gpt->size.rows / n;
    gpt->leaves = dcpk_arena_array(gpt->arena, (size_t)gpt->n_leaves, sizeof *gpt->leaves, err);
    if (gpt->leaves == NULL)
        return err->status;
    for (int64_t i = 0; i < gpt->n_leaves; i++)
        gpt->leaves[i] = (struct gpt_leaf){i * n, n};
    return DCPK_OK;
}

/* The token of its sample that row `row` of this rank's microbatch is (gpt_attention.c has the
 * picture). */
static int64_t token_of_row(const struct dcpk_gpt *gpt, int64_t row)
{
    const struct gpt_sizes *s = &gpt->size;
    const int64_t n_chunks = s->seq / s->chunk, cp = gpt_group(gpt, DCPK_G_CP)->rank;
    const int64_t token = row % s->tokens;

    if (token < s->chunk)
        return cp * s->chunk + token;
    return (n_chunks - 1 - cp) * s->chunk + token - s->chunk;
}

/* Cosines of all rows, then sines, in the math's memory. */
static dcpk_status rope_fill(struct dcpk_gpt *gpt, struct dcpk_error *err)
{
    const int64_t rows = gpt->size.rows, half = gpt->size.head_dim / 2;
    const struct dcpk_rope one = {gpt->dtype, 1, 1, gpt->size.head_dim};
    const size_t n_bytes = (size_t)half * sizeof(float);
    float *table = dcpk_alloc_array((size_t)(rows * 2 * half), sizeof *table, err);
    float *row = dcpk_alloc_array((size_t)(2 * half), sizeof *row, err);
    dcpk_status st = err->status;

    if (table == NULL || row == NULL)
        goto out;
    for (int64_t i = 0; i < rows; i++) {
        dcpk_rope_table(&one, token_of_row(gpt, i), gpt->model->rotary_base, row);
        memcpy(table + i * half, row, n_bytes);
        memcpy(table + (rows + i) * half, row + half, n_bytes);
    }
    st =
        dcpk_math_copy(gpt->math, gpt->rope, table, (size_t)(rows * 2 * half) * sizeof *table, err);
out:
    dcpk_free(table);
    dcpk_free(row);
    return st;
}

static dcpk_status gpt_fill(struct dcpk_gpt *gpt, struct dcpk_error *err)
{
    const int64_t pp = gpt->options.config->layout.pp, stage = gpt->options.mesh->at.pp;

    gpt->is_first = stage == 0;
    gpt->is_last = stage == pp - 1;
    gpt->arena = dcpk_arena_new();
    if (dcpk_gpt_measure(gpt, err) || leaves_new(gpt, err) || layers_new(gpt, err))
        return err->status;
    gpt->n_passes = pp - stage;
    gpt->passes = dcpk_arena_array(gpt->arena, (size_t)gpt->n_passes, sizeof *gpt->passes, err);
    if (gpt->passes == NULL)
        return err->status;
    return dcpk_gpt_allocate(gpt, err);
}

static dcpk_status gpt_make(const struct dcpk_gpt_options *options, struct dcpk_gpt **gpt,
                            struct dcpk_error *err)
{
    struct dcpk_gpt *made = dcpk_alloc(sizeof *made, err);

    if (made == NULL)
        return err->status;
    made->options = *options;
    made->model = &options->config->model;
    made->math = options->account->math;
    made->ops = made->math->ops;
    made->dtype = options->config->precision.compute;
    if (gpt_fill(made, err)) {
        dcpk_gpt_free(made);
        return err->status;
    }
    *gpt = made;
    return DCPK_OK;
}

dcpk_status dcpk_gpt_new(const struct dcpk_gpt_options *options, struct dcpk_gpt **gpt,
                         struct dcpk_error *err)
{
    struct dcpk_gpt *made;

    if (gpt_make(options, &made, err))
        return err->status;
    if (rope_fill(made, err)) {
        dcpk_gpt_free(made);
        return err->status;
    }
    *gpt = made;
    return DCPK_OK;
}

dcpk_status dcpk_gpt_count(const struct dcpk_gpt_options *options, struct dcpk_error *err)
{
    struct dcpk_gpt *counted;

    if (gpt_make(options, &counted, err))
        return err->status;
    dcpk_gpt_free(counted);
    return DCPK_OK;
}

void dcpk_gpt_free(struct dcpk_gpt *gpt)
{
    if (gpt == NULL)
        return;
    dcpk_gpt_release(gpt);
    dcpk_arena_free(gpt->arena);
    dcpk_free(gpt);
}

const int64_t *dcpk_gpt_expert_tokens(const struct dcpk_gpt *gpt, size_t param)
{
    for (int64_t i = 0; i < gpt->n_layers + gpt->n_mtp; i++)
        if (gpt->layers[i].param[DCPK_P_EXPERT_BIAS] == param)
            return gpt->layers[i].expert_tokens;
    return NULL;
}

/* Tokens of all samples that count when places read `ahead` tokens on: those after the end do
 * not. */
static double count_tokens(const struct gpt_sizes *s, const struct dcpk_gpt_batch *batch,
                           int64_t ahead)
{
    double n = 0;

    for (int64_t i = 0; i < s->samples * s->seq; i++)
        if (i % s->seq >= ahead)
            n += (double)batch->mask[i];
    return n;
}

static void gpt_take_rows(const struct dcpk_gpt *gpt, const struct dcpk_gpt_batch *batch,
                          int64_t ahead, struct gpt_pass *pass)
{
    const struct gpt_sizes *s = &gpt->size;

    for (int64_t i = 0; i < s->rows; i++) {
        const int64_t token = token_of_row(gpt, i) + ahead;
        const int64_t at = i / s->tokens * s->seq + token;
        const bool is_there = token < s->seq;

        pass->tokens[i] = is_there ? batch->tokens[at] : 0;
        pass->labels[i] = is_there ? batch->labels[at] : 0;
        pass->mask[i] = is_there ? batch->mask[at] : 0;
    }
    pass->factor = batch->factor;
}

/* A token that is predicted further ahead counts as many times less as fewer count. Source:
 * megatron/core/transformer/multi_token_prediction.py @core_v0.19.0, process_mtp_loss. */
void dcpk_gpt_take_batch(const struct dcpk_gpt *gpt, const struct dcpk_gpt_batch *batch,
                         struct gpt_pass *pass)
{
    const struct dcpk_train_model *m = gpt->model;
    const double scale = m->mtp_loss_factor / (double)m->mtp_layers;

    gpt_take_rows(gpt, batch, 0, pass);
    for (int64_t i = 0; i < gpt->n_mtp; i++) {
        const double n = count_tokens(&gpt->size, batch, i + 1);
        const double more = count_tokens(&gpt->size, batch, 0) / (n > 1 ? n : 1);

        gpt_take_rows(gpt, batch, i + 1, &pass->ahead[i]);
        pass->ahead[i].factor = (float)((double)batch->factor * scale * more);
    }
}

void dcpk_gpt_begin(struct dcpk_gpt *gpt)
{
    gpt->loss = (struct dcpk_gpt_loss){0};
    gpt->bad_loss.is_there = false;
    for (int64_t i = 0; i < gpt->n_layers + gpt->n_mtp; i++)
        if (gpt->layers[i].expert_tokens != NULL)
            memset(gpt->layers[i].expert_tokens, 0,
                   (size_t)gpt->model->experts * sizeof *gpt->layers[i].expert_tokens);
}

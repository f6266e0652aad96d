/* SPDX-License-Identifier: Apache-2.0 */
/* params.c - the table of a model's parameters, written in the order in which modules register
 * them. */
/*
 *   embedding | layer 0: rows_of_layer | layer 1 | ... | final norm | mtp layers | output layer
 *   stage 0     stages share layers out                  the last stage
 *
 *   a row of this file                           the parameter on tensor-parallel rank 1 of 2
 *   {FC2, COLUMNS, DENSE, "mlp.linear_fc2..."}   "decoder.layers.3.mlp.linear_fc2.weight",
 *                                                whole (h, F), shape (h, F/2), offset (0, F/2)
 */
#include "lib/train/params.h"

#include <assert.h>
#include <string.h>

#include "lib/base/order.h"

/* The models that have a parameter. */
enum wanted {
    ALWAYS = 0,
    LOCAL_SPEC = 1,
    TE_SPEC = 2,
    QK_NORM = 4,
    DENSE = 8, /* the layer has a dense MLP, */
    MOE = 16,  /* or experts */
    BIAS = 32, /* of the router, kept by load balancing */
    SHARED = 64,
};

enum { WHOLE = -1, ROWS = 0, COLUMNS = 1 };

/*
 * A parameter after the name of its layer, as Transformer Engine's spec and as the local one call
 * it. The former is the canonical name. Rows stand in the order of registration
 * (lib/model/registered.c has the sources), in which only the input norm's place differs.
 */
struct row {
    enum dcpk_param_kind kind;
    int tp_axis;
    unsigned wanted; /* of enum wanted */
    const char *te, *local;
};

static const struct row rows_of_layer[] = {
    {DCPK_P_INPUT_NORM, WHOLE, LOCAL_SPEC, "self_attention.linear_qkv.layer_norm_weight",
     "input_layernorm.weight"},
    {DCPK_P_PROJ, COLUMNS, ALWAYS, "self_attention.linear_proj.weight", NULL},
    {DCPK_P_INPUT_NORM, WHOLE, TE_SPEC, "self_attention.linear_qkv.layer_norm_weight", NULL},
    {DCPK_P_QKV, ROWS, ALWAYS, "self_attention.linear_qkv.weight", NULL},
    {DCPK_P_Q_NORM, WHOLE, QK_NORM, "self_attention.q_layernorm.weight", NULL},
    {DCPK_P_K_NORM, WHOLE, QK_NORM, "self_attention.k_layernorm.weight", NULL},
    {DCPK_P_MLP_NORM, WHOLE, MOE, "pre_mlp_layernorm.weight", NULL},
    {DCPK_P_MLP_NORM, WHOLE, DENSE, "mlp.linear_fc1.layer_norm_weight", "pre_mlp_layernorm.weight"},
    {DCPK_P_ROUTER, WHOLE, MOE, "mlp.router.weight", NULL},
    {DCPK_P_EXPERT_BIAS, WHOLE, MOE | BIAS, "mlp.router.expert_bias", NULL},
    {DCPK_P_EXPERT_FC1, WHOLE, MOE, "linear_fc1.weight", NULL},
    {DCPK_P_EXPERT_FC2, WHOLE, MOE, "linear_fc2.weight", NULL},
    {DCPK_P_SHARED_FC1, ROWS, MOE | SHARED, "mlp.shared_experts.linear_fc1.weight", NULL},
    {DCPK_P_SHARED_FC2, COLUMNS, MOE | SHARED, "mlp.shared_experts.linear_fc2.weight", NULL},
    {DCPK_P_FC1, ROWS, DENSE, "mlp.linear_fc1.weight", NULL},
    {DCPK_P_FC2, COLUMNS, DENSE, "mlp.linear_fc2.weight", NULL},
};

/* Rows of multi-token prediction, before its inner layer and after it. */
static const struct row rows_before_inner[] = {
    {DCPK_P_ENORM, WHOLE, ALWAYS, "enorm.weight", NULL},
    {DCPK_P_HNORM, WHOLE, ALWAYS, "hnorm.weight", NULL},
    {DCPK_P_EH_PROJ, ROWS, ALWAYS, "eh_proj.weight", NULL},
};
static const struct row rows_behind_inner[] = {
    {DCPK_P_MTP_NORM, WHOLE, ALWAYS, "final_layernorm.weight", NULL},
};

static const struct row row_embedding = {DCPK_P_EMBEDDING, ROWS, ALWAYS,
                                         "embedding.word_embeddings.weight", NULL};
static const struct row row_final_norm = {DCPK_P_FINAL_NORM, WHOLE, ALWAYS,
                                          "decoder.final_layernorm.weight", NULL};
static const struct row row_output = {DCPK_P_OUTPUT, ROWS, ALWAYS, "output_layer.weight", NULL};

/* State of a walk over the modules. */
struct walk {
    const struct dcpk_train_config *config;
    const struct dcpk_coords *place;
    struct dcpk_arena *arena;
    struct dcpk_train_params *made;
    /* The current layer: */
    const char *canonical, *live; /* prefixes of names */
    int64_t layer, unit;
    unsigned has; /* of enum wanted */
};

/* The shape of the whole parameter; returns its rank. */
static int shape_of_kind(const struct dcpk_train_model *m, enum dcpk_param_kind kind,
                         int64_t *shape)
{
    const int64_t q = m->heads * m->head_dim, kv = m->groups * m->head_dim;
    const int64_t h = m->hidden;
    const struct {
        int64_t rows, columns; /* columns 0: of rank 1 */
    } shapes[DCPK_N_PARAM_KINDS] = {
        [DCPK_P_EMBEDDING] = {m->padded_vocab, h},
        [DCPK_P_INPUT_NORM] = {h, 0},
        [DCPK_P_PROJ] = {h, q},
        [DCPK_P_QKV] = {q + 2 * kv, h},
        [DCPK_P_Q_NORM] = {m->head_dim, 0},
        [DCPK_P_K_NORM] = {m->head_dim, 0},
        [DCPK_P_MLP_NORM] = {h, 0},
        [DCPK_P_FC1] = {2 * m->ffn, h},
        [DCPK_P_FC2] = {h, m->ffn},
        [DCPK_P_ROUTER] = {m->experts, h},
        [DCPK_P_EXPERT_BIAS] = {m->experts, 0},
        [DCPK_P_EXPERT_FC1] = {2 * m->moe_ffn, h},
        [DCPK_P_EXPERT_FC2] = {h, m->moe_ffn},
        [DCPK_P_SHARED_FC1] = {2 * m->shared_ffn, h},
        [DCPK_P_SHARED_FC2] = {h, m->shared_ffn},
        [DCPK_P_ENORM] = {h, 0},
        [DCPK_P_HNORM] = {h, 0},
        [DCPK_P_EH_PROJ] = {h, 2 * h},
        [DCPK_P_MTP_NORM] = {h, 0},
        [DCPK_P_FINAL_NORM] = {h, 0},
        [DCPK_P_OUTPUT] = {m->padded_vocab, h},
    };

    shape[0] = shapes[kind].rows;
    shape[1] = shapes[kind].columns;
    if (shape[1] > 0)
        return 2;
    shape[1] = 1;
    return 1;
}

static bool kind_has_halves(enum dcpk_param_kind kind)
{
    return kind == DCPK_P_FC1 || kind == DCPK_P_EXPERT_FC1 || kind == DCPK_P_SHARED_FC1;
}

static bool kind_is_decayed(const struct dcpk_train_config *config, enum dcpk_param_kind kind,
                            int rank)
{
    if (kind == DCPK_P_Q_NORM || kind == DCPK_P_K_NORM)
        return config->optim.decays_qk_norm;
    return rank > 1;
}

/* Append the parameter of a row, whose names are `canonical` and `live`. */
static struct dcpk_train_param *walk_put(struct walk *walk, const struct row *row,
                                         const char *canonical, const char *live)
{
    struct dcpk_train_params *made = walk->made;
    struct dcpk_train_param *param = &made->list[made->n++];
    const int64_t tp = walk->config->layout.tp;

    *param = (struct dcpk_train_param){.kind = row->kind,
                                       .canonical = canonical,
                                       .live = live,
                                       .layer = walk->layer,
                                       .expert = -1,
                                       .tp_axis = row->tp_axis,
                                       .has_halves = kind_has_halves(row->kind),
                                       .is_buffer = row->kind == DCPK_P_EXPERT_BIAS,
                                       .unit = walk->unit,
                                       .first = made->n_elems};
    param->rank = shape_of_kind(&walk->config->model, row->kind, param->whole);
    param->is_decayed = !param->is_buffer && kind_is_decayed(walk->config, row->kind, param->rank);
    memcpy(param->shape, param->whole, sizeof param->shape);
    if (row->tp_axis != WHOLE) {
        assert(param->whole[row->tp_axis] % tp == 0);
        param->shape[row->tp_axis] /= tp;
        param->offset[row->tp_axis] = walk->place->tp * param->shape[row->tp_axis];
    }
    if (param->has_halves)
        param->offset[0] /= 2;
    made->n_elems += param->shape[0] * param->shape[1];
    return param;
}

static bool walk_wants(const struct walk *walk, const struct row *row)
{
    return (row->wanted & ~walk->has) == 0;
}

static dcpk_status walk_add(struct walk *walk, const struct row *row, struct dcpk_error *err)
{
    const bool is_local = walk->config->model.impl == DCPK_IMPL_LOCAL && row->local != NULL;
    const char *name = is_local ? row->local : row->te;
    const char *canonical = dcpk_arena_printf(walk->arena, err, "%s%s", walk->canonical, row->te);
    const char *live = dcpk_arena_printf(walk->arena, err, "%s%s", walk->live, name);

    if (canonical == NULL || live == NULL)
        return err->status;
    walk_put(walk, row, canonical, live);
    return DCPK_OK;
}

static dcpk_status walk_add_expert(struct walk *walk, const struct row *row, int64_t expert,
                                   struct dcpk_error *err)
{
    static const char grouped[] = "%smlp.experts.%s%lld";
    static const char sequential[] = "%smlp.experts.local_experts.%lld.%s";
    const long long k = expert;
    const char *canonical =
        dcpk_arena_printf(walk->arena, err, grouped, walk->canonical, row->te, k);
    const char *live;

    if (walk->config->model.is_grouped)
        live = dcpk_arena_printf(walk->arena, err, grouped, walk->live, row->te, k);
    else
        live = dcpk_arena_printf(walk->arena, err, sequential, walk->live, k, row->te);
    if (canonical == NULL || live == NULL)
        return err->status;
    walk_put(walk, row, canonical, live)->expert = expert;
    return DCPK_OK;
}

/* Experts of this rank: sequential modules register one by one, grouped linears all of fc1 first.
 * rows: those of fc1 and fc2. */
static dcpk_status walk_experts(struct walk *walk, const struct row *rows, struct dcpk_error *err)
{
    const struct dcpk_train_model *m = &walk->config->model;
    const int64_t n = m->experts / walk->config->layout.ep;

    for (int64_t i = 0; i < 2 * n; i++) {
        int64_t is_fc2 = i % 2, k = i / 2;

        if (m->is_grouped) {
            is_fc2 = i / n;
            k = i % n;
        }
        if (walk_add_expert(walk, &rows[is_fc2], walk->place->ep * n + k, err))
            return err->status;
    }
    return DCPK_OK;
}

static dcpk_status walk_rows(struct walk *walk, const struct row *rows, size_t n,
                             struct dcpk_error *err)
{
    for (size_t i = 0; i < n; i++) {
        if (!walk_wants(walk, &rows[i]) || rows[i].kind == DCPK_P_EXPERT_FC2)
            continue;
        if (rows[i].kind == DCPK_P_EXPERT_FC1) {
            if (walk_experts(walk, &rows[i], err))
                return err->status;
        } else if (walk_add(walk, &rows[i], err)) {
            return err->status;
        }
    }
    return DCPK_OK;
}

/* The parameters of one transformer layer, an FSDP unit. */
static dcpk_status walk_layer(struct walk *walk, bool is_moe, struct dcpk_error *err)
{
    const struct dcpk_train_model *m = &walk->config->model;

    walk->has = m->impl == DCPK_IMPL_LOCAL ? LOCAL_SPEC : TE_SPEC;
    walk->has |= is_moe ? MOE : DENSE;
    if (m->has_qk_norm)
        walk->has |= QK_NORM;
    if (m->has_expert_bias)
        walk->has |= BIAS;
    if (m->shared_ffn > 0)
        walk->has |= SHARED;
    walk->unit = walk->made->n_units++;
    if (walk_rows(walk, rows_of_layer, DCPK_COUNT(rows_of_layer), err))
        return err->status;
    walk->unit = -1;
    return DCPK_OK;
}

static dcpk_status walk_prefix(struct walk *walk, const char *fmt, int64_t number,
                               const char *inner, struct dcpk_error *err)
{
    walk->canonical =
        dcpk_arena_printf(walk->arena, err, "%s.layers.%lld.%s", fmt, (long long)number, inner);
    if (walk->canonical == NULL)
        return err->status;
    walk->live = walk->canonical;
    return DCPK_OK;
}

static dcpk_status walk_decoder(struct walk *walk, struct dcpk_error *err)
{
    int64_t first, last;

    dcpk_train_stage(walk->config, walk->place->pp, &first, &last);
    for (walk->layer = first; walk->layer < last; walk->layer++)
        if (walk_prefix(walk, "decoder", walk->layer, "", err) ||
            walk_layer(walk, dcpk_train_is_moe(&walk->config->model, walk->layer), err))
            return err->status;
    walk->layer = -1;
    return DCPK_OK;
}

/* A layer of multi-token prediction: its inner layer is of the kind of the decoder's last one. The
 * module is called mtp_model_layer since core 0.17, transformer_layer on disk. */
static dcpk_status walk_mtp_layer(struct walk *walk, int64_t number, struct dcpk_error *err)
{
    const struct dcpk_train_model *m = &walk->config->model;

    walk->layer = DCPK_TRAIN_MTP + number;
    if (walk_prefix(walk, "mtp", number, "", err) ||
        walk_rows(walk, rows_before_inner, DCPK_COUNT(rows_before_inner), err) ||
        walk_prefix(walk, "mtp", number, "mtp_model_layer.", err))
        return err->status;
    walk->canonical = dcpk_arena_printf(walk->arena, err, "mtp.layers.%lld.transformer_layer.",
                                        (long long)number);
    if (walk->canonical == NULL || walk_layer(walk, dcpk_train_is_moe(m, m->layers - 1), err) ||
        walk_prefix(walk, "mtp", number, "", err) ||
        walk_rows(walk, rows_behind_inner, DCPK_COUNT(rows_behind_inner), err))
        return err->status;
    walk->layer = -1;
    return DCPK_OK;
}

/* Adds the parameters that the last stage has after the decoder's layers. If it is not the first
 * stage too, it has copies of the word embedding for its users: multi-token prediction, a tied
 * output layer. */
static dcpk_status walk_tail(struct walk *walk, struct dcpk_error *err)
{
    const struct dcpk_train_model *m = &walk->config->model;
    const bool is_first = walk->place->pp == 0;
    const bool has_copy = !is_first && m->mtp_layers > 0;

    walk->has = ALWAYS;
    if (walk_add(walk, &row_final_norm, err))
        return err->status;
    for (int64_t i = 0; i < m->mtp_layers; i++)
        if (walk_mtp_layer(walk, i, err))
            return err->status;
    walk->canonical = walk->live = "";
    if (!m->is_tied)
        return walk_add(walk, &row_output, err);
    if (is_first || has_copy)
        return DCPK_OK;
    walk_put(walk, &row_output, row_embedding.te, row_output.te)->is_shared = true;
    return DCPK_OK;
}

static dcpk_status walk_model(struct walk *walk, struct dcpk_error *err)
{
    const struct dcpk_train_model *m = &walk->config->model;
    const bool is_first = walk->place->pp == 0;
    const bool is_last = walk->place->pp == walk->config->layout.pp - 1;

    if (is_first && walk_add(walk, &row_embedding, err))
        return err->status;
    if (!is_first && is_last && m->mtp_layers > 0)
        walk_put(walk, &row_embedding, row_embedding.te, row_embedding.te)->is_shared = true;
    if (walk_decoder(walk, err))
        return err->status;
    walk->canonical = walk->live = "";
    if (is_last)
        return walk_tail(walk, err);
    return DCPK_OK;
}

bool dcpk_train_is_moe(const struct dcpk_train_model *model, int64_t layer)
{
    if (model->experts == 0)
        return false;
    return model->moe_layers == NULL || model->moe_layers[layer] != 0;
}

void dcpk_train_stage(const struct dcpk_train_config *config, int64_t pp, int64_t *first,
                      int64_t *last)
{
    *first = *last = 0;
    for (int64_t stage = 0; stage <= pp; stage++) {
        *first = *last;
        *last += dcpk_grid_chunk_layers(&config->layout, config->model.layers, 0, stage);
    }
}

int64_t dcpk_train_param_row(const struct dcpk_train_param *param, int64_t row)
{
    const int64_t half = param->shape[0] / 2;

    if (param->has_halves && row >= half)
        return param->whole[0] / 2 + param->offset[0] + row - half;
    return param->offset[0] + row;
}

dcpk_status dcpk_train_params(const struct dcpk_train_config *config,
                              const struct dcpk_coords *place, struct dcpk_arena *arena,
                              struct dcpk_train_params *params, struct dcpk_error *err)
{
    const struct dcpk_train_model *m = &config->model;
    const int64_t n_layers =
        dcpk_grid_chunk_layers(&config->layout, m->layers, 0, place->pp) + m->mtp_layers;
    const int64_t in_layer = (int64_t)DCPK_N_PARAM_KINDS + 2 * m->experts / config->layout.ep;
    struct dcpk_train_params made = {0};
    struct walk walk = {.config = config,
                        .place = place,
                        .arena = arena,
                        .made = &made,
                        .canonical = "",
                        .live = "",
                        .layer = -1,
                        .unit = -1};

    made.list = dcpk_arena_array(arena, (size_t)(DCPK_N_PARAM_KINDS + n_layers * in_layer),
                                 sizeof *made.list, err);
    if (made.list == NULL || walk_model(&walk, err))
        return err->status;
    *params = made;
    return DCPK_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* gpt_layer.c - a transformer layer: attention, then a dense MLP or a mixture of experts, each
 * added to its input. */
/*
 *   h = x + proj(attention(qkv(norm(x))))       y = h + mlp(norm(h))
 *
 *   mlp(a) = fc2(silu(gate) * up)               gate, up: the halves of fc1(a)
 *          = sum of p_e mlp_e(a), + shared(a)   e: the experts that the token chose
 *
 *   dh = dy + norm'(mlp'(dy))                   dx = dh + norm'(qkv'(attention'(proj'(dh))))
 *
 * f'(d): the gradient of f's input by d, that of its result.
 * Source: megatron/core/transformer/transformer_layer.py @core_v0.19.0, TransformerLayer.
 */
#include "lib/train/gpt_priv.h"

/* A layer's own MLP or its shared experts. */
struct mlp {
    size_t fc1, fc2;
};

static struct dcpk_matrix mlp_shape(const struct dcpk_gpt *gpt, const struct mlp *mlp)
{
    const int64_t columns = gpt_param(gpt, mlp->fc2)->shape[1];

    return (struct dcpk_matrix){gpt->dtype, gpt->size.rows, columns};
}

static dcpk_status mlp_forward(struct dcpk_gpt *gpt, const struct mlp *mlp, struct gpt_kept *kept,
                               void *y, struct dcpk_error *err)
{
    const struct dcpk_matrix shape = mlp_shape(gpt, mlp);

    dcpk_gpt_linear(gpt, mlp->fc1, shape.rows, kept->mlp_norm, kept->fc1);
    gpt->ops->swiglu(gpt->math, &shape, kept->fc1, kept->act);
    return dcpk_gpt_linear_cut(gpt, mlp->fc2, kept->act, y, err);
}

/* kept->fc1 becomes its own gradient. */
static dcpk_status mlp_backward(struct dcpk_gpt *gpt, const struct mlp *mlp,
                                const struct gpt_kept *kept, const void *dy, void *dx,
                                struct dcpk_error *err)
{
    const struct dcpk_matrix shape = mlp_shape(gpt, mlp);
    void *d_act = gpt->scratch.wide[0];

    dcpk_gpt_linear_weight(gpt, mlp->fc2, dy, kept->act);
    dcpk_gpt_linear_input(gpt, mlp->fc2, shape.rows, dy, d_act);
    gpt->ops->swiglu_backward(gpt->math, &shape, kept->fc1, d_act, kept->fc1);
    dcpk_gpt_linear_weight(gpt, mlp->fc1, kept->fc1, kept->mlp_norm);
    return dcpk_gpt_linear_input_cut(gpt, mlp->fc1, kept->fc1, dx, err);
}

static struct mlp dense_mlp(const struct gpt_layer *layer)
{
    if (layer->experts != NULL)
        return (struct mlp){layer->param[DCPK_P_SHARED_FC1], layer->param[DCPK_P_SHARED_FC2]};
    return (struct mlp){layer->param[DCPK_P_FC1], layer->param[DCPK_P_FC2]};
}

/* Experts and those that all tokens share, one or both. */
static dcpk_status mixture_forward(struct dcpk_gpt *gpt, const struct gpt_layer *layer,
                                   struct gpt_kept *kept, void *y, struct dcpk_error *err)
{
    const struct mlp shared = dense_mlp(layer);
    void *more = gpt->scratch.hidden[1];

    if (dcpk_gpt_moe(gpt, layer, kept, y, err))
        return err->status;
    if (shared.fc1 == DCPK_NO_PARAM)
        return DCPK_OK;
    if (mlp_forward(gpt, &shared, kept, more, err))
        return err->status;
    gpt->ops->add(gpt->math, gpt->dtype, gpt->size.rows * gpt->size.hidden, y, more, y);
    return DCPK_OK;
}

static dcpk_status mixture_backward(struct dcpk_gpt *gpt, const struct gpt_layer *layer,
                                    const struct gpt_kept *kept, const void *dy, void *dx,
                                    struct dcpk_error *err)
{
    const struct mlp shared = dense_mlp(layer);
    void *more = gpt->scratch.hidden[1];

    if (dcpk_gpt_moe_backward(gpt, layer, kept, dy, dx, err))
        return err->status;
    if (shared.fc1 == DCPK_NO_PARAM)
        return DCPK_OK;
    if (mlp_backward(gpt, &shared, kept, dy, more, err))
        return err->status;
    gpt->ops->add(gpt->math, gpt->dtype, gpt->size.rows * gpt->size.hidden, dx, more, dx);
    return DCPK_OK;
}

/* kept->input into out. */
static dcpk_status one_layer(struct dcpk_gpt *gpt, const struct gpt_layer *layer,
                             struct gpt_kept *kept, void *out, struct dcpk_error *err)
{
    const struct mlp mlp = dense_mlp(layer);
    void *y = gpt->scratch.hidden[0];

    if (dcpk_gpt_attention(gpt, layer, kept, err))
        return err->status;
    dcpk_gpt_norm(gpt, layer->param[DCPK_P_MLP_NORM], 1, kept->middle, kept->mlp_norm);
    if (layer->experts != NULL) {
        if (mixture_forward(gpt, layer, kept, y, err))
            return err->status;
    } else if (mlp_forward(gpt, &mlp, kept, y, err)) {
        return err->status;
    }
    gpt->ops->add(gpt->math, gpt->dtype, gpt->size.rows * gpt->size.hidden, kept->middle, y, out);
    return DCPK_OK;
}

/* d: of out, becomes that of kept->input. Adds gradients of weights. */
static dcpk_status one_layer_backward(struct dcpk_gpt *gpt, const struct gpt_layer *layer,
                                      const struct gpt_kept *kept, void *d, struct dcpk_error *err)
{
    const struct mlp mlp = dense_mlp(layer);
    void *d_mlp = gpt->scratch.hidden[0];

    if (layer->experts != NULL) {
        if (mixture_backward(gpt, layer, kept, d, d_mlp, err))
            return err->status;
    } else if (mlp_backward(gpt, &mlp, kept, d, d_mlp, err)) {
        return err->status;
    }
    dcpk_gpt_norm_backward(gpt, layer->param[DCPK_P_MLP_NORM], 1, kept->middle, d_mlp);
    gpt->ops->add(gpt->math, gpt->dtype, gpt->size.rows * gpt->size.hidden, d, d_mlp, d);
    return dcpk_gpt_attention_backward(gpt, layer, kept, d, err);
}

/* Enter a unit; keeps gpt->pass. */
static dcpk_status unit_enter(struct dcpk_gpt *gpt, int64_t unit, enum dcpk_train_pass pass,
                              struct dcpk_error *err)
{
    struct dcpk_weights *weights = gpt->options.weights;

    gpt->pass = pass;
    return weights->ops->enter(weights, unit, pass, err);
}

static dcpk_status unit_leave(struct dcpk_gpt *gpt, int64_t unit, enum dcpk_train_pass pass,
                              struct dcpk_error *err)
{
    struct dcpk_weights *weights = gpt->options.weights;

    return weights->ops->leave(weights, unit, pass, err);
}

/* ---- multi-token prediction ---- */

/*
 * Layer k has the normed output of the one before (of the decoder for k = 1) and the embedding of
 * the token k places on:
 *
 *     [ norm(embedding(t[i + k])), norm(h[i]) ] -> eh_proj -> transformer layer -> norm -> h'[i]
 *                                                               loss by the label k places on
 *
 * eh_proj's rows are cut by tensor parallelism, and what they give is gathered. Embedding and
 * output layer are those of the model. Source: megatron/core/transformer/multi_token_prediction.py
 * @core_v0.19.0.
 */

/* n columns of rows of one width, into n columns of rows of another. */
static void columns_copy(struct dcpk_gpt *gpt, int64_t n, int64_t from_stride, const void *from,
                         int64_t to_stride, void *to)
{
    const struct dcpk_strided_rows shape = {.dtype = gpt->dtype,
                                            .rows = gpt->size.rows,
                                            .columns = n,
                                            .from_stride = from_stride,
                                            .to_stride = to_stride};

    gpt->ops->copy_rows(gpt->math, &shape, from, to);
}

/* Gathers the columns of each rank, side by side. The slices' memory is free. */
static dcpk_status columns_gather(struct dcpk_gpt *gpt, int64_t columns, void *y,
                                  struct dcpk_error *err)
{
    struct dcpk_group *tp = gpt_group(gpt, DCPK_G_TP);
    const int64_t n = gpt->size.rows * columns;
    void *all = gpt->scratch.slices;

    if (tp->n_ranks > 1)
        if (gpt->ops->wait(gpt->math, err) || tp->by->all_gather(tp, gpt_at(gpt, all, tp->rank * n),
                                                                 gpt_bytes(gpt, n), all, NULL, err))
            return err->status;
    for (int64_t r = 0; r < tp->n_ranks; r++)
        columns_copy(gpt, columns, columns, gpt_at(gpt, all, r * n), gpt->size.hidden,
                     gpt_at(gpt, y, r * columns));
    return DCPK_OK;
}

static dcpk_status ahead_forward(struct dcpk_gpt *gpt, int64_t i, struct gpt_pass *ahead,
                                 struct dcpk_error *err)
{
    const struct gpt_layer *layer = &gpt->layers[gpt->n_layers + i];
    const size_t proj = layer->param[DCPK_P_EH_PROJ];
    const int64_t h = gpt->size.hidden, columns = gpt_param(gpt, proj)->shape[0];
    struct gpt_mtp *mtp = &gpt->mtp[i];
    void *normed = gpt->scratch.hidden[0];

    if (dcpk_gpt_embed(gpt, ahead->tokens, mtp->embedded, err))
        return err->status;
    dcpk_gpt_norm(gpt, layer->param[DCPK_P_ENORM], 1, mtp->embedded, normed);
    columns_copy(gpt, h, h, normed, 2 * h, mtp->joined);
    dcpk_gpt_norm(gpt, layer->param[DCPK_P_HNORM], 1, gpt->heads[i].normed, normed);
    columns_copy(gpt, h, h, normed, 2 * h, gpt_at(gpt, mtp->joined, h));
    dcpk_gpt_linear(gpt, proj, gpt->size.rows, mtp->joined,
                    gpt_at(gpt, gpt->scratch.slices,
                           gpt_group(gpt, DCPK_G_TP)->rank * gpt->size.rows * columns));
    if (columns_gather(gpt, columns, mtp->kept.input, err) ||
        unit_enter(gpt, layer->unit, DCPK_FORWARD, err) ||
        one_layer(gpt, layer, &mtp->kept, gpt->heads[i + 1].input, err) ||
        unit_leave(gpt, layer->unit, DCPK_FORWARD, err))
        return err->status;
    return dcpk_gpt_head(gpt, &gpt->heads[i + 1], ahead, &gpt->loss.mtp_sum, err);
}

/* After the head. */
static dcpk_status mtp_forward(struct dcpk_gpt *gpt, struct gpt_pass *pass, struct dcpk_error *err)
{
    for (int64_t i = 0; i < gpt->n_mtp; i++)
        if (ahead_forward(gpt, i, &pass->ahead[i], err))
            return err->status;
    return DCPK_OK;
}

/* d, the gradient of the inner layer's input, to the projection and what it joins; d becomes that
 * of the normed output before. */
static dcpk_status joined_backward(struct dcpk_gpt *gpt, int64_t i, const struct gpt_pass *ahead,
                                   void *d, struct dcpk_error *err)
{
    const struct gpt_layer *layer = &gpt->layers[gpt->n_layers + i];
    const size_t proj = layer->param[DCPK_P_EH_PROJ];
    const int64_t h = gpt->size.hidden, columns = gpt_param(gpt, proj)->shape[0];
    void *part = gpt->scratch.hidden[1], *d_joined = gpt->scratch.d_joined;
    void *d_embedded = gpt->scratch.hidden[0];
    const struct gpt_mtp *mtp = &gpt->mtp[i];

    columns_copy(gpt, columns, h, gpt_at(gpt, d, gpt_param(gpt, proj)->offset[0]), columns, part);
    dcpk_gpt_linear_weight(gpt, proj, part, mtp->joined);
    if (dcpk_gpt_linear_input_cut(gpt, proj, part, d_joined, err))
        return err->status;
    columns_copy(gpt, h, 2 * h, d_joined, h, d_embedded);
    columns_copy(gpt, h, 2 * h, gpt_at(gpt, d_joined, h), h, d);
    dcpk_gpt_norm_backward(gpt, layer->param[DCPK_P_ENORM], 1, mtp->embedded, d_embedded);
    if (dcpk_gpt_embed_backward(gpt, ahead->tokens, d_embedded, err))
        return err->status;
    dcpk_gpt_norm_backward(gpt, layer->param[DCPK_P_HNORM], 1, gpt->heads[i].normed, d);
    return DCPK_OK;
}

/* Runs before the backward pass of the head, which takes *more: what this gives to the gradient of
 * the last layer's normed output; NULL without. */
static dcpk_status mtp_backward(struct dcpk_gpt *gpt, struct gpt_pass *pass, const void **more,
                                struct dcpk_error *err)
{
    *more = NULL;
    for (int64_t i = gpt->n_mtp - 1; i >= 0; i--) {
        const struct gpt_layer *layer = &gpt->layers[gpt->n_layers + i];
        void *d = gpt->scratch.d_ahead[i % 2];

        if (dcpk_gpt_head_backward(gpt, &gpt->heads[i + 1], &pass->ahead[i], *more, d, err) ||
            unit_enter(gpt, layer->unit, DCPK_BACKWARD, err) ||
            one_layer_backward(gpt, layer, &gpt->mtp[i].kept, d, err) ||
            unit_leave(gpt, layer->unit, DCPK_BACKWARD, err) ||
            joined_backward(gpt, i, &pass->ahead[i], d, err))
            return err->status;
        *more = d;
    }
    return DCPK_OK;
}

/* ---- passes ---- */

/*
 *   forward     enter -1, embed  | enter u, layer, leave u |  u ascending   | head, leave -1
 *   backward    enter -1, head'  | enter u, layer', leave u | u descending  | embed', leave -1
 *   recompute   before a layer' :  enter u, layer, leave u
 *
 * u: the layer's FSDP unit (weights.h). The first stage embeds, the last one has the head.
 */

/* The place of a layer's result: it is the next one's input. */
static void *out_of_layer(struct dcpk_gpt *gpt, struct gpt_pass *pass, int64_t layer)
{
    if (layer + 1 < gpt->n_layers)
        return pass->kept[layer + 1].input;
    return gpt->is_last ? gpt->heads[0].input : gpt->out;
}

static dcpk_status layer_forward(struct dcpk_gpt *gpt, struct gpt_pass *pass, int64_t i,
                                 struct dcpk_error *err)
{
    const struct gpt_layer *layer = &gpt->layers[i];

    if (unit_enter(gpt, layer->unit, DCPK_FORWARD, err) ||
        one_layer(gpt, layer, &pass->kept[i], out_of_layer(gpt, pass, i), err))
        return err->status;
    return unit_leave(gpt, layer->unit, DCPK_FORWARD, err);
}

/* Everything of the layer but its input was given up: compute it again. */
static dcpk_status layer_recompute(struct dcpk_gpt *gpt, struct gpt_pass *pass, int64_t i,
                                   struct dcpk_error *err)
{
    const struct gpt_layer *layer = &gpt->layers[i];

    if (unit_enter(gpt, layer->unit, DCPK_RECOMPUTE, err) ||
        one_layer(gpt, layer, &pass->kept[i], gpt->scratch.hidden[1], err))
        return err->status;
    return unit_leave(gpt, layer->unit, DCPK_RECOMPUTE, err);
}

static dcpk_status layer_backward(struct dcpk_gpt *gpt, struct gpt_pass *pass, int64_t i,
                                  struct dcpk_error *err)
{
    const struct gpt_layer *layer = &gpt->layers[i];

    if (gpt->options.config->fsdp.recomputes && layer_recompute(gpt, pass, i, err))
        return err->status;
    if (unit_enter(gpt, layer->unit, DCPK_BACKWARD, err) ||
        one_layer_backward(gpt, layer, &pass->kept[i], gpt->d, err))
        return err->status;
    return unit_leave(gpt, layer->unit, DCPK_BACKWARD, err);
}

static void tokens_add(struct dcpk_gpt *gpt, const struct gpt_pass *pass)
{
    for (int64_t i = 0; gpt->is_last && i < gpt->size.rows; i++)
        gpt->loss.tokens += pass->mask[i] != 0;
}

dcpk_status dcpk_gpt_forward(struct dcpk_gpt *gpt, struct gpt_pass *pass, struct dcpk_error *err)
{
    tokens_add(gpt, pass);
    if (unit_enter(gpt, -1, DCPK_FORWARD, err))
        return err->status;
    if (gpt->is_first && dcpk_gpt_embed(gpt, pass->tokens, pass->kept[0].input, err))
        return err->status;
    for (int64_t i = 0; i < gpt->n_layers; i++)
        if (layer_forward(gpt, pass, i, err))
            return err->status;
    if (gpt->is_last && (dcpk_gpt_head(gpt, &gpt->heads[0], pass, &gpt->loss.sum, err) ||
                         mtp_forward(gpt, pass, err)))
        return err->status;
    return unit_leave(gpt, -1, DCPK_FORWARD, err);
}

dcpk_status dcpk_gpt_backward(struct dcpk_gpt *gpt, struct gpt_pass *pass, struct dcpk_error *err)
{
    const void *more = NULL;

    if (unit_enter(gpt, -1, DCPK_BACKWARD, err))
        return err->status;
    if (gpt->is_last && (mtp_backward(gpt, pass, &more, err) ||
                         dcpk_gpt_head_backward(gpt, &gpt->heads[0], pass, more, gpt->d, err)))
        return err->status;
    for (int64_t i = gpt->n_layers - 1; i >= 0; i--)
        if (layer_backward(gpt, pass, i, err))
            return err->status;
    if (gpt->is_first && dcpk_gpt_embed_backward(gpt, pass->tokens, gpt->d, err))
        return err->status;
    return unit_leave(gpt, -1, DCPK_BACKWARD, err);
}

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

dcpk_status dcpk_gpt_layer(struct dcpk_gpt *gpt, const struct gpt_layer *layer,
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

dcpk_status dcpk_gpt_layer_backward(struct dcpk_gpt *gpt, const struct gpt_layer *layer,
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

/* SPDX-License-Identifier: Apache-2.0 */
/* gpt_pass.c - one microbatch through the layers of a stage, forward and backward. */
/*
 *   forward     enter -1, embed  | enter u, layer, leave u |  u ascending   | head, leave -1
 *   backward    enter -1, head'  | enter u, layer', leave u | u descending  | embed', leave -1
 *   recompute   before a layer' :  enter u, layer, leave u
 *
 * u: the layer's FSDP unit (weights.h). The first stage embeds, the last one has the head.
 */
#include "lib/train/gpt_priv.h"

dcpk_status dcpk_gpt_enter(struct dcpk_gpt *gpt, int64_t unit, enum dcpk_train_pass pass,
                           struct dcpk_error *err)
{
    struct dcpk_weights *weights = gpt->options.weights;

    gpt->pass = pass;
    return weights->ops->enter(weights, unit, pass, err);
}

dcpk_status dcpk_gpt_leave(struct dcpk_gpt *gpt, int64_t unit, enum dcpk_train_pass pass,
                           struct dcpk_error *err)
{
    struct dcpk_weights *weights = gpt->options.weights;

    return weights->ops->leave(weights, unit, pass, err);
}

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

    if (dcpk_gpt_enter(gpt, layer->unit, DCPK_FORWARD, err) ||
        dcpk_gpt_layer(gpt, layer, &pass->kept[i], out_of_layer(gpt, pass, i), err))
        return err->status;
    return dcpk_gpt_leave(gpt, layer->unit, DCPK_FORWARD, err);
}

/* Everything of the layer but its input was given up: compute it again. */
static dcpk_status layer_recompute(struct dcpk_gpt *gpt, struct gpt_pass *pass, int64_t i,
                                   struct dcpk_error *err)
{
    const struct gpt_layer *layer = &gpt->layers[i];

    if (dcpk_gpt_enter(gpt, layer->unit, DCPK_RECOMPUTE, err) ||
        dcpk_gpt_layer(gpt, layer, &pass->kept[i], gpt->scratch.hidden[1], err))
        return err->status;
    return dcpk_gpt_leave(gpt, layer->unit, DCPK_RECOMPUTE, err);
}

static dcpk_status layer_backward(struct dcpk_gpt *gpt, struct gpt_pass *pass, int64_t i,
                                  struct dcpk_error *err)
{
    const struct gpt_layer *layer = &gpt->layers[i];

    if (gpt->options.config->fsdp.recomputes && layer_recompute(gpt, pass, i, err))
        return err->status;
    if (dcpk_gpt_enter(gpt, layer->unit, DCPK_BACKWARD, err) ||
        dcpk_gpt_layer_backward(gpt, layer, &pass->kept[i], gpt->d, err))
        return err->status;
    return dcpk_gpt_leave(gpt, layer->unit, DCPK_BACKWARD, err);
}

static void tokens_add(struct dcpk_gpt *gpt, const struct gpt_pass *pass)
{
    for (int64_t i = 0; gpt->is_last && i < gpt->size.rows; i++)
        gpt->loss.tokens += pass->mask[i] != 0;
}

dcpk_status dcpk_gpt_forward(struct dcpk_gpt *gpt, struct gpt_pass *pass, struct dcpk_error *err)
{
    tokens_add(gpt, pass);
    if (dcpk_gpt_enter(gpt, -1, DCPK_FORWARD, err))
        return err->status;
    if (gpt->is_first && dcpk_gpt_embed(gpt, pass->tokens, pass->kept[0].input, err))
        return err->status;
    for (int64_t i = 0; i < gpt->n_layers; i++)
        if (layer_forward(gpt, pass, i, err))
            return err->status;
    if (gpt->is_last && (dcpk_gpt_head(gpt, &gpt->heads[0], pass, &gpt->loss.sum, err) ||
                         dcpk_gpt_mtp(gpt, pass, err)))
        return err->status;
    return dcpk_gpt_leave(gpt, -1, DCPK_FORWARD, err);
}

dcpk_status dcpk_gpt_backward(struct dcpk_gpt *gpt, struct gpt_pass *pass, struct dcpk_error *err)
{
    const void *more = NULL;

    if (dcpk_gpt_enter(gpt, -1, DCPK_BACKWARD, err))
        return err->status;
    if (gpt->is_last && (dcpk_gpt_mtp_backward(gpt, pass, &more, err) ||
                         dcpk_gpt_head_backward(gpt, &gpt->heads[0], pass, more, gpt->d, err)))
        return err->status;
    for (int64_t i = gpt->n_layers - 1; i >= 0; i--)
        if (layer_backward(gpt, pass, i, err))
            return err->status;
    if (gpt->is_first && dcpk_gpt_embed_backward(gpt, pass->tokens, gpt->d, err))
        return err->status;
    return dcpk_gpt_leave(gpt, -1, DCPK_BACKWARD, err);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* gpt_mtp.c - multi-token prediction: layers that predict one token further each. */
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
#include "lib/train/gpt_priv.h"

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
        dcpk_gpt_enter(gpt, layer->unit, DCPK_FORWARD, err) ||
        dcpk_gpt_layer(gpt, layer, &mtp->kept, gpt->heads[i + 1].input, err) ||
        dcpk_gpt_leave(gpt, layer->unit, DCPK_FORWARD, err))
        return err->status;
    return dcpk_gpt_head(gpt, &gpt->heads[i + 1], ahead, &gpt->loss.mtp_sum, err);
}

dcpk_status dcpk_gpt_mtp(struct dcpk_gpt *gpt, struct gpt_pass *pass, struct dcpk_error *err)
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

dcpk_status dcpk_gpt_mtp_backward(struct dcpk_gpt *gpt, struct gpt_pass *pass, const void **more,
                                  struct dcpk_error *err)
{
    *more = NULL;
    for (int64_t i = gpt->n_mtp - 1; i >= 0; i--) {
        const struct gpt_layer *layer = &gpt->layers[gpt->n_layers + i];
        void *d = gpt->scratch.d_ahead[i % 2];

        if (dcpk_gpt_head_backward(gpt, &gpt->heads[i + 1], &pass->ahead[i], *more, d, err) ||
            dcpk_gpt_enter(gpt, layer->unit, DCPK_BACKWARD, err) ||
            dcpk_gpt_layer_backward(gpt, layer, &gpt->mtp[i].kept, d, err) ||
            dcpk_gpt_leave(gpt, layer->unit, DCPK_BACKWARD, err) ||
            joined_backward(gpt, i, &pass->ahead[i], d, err))
            return err->status;
        *more = d;
    }
    return DCPK_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* norms.c - weights of norms plus one, or less one, as views that are computed. */
#include "lib/model/norms.h"

#include <string.h>

#include "lib/base/order.h"
#include "lib/base/text.h"

bool dcpk_norms_are_centered(const struct dcpk_value *attrs)
{
    return dcpk_value_is_true(attrs, DCPK_ARG_NORM_1P) ||
           dcpk_value_is_true(attrs, DCPK_ARG_ZERO_CENTERED);
}

bool dcpk_name_is_norm_weight(const char *canonical)
{
    static const char weight[] = ".weight";
    const char *end, *module;

    if (dcpk_ends_with(canonical, ".layer_norm_weight")) /* fused with the linear layer after it */
        return true;
    if (!dcpk_ends_with(canonical, weight) || dcpk_ends_with(canonical, ".mixer.norm.weight"))
        return false;
    end = canonical + strlen(canonical) - strlen(weight);
    for (module = end; module > canonical && module[-1] != '.';)
        module--;
    return (size_t)(end - module) >= strlen("norm") && strncmp(end - 4, "norm", 4) == 0;
}

/* The tensor `src` plus the addend; that of a sum with the opposite is its own summand. */
static dcpk_status add_sum(struct dcpk_checkpoint *ckpt, uint32_t src, float addend, uint32_t *view,
                           struct dcpk_error *err)
{
    const struct dcpk_tensor *values = &ckpt->tensors[src];
    const struct dcpk_computed how = {.values = src, .scales = DCPK_NO_SCALES, .addend = addend};
    const struct dcpk_tensor sum = {
        .key = values->key, .dtype = DCPK_F32, .rank = values->rank, .shape = values->shape};

    if (values->computed != NULL && values->computed->addend == -addend &&
        values->computed->scales == DCPK_NO_SCALES && values->computed->product.rank == 0) {
        *view = values->computed->values;
        return DCPK_OK;
    }
    if (values->computed != NULL || !dcpk_dtype_is_float(values->dtype))
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "'%s', a norm's weight, is not of plain floats",
                         values->key);
    return dcpk_checkpoint_add_computed(ckpt, &sum, &how, view, err);
}

dcpk_status dcpk_norm_add(struct dcpk_checkpoint *ckpt, const struct dcpk_model_tensor *tensor,
                          float addend, struct dcpk_arena *arena, struct dcpk_model_tensor *sum,
                          struct dcpk_error *err)
{
    struct dcpk_piece *pieces = dcpk_arena_array(arena, tensor->n_pieces, sizeof *pieces, err);

    if (pieces == NULL)
        return err->status;
    for (size_t i = 0; i < tensor->n_pieces; i++) {
        const struct dcpk_piece *piece = &tensor->pieces[i];

        pieces[i] = *piece;
        if (i > 0 && piece->src == tensor->pieces[i - 1].src)
            pieces[i].src = pieces[i - 1].src;
        else if (piece->src != DCPK_PIECE_FILL &&
                 add_sum(ckpt, piece->src, addend, &pieces[i].src, err))
            return err->status;
    }
    *sum = *tensor;
    sum->pieces = pieces;
    return DCPK_OK;
}

/* The parameter's master and weight. */
static dcpk_status param_center(struct dcpk_model *model, const struct dcpk_param *param,
                                float addend, struct dcpk_error *err)
{
    const struct dcpk_model_tensor *value = dcpk_model_value(model, param);
    static const enum dcpk_role roles[] = {DCPK_WEIGHT, DCPK_MASTER};
    struct dcpk_model_tensor sum;

    if (value == NULL)
        return DCPK_OK;
    if (dcpk_norm_add(model->ckpt, value, addend, model->arena, &sum, err))
        return err->status;
    for (size_t i = 0; i < DCPK_COUNT(roles); i++) {
        const uint32_t tensor = param->tensor[roles[i]];

        if (tensor == DCPK_NO_TENSOR)
            continue;
        model->tensors[tensor].pieces = sum.pieces;
        model->tensors[tensor].n_pieces = sum.n_pieces;
    }
    return DCPK_OK;
}

dcpk_status dcpk_norms_center(struct dcpk_model *model, bool centered, struct dcpk_error *err)
{
    if (dcpk_norms_are_centered(dcpk_value_attrs(model->args)) == centered)
        return DCPK_OK;
    for (size_t p = 0; p < model->n_params; p++)
        if (dcpk_name_is_norm_weight(model->params[p].name) &&
            param_center(model, &model->params[p], centered ? -1.0F : 1.0F, err))
            return err->status;
    if (dcpk_model_put_arg(model, DCPK_ARG_NORM_1P, dcpk_value_bool(centered), err))
        return err->status;
    return dcpk_model_put_arg(model, DCPK_ARG_ZERO_CENTERED, dcpk_value_bool(centered), err);
}

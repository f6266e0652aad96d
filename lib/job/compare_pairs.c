/* SPDX-License-Identifier: Apache-2.0 */
/* compare_pairs.c - lists of two tensors whose elements are compared. */
#include "lib/base/alloc.h"
#include "lib/job/compare_priv.h"

dcpk_status dcpk_pairs_add(struct dcpk_tensor_pairs *pairs, const struct dcpk_tensor_pair *pair,
                           struct dcpk_error *err)
{
    if (dcpk_grow(&pairs->list, &pairs->capacity, pairs->n, sizeof *pairs->list, err))
        return err->status;
    pairs->list[pairs->n++] = *pair;
    return DCPK_OK;
}

dcpk_status dcpk_pairs_compare(const struct dcpk_tensor_pairs *pairs,
                               const struct dcpk_pairs_options *options,
                               struct dcpk_compare *results, struct dcpk_exec_stats *stats,
                               struct dcpk_error *err)
{
    const size_t n = pairs->n;
    struct dcpk_view *views = dcpk_alloc_array(2 * n, sizeof *views, err);
    const struct dcpk_view_pairs view_pairs = {
        options->left, options->right, views, views + n, n, options->sample_bytes};
    dcpk_status st;

    if (views == NULL)
        return err->status;
    for (size_t i = 0; i < n; i++) {
        views[i] = pairs->list[i].view[0];
        views[n + i] = pairs->list[i].view[1];
    }
    if (options->is_measured)
        st = dcpk_exec_measure(&view_pairs, options->tolerance, results, stats, err);
    else
        st = dcpk_exec_compare(&view_pairs, results, stats, err);
    dcpk_free(views);
    return st;
}

/* Weights of a run that gathers them in FP8 or FP4 are not rounded masters. */
static bool has_rounded_weights(const struct dcpk_model *model)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(model->args);

    return !dcpk_value_is_true(attrs, "fp8_param_gather") &&
           !dcpk_value_is_true(attrs, "fp4_param_gather");
}

static bool has_both(const struct dcpk_param *param)
{
    return param->tensor[DCPK_WEIGHT] != DCPK_NO_TENSOR &&
           param->tensor[DCPK_MASTER] != DCPK_NO_TENSOR;
}

dcpk_status dcpk_pairs_add_masters(struct dcpk_tensor_pairs *pairs, const struct dcpk_model *model,
                                   const char *part, struct dcpk_error *err)
{
    if (!has_rounded_weights(model))
        return DCPK_OK;
    for (size_t p = 0; p < model->n_params; p++) {
        const struct dcpk_param *param = &model->params[p];
        struct dcpk_tensor_pair pair = {.name = param->name, .part = part};

        if (!has_both(param))
            continue;
        pair.view[0] = dcpk_model_view(&model->tensors[param->tensor[DCPK_WEIGHT]]);
        pair.view[1] = dcpk_model_view(&model->tensors[param->tensor[DCPK_MASTER]]);
        if (!dcpk_view_same_shape(&pair.view[0], &pair.view[1]))
            return dcpk_fail(err, DCPK_EMISMATCH, "'%s': its master has another shape",
                             param->name);
        if (dcpk_pairs_add(pairs, &pair, err))
            return err->status;
    }
    return DCPK_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* compare_masters.c - compares a model's weights with their rounded masters. */
#include <inttypes.h>

#include "lib/base/alloc.h"
#include "lib/job/compare_priv.h"

typedef bool wants_param(const struct dcpk_model *model, const struct dcpk_param *param);

static bool has_both(const struct dcpk_model *model, const struct dcpk_param *param)
{
    (void)model;
    return param->tensor[DCPK_WEIGHT] != DCPK_NO_TENSOR &&
           param->tensor[DCPK_MASTER] != DCPK_NO_TENSOR;
}

/* One of those that stand for their neighbours in memory; the first is the word embedding, which
 * may have a bucket of its own. */
static bool is_sample(const struct dcpk_model *model, const struct dcpk_param *param)
{
    return has_both(model, param) &&
           (model->tensors[param->tensor[DCPK_WEIGHT]].rank == 1 || param->place == 0 ||
            (param->expert == 0 && param->tp_axis == 1));
}

static dcpk_status collect_pairs(const struct dcpk_model *model, wants_param *wants,
                                 struct dcpk_tensor_pairs *pairs, struct dcpk_error *err)
{
    for (size_t p = 0; p < model->n_params; p++) {
        const struct dcpk_param *param = &model->params[p];
        struct dcpk_tensor_pair pair = {.name = param->name};

        if (!wants(model, param))
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

/* What does not fit. */
struct misfits {
    size_t n_compared, n_different; /* parameters */
    const char *first;              /* the first that differs */
    struct dcpk_compare how;
};

static void find_misfits(const struct dcpk_tensor_pairs *pairs, const struct dcpk_compare *results,
                         struct misfits *found)
{
    found->n_compared = pairs->n;
    for (size_t i = 0; i < pairs->n; i++)
        if (!results[i].equal && found->n_different++ == 0) {
            found->first = pairs->list[i].name;
            found->how = results[i];
        }
}

static dcpk_status compare_masters(const struct dcpk_model *model, wants_param *wants,
                                   const struct dcpk_env *env, struct misfits *found,
                                   struct dcpk_error *err)
{
    struct dcpk_tensor_pairs pairs = {0};
    struct dcpk_pairs_options how = {0};
    struct dcpk_compare *results = NULL;
    dcpk_status st = collect_pairs(model, wants, &pairs, err);

    *found = (struct misfits){0};
    if (st != DCPK_OK || pairs.n == 0)
        goto out;
    results = dcpk_alloc_array(pairs.n, sizeof *results, err);
    if (results == NULL) {
        st = err->status;
        goto out;
    }
    st = dcpk_exec_new(model->ckpt, env, &how.left, err);
    if (st != DCPK_OK)
        goto out;
    how.right = how.left;
    st = dcpk_pairs_compare(&pairs, &how, results, NULL, err);
    if (st == DCPK_OK)
        find_misfits(&pairs, results, found);
out:
    dcpk_exec_free(how.left);
    dcpk_free(results);
    dcpk_free(pairs.list);
    return st;
}

dcpk_status dcpk_prove_masters(const struct dcpk_model *model, const struct dcpk_env *env,
                               struct dcpk_error *err)
{
    struct misfits found;
    dcpk_status st = compare_masters(model, has_both, env, &found, err);

    if (st == DCPK_OK && found.n_compared == 0)
        st = dcpk_fail(err, DCPK_EMISMATCH,
                       "there is no weight with a master: nothing can be proven");
    if (st == DCPK_OK && found.n_different > 0)
        st = dcpk_fail_fix(
            err, DCPK_EMISMATCH, DCPK_FIX_WEIGHTS_ONLY,
            "'%s': the weight is not its rounded master in %" PRIu64
            " elements, the first is number %" PRId64
            " (%zu of %zu parameters differ): the optimizer's state is not where it was inferred, "
            "or the weights were changed after the last step",
            found.first, found.how.n_different, found.how.first_different, found.n_different,
            found.n_compared);
    if (st != DCPK_OK)
        dcpk_context(err, "proving the decoded optimizer state of '%s'",
                     dcpk_store_path(model->ckpt->store));
    return st;
}

dcpk_status dcpk_sample_masters(const struct dcpk_model *model, const struct dcpk_env *env,
                                struct dcpk_error *err)
{
    struct misfits found;

    if (compare_masters(model, is_sample, env, &found, err))
        return err->status;
    if (found.n_different > 0)
        dcpk_checkpoint_note(
            model->ckpt,
            "%zu of %zu weights looked at are not their rounded masters, the first is '%s': either "
            "they were changed after the last step, or Megatron saved the optimizer's state at "
            "wrong places (core 0.15 to 0.19 do that in fully_reshardable when DDP buckets are "
            "padded); then use a save in dp_reshardable, or one of a later Megatron",
            found.n_different, found.n_compared, found.first);
    return DCPK_OK;
}

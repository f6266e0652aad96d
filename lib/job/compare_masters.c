/* SPDX-License-Identifier: Apache-2.0 */
/* compare_masters.c - compares a model's weights with their rounded masters. */
#include <inttypes.h>

#include "lib/base/alloc.h"
#include "lib/job/compare_priv.h"

static bool has_both(const struct dcpk_param *param)
{
    return param->tensor[DCPK_WEIGHT] != DCPK_NO_TENSOR &&
           param->tensor[DCPK_MASTER] != DCPK_NO_TENSOR;
}

/* One of those that stand for their neighbours in memory; the first is the word embedding, which
 * may have a bucket of its own. */
static bool is_sample(const struct dcpk_model *model, const struct dcpk_param *param)
{
    return model->tensors[param->tensor[DCPK_WEIGHT]].rank == 1 || param->place == 0 ||
           (param->expert == 0 && param->tp_axis == 1);
}

dcpk_status dcpk_pairs_add_masters(struct dcpk_tensor_pairs *pairs, const struct dcpk_model *model,
                                   bool only_samples, const char *part, struct dcpk_error *err)
{
    for (size_t p = 0; p < model->n_params; p++) {
        const struct dcpk_param *param = &model->params[p];
        struct dcpk_tensor_pair pair = {.name = param->name, .part = part};

        if (!has_both(param) || (only_samples && !is_sample(model, param)))
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

static dcpk_status find_misfits(const struct dcpk_tensor_pairs *pairs,
                                const struct dcpk_model *model, const struct dcpk_env *env,
                                struct misfits *found, struct dcpk_error *err)
{
    struct dcpk_compare *results = dcpk_alloc_array(pairs->n, sizeof *results, err);
    struct dcpk_pairs_options how = {0};
    dcpk_status st;

    if (results == NULL)
        return err->status;
    st = dcpk_exec_new(model->ckpt, env, &how.left, err);
    how.right = how.left;
    if (st == DCPK_OK)
        st = dcpk_pairs_compare(pairs, &how, results, NULL, err);
    dcpk_exec_free(how.left);
    found->n_compared = pairs->n;
    for (size_t i = 0; i < pairs->n && st == DCPK_OK; i++)
        if (!results[i].equal && found->n_different++ == 0) {
            found->first = pairs->list[i].name;
            found->how = results[i];
        }
    dcpk_free(results);
    return st;
}

static dcpk_status model_check_masters(const struct dcpk_model *model, bool only_samples,
                                       const struct dcpk_env *env, struct misfits *found,
                                       struct dcpk_error *err)
{
    struct dcpk_tensor_pairs pairs = {0};
    dcpk_status st = dcpk_pairs_add_masters(&pairs, model, only_samples, NULL, err);

    *found = (struct misfits){0};
    if (st == DCPK_OK && pairs.n > 0)
        st = find_misfits(&pairs, model, env, found, err);
    dcpk_free(pairs.list);
    return st;
}

dcpk_status dcpk_prove_masters(const struct dcpk_model *model, const struct dcpk_env *env,
                               struct dcpk_error *err)
{
    struct misfits found;
    dcpk_status st = model_check_masters(model, false, env, &found, err);

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

    if (model_check_masters(model, true, env, &found, err))
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

dcpk_status dcpk_check_masters(const struct dcpk_model *model, const struct dcpk_env *env,
                               struct dcpk_error *err)
{
    if (model->needs_proof)
        return dcpk_prove_masters(model, env, err);
    if (model->needs_sample)
        return dcpk_sample_masters(model, env, err);
    return DCPK_OK;
}

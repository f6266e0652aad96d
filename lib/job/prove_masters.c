/* SPDX-License-Identifier: Apache-2.0 */
/* prove_masters.c - weights against their rounded masters. */
#include "lib/job/prove_masters.h"

#include <inttypes.h>

#include "lib/base/alloc.h"
#include "lib/model/model.h"

/* Weights, and behind them the masters of the same parameters. */
struct pairs {
    struct dcpk_view *views;
    uint32_t *params;
    struct dcpk_compare *results;
    size_t n;
};

static struct dcpk_view view_of(const struct dcpk_model_tensor *t)
{
    return (struct dcpk_view){.dtype = t->dtype,
                              .rank = t->rank,
                              .shape = t->shape,
                              .pieces = t->pieces,
                              .n_pieces = t->n_pieces};
}

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

typedef bool wants_param(const struct dcpk_model *model, const struct dcpk_param *param);

static dcpk_status collect(const struct dcpk_model *model, wants_param *wants, struct pairs *pairs,
                           struct dcpk_error *err)
{
    size_t n = 0;

    for (size_t p = 0; p < model->n_params; p++)
        n += wants(model, &model->params[p]);
    pairs->views = dcpk_alloc_array(2 * n, sizeof *pairs->views, err);
    if (pairs->views == NULL)
        return err->status;
    pairs->params = dcpk_alloc_array(n, sizeof *pairs->params, err);
    if (pairs->params == NULL)
        return err->status;
    pairs->results = dcpk_alloc_array(n, sizeof *pairs->results, err);
    if (pairs->results == NULL)
        return err->status;
    for (uint32_t p = 0; p < model->n_params; p++) {
        const struct dcpk_param *param = &model->params[p];

        if (!wants(model, param))
            continue;
        pairs->params[pairs->n] = p;
        pairs->views[pairs->n] = view_of(&model->tensors[param->tensor[DCPK_WEIGHT]]);
        pairs->views[n + pairs->n] = view_of(&model->tensors[param->tensor[DCPK_MASTER]]);
        if (!dcpk_view_same_shape(&pairs->views[pairs->n], &pairs->views[n + pairs->n]))
            return dcpk_fail(err, DCPK_EMISMATCH, "'%s': its master has another shape",
                             param->name);
        pairs->n++;
    }
    return DCPK_OK;
}

/* Which parameters are compared, and what does not fit. */
struct comparison {
    wants_param *wants;
    size_t n_compared, n_different; /* parameters */
    uint32_t param;                 /* the first that differs */
    struct dcpk_compare how;
};

static void find_different(const struct pairs *pairs, struct comparison *c)
{
    c->n_compared = pairs->n;
    for (size_t i = 0; i < pairs->n; i++)
        if (!pairs->results[i].equal && c->n_different++ == 0) {
            c->param = pairs->params[i];
            c->how = pairs->results[i];
        }
}

/* found: its wants is set. */
static dcpk_status compare(const struct dcpk_model *model, const struct dcpk_env *options,
                           struct comparison *found, struct dcpk_error *err)
{
    struct dcpk_exec *exec = NULL;
    struct pairs pairs = {0};
    dcpk_status st = collect(model, found->wants, &pairs, err);

    if (st == DCPK_OK && pairs.n > 0)
        st = dcpk_exec_new(model->ckpt, options, &exec, err);
    if (st == DCPK_OK && pairs.n > 0)
        st = dcpk_exec_compare(
            &(struct dcpk_view_pairs){exec, exec, pairs.views, pairs.views + pairs.n, pairs.n},
            pairs.results, NULL, err);
    if (st == DCPK_OK)
        find_different(&pairs, found);
    if (st == DCPK_OK && pairs.n == 0 && found->wants == has_both)
        st = dcpk_fail(err, DCPK_EMISMATCH,
                       "there is no weight with a master: nothing can be proven");
    dcpk_exec_free(exec);
    dcpk_free(pairs.views);
    dcpk_free(pairs.params);
    dcpk_free(pairs.results);
    return st;
}

dcpk_status dcpk_prove_masters(const struct dcpk_model *model, const struct dcpk_env *options,
                               struct dcpk_error *err)
{
    struct comparison found = {.wants = has_both};
    dcpk_status st = compare(model, options, &found, err);

    if (st == DCPK_OK && found.n_different > 0)
        st = dcpk_fail_fix(
            err, DCPK_EMISMATCH, DCPK_FIX_WEIGHTS_ONLY,
            "'%s': the weight is not its rounded master in %" PRIu64
            " elements, the first is number %" PRId64
            " (%zu of %zu parameters differ): the optimizer's state is not where it was inferred, "
            "or the weights were changed after the last step",
            model->params[found.param].name, found.how.n_different, found.how.first_different,
            found.n_different, found.n_compared);
    if (st != DCPK_OK)
        dcpk_context(err, "proving the decoded optimizer state of '%s'",
                     dcpk_store_path(model->ckpt->store));
    return st;
}

dcpk_status dcpk_sample_masters(const struct dcpk_model *model, const struct dcpk_env *options,
                                struct dcpk_error *err)
{
    struct comparison found = {.wants = is_sample};
    const dcpk_status st = compare(model, options, &found, err);

    if (st == DCPK_OK && found.n_different > 0)
        dcpk_checkpoint_note(
            model->ckpt,
            "%zu of %zu weights looked at are not their rounded masters, the first is '%s': either "
            "they were changed after the last step, or Megatron saved the optimizer's state at "
            "wrong places (core 0.15 to 0.19 do that in fully_reshardable when DDP buckets are "
            "padded); then use a save in dp_reshardable, or one of a later Megatron",
            found.n_different, found.n_compared, model->params[found.param].name);
    return st;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* compare_elements.c - gathers paired tensors, and has their elements compared. */
#include <inttypes.h>

#include "lib/base/alloc.h"
#include "lib/job/compare_priv.h"

/* ---- lists of two tensors whose elements are compared ---- */

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
    bool *rounds = dcpk_alloc_array(n, sizeof *rounds, err);
    const struct dcpk_view_pairs view_pairs = {
        options->left, options->right, views, views + n, n, rounds, options->sample_bytes};

    if (views == NULL || rounds == NULL)
        goto out;
    for (size_t i = 0; i < n; i++) {
        rounds[i] = pairs->list[i].rounds;
        views[i] = pairs->list[i].view[0];
        views[n + i] = pairs->list[i].view[1];
    }
    if (options->is_measured)
        (void)dcpk_exec_measure(&view_pairs, options->tolerance, results, stats, err);
    else
        (void)dcpk_exec_compare(&view_pairs, results, stats, err);
out:
    dcpk_free(rounds);
    dcpk_free(views);
    return err->status;
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

static dcpk_status count_bytes(struct dcpk_comparing *c, const struct dcpk_tensor_pairs *pairs,
                               struct dcpk_error *err)
{
    for (size_t i = 0; i < pairs->n; i++) {
        const struct dcpk_view *view = &pairs->list[i].view[0];
        int64_t n_elems = 0;

        if (dcpk_shape_count(view->shape, view->rank, &n_elems, err))
            return err->status;
        c->report->tensor_bytes += (uint64_t)n_elems * dcpk_dtype_bytes(view->dtype);
    }
    return DCPK_OK;
}

typedef dcpk_status take_result(struct dcpk_comparing *c, const struct dcpk_tensor_pair *pair,
                                const struct dcpk_compare *result, struct dcpk_error *err);

/* Count the elements of A that are not finite, and those of them that are in B. */
static dcpk_status count_not_finite(struct dcpk_compare_report *report,
                                    const struct dcpk_tensor_pair *pair,
                                    const struct dcpk_compare *result, struct dcpk_error *err)
{
    const uint64_t ours = result->n_not_finite[DCPK_A], theirs = result->n_not_finite[DCPK_B];

    report->n_not_finite += ours;
    if (ours <= theirs)
        return DCPK_OK;
    report->n_overflowed += ours - theirs;
    if (report->first_overflowed == NULL)
        report->first_overflowed = dcpk_arena_strdup(report->arena, pair->name, err);
    if (report->first_overflowed == NULL)
        return err->status;
    return DCPK_OK;
}

static dcpk_status add_elements(struct dcpk_comparing *c, const struct dcpk_tensor_pair *pair,
                                const struct dcpk_compare *result, struct dcpk_error *err)
{
    const struct dcpk_view *const view[2] = {&pair->view[DCPK_A], &pair->view[DCPK_B]};
    struct dcpk_part_result *part =
        &c->report->parts[dcpk_comparing_part(pair->name, pair->part, true)];
    struct dcpk_differences *list = &c->report->differences;
    struct dcpk_difference d = {
        .kind = DCPK_ELEMENTS_DIFFER, .name = pair->name, .part = pair->part, .measured = *result};
    struct dcpk_view *views;

    if (count_not_finite(c->report, pair, result, err))
        return err->status;
    if (result->max_rel > part->max_rel)
        part->max_rel = result->max_rel;
    c->report->n_rounded += result->equal && pair->rounds && result->n_unequal_bits > 0;
    if (result->equal && (result->n_unequal_bits == 0 || pair->rounds))
        return DCPK_OK;
    views = dcpk_arena_array(c->report->arena, 2, sizeof *views, err);
    if (views == NULL)
        return err->status;
    views[DCPK_A] = pair->view[DCPK_A];
    views[DCPK_B] = pair->view[DCPK_B];
    d.views = views;
    if (result->equal)
        list = &c->report->tolerated;
    return dcpk_comparing_add_tensor(c, list, &d, view, err);
}

static dcpk_status refuse_masters(struct dcpk_comparing *c, const struct dcpk_tensor_pair *pair,
                                  const struct dcpk_compare *result, struct dcpk_error *err)
{
    if (result->equal)
        return DCPK_OK;
    return dcpk_comparing_refuse(c, pair->name, err,
                                 "'%s': %" PRIu64 " elements of the master differ when rounded "
                                 "from the stored weight (in the %s), the first is number %" PRId64,
                                 pair->name, result->n_different, pair->part,
                                 result->first_different);
}

/* Compare pairs, and take the results. */
static dcpk_status compare_list(struct dcpk_comparing *c, const struct dcpk_tensor_pairs *pairs,
                                const struct dcpk_pairs_options *options, take_result *take,
                                struct dcpk_error *err)
{
    struct dcpk_compare *results = dcpk_alloc_array(pairs->n, sizeof *results, err);
    dcpk_status st;

    if (results == NULL)
        return err->status;
    st = count_bytes(c, pairs, err);
    if (st == DCPK_OK)
        st = dcpk_pairs_compare(pairs, options, results, &c->report->stats, err);
    for (size_t i = 0; i < pairs->n && st == DCPK_OK; i++)
        st = take(c, &pairs->list[i], &results[i], err);
    dcpk_free(results);
    return st;
}

/* The rounded masters of a side must be its weights: that is what training would continue from. */
static dcpk_status compare_own_masters(struct dcpk_comparing *c, enum dcpk_side s,
                                       const char *side_name, struct dcpk_error *err)
{
    const struct dcpk_compared *side = &c->side[s];
    const struct dcpk_pairs_options options = {.left = side->exec, .right = side->exec};
    struct dcpk_tensor_pairs pairs = {0};
    dcpk_status st = dcpk_pairs_add_masters(&pairs, side->model, side_name, err);

    if (st == DCPK_OK)
        st = compare_list(c, &pairs, &options, refuse_masters, err);
    c->report->n_masters += pairs.n;
    dcpk_free(pairs.list);
    return st;
}

/* Begins with two executors, which the caller frees. */
static dcpk_status gather_pairs(struct dcpk_comparing *c, bool is_measured, struct dcpk_error *err)
{
    struct dcpk_compared *a = &c->side[DCPK_A], *b = &c->side[DCPK_B];
    struct dcpk_pairs_options options = {.is_measured = is_measured,
                                         .tolerance = c->options->tolerance};

    c->report->n_tensors = c->pairs.n;
    if (dcpk_exec_new(a->ckpt, &c->options->env, &a->exec, err) ||
        dcpk_exec_new(b->ckpt, &c->options->env, &b->exec, err))
        return err->status;
    options.left = a->exec;
    options.right = b->exec;
    return compare_list(c, &c->pairs, &options, add_elements, err);
}

static void free_execs(struct dcpk_comparing *c)
{
    for (int s = DCPK_B; s >= DCPK_A; s--) {
        dcpk_exec_free(c->side[s].exec);
        c->side[s].exec = NULL;
    }
}

dcpk_status dcpk_comparing_measure(struct dcpk_comparing *c, struct dcpk_error *err)
{
    dcpk_status st = gather_pairs(c, true, err);

    if (st == DCPK_OK)
        st = dcpk_comparing_worst(c, err);
    free_execs(c);
    return st;
}

dcpk_status dcpk_comparing_bits(struct dcpk_comparing *c, struct dcpk_error *err)
{
    dcpk_status st = gather_pairs(c, false, err);

    if (st == DCPK_OK)
        st = compare_own_masters(c, DCPK_B, "source", err);
    if (st == DCPK_OK)
        st = compare_own_masters(c, DCPK_A, "checkpoint", err);
    free_execs(c);
    return st;
}

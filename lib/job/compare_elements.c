/* SPDX-License-Identifier: Apache-2.0 */
/* compare_elements.c - gathers paired tensors, and has their elements compared. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/job/compare_priv.h"
#include "lib/tensor/elem.h"

/* ---- the worst ---- */

#define MAX_DIGITS 17 /* of a value's text */

/* Element `at`, row-major, of a tensor of that shape, as a box of one. */
static void box_of(const int64_t *shape, int rank, int64_t at, struct dcpk_box *box)
{
    box->rank = rank;
    for (int axis = rank; axis-- > 0;) {
        box->offset[axis] = at % shape[axis];
        box->extent[axis] = 1;
        at /= shape[axis];
    }
}

static dcpk_status read_elem(struct dcpk_exec *exec, const struct dcpk_view *view,
                             const struct dcpk_box *box, struct dcpk_elem *elem,
                             struct dcpk_error *err)
{
    struct dcpk_view_reader *reader = NULL;
    uint8_t data[16] = {0};
    dcpk_status st;

    if (dcpk_view_reader_new(exec, view, &reader, err))
        return err->status;
    st = dcpk_view_reader_read(reader, box, data, err);
    dcpk_view_reader_free(reader);
    if (st == DCPK_OK)
        *elem = dcpk_elem_load(view->dtype, data);
    return st;
}

static void format_elem(const struct dcpk_elem *e, int digits, char text[DCPK_VALUE_BYTES])
{
    switch (e->kind) {
    case DCPK_ELEM_FLOAT:
        snprintf(text, DCPK_VALUE_BYTES, "%.*g", digits, e->re);
        break;
    case DCPK_ELEM_COMPLEX:
        snprintf(text, DCPK_VALUE_BYTES, "%.*g%+.*gj", digits, e->re, digits, e->im);
        break;
    case DCPK_ELEM_INT:
        snprintf(text, DCPK_VALUE_BYTES, "%" PRId64, e->i);
        break;
    case DCPK_ELEM_UINT:
    case DCPK_ELEM_BOOL:
    case DCPK_ELEM_BITS:
        snprintf(text, DCPK_VALUE_BYTES, "%" PRIu64, e->u);
        break;
    }
}

/* Three digits, or as many more as it takes to see that they differ. */
static void format_elems(const struct dcpk_elem elem[2], char text[2][DCPK_VALUE_BYTES])
{
    int digits = 3;

    do {
        format_elem(&elem[DCPK_A], digits, text[DCPK_A]);
        format_elem(&elem[DCPK_B], digits, text[DCPK_B]);
    } while (strcmp(text[DCPK_A], text[DCPK_B]) == 0 && ++digits <= MAX_DIGITS);
}

dcpk_status dcpk_pair_place(const struct dcpk_tensor_pair *pair, struct dcpk_exec *exec, int64_t at,
                            char place[DCPK_PLACE_BYTES], char values[2][DCPK_VALUE_BYTES],
                            struct dcpk_error *err)
{
    struct dcpk_elem elem[2];
    struct dcpk_box box;

    box_of(pair->view[0].shape, pair->view[0].rank, at, &box);
    for (int s = 0; s < 2; s++)
        if (read_elem(exec, &pair->view[s], &box, &elem[s], err))
            return err->status;
    format_elems(elem, values);
    dcpk_shape_format(box.offset, box.rank, place, DCPK_PLACE_BYTES);
    return DCPK_OK;
}

/* The stored tensor of A that the element is of, and its place there. Fills are stored nowhere. */
static dcpk_status put_stored_key(struct dcpk_comparing *c, const struct dcpk_box *box,
                                  struct dcpk_difference *d, struct dcpk_error *err)
{
    const struct dcpk_view *view = &d->views[DCPK_A];
    struct dcpk_box from = *box, to;
    char text[256];

    d->place.key = d->name;
    for (size_t i = 0; i < view->n_pieces; i++) {
        const struct dcpk_piece *piece = &view->pieces[i];

        if (piece->src == DCPK_PIECE_FILL || !dcpk_piece_clip(piece, box, &from, &to))
            continue;
        d->place.key = c->side[DCPK_A].ckpt->tensors[piece->src].key;
        break;
    }
    return dcpk_comparing_print(c, &d->place.index, err, "%s",
                                dcpk_shape_format(from.offset, from.rank, text, sizeof text));
}

static dcpk_status find_furthest(struct dcpk_comparing *c, struct dcpk_difference *d,
                                 struct dcpk_error *err)
{
    int64_t at = d->measured.worst;
    char values[2][DCPK_VALUE_BYTES];
    struct dcpk_elem elem[2];
    struct dcpk_box box;

    if (at < 0)
        at = d->measured.first_different;
    if (at < 0)
        return DCPK_OK;
    box_of(d->views[DCPK_A].shape, d->views[DCPK_A].rank, at, &box);
    for (int s = 0; s < 2; s++)
        if (read_elem(c->side[s].exec, &d->views[s], &box, &elem[s], err))
            return err->status;
    format_elems(elem, values);
    if (dcpk_comparing_print(c, &d->place.a, err, "%s", values[DCPK_A]) ||
        dcpk_comparing_print(c, &d->place.b, err, "%s", values[DCPK_B]) ||
        put_stored_key(c, &box, d, err))
        return err->status;
    return DCPK_OK;
}

static int by_distance(const void *left, const void *right)
{
    const struct dcpk_difference *a = *(struct dcpk_difference *const *)left;
    const struct dcpk_difference *b = *(struct dcpk_difference *const *)right;
    const bool a_has_nan = a->measured.n_nan > 0, b_has_nan = b->measured.n_nan > 0;

    if ((a->kind == DCPK_ELEMENTS_DIFFER) != (b->kind == DCPK_ELEMENTS_DIFFER))
        return DCPK_THREE_WAY(a->kind == DCPK_ELEMENTS_DIFFER, b->kind == DCPK_ELEMENTS_DIFFER);
    if (a->kind == DCPK_ELEMENTS_DIFFER && a_has_nan != b_has_nan)
        return DCPK_THREE_WAY(b_has_nan, a_has_nan);
    if (a->kind == DCPK_ELEMENTS_DIFFER && a->measured.max_rel != b->measured.max_rel)
        return DCPK_THREE_WAY(b->measured.max_rel, a->measured.max_rel);
    return DCPK_THREE_WAY(a->number, b->number);
}

/* A list's differences in order. */
static dcpk_status sort_list(struct dcpk_differences *list, struct dcpk_error *err)
{
    struct dcpk_difference **all = dcpk_alloc_array((size_t)list->n, sizeof *all, err);
    size_t n = 0;

    if (all == NULL)
        return err->status;
    for (struct dcpk_difference *d = list->first; d != NULL; d = d->next) {
        d->number = n;
        all[n++] = d;
    }
    qsort(all, n, sizeof *all, by_distance);
    list->end = &list->first;
    for (size_t i = 0; i < n; i++) {
        *list->end = all[i];
        list->end = &all[i]->next;
    }
    *list->end = NULL;
    dcpk_free(all);
    return DCPK_OK;
}

/* Find the places of the differences of elements, and put these in order. */
static dcpk_status comparing_worst(struct dcpk_comparing *c, struct dcpk_error *err)
{
    struct dcpk_differences *lists[] = {&c->report->differences, &c->report->tolerated};

    for (size_t l = 0; l < DCPK_COUNT(lists); l++) {
        for (struct dcpk_difference *d = lists[l]->first; d != NULL; d = d->next)
            if (d->kind == DCPK_ELEMENTS_DIFFER && find_furthest(c, d, err))
                return err->status;
        if (lists[l]->n > 1 && sort_list(lists[l], err))
            return err->status;
    }
    return DCPK_OK;
}

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

/* Counts the elements of A that are not finite, and those of them that are finite in B. */
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
        st = comparing_worst(c, err);
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

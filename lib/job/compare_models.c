/* SPDX-License-Identifier: Apache-2.0 */
/* compare_models.c - pairs the tensors of two checkpoints, has them measured, and collects what
 * differs. */
#include "lib/job/compare_models.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/job/compare_priv.h"
#include "lib/job/pairing.h"
#include "lib/rules/mesh.h"

dcpk_status dcpk_comparing_add(struct dcpk_comparing *c, struct dcpk_differences *list,
                               const struct dcpk_difference *d, struct dcpk_error *err)
{
    struct dcpk_difference *copy = dcpk_arena_alloc(c->report->arena, sizeof *copy, err);
    const bool is_tensor = d->kind != DCPK_VALUE_DIFFERS && !d->is_value;

    if (list == &c->report->differences)
        c->report->parts[dcpk_comparing_part(d->name, d->part, is_tensor)].n_different++;
    if (copy == NULL)
        return err->status;
    *copy = *d;
    copy->next = NULL;
    copy->name = dcpk_arena_strdup(c->report->arena, d->name, err);
    if (copy->name == NULL)
        return err->status;
    if (d->part != NULL) {
        copy->part = dcpk_arena_strdup(c->report->arena, d->part, err);
        if (copy->part == NULL)
            return err->status;
    }
    *list->end = copy;
    list->end = &copy->next;
    list->n++;
    if (list == &c->report->differences)
        c->report->equal = false;
    return DCPK_OK;
}

/* "bfloat16 [4, 8]" in the report's arena; NULL for no view, or with err. */
static const char *view_text(struct dcpk_comparing *c, const struct dcpk_view *view,
                             struct dcpk_error *err)
{
    char shape[256];

    if (view == NULL)
        return NULL;
    return dcpk_arena_printf(c->report->arena, err, "%s %s", dcpk_dtype_name(view->dtype),
                             dcpk_shape_format(view->shape, view->rank, shape, sizeof shape));
}

static dcpk_status add_tensor(struct dcpk_comparing *c, struct dcpk_differences *list,
                              struct dcpk_difference *d, const struct dcpk_view *a,
                              const struct dcpk_view *b, struct dcpk_error *err)
{
    d->a = view_text(c, a, err);
    d->b = view_text(c, b, err);
    if ((a != NULL && d->a == NULL) || (b != NULL && d->b == NULL))
        return err->status;
    return dcpk_comparing_add(c, list, d, err);
}

static bool is_comparable(const struct dcpk_comparing *c, const struct dcpk_view *a,
                          const struct dcpk_view *b)
{
    return a->dtype == b->dtype ||
           (c->options->casts && dcpk_dtype_is_float(a->dtype) && dcpk_dtype_is_float(b->dtype));
}

dcpk_status dcpk_comparing_tensor(struct dcpk_comparing *c, const char *name, const char *part,
                                  const struct dcpk_view *a, const struct dcpk_view *b,
                                  bool may_lack, struct dcpk_error *err)
{
    struct dcpk_compare_report *report = c->report;
    struct dcpk_difference d = {.name = name, .part = part};
    dcpk_status st;

    if (a == NULL && b == NULL)
        return DCPK_OK;
    report->parts[dcpk_comparing_part(name, part, true)].n_compared++;
    if (a == NULL || b == NULL) {
        d.kind = b == NULL ? DCPK_ONLY_IN_A : DCPK_ONLY_IN_B;
        return add_tensor(
            c, may_lack && !c->options->strict ? &report->tolerated : &report->differences, &d, a,
            b, err);
    }
    if (!dcpk_view_same_shape(a, b) || !is_comparable(c, a, b)) {
        d.kind = dcpk_view_same_shape(a, b) ? DCPK_DTYPE_DIFFERS : DCPK_SHAPE_DIFFERS;
        return add_tensor(c, &report->differences, &d, a, b, err);
    }
    st = dcpk_grow(&c->pairs, &c->pairs_capacity, c->n_pairs, sizeof *c->pairs, err);
    if (st == DCPK_OK)
        c->pairs[c->n_pairs++] = (struct dcpk_entry_pair){name, part, *a, *b};
    return st;
}

/* ---- through the model ---- */

/* As dcpk_comparing_tensor for two tensors of models, by number. */
static dcpk_status pair_tensors(struct dcpk_comparing *c, const struct dcpk_model *a, uint32_t i,
                                const struct dcpk_model *b, uint32_t j, bool may_lack,
                                struct dcpk_error *err)
{
    const struct dcpk_model_tensor *t = i != DCPK_NO_TENSOR ? &a->tensors[i] : NULL;
    const struct dcpk_model_tensor *u = j != DCPK_NO_TENSOR ? &b->tensors[j] : NULL;
    const struct dcpk_model_tensor *some = t != NULL ? t : u;
    struct dcpk_view left, right;

    if (some == NULL)
        return DCPK_OK;
    if (t != NULL)
        left = dcpk_model_view(t);
    if (u != NULL)
        right = dcpk_model_view(u);
    return dcpk_comparing_tensor(
        c, (t != NULL ? a : b)->params[some->param].name,
        some->role == DCPK_STATE ? some->state : dcpk_role_name(some->role),
        t != NULL ? &left : NULL, u != NULL ? &right : NULL, may_lack, err);
}

/*
 * Weight and master. With a master on one side only, that is held against the other's weight if its
 * dtype says that this is the same thing (fsdp_dtensor keeps the master as the weight), and the
 * rounded twin may be lacking, or if it is all that its side has; else weight against weight.
 */
static dcpk_status pair_values(struct dcpk_comparing *c, const struct dcpk_model *a,
                               const struct dcpk_param *p, const struct dcpk_model *b,
                               const struct dcpk_param *q, struct dcpk_error *err)
{
    const uint32_t weight[2] = {p->tensor[DCPK_WEIGHT], q->tensor[DCPK_WEIGHT]};
    const uint32_t master[2] = {p->tensor[DCPK_MASTER], q->tensor[DCPK_MASTER]};
    const uint32_t i = dcpk_model_value_of(a, p), j = dcpk_model_value_of(b, q);
    const bool is_alone = weight[0] == DCPK_NO_TENSOR || weight[1] == DCPK_NO_TENSOR;
    dcpk_status st;

    if ((master[0] == DCPK_NO_TENSOR) != (master[1] == DCPK_NO_TENSOR) && i != DCPK_NO_TENSOR &&
        j != DCPK_NO_TENSOR && (is_alone || a->tensors[i].dtype == b->tensors[j].dtype)) {
        st = pair_tensors(c, a, i, b, j, false, err);
        if (st != DCPK_OK || !c->options->strict)
            return st;
        return pair_tensors(c, a, i != weight[0] ? weight[0] : DCPK_NO_TENSOR, b,
                            j != weight[1] ? weight[1] : DCPK_NO_TENSOR, false, err);
    }
    st = pair_tensors(c, a, master[0], b, master[1], c->options->weights_only, err);
    /* The twin is the master rounded: a format that does not keep it has lost nothing. */
    return st == DCPK_OK ? pair_tensors(c, a, weight[0], b, weight[1],
                                        !c->same_format && master[0] != DCPK_NO_TENSOR &&
                                            master[1] != DCPK_NO_TENSOR,
                                        err)
                         : st;
}

/* Other optimizer states of parameter i of `a`; those that both have count once, from A. */
static dcpk_status pair_states(struct dcpk_comparing *c, const struct dcpk_model *a, uint32_t i,
                               const struct dcpk_model *b, uint32_t j, struct dcpk_error *err)
{
    dcpk_status st = DCPK_OK;

    for (uint32_t t = a->params[i].tensor[DCPK_STATE]; t != DCPK_NO_TENSOR && st == DCPK_OK;
         t = a->tensors[t].next_state)
        st = pair_tensors(c, a, t, b, dcpk_model_find(b, j, DCPK_STATE, a->tensors[t].state), false,
                          err);
    for (uint32_t t = b->params[j].tensor[DCPK_STATE]; t != DCPK_NO_TENSOR && st == DCPK_OK;
         t = b->tensors[t].next_state)
        if (dcpk_model_find(a, i, DCPK_STATE, b->tensors[t].state) == DCPK_NO_TENSOR)
            st = pair_tensors(c, a, DCPK_NO_TENSOR, b, t, false, err);
    return st;
}

/* Does the parameter's group have its step, which is compared with the groups? */
static bool is_step_in_group(const struct dcpk_model *model, const struct dcpk_param *p)
{
    return p->group != DCPK_NO_GROUP && dcpk_value_get(model->groups[p->group], "step") != NULL;
}

static dcpk_status pair_param(struct dcpk_comparing *c, const struct dcpk_model *a, uint32_t i,
                              const struct dcpk_model *b, uint32_t j, struct dcpk_error *err)
{
    static const enum dcpk_role roles[] = {DCPK_EXP_AVG, DCPK_EXP_AVG_SQ, DCPK_STEP};
    const struct dcpk_param *p = &a->params[i], *q = &b->params[j];
    /* Between formats, and between optimizers, `step` moves to the groups. */
    const bool is_step_told = !c->same_format || (is_step_in_group(a, p) && is_step_in_group(b, q));
    dcpk_status st = pair_values(c, a, p, b, q, err);

    for (size_t r = 0; r < 3 && st == DCPK_OK; r++)
        st = pair_tensors(c, a, p->tensor[roles[r]], b, q->tensor[roles[r]],
                          roles[r] == DCPK_STEP && is_step_told, err);
    return st == DCPK_OK ? pair_states(c, a, i, b, j, err) : st;
}

/* All tensors of a parameter that the other side does not know; its name alone tells that. */
static dcpk_status add_param(struct dcpk_comparing *c, const struct dcpk_param *param,
                             enum dcpk_difference_kind kind, struct dcpk_error *err)
{
    const struct dcpk_difference d = {.kind = kind, .name = param->name};

    return dcpk_comparing_add(c, &c->report->differences, &d, err);
}

static dcpk_status pair_models(struct dcpk_comparing *c, const struct dcpk_model *a,
                               const struct dcpk_model *b, struct dcpk_error *err)
{
    dcpk_status st = DCPK_OK;
    uint64_t other;

    c->report->n_params = a->n_params;
    for (uint32_t i = 0; i < a->n_params && st == DCPK_OK; i++) {
        const struct dcpk_param *p = &a->params[i];

        st = dcpk_map_get(&b->param_by_name, p->name, strlen(p->name), &other)
                 ? pair_param(c, a, i, b, (uint32_t)other, err)
                 : add_param(c, p, DCPK_ONLY_IN_A, err);
    }
    for (uint32_t j = 0; j < b->n_params && st == DCPK_OK; j++) {
        const struct dcpk_param *q = &b->params[j];

        if (!dcpk_map_get(&a->param_by_name, q->name, strlen(q->name), &other))
            st = add_param(c, q, DCPK_ONLY_IN_B, err);
    }
    return st;
}

/* ---- as stored ---- */

static dcpk_status stored_view(struct dcpk_comparing *c, const struct dcpk_checkpoint *ckpt,
                               const struct dcpk_tensor *tensor, struct dcpk_view *view,
                               struct dcpk_error *err)
{
    return dcpk_view_stored(ckpt, (uint32_t)(tensor - ckpt->tensors), c->report->arena, view, err);
}

dcpk_status dcpk_comparing_stored(struct dcpk_comparing *c, const struct dcpk_tensor *a,
                                  const struct dcpk_tensor *b, struct dcpk_error *err)
{
    struct dcpk_view left, right;

    if ((a != NULL && stored_view(c, c->a, a, &left, err)) ||
        (b != NULL && stored_view(c, c->b, b, &right, err)))
        return err->status;
    return dcpk_comparing_tensor(c, (a != NULL ? a : b)->key, NULL, a != NULL ? &left : NULL,
                                 b != NULL ? &right : NULL, false, err);
}

static dcpk_status pair_stored(struct dcpk_comparing *c, struct dcpk_error *err)
{
    dcpk_status st = DCPK_OK;

    for (size_t i = 0; i < c->a->n_tensors && st == DCPK_OK; i++)
        st = dcpk_comparing_stored(c, &c->a->tensors[i],
                                   dcpk_checkpoint_tensor(c->b, c->a->tensors[i].key), err);
    for (size_t j = 0; j < c->b->n_tensors && st == DCPK_OK; j++)
        if (dcpk_checkpoint_tensor(c->a, c->b->tensors[j].key) == NULL)
            st = dcpk_comparing_stored(c, NULL, &c->b->tensors[j], err);
    return st;
}

/* ---- elements ---- */

static dcpk_status take_result(struct dcpk_comparing *c, const struct dcpk_entry_pair *pair,
                               const struct dcpk_compare *result, struct dcpk_error *err)
{
    struct dcpk_difference d = {
        .kind = DCPK_ELEMENTS_DIFFER, .name = pair->name, .part = pair->part, .measured = *result};

    struct dcpk_part_result *part = &c->report->parts[dcpk_comparing_part(d.name, d.part, true)];
    struct dcpk_view *views;

    part->max_rel = result->max_rel > part->max_rel ? result->max_rel : part->max_rel;
    if (result->equal && result->n_unequal_bits == 0)
        return DCPK_OK;
    views = dcpk_arena_array(c->report->arena, 2, sizeof *views, err);
    if (views == NULL)
        return err->status;
    views[0] = pair->a;
    views[1] = pair->b;
    d.views = views;
    if (!result->equal)
        return add_tensor(c, &c->report->differences, &d, &pair->a, &pair->b, err);
    return add_tensor(c, &c->report->tolerated, &d, &pair->a, &pair->b, err);
}

/* The views as the executor takes them: A's, then B's; counts the bytes. */
static dcpk_status gather_views(struct dcpk_comparing *c, struct dcpk_view *views,
                                struct dcpk_error *err)
{
    dcpk_status st = DCPK_OK;

    for (size_t i = 0; i < c->n_pairs && st == DCPK_OK; i++) {
        int64_t n_elems = 0;

        views[i] = c->pairs[i].a;
        views[c->n_pairs + i] = c->pairs[i].b;
        st = dcpk_shape_count(views[i].shape, views[i].rank, &n_elems, err);
        c->report->tensor_bytes += (uint64_t)n_elems * dcpk_dtype_bytes(views[i].dtype);
    }
    return st;
}

static dcpk_status measure_pairs(struct dcpk_comparing *c, struct dcpk_error *err)
{
    const struct dcpk_compare_options *options = c->options;
    struct dcpk_view *views = dcpk_alloc_array(2 * c->n_pairs, sizeof *views, err);
    struct dcpk_compare *results =
        views == NULL ? NULL : dcpk_alloc_array(c->n_pairs, sizeof *results, err);
    struct dcpk_exec *left = NULL, *right = NULL;
    dcpk_status st = results == NULL ? err->status : gather_views(c, views, err);

    if (st == DCPK_OK)
        st = dcpk_exec_new(c->a, &options->env, &left, err);
    if (st == DCPK_OK)
        st = dcpk_exec_new(c->b, &options->env, &right, err);
    if (st == DCPK_OK)
        st = dcpk_exec_measure(
            &(struct dcpk_view_pairs){left, right, views, views + c->n_pairs, c->n_pairs},
            options->tolerance, results, &c->report->stats, err);
    for (size_t i = 0; i < c->n_pairs && st == DCPK_OK; i++)
        st = take_result(c, &c->pairs[i], &results[i], err);
    if (st == DCPK_OK)
        st = dcpk_comparing_places(c, left, right, err);
    c->report->n_tensors = c->n_pairs;
    dcpk_exec_free(right);
    dcpk_exec_free(left);
    dcpk_free(results);
    dcpk_free(views);
    return st;
}

static dcpk_status compare_stored(struct dcpk_comparing *c, struct dcpk_error *err)
{
    dcpk_status st = pair_stored(c, err);

    if (st == DCPK_OK)
        st = measure_pairs(c, err);
    if (st == DCPK_OK && !c->options->tensors_only)
        st = dcpk_comparing_objects(c, err);
    if (st == DCPK_OK && !c->options->tensors_only && c->options->strict)
        st = dcpk_comparing_files(c, err);
    return st;
}

/*
 * Give both as many rows of the vocabulary as the other: the tokens' alone where their number is
 * known, else the shorter one gets zeros, which the longer one then must have.
 */
static dcpk_status align_vocab(struct dcpk_comparing *c, struct dcpk_model *a, struct dcpk_model *b,
                               struct dcpk_error *err)
{
    const int64_t rows[2] = {dcpk_rules_vocab_rows(a), dcpk_rules_vocab_rows(b)};
    const bool a_is_shorter = rows[0] < rows[1];
    const int64_t least = rows[!a_is_shorter], most = rows[a_is_shorter];
    struct dcpk_difference d = {.kind = DCPK_SHAPE_DIFFERS, .name = "rows of the vocabulary"};
    int64_t size;
    dcpk_status st = dcpk_rules_vocab_size(a, c->options->vocab_size, &size, err);

    if (st == DCPK_OK && size == 0)
        st = dcpk_rules_vocab_size(b, 0, &size, err);
    if (st != DCPK_OK || least == most || least == 0)
        return st;
    d.a = dcpk_arena_printf(c->report->arena, err, "%" PRId64, rows[0]);
    d.b = dcpk_arena_printf(c->report->arena, err, "%" PRId64, rows[1]);
    if (d.a == NULL || d.b == NULL)
        return err->status;
    if (size > 0 && size <= least)
        st = dcpk_rules_vocab_resize(a_is_shorter ? b : a, least, size, err);
    else
        st = dcpk_rules_vocab_resize(a_is_shorter ? a : b, most, 0, err);
    return st == DCPK_OK ? dcpk_comparing_add(c, &c->report->layout, &d, err) : st;
}

static dcpk_status compare_logical(struct dcpk_comparing *c, struct dcpk_error *err)
{
    const unsigned flags = c->options->weights_only ? DCPK_MODEL_WEIGHTS_ONLY : 0;
    struct dcpk_model *a = NULL, *b = NULL;
    dcpk_status st = dcpk_model_of(c->a, flags, &a, err);

    if (st == DCPK_OK)
        st = dcpk_model_of(c->b, flags, &b, err);
    if (st == DCPK_OK && a->n_params == 0 && b->n_params == 0) { /* no models: nothing to pair */
        c->report->is_logical = false;
        st = compare_stored(c, err);
        goto out;
    }
    if (st == DCPK_OK && !c->options->strict)
        st = align_vocab(c, a, b, err);
    if (st == DCPK_OK)
        st = pair_models(c, a, b, err);
    if (st == DCPK_OK)
        st = dcpk_comparing_rest_tensors(c, a, b, err);
    if (st == DCPK_OK)
        st = measure_pairs(c, err);
    if (st != DCPK_OK || c->options->tensors_only)
        goto out;
    st = dcpk_comparing_state(c, a, b, err);
    if (st == DCPK_OK && c->options->strict)
        st = dcpk_comparing_rest(c, a, b, err);
    if (st == DCPK_OK && c->options->strict)
        st = dcpk_comparing_files(c, err);
out:
    dcpk_model_free(b);
    dcpk_model_free(a);
    return st;
}

dcpk_status dcpk_compare_models(struct dcpk_checkpoint *a, struct dcpk_checkpoint *b,
                                const struct dcpk_compare_options *options,
                                struct dcpk_compare_report *report, struct dcpk_error *err)
{
    struct dcpk_comparing c = {.options = options,
                               .report = report,
                               .a = a,
                               .b = b,
                               .same_format = a->format == b->format};
    dcpk_status st;

    *report = (struct dcpk_compare_report){.equal = true};
    report->differences.end = &report->differences.first;
    report->tolerated.end = &report->tolerated.first;
    report->layout.end = &report->layout.first;
    a->told_bucket_elems = b->told_bucket_elems = options->bucket_elems;
    report->is_logical =
        !options->as_stored && a->format->mapping != NULL && b->format->mapping != NULL;
    report->arena = dcpk_arena_new(0, err);
    if (report->arena == NULL)
        return err->status;
    c.compared.arena = report->arena;
    st = report->is_logical ? compare_logical(&c, err) : compare_stored(&c, err);
    dcpk_free(c.pairs);
    dcpk_by_place_release(&c.compared);
    if (st != DCPK_OK)
        dcpk_context(err, "comparing '%s' with '%s'", dcpk_store_path(a->store),
                     dcpk_store_path(b->store));
    return st;
}

void dcpk_compare_release(struct dcpk_compare_report *report)
{
    dcpk_arena_free(report->arena);
    report->arena = NULL;
}

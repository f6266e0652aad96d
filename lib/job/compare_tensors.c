/* SPDX-License-Identifier: Apache-2.0 */
/* compare_tensors.c - pairs the tensors of two checkpoints, by parameter or as stored. */
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/job/compare_priv.h"

/* ---- one pair ---- */

/* Shape and dtype, as the answer has them; NULL for no view. */
static dcpk_status put_view(struct dcpk_comparing *c, const struct dcpk_view *view,
                            const char **text, struct dcpk_error *err)
{
    char shape[256];

    if (view == NULL)
        return DCPK_OK;
    *text = dcpk_arena_printf(c->report->arena, err, "%s %s", dcpk_dtype_name(view->dtype),
                              dcpk_shape_format(view->shape, view->rank, shape, sizeof shape));
    if (*text == NULL)
        return err->status;
    return DCPK_OK;
}

dcpk_status dcpk_comparing_add_tensor(struct dcpk_comparing *c, struct dcpk_differences *list,
                                      const struct dcpk_difference *d,
                                      const struct dcpk_view *const view[2], struct dcpk_error *err)
{
    struct dcpk_difference copy = *d;

    if (put_view(c, view[DCPK_A], &copy.a, err) || put_view(c, view[DCPK_B], &copy.b, err))
        return err->status;
    return dcpk_comparing_add(c, list, &copy, err);
}

/* Two tensors of one name; view: NULL: that side has none. */
struct named_pair {
    const char *name, *part;
    const struct dcpk_view *view[2];
    enum dcpk_weight weight; /* of one that is lacking */
    bool may_round;          /* floats of two dtypes are compared in A's */
};

static bool is_comparable(const struct dcpk_comparing *c, const struct named_pair *p)
{
    const enum dcpk_dtype a = p->view[DCPK_A]->dtype, b = p->view[DCPK_B]->dtype;

    return a == b || ((c->options->casts || p->may_round) && dcpk_dtype_is_float(a) &&
                      dcpk_dtype_is_float(b));
}

static dcpk_status add_lacking(struct dcpk_comparing *c, const struct named_pair *p,
                               struct dcpk_error *err)
{
    const enum dcpk_side side = (enum dcpk_side)(p->view[DCPK_A] == NULL);
    struct dcpk_differences *list = dcpk_comparing_list(c, p->weight, true);
    const struct dcpk_difference d = {.kind = dcpk_only_in(side), .name = p->name, .part = p->part};

    if (list == NULL)
        return DCPK_OK;
    return dcpk_comparing_add_tensor(c, list, &d, p->view, err);
}

/* Plan the comparison of the elements; what is not comparable is a difference. */
static dcpk_status pair_views(struct dcpk_comparing *c, const struct named_pair *p,
                              struct dcpk_error *err)
{
    struct dcpk_differences *list = &c->report->differences;
    struct dcpk_difference d = {.kind = DCPK_DTYPE_DIFFERS, .name = p->name, .part = p->part};
    struct dcpk_tensor_pair pair = {p->name, p->part, {{0}, {0}}};

    if (p->view[DCPK_A] == NULL && p->view[DCPK_B] == NULL)
        return DCPK_OK;
    c->report->parts[dcpk_comparing_part(p->name, p->part, true)].n_compared++;
    if (p->view[DCPK_A] == NULL || p->view[DCPK_B] == NULL)
        return add_lacking(c, p, err);
    if (!dcpk_view_same_shape(p->view[DCPK_A], p->view[DCPK_B])) {
        d.kind = DCPK_SHAPE_DIFFERS;
        return dcpk_comparing_add_tensor(c, list, &d, p->view, err);
    }
    if (!is_comparable(c, p))
        return dcpk_comparing_add_tensor(c, list, &d, p->view, err);
    pair.view[DCPK_A] = *p->view[DCPK_A];
    pair.view[DCPK_B] = *p->view[DCPK_B];
    return dcpk_pairs_add(&c->pairs, &pair, err);
}

/* ---- through the model ---- */

struct dcpk_view dcpk_model_view(const struct dcpk_model_tensor *tensor)
{
    return (struct dcpk_view){.dtype = tensor->dtype,
                              .rank = tensor->rank,
                              .shape = tensor->shape,
                              .pieces = tensor->pieces,
                              .n_pieces = tensor->n_pieces};
}

/* A tensor of a side's model, by number; NULL for DCPK_NO_TENSOR. */
static const struct dcpk_model_tensor *tensor_of(const struct dcpk_comparing *c, int side,
                                                 uint32_t number)
{
    if (number == DCPK_NO_TENSOR)
        return NULL;
    return &c->side[side].model->tensors[number];
}

/* number: of the tensors. What `how` leaves open is theirs: the name, and the part, as A's role,
 * else B's, is called. */
static dcpk_status pair_tensors(struct dcpk_comparing *c, const uint32_t number[2],
                                const struct named_pair *how, struct dcpk_error *err)
{
    struct named_pair pair = *how;
    struct dcpk_view views[2];

    for (int s = DCPK_B; s >= DCPK_A; s--) {
        const struct dcpk_model_tensor *t = tensor_of(c, s, number[s]);

        if (t == NULL)
            continue;
        pair.name = c->side[s].model->params[t->param].name;
        if (how->part == NULL)
            pair.part = t->role == DCPK_STATE ? t->state : dcpk_role_name(t->role);
        views[s] = dcpk_model_view(t);
        pair.view[s] = &views[s];
    }
    return pair_views(c, &pair, err);
}

/* The two parameters of one name, and the numbers of their tensors. */
struct param_pair {
    uint32_t number[2];
    const struct dcpk_param *param[2];
    uint32_t weight[2], master[2], value[2];
};

static void find_param_pair(const struct dcpk_comparing *c, const uint32_t number[2],
                            struct param_pair *pair)
{
    for (int s = 0; s < 2; s++) {
        const struct dcpk_model *model = c->side[s].model;
        const struct dcpk_param *param = &model->params[number[s]];
        const struct dcpk_model_tensor *value = dcpk_model_value(model, param);

        pair->number[s] = number[s];
        pair->param[s] = param;
        pair->weight[s] = param->tensor[DCPK_WEIGHT];
        pair->master[s] = param->tensor[DCPK_MASTER];
        pair->value[s] = DCPK_NO_TENSOR;
        if (value != NULL)
            pair->value[s] = (uint32_t)(value - model->tensors);
    }
}

static bool has_none(const uint32_t number[2])
{
    return number[DCPK_A] == DCPK_NO_TENSOR || number[DCPK_B] == DCPK_NO_TENSOR;
}

/*
 * With a master on one side only: is the other side's weight the same thing? Its dtype shows that
 * (fsdp_dtensor keeps the master as the weight), or there is nothing else.
 */
static bool has_single_master(const struct dcpk_comparing *c, const struct param_pair *p)
{
    if ((p->master[DCPK_A] == DCPK_NO_TENSOR) == (p->master[DCPK_B] == DCPK_NO_TENSOR) ||
        has_none(p->value))
        return false;
    return has_none(p->weight) || tensor_of(c, DCPK_A, p->value[DCPK_A])->dtype ==
                                      tensor_of(c, DCPK_B, p->value[DCPK_B])->dtype;
}

/* A single master is compared with the other's weight, and the rounded twin may be lacking, unless
 * the comparison is strict. */
static dcpk_status pair_single_master(struct dcpk_comparing *c, const struct param_pair *p,
                                      struct dcpk_error *err)
{
    uint32_t twin[2];

    if (pair_tensors(c, p->value, &(struct named_pair){.weight = DCPK_COUNTS}, err))
        return err->status;
    if (!c->options->strict)
        return DCPK_OK;
    for (int s = 0; s < 2; s++)
        twin[s] = p->value[s] != p->weight[s] ? p->weight[s] : DCPK_NO_TENSOR;
    return pair_tensors(c, twin, &(struct named_pair){.weight = DCPK_COUNTS}, err);
}

/* Masters with masters, weights with weights. */
static dcpk_status pair_kinds(struct dcpk_comparing *c, const struct param_pair *p,
                              struct dcpk_error *err)
{
    struct named_pair masters = {.weight = DCPK_COUNTS}, weights = {.weight = DCPK_COUNTS};

    if (has_single_master(c, p))
        return pair_single_master(c, p, err);
    if (c->options->weights_only)
        masters.weight = DCPK_MAY_LACK;
    /* The twin is the master rounded: a format that does not keep it has lost nothing. */
    if (!c->same_format && !has_none(p->master))
        weights.weight = DCPK_MAY_LACK;
    if (pair_tensors(c, p->master, &masters, err))
        return err->status;
    return pair_tensors(c, p->weight, &weights, err);
}

/* Without the optimizer a weight may be all that is left of B's master: rounded. */
static bool may_round(const struct dcpk_comparing *c, const struct param_pair *p)
{
    const bool is_alone = c->options->weights_only || !c->side[DCPK_B].model->has_optimizer;

    return is_alone && p->value[DCPK_A] == p->weight[DCPK_A] &&
           p->value[DCPK_B] == p->master[DCPK_B];
}

/* Values with values, whatever either side keeps them as. */
static dcpk_status pair_values(struct dcpk_comparing *c, const struct param_pair *p,
                               struct dcpk_error *err)
{
    return pair_tensors(c, p->value,
                        &(struct named_pair){.name = p->param[DCPK_A]->name,
                                             .part = dcpk_role_name(DCPK_WEIGHT),
                                             .may_round = may_round(c, p)},
                        err);
}

static const char *const side_names[] = {[DCPK_A] = "checkpoint", [DCPK_B] = "source"};

/* The rounded master must be the weight: that is what training would continue from. */
static dcpk_status pair_master(struct dcpk_comparing *c, const struct param_pair *p, int side,
                               struct dcpk_error *err)
{
    const struct dcpk_model_tensor *weight = tensor_of(c, side, p->weight[side]);
    const struct dcpk_model_tensor *master = tensor_of(c, side, p->master[side]);
    struct dcpk_tensor_pair pair = {.name = p->param[side]->name, .part = side_names[side]};

    if (weight == NULL || master == NULL)
        return DCPK_OK;
    pair.view[0] = dcpk_model_view(weight);
    pair.view[1] = dcpk_model_view(master);
    if (!dcpk_view_same_shape(&pair.view[0], &pair.view[1]))
        return dcpk_comparing_refuse(c, pair.name, err,
                                     "'%s': its master in the %s has another shape", pair.name,
                                     pair.part);
    return dcpk_pairs_add(&c->side[side].masters, &pair, err);
}

/* Does the parameter's group have its step, which is compared with the groups? */
static bool is_step_in_group(const struct dcpk_comparing *c, const struct param_pair *p, int side)
{
    const uint32_t group = p->param[side]->group;

    return group != DCPK_NO_GROUP &&
           dcpk_value_get(c->side[side].model->groups[group], "step") != NULL;
}

/* Moments, and the step: between formats, and between optimizers, that moves to the groups. */
static dcpk_status pair_moments(struct dcpk_comparing *c, const struct param_pair *p,
                                struct dcpk_error *err)
{
    static const enum dcpk_role roles[] = {DCPK_EXP_AVG, DCPK_EXP_AVG_SQ, DCPK_STEP};
    const bool moves = c->policy->pairs_values || !c->same_format ||
                       (is_step_in_group(c, p, DCPK_A) && is_step_in_group(c, p, DCPK_B));

    for (size_t r = 0; r < DCPK_COUNT(roles); r++) {
        const uint32_t number[2] = {p->param[DCPK_A]->tensor[roles[r]],
                                    p->param[DCPK_B]->tensor[roles[r]]};
        struct named_pair how = {.weight = DCPK_COUNTS};

        if (roles[r] == DCPK_STEP && moves)
            how.weight = DCPK_MAY_LACK;
        if (pair_tensors(c, number, &how, err))
            return err->status;
    }
    return DCPK_OK;
}

/* Other optimizer states; those that both have count once. */
static dcpk_status pair_states(struct dcpk_comparing *c, const struct param_pair *p,
                               struct dcpk_error *err)
{
    const enum dcpk_side first = c->policy->first;

    for (int i = 0; i < 2; i++) {
        const enum dcpk_side from = i == 0 ? first : dcpk_other_side(first);
        const enum dcpk_side to = dcpk_other_side(from);
        const struct dcpk_model *model = c->side[from].model;

        for (uint32_t t = p->param[from]->tensor[DCPK_STATE]; t != DCPK_NO_TENSOR;
             t = model->tensors[t].next_state) {
            uint32_t number[2];

            number[from] = t;
            number[to] = dcpk_model_find(c->side[to].model, p->number[to], DCPK_STATE,
                                         model->tensors[t].state);
            if ((from == first || number[to] == DCPK_NO_TENSOR) &&
                pair_tensors(c, number, &(struct named_pair){.weight = DCPK_COUNTS}, err))
                return err->status;
        }
    }
    return DCPK_OK;
}

static dcpk_status pair_param(struct dcpk_comparing *c, const uint32_t number[2],
                              struct dcpk_error *err)
{
    const struct dcpk_policy *policy = c->policy;
    struct param_pair p;

    find_param_pair(c, number, &p);
    if ((policy->pairs_values && pair_values(c, &p, err)) ||
        (!policy->pairs_values && pair_kinds(c, &p, err)) || pair_moments(c, &p, err) ||
        pair_states(c, &p, err) ||
        (policy->groups_by_param && dcpk_comparing_member(c, number, err)))
        return err->status;
    for (int s = 0; s < 2 && policy->checks_masters; s++)
        if (pair_master(c, &p, s, err))
            return err->status;
    return DCPK_OK;
}

/* The parameters of one side, with those of their names on the other; once they are `paired`, those
 * that the other lacks. A parameter that one side lacks is one difference, by its name alone. */
static dcpk_status walk_params(struct dcpk_comparing *c, enum dcpk_side from, bool paired,
                               struct dcpk_error *err)
{
    const enum dcpk_side to = dcpk_other_side(from);
    const struct dcpk_model *model = c->side[from].model;

    for (uint32_t i = 0; i < model->n_params; i++) {
        const char *name = model->params[i].name;
        const struct dcpk_difference d = {.kind = dcpk_only_in(from), .name = name};
        uint32_t number[2] = {i, i};
        uint64_t found;

        if (dcpk_map_get(&c->side[to].model->param_by_name, name, strlen(name), &found)) {
            number[to] = (uint32_t)found;
            if (!paired && pair_param(c, number, err))
                return err->status;
        } else if (dcpk_comparing_add(c, &c->report->differences, &d, err)) {
            return err->status;
        }
    }
    return DCPK_OK;
}

dcpk_status dcpk_comparing_params(struct dcpk_comparing *c, struct dcpk_error *err)
{
    const enum dcpk_side first = c->policy->first;

    c->report->n_params = c->side[first].model->n_params;
    if (walk_params(c, first, false, err) || walk_params(c, dcpk_other_side(first), true, err))
        return err->status;
    return DCPK_OK;
}

/* ---- as stored ---- */

dcpk_status dcpk_comparing_stored(struct dcpk_comparing *c, const struct dcpk_tensor *const of[2],
                                  struct dcpk_error *err)
{
    struct named_pair pair = {.weight = DCPK_COUNTS};
    struct dcpk_view views[2];

    for (int s = DCPK_B; s >= DCPK_A; s--) {
        const struct dcpk_checkpoint *ckpt = c->side[s].ckpt;

        if (of[s] == NULL)
            continue;
        if (dcpk_view_stored(ckpt, (uint32_t)(of[s] - ckpt->tensors), c->report->arena, &views[s],
                             err))
            return err->status;
        pair.name = of[s]->key;
        pair.view[s] = &views[s];
    }
    return pair_views(c, &pair, err);
}

dcpk_status dcpk_comparing_all_stored(struct dcpk_comparing *c, struct dcpk_error *err)
{
    for (int from = 0; from < 2; from++) {
        const struct dcpk_checkpoint *ckpt = c->side[from].ckpt;

        for (size_t i = 0; i < ckpt->n_tensors; i++) {
            const struct dcpk_tensor *of[2];

            of[from] = &ckpt->tensors[i];
            of[!from] = dcpk_checkpoint_tensor(c->side[!from].ckpt, ckpt->tensors[i].key);
            if ((from == DCPK_A || of[DCPK_A] == NULL) && dcpk_comparing_stored(c, of, err))
                return err->status;
        }
    }
    return DCPK_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* compare_tensors.c - pairs the tensors of two checkpoints, by parameter or as stored. */
#include <string.h>

#include "lib/job/compare_priv.h"

/* ---- one pair ---- */

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

/* True if all of a view is values of float8_e4m3fn times scales. */
static bool is_of_fp8(const struct dcpk_checkpoint *ckpt, const struct dcpk_view *view)
{
    for (size_t i = 0; i < view->n_pieces; i++) {
        const uint32_t src = view->pieces[i].src;
        const struct dcpk_computed *how = NULL;

        if (src != DCPK_PIECE_FILL)
            how = ckpt->tensors[src].computed;
        if (how == NULL || how->scales == DCPK_NO_SCALES ||
            ckpt->tensors[how->values].dtype != DCPK_F8_E4M3FN)
            return false;
    }
    return view->n_pieces > 0;
}

/* Plan the comparison of the elements; what is not comparable is a difference. */
static dcpk_status pair_views(struct dcpk_comparing *c, const struct named_pair *p,
                              struct dcpk_error *err)
{
    struct dcpk_differences *list = &c->report->differences;
    struct dcpk_difference d = {.kind = DCPK_DTYPE_DIFFERS, .name = p->name, .part = p->part};
    struct dcpk_tensor_pair pair = {.name = p->name, .part = p->part};

    if (p->view[DCPK_A] == NULL && p->view[DCPK_B] == NULL)
        return DCPK_OK;
    if (p->view[DCPK_A] == NULL || p->view[DCPK_B] == NULL)
        return add_lacking(c, p, err);
    c->report->parts[dcpk_comparing_part(p->name, p->part, true)].n_compared++;
    if (!dcpk_view_same_shape(p->view[DCPK_A], p->view[DCPK_B])) {
        d.kind = DCPK_SHAPE_DIFFERS;
        return dcpk_comparing_add_tensor(c, list, &d, p->view, err);
    }
    if (!is_comparable(c, p))
        return dcpk_comparing_add_tensor(c, list, &d, p->view, err);
    pair.view[DCPK_A] = *p->view[DCPK_A];
    pair.view[DCPK_B] = *p->view[DCPK_B];
    pair.rounds = p->may_round && is_of_fp8(c->side[DCPK_A].ckpt, p->view[DCPK_A]);
    return dcpk_pairs_add(&c->pairs, &pair, err);
}

/* ---- through the model ---- */

/* of: NULL: that side has none. Name and part that `how` leaves open come from A's role, or B's. */
static dcpk_status pair_tensors(struct dcpk_comparing *c,
                                const struct dcpk_model_tensor *const of[2],
                                const struct named_pair *how, struct dcpk_error *err)
{
    struct named_pair pair = *how;
    struct dcpk_view views[2];

    for (int s = DCPK_B; s >= DCPK_A; s--) {
        if (of[s] == NULL)
            continue;
        pair.name = c->side[s].model->params[of[s]->param].name;
        if (how->part == NULL)
            pair.part = of[s]->role == DCPK_STATE ? of[s]->state : dcpk_role_name(of[s]->role);
        views[s] = dcpk_model_view(of[s]);
        pair.view[s] = &views[s];
    }
    return pair_views(c, &pair, err);
}

static const struct named_pair counts = {.weight = DCPK_COUNTS};
static const struct named_pair may_lack = {.weight = DCPK_MAY_LACK};

/* The two parameters of one name, and their tensors; NULL: that side has none. */
struct dcpk_param_pair {
    uint32_t number[2];
    const struct dcpk_param *param[2];
    const struct dcpk_model_tensor *role[DCPK_N_ROLES][2]; /* DCPK_STATE: the first of a list */
    const struct dcpk_model_tensor *value[2];              /* the master, else the weight */
};

/* A tensor by number; NULL for DCPK_NO_TENSOR. */
static const struct dcpk_model_tensor *tensor_at(const struct dcpk_model *model, uint32_t number)
{
    return number == DCPK_NO_TENSOR ? NULL : &model->tensors[number];
}

static void find_param_pair(const struct dcpk_comparing *c, const uint32_t number[2],
                            struct dcpk_param_pair *pair)
{
    for (int s = 0; s < 2; s++) {
        const struct dcpk_model *model = c->side[s].model;

        pair->number[s] = number[s];
        pair->param[s] = &model->params[number[s]];
        for (int r = 0; r < DCPK_N_ROLES; r++)
            pair->role[r][s] = tensor_at(model, pair->param[s]->tensor[r]);
        pair->value[s] = dcpk_model_value(model, pair->param[s]);
    }
}

static bool have_both(const struct dcpk_model_tensor *const of[2])
{
    return of[DCPK_A] != NULL && of[DCPK_B] != NULL;
}

/*
 * With a master on one side only: true if the other side's weight is the same thing. Its dtype
 * shows that (fsdp_dtensor keeps the master as the weight), or there is nothing else.
 */
static bool has_single_master(const struct dcpk_param_pair *p)
{
    const struct dcpk_model_tensor *const *master = p->role[DCPK_MASTER];

    if ((master[DCPK_A] == NULL) == (master[DCPK_B] == NULL) || !have_both(p->value))
        return false;
    return !have_both(p->role[DCPK_WEIGHT]) || p->value[DCPK_A]->dtype == p->value[DCPK_B]->dtype;
}

/*
 * Masters with masters, weights with weights. A single master is compared with the other's weight,
 * and the rounded twin may be lacking, unless the comparison is strict.
 */
static dcpk_status pair_kinds(struct dcpk_comparing *c, const struct dcpk_param_pair *p,
                              struct dcpk_error *err)
{
    const struct dcpk_model_tensor *const *master = p->role[DCPK_MASTER];
    const struct dcpk_model_tensor *const *weight = p->role[DCPK_WEIGHT];
    /* The twin is the master rounded: a format that does not keep it has lost nothing. */
    const struct named_pair *twins = !c->same_format && have_both(master) ? &may_lack : &counts;
    const bool is_alone = c->options->weights_only || c->with_model;
    const struct named_pair *masters = is_alone ? &may_lack : &counts;
    const struct dcpk_model_tensor *twin[2] = {NULL, NULL};

    if (!has_single_master(p)) {
        if (pair_tensors(c, master, masters, err) || pair_tensors(c, weight, twins, err))
            return err->status;
        return DCPK_OK;
    }
    for (int s = 0; s < 2; s++)
        if (p->value[s] != weight[s])
            twin[s] = weight[s];
    if (pair_tensors(c, p->value, &counts, err) || pair_tensors(c, twin, &may_lack, err))
        return err->status;
    return DCPK_OK;
}

/*
 * Values with values, whatever either side keeps them as. Without the optimizer a weight may be all
 * that is left of B's master: rounded. A model's weight may be of any dtype that was asked for.
 */
static dcpk_status pair_values(struct dcpk_comparing *c, const struct dcpk_param_pair *p,
                               struct dcpk_error *err)
{
    const bool is_alone = c->options->weights_only || !c->side[DCPK_B].model->has_optimizer;
    const bool is_master = have_both(p->value) && p->value[DCPK_B]->role == DCPK_MASTER;
    const bool makes_model = c->with_model && c->side[DCPK_A].ckpt->format->is_model;
    const struct named_pair how = {.part = dcpk_role_name(DCPK_WEIGHT),
                                   .may_round = have_both(p->value) &&
                                                p->value[DCPK_A]->role == DCPK_WEIGHT &&
                                                (makes_model || (is_alone && is_master))};

    return pair_tensors(c, p->value, &how, err);
}

/* True if the parameter's groups have its step. It is compared with them. */
static bool is_step_in_groups(const struct dcpk_comparing *c, const struct dcpk_param_pair *p)
{
    for (int s = 0; s < 2; s++) {
        const uint32_t group = p->param[s]->group;

        if (group == DCPK_NO_GROUP ||
            dcpk_value_get(c->side[s].model->groups[group], "step") == NULL)
            return false;
    }
    return true;
}

/* States of an optimizer: a model has none. */
static const struct named_pair *state_pair(const struct dcpk_comparing *c)
{
    return c->with_model ? &may_lack : &counts;
}

/* Other optimizer states of one side; once they are `paired`, those that the other lacks. */
static dcpk_status pair_states(struct dcpk_comparing *c, const struct dcpk_param_pair *p,
                               enum dcpk_side from, bool paired, struct dcpk_error *err)
{
    const struct dcpk_model *mine = c->side[from].model, *other = c->side[!from].model;
    const uint32_t param = (uint32_t)(p->param[!from] - other->params);

    for (const struct dcpk_model_tensor *t = p->role[DCPK_STATE][from]; t != NULL;
         t = tensor_at(mine, t->next_state)) {
        const struct dcpk_model_tensor *of[2];

        of[from] = t;
        of[!from] = tensor_at(other, dcpk_model_find(other, param, DCPK_STATE, t->state));
        if ((!paired || of[!from] == NULL) && pair_tensors(c, of, state_pair(c), err))
            return err->status;
    }
    return DCPK_OK;
}

/* Moments, the step and other states. step: NULL: it is compared with the groups. */
static dcpk_status pair_optimizer(struct dcpk_comparing *c, const struct dcpk_param_pair *p,
                                  const struct named_pair *step, struct dcpk_error *err)
{
    const enum dcpk_side first = c->policy->first;

    if (pair_tensors(c, p->role[DCPK_EXP_AVG], state_pair(c), err) ||
        pair_tensors(c, p->role[DCPK_EXP_AVG_SQ], state_pair(c), err) ||
        (step != NULL && pair_tensors(c, p->role[DCPK_STEP], step, err)) ||
        pair_states(c, p, first, false, err) ||
        pair_states(c, p, dcpk_other_side(first), true, err))
        return err->status;
    return DCPK_OK;
}

/* Between formats, and between optimizers, the step moves to the groups. */
dcpk_status dcpk_pair_param_same(struct dcpk_comparing *c, const struct dcpk_param_pair *p,
                                 struct dcpk_error *err)
{
    const bool step_moves = !c->same_format || (!c->with_model && is_step_in_groups(c, p));

    if (pair_kinds(c, p, err) || pair_optimizer(c, p, step_moves ? &may_lack : &counts, err))
        return err->status;
    return DCPK_OK;
}

dcpk_status dcpk_pair_param_faithful(struct dcpk_comparing *c, const struct dcpk_param_pair *p,
                                     struct dcpk_error *err)
{
    const bool has_groups = !c->with_model;
    const struct named_pair *step = has_groups && is_step_in_groups(c, p) ? NULL : &may_lack;

    if (pair_values(c, p, err) || pair_optimizer(c, p, step, err) ||
        (has_groups && dcpk_comparing_member(c, p->number, err)))
        return err->status;
    return DCPK_OK;
}

static dcpk_status pair_param(struct dcpk_comparing *c, const uint32_t number[2],
                              struct dcpk_error *err)
{
    struct dcpk_param_pair p;

    find_param_pair(c, number, &p);
    return c->policy->pair_param(c, &p, err);
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

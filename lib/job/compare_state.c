/* SPDX-License-Identifier: Apache-2.0 */
/* compare_state.c - compares the training state of two models: args, scheduler, RNG states. */
#include <stdio.h>

#include "lib/job/compare_priv.h"

/* A value of the state that a policy weighs by itself. */
static dcpk_status compare_single(struct dcpk_comparing *c, const char *name,
                                  const struct dcpk_value *a, const struct dcpk_value *b,
                                  dcpk_weigh *weigh, struct dcpk_error *err)
{
    const struct dcpk_value *const values[2] = {a, b};

    return dcpk_comparing_value(c, name, values, weigh(c, name, values), NULL, err);
}

static dcpk_status compare_scheduler(struct dcpk_comparing *c, struct dcpk_error *err)
{
    const struct dcpk_model *a = c->side[DCPK_A].model, *b = c->side[DCPK_B].model;
    const struct dcpk_dicts entries = {.prefix = "opt_param_scheduler",
                                       .of = {a->scheduler, b->scheduler}};

    if (c->policy->whole_scheduler)
        return compare_single(c, entries.prefix, a->scheduler, b->scheduler, c->policy->single,
                              err);
    return dcpk_comparing_dicts(c, &entries, err);
}

/* Entries of the common state that Megatron's own code does not make. */
static dcpk_status compare_further(struct dcpk_comparing *c, struct dcpk_error *err)
{
    static const struct dcpk_value none = {.kind = DCPK_V_DICT};
    struct dcpk_dicts entries = {.prefix = c->policy->further_prefix, .weigh = c->policy->further};

    for (int s = 0; s < 2; s++) {
        entries.of[s] = c->side[s].model->further;
        if (entries.of[s] == NULL)
            entries.of[s] = &none;
    }
    return dcpk_comparing_dicts(c, &entries, err);
}

static dcpk_status compare_args(struct dcpk_comparing *c, struct dcpk_error *err)
{
    const struct dcpk_dicts attrs = {.prefix = "args",
                                     .of = {dcpk_value_attrs(c->side[DCPK_A].model->args),
                                            dcpk_value_attrs(c->side[DCPK_B].model->args)},
                                     .weigh = c->policy->arg};

    return dcpk_comparing_dicts(c, &attrs, err);
}

/* The RNG states of one side, with those that stand for them on the other; once they are `paired`,
 * those for which none do. */
static dcpk_status compare_rng(struct dcpk_comparing *c, enum dcpk_side from, bool paired,
                               struct dcpk_error *err)
{
    const enum dcpk_side to = dcpk_other_side(from);
    const struct dcpk_model *mine = c->side[from].model;

    for (size_t i = 0; i < mine->n_rng; i++) {
        const struct dcpk_rng *rng = &mine->rng[i];
        const struct dcpk_rng *found = dcpk_model_rng(c->side[to].model, rng);
        const enum dcpk_weight weight = c->policy->rng(c, rng, &found);
        const struct dcpk_value *values[2] = {NULL, NULL};
        char name[128];

        if (paired && found != NULL)
            continue;
        values[from] = rng->states;
        if (found != NULL)
            values[to] = found->states;
        c->policy->name_rng(rng, name, sizeof name);
        if (dcpk_comparing_value(c, name, values, weight, NULL, err))
            return err->status;
    }
    return DCPK_OK;
}

static dcpk_status compare_singles(struct dcpk_comparing *c, struct dcpk_error *err)
{
    const struct dcpk_model *a = c->side[DCPK_A].model, *b = c->side[DCPK_B].model;
    dcpk_weigh *weigh = c->policy->single;

    if (compare_single(c, "iteration", a->iteration, b->iteration, weigh, err) ||
        compare_single(c, "checkpoint_version", a->version, b->version, weigh, err) ||
        compare_single(c, "num_floating_point_operations_so_far", a->flops, b->flops, weigh, err) ||
        compare_scheduler(c, err) ||
        compare_single(c, "optimizer.grad_scaler", a->scaler, b->scaler, c->policy->scaler, err))
        return err->status;
    return DCPK_OK;
}

dcpk_status dcpk_comparing_state(struct dcpk_comparing *c, struct dcpk_error *err)
{
    if (compare_singles(c, err) || compare_further(c, err) || compare_args(c, err) ||
        (!c->policy->groups_by_param && dcpk_comparing_groups(c, err)) ||
        compare_rng(c, DCPK_A, false, err) || compare_rng(c, DCPK_B, true, err) ||
        (c->policy->needs_models && dcpk_comparing_extras(c, err)))
        return err->status;
    return DCPK_OK;
}

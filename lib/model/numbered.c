/* SPDX-License-Identifier: Apache-2.0 */
/* numbered.c - numbers of parameters in torch's optimizers, by the groups that Megatron makes. */
#include "lib/model/numbered.h"

/* True if Megatron puts such a parameter into the group. */
static bool numbered_belongs(const struct dcpk_value *group,
                             const struct dcpk_numbered_param *param)
{
    double decay = 1.0;

    (void)dcpk_value_as_float(dcpk_value_get(group, "wd_mult"), &decay);
    return dcpk_value_is_true(group, "is_expert_parallel") == param->is_expert &&
           (decay == 0.0) == (param->n_axes <= 1);
}

static const struct dcpk_value *numbers_of(const struct dcpk_value *groups, size_t g)
{
    const struct dcpk_value *numbers = dcpk_value_get(dcpk_value_at(groups, g), "params");

    return numbers != NULL && numbers->kind == DCPK_V_LIST ? numbers : NULL;
}

/* Gives the numbers of group g to its parameters, in their order. */
static dcpk_status number_group(const struct dcpk_value *groups, size_t g,
                                const struct dcpk_numbered_param *params, size_t n_params,
                                struct dcpk_numbered *numbered, struct dcpk_error *err)
{
    const struct dcpk_value *numbers = numbers_of(groups, g);
    size_t n = 0;

    for (size_t p = 0; p < n_params; p++) {
        int64_t number = -1;

        if (!numbered_belongs(dcpk_value_at(groups, g), &params[p]))
            continue;
        if (n < numbers->n &&
            (!dcpk_value_as_int(numbers->as.items[n], &number) || number < 0 ||
             (uint64_t)number >= numbered->n || numbered->param_of[number] != SIZE_MAX))
            return dcpk_fail(err, DCPK_EUNSUPPORTED,
                             "the parameters of group %zu are not numbered once each, from 0 on",
                             g);
        if (n++ < numbers->n)
            numbered->param_of[number] = p;
    }
    if (n == numbers->n)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EUNSUPPORTED,
                     "group %zu of the optimizer has %zu parameters, but the model has %zu of its "
                     "kind, and nothing stored maps numbers to parameters",
                     g, numbers->n, n);
}

dcpk_status dcpk_numbered_find(const struct dcpk_value *groups,
                               const struct dcpk_numbered_param *params, size_t n_params,
                               struct dcpk_arena *arena, struct dcpk_numbered *numbered,
                               struct dcpk_error *err)
{
    *numbered = (struct dcpk_numbered){0};
    if (groups == NULL || groups->kind != DCPK_V_LIST)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "the optimizer has no list of parameter groups");
    for (size_t g = 0; g < groups->n; g++) {
        if (numbers_of(groups, g) == NULL)
            return dcpk_fail(err, DCPK_EUNSUPPORTED,
                             "group %zu of the optimizer does not list its parameters", g);
        numbered->n += numbers_of(groups, g)->n;
    }
    numbered->param_of = dcpk_arena_array(arena, numbered->n, sizeof *numbered->param_of, err);
    if (numbered->param_of == NULL)
        return err->status;
    for (size_t i = 0; i < numbered->n; i++)
        numbered->param_of[i] = SIZE_MAX;
    for (size_t g = 0; g < groups->n; g++)
        if (number_group(groups, g, params, n_params, numbered, err))
            return err->status;
    return DCPK_OK;
}

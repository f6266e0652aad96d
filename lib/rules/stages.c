/* SPDX-License-Identifier: Apache-2.0 */
/* stages.c - layers on the stages of a pipeline. */
#include "lib/rules/stages.h"

#include <string.h>

#include "lib/model/layout.h"

bool dcpk_stages_is_arg(const char *name)
{
    for (size_t i = 0; i < DCPK_N_STAGE_ARGS; i++)
        if (strcmp(dcpk_stage_args[i].name, name) == 0)
            return true;
    return false;
}

/* True if the target's pipeline differs from the source's. */
static bool is_other(const struct dcpk_model *model, const struct dcpk_grid *mesh)
{
    return (mesh->pp > 0 && mesh->pp != model->layout.pp) || mesh->vpp > 0 || mesh->first > 0 ||
           mesh->last > 0;
}

static bool has_own_cut(const struct dcpk_model *model)
{
    for (size_t i = 0; i < DCPK_N_STAGE_ARGS; i++)
        if (dcpk_stage_arg_no(&dcpk_stage_args[i], dcpk_value_attrs(model->args)) != NULL)
            return true;
    return false;
}

bool dcpk_stages_are_own(const struct dcpk_model *model, const struct dcpk_grid *mesh)
{
    return !is_other(model, mesh) && has_own_cut(model);
}

dcpk_status dcpk_stages_set_args(struct dcpk_model *model, const struct dcpk_grid *mesh,
                                 struct dcpk_error *err)
{
    if (!is_other(model, mesh))
        return DCPK_OK;
    for (size_t i = 0; i < DCPK_N_STAGE_ARGS; i++) {
        const struct dcpk_value *no =
            dcpk_stage_arg_no(&dcpk_stage_args[i], dcpk_value_attrs(model->args));

        if (no != NULL && dcpk_model_put_arg(model, dcpk_stage_args[i].name, no, err) != DCPK_OK)
            return err->status;
    }
    return DCPK_OK;
}

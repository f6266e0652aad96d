/* SPDX-License-Identifier: Apache-2.0 */
/* stages.c - layers on the stages of a pipeline. */
#include "lib/rules/stages.h"

#include <inttypes.h>
#include <string.h>

#include "lib/model/layout.h"

bool dcpk_stages_is_arg(const char *name)
{
    for (size_t i = 0; i < DCPK_N_STAGE_ARGS; i++)
        if (strcmp(dcpk_stage_args[i].name, name) == 0)
            return true;
    return false;
}

/* Is the target's pipeline another one than the source's? */
static bool is_other(const struct dcpk_model *model, const struct dcpk_layout *mesh)
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

/* The layers of a stage come out on its chunks. */
static dcpk_status check_stage_chunks(int64_t n_layers, int64_t vpp, struct dcpk_error *err)
{
    if (vpp <= 1 || n_layers % vpp == 0)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EMISMATCH,
                     "vpp=%" PRId64 " does not divide the %" PRId64
                     " layers of a stage; without vpp the chunks are the same, and load",
                     vpp, n_layers);
}

dcpk_status dcpk_stages_check(const struct dcpk_model *model, const struct dcpk_layout *mesh,
                              int64_t n_layers, struct dcpk_error *err)
{
    const int64_t n_others = mesh->pp - (mesh->first > 0) - (mesh->last > 0);
    const bool is_uneven = mesh->first > 0 || mesh->last > 0;
    const int64_t rest = n_layers - mesh->first - mesh->last;
    int64_t n_each = 0; /* layers of a stage that is not at an end */
    bool fits = rest == 0;

    if (!is_other(model, mesh) && has_own_cut(model))
        return DCPK_OK;
    if (mesh->pp <= 1 && (is_uneven || mesh->vpp > 1))
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "first, last and vpp cut a pipeline, but pp is 1: leave them out");
    if (mesh->pp <= 1)
        return DCPK_OK;
    if (!is_uneven && n_layers % mesh->pp != 0)
        return dcpk_fail(
            err, DCPK_EMISMATCH,
            "pp=%" PRId64 " does not divide the model's %" PRId64
            " layers: give first and last, the layers of the stages at the ends, or "
            "leave pp out: no chunk depends on it, and every pipeline loads the result",
            mesh->pp, n_layers);
    if (n_others > 0) {
        n_each = rest / n_others;
        fits = rest % n_others == 0 && (rest > 0 || (rest == 0 && !is_uneven));
    }
    if (!fits)
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "first=%" PRId64 " and last=%" PRId64 " leave %" PRId64
                         " of the model's %" PRId64 " layers for %" PRId64 " stages",
                         mesh->first, mesh->last, rest, n_layers, n_others);
    /* get_transformer_layer_offset of core 0.14 to main divides by 0 there. */
    if (mesh->vpp > 1 && mesh->first > 0 && mesh->last > 0 && n_others == 0)
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "first=%" PRId64 " and last=%" PRId64 " leave no stage between them: "
                         "Megatron does not cut the layers of such a pipeline into vpp=%" PRId64
                         " chunks",
                         mesh->first, mesh->last, mesh->vpp);
    if (check_stage_chunks(mesh->first, mesh->vpp, err) ||
        check_stage_chunks(mesh->last, mesh->vpp, err) ||
        check_stage_chunks(n_each, mesh->vpp, err))
        return err->status;
    return DCPK_OK;
}

dcpk_status dcpk_stages_set_args(struct dcpk_model *model, const struct dcpk_layout *mesh,
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

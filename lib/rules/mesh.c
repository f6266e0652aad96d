/* SPDX-License-Identifier: Apache-2.0 */
/* mesh.c - another parallel layout: checks, args, RNG states. */
#include "lib/rules/mesh.h"

#include <string.h>

#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/model/sizes.h"

/* ---- stages of the pipeline ---- */

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

/* True if the source's args cut its pipeline in a way of their own, which `mesh` leaves unchanged:
 * lib/place/grid.h need not be able to cut it then. */
static bool stages_are_own(const struct dcpk_model *model, const struct dcpk_grid *mesh)
{
    return !is_other(model, mesh) && has_own_cut(model);
}

/* If the pipeline changes, unsets attributes of args that cut the source's and are not sizes of
 * `mesh`. model->layout is the source's still. */
static dcpk_status stages_set_args(struct dcpk_model *model, const struct dcpk_grid *mesh,
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

/* ---- the mesh ---- */

static dcpk_status check_sizes(const struct dcpk_model *model, const struct dcpk_grid *mesh,
                               struct dcpk_error *err)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(model->args);
    struct dcpk_grid_model sizes = {.heads = dcpk_value_int_or(attrs, "num_attention_heads", 0)};

    dcpk_value_as_int(dcpk_query_groups(attrs), &sizes.groups);
    for (size_t i = 0; i < model->n_params; i++) {
        const struct dcpk_param *p = &model->params[i];

        if (p->unit != DCPK_NO_UNIT && dcpk_starts_with(p->name, "decoder."))
            sizes.layers = dcpk_max_i64(sizes.layers, (int64_t)p->unit + 1);
        sizes.experts = dcpk_max_i64(sizes.experts, p->expert + 1);
    }
    if (stages_are_own(model, mesh))
        sizes.layers = 0;
    return dcpk_grid_check_model(mesh, &sizes, err);
}

bool dcpk_rules_is_layout_arg(const char *name)
{
    static const char *const names[] = {
        "account_for_embedding_in_pipeline_split",
        "account_for_loss_in_pipeline_split",
        "hierarchical_context_parallel_sizes",
        "inprocess_active_world_size",
        "local_rank",
        "make_vocab_size_divisible_by",
        "microbatch_group_size_per_vp_stage",
        "num_layers_per_virtual_pipeline_stage",
        "num_virtual_stages_per_pipeline_rank",
        "padded_vocab_size",
        "pipeline_model_parallel_layout",
        "rank",
        "sequence_parallel",
        "use_tp_pp_dp_mapping",
    };

    for (size_t i = 0; i < DCPK_COUNT(names); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return dcpk_layout_is_arg(name);
}

static dcpk_status set_args(struct dcpk_model *model, const struct dcpk_grid *mesh,
                            struct dcpk_error *err)
{
    struct dcpk_layout_arg list[DCPK_LAYOUT_MAX_ARGS];
    const size_t n = dcpk_layout_args(mesh, dcpk_value_attrs(model->args), list);
    dcpk_status st = stages_set_args(model, mesh, err);

    for (size_t i = 0; i < n && st == DCPK_OK; i++)
        st = dcpk_model_set_arg(model, list[i].name, list[i].size, err);
    return st;
}

static bool is_given(const struct dcpk_grid *mesh)
{
    for (size_t i = 0; i < DCPK_LAYOUT_N_SIZES; i++)
        if (dcpk_layout_get(mesh, &dcpk_layout_sizes[i]) != 0)
            return true;
    return false;
}

static bool changes(int64_t from, int64_t to)
{
    return to > 0 && to != from;
}

dcpk_status dcpk_rules_mesh(struct dcpk_model *model, const struct dcpk_grid *mesh,
                            struct dcpk_error *err)
{
    const struct dcpk_grid old = model->layout;
    struct dcpk_grid whole = *mesh;

    if (!is_given(mesh))
        return DCPK_OK;
    dcpk_layout_fit_ranks(&old, &whole);
    if (check_sizes(model, mesh, err) || (model->args != NULL && set_args(model, &whole, err)))
        return err->status;
    dcpk_model_read_layout(model);
    if (model->n_rng > 0 && (changes(old.tp, mesh->tp) || changes(old.pp, mesh->pp))) {
        dcpk_model_drop(model, "rng_state",
                        "RNG states belong to the (pipeline, tensor) ranks of the source's layout");
        dcpk_model_clear_rng(model);
    }
    return DCPK_OK;
}

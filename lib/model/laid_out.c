/* SPDX-License-Identifier: Apache-2.0 */
/* laid_out.c - the parameters of a model as the ranks of a grid share them. */
#include "lib/model/laid_out.h"

#include "lib/base/order.h"
#include "lib/model/registered.h"

static int64_t count_layers(const struct dcpk_model *model)
{
    int64_t n_layers = 0;

    for (size_t i = 0; i < model->n_params; i++) {
        struct dcpk_registered found;

        dcpk_registered_find(model->params[i].name, 0, &found);
        if (found.section == DCPK_DECODER_LAYERS)
            n_layers = dcpk_max_i64(n_layers, found.layer + 1);
    }
    return n_layers;
}

/* The pipeline stage of a parameter; -1: all have it. */
static int64_t find_stage(const struct dcpk_grid *grid, const struct dcpk_param *param,
                          int64_t n_layers)
{
    struct dcpk_registered found;

    dcpk_registered_find(param->name, 0, &found);
    if (found.section == DCPK_NO_SECTION)
        return -1;
    if (found.section == DCPK_EMBEDDING)
        return 0;
    if (found.section == DCPK_DECODER_LAYERS)
        return dcpk_grid_stage(grid, n_layers, found.layer);
    return grid->pp - 1;
}

/* The parts of a parameter's rows as `spread` has them. */
static dcpk_status spread_set_parts(const struct dcpk_model *model, const struct dcpk_param *param,
                                    struct dcpk_arena *arena, struct dcpk_spread *spread,
                                    struct dcpk_error *err)
{
    struct dcpk_split parts;
    int64_t *at;

    if (dcpk_parts_of(model, param, arena, &parts, err))
        return err->status;
    at = dcpk_arena_array(arena, parts.n + 1, sizeof *at, err);
    if (at == NULL)
        return err->status;
    at[0] = 0;
    for (size_t i = 0; i < parts.n; i++)
        at[i + 1] = at[i] + parts.list[i].rows->n_rows;
    spread->part_at = at;
    spread->n_parts = (int64_t)parts.n;
    return DCPK_OK;
}

dcpk_status dcpk_spread_of(const struct dcpk_model *model, const struct dcpk_param *param,
                           int64_t n_tp, struct dcpk_arena *arena, struct dcpk_spread *spread,
                           struct dcpk_error *err)
{
    const struct dcpk_model_tensor *value = dcpk_model_value(model, param);

    spread->tp_axis = -1;
    if (value == NULL) /* an optimizer's state alone: replicated */
        return DCPK_OK;
    spread->shape = value->shape;
    spread->rank = value->rank;
    if (param->tp_axis == DCPK_TP_UNKNOWN && n_tp > 1)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "no rule says how tensor parallelism cuts it");
    if (spread_set_parts(model, param, arena, spread, err))
        return err->status;
    if (param->tp_axis >= 0)
        spread->tp_axis = param->tp_axis;
    return dcpk_spread_check(spread, n_tp, err);
}

static dcpk_status laid_add_param(struct dcpk_laid_out *laid, size_t i, int64_t n_experts,
                                  int64_t n_layers, struct dcpk_error *err)
{
    const struct dcpk_param *param = &laid->model->params[i];
    const struct dcpk_grid *grid = &laid->placing.grid;
    struct dcpk_spread *spread = &laid->spreads[i];
    int64_t n_tp = grid->tp;

    *spread = (struct dcpk_spread){.stage = find_stage(grid, param, n_layers), .ep = -1};
    if (param->expert >= 0) {
        spread->ep = param->expert / (n_experts / grid->ep);
        n_tp = grid->etp;
    }
    if (dcpk_spread_of(laid->model, param, n_tp, laid->arena, spread, err)) {
        dcpk_context(err, "'%s'", param->name);
        return err->status;
    }
    return DCPK_OK;
}

static dcpk_status laid_find_fsdp(struct dcpk_laid_out *laid, struct dcpk_error *err)
{
    const struct dcpk_target target = {.mesh = laid->placing.grid,
                                       .bucket_elems = laid->placing.bucket_elems};

    if (!laid->placing.is_fsdp)
        return DCPK_OK;
    if (dcpk_fsdp_shards_find(laid->model, &target, laid->arena, &laid->fsdp, err))
        return err->status;
    for (size_t i = 0; i < laid->model->n_params; i++)
        if (laid->fsdp.at[i] != SIZE_MAX) {
            laid->spreads[i].flat = &laid->fsdp.params[laid->fsdp.at[i]];
            laid->spreads[i].place = &laid->fsdp.places[laid->fsdp.at[i]];
        }
    return DCPK_OK;
}

dcpk_status dcpk_lay_out(const struct dcpk_model *model, const struct dcpk_placing *placing,
                         struct dcpk_laid_out *laid, struct dcpk_error *err)
{
    const int64_t n_layers = count_layers(model);
    int64_t n_experts = 0;

    *laid = (struct dcpk_laid_out){.model = model, .placing = *placing};
    laid->placing.grid = dcpk_grid_full(&placing->grid);
    laid->arena = dcpk_arena_new(0, err);
    if (laid->arena == NULL)
        return err->status;
    laid->spreads = dcpk_arena_array(laid->arena, model->n_params, sizeof *laid->spreads, err);
    if (laid->spreads == NULL ||
        (n_layers > 0 && dcpk_grid_check_stages(&laid->placing.grid, n_layers, 0, err)))
        return err->status;
    for (size_t i = 0; i < model->n_params; i++)
        n_experts = dcpk_max_i64(n_experts, model->params[i].expert + 1);
    for (size_t i = 0; i < model->n_params; i++)
        if (laid_add_param(laid, i, n_experts, n_layers, err))
            return err->status;
    return laid_find_fsdp(laid, err);
}

void dcpk_laid_out_release(struct dcpk_laid_out *laid)
{
    dcpk_fsdp_shards_release(&laid->fsdp);
    dcpk_arena_free(laid->arena);
    *laid = (struct dcpk_laid_out){0};
}

dcpk_status dcpk_laid_out_find(const struct dcpk_laid_out *laid,
                               const struct dcpk_model_tensor *tensor, int64_t rank,
                               struct dcpk_arena *arena, struct dcpk_local *local,
                               struct dcpk_error *err)
{
    const struct dcpk_param *param = &laid->model->params[tensor->param];
    const struct dcpk_model_tensor *value = dcpk_model_value(laid->model, param);
    struct dcpk_spread spread = laid->spreads[tensor->param];

    if (value == NULL || tensor->rank == 0 || !dcpk_model_same_shape(value, tensor))
        spread = (struct dcpk_spread){.shape = tensor->shape,
                                      .rank = tensor->rank,
                                      .stage = spread.stage,
                                      .ep = spread.ep,
                                      .tp_axis = -1};
    return dcpk_held_of(&laid->placing, &spread, rank, arena, local, err);
}

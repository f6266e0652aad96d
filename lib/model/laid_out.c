/* SPDX-License-Identifier: Apache-2.0 */
/* laid_out.c - the parameters of a model as the ranks of a grid share them. */
#include "lib/model/laid_out.h"

#include "lib/base/order.h"
#include "lib/model/registered.h"

static int64_t laid_out_count_layers(const struct dcpk_model *model)
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
    spread->n_tp = 1;
    if (value == NULL) /* an optimizer's state alone: replicated */
        return DCPK_OK;
    spread->shape = value->shape;
    spread->rank = value->rank;
    if (param->tp_axis == DCPK_TP_UNKNOWN && n_tp > 1)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "no rule says how tensor parallelism cuts it");
    if (spread_set_parts(model, param, arena, spread, err))
        return err->status;
    if (param->tp_axis < 0)
        return DCPK_OK;
    spread->tp_axis = param->tp_axis;
    spread->n_tp = n_tp;
    return dcpk_spread_check(spread, err);
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
    if (laid->placing.is_fsdp && param->tp_axis == DCPK_TP_UNKNOWN && param->place != DCPK_NO_PLACE)
        return dcpk_fail_fix(err, DCPK_EUNSUPPORTED, DCPK_FIX_NO_SHARDS,
                             "no rule gives the place of '%s' in Megatron-FSDP", param->name);
    if (dcpk_spread_of(laid->model, param, n_tp, laid->arena, spread, err))
        return dcpk_context(err, "'%s'", param->name);
    return DCPK_OK;
}

/*
 * The number of a parameter's group: dtype, unit, expert or dense, trained or frozen
 * (formats/fsdp_dtensor/FORMAT.md 8.2). Each expert-parallel rank has buffers of its own for its
 * experts.
 */
static uint64_t group_number(const struct dcpk_model *m, const struct dcpk_param *p, int64_t ep)
{
    const uint32_t weight = p->tensor[DCPK_WEIGHT];
    uint64_t dtype = 0;

    if (weight != DCPK_NO_TENSOR)
        dtype = (uint64_t)m->tensors[weight].dtype;
    return (uint64_t)(p->unit + 1) << 32 | (uint64_t)dcpk_max_i64(ep, 0) << 8 | dtype << 2 |
           (uint64_t)p->is_buffer << 1 | (uint64_t)(p->expert >= 0);
}

/* Adds a parameter to the flat buffers, as a rank of tensor parallelism sees it. */
static dcpk_status laid_add_flat(struct dcpk_laid_out *laid, size_t i, struct dcpk_error *err)
{
    const struct dcpk_param *param = &laid->model->params[i];
    const struct dcpk_grid *grid = &laid->placing.grid;
    struct dcpk_spread *spread = &laid->spreads[i];
    struct dcpk_fsdp_param *flat = &laid->flats[laid->n_flats];
    int64_t *shape = dcpk_arena_array(laid->arena, (size_t)spread->rank + 1, sizeof *shape, err);

    if (shape == NULL)
        return err->status;
    for (int a = 0; a < spread->rank; a++)
        shape[a] = spread->shape[a] / (a == spread->tp_axis ? spread->n_tp : 1);
    *flat = (struct dcpk_fsdp_param){.name = param->name,
                                     .shape = shape,
                                     .rank = spread->rank,
                                     .group = group_number(laid->model, param, spread->ep),
                                     .is_in_unit = param->unit != DCPK_NO_UNIT,
                                     .n_shards = grid->dp / grid->instances};
    if (param->expert >= 0)
        flat->n_shards /= grid->ep;
    spread->flat = flat;
    spread->place = &laid->places[laid->n_flats++];
    return DCPK_OK;
}

/* Lays out the flat buffers: parameters by their place, buffers are nowhere. */
static dcpk_status laid_add_flats(struct dcpk_laid_out *laid, struct dcpk_error *err)
{
    const struct dcpk_model *m = laid->model;
    size_t *by_place = dcpk_arena_array(laid->arena, m->n_params, sizeof *by_place, err);

    laid->flats = dcpk_arena_array(laid->arena, m->n_params, sizeof *laid->flats, err);
    laid->places = dcpk_arena_array(laid->arena, m->n_params, sizeof *laid->places, err);
    if (by_place == NULL || laid->flats == NULL || laid->places == NULL)
        return err->status;
    for (size_t i = 0; i < m->n_params; i++)
        if (m->params[i].place < m->n_params)
            by_place[m->params[i].place] = i + 1;
    for (size_t i = 0; i < m->n_params; i++)
        if (by_place[i] != 0 && laid_add_flat(laid, by_place[i] - 1, err))
            return err->status;
    return dcpk_fsdp_layout(laid->flats, laid->n_flats, laid->placing.bucket_elems, laid->places,
                            err);
}

dcpk_status dcpk_lay_out(const struct dcpk_model *model, const struct dcpk_placing *placing,
                         struct dcpk_laid_out *laid, struct dcpk_error *err)
{
    struct dcpk_grid_model sizes = {.layers = laid_out_count_layers(model)};
    const struct dcpk_grid grid = dcpk_grid_full(&placing->grid);

    *laid = (struct dcpk_laid_out){.model = model, .placing = *placing};
    laid->placing.grid = grid;
    laid->arena = dcpk_arena_new();
    for (size_t i = 0; i < model->n_params; i++)
        sizes.experts = dcpk_max_i64(sizes.experts, model->params[i].expert + 1);
    if (sizes.experts == 0) /* ep cuts nothing then, but has to divide the ranks */
        sizes.experts = grid.ep;
    laid->spreads = dcpk_arena_array(laid->arena, model->n_params, sizeof *laid->spreads, err);
    if (laid->spreads == NULL || dcpk_grid_check_model(&grid, &sizes, err))
        return err->status;
    for (size_t i = 0; i < model->n_params; i++)
        if (laid_add_param(laid, i, sizes.experts, sizes.layers, err))
            return err->status;
    if (!placing->is_fsdp)
        return DCPK_OK;
    return laid_add_flats(laid, err);
}

void dcpk_laid_out_release(struct dcpk_laid_out *laid)
{
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
                                      .tp_axis = -1,
                                      .n_tp = 1};
    return dcpk_held_of(&laid->placing, &spread, rank, arena, local, err);
}

dcpk_status dcpk_laid_out_cut(const struct dcpk_laid_out *laid, uint32_t param,
                              const struct dcpk_rows *rows, struct dcpk_arena *arena,
                              struct dcpk_out_tensor *tensor, struct dcpk_error *err)
{
    const struct dcpk_spread *spread;
    struct dcpk_span_list list;

    if (laid->n_flats == 0 || laid->spreads[param].flat == NULL)
        return DCPK_OK;
    spread = &laid->spreads[param];
    if (tensor->rank != spread->rank)
        return dcpk_fail(err, DCPK_EMISMATCH, "'%s' has %d axes, its optimizer state %d",
                         laid->model->params[param].name, spread->rank, tensor->rank);
    if (dcpk_held_chunks(spread, rows, arena, &list, err))
        return err->status;
    if (list.n > 0) {
        tensor->spans = list.spans;
        tensor->n_spans = list.n;
    }
    return DCPK_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* remap_layout.c - a model over ranks: who holds a tensor, which copy of it, and which boxes. */
/*
 *   tensor --tp--> the rank's block of each part, or its columns --FSDP--> its rows of these
 *
 *   rows of the tensor   [ gate0 gate1 | up0 up1 ]       rank 1 of tp=2 holds [ gate1 | up1 ],
 *   local rows           [ gate1 | up1 ]                 of which FSDP takes consecutive rows
 */
#include "lib/job/remap_layout.h"

#include <inttypes.h>
#include <string.h>

#include "lib/base/order.h"
#include "lib/model/registered.h"

int64_t dcpk_rank_layout_size(const struct dcpk_rank_layout *layout)
{
    const struct dcpk_layout *m = &layout->mesh;

    if (layout->is_fsdp)
        return m->tp * m->dp * layout->n_instances;
    return m->tp * m->cp * m->dp * m->pp;
}

/* ---- the model ---- */

/* The stage of a layer, of n_layers: each chunk of a stage has its share of them, and the stages
 * take turns (get_transformer_layer_offset). */
static dcpk_status stage_of_layer(const struct dcpk_layout *mesh, int64_t n_layers, int64_t layer,
                                  int64_t *stage, struct dcpk_error *err)
{
    const int64_t vpp = dcpk_max_i64(mesh->vpp, 1), n_turn = n_layers / vpp;
    const int64_t n_others = mesh->pp - (mesh->first > 0) - (mesh->last > 0);
    const int64_t rest = n_layers - mesh->first - mesh->last;

    if (rest < 0 || (n_others == 0 && rest > 0) || (n_others > 0 && rest % n_others != 0))
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "the model's %" PRId64 " layers do not come out on pp=%" PRId64 " stages",
                         n_layers, mesh->pp);
    *stage = 0;
    layer %= n_turn;
    if (mesh->first > 0 && layer < mesh->first / vpp)
        return DCPK_OK;
    if (mesh->last > 0 && layer >= n_turn - mesh->last / vpp)
        *stage = mesh->pp - 1;
    else
        *stage = (mesh->first > 0) + (layer - mesh->first / vpp) / (rest / n_others / vpp);
    return DCPK_OK;
}

static dcpk_status laid_find_stages(struct dcpk_laid_out *laid, struct dcpk_error *err)
{
    const struct dcpk_model *model = laid->model;
    const int64_t last = laid->layout.mesh.pp - 1;
    int64_t n_layers = 0;

    for (size_t i = 0; i < model->n_params; i++) {
        struct dcpk_registered found;

        dcpk_registered_find(model->params[i].name, 0, &found);
        if (found.section == DCPK_DECODER_LAYERS)
            n_layers = dcpk_max_i64(n_layers, found.layer + 1);
    }
    for (size_t i = 0; i < model->n_params; i++) {
        struct dcpk_registered found;

        dcpk_registered_find(model->params[i].name, 0, &found);
        if (found.section == DCPK_DECODER_LAYERS &&
            stage_of_layer(&laid->layout.mesh, n_layers, found.layer, &laid->stage[i], err))
            return err->status;
        if (found.section == DCPK_EMBEDDING)
            laid->stage[i] = 0;
        else if (found.section == DCPK_NO_SECTION)
            laid->stage[i] = -1;
        else if (found.section != DCPK_DECODER_LAYERS)
            laid->stage[i] = last;
    }
    return DCPK_OK;
}

/* Tensor-parallel ranks of a parameter. */
static int64_t laid_tp(const struct dcpk_laid_out *laid, const struct dcpk_param *param)
{
    if (param->tp_axis < 0)
        return 1;
    if (param->expert >= 0)
        return laid->layout.mesh.etp;
    return laid->layout.mesh.tp;
}

/* Do tensor-parallel ranks get equal blocks of it? */
static dcpk_status check_blocks(const struct dcpk_laid_out *laid, const struct dcpk_param *param,
                                const struct dcpk_model_tensor *value,
                                const struct dcpk_split *parts, struct dcpk_error *err)
{
    const int64_t tp = laid_tp(laid, param);
    int64_t n_elems = 1;

    if (param->tp_axis == DCPK_TP_UNKNOWN && laid->layout.mesh.tp > 1)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "no rule says how tensor parallelism cuts '%s'",
                         param->name);
    if (tp <= 1)
        return DCPK_OK;
    if (param->tp_axis < value->rank)
        n_elems = value->shape[param->tp_axis];
    if (n_elems % tp != 0)
        return dcpk_fail(err, DCPK_EMISMATCH, "'%s': tp=%" PRId64 " does not divide %" PRId64 " %s",
                         param->name, tp, n_elems, param->tp_axis == 0 ? "rows" : "columns");
    for (size_t i = 0; i < parts->n; i++)
        if (param->tp_axis == 0 && parts->list[i].rows->n_rows % tp != 0)
            return dcpk_fail(err, DCPK_EMISMATCH,
                             "'%s': tp=%" PRId64 " does not divide the %" PRId64 " rows of '%s'",
                             param->name, tp, parts->list[i].rows->n_rows, parts->list[i].name);
    return DCPK_OK;
}

static dcpk_status laid_add_param(struct dcpk_laid_out *laid, size_t i, struct dcpk_error *err)
{
    const struct dcpk_param *param = &laid->model->params[i];
    const struct dcpk_model_tensor *value = dcpk_model_value(laid->model, param);
    struct dcpk_split *parts = &laid->parts[i];

    laid->n_experts = dcpk_max_i64(laid->n_experts, param->expert + 1);
    if (value == NULL) /* an optimizer's state alone: replicated */
        return DCPK_OK;
    if (dcpk_parts_of(laid->model, param, laid->arena, parts, err))
        return err->status;
    return check_blocks(laid, param, value, parts, err);
}

static dcpk_status laid_find_fsdp(struct dcpk_laid_out *laid, struct dcpk_error *err)
{
    const struct dcpk_target target = {.mesh = {.tp = laid->layout.mesh.tp,
                                                .dp = laid->layout.mesh.dp,
                                                .ep = laid->layout.mesh.ep},
                                       .bucket_elems = laid->layout.bucket_elems};

    if (!laid->layout.is_fsdp)
        return DCPK_OK;
    return dcpk_fsdp_shards_find(laid->model, &target, laid->arena, &laid->fsdp, err);
}

dcpk_status dcpk_lay_out(const struct dcpk_model *model, const struct dcpk_rank_layout *layout,
                         struct dcpk_laid_out *laid, struct dcpk_error *err)
{
    const size_t n = model->n_params;

    *laid = (struct dcpk_laid_out){.model = model, .layout = *layout};
    laid->arena = dcpk_arena_new(0, err);
    if (laid->arena == NULL)
        return err->status;
    laid->parts = dcpk_arena_array(laid->arena, n, sizeof *laid->parts, err);
    laid->stage = dcpk_arena_array(laid->arena, n, sizeof *laid->stage, err);
    if (laid->parts == NULL || laid->stage == NULL)
        return err->status;
    for (size_t i = 0; i < n; i++)
        if (laid_add_param(laid, i, err))
            return err->status;
    if (laid->n_experts % layout->mesh.ep != 0 || (laid->n_experts == 0 && layout->mesh.ep > 1))
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "ep=%" PRId64 " does not divide the model's %" PRId64 " experts",
                         layout->mesh.ep, laid->n_experts);
    if (laid_find_stages(laid, err) || laid_find_fsdp(laid, err))
        return err->status;
    return DCPK_OK;
}

void dcpk_laid_out_release(struct dcpk_laid_out *laid)
{
    dcpk_fsdp_shards_release(&laid->fsdp);
    dcpk_arena_free(laid->arena);
    *laid = (struct dcpk_laid_out){0};
}

/* ---- a tensor on a rank ---- */

/* Where a rank stands to a parameter. */
struct standing {
    bool holds;
    int64_t tp, n_tp; /* its block of so many; 0 of 1: all */
    bool has_shard;
    int64_t shard; /* of FSDP */
    int64_t copy;  /* of those that hold the same */
};

/* Ranks that hold equal blocks but for tp, which does not cut this tensor, hold copies. */
static void standing_join_tp(struct standing *s)
{
    s->copy = s->copy * s->n_tp + s->tp;
    s->tp = 0;
    s->n_tp = 1;
}

static struct standing stand_in_stages(const struct dcpk_laid_out *laid, size_t param, int64_t rank)
{
    const struct dcpk_layout *m = &laid->layout.mesh;
    const int64_t n_stage = m->tp * m->cp * m->dp, in_stage = rank % n_stage;
    const int64_t expert = laid->model->params[param].expert;
    struct standing s = {.holds = laid->stage[param] < 0 || laid->stage[param] == rank / n_stage};

    s.tp = in_stage % m->tp;
    s.n_tp = m->tp;
    s.copy = in_stage / m->tp;
    if (expert >= 0) {
        s.tp = in_stage % m->etp;
        s.n_tp = m->etp;
        s.copy = in_stage / (m->etp * m->ep);
        s.holds = s.holds && in_stage / m->etp % m->ep == expert / (laid->n_experts / m->ep);
    }
    if (laid->stage[param] < 0)
        s.copy += rank / n_stage * (n_stage / s.n_tp);
    return s;
}

static struct standing stand_in_fsdp(const struct dcpk_laid_out *laid, size_t param, int64_t rank,
                                     bool is_cut)
{
    const struct dcpk_layout *m = &laid->layout.mesh;
    const int64_t dp = rank / m->tp;
    const size_t at = laid->fsdp.at[param];
    struct standing s = {.holds = true, .tp = rank % m->tp, .n_tp = m->tp, .copy = dp};

    if (!is_cut || at == SIZE_MAX) /* a buffer */
        return s;
    s.has_shard = true;
    s.shard = dp % m->dp;
    s.copy = dp / m->dp;
    if (laid->model->params[param].expert >= 0) {
        s.shard = dp % m->dp / m->ep;
        s.holds = dp % m->dp % m->ep == dcpk_fsdp_ep_rank(&laid->fsdp.params[at]);
    }
    return s;
}

/* Rows of the rank's block that FSDP gives it, else all of them. */
static dcpk_status find_held_rows(const struct dcpk_laid_out *laid, size_t param,
                                  const struct standing *s, struct dcpk_rows *held,
                                  struct dcpk_error *err)
{
    const struct dcpk_fsdp_shards *fsdp = &laid->fsdp;
    struct dcpk_box box;
    int64_t first;
    size_t at;

    if (!s->has_shard)
        return DCPK_OK;
    at = fsdp->at[param];
    if (dcpk_fsdp_shard(&fsdp->params[at], &fsdp->places[at], s->shard, &box, &first, err))
        return err->status;
    *held = (struct dcpk_rows){box.offset[0], box.extent[0]};
    return DCPK_OK;
}

/* A tensor on a rank, while its boxes are made. */
struct seating {
    const struct dcpk_model_tensor *tensor;
    struct standing stands;
    int axis;                       /* that tensor parallelism cuts; -1: none */
    const struct dcpk_split *parts; /* of axis 0 */
    struct dcpk_rows held;          /* rows of the rank's block that the rank holds */
    int64_t **spans;
    struct dcpk_seat *seat;
};

/* Add what the rank holds of `rows` of the tensor, which are rows `local_row` on of its block. */
static void seating_add(struct seating *g, struct dcpk_rows rows, int64_t local_row)
{
    const int rank = g->tensor->rank;
    const int64_t first = dcpk_max_i64(local_row, g->held.row);
    const int64_t last = dcpk_min_i64(local_row + rows.n_rows, g->held.row + g->held.n_rows);
    int64_t *span = g->spans[g->seat->n_boxes];

    if (first >= last)
        return;
    for (int a = 0; a < rank; a++) {
        span[a] = 0;
        if (a == g->axis)
            span[a] = g->stands.tp * g->seat->local[a];
        span[rank + a] = g->seat->local[a];
        span[2 * rank + a] = 0;
    }
    span[0] = rows.row + first - local_row;
    span[rank] = last - first;
    span[2 * rank] = first - g->held.row;
    g->seat->n_boxes++;
}

/* Of a tensor with axes. */
static void seating_add_all(struct seating *g)
{
    const struct dcpk_rows whole = {0, g->tensor->shape[0]};
    int64_t local_row = 0;

    if (g->axis != 0 || g->parts->n == 0) {
        struct dcpk_rows rows = whole;

        if (g->axis == 0)
            rows = dcpk_rows_of_rank(whole, g->stands.n_tp, g->stands.tp);
        seating_add(g, rows, 0);
        return;
    }
    for (size_t i = 0; i < g->parts->n; i++) {
        const struct dcpk_rows rows =
            dcpk_rows_of_rank(*g->parts->list[i].rows, g->stands.n_tp, g->stands.tp);

        seating_add(g, rows, local_row);
        local_row += rows.n_rows;
    }
}

static dcpk_status seating_make(struct seating *g, struct dcpk_arena *arena, struct dcpk_error *err)
{
    const size_t rank = (size_t)g->tensor->rank, most = dcpk_max_size(g->parts->n, 1);
    struct dcpk_seat *seat = g->seat;

    g->spans = dcpk_arena_array(arena, most, sizeof *g->spans, err);
    if (g->spans == NULL)
        return err->status;
    for (size_t i = 0; i < most; i++) {
        g->spans[i] = dcpk_arena_array(arena, 3 * rank + 1, sizeof **g->spans, err);
        if (g->spans[i] == NULL)
            return err->status;
    }
    seat->spans = (const int64_t *const *)g->spans;
    if (rank == 0)
        seat->n_boxes = 1;
    else
        seating_add_all(g);
    return DCPK_OK;
}

/* Has it the shape by which its parameter is cut? A step, say, has not. */
static bool is_cut(const struct dcpk_laid_out *laid, const struct dcpk_model_tensor *t)
{
    const struct dcpk_param *param = &laid->model->params[t->param];
    const struct dcpk_model_tensor *value = dcpk_model_value(laid->model, param);

    return value != NULL && t->rank > 0 && dcpk_model_same_shape(value, t);
}

dcpk_status dcpk_seat_find(const struct dcpk_laid_out *laid, const struct dcpk_model_tensor *tensor,
                           int64_t rank, struct dcpk_arena *arena, struct dcpk_seat *seat,
                           struct dcpk_error *err)
{
    const bool cut = is_cut(laid, tensor);
    struct seating g = {.tensor = tensor,
                        .axis = laid->model->params[tensor->param].tp_axis,
                        .parts = &laid->parts[tensor->param],
                        .seat = seat};

    *seat = (struct dcpk_seat){.copy = -1};
    if (rank >= dcpk_rank_layout_size(&laid->layout))
        return DCPK_OK;
    if (laid->layout.is_fsdp)
        g.stands = stand_in_fsdp(laid, tensor->param, rank, cut);
    else
        g.stands = stand_in_stages(laid, tensor->param, rank);
    if (!g.stands.holds)
        return DCPK_OK;
    if (!cut || g.axis < 0) {
        g.axis = -1;
        standing_join_tp(&g.stands);
    }
    seat->copy = g.stands.copy;
    for (int a = 0; a < tensor->rank; a++)
        seat->local[a] = tensor->shape[a];
    if (g.axis >= 0)
        seat->local[g.axis] /= g.stands.n_tp;
    if (tensor->rank > 0)
        g.held = (struct dcpk_rows){0, seat->local[0]};
    if (find_held_rows(laid, tensor->param, &g.stands, &g.held, err))
        return err->status;
    if (tensor->rank > 0)
        seat->local[0] = g.held.n_rows;
    return seating_make(&g, arena, err);
}

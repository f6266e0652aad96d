/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_shards.c - a model's parameters in flat buffers, and back to boxes of tensors. */
#include "lib/model/fsdp_shards.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/tensor/placement.h"

#define EP_RANK_AT 8 /* bits of a group number in front of the expert-parallel rank */

/* The sizes of the target, all at least 1. */
struct sizes {
    int64_t tp, dp, ep;
    const int64_t *n_experts; /* by FSDP unit, the last entry: outside units */
    uint32_t n_units;
};

static uint32_t unit_index(const struct dcpk_param *p, uint32_t n_units)
{
    return p->unit == DCPK_NO_UNIT ? n_units : p->unit;
}

/* Count the experts of each unit; owned by the caller. */
static dcpk_status count_experts(const struct dcpk_model *m, int64_t **n_experts, uint32_t *n_units,
                                 struct dcpk_error *err)
{
    uint32_t n = 0;

    for (size_t i = 0; i < m->n_params; i++)
        if (m->params[i].unit != DCPK_NO_UNIT && m->params[i].unit >= n)
            n = m->params[i].unit + 1;
    *n_experts = dcpk_alloc_array((size_t)n + 1, sizeof **n_experts, err);
    if (*n_experts == NULL)
        return err->status;
    for (size_t i = 0; i < m->n_params; i++) {
        const struct dcpk_param *p = &m->params[i];
        int64_t *most = &(*n_experts)[unit_index(p, n)];

        *most = dcpk_max_i64(*most, p->expert + 1);
    }
    *n_units = n;
    return DCPK_OK;
}

/* The shape of one rank's part under tensor parallelism. */
static dcpk_status local_shape(const struct dcpk_param *p, const struct dcpk_model_tensor *value,
                               const struct sizes *s, struct dcpk_arena *arena,
                               const int64_t **shape, struct dcpk_error *err)
{
    const int axis = p->tp_axis;
    const int64_t n_blocks = dcpk_parts_count(p) * s->tp;
    int64_t *local;

    if (axis == DCPK_TP_UNKNOWN)
        return dcpk_fail_fix(err, DCPK_EUNSUPPORTED, DCPK_FIX_NO_SHARDS,
                             "no rule says where Megatron-FSDP puts '%s'", p->name);
    if (axis >= 0 && dcpk_check_blocks(value->shape, value->rank, axis, n_blocks, err)) {
        dcpk_context(err, "'%s'", p->name);
        return err->status;
    }
    local = dcpk_arena_array(arena, (size_t)value->rank + 1, sizeof *local, err);
    if (local == NULL)
        return err->status;
    if (value->rank > 0)
        memcpy(local, value->shape, (size_t)value->rank * sizeof *local);
    if (axis >= 0)
        local[axis] /= s->tp;
    *shape = local;
    return DCPK_OK;
}

/*
 * The number of a parameter's group: dtype, unit, expert or dense, trained or frozen
 * (formats/fsdp_dtensor/FORMAT.md 8.2). Each expert-parallel rank has buffers of its own for its
 * experts.
 */
static uint64_t group_number(const struct dcpk_model *m, const struct dcpk_param *p,
                             int64_t ep_rank)
{
    const uint32_t weight = p->tensor[DCPK_WEIGHT];
    uint64_t dtype = 0;

    if (weight != DCPK_NO_TENSOR)
        dtype = (uint64_t)m->tensors[weight].dtype;
    return (uint64_t)(p->unit + 1) << 32 | (uint64_t)ep_rank << EP_RANK_AT | dtype << 2 |
           (uint64_t)p->is_buffer << 1 | (uint64_t)(p->expert >= 0);
}

int64_t dcpk_fsdp_ep_rank(const struct dcpk_fsdp_param *flat)
{
    return (int64_t)((flat->group & UINT32_MAX) >> EP_RANK_AT);
}

static dcpk_status shard_param(const struct dcpk_model *m, const struct dcpk_param *p,
                               const struct sizes *s, struct dcpk_arena *arena,
                               struct dcpk_fsdp_param *flat, struct dcpk_error *err)
{
    const struct dcpk_model_tensor *value = dcpk_model_value(m, p);
    const int64_t n_experts = s->n_experts[unit_index(p, s->n_units)];
    int64_t ep_rank = 0, n_shards = s->dp;

    assert(value != NULL); /* the rules see to it */
    if (p->expert >= 0 && n_experts % s->ep != 0)
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "'%s' is one of %" PRId64 " experts, which ep=%" PRId64 " does not divide",
                         p->name, n_experts, s->ep);
    if (p->expert >= 0) {
        ep_rank = p->expert / (n_experts / s->ep);
        n_shards = s->dp / s->ep;
    }
    *flat = (struct dcpk_fsdp_param){
        .name = p->name,
        .rank = value->rank,
        .group = group_number(m, p, ep_rank),
        .is_in_unit = p->unit != DCPK_NO_UNIT,
        .n_shards = n_shards,
    };
    return local_shape(p, value, s, arena, &flat->shape, err);
}

static dcpk_status shards_allocate(struct dcpk_fsdp_shards *sh, const struct sizes *s,
                                   struct dcpk_error *err)
{
    const size_t n = sh->model->n_params;

    sh->params = dcpk_alloc_array(n, sizeof *sh->params, err);
    sh->places = dcpk_alloc_array(n, sizeof *sh->places, err);
    sh->at = dcpk_alloc_array(n, sizeof *sh->at, err);
    sh->cut = dcpk_alloc_array((size_t)s->dp + 1, sizeof *sh->cut, err);
    if (sh->params == NULL || sh->places == NULL || sh->at == NULL || sh->cut == NULL)
        return err->status;
    return DCPK_OK;
}

/* The model's parameters by their place; buffers are nowhere. `at` serves as the list of who is
 * where. */
static dcpk_status shard_all_params(struct dcpk_fsdp_shards *sh, const struct sizes *s,
                                    struct dcpk_arena *arena, struct dcpk_error *err)
{
    const struct dcpk_model *m = sh->model;
    size_t *by_place = dcpk_alloc_array(m->n_params, sizeof *by_place, err);
    dcpk_status st = DCPK_OK;

    if (by_place == NULL) {
        st = err->status;
        goto out;
    }
    for (size_t i = 0; i < m->n_params; i++)
        by_place[i] = sh->at[i] = SIZE_MAX;
    for (size_t i = 0; i < m->n_params; i++)
        if (m->params[i].place < m->n_params)
            by_place[m->params[i].place] = i;
    for (size_t i = 0; i < m->n_params; i++) {
        if (by_place[i] == SIZE_MAX)
            continue;
        st = shard_param(m, &m->params[by_place[i]], s, arena, &sh->params[sh->n], err);
        if (st != DCPK_OK)
            goto out;
        sh->at[by_place[i]] = sh->n++;
    }
out:
    dcpk_free(by_place);
    return st;
}

dcpk_status dcpk_fsdp_shards_find(const struct dcpk_model *model, const struct dcpk_target *target,
                                  struct dcpk_arena *arena, struct dcpk_fsdp_shards *shards,
                                  struct dcpk_error *err)
{
    const struct dcpk_grid grid = dcpk_grid_full(&target->mesh);
    struct sizes s = {grid.tp, target->mesh.dp / grid.instances, grid.ep, NULL, 0};
    int64_t *n_experts = NULL;
    dcpk_status st = DCPK_OK;

    *shards = (struct dcpk_fsdp_shards){.model = model, .tp = s.tp};
    if (s.dp == 0)
        return DCPK_OK;
    if (s.dp % s.ep != 0)
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "ep=%" PRId64 " does not divide the %" PRId64 " ranks of data parallelism",
                         s.ep, s.dp);
    if (count_experts(model, &n_experts, &s.n_units, err))
        return err->status;
    s.n_experts = n_experts;
    if (shards_allocate(shards, &s, err) || shard_all_params(shards, &s, arena, err) ||
        dcpk_fsdp_layout(shards->params, shards->n, target->bucket_elems, shards->places, err))
        st = err->status;
    dcpk_free(n_experts);
    return st;
}

void dcpk_fsdp_shards_release(struct dcpk_fsdp_shards *shards)
{
    dcpk_free(shards->cut);
    dcpk_free(shards->at);
    dcpk_free(shards->places);
    dcpk_free(shards->params);
}

/* Keep the slices that hold some of the rows [low, low + n_rows), counted from `low`. Returns how
 * many there are. */
static int64_t clip_cuts(int64_t *cut, int64_t n_shards, int64_t low, int64_t n_rows)
{
    int64_t n = 0;

    for (int64_t r = 0; r <= n_shards; r++) {
        const int64_t row = dcpk_min_i64(dcpk_max_i64(cut[r] - low, 0), n_rows);

        if (n == 0 || row > cut[n - 1])
            cut[n++] = row;
    }
    return n - 1;
}

dcpk_status dcpk_fsdp_shards_cut(struct dcpk_fsdp_shards *shards, uint32_t param,
                                 const struct dcpk_rows *rows, struct dcpk_arena *arena,
                                 struct dcpk_out_tensor *tensor, struct dcpk_error *err)
{
    const int axis = shards->model->params[param].tp_axis;
    struct dcpk_mesh mesh = {
        .n_dims = 2, .name = {"tp", "dp"}, .size = {axis < 0 ? 1 : shards->tp, 0}};
    struct dcpk_placement placement[2] = {
        {.kind = axis < 0 ? DCPK_REPLICATE : DCPK_SHARD, .axis = axis},
        {.kind = DCPK_UNEVEN, .axis = 0, .cut = shards->cut}};
    const struct dcpk_placed placed = {&mesh, placement, tensor->shape, tensor->rank};
    const struct dcpk_fsdp_param *flat;
    struct dcpk_span_list list;
    struct dcpk_rows held; /* of a rank of tensor parallelism, part behind part */

    if (shards->n == 0 || shards->at[param] == SIZE_MAX)
        return DCPK_OK;
    flat = &shards->params[shards->at[param]];
    if (tensor->rank != flat->rank)
        return dcpk_fail(err, DCPK_EMISMATCH, "'%s' has %d axes, its optimizer state %d",
                         flat->name, flat->rank, tensor->rank);
    held = (struct dcpk_rows){0, flat->shape[0]};
    if (rows != NULL) {
        const int64_t tp = axis == 0 ? shards->tp : 1;

        held = (struct dcpk_rows){rows->row / tp, rows->n_rows / tp};
    }
    if (dcpk_fsdp_rows(flat, &shards->places[shards->at[param]], shards->cut, err))
        return err->status;
    mesh.size[1] = clip_cuts(shards->cut, flat->n_shards, held.row, held.n_rows);
    if (mesh.size[1] == 0) /* a tensor without rows */
        return DCPK_OK;
    if (dcpk_placement_chunks(&placed, arena, &list, err) != DCPK_OK)
        return err->status;
    tensor->spans = list.spans;
    tensor->n_spans = list.n;
    return DCPK_OK;
}

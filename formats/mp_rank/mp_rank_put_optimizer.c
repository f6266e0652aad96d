/* SPDX-License-Identifier: Apache-2.0 */
/* mp_rank_put_optimizer.c - state by numbers of a rank's parameters, or in the buckets of a
 * distributed optimizer. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/megatron/megatron.h"
#include "formats/mp_rank/mp_rank_priv.h"

/* An optimizer's dict in the common state: [0] of dense parameters or of all, [1] of experts. */
static const struct dcpk_value *common_optimizer(const struct dcpk_mp_putting *p, int e)
{
    const struct dcpk_value *all = dcpk_value_get(p->common, "optimizer");
    const struct dcpk_value *dense = dcpk_value_get_int(all, 0);

    if (dense == NULL)
        dense = all;
    if (e == 0)
        return dense;
    return dcpk_value_get_int(all, 1);
}

static const struct dcpk_value *groups_of(const struct dcpk_mp_putting *p, int e)
{
    return dcpk_value_get(dcpk_value_get(common_optimizer(p, e), "optimizer"), "param_groups");
}

dcpk_status dcpk_mp_find_buckets(struct dcpk_mp_putting *p, struct dcpk_error *err)
{
    struct dcpk_bucket_run run = p->run;

    if (!p->model->has_optimizer || dcpk_bucket_states_find(p->model, &p->replay, &p->states, err))
        return err->status;
    if (!dcpk_megatron_is_distributed(p->model))
        return DCPK_OK;
    run.has_buffers = false;
    run.has_expert_optimizer = common_optimizer(p, 1) != NULL;
    if (dcpk_bucket_layout_make(p->model, &run, p->out->arena, &p->layout, err))
        dcpk_context(err, "laying the optimizer's state into buckets");
    return err->status;
}

/* ---- by numbers ---- */

bool dcpk_mp_is_own_master(const struct dcpk_mp_putting *p, const struct dcpk_replay_slot *slot)
{
    return p->model->has_optimizer && p->layout.n == 0 && slot->dtype == DCPK_F32;
}

/* An optimizer that is not distributed, of the rank at hand. */
struct numbering {
    struct dcpk_mp_putting *p;
    int expert;                             /* 1: the optimizer of experts */
    const struct dcpk_replay_slot **params; /* by number */
    size_t n, *ends;                        /* of group g: numbers up to ends[g] */
    struct dcpk_dict state;
};

/* True if a parameter's group is `group` of the common state, which has neither its parameters nor
 * whose experts they are. */
static bool is_in_group(const struct dcpk_model *model, const struct dcpk_replay_slot *slot,
                        const struct dcpk_value *group)
{
    const uint32_t number = model->params[slot->param].group;

    for (size_t i = 0; number != DCPK_NO_GROUP && i < group->n; i++) {
        const char *name = dcpk_value_as_str(group->as.pairs[i].key);

        if (name != NULL && strcmp(name, "is_expert_parallel") != 0 &&
            !dcpk_value_equal(dcpk_value_get(model->groups[number], name),
                              group->as.pairs[i].value))
            return false;
    }
    return number != DCPK_NO_GROUP;
}

/* torch's Adam has a step for each parameter, a number that is a tensor. */
static const struct dcpk_value *put_step(struct numbering *o, const char *name,
                                         struct dcpk_error *err)
{
    struct dcpk_out_tensor out = {.dtype = DCPK_F32};
    float *literal = dcpk_arena_alloc(o->p->out->arena, sizeof *literal, err);
    double step = 0;

    if (literal == NULL)
        return NULL;
    (void)dcpk_value_as_float(o->p->model->common_step, &step);
    *literal = (float)step;
    out.literal = literal;
    out.shape = dcpk_arena_array(o->p->out->arena, 1, sizeof *out.shape, err);
    if (out.shape == NULL)
        return NULL;
    return dcpk_mp_put_tensor(o->p, &out, name, err);
}

/* The tensors of a parameter, less its value. */
static dcpk_status number_states(struct numbering *o, const struct dcpk_replay_slot *slot,
                                 struct dcpk_dict *states, struct dcpk_error *err)
{
    struct dcpk_mp_putting *p = o->p;
    const char *name = p->model->params[slot->param].name;

    if (p->model->common_step != NULL)
        dcpk_dict_put(states, "step", put_step(o, name, err));
    for (size_t i = 1; i < p->states.n && err->status == DCPK_OK; i++) {
        const struct dcpk_bucket_state *state = &p->states.list[i];
        const struct dcpk_model_tensor *tensor;

        if (dcpk_bucket_find_tensor(p->model, slot, state, &tensor, err) == DCPK_OK)
            dcpk_dict_put(states, state->name,
                          dcpk_mp_put_slot(p, slot, tensor, DCPK_F32, name, err));
    }
    return err->status;
}

/* The numbers from `first` up to `end`. */
static const struct dcpk_value *list_numbers(struct dcpk_arena *arena, size_t first, size_t end,
                                             struct dcpk_error *err)
{
    const struct dcpk_value **numbers = dcpk_arena_array(arena, end - first, sizeof *numbers, err);

    for (size_t i = first; numbers != NULL && i < end; i++)
        numbers[i - first] = dcpk_value_int(arena, (int64_t)i, err);
    if (err->status != DCPK_OK)
        return NULL;
    return dcpk_value_seq(arena, DCPK_V_LIST, numbers, end - first, err);
}

/* A group with the numbers of its parameters, in the order of registration; adds their states. */
static const struct dcpk_value *number_group(struct numbering *o, const struct dcpk_value *group,
                                             struct dcpk_error *err)
{
    const struct dcpk_replay *replay = &o->p->replay;
    struct dcpk_arena *arena = o->p->out->arena;
    struct dcpk_dict made = {.arena = arena, .err = err};
    const size_t first = o->n;

    for (int64_t v = 0; v < replay->cut.vpp; v++)
        for (size_t s = 0; s < replay->n_slots; s++) {
            const struct dcpk_replay_slot *slot = &replay->slots[s];
            struct dcpk_dict states = {.arena = arena, .err = err};

            if (slot->reg.is_buffer ||
                !dcpk_mp_holds(o->p, slot, v * replay->cut.pp + o->p->at.pp) ||
                (common_optimizer(o->p, 1) != NULL && o->expert != (slot->reg.expert >= 0)) ||
                !is_in_group(o->p->model, slot, group))
                continue;
            if (number_states(o, slot, &states, err))
                return NULL;
            dcpk_dict_add(&o->state, dcpk_value_int(arena, (int64_t)o->n, err),
                          dcpk_dict_end(&states));
            o->params[o->n++] = slot;
        }
    dcpk_dict_put_all(&made, group);
    dcpk_dict_put(&made, "params", list_numbers(arena, first, o->n, err));
    return dcpk_dict_end(&made);
}

/* The masters of the 16-bit parameters of group g, in its order. */
static const struct dcpk_value *put_masters(struct numbering *o, size_t g, struct dcpk_error *err)
{
    const size_t first = g > 0 ? o->ends[g - 1] : 0;
    struct dcpk_mp_putting *p = o->p;
    const struct dcpk_value **list =
        dcpk_arena_array(p->out->arena, o->ends[g] - first, sizeof *list, err);
    size_t n = 0;

    for (size_t i = first; list != NULL && i < o->ends[g]; i++) {
        const struct dcpk_replay_slot *slot = o->params[i];
        const struct dcpk_param *param = &p->model->params[slot->param];

        if (dcpk_mp_is_own_master(p, slot))
            continue;
        list[n] = dcpk_mp_put_slot(p, slot, dcpk_model_value(p->model, param), DCPK_F32,
                                   param->name, err);
        if (list[n++] == NULL)
            return NULL;
    }
    if (list == NULL)
        return NULL;
    return dcpk_value_seq(p->out->arena, DCPK_V_LIST, list, n, err);
}

/* {'state', 'param_groups'} of an fp32 run; with masters next to it of others. Tensors are added in
 * the order in which they stand in it. */
static const struct dcpk_value *put_numbered(struct dcpk_mp_putting *p, int e,
                                             struct dcpk_error *err)
{
    struct dcpk_arena *arena = p->out->arena;
    const struct dcpk_value *groups = groups_of(p, e);
    const struct dcpk_value **made = dcpk_arena_array(arena, groups->n, sizeof *made, err);
    struct numbering o = {p, e, .state = {.arena = arena, .err = err}};
    struct dcpk_dict inner = {.arena = arena, .err = err}, outer = inner;

    o.params = dcpk_arena_array(arena, p->replay.n_slots, sizeof *o.params, err);
    o.ends = dcpk_arena_array(arena, groups->n, sizeof *o.ends, err);
    for (size_t g = 0; err->status == DCPK_OK && g < groups->n; g++) {
        made[g] = number_group(&o, groups->as.items[g], err);
        o.ends[g] = o.n;
    }
    if (err->status != DCPK_OK)
        return NULL;
    dcpk_dict_put(&inner, "state", dcpk_dict_end(&o.state));
    dcpk_dict_put(&inner, "param_groups", dcpk_value_seq(arena, DCPK_V_LIST, made, groups->n, err));
    if (p->model->is_fp32)
        return dcpk_dict_end(&inner);
    for (size_t g = 0; err->status == DCPK_OK && g < groups->n; g++)
        made[g] = put_masters(&o, g, err);
    if (err->status != DCPK_OK)
        return NULL;
    dcpk_dict_put(&outer, "optimizer", dcpk_dict_end(&inner));
    dcpk_dict_put(&outer, "grad_scaler", p->model->scaler);
    dcpk_dict_put(&outer, DCPK_MP_MASTERS,
                  dcpk_value_seq(arena, DCPK_V_LIST, made, groups->n, err));
    return dcpk_dict_end(&outer);
}

/* {'optimizer': {'param_groups'}}: the rest lies in buckets. */
static const struct dcpk_value *put_groups(const struct dcpk_mp_putting *p, int e,
                                           struct dcpk_error *err)
{
    struct dcpk_dict inner = {.arena = p->out->arena, .err = err}, outer = inner;

    dcpk_dict_put(&inner, "param_groups", groups_of(p, e));
    dcpk_dict_put(&outer, "optimizer", dcpk_dict_end(&inner));
    dcpk_dict_put(&outer, "grad_scaler", p->model->scaler);
    return dcpk_dict_end(&outer);
}

dcpk_status dcpk_mp_put_optimizer(struct dcpk_mp_putting *p, const struct dcpk_value **optimizer,
                                  struct dcpk_error *err)
{
    const struct dcpk_value *both[2] = {NULL, NULL};
    const int n = 1 + (common_optimizer(p, 1) != NULL);

    for (int e = 0; e < n && err->status == DCPK_OK; e++)
        if (p->layout.n > 0)
            both[e] = put_groups(p, e, err);
        else
            both[e] = put_numbered(p, e, err);
    if (err->status != DCPK_OK)
        return err->status;
    *optimizer = both[0];
    if (n == 2)
        *optimizer = dcpk_value_seq(p->out->arena, DCPK_V_LIST, both, 2, err);
    return dcpk_made(*optimizer, err);
}

/* ---- in buckets ---- */

/* True if the bucket is of the rank at hand. */
static bool has_bucket(const struct dcpk_mp_putting *p, const struct dcpk_laid_bucket *bucket)
{
    const struct dcpk_cut *cut = &p->layout.replay.cut;
    const int64_t tp = dcpk_cut_tp(cut, bucket->is_expert),
                  ep = dcpk_cut_ep(cut, bucket->is_expert);

    return bucket->stage == p->at.pp && bucket->tp_rank == p->at.tp % tp &&
           bucket->group / tp % ep == p->at.ep % ep;
}

/* {(torch.bfloat16, torch.float32): {'param': ..., 'numel_unpadded': n}} of the n buckets of a
 * buffer, one after the other. */
static const struct dcpk_value *put_buffer(struct dcpk_mp_putting *p,
                                           const struct dcpk_laid_bucket *buckets, size_t n,
                                           struct dcpk_error *err)
{
    const char *dtype = dcpk_dtype_name(buckets->dtype);
    const char *grad = dcpk_bucket_grad_dtype(p->run.args, buckets->dtype);
    struct dcpk_arena *arena = p->out->arena;
    const struct dcpk_value *pair[2] = {dcpk_value_global(arena, "torch", dtype, err),
                                        dcpk_value_global(arena, "torch", grad, err)};
    struct dcpk_dict states = {.arena = arena, .err = err}, made = states;
    int64_t *shape = dcpk_arena_array(arena, 1, sizeof *shape, err);

    if (pair[0] == NULL || pair[1] == NULL || shape == NULL)
        return NULL;
    for (size_t i = 0; i < p->states.n && err->status == DCPK_OK; i++) {
        const struct dcpk_bucket_source from = {p->model, &p->layout, &p->states.list[i]};
        struct dcpk_out_tensor out = {.dtype = DCPK_F32, .rank = 1, .shape = shape};
        struct dcpk_flat_pieces pieces = {.arena = arena};

        *shape = 0;
        for (size_t b = 0; b < n && err->status == DCPK_OK; b++) {
            (void)dcpk_bucket_add_pieces(&from, &buckets[b], *shape, &pieces, err);
            *shape += buckets[b].n_elems;
        }
        if (err->status == DCPK_OK && dcpk_flat_pieces_keep(&pieces, &out, err) == DCPK_OK)
            dcpk_dict_put(&states, from.state->name,
                          dcpk_mp_put_tensor(p, &out, from.state->name, err));
        dcpk_flat_pieces_release(&pieces);
    }
    dcpk_dict_put(&states, "numel_unpadded", dcpk_value_int(arena, *shape, err));
    dcpk_dict_add(&made, dcpk_value_seq(arena, DCPK_V_TUPLE, pair, 2, err), dcpk_dict_end(&states));
    return dcpk_dict_end(&made);
}

/* All buffers of one optimizer of the rank. */
static const struct dcpk_value *put_buffers(struct dcpk_mp_putting *p, bool is_expert,
                                            struct dcpk_error *err)
{
    const struct dcpk_bucket_layout *layout = &p->layout;
    struct dcpk_dict made = {.arena = p->out->arena, .err = err};

    dcpk_dict_put(&made, "buckets_coalesced", dcpk_value_bool(true));
    for (size_t i = 0, n; i < layout->n && err->status == DCPK_OK; i += n) {
        const struct dcpk_laid_bucket *first = &layout->buckets[i];

        for (n = 1; i + n < layout->n && first[n].number != 0; n++)
            ;
        if (first->is_expert == is_expert && has_bucket(p, first))
            dcpk_dict_add(&made, dcpk_value_int(p->out->arena, first->buffer, err),
                          put_buffer(p, first, n, err));
    }
    return dcpk_dict_end(&made);
}

/*
 * Data-parallel rank 0 writes the state, of experts rank 0 of theirs: with both optimizers a list,
 * None for what another file has (MC/optimizer/optimizer.py@0.19.0 ChainedOptimizer
 * save_parameter_state).
 */
dcpk_status dcpk_mp_put_buckets(struct dcpk_mp_putting *p, struct dcpk_error *err)
{
    const struct dcpk_cut *cut = &p->replay.cut;
    const int64_t rank = dcpk_mp_first_rank(cut, p->n_data_parallel, &p->at);
    const bool has[2] = {rank == p->at.tp, rank < cut->etp * cut->ep};
    const size_t first_tensor = p->out->n_tensors;
    const struct dcpk_value *both[2], *file;

    if (p->layout.n == 0)
        return DCPK_OK;
    for (int e = 0; e < 2; e++) {
        both[e] = dcpk_value_none();
        if (has[e])
            both[e] = put_buffers(p, e == 1, err);
        if (both[e] == NULL)
            return err->status;
    }
    file = both[0];
    if (p->layout.has_expert_optimizer)
        file = dcpk_value_seq(p->out->arena, DCPK_V_LIST, both, 2, err);
    return dcpk_mp_put_file(p, "distrib_optim", file, first_tensor, err);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_from_model.c - the canonical view -> keys of 3D-parallel checkpoints: layers stacked,
 * experts on their axis, masters and moments (formats/torch_dist/FORMAT.md 9). */
#include <inttypes.h>
#include <string.h>

#include "formats/megatron/buckets/megatron_cut.h"
#include "formats/megatron/megatron.h"
#include "formats/megatron/megatron_flatten.h"
#include "formats/megatron/megatron_slots.h"
#include "formats/megatron/megatron_stacking.h"
#include "lib/base/alloc.h"
#include "lib/base/order.h"

const char dcpk_megatron_master_left[] = "fp32 master: optimizer state, which is left out";

/* State of the whole output. */
struct writer {
    const struct dcpk_model *model;
    struct dcpk_output *out;
    enum dcpk_dtype model_dtype; /* of the weights that training computes with */
    bool has_states;             /* masters and moments next to the weights, under keys of theirs */
    bool is_flattened;           /* these, of generation A */
    struct dcpk_grid mesh;       /* mesh of the chunks; tp 0: few large ones */
    bool *is_noted;              /* by source tensor: that its master is not written */
};

/* Put the pieces of one member after the stacked axes, at (layer, expert) of them, into
 * pieces[]. */
static dcpk_status put_member(struct writer *w, const struct dcpk_slot *slot, int64_t member,
                              const struct dcpk_model_tensor *tensor, struct dcpk_piece *pieces,
                              struct dcpk_error *err)
{
    const int64_t at[] = {member / slot->n_experts, member % slot->n_experts};
    const int n_axes = dcpk_slot_axes(slot);

    for (size_t i = 0; i < tensor->n_pieces; i++) {
        const struct dcpk_piece *piece = &tensor->pieces[i];
        struct dcpk_box from, inner, to = {.rank = tensor->rank + n_axes};

        if (n_axes == 0) {
            pieces[i] = *piece;
            continue;
        }
        dcpk_piece_from(piece, &from);
        dcpk_piece_to(piece, &inner);
        for (int a = 0; a < n_axes; a++) {
            to.offset[a] = at[slot->has_layers ? a : 1];
            to.extent[a] = 1;
        }
        memcpy(to.offset + n_axes, inner.offset, (size_t)inner.rank * sizeof *to.offset);
        memcpy(to.extent + n_axes, inner.extent, (size_t)inner.rank * sizeof *to.extent);
        if (dcpk_piece_like(w->out->arena, piece, &from, &to, &pieces[i], err) != DCPK_OK)
            return err->status;
    }
    return DCPK_OK;
}

/* The stacked shape; the members have been found to be of one shape. */
static dcpk_status stack_shape(struct writer *w, const struct dcpk_slot *slot,
                               const struct dcpk_model_tensor *member, struct dcpk_out_tensor *out,
                               struct dcpk_error *err)
{
    const int n_axes = dcpk_slot_axes(slot);
    int64_t *shape;

    out->rank = member->rank + n_axes;
    if (out->rank > DCPK_MAX_RANK)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "'%s' would have %d axes", slot->keys[0],
                         out->rank);
    shape = dcpk_arena_array(w->out->arena, (size_t)out->rank + 1, sizeof *shape, err);
    if (shape == NULL)
        return err->status;
    if (n_axes > 0)
        shape[0] = slot->has_layers ? slot->n_layers : slot->n_experts;
    if (n_axes > 1)
        shape[1] = slot->n_experts;
    memcpy(shape + n_axes, member->shape, (size_t)member->rank * sizeof *shape);
    out->shape = shape;
    return DCPK_OK;
}

/* The chunks that the ranks of the mesh would write; without a mesh, few large ones. */
static dcpk_status cut_tensor(struct writer *w, const struct dcpk_slot *slot,
                              struct dcpk_out_tensor *out, struct dcpk_error *err)
{
    const struct dcpk_grid *mesh = &w->mesh;
    const struct dcpk_stacked_shape stored = {out->shape, out->rank, dcpk_slot_axes(slot)};
    struct dcpk_span_list list;

    if (mesh->tp == 0)
        return DCPK_OK;
    if (dcpk_megatron_spans(mesh, &w->model->params[slot->members[0]], &stored, w->out->arena,
                            &list, err))
        return err->status;
    out->spans = list.spans;
    out->n_spans = list.n;
    return DCPK_OK;
}

/* Write what the members' tensors make together under the keys of `out`. */
static dcpk_status add_stacked(struct writer *w, const struct dcpk_slot *slot,
                               const struct dcpk_model_tensor *members, struct dcpk_out_tensor *out,
                               struct dcpk_error *err)
{
    const int64_t n_members = slot->n_layers * slot->n_experts;
    struct dcpk_piece *pieces;
    size_t n_pieces = 0;

    if (stack_shape(w, slot, &members[0], out, err))
        return err->status;
    for (int64_t m = 0; m < n_members; m++)
        n_pieces += members[m].n_pieces;
    pieces = dcpk_arena_array(w->out->arena, n_pieces, sizeof *pieces, err);
    if (pieces == NULL)
        return err->status;
    for (int64_t m = 0; m < n_members; m++) {
        if (put_member(w, slot, m, &members[m], &pieces[out->n_pieces], err) != DCPK_OK)
            return err->status;
        out->n_pieces += members[m].n_pieces;
    }
    out->pieces = pieces;
    if (cut_tensor(w, slot, out, err))
        return err->status;
    return dcpk_output_add_tensor(w->out, out, err);
}

/* "<key>.<name>" for every key. */
static dcpk_status part_keys(struct writer *w, const char *name, struct dcpk_out_tensor *out,
                             struct dcpk_error *err)
{
    const char **keys = dcpk_arena_array(w->out->arena, out->n_keys, sizeof *keys, err);

    for (size_t k = 0; keys != NULL && k < out->n_keys; k++) {
        keys[k] = dcpk_arena_printf(w->out->arena, err, "%s.%s", out->keys[k], name);
        if (keys[k] == NULL)
            return err->status;
    }
    out->keys = keys;
    return dcpk_made(keys, err);
}

/* Write the rows of all members that lie under one name. members: after them is room for as
 * many. */
static dcpk_status slot_add_rows(struct writer *w, const struct dcpk_slot *slot,
                                 const struct dcpk_stored *stored,
                                 struct dcpk_model_tensor *members, struct dcpk_out_tensor out,
                                 struct dcpk_error *err)
{
    const int64_t n_members = slot->n_layers * slot->n_experts;
    struct dcpk_model_tensor *rows = members + n_members;

    for (int64_t m = 0; m < n_members; m++)
        if (dcpk_rows_take(w->out->arena, &members[m], stored, &rows[m], err))
            return err->status;
    if (*stored->name != '\0' && part_keys(w, stored->name, &out, err))
        return err->status;
    return add_stacked(w, slot, rows, &out, err);
}

/* Write one tensor of a slot: tensors[m] is that of member m; members: room for two tensors
 * each. */
static dcpk_status slot_add_members(struct writer *w, const struct dcpk_slot *slot,
                                    const uint32_t *tensors, struct dcpk_model_tensor *members,
                                    const struct dcpk_out_tensor *out, struct dcpk_error *err)
{
    const int64_t n_members = slot->n_layers * slot->n_experts;

    for (int64_t m = 0; m < n_members; m++) {
        members[m] = w->model->tensors[tensors[m]];
        if (!dcpk_model_same_shape(&members[0], &members[m]))
            return dcpk_fail(err, DCPK_EMISMATCH,
                             "'%s': the %s of layers or experts differ in shape", slot->keys[0],
                             dcpk_role_name(members[m].role));
    }
    if (dcpk_rows_fit(&slot->split, &members[0], err))
        return dcpk_context(err, "'%s'", slot->keys[0]);
    for (size_t i = 0; i < slot->split.n; i++)
        if (slot_add_rows(w, slot, &slot->split.list[i], members, *out, err))
            return err->status;
    return DCPK_OK;
}

static dcpk_status slot_add_tensor(struct writer *w, const struct dcpk_slot *slot,
                                   const uint32_t *tensors, const struct dcpk_out_tensor *out,
                                   struct dcpk_error *err)
{
    const size_t n_members = (size_t)(slot->n_layers * slot->n_experts);
    struct dcpk_model_tensor *members = dcpk_alloc_array(2 * n_members, sizeof *members, err);

    if (members == NULL)
        return err->status;
    (void)slot_add_members(w, slot, tensors, members, out, err);
    dcpk_free(members);
    return err->status;
}

/* Append the slot's keys with `prefix` before them. */
static dcpk_status add_keys(struct writer *w, const struct dcpk_slot *slot, const char *prefix,
                            struct dcpk_out_tensor *out, const char **list, struct dcpk_error *err)
{
    for (size_t k = 0; k < slot->n_keys; k++) {
        list[out->n_keys] = dcpk_arena_printf(w->out->arena, err, "%s%s", prefix, slot->keys[k]);
        if (list[out->n_keys++] == NULL)
            return err->status;
    }
    out->keys = list;
    return DCPK_OK;
}

/* The tensor of each member for a role, into tensors[]: all must have one, or none. */
static dcpk_status pick_all(struct writer *w, const struct dcpk_slot *slot, enum dcpk_role role,
                            const char *state, uint32_t *tensors, struct dcpk_error *err)
{
    const int64_t n_members = slot->n_layers * slot->n_experts;
    int64_t n = 0;

    for (int64_t m = 0; m < n_members; m++) {
        tensors[m] = dcpk_model_find(w->model, slot->members[m], role, state);
        n += tensors[m] != DCPK_NO_TENSOR;
    }
    if (n == 0 || n == n_members)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EMISMATCH, "'%s': only some layers or experts have the %s",
                     slot->keys[0], state != NULL ? state : dcpk_role_name(role));
}

/* The same of an optimizer's state, in the form of the target's generation. */
static dcpk_status slot_add_form(struct writer *w, const struct dcpk_slot *slot,
                                 const uint32_t *tensors, const struct dcpk_out_tensor *out,
                                 struct dcpk_error *err)
{
    const size_t first = w->out->n_tensors;

    if (slot_add_tensor(w, slot, tensors, out, err))
        return err->status;
    for (size_t t = first; w->is_flattened && t < w->out->n_tensors; t++)
        if (dcpk_megatron_flatten(w->out->arena, &w->out->tensors[t], err))
            return err->status;
    return DCPK_OK;
}

/*
 * An optimizer tensor of a slot, if there is one: "optimizer.state.<state>.<key>". An optimizer
 * that is not distributed calls masters "fp32_param" (MC/optimizer/optimizer.py@0.19.0
 * Float16OptimizerWithFloat16Params): a second name for a run that has one.
 */
static dcpk_status slot_add_state(struct writer *w, const struct dcpk_slot *slot,
                                  enum dcpk_role role, const char *state, uint32_t *tensors,
                                  struct dcpk_error *err)
{
    struct dcpk_out_tensor out = {.dtype = DCPK_F32};
    const char **keys = dcpk_arena_array(w->out->arena, 2 * slot->n_keys, sizeof *keys, err);
    const char *prefix = dcpk_arena_printf(w->out->arena, err, "optimizer.state.%s.", state);
    const char *other = role == DCPK_STATE ? state : NULL;

    if (keys == NULL || prefix == NULL || pick_all(w, slot, role, other, tensors, err))
        return err->status;
    if (tensors[0] == DCPK_NO_TENSOR)
        return DCPK_OK;
    out.dtype = w->model->tensors[tensors[0]].dtype;
    /* First: zarr writes one name. */
    if ((role == DCPK_MASTER && !dcpk_megatron_is_distributed(w->model) &&
         add_keys(w, slot, "optimizer.state.fp32_param.", &out, keys, err)) ||
        add_keys(w, slot, prefix, &out, keys, err))
        return err->status;
    return slot_add_form(w, slot, tensors, &out, err);
}

/* The masters of a slot; of generation A, whose form is another than the weight's, a weight that
 * has no other master is written once more. */
static dcpk_status slot_add_master(struct writer *w, const struct dcpk_slot *slot,
                                   uint32_t *tensors, struct dcpk_error *err)
{
    const struct dcpk_param *p = &w->model->params[slot->members[0]];
    struct dcpk_out_tensor out = {.dtype = DCPK_F32};
    const char **keys;

    if (!w->is_flattened)
        return slot_add_state(w, slot, DCPK_MASTER, "param", tensors, err);
    if (p->tensor[DCPK_MASTER] != DCPK_NO_TENSOR || p->tensor[DCPK_EXP_AVG] == DCPK_NO_TENSOR)
        return slot_add_state(w, slot, DCPK_MASTER, "fp32_param", tensors, err);
    keys = dcpk_arena_array(w->out->arena, slot->n_keys, sizeof *keys, err);
    if (keys == NULL || pick_all(w, slot, DCPK_WEIGHT, NULL, tensors, err) ||
        add_keys(w, slot, "optimizer.state.fp32_param.", &out, keys, err))
        return err->status;
    return slot_add_form(w, slot, tensors, &out, err);
}

/* Picks the source of the stored weight: the model's own, or its master, rounded. */
static dcpk_status pick_weights(struct writer *w, const struct dcpk_slot *slot, uint32_t *tensors,
                                enum dcpk_dtype *dtype, bool *is_master, struct dcpk_error *err)
{
    *dtype = DCPK_DTYPE_NONE;
    *is_master = false;
    for (int64_t m = 0; m < slot->n_layers * slot->n_experts; m++) {
        const struct dcpk_param *p = &w->model->params[slot->members[m]];
        enum dcpk_dtype d;

        tensors[m] = p->tensor[DCPK_WEIGHT];
        if (tensors[m] == DCPK_NO_TENSOR) {
            tensors[m] = p->tensor[DCPK_MASTER];
            *is_master = true;
        }
        if (tensors[m] == DCPK_NO_TENSOR)
            return dcpk_fail(err, DCPK_EFORMAT, "'%s' has optimizer state but no weight", p->name);
        d = w->model->tensors[tensors[m]].dtype;
        if (p->tensor[DCPK_WEIGHT] == DCPK_NO_TENSOR)
            d = w->model_dtype;
        if (*dtype != DCPK_DTYPE_NONE && d != *dtype)
            return dcpk_fail(err, DCPK_EMISMATCH, "'%s': layers or experts are of %s and of %s",
                             slot->keys[0], dcpk_dtype_name(*dtype), dcpk_dtype_name(d));
        *dtype = d;
    }
    return DCPK_OK;
}

/* A trained weight without a better master is its own: the same bytes under both keys. */
static bool is_own_master(const struct writer *w, const struct dcpk_slot *slot,
                          enum dcpk_dtype dtype, bool is_master)
{
    const struct dcpk_param *p = &w->model->params[slot->members[0]];

    if (!w->has_states || w->is_flattened || p->is_buffer)
        return false;
    if (is_master) /* of the first member too: else pick_all reports the fault */
        return p->tensor[DCPK_MASTER] != DCPK_NO_TENSOR &&
               w->model->tensors[p->tensor[DCPK_MASTER]].dtype == dtype;
    return p->tensor[DCPK_MASTER] == DCPK_NO_TENSOR && p->tensor[DCPK_EXP_AVG] != DCPK_NO_TENSOR;
}

static dcpk_status add_weight(struct writer *w, const struct dcpk_slot *slot, uint32_t *tensors,
                              bool *needs_master, struct dcpk_error *err)
{
    struct dcpk_out_tensor out = {.n_keys = 0};
    const char **keys = dcpk_arena_array(w->out->arena, 2 * slot->n_keys, sizeof *keys, err);
    bool is_master, is_own;

    if (keys == NULL || pick_weights(w, slot, tensors, &out.dtype, &is_master, err))
        return err->status;
    is_own = is_own_master(w, slot, out.dtype, is_master);
    *needs_master = w->has_states && !is_own;
    if (add_keys(w, slot, "", &out, keys, err) ||
        (is_own && add_keys(w, slot, "optimizer.state.param.", &out, keys, err)))
        return err->status;
    return slot_add_tensor(w, slot, tensors, &out, err);
}

void dcpk_megatron_omit(struct dcpk_output *out, const struct dcpk_model_tensor *tensor,
                        bool *is_noted, const char *why)
{
    const struct dcpk_checkpoint *source = out->source;

    for (size_t i = 0; i < tensor->n_pieces; i++) {
        const char *key = source->tensors[tensor->pieces[i].src].key;
        const struct dcpk_tensor *stored = dcpk_checkpoint_tensor(source, key);

        if (stored == NULL || is_noted[stored - source->tensors])
            continue;
        is_noted[stored - source->tensors] = true;
        dcpk_output_event(out, DCPK_EVENT_OMITTED, key, "%s", why);
    }
}

/* Without the optimizer a master next to its weight is left out. */
static void note_unwritten(struct writer *w, const struct dcpk_slot *slot)
{
    for (int64_t m = 0; m < slot->n_layers * slot->n_experts; m++) {
        const struct dcpk_param *p = &w->model->params[slot->members[m]];

        if (p->tensor[DCPK_MASTER] != DCPK_NO_TENSOR && p->tensor[DCPK_WEIGHT] != DCPK_NO_TENSOR)
            dcpk_megatron_omit(w->out, &w->model->tensors[p->tensor[DCPK_MASTER]], w->is_noted,
                               dcpk_megatron_master_left);
    }
}

static dcpk_status add_slot(struct writer *w, const struct dcpk_slot *slot, struct dcpk_error *err)
{
    const size_t n_members = (size_t)(slot->n_layers * slot->n_experts);
    uint32_t *tensors = dcpk_alloc_array(n_members, sizeof *tensors, err);
    const struct dcpk_model *m = w->model;
    const uint32_t param = slot->members[0];
    bool needs_master = false;

    if (tensors == NULL || add_weight(w, slot, tensors, &needs_master, err) ||
        (needs_master && slot_add_master(w, slot, tensors, err)) ||
        (w->has_states && slot_add_state(w, slot, DCPK_EXP_AVG, "exp_avg", tensors, err)) ||
        (w->has_states && slot_add_state(w, slot, DCPK_EXP_AVG_SQ, "exp_avg_sq", tensors, err)))
        goto out;
    for (uint32_t t = m->params[param].tensor[DCPK_STATE]; w->has_states && t != DCPK_NO_TENSOR;
         t = m->tensors[t].next_state)
        if (slot_add_state(w, slot, DCPK_STATE, m->tensors[t].state, tensors, err))
            goto out;
    if (!m->has_optimizer)
        note_unwritten(w, slot);
out:
    dcpk_free(tensors);
    return err->status;
}

/* Refuses state that releases of generation A do not have, or have in an order that is not
 * written. */
static dcpk_status check_generation_a(const struct writer *w, struct dcpk_error *err)
{
    if (dcpk_megatron_has_buckets(w->model, w->out))
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "no release that reads generation A has optimizer state in buckets as "
                         "they are written (dp_reshardable)");
    for (size_t i = 0; w->is_flattened && i < w->model->n_params; i++)
        if (w->model->params[i].expert >= 0 && dcpk_megatron_has_grouped_mlp(w->model))
            return dcpk_fail_fix(err, DCPK_EUNSUPPORTED, DCPK_FIX_WEIGHTS_ONLY,
                                 "'%s': the flattened optimizer state of GroupedMLP experts, which "
                                 "args ask for, is not in the order of weights, and not written",
                                 w->model->params[i].name);
    return DCPK_OK;
}

/* Buckets are of one order of modules, and of ranks that hold parts of tensors: names and chunks
 * are of the same. */
static void tie_to_run(const struct dcpk_model *model, struct dcpk_output *out)
{
    const unsigned spec = dcpk_cut_spec(dcpk_value_attrs(model->args), out->target.impl);

    out->target.impl = "local";
    if ((spec & DCPK_SPEC_TE) != 0)
        out->target.impl = "te";
    if (out->target.mesh.tp == 0)
        out->target.mesh = model->layout;
}

dcpk_status dcpk_megatron_from_model(const struct dcpk_model *model, struct dcpk_output *out,
                                     int n_rng_axes, const struct dcpk_value **common,
                                     struct dcpk_error *err)
{
    struct writer w = {.model = model, .out = out};
    struct dcpk_slots slots = {.list = NULL};
    bool is_known, is_rng_whole = false;

    w.model_dtype = dcpk_megatron_model_dtype(model, &is_known);
    w.has_states = model->has_optimizer && !dcpk_megatron_has_buckets(model, out);
    w.is_flattened = dcpk_megatron_flattens(model, out);
    if (dcpk_megatron_is_generation_a(out) && check_generation_a(&w, err))
        return err->status;
    if (dcpk_megatron_has_buckets(model, out))
        tie_to_run(model, out);
    w.mesh = out->target.mesh;
    if (w.is_flattened && w.mesh.tp == 0) { /* blocks are those of the source's ranks */
        w.mesh = model->layout;
        w.mesh.tp = dcpk_max_i64(w.mesh.tp, 1);
    }
    w.is_noted = dcpk_arena_alloc(out->arena, out->source->n_tensors, err);
    if (w.is_noted == NULL || dcpk_slots_find(model, out, &slots, err))
        goto out;
    if (!is_known)
        dcpk_output_event(out, DCPK_EVENT_NOTE, "params_dtype",
                          "args do not say the model's dtype: weights are rounded to bfloat16");
    for (size_t i = 0; i < slots.n; i++)
        if (add_slot(&w, &slots.list[i], err))
            goto out;
    if (dcpk_megatron_put_extra_states(model, out, &slots, err) == DCPK_OK &&
        dcpk_megatron_put_rng(model, out, n_rng_axes, &is_rng_whole, err) == DCPK_OK)
        (void)dcpk_megatron_make_common(model, out, &slots, is_rng_whole, common, err);
out:
    dcpk_slots_release(&slots);
    return err->status;
}

dcpk_status dcpk_megatron_common(const struct dcpk_model *model, struct dcpk_output *out,
                                 bool is_rng_whole, const struct dcpk_value **common,
                                 struct dcpk_error *err)
{
    struct dcpk_slots slots = {.list = NULL};

    if (dcpk_slots_find(model, out, &slots, err) == DCPK_OK)
        (void)dcpk_megatron_make_common(model, out, &slots, is_rng_whole, common, err);
    dcpk_slots_release(&slots);
    return err->status;
}

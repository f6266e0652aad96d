/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_from_model.c - the canonical view -> what Megatron-FSDP writes (FORMAT.md 4 and 10). */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "formats/fsdp_dtensor/fsdp_dtensor_priv.h"
#include "formats/fsdp_dtensor/fsdp_rows.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/model/laid_out.h"

#define MAX_NAMES 2 /* of the rows of one parameter: two halves */

/* State of the whole output. */
struct writer {
    const struct dcpk_model *model;
    struct dcpk_output *out;
    const char *q;                           /* the wrappers in the keys of parameter groups */
    const char *model_prefix, *state_prefix; /* with their last dot */
    struct dcpk_laid_out laid;               /* the target's layout, where one is given */
    bool *is_noted;    /* by source tensor: that it was replaced by its master */
    bool spells_fused; /* every spelling is wanted */
    bool is_v2;        /* keys of Megatron-FSDP v2 */
    int64_t tp;        /* rows of parts are in the order of so many tensor-parallel ranks */
    bool is_for_tp;    /* there are such rows: args have to name the number of ranks */
};

/* A list of keys under construction. */
struct keys {
    const char **list;
    size_t n;
};

static dcpk_status keys_begin(struct writer *w, size_t capacity, struct keys *keys,
                              struct dcpk_error *err)
{
    keys->n = 0;
    keys->list = dcpk_arena_array(w->out->arena, capacity, sizeof *keys->list, err);
    return dcpk_made(keys->list, err);
}

/* The form in which a parameter is written: rows under names, between a prefix and a suffix. */
struct stored_param {
    const struct dcpk_param *param;
    const char *prefix, *end;
    struct dcpk_split split;
};

/* Keys of one part's tensor under all spellings. */
static dcpk_status spell_keys(struct writer *w, const struct stored_param *e, const char *part,
                              struct keys *keys, struct dcpk_error *err)
{
    const char *suffix = dcpk_fsdp_part_end(part);

    for (size_t i = 0; i < e->param->n_spellings; i++) {
        const char *const parts[] = {e->prefix, e->param->spellings[i], suffix, e->end};
        const char *key = dcpk_arena_join(w->out->arena, parts, DCPK_COUNT(parts), err);

        if (key == NULL)
            return err->status;
        keys->list[keys->n++] = key;
    }
    return DCPK_OK;
}

static struct dcpk_out_tensor whole_tensor(const struct dcpk_model_tensor *tensor)
{
    return (struct dcpk_out_tensor){.dtype = tensor->dtype,
                                    .rank = tensor->rank,
                                    .shape = tensor->shape,
                                    .pieces = tensor->pieces,
                                    .n_pieces = tensor->n_pieces};
}

static dcpk_status add_keyed(struct writer *w, struct dcpk_out_tensor *tensor,
                             const struct keys *keys, struct dcpk_error *err)
{
    tensor->keys = keys->list;
    tensor->n_keys = keys->n;
    return dcpk_output_add_tensor(w->out, tensor, err);
}

/*
 * The stored parts of a parameter: halves of a gated one apart, except v2 (FORMAT.md 5.1); other
 * parts together, in the order of the target's ranks; a parameter without parts as it is.
 */
static dcpk_status param_split(struct writer *w, const struct dcpk_param *p,
                               struct dcpk_split *split, struct dcpk_error *err)
{
    static const struct dcpk_stored whole = {.name = ""};
    struct dcpk_split parts = {.n = 0};
    struct dcpk_stored *ranked;
    bool is_apart;

    *split = (struct dcpk_split){&whole, 1};
    if ((p->parts != NULL || w->tp > 1) && dcpk_parts_of(w->model, p, w->out->arena, &parts, err))
        return err->status;
    is_apart = parts.n > 0 && *dcpk_fsdp_part_end(parts.list[0].name) != '\0';
    if (is_apart && !w->is_v2)
        *split = parts;
    if (is_apart || parts.n == 0)
        return DCPK_OK;
    ranked = dcpk_arena_alloc(w->out->arena, sizeof *ranked, err);
    if (ranked == NULL)
        return err->status;
    if (dcpk_rows_by_rank(w->out->arena, &parts, w->tp, ranked, err))
        return dcpk_context(err, "'%s'", p->name);
    *split = (struct dcpk_split){ranked, 1};
    return DCPK_OK;
}

/* The rows of one tensor that lie under one name. */
static dcpk_status param_add_rows(struct writer *w, const struct stored_param *e,
                                  const struct dcpk_model_tensor *tensor,
                                  const struct dcpk_stored *stored, struct dcpk_error *err)
{
    const bool is_part = stored->n_rows == 1; /* else all rows, perhaps in the order of ranks */
    struct dcpk_model_tensor rows;
    struct dcpk_out_tensor out;
    struct keys keys;

    if (keys_begin(w, e->param->n_spellings, &keys, err) ||
        spell_keys(w, e, stored->name, &keys, err) ||
        dcpk_rows_take(w->out->arena, tensor, stored, &rows, err))
        return err->status;
    out = whole_tensor(&rows);
    if (dcpk_laid_out_cut(&w->laid, tensor->param, is_part ? stored->rows : NULL, w->out->arena,
                          &out, err))
        return err->status;
    return add_keyed(w, &out, &keys, err);
}

/* One tensor of a parameter, which is stored as its weight is. */
static dcpk_status add_param_tensor(struct writer *w, const struct stored_param *e,
                                    const struct dcpk_model_tensor *tensor, struct dcpk_error *err)
{
    if (dcpk_rows_fit(&e->split, tensor, err))
        return dcpk_context(err, "'%s'", e->param->name);
    for (size_t i = 0; i < e->split.n; i++)
        if (param_add_rows(w, e, tensor, &e->split.list[i], err))
            return err->status;
    return DCPK_OK;
}

/* Keys of an optimizer entry that is not cut: a gated parameter has it under both halves' names. */
static dcpk_status uncut_keys(struct writer *w, const struct dcpk_param *p, const char *end,
                              struct keys *keys, struct dcpk_error *err)
{
    struct stored_param e = {.param = p, .prefix = w->state_prefix, .end = end};

    if (param_split(w, p, &e.split, err))
        return err->status;
    for (size_t i = 0; i < e.split.n; i++)
        if (spell_keys(w, &e, e.split.list[i].name, keys, err))
            return err->status;
    return DCPK_OK;
}

/* Another state than Adam's moments (momentum_buffer): never cut (FORMAT.md 5.1). */
static dcpk_status add_other_state(struct writer *w, const struct dcpk_param *p,
                                   const struct dcpk_model_tensor *tensor, struct dcpk_error *err)
{
    struct dcpk_out_tensor out = whole_tensor(tensor);
    const char *end = dcpk_arena_printf(w->out->arena, err, ".%s", tensor->state);
    struct keys keys;

    if (end == NULL || keys_begin(w, MAX_NAMES * p->n_spellings, &keys, err) ||
        uncut_keys(w, p, end, &keys, err))
        return err->status;
    return add_keyed(w, &out, &keys, err);
}

/* The stored weight is not written where its master is: adds a note, once a source tensor. */
static void note_replaced(struct writer *w, const struct dcpk_param *p)
{
    const uint32_t weight = p->tensor[DCPK_WEIGHT];

    if (weight == DCPK_NO_TENSOR || p->tensor[DCPK_MASTER] == DCPK_NO_TENSOR)
        return;
    for (size_t i = 0; i < w->model->tensors[weight].n_pieces; i++) {
        const uint32_t src = w->model->tensors[weight].pieces[i].src;

        if (src >= w->out->source->n_tensors || w->is_noted[src])
            continue;
        w->is_noted[src] = true;
        dcpk_output_event(w->out, DCPK_EVENT_OMITTED, w->out->source->tensors[src].key,
                          "replaced by its fp32 master, which Megatron-FSDP keeps as the weight");
    }
}

static dcpk_status fsdp_add_param(struct writer *w, uint32_t param, struct dcpk_error *err)
{
    static const struct {
        enum dcpk_role role;
        const char *end;
    } moments[] = {{DCPK_EXP_AVG, ".exp_avg"}, {DCPK_EXP_AVG_SQ, ".exp_avg_sq"}};
    const struct dcpk_model *m = w->model;
    const struct dcpk_param *p = &m->params[param];
    const struct dcpk_model_tensor *value = dcpk_model_value(m, p);
    struct stored_param e = {.param = p, .prefix = w->model_prefix, .end = ""};

    assert(value != NULL); /* the rules see to it */
    note_replaced(w, p);
    if (param_split(w, p, &e.split, err) || add_param_tensor(w, &e, value, err))
        return err->status;
    e.prefix = w->state_prefix;
    for (size_t i = 0; i < DCPK_COUNT(moments); i++) {
        const uint32_t t = p->tensor[moments[i].role];

        e.end = moments[i].end;
        if (t != DCPK_NO_TENSOR && add_param_tensor(w, &e, &m->tensors[t], err))
            return err->status;
    }
    for (uint32_t t = p->tensor[DCPK_STATE]; t != DCPK_NO_TENSOR; t = m->tensors[t].next_state)
        if (add_other_state(w, p, &m->tensors[t], err))
            return err->status;
    return DCPK_OK;
}

/*
 * torch AdamW's step: one fp32 scalar per group, listed under every parameter of it. TE's FusedAdam
 * has the group's field instead.
 */
static dcpk_status add_steps(struct writer *w, uint32_t group, struct dcpk_error *err)
{
    const struct dcpk_model *m = w->model;
    struct dcpk_out_tensor out = {.dtype = DCPK_F32, .rank = 0};
    float *literal = dcpk_arena_alloc(w->out->arena, sizeof *literal, err);
    struct keys keys;
    size_t capacity = 0;
    double step;

    if (!dcpk_value_as_float(dcpk_value_get(m->groups[group], "step"), &step)) {
        dcpk_output_event(w->out, DCPK_EVENT_NOTE, "step",
                          "parameter group %" PRIu32
                          " of the source has no step: a strict load with optimizer will miss it",
                          group);
        return DCPK_OK;
    }
    for (size_t i = 0; i < m->n_params; i++)
        if (m->params[i].group == group)
            capacity += MAX_NAMES * m->params[i].n_spellings;
    if (capacity == 0)
        return DCPK_OK;
    if (literal == NULL || keys_begin(w, capacity, &keys, err))
        return err->status;
    for (size_t i = 0; i < m->n_params; i++)
        if (m->params[i].group == group && uncut_keys(w, &m->params[i], ".step", &keys, err))
            return err->status;
    *literal = (float)step;
    out.literal = literal;
    return add_keyed(w, &out, &keys, err);
}

/* Main asks for the group of a fused down-projection by its live name, of which the keys' and
 * values' part, like the query's, is a half: the query's leads to it. *fused NULL: not such a
 * half. */
static dcpk_status find_fused(struct writer *w, const char *param, const char **fused,
                              struct dcpk_error *err)
{
    *fused = NULL;
    if (!w->spells_fused || strstr(param, "linear_q_down_proj.") == NULL)
        return DCPK_OK;
    return dcpk_fsdp_fused_name(w->out->arena, param, fused, err);
}

static dcpk_status add_group_key(struct writer *w, const char *param, struct keys *keys,
                                 struct dcpk_error *err)
{
    const char *const parts[] = {FD_GROUP, w->q, param};

    keys->list[keys->n] = dcpk_arena_join(w->out->arena, parts, DCPK_COUNT(parts), err);
    return dcpk_made(keys->list[keys->n++], err);
}

/* Lists the keys for the fields of a group: every parameter of it (unsplit names, FORMAT.md 7). */
static dcpk_status group_keys(struct writer *w, uint32_t group, struct keys *keys,
                              struct dcpk_error *err)
{
    const struct dcpk_model *m = w->model;
    size_t capacity = 0;

    for (size_t i = 0; i < m->n_params; i++)
        if (m->params[i].group == group)
            capacity += m->params[i].n_spellings + 1;
    if (keys_begin(w, capacity, keys, err))
        return err->status;
    for (size_t i = 0; i < m->n_params; i++) {
        const struct dcpk_param *p = &m->params[i];
        const char *fused = NULL;

        if (p->group != group)
            continue;
        for (size_t s = 0; s < p->n_spellings; s++)
            if (add_group_key(w, p->spellings[s], keys, err))
                return err->status;
        if (find_fused(w, p->name, &fused, err) ||
            (fused != NULL && add_group_key(w, fused, keys, err)))
            return err->status;
    }
    return DCPK_OK;
}

/* One payload, listed under every key. */
static dcpk_status add_group_field(struct writer *w, uint32_t group, const struct keys *keys,
                                   const struct dcpk_value_pair *field, struct dcpk_error *err)
{
    const char *name = dcpk_value_as_str(field->key);
    uint32_t payload;

    if (name == NULL) {
        dcpk_output_event(w->out, DCPK_EVENT_DROPPED, "param_groups",
                          "a field of parameter group %" PRIu32 " whose name is not text", group);
        return DCPK_OK;
    }
    if (strcmp(name, "params") == 0)
        return DCPK_OK;
    if (dcpk_output_add_payload(w->out, field->value, NULL, &payload, err))
        return err->status;
    for (size_t i = 0; i < keys->n; i++)
        if (dcpk_output_add_field(w->out, keys->list[i], name, payload, err))
            return err->status;
    return DCPK_OK;
}

static dcpk_status add_groups(struct writer *w, struct dcpk_error *err)
{
    if (w->model->n_groups == 0)
        return dcpk_fail_fix(err, DCPK_EUNSUPPORTED, DCPK_FIX_WEIGHTS_ONLY,
                             "the source has optimizer state but no parameter groups, without "
                             "which Megatron does not load it");
    for (uint32_t g = 0; g < w->model->n_groups; g++) {
        const struct dcpk_value *group = w->model->groups[g];
        struct keys keys;

        if (add_steps(w, g, err))
            return err->status;
        if (w->is_v2)
            continue;
        if (group_keys(w, g, &keys, err))
            return err->status;
        for (size_t i = 0; i < group->n; i++)
            if (add_group_field(w, g, &keys, &group->as.pairs[i], err))
                return err->status;
    }
    if (!w->is_v2)
        return DCPK_OK;
    return dcpk_fsdp_v2_add_groups(w->model, w->out, err);
}

/* A prefix of the caller's with its dot, or our own. */
static const char *choose_prefix(struct dcpk_arena *arena, const char *own, const char *q,
                                 const char *given, struct dcpk_error *err)
{
    if (given != NULL)
        return dcpk_arena_printf(arena, err, "%s.", given);
    return dcpk_arena_printf(arena, err, "%s%s", own, q);
}

/*
 * The number of tensor-parallel ranks that the rows of Mamba's and Gated DeltaNet's projections are
 * for: the target's, else the source's in this format, else one.
 */
static int64_t choose_tp(const struct dcpk_model *model, const struct dcpk_grid *mesh)
{
    if (mesh->dp > 0)
        return dcpk_max_i64(mesh->tp, 1);
    return dcpk_max_i64(model->rows_tp, 1);
}

/* Adds a note if there are such rows: with no other target they are written for one rank. */
static bool note_order(const struct dcpk_model *model, struct dcpk_output *out, int64_t tp)
{
    for (size_t i = 0; i < model->n_params; i++) {
        if (!dcpk_ends_with(model->params[i].name, ".in_proj.weight"))
            continue;
        if (tp == 1)
            dcpk_output_event(
                out, DCPK_EVENT_NOTE, model->params[i].name,
                "'%s' and other projections like it have the rows of a run without tensor "
                "parallelism, and args say so: load with --tensor-model-parallel-size 1, or "
                "convert for the tensor parallelism of the run that loads them",
                model->params[i].name);
        return true;
    }
    return false;
}

static void note_extra_states(const struct dcpk_model *model, struct dcpk_output *out)
{
    for (size_t i = 0; i < model->n_extra_states; i++)
        dcpk_output_event(out, DCPK_EVENT_OMITTED, model->extra_states[i].object->key,
                          "extra state of Transformer Engine (FP8 recipe), not kept by "
                          "Megatron-FSDP");
}

/* Training state that no loader of this format asks for (MC/optimizer/distrib_optimizer.py@0.19.0
 * sharded_param_state_fsdp_dtensor keeps no scaler). */
static void note_state(const struct dcpk_model *model, struct dcpk_output *out)
{
    const struct dcpk_value *more = model->further;

    if (model->scaler != NULL)
        dcpk_output_event(out, DCPK_EVENT_DROPPED, "optimizer.grad_scaler",
                          "the loss scaler's state: Megatron-FSDP keeps none, a run starts with "
                          "its own");
    for (size_t i = 0; more != NULL && i < more->n; i++) {
        const char *name = dcpk_value_as_str(more->as.pairs[i].key);

        if (name == NULL)
            name = "?";
        dcpk_output_event(out, DCPK_EVENT_DROPPED, name,
                          "an entry of the common state that Megatron-FSDP does not ask for");
    }
}

/* Q: the wrappers around the model (FORMAT.md 4). */
static const char *choose_q(const struct dcpk_model *model, bool is_v2)
{
    if (is_v2)
        return "";
    return model->is_fp32 ? FD_Q_FP32 : FD_Q_LOW;
}

/* The parameters with their moments, cut as the target's ranks hold them. */
static dcpk_status add_params(struct writer *w, struct dcpk_error *err)
{
    const struct dcpk_target *target = &w->out->target;
    const struct dcpk_placing placing = {target->mesh, true, target->bucket_elems};

    if (target->mesh.dp > 0)
        (void)dcpk_lay_out(w->model, &placing, &w->laid, err);
    for (uint32_t i = 0; i < w->model->n_params && err->status == DCPK_OK; i++)
        (void)fsdp_add_param(w, i, err);
    dcpk_laid_out_release(&w->laid);
    return err->status;
}

dcpk_status dcpk_fsdp_from_model(const struct dcpk_model *model, struct dcpk_output *out,
                                 struct dcpk_error *err)
{
    const bool is_v2 = dcpk_fsdp_wants_v2(out);
    const char *q = choose_q(model, is_v2), *own = is_v2 ? FD_V2_MODEL : FD_MODEL;
    struct writer w = {
        .model = model,
        .out = out,
        .q = q,
        .is_v2 = is_v2,
        .model_prefix = choose_prefix(out->arena, own, "", out->model_prefix, err),
        .state_prefix = choose_prefix(out->arena, FD_STATE, q, out->state_prefix, err),
        .is_noted = dcpk_arena_alloc(out->arena, out->source->n_tensors, err),
        .spells_fused = out->target.impl == NULL,
        .tp = is_v2 ? 1 : choose_tp(model, &out->target.mesh),
    };

    if (w.model_prefix == NULL || w.state_prefix == NULL || w.is_noted == NULL ||
        add_params(&w, err))
        return err->status;
    w.is_for_tp = note_order(model, out, w.tp);
    note_extra_states(model, out);
    note_state(model, out);
    if (!model->has_optimizer || model->scheduler == NULL || is_v2)
        out->load_needs |= DCPK_LOAD_WITHOUT_OPTIM;
    if ((model->has_optimizer && add_groups(&w, err)) ||
        (is_v2 && dcpk_fsdp_v2_add_extra_states(model, out, err)))
        return err->status;
    return dcpk_fsdp_put_state(model, out, w.tp, w.is_for_tp, err);
}

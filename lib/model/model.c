/* SPDX-License-Identifier: Apache-2.0 */
/* model.c - the tables of the canonical view. */
#include "lib/model/model.h"

#include <string.h>

#include "lib/base/alloc.h"
#include "lib/model/arg_table.h"
#include "lib/model/sizes.h"

static const char *const role_names[DCPK_N_ROLES] = {
    [DCPK_WEIGHT] = "weight",         [DCPK_MASTER] = "master", [DCPK_EXP_AVG] = "exp_avg",
    [DCPK_EXP_AVG_SQ] = "exp_avg_sq", [DCPK_STEP] = "step",     [DCPK_STATE] = "state",
};

const char *dcpk_role_name(enum dcpk_role role)
{
    return role_names[role];
}

dcpk_status dcpk_model_new(struct dcpk_checkpoint *ckpt, struct dcpk_model **model,
                           struct dcpk_error *err)
{
    struct dcpk_model *m = dcpk_alloc(sizeof *m, err);

    if (m == NULL)
        return err->status;
    m->ckpt = ckpt;
    m->optimizer_layout = "none";
    m->dropped_end = &m->dropped;
    m->omitted_end = &m->omitted;
    m->carried_end = &m->carried;
    m->arena = dcpk_arena_new();
    m->loaded.arena = m->arena;
    *model = m;
    return DCPK_OK;
}

void dcpk_model_free(struct dcpk_model *model)
{
    if (model == NULL)
        return;
    dcpk_by_place_release(&model->loaded);
    dcpk_map_release(&model->param_by_name);
    dcpk_map_release(&model->rng_by_rank);
    dcpk_free(model->params);
    dcpk_free(model->tensors);
    dcpk_free(model->extra_states);
    dcpk_free(model->rng);
    dcpk_arena_free(model->arena);
    dcpk_free(model);
}

dcpk_status dcpk_model_param(struct dcpk_model *model, const char *name, uint32_t *param,
                             struct dcpk_error *err)
{
    struct dcpk_param *p;
    const char *copy;
    bool existed;
    uint64_t found;

    if (dcpk_map_get(&model->param_by_name, name, strlen(name), &found)) {
        *param = (uint32_t)found;
        return DCPK_OK;
    }
    copy = dcpk_arena_strdup(model->arena, name, err);
    if (copy == NULL ||
        dcpk_grow(&model->params, &model->params_capacity, model->n_params, sizeof *model->params,
                  err) ||
        dcpk_map_put(&model->param_by_name, copy, strlen(copy), model->n_params, &existed, &found,
                     err))
        return err->status;
    p = &model->params[model->n_params];
    *p = (struct dcpk_param){.name = copy,
                             .group = DCPK_NO_GROUP,
                             .tp_axis = DCPK_TP_UNKNOWN,
                             .expert = -1,
                             .unit = DCPK_NO_UNIT,
                             .place = DCPK_NO_PLACE};
    for (int role = 0; role < DCPK_N_ROLES; role++)
        p->tensor[role] = DCPK_NO_TENSOR;
    *param = (uint32_t)model->n_params++;
    return DCPK_OK;
}

uint32_t dcpk_model_find(const struct dcpk_model *model, uint32_t param, enum dcpk_role role,
                         const char *state)
{
    uint32_t t = model->params[param].tensor[role];

    while (role == DCPK_STATE && t != DCPK_NO_TENSOR && strcmp(model->tensors[t].state, state) != 0)
        t = model->tensors[t].next_state;
    return t;
}

/* The source key that a model tensor starts in, for messages. */
static const char *source_key(const struct dcpk_model *model,
                              const struct dcpk_model_tensor *tensor)
{
    if (tensor->n_pieces == 0 || tensor->pieces[0].src == DCPK_PIECE_FILL)
        return "(nothing)";
    return model->ckpt->tensors[tensor->pieces[0].src].key;
}

dcpk_status dcpk_model_add(struct dcpk_model *model, const struct dcpk_model_tensor *tensor,
                           struct dcpk_error *err)
{
    uint32_t *link = &model->params[tensor->param].tensor[tensor->role];
    const uint32_t twin = dcpk_model_find(model, tensor->param, tensor->role, tensor->state);
    dcpk_status st;

    if (twin != DCPK_NO_TENSOR)
        return dcpk_fail(err, DCPK_EFORMAT, "'%s' and '%s' are both the %s of parameter '%s'",
                         source_key(model, &model->tensors[twin]), source_key(model, tensor),
                         dcpk_role_name(tensor->role), model->params[tensor->param].name);
    st = dcpk_grow(&model->tensors, &model->tensors_capacity, model->n_tensors,
                   sizeof *model->tensors, err);
    if (st != DCPK_OK)
        return st;
    while (*link != DCPK_NO_TENSOR) /* other states of the parameter: a few */
        link = &model->tensors[*link].next_state;
    *link = (uint32_t)model->n_tensors;
    model->tensors[model->n_tensors] = *tensor;
    model->tensors[model->n_tensors++].next_state = DCPK_NO_TENSOR;
    return DCPK_OK;
}

dcpk_status dcpk_model_add_extra(struct dcpk_model *model, const struct dcpk_extra *extra,
                                 struct dcpk_error *err)
{
    if (dcpk_grow(&model->extra_states, &model->extra_states_capacity, model->n_extra_states,
                  sizeof *model->extra_states, err) != DCPK_OK)
        return err->status;
    model->extra_states[model->n_extra_states++] = *extra;
    return DCPK_OK;
}

dcpk_status dcpk_model_add_group(struct dcpk_model *model, const struct dcpk_value *group,
                                 struct dcpk_error *err)
{
    if (model->n_groups >= DCPK_MAX_GROUPS)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "the optimizer has more than %d parameter groups",
                         DCPK_MAX_GROUPS);
    if (model->groups == NULL)
        model->groups = dcpk_arena_array(model->arena, DCPK_MAX_GROUPS, sizeof *model->groups, err);
    if (model->groups == NULL)
        return err->status;
    model->groups[model->n_groups++] = group;
    return DCPK_OK;
}

/* Append "key\treason", or the key alone. Lost silently only when memory is out. */
static void model_add_note(struct dcpk_model *model, struct dcpk_note ***end, const char *key,
                           const char *reason)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_note *note = dcpk_arena_alloc(model->arena, sizeof *note, &err);

    if (note == NULL)
        return;
    if (reason == NULL)
        note->text = dcpk_arena_strdup(model->arena, key, &err);
    else
        note->text = dcpk_arena_printf(model->arena, &err, "%s\t%s", key, reason);
    if (note->text == NULL)
        return;
    **end = note;
    *end = &note->next;
}

void dcpk_model_drop(struct dcpk_model *model, const char *key, const char *reason)
{
    model_add_note(model, &model->dropped_end, key, reason);
}

const char dcpk_reason_weights_only[] = "optimizer state, not wanted: weights only";

void dcpk_model_omit(struct dcpk_model *model, const char *key, const char *reason)
{
    model_add_note(model, &model->omitted_end, key, reason);
}

void dcpk_model_carry(struct dcpk_model *model, const char *key)
{
    model_add_note(model, &model->carried_end, key, NULL);
}

bool dcpk_model_same_shape(const struct dcpk_model_tensor *a, const struct dcpk_model_tensor *b)
{
    return dcpk_shape_equal(a->shape, a->rank, b->shape, b->rank);
}

dcpk_status dcpk_args_merge_given(const struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                                  const struct dcpk_value **args, struct dcpk_error *err)
{
    const struct dcpk_value *given = dcpk_value_attrs(ckpt->given.args);
    const struct dcpk_value *stored = dcpk_value_attrs(*args), *both;
    struct dcpk_dict made = {.arena = arena, .err = err};

    if (given == NULL)
        return DCPK_OK;
    for (size_t i = 0; stored != NULL && i < stored->n; i++) {
        const char *name = dcpk_value_as_str(stored->as.pairs[i].key);

        if (name == NULL || !dcpk_arg_is_given(given, name))
            dcpk_dict_add(&made, stored->as.pairs[i].key, stored->as.pairs[i].value);
    }
    dcpk_dict_put_all(&made, given);
    if (err->status != DCPK_OK)
        return err->status;
    both = dcpk_value_namespace(arena, made.pairs, made.n, err);
    if (both == NULL)
        return err->status;
    *args = both;
    return DCPK_OK;
}

dcpk_status dcpk_model_merge_given_args(struct dcpk_model *model, struct dcpk_error *err)
{
    return dcpk_args_merge_given(model->ckpt, model->arena, &model->args, err);
}

void dcpk_model_read_layout(struct dcpk_model *model)
{
    dcpk_layout_read(dcpk_value_attrs(model->args), &model->layout);
}

dcpk_status dcpk_model_put_arg(struct dcpk_model *model, const char *name,
                               const struct dcpk_value *value, struct dcpk_error *err)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(model->args), *args;
    struct dcpk_dict made = {.arena = model->arena, .err = err};

    for (size_t i = 0; attrs != NULL && i < attrs->n; i++) {
        const struct dcpk_value_pair *pair = &attrs->as.pairs[i];

        dcpk_dict_add(&made, pair->key, dcpk_value_is_str(pair->key, name) ? value : pair->value);
    }
    if (dcpk_value_get(attrs, name) == NULL)
        dcpk_dict_put(&made, name, value);
    if (err->status != DCPK_OK)
        return err->status;
    args = dcpk_value_namespace(model->arena, made.pairs, made.n, err);
    if (args == NULL)
        return err->status;
    model->args = args;
    return DCPK_OK;
}

dcpk_status dcpk_model_set_arg(struct dcpk_model *model, const char *name, int64_t value,
                               struct dcpk_error *err)
{
    const struct dcpk_value *number = dcpk_value_int(model->arena, value, err);

    if (number == NULL)
        return err->status;
    return dcpk_model_put_arg(model, name, number, err);
}

const struct dcpk_model_tensor *dcpk_model_value(const struct dcpk_model *model,
                                                 const struct dcpk_param *param)
{
    uint32_t i = param->tensor[DCPK_MASTER];

    if (i == DCPK_NO_TENSOR)
        i = param->tensor[DCPK_WEIGHT];
    if (i == DCPK_NO_TENSOR)
        return NULL;
    return &model->tensors[i];
}

const char *dcpk_model_drop_reason(const struct dcpk_note *note, size_t *key_bytes)
{
    const char *tab = strchr(note->text, '\t');

    *key_bytes = (size_t)(tab - note->text);
    return tab + 1;
}

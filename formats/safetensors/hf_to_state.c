/* SPDX-License-Identifier: Apache-2.0 */
/* hf_to_state.c - optimizer state under names of parameters -> the canonical view. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/safetensors/hf_matching.h"
#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/model/arg_table.h"
#include "lib/model/optimizers.h"

/* --- moments --- */

/* The state of a binding's parameter. Frozen parameters have none, and tied ones have it once. */
static dcpk_status match_state(struct dcpk_hf_matching *m, const struct dcpk_hf_binding *b,
                               enum dcpk_role role, struct dcpk_error *err)
{
    uint32_t stored[DCPK_HF_MAX_PARTS];
    struct dcpk_model_tensor tensor;
    const size_t n = dcpk_hf_binding_find(m, b, stored);
    uint64_t param;

    if (n == 0 || !b->applies || (b->rule->flags & DCPK_HF_COPY) != 0 ||
        !dcpk_map_get(&m->model->param_by_name, b->mg, strlen(b->mg), &param))
        return DCPK_OK;
    for (size_t i = 0; i < b->rule->n_hf; i++)
        if (stored[i] == DCPK_NO_TENSOR)
            return dcpk_fail(err, DCPK_EMISMATCH, "'%s' has no %s, and other parts of '%s' do",
                             b->hf[i], m->state, b->mg);
        else
            m->is_taken[stored[i]] = true;
    if (dcpk_hf_binding_join(m, b, stored, &tensor, err))
        return dcpk_context(err, "the %s of '%s'", m->state, b->hf[0]);
    tensor.param = (uint32_t)param;
    tensor.role = role;
    m->givers[param] = b;
    m->model->has_optimizer = true;
    return dcpk_model_add(m->model, &tensor, err);
}

static dcpk_status match_moments(struct dcpk_hf_matching *m, struct dcpk_error *err)
{
    static const struct {
        enum dcpk_role role;
        const char *name;
    } moments[] = {{DCPK_EXP_AVG, "exp_avg"}, {DCPK_EXP_AVG_SQ, "exp_avg_sq"}};

    for (size_t k = 0; k < DCPK_COUNT(moments); k++) {
        m->state = moments[k].name;
        for (size_t i = 0; i < m->bindings.n; i++)
            if (match_state(m, &m->bindings.list[i], moments[k].role, err))
                return err->status;
    }
    m->state = NULL;
    return DCPK_OK;
}

/* --- groups --- */

/* A field of a group on its way into a dict. */
struct group_field {
    const char *group; /* its number, or the parameter that it is listed under */
    size_t object;     /* past all objects: a tensor, of that number less theirs */
};

/* Fields by their groups. */
struct grouping {
    struct dcpk_hf_matching *m;
    const char *before; /* the fields' keys: "optim.param_groups." */
    struct group_field *fields;
    size_t n;
    const struct dcpk_value **groups; /* dicts without "params" */
    size_t n_groups;
    struct dcpk_map by_name; /* of a parameter -> its group */
};

static int compare_group_fields(const void *left, const void *right)
{
    const struct group_field *a = left, *b = right;
    const int order = strcmp(a->group, b->group);

    return order != 0 ? order : DCPK_THREE_WAY(a->object, b->object);
}

/* Lists the key, where it is "<prefix>.param_groups.<group>.<field>". */
static dcpk_status list_field(struct grouping *g, const char *key, size_t object,
                              struct dcpk_error *err)
{
    struct dcpk_arena *arena = g->m->model->arena;
    const char *name = dcpk_hf_unwrap(arena, key, err), *dot;

    if (name == NULL)
        return err->status;
    dot = strrchr(name, '.');
    if (!dcpk_starts_with(name, g->before) || dot < name + strlen(g->before))
        return DCPK_OK;
    name += strlen(g->before);
    g->fields[g->n].object = object;
    g->fields[g->n].group = dcpk_arena_strndup(arena, name, (size_t)(dot - name), err);
    return dcpk_made(g->fields[g->n++].group, err);
}

/* Lists fields of groups; lr of a fused or capturable optimizer may be a tensor. */
static dcpk_status list_fields(struct grouping *g, struct dcpk_error *err)
{
    const struct dcpk_checkpoint *ckpt = g->m->ckpt;

    g->before =
        dcpk_arena_printf(g->m->model->arena, err, "%s.param_groups.", g->m->names.state_prefix);
    if (g->before == NULL)
        return err->status;
    for (size_t i = 0; i < ckpt->n_objects; i++)
        if (dcpk_checkpoint_object_left_out(ckpt, i) == NULL &&
            list_field(g, ckpt->objects[i].key, i, err))
            return err->status;
    for (size_t t = 0; t < ckpt->n_tensors; t++)
        if (g->m->names.list[t] == NULL && dcpk_checkpoint_tensor_left_out(ckpt, t) == NULL &&
            list_field(g, ckpt->tensors[t].key, ckpt->n_objects + t, err))
            return err->status;
    qsort(g->fields, g->n, sizeof *g->fields, compare_group_fields);
    return DCPK_OK;
}

/* A parameter is of the group that was read last. */
static dcpk_status put_member(struct grouping *g, const char *name, struct dcpk_error *err)
{
    uint64_t found;
    bool existed;

    name = dcpk_hf_unwrap(g->m->model->arena, name, err);
    if (name == NULL ||
        dcpk_map_put(&g->by_name, name, strlen(name), g->n_groups - 1, &existed, &found, err))
        return err->status;
    if (existed && !dcpk_value_equal(g->groups[found], g->groups[g->n_groups - 1]))
        return dcpk_fail(err, DCPK_EFORMAT, "'%s' is in two parameter groups", name);
    return DCPK_OK;
}

/* Its members: those that it lists, or the one that it is listed under. */
static dcpk_status put_members(struct grouping *g, const struct dcpk_value *params,
                               const char *name, struct dcpk_error *err)
{
    if (params == NULL)
        return put_member(g, name, err);
    if (params->kind != DCPK_V_LIST)
        return dcpk_fail(err, DCPK_EFORMAT, "the params of group %s are not a list", name);
    for (size_t i = 0; i < params->n; i++) {
        const char *member = dcpk_value_as_str(params->as.items[i]);

        if (member != NULL && put_member(g, member, err))
            return err->status;
    }
    return DCPK_OK;
}

/* The value of a field, and its key. */
static dcpk_status read_field(struct grouping *g, const struct group_field *field, const char **key,
                              const struct dcpk_value **value, struct dcpk_error *err)
{
    struct dcpk_model *model = g->m->model;
    const size_t n_objects = model->ckpt->n_objects;

    if (field->object < n_objects) {
        const struct dcpk_object *object = &model->ckpt->objects[field->object];

        *key = object->key;
        g->m->is_object_taken[field->object] = true;
        if (dcpk_model_need(model, object, value, err))
            return err->status;
    } else {
        const uint32_t tensor = (uint32_t)(field->object - n_objects);

        *key = model->ckpt->tensors[tensor].key;
        g->m->is_taken[tensor] = true;
        dcpk_model_carry(model, *key);
        if (dcpk_model_load_tensor(model, tensor, value, err))
            return dcpk_context(err, "'%s'", *key);
    }
    if (dcpk_model_take_number(model, value, err))
        dcpk_context(err, "'%s'", *key);
    return err->status;
}

/* One group of n fields. */
static dcpk_status read_fields(struct grouping *g, const struct group_field *fields, size_t n,
                               struct dcpk_error *err)
{
    struct dcpk_model *model = g->m->model;
    struct dcpk_dict group = {.arena = model->arena, .err = err};
    const struct dcpk_value *value, *params = NULL;

    for (size_t i = 0; i < n; i++) {
        const char *name;

        if (read_field(g, &fields[i], &name, &value, err))
            return err->status;
        name = strrchr(name, '.') + 1;
        if (strcmp(name, "params") == 0)
            params = value;
        else
            dcpk_dict_put(&group, name, value);
    }
    g->groups[g->n_groups] = dcpk_dict_end(&group);
    if (g->groups[g->n_groups++] == NULL)
        return err->status;
    return put_members(g, params, fields[0].group, err);
}

/* The step of a parameter: of all its parts, which are trained together. *step: untouched where
 * there is none. */
static dcpk_status read_step(struct dcpk_hf_matching *m, const struct dcpk_hf_binding *b,
                             const struct dcpk_value **step, struct dcpk_error *err)
{
    uint32_t stored[DCPK_HF_MAX_PARTS];

    m->state = "step";
    (void)dcpk_hf_binding_find(m, b, stored);
    m->state = NULL;
    for (size_t i = 0; i < b->rule->n_hf; i++) {
        const struct dcpk_value *other;

        if (stored[i] == DCPK_NO_TENSOR)
            continue;
        if (dcpk_model_read_step(m->model, stored[i], &other, err))
            return err->status;
        if (*step != NULL && !dcpk_value_equal(*step, other))
            return dcpk_fail(err, DCPK_EUNSUPPORTED,
                             "'%s' and '%s' are at different steps, and one parameter of the view",
                             b->hf[0], b->hf[i]);
        *step = other;
        if (!m->is_taken[stored[i]])
            dcpk_model_carry(m->model, m->ckpt->tensors[stored[i]].key);
        m->is_taken[stored[i]] = true;
    }
    return DCPK_OK;
}

/*
 * A trained parameter's group: its fields, its step and, for Megatron, what its loaders know groups
 * by (lib/rules/RULES.md 2): decay of matrices alone, no other multiplier.
 */
static dcpk_status param_put_group(struct grouping *g, uint32_t param,
                                   const struct dcpk_value *fields, struct dcpk_error *err)
{
    struct dcpk_model *model = g->m->model;
    struct dcpk_param *p = &model->params[param];
    const bool decays = model->tensors[p->tensor[DCPK_EXP_AVG]].rank > 1;
    const struct dcpk_value *lr = dcpk_value_get(fields, "initial_lr"), *step = NULL, *dict;
    struct dcpk_dict group = {.arena = model->arena, .err = err};

    if (lr == NULL)
        lr = dcpk_value_get(fields, "lr");
    if (read_step(g->m, g->m->givers[param], &step, err))
        return err->status;
    const struct {
        const char *name;
        const struct dcpk_value *value; /* NULL: left out */
        bool is_megatron;
    } more[] = {{"step", step, false},
                {"wd_mult", dcpk_value_float(model->arena, decays, err), true},
                {"lr_mult", dcpk_value_float(model->arena, 1.0, err), true},
                {"is_expert_parallel", dcpk_value_bool(false), true},
                {"is_decoupled_lr", dcpk_value_bool(false), true},
                {"max_lr", lr, true},
                {"min_lr", dcpk_value_float(model->arena, 0.0, err), true}};

    dcpk_dict_put_all(&group, fields);
    for (size_t i = 0; i < DCPK_COUNT(more); i++)
        if (dcpk_value_get(fields, more[i].name) == NULL &&
            !(more[i].is_megatron && (model->flags & DCPK_MODEL_OF_FAMILY) != 0))
            dcpk_dict_put(&group, more[i].name, more[i].value);
    dict = dcpk_dict_end(&group);
    if (dict == NULL)
        return err->status;
    return dcpk_model_intern_group(model, dict, &p->group, err);
}

/* Trainers with one group decay norms and biases, too. */
static void note_decay(const struct dcpk_model *model)
{
    double decay = 0;
    size_t n = 0;

    for (size_t i = 0; i < model->n_params; i++) {
        const uint32_t moment = model->params[i].tensor[DCPK_EXP_AVG];
        double by;

        if (moment == DCPK_NO_TENSOR || model->tensors[moment].rank > 1 ||
            !dcpk_value_as_float(
                dcpk_value_get(model->groups[model->params[i].group], "weight_decay"), &by) ||
            by <= 0)
            continue;
        decay = by;
        n++;
    }
    if (n > 0)
        dcpk_checkpoint_note_once(model->ckpt,
                                  "the trainer decays %zu parameters of one dimension (norms, "
                                  "biases), by %g; Megatron decays none of them",
                                  n, decay);
}

/* torch's Adam, which is not AdamW: MC/optimizer/optimizer_config.py@0.15.0 to main have a setting
 * for it, and megatron/training has no flag. */
static void note_coupled_decay(const struct dcpk_model *model)
{
    for (size_t g = 0; g < model->n_groups; g++) {
        bool is_decoupled = true;
        double decay = 0;

        (void)dcpk_value_as_bool(dcpk_value_get(model->groups[g], "decoupled_weight_decay"),
                                 &is_decoupled);
        (void)dcpk_value_as_float(dcpk_value_get(model->groups[g], "weight_decay"), &decay);
        if (is_decoupled || decay <= 0)
            continue;
        dcpk_checkpoint_note_once(model->ckpt,
                                  "the trainer's Adam adds its weight decay of %g to gradients; "
                                  "Megatron's is AdamW, unless the run sets decoupled_weight_decay "
                                  "of OptimizerConfig to False",
                                  decay);
        return;
    }
}

static dcpk_status put_groups(struct grouping *g, struct dcpk_error *err)
{
    for (uint32_t i = 0; i < g->m->model->n_params; i++) {
        const struct dcpk_hf_binding *b = g->m->givers[i];
        uint64_t group;

        if (g->m->model->params[i].tensor[DCPK_EXP_AVG] == DCPK_NO_TENSOR)
            continue;
        if (!dcpk_map_get(&g->by_name, b->hf[0], strlen(b->hf[0]), &group))
            return dcpk_fail_fix(err, DCPK_EFORMAT, DCPK_FIX_WEIGHTS_ONLY,
                                 "'%s' has optimizer state and is in no parameter group", b->hf[0]);
        if (param_put_group(g, i, g->groups[group], err))
            return err->status;
    }
    if ((g->m->model->flags & DCPK_MODEL_OF_FAMILY) == 0) {
        note_decay(g->m->model);
        note_coupled_decay(g->m->model);
    }
    return DCPK_OK;
}

static dcpk_status match_groups(struct dcpk_hf_matching *m, struct dcpk_error *err)
{
    const size_t n_most = m->ckpt->n_objects + m->ckpt->n_tensors + 1;
    struct grouping g = {.m = m};

    g.fields = dcpk_alloc_array(n_most, sizeof *g.fields, err);
    g.groups = dcpk_alloc_array(n_most, sizeof *g.groups, err);
    if (g.fields == NULL || g.groups == NULL || list_fields(&g, err))
        goto out;
    for (size_t i = 0, end; i < g.n; i = end) {
        for (end = i + 1; end < g.n && strcmp(g.fields[i].group, g.fields[end].group) == 0; end++)
            ;
        if (read_fields(&g, &g.fields[i], end - i, err))
            goto out;
    }
    (void)put_groups(&g, err);
out:
    dcpk_map_release(&g.by_name);
    dcpk_free(g.groups);
    dcpk_free(g.fields);
    return err->status;
}

/* --- masters --- */

/*
 * Trainers with FSDP2 keep float32 weights. For Megatron these are the masters, unless its run is
 * one of float32; weights of fewer bits have none, and become some only if the caller trusts them.
 */
static dcpk_status name_masters(struct dcpk_model *model, struct dcpk_error *err)
{
    static const enum dcpk_role stated[] = {DCPK_MASTER, DCPK_EXP_AVG, DCPK_EXP_AVG_SQ};
    const bool trusts_weights = (model->ckpt->given.decisions & DCPK_TRUST_WEIGHTS) != 0;
    size_t n_made = 0;

    model->is_fp32 = dcpk_args_working_dtype(dcpk_value_attrs(model->args)) == DCPK_F32;
    for (size_t i = 0; i < model->n_params; i++) {
        struct dcpk_param *p = &model->params[i];
        const uint32_t weight = p->tensor[DCPK_WEIGHT];

        if (p->tensor[DCPK_EXP_AVG] == DCPK_NO_TENSOR)
            continue;
        if (model->tensors[weight].dtype != DCPK_F32 && !trusts_weights)
            return dcpk_fail_fix(err, DCPK_EUNSUPPORTED, DCPK_FIX_TRUST | DCPK_FIX_WEIGHTS_ONLY,
                                 "'%s' is %s and trained: Megatron loads optimizer state with "
                                 "float32 masters, and there are none",
                                 p->name, dcpk_dtype_name(model->tensors[weight].dtype));
        if (model->is_fp32)
            continue;
        n_made += model->tensors[weight].dtype != DCPK_F32;
        model->tensors[weight].role = DCPK_MASTER;
        p->tensor[DCPK_MASTER] = weight;
        p->tensor[DCPK_WEIGHT] = DCPK_NO_TENSOR;
        for (size_t r = 0; r < DCPK_COUNT(stated); r++)
            if (p->tensor[stated[r]] != DCPK_NO_TENSOR)
                model->tensors[p->tensor[stated[r]]].dtype = DCPK_F32;
    }
    if (n_made > 0)
        dcpk_checkpoint_note(model->ckpt,
                             "masters of %zu parameters are their weights, which have fewer bits "
                             "than float32",
                             n_made);
    return DCPK_OK;
}

/* --- the run --- */

/* The most steps of any group, which is the iteration; *group: it. Returns -1 where none has one.
 */
static int64_t find_iteration(const struct dcpk_model *model, const struct dcpk_value **group)
{
    int64_t most = -1;

    for (size_t g = 0; g < model->n_groups; g++) {
        double step;

        if (dcpk_value_as_float(dcpk_value_get(model->groups[g], "step"), &step) && step >= 0 &&
            step < INT32_MAX && (int64_t)step > most) {
            most = (int64_t)step;
            *group = model->groups[g];
        }
    }
    return most;
}

/*
 * The state of Megatron's OptimizerParamScheduler (megatron/core/optimizer_param_scheduler.py
 * @core_v0.19.0), without which no optimizer is loaded: a constant learning rate, at the sample
 * that args have by their batch. A run overrides it by its own.
 */
static dcpk_status put_scheduler(struct dcpk_model *model, int64_t iteration,
                                 const struct dcpk_value *group, struct dcpk_error *err)
{
    struct dcpk_arena *arena = model->arena;
    const struct dcpk_value *attrs = dcpk_value_attrs(model->args);
    const struct dcpk_value *wd = dcpk_value_get(group, "weight_decay");
    const struct dcpk_value *style = dcpk_value_str(arena, "constant", err);
    int64_t batch = dcpk_value_int_or(attrs, "global_batch_size", 0);
    double lr = 0;

    (void)dcpk_value_as_float(dcpk_value_get(group, "max_lr"), &lr);
    batch = batch > 0 && batch < INT32_MAX ? batch : 0;
    const struct dcpk_value *n_samples = dcpk_value_int(arena, iteration * batch, err);
    const struct dcpk_value *n_steps =
        dcpk_value_int(arena, dcpk_max_i64(iteration * batch, 1), err);
    const struct {
        const char *name;
        const struct dcpk_value *value;
    } fields[] = {{"max_lr", dcpk_value_get(group, "max_lr")},
                  {"min_lr", dcpk_value_get(group, "min_lr")},
                  {"lr_warmup_steps", dcpk_value_int(arena, 0, err)},
                  {"num_steps", n_samples},
                  {"lr_decay_style", style},
                  {"lr_decay_steps", n_steps},
                  {"start_wd", wd},
                  {"end_wd", wd},
                  {"wd_incr_style", style},
                  {"wd_incr_steps", n_steps}};
    struct dcpk_dict made = {.arena = arena, .err = err};

    for (size_t i = 0; i < DCPK_COUNT(fields); i++) {
        if (fields[i].value == NULL)
            return err->status;
        dcpk_dict_put(&made, fields[i].name, fields[i].value);
    }
    dcpk_checkpoint_note_once(model->ckpt,
                              "the source has no schedule of the learning rate: dcpkit writes a "
                              "constant one, at %" PRId64 " samples (iteration times "
                              "args.global_batch_size), which a run's own schedule overrides; core "
                              "0.19 finds parameter groups by the run's lr, here %.9g, and min_lr, "
                              "here 0",
                              iteration * batch, lr);
    model->scheduler = dcpk_dict_end(&made);
    return dcpk_made(model->scheduler, err);
}

/* Puts the state that Megatron's loaders ask for next to the optimizer's. */
static dcpk_status put_run(struct dcpk_model *model, struct dcpk_error *err)
{
    const struct dcpk_value *group = NULL;
    const int64_t iteration = find_iteration(model, &group);

    if (name_masters(model, err) || iteration < 0)
        return err->status;
    model->iteration = dcpk_value_int(model->arena, iteration, err);
    if (model->iteration == NULL)
        return err->status;
    return put_scheduler(model, iteration, group, err);
}

/* --- which optimizer --- */

/* The last part of a key of the optimizer's that has `joint`; NULL: it is another key. */
static const char *find_leaf(const struct dcpk_hf_matching *m, const char *key, const char *joint)
{
    const char *prefix = m->names.state_prefix, *at = strstr(key, joint);

    if (at == NULL || strstr(key, "optim") == NULL ||
        (prefix != NULL && !dcpk_starts_with(key, prefix)))
        return NULL;
    return strrchr(key, '.') + 1;
}

static dcpk_status take_object(struct dcpk_hf_matching *m, const struct dcpk_object *object,
                               struct dcpk_optimizer_signs *signs, struct dcpk_error *err)
{
    const char *slot = find_leaf(m, object->key, ".state.");
    const char *field = find_leaf(m, object->key, ".param_groups.");
    const struct dcpk_value *value = NULL;
    bool is_true = false;

    if (slot != NULL)
        dcpk_optimizer_take_slot(signs, slot, object->key);
    if (field == NULL)
        return DCPK_OK;
    if (dcpk_optimizer_asks_value(field) && dcpk_model_need(m->model, object, &value, err))
        return err->status;
    (void)dcpk_value_as_bool(value, &is_true);
    dcpk_optimizer_take_field(signs, field, object->key, is_true);
    return DCPK_OK;
}

/* Sets model->other_optimizer by the names of state and of groups. */
static dcpk_status find_optimizer(struct dcpk_hf_matching *m, struct dcpk_error *err)
{
    const struct dcpk_checkpoint *ckpt = m->ckpt;
    struct dcpk_optimizer_signs signs = {0};

    for (size_t t = 0; t < ckpt->n_tensors; t++) {
        const char *slot = find_leaf(m, ckpt->tensors[t].key, ".state.");

        if (slot != NULL && m->names.list[t] == NULL &&
            dcpk_checkpoint_tensor_left_out(ckpt, t) == NULL)
            dcpk_optimizer_take_slot(&signs, slot, ckpt->tensors[t].key);
    }
    for (size_t i = 0; i < ckpt->n_objects; i++)
        if (dcpk_checkpoint_object_left_out(ckpt, i) == NULL &&
            take_object(m, &ckpt->objects[i], &signs, err))
            return err->status;
    dcpk_optimizer_end_signs(&signs);
    m->model->other_optimizer = signs.optimizer;
    m->model->other_optimizer_key = signs.key;
    return DCPK_OK;
}

dcpk_status dcpk_hf_match_states(struct dcpk_hf_matching *m, struct dcpk_error *err)
{
    const struct dcpk_hf_names *names = &m->names;

    if ((m->model->flags & DCPK_MODEL_WEIGHTS_ONLY) != 0 ||
        m->ckpt->given.lora.merges) /* the moments and masters are of other weights */
        return DCPK_OK;
    if (find_optimizer(m, err) || names->state_prefix == NULL)
        return err->status;
    if (names->other_state != NULL)
        return dcpk_fail_fix(err, DCPK_EUNSUPPORTED, DCPK_FIX_PREFIX | DCPK_FIX_DROP,
                             "'%s.state' and '%s' are of two optimizers", names->state_prefix,
                             names->other_state);
    if (match_moments(m, err) || !m->model->has_optimizer || match_groups(m, err) ||
        (m->model->flags & DCPK_MODEL_OF_FAMILY) != 0)
        return err->status;
    return put_run(m->model, err);
}

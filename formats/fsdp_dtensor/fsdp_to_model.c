/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_to_model.c - Megatron-FSDP's keys -> the canonical view: halves joined, groups gathered,
 * training state. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/fsdp_dtensor/fsdp_dtensor_priv.h"
#include "lib/base/alloc.h"
#include "lib/base/text.h"

/* A tensor key taken apart. */
struct parts {
    enum dcpk_role role;
    const char *state;  /* DCPK_STATE */
    const char *prefix; /* what stands before the name, in the key */
    const char *name;   /* the parameter's, with _w or _v where it is a half; in the arena */
    const char *end;    /* what stands behind it: ".exp_avg" or "" */
};

static enum dcpk_role role_of(const char *state)
{
    static const struct {
        const char *name;
        enum dcpk_role role;
    } roles[] = {{"exp_avg", DCPK_EXP_AVG},
                 {"exp_avg_sq", DCPK_EXP_AVG_SQ},
                 {"step", DCPK_STEP},
                 {"master_param", DCPK_MASTER}};

    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++)
        if (strcmp(state, roles[i].name) == 0)
            return roles[i].role;
    return DCPK_STATE;
}

/* Behind Q: "module.module.module." or, in fp32 runs, one less. */
static const char *skip_q(const char *rest)
{
    return dcpk_starts_with(rest, FD_Q_LOW)    ? rest + strlen(FD_Q_LOW)
           : dcpk_starts_with(rest, FD_Q_FP32) ? rest + strlen(FD_Q_FP32)
                                               : rest;
}

/* *parts->name is NULL when the key is no model or optimizer tensor. */
static dcpk_status split_key(struct dcpk_model *model, const char *key, struct parts *parts,
                             struct dcpk_error *err)
{
    const char *name, *dot;

    *parts = (struct parts){.role = DCPK_WEIGHT, .prefix = FD_MODEL, .end = ""};
    if (dcpk_starts_with(key, FD_MODEL)) {
        parts->name = key + strlen(FD_MODEL);
        return DCPK_OK;
    }
    if (!dcpk_starts_with(key, FD_STATE))
        return DCPK_OK;
    name = skip_q(key + strlen(FD_STATE));
    dot = strrchr(name, '.');
    if (dot == NULL || dot == name || dot[1] == '\0')
        return dcpk_fail(err, DCPK_EFORMAT,
                         "not of the form " FD_STATE FD_Q_LOW "<parameter>.<state>");
    parts->end = dot;
    parts->role = role_of(dot + 1);
    parts->state = parts->role == DCPK_STATE ? dot + 1 : NULL;
    parts->name = dcpk_arena_strndup(model->arena, name, (size_t)(dot - name), err);
    parts->prefix = dcpk_arena_strndup(model->arena, key, (size_t)(name - key), err);
    return parts->name == NULL || parts->prefix == NULL ? err->status : DCPK_OK;
}

/* The last letter of "linear_fc1.weight_w" or "linear_fc1.weight7_v" when the name is a SwiGLU
 * half, else 0. */
static char half_of(const char *name)
{
    const size_t n = strlen(name);

    if (n < 2 || name[n - 2] != '_' || (name[n - 1] != 'w' && name[n - 1] != 'v') ||
        strstr(name, "linear_fc1.") == NULL)
        return 0;
    return name[n - 1];
}

/* The other half's tensor, UINT32_MAX when it is missing. */
static dcpk_status find_half(struct dcpk_model *model, const struct parts *parts, char half,
                             uint32_t *tensor, struct dcpk_error *err)
{
    const size_t n = strlen(parts->name) - 1;
    char *key = dcpk_arena_printf(model->arena, err, "%s%.*s%c%s", parts->prefix, (int)n,
                                  parts->name, half, parts->end);
    const struct dcpk_tensor *found = key == NULL ? NULL : dcpk_checkpoint_tensor(model->ckpt, key);

    if (key == NULL)
        return err->status;
    if (found == NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "the other SwiGLU half '%s' is missing", key);
    *tensor = (uint32_t)(found - model->ckpt->tensors);
    return DCPK_OK;
}

static dcpk_status make_piece(struct dcpk_model *model, uint32_t source, int64_t at_row,
                              struct dcpk_piece *piece, struct dcpk_error *err)
{
    const struct dcpk_tensor *stored = &model->ckpt->tensors[source];
    struct dcpk_box from, to;

    dcpk_box_whole(stored->shape, stored->rank, &from);
    to = from;
    if (stored->rank > 0)
        to.offset[0] = at_row;
    return dcpk_piece_make(model->arena, source, &from, &to, piece, err);
}

/* Join gate and up rows. The moments and weights are cut, every other state stands whole under both
 * names (5.1). */
static dcpk_status add_halves(struct dcpk_model *model, uint32_t gate, const struct parts *parts,
                              struct dcpk_model_tensor *tensor, struct dcpk_error *err)
{
    const struct dcpk_tensor *w = &model->ckpt->tensors[gate], *v;
    struct dcpk_piece *pieces = dcpk_arena_array(model->arena, 2, sizeof *pieces, err);
    int64_t *shape = dcpk_arena_array(model->arena, (size_t)w->rank + 1, sizeof *shape, err);
    uint32_t up;
    dcpk_status st;

    if (pieces == NULL || shape == NULL)
        return err->status;
    st = find_half(model, parts, 'v', &up, err);
    if (st != DCPK_OK)
        return st;
    v = &model->ckpt->tensors[up];
    if (w->rank == 0 || w->rank != v->rank || w->dtype != v->dtype ||
        memcmp(w->shape, v->shape, (size_t)w->rank * sizeof *w->shape) != 0 ||
        w->shape[0] > INT64_MAX / 2)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "the SwiGLU halves '%s' and '%s' differ in shape or dtype", w->key,
                         v->key);
    memcpy(shape, w->shape, (size_t)w->rank * sizeof *shape);
    shape[0] *= 2;
    st = make_piece(model, gate, 0, &pieces[0], err);
    if (st == DCPK_OK)
        st = make_piece(model, up, w->shape[0], &pieces[1], err);
    tensor->shape = shape;
    tensor->pieces = pieces;
    tensor->n_pieces = 2;
    return st;
}

static bool is_cut(enum dcpk_role role)
{
    return role == DCPK_WEIGHT || role == DCPK_EXP_AVG || role == DCPK_EXP_AVG_SQ;
}

static dcpk_status map_tensor(struct dcpk_model *model, uint32_t source, struct dcpk_error *err)
{
    const struct dcpk_tensor *stored = &model->ckpt->tensors[source];
    struct dcpk_model_tensor tensor = {
        .dtype = stored->dtype, .rank = stored->rank, .shape = stored->shape};
    struct parts parts;
    const char *name;
    char half;
    dcpk_status st = split_key(model, stored->key, &parts, err);

    if (st != DCPK_OK)
        return st;
    if (parts.name == NULL) {
        if (!dcpk_starts_with(stored->key, "rng_state."))
            dcpk_model_drop(model, stored->key, "no tensor of that name is known to Megatron-FSDP");
        return DCPK_OK;
    }
    tensor.role = parts.role;
    tensor.state = parts.state;
    half = half_of(parts.name);
    name = half == 0 ? parts.name
                     : dcpk_arena_strndup(model->arena, parts.name, strlen(parts.name) - 2, err);
    if (name == NULL)
        return err->status;
    if (half == 'v') /* comes with its gate */
        return find_half(model, &parts, 'w', &source, err);
    if (half == 'w' && is_cut(parts.role)) {
        st = add_halves(model, source, &parts, &tensor, err);
    } else {
        struct dcpk_piece *piece = dcpk_arena_alloc(model->arena, sizeof *piece, err);

        st = piece == NULL ? err->status : make_piece(model, source, 0, piece, err);
        tensor.pieces = piece;
        tensor.n_pieces = 1;
    }
    if (st == DCPK_OK)
        st = dcpk_model_param(model, name, &tensor.param, err);
    if (st != DCPK_OK)
        return st;
    model->params[tensor.param].is_gated |= half != 0;
    model->has_optimizer |= parts.role != DCPK_WEIGHT;
    return dcpk_model_add(model, &tensor, err);
}

/* In a run with low-precision compute weights the fp32 weight of a trained parameter is its master
 * (section 6). */
static void name_masters(struct dcpk_model *model)
{
    for (size_t i = 0; i < model->n_params && !model->is_fp32; i++) {
        struct dcpk_param *p = &model->params[i];
        const uint32_t weight = p->tensor[DCPK_WEIGHT];

        if (weight == DCPK_NO_TENSOR || p->tensor[DCPK_EXP_AVG] == DCPK_NO_TENSOR ||
            p->tensor[DCPK_MASTER] != DCPK_NO_TENSOR || model->tensors[weight].dtype != DCPK_F32)
            continue;
        model->tensors[weight].role = DCPK_MASTER;
        p->tensor[DCPK_MASTER] = weight;
        p->tensor[DCPK_WEIGHT] = DCPK_NO_TENSOR;
    }
}

/* One field of one parameter's group on its way into a dict. */
struct field {
    uint32_t param;
    size_t object;
};

static int compare_fields(const void *left, const void *right)
{
    const struct field *a = left, *b = right;

    if (a->param != b->param)
        return a->param < b->param ? -1 : 1;
    return a->object < b->object ? -1 : a->object > b->object;
}

/* Values by their place: aliases and equal scalars share one payload, which is read once. */
static dcpk_status load_shared(struct dcpk_model *model, struct dcpk_map *places,
                               const struct dcpk_object *object, const struct dcpk_value **value,
                               struct dcpk_error *err)
{
    const char *key = dcpk_arena_printf(model->arena, err, "%" PRIu32 ":%" PRIu64,
                                        object->place.file, object->place.offset_bytes);
    uint64_t found;
    bool existed;
    dcpk_status st;

    if (key == NULL)
        return err->status;
    if (dcpk_map_get(places, key, strlen(key), &found)) {
        *value = (const struct dcpk_value *)(uintptr_t)found;
        return DCPK_OK;
    }
    st = model->ckpt->format->load_object(model->ckpt, object, model->arena, value, err);
    if (st == DCPK_OK)
        st = dcpk_map_put(places, key, strlen(key), (uint64_t)(uintptr_t)*value, &existed, &found,
                          err);
    return st;
}

/* The group equal to `dict`, made when there is none yet. */
static dcpk_status intern_group(struct dcpk_model *model, const struct dcpk_value *dict,
                                uint32_t *group, struct dcpk_error *err)
{
    const struct dcpk_value **groups;

    for (*group = 0; *group < model->n_groups; ++*group)
        if (dcpk_value_equal(model->groups[*group], dict))
            return DCPK_OK;
    groups = dcpk_arena_array(model->arena, model->n_groups + 1, sizeof *groups, err);
    if (groups == NULL)
        return err->status;
    for (size_t i = 0; i < model->n_groups; i++)
        groups[i] = model->groups[i];
    groups[model->n_groups++] = dict;
    model->groups = groups;
    return DCPK_OK;
}

/* The fields of one parameter -> its group. */
static dcpk_status read_group(struct dcpk_model *model, const struct field *fields, size_t n,
                              struct dcpk_map *places, struct dcpk_error *err)
{
    struct dcpk_value_pair *pairs = dcpk_arena_array(model->arena, n, sizeof *pairs, err);
    const struct dcpk_value *dict;

    if (pairs == NULL)
        return err->status;
    for (size_t i = 0; i < n; i++) {
        const struct dcpk_object *object = &model->ckpt->objects[fields[i].object];
        dcpk_status st = load_shared(model, places, object, &pairs[i].value, err);

        if (st != DCPK_OK)
            return st;
        pairs[i].key = dcpk_value_str(model->arena, strrchr(object->key, '.') + 1, err);
        if (pairs[i].key == NULL)
            return err->status;
    }
    dict = dcpk_value_dict(model->arena, pairs, n, err);
    return dict == NULL ? err->status
                        : intern_group(model, dict, &model->params[fields[0].param].group, err);
}

/* Gather optimizer.param_to_group_meta.<Q>.<parameter>.<field>. */
static dcpk_status read_groups(struct dcpk_model *model, struct dcpk_error *err)
{
    const struct dcpk_checkpoint *ckpt = model->ckpt;
    struct field *fields = dcpk_alloc_array(ckpt->n_objects, sizeof *fields, err);
    struct dcpk_map places = {0};
    size_t n = 0;
    dcpk_status st = fields == NULL ? err->status : DCPK_OK;

    for (size_t i = 0; i < ckpt->n_objects && st == DCPK_OK; i++) {
        const char *name = skip_q(ckpt->objects[i].key + strlen(FD_GROUP)), *dot;
        uint64_t param;

        if (!dcpk_starts_with(ckpt->objects[i].key, FD_GROUP))
            continue;
        dot = strrchr(name, '.');
        if (dot == NULL ||
            !dcpk_map_get(&model->param_by_name, name, (size_t)(dot - name), &param)) {
            dcpk_model_drop(model, ckpt->objects[i].key,
                            "group field of a parameter that is not there");
            continue;
        }
        fields[n++] = (struct field){(uint32_t)param, i};
    }
    qsort(fields, n, sizeof *fields, compare_fields);
    for (size_t i = 0, end; i < n && st == DCPK_OK; i = end) {
        for (end = i + 1; end < n && fields[end].param == fields[i].param; end++)
            ;
        st = read_group(model, fields + i, end - i, &places, err);
    }
    dcpk_map_release(&places);
    dcpk_free(fields);
    return st;
}

/* An object of that key, or NULL. */
static dcpk_status load_named(struct dcpk_model *model, const char *key,
                              const struct dcpk_value **value, struct dcpk_error *err)
{
    const struct dcpk_object *object = dcpk_checkpoint_object(model->ckpt, key);

    *value = NULL;
    return object == NULL
               ? DCPK_OK
               : model->ckpt->format->load_object(model->ckpt, object, model->arena, value, err);
}

static dcpk_status read_scheduler(struct dcpk_model *model, struct dcpk_error *err)
{
    const struct dcpk_checkpoint *ckpt = model->ckpt;
    struct dcpk_value_pair *pairs;
    size_t n = 0, n_max = 0;

    for (size_t i = 0; i < ckpt->n_objects; i++)
        n_max += dcpk_starts_with(ckpt->objects[i].key, FD_SCHEDULER);
    if (n_max == 0)
        return DCPK_OK;
    pairs = dcpk_arena_array(model->arena, n_max, sizeof *pairs, err);
    if (pairs == NULL)
        return err->status;
    for (size_t i = 0; i < ckpt->n_objects; i++) {
        const char *key = ckpt->objects[i].key;
        dcpk_status st;

        if (!dcpk_starts_with(key, FD_SCHEDULER))
            continue;
        pairs[n].key = dcpk_value_str(model->arena, key + strlen(FD_SCHEDULER), err);
        if (pairs[n].key == NULL)
            return err->status;
        st = load_named(model, key, &pairs[n++].value, err);
        if (st != DCPK_OK)
            return st;
    }
    model->scheduler = dcpk_value_dict(model->arena, pairs, n, err);
    return model->scheduler == NULL ? err->status : DCPK_OK;
}

static dcpk_status read_training_state(struct dcpk_model *model, struct dcpk_error *err)
{
    const struct {
        const char *key;
        const struct dcpk_value **value;
    } items[] = {
        {"args", &model->args},
        {"iteration", &model->iteration},
        {"checkpoint_version", &model->version},
        {"num_floating_point_operations_so_far", &model->flops},
    };

    for (size_t i = 0; i < sizeof items / sizeof items[0]; i++) {
        dcpk_status st = load_named(model, items[i].key, items[i].value, err);

        if (st != DCPK_OK)
            return st;
    }
    return read_scheduler(model, err);
}

/* One wrapper less in the optimizer's keys is how fp32 runs show (section 4, Q). */
static bool has_fp32_prefix(const struct dcpk_checkpoint *ckpt)
{
    bool fp32 = false;

    for (size_t t = 0; t < ckpt->n_tensors; t++) {
        if (!dcpk_starts_with(ckpt->tensors[t].key, FD_STATE))
            continue;
        if (dcpk_starts_with(ckpt->tensors[t].key + strlen(FD_STATE), FD_Q_LOW))
            return false;
        fp32 = true;
    }
    return fp32;
}

dcpk_status dcpk_fsdp_to_model(struct dcpk_checkpoint *ckpt, struct dcpk_model *model,
                               struct dcpk_error *err)
{
    dcpk_status st = read_training_state(model, err);

    model->is_fp32 = has_fp32_prefix(ckpt);
    for (uint32_t t = 0; t < ckpt->n_tensors && st == DCPK_OK; t++) {
        st = map_tensor(model, t, err);
        if (st != DCPK_OK)
            dcpk_context(err, "'%s'", ckpt->tensors[t].key);
    }
    if (st == DCPK_OK)
        st = read_groups(model, err);
    if (st != DCPK_OK)
        return st;
    name_masters(model);
    dcpk_model_read_layout(model);
    model->optimizer_layout = model->has_optimizer ? "fsdp_dtensor" : "none";
    return DCPK_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_to_model.c - Megatron-FSDP's tensors -> the canonical view: halves joined, masters named. */
#include <string.h>

#include "formats/fsdp_dtensor/fsdp_dtensor_priv.h"
#include "formats/fsdp_dtensor/fsdp_mla.h"
#include "lib/base/text.h"
#include "lib/ckpt/parts.h"

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
    } roles[] = {{"exp_avg", DCPK_EXP_AVG},  {"exp_avg_sq", DCPK_EXP_AVG_SQ},
                 {"step", DCPK_STEP},        {"master_param", DCPK_MASTER},
                 {"param", DCPK_MASTER}, /* Megatron's converter (conversion.md 4, T5) */
                 {"fp32_param", DCPK_MASTER}};

    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++)
        if (strcmp(state, roles[i].name) == 0)
            return roles[i].role;
    return DCPK_STATE;
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
    name = dcpk_fsdp_skip_q(key + strlen(FD_STATE));
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
    if (w->rank == 0 || w->dtype != v->dtype ||
        !dcpk_shape_equal(w->shape, w->rank, v->shape, v->rank) || w->shape[0] > INT64_MAX / 2)
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

/*
 * Is this half one of two, or a whole entry listed under both names (5.1)? The weight's half is as
 * large as a half.
 */
static dcpk_status is_cut(struct dcpk_model *model, const struct parts *parts,
                          const struct dcpk_tensor *stored, bool *cut, struct dcpk_error *err)
{
    const char *key;
    const struct dcpk_tensor *weight;

    *cut =
        parts->role == DCPK_WEIGHT || parts->role == DCPK_EXP_AVG || parts->role == DCPK_EXP_AVG_SQ;
    if (*cut || parts->role == DCPK_STEP)
        return DCPK_OK;
    key = dcpk_arena_printf(model->arena, err, FD_MODEL "%s", parts->name);
    if (key == NULL)
        return err->status;
    weight = dcpk_checkpoint_tensor(model->ckpt, key);
    *cut = weight != NULL &&
           dcpk_shape_equal(weight->shape, weight->rank, stored->shape, stored->rank);
    return DCPK_OK;
}

/* The second half: comes with its gate where the entry is cut, and else is the first once more. */
static dcpk_status skip_up(struct dcpk_model *model, const struct parts *parts, uint32_t source,
                           bool cut, struct dcpk_error *err)
{
    uint32_t gate;
    dcpk_status st = find_half(model, parts, 'w', &gate, err);

    if (st == DCPK_OK && !cut)
        dcpk_model_carry(model, model->ckpt->tensors[source].key);
    return st;
}

/* Add what `parts` name; the name is that of the whole parameter. */
static dcpk_status add_tensor(struct dcpk_model *model, uint32_t source, const struct parts *parts,
                              const char *name, bool halves, struct dcpk_error *err)
{
    const struct dcpk_tensor *stored = &model->ckpt->tensors[source];
    struct dcpk_model_tensor tensor = {.role = parts->role,
                                       .state = parts->state,
                                       .dtype = stored->dtype,
                                       .rank = stored->rank,
                                       .shape = stored->shape};
    dcpk_status st;

    if (halves) {
        st = add_halves(model, source, parts, &tensor, err);
    } else {
        struct dcpk_piece *piece = dcpk_arena_alloc(model->arena, sizeof *piece, err);

        st = piece == NULL ? err->status : make_piece(model, source, 0, piece, err);
        tensor.pieces = piece;
        tensor.n_pieces = 1;
    }
    if (st != DCPK_OK)
        return st;
    model->has_optimizer |= parts->role != DCPK_WEIGHT && parts->role != DCPK_MASTER;
    if (parts->role == DCPK_STEP) /* goes into the group's fields */
        dcpk_model_carry(model, stored->key);
    if (dcpk_fsdp_is_fused(name))
        return dcpk_fsdp_add_unfused(model, &tensor, name, err);
    st = dcpk_model_param(model, name, &tensor.param, err);
    if (st != DCPK_OK)
        return st;
    model->params[tensor.param].is_gated |= half_of(parts->name) != 0;
    return dcpk_model_add(model, &tensor, err);
}

static bool is_wanted(const struct dcpk_model *model, enum dcpk_role role)
{
    /* The master is the weight's better half, wanted even when the rest of the optimizer is not. */
    return (model->flags & DCPK_MODEL_WEIGHTS_ONLY) == 0 || role == DCPK_WEIGHT ||
           role == DCPK_MASTER;
}

static dcpk_status map_tensor(struct dcpk_model *model, uint32_t source, struct dcpk_error *err)
{
    const struct dcpk_tensor *stored = &model->ckpt->tensors[source];
    struct parts parts;
    const char *name;
    char half;
    bool cut = false;
    dcpk_status st = split_key(model, stored->key, &parts, err);

    if (st != DCPK_OK)
        return st;
    if (parts.name == NULL) {
        if (!dcpk_starts_with(stored->key, FD_RNG))
            dcpk_model_drop(model, stored->key, "no tensor of that name is known to Megatron-FSDP");
        return DCPK_OK;
    }
    if (!is_wanted(model, parts.role)) {
        dcpk_model_omit(model, stored->key, "optimizer state, not wanted (--weights-only)");
        return DCPK_OK;
    }
    half = half_of(parts.name);
    if (half == 0)
        return add_tensor(model, source, &parts, parts.name, false, err);
    st = is_cut(model, &parts, stored, &cut, err);
    if (st != DCPK_OK)
        return st;
    if (half == 'v')
        return skip_up(model, &parts, source, cut, err);
    name = dcpk_arena_strndup(model->arena, parts.name, strlen(parts.name) - 2, err);
    return name == NULL ? err->status : add_tensor(model, source, &parts, name, cut, err);
}

/* Has the parameter a moment in the folder, wanted or not? */
static dcpk_status has_moment(struct dcpk_model *model, const struct dcpk_param *p, bool *has,
                              struct dcpk_error *err)
{
    const char *names[2] = {p->name, NULL};
    dcpk_status st = dcpk_fsdp_fused_name(model->arena, p->name, &names[1], err);

    *has = false;
    for (size_t i = 0; i < 2 && names[i] != NULL && st == DCPK_OK; i++) {
        const char *key = dcpk_arena_printf(model->arena, err, FD_STATE FD_Q_LOW "%s%s.exp_avg",
                                            names[i], p->is_gated ? "_w" : "");

        st = key == NULL ? err->status : DCPK_OK;
        *has |= key != NULL && dcpk_checkpoint_tensor(model->ckpt, key) != NULL;
    }
    return st;
}

/* Is it kept in fp32 whatever the model's dtype is? A router's expert_bias is no parameter. */
static bool is_fp32_buffer(const char *name)
{
    return dcpk_ends_with(name, ".expert_bias");
}

/*
 * In a run with low-precision compute weights the fp32 weight of a trained parameter is its master
 * (section 6). In a folder without any optimizer state that is every fp32 parameter.
 */
static dcpk_status name_masters(struct dcpk_model *model, bool any_state, struct dcpk_error *err)
{
    for (size_t i = 0; i < model->n_params && !model->is_fp32; i++) {
        struct dcpk_param *p = &model->params[i];
        const uint32_t weight = p->tensor[DCPK_WEIGHT];
        bool is_trained = !any_state && !is_fp32_buffer(p->name);
        dcpk_status st;

        if (weight == DCPK_NO_TENSOR || p->tensor[DCPK_MASTER] != DCPK_NO_TENSOR ||
            model->tensors[weight].dtype != DCPK_F32)
            continue;
        st = any_state ? has_moment(model, p, &is_trained, err) : DCPK_OK;
        if (st != DCPK_OK)
            return st;
        if (!is_trained)
            continue;
        model->tensors[weight].role = DCPK_MASTER;
        p->tensor[DCPK_MASTER] = weight;
        p->tensor[DCPK_WEIGHT] = DCPK_NO_TENSOR;
    }
    return DCPK_OK;
}

/*
 * One wrapper less in the optimizer's keys is how fp32 runs show (section 4, Q); without optimizer
 * state args tell.
 */
static bool is_fp32_run(const struct dcpk_model *model, bool *any_state)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(model->args);
    const struct dcpk_checkpoint *ckpt = model->ckpt;
    bool bf16 = false, fp16 = false;

    *any_state = false;
    for (size_t t = 0; t < ckpt->n_tensors; t++) {
        if (!dcpk_starts_with(ckpt->tensors[t].key, FD_STATE))
            continue;
        *any_state = true;
        if (dcpk_starts_with(ckpt->tensors[t].key + strlen(FD_STATE), FD_Q_LOW))
            return false;
    }
    if (*any_state)
        return true;
    return dcpk_value_as_bool(dcpk_value_get(attrs, "bf16"), &bf16) &&
           dcpk_value_as_bool(dcpk_value_get(attrs, "fp16"), &fp16) && !bf16 && !fp16;
}

dcpk_status dcpk_fsdp_to_model(struct dcpk_checkpoint *ckpt, struct dcpk_model *model,
                               struct dcpk_error *err)
{
    bool any_state;
    dcpk_status st = dcpk_fsdp_read_state(model, err);

    model->is_fp32 = is_fp32_run(model, &any_state);
    for (uint32_t t = 0; t < ckpt->n_tensors && st == DCPK_OK; t++) {
        st = map_tensor(model, t, err);
        if (st != DCPK_OK)
            dcpk_context(err, "'%s'", ckpt->tensors[t].key);
    }
    if (st == DCPK_OK && (model->flags & DCPK_MODEL_WEIGHTS_ONLY) == 0)
        st = dcpk_fsdp_read_groups(model, err);
    if (st == DCPK_OK)
        st = name_masters(model, any_state, err);
    if (st != DCPK_OK)
        return st;
    dcpk_model_read_layout(model);
    model->rows_tp = model->layout.tp;
    model->optimizer_layout = model->has_optimizer ? "fsdp_dtensor" : "none";
    return model->rows_tp > 1 ? dcpk_parts_unite(model, model->rows_tp, err) : DCPK_OK;
}

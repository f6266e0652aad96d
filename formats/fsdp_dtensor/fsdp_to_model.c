/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_to_model.c - Megatron-FSDP's tensors -> the canonical view: halves joined, masters named. */
#include <string.h>

#include "formats/fsdp_dtensor/fsdp_dtensor_priv.h"
#include "formats/fsdp_dtensor/fsdp_rows.h"
#include "lib/base/text.h"

/* True if the key begins with a prefix of optimizer state, and with none of weights that is
 * longer. */
static bool is_state_key(const struct dcpk_fsdp_prefixes *prefixes, const char *key)
{
    return dcpk_starts_with(key, prefixes->state) &&
           (!dcpk_starts_with(key, prefixes->weight) ||
            strlen(prefixes->state) >= strlen(prefixes->weight));
}

/* parts->name is NULL when the key is neither a model nor an optimizer tensor. */
static dcpk_status split_key(const struct dcpk_fsdp_reader *r, const char *key,
                             struct dcpk_fsdp_key *parts, struct dcpk_error *err)
{
    struct dcpk_arena *arena = r->model->arena;
    const char *name, *dot;

    if (r->numbers != NULL && dcpk_starts_with(key, FD_MASTERS))
        return dcpk_torch_dcp_master(r, key, parts, err);
    *parts = (struct dcpk_fsdp_key){.role = DCPK_WEIGHT, .prefix = r->prefixes.weight, .end = ""};
    if (!is_state_key(&r->prefixes, key)) {
        if (dcpk_starts_with(key, r->prefixes.weight) &&
            !dcpk_fsdp_is_misplaced(key + strlen(r->prefixes.weight)))
            parts->name = key + strlen(r->prefixes.weight);
        return DCPK_OK;
    }
    name = key + strlen(r->prefixes.state);
    if (r->prefixes.has_q)
        name = dcpk_fsdp_skip_q(name);
    dot = strrchr(name, '.');
    if (dot == NULL || dot == name || dot[1] == '\0')
        return dcpk_fail(err, DCPK_EFORMAT, "not of the form %s%s<parameter>.<state>",
                         r->prefixes.state, r->prefixes.has_q ? FD_Q_LOW : "");
    parts->end = dot;
    parts->role = dcpk_fsdp_role(dot + 1);
    if (parts->role == DCPK_STATE)
        parts->state = dot + 1;
    parts->name = dcpk_arena_strndup(arena, name, (size_t)(dot - name), err);
    parts->prefix = dcpk_arena_strndup(arena, key, (size_t)(name - key), err);
    if (parts->name == NULL || parts->prefix == NULL)
        return err->status;
    if (r->numbers != NULL)
        return dcpk_torch_dcp_name(r, parts->name, &parts->name, err);
    return dcpk_fsdp_split_numbered(arena, parts, err);
}

/* State by numbers is only as sure as the order of parameters: it must look like its weight. */
static dcpk_status check_numbered(const struct dcpk_fsdp_reader *r,
                                  const struct dcpk_fsdp_key *parts,
                                  const struct dcpk_tensor *stored, struct dcpk_error *err)
{
    const char *key =
        dcpk_arena_printf(r->model->arena, err, "%s%s", r->prefixes.weight, parts->name);
    const struct dcpk_tensor *weight;

    if (key == NULL)
        return err->status;
    weight = dcpk_checkpoint_tensor(r->model->ckpt, key);
    if (parts->role == DCPK_STEP || weight == NULL ||
        dcpk_shape_equal(weight->shape, weight->rank, stored->shape, stored->rank))
        return DCPK_OK;
    return dcpk_fail_fix(err, DCPK_EUNSUPPORTED, DCPK_FIX_WEIGHTS_ONLY,
                         "it does not have the shape of '%s', whose number it has by the order in "
                         "which modules register parameters",
                         key);
}

/* Both halves' tensors, gate and up. */
static dcpk_status find_halves(const struct dcpk_model *model, const struct dcpk_fsdp_key *parts,
                               struct dcpk_found_parts *halves, struct dcpk_error *err)
{
    const struct dcpk_part_key key = {parts->prefix, parts->name, parts->end};
    const size_t head_bytes = strlen(parts->name) - strlen(dcpk_fsdp_halves[0].name);

    if (dcpk_parts_look_up(model, &key, head_bytes, dcpk_fsdp_halves, halves, err))
        return err->status;
    if (halves->n == 0)
        return dcpk_fail(err, DCPK_EFORMAT, "the other SwiGLU half '%s' is missing",
                         halves->missing);
    return DCPK_OK;
}

/* Join gate and up rows. The moments and weights are cut, every other state stands whole under both
 * names (5.1). */
static dcpk_status read_halves(struct dcpk_model *model, const struct dcpk_fsdp_key *parts,
                               struct dcpk_model_tensor *tensor, struct dcpk_error *err)
{
    struct dcpk_found_parts halves;
    const struct dcpk_sources sources = {.tensor = halves.tensor, .n = 2};
    const struct dcpk_tensor *w, *v;

    if (find_halves(model, parts, &halves, err))
        return err->status;
    w = &model->ckpt->tensors[halves.tensor[0]];
    v = &model->ckpt->tensors[halves.tensor[1]];
    if (w->rank == 0 || w->dtype != v->dtype ||
        !dcpk_shape_equal(w->shape, w->rank, v->shape, v->rank) || w->shape[0] > INT64_MAX / 2)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "the SwiGLU halves '%s' and '%s' differ in shape or dtype", w->key,
                         v->key);
    return dcpk_rows_read(model, &sources, tensor, err);
}

/*
 * Sets *cut if this half is one of two; otherwise it is a whole entry listed under both names
 * (5.1). The weight's half is as large as a half.
 */
static dcpk_status is_cut(const struct dcpk_fsdp_reader *r, const struct dcpk_fsdp_key *parts,
                          const struct dcpk_tensor *stored, bool *cut, struct dcpk_error *err)
{
    const char *key;
    const struct dcpk_tensor *weight;

    *cut =
        parts->role == DCPK_WEIGHT || parts->role == DCPK_EXP_AVG || parts->role == DCPK_EXP_AVG_SQ;
    if (*cut || parts->role == DCPK_STEP)
        return DCPK_OK;
    key = dcpk_arena_printf(r->model->arena, err, "%s%s", r->prefixes.weight, parts->name);
    if (key == NULL)
        return err->status;
    weight = dcpk_checkpoint_tensor(r->model->ckpt, key);
    *cut = weight != NULL &&
           dcpk_shape_equal(weight->shape, weight->rank, stored->shape, stored->rank);
    return DCPK_OK;
}

/* The second half: comes with its gate where the entry is cut, and else is the first once more. */
static dcpk_status skip_up(struct dcpk_model *model, const struct dcpk_fsdp_key *parts,
                           uint32_t source, bool cut, struct dcpk_error *err)
{
    struct dcpk_found_parts halves;

    if (find_halves(model, parts, &halves, err))
        return err->status;
    if (!cut)
        dcpk_model_carry(model, model->ckpt->tensors[source].key);
    return DCPK_OK;
}

/* Mark a parameter that is stored in halves. */
static dcpk_status mark_gated(struct dcpk_model *model, const char *name, struct dcpk_error *err)
{
    uint32_t param;

    if (dcpk_model_param(model, name, &param, err))
        return err->status;
    model->params[param].parts = dcpk_gate_up;
    return DCPK_OK;
}

/* Add what `parts` name; the name is that of the whole parameter. */
static dcpk_status fsdp_stored_add_tensor(struct dcpk_fsdp_reader *r, uint32_t source,
                                          const struct dcpk_fsdp_key *parts, const char *name,
                                          bool halves, struct dcpk_error *err)
{
    struct dcpk_model *model = r->model;
    const struct dcpk_sources sources = {.tensor = &source, .n = 1};
    struct dcpk_model_tensor tensor = {.role = parts->role, .state = parts->state};
    bool is_done = false;

    model->has_optimizer |= parts->role != DCPK_WEIGHT && parts->role != DCPK_MASTER;
    if (parts->role == DCPK_STEP) /* goes into the group's fields */
        dcpk_model_carry(model, model->ckpt->tensors[source].key);
    if (dcpk_fsdp_half(parts->name) >= 0 && mark_gated(model, name, err))
        return err->status;
    if (halves) {
        if (read_halves(model, parts, &tensor, err))
            return err->status;
        return dcpk_fsdp_add_named(model, &tensor, name, err);
    }
    if (dcpk_fsdp_add_converted(r, source, parts, &tensor, &is_done, err))
        return err->status;
    if (is_done)
        return DCPK_OK;
    if (dcpk_rows_read(model, &sources, &tensor, err))
        return err->status;
    return dcpk_fsdp_add_named(model, &tensor, name, err);
}

/*
 * The reason why a tensor is not wanted, or NULL. The master is the weight's better half, wanted
 * even when the rest of the optimizer is not; but what Megatron's converter made of it has to be
 * proven.
 */
static const char *unwanted(const struct dcpk_fsdp_reader *r, enum dcpk_role role)
{
    if ((r->model->flags & DCPK_MODEL_WEIGHTS_ONLY) == 0 || role == DCPK_WEIGHT)
        return NULL;
    if (role != DCPK_MASTER)
        return dcpk_reason_weights_only;
    if (r->is_converted)
        return "master left by Megatron's converter; the stored weight is taken";
    return NULL;
}

/* Remember what an unknown key looks like, for the message. */
static void look_at_unknown(struct dcpk_fsdp_reader *r, const char *key, struct dcpk_error *err)
{
    const size_t n_bytes = dcpk_fsdp_prefix_bytes(key);

    if (dcpk_starts_with(key, r->prefixes.weight))
        r->model->unknown_hint = "Megatron's converter leaves such keys of an optimizer layout or "
                                 "of experts that it does not know: convert what it was given";
    else if (n_bytes != SIZE_MAX && n_bytes > 0 && r->model->unknown_prefix == NULL)
        r->model->unknown_prefix = dcpk_arena_strndup(r->model->arena, key, n_bytes - 1, err);
}

/* Maps a key that is neither a weight nor optimizer state: RNG and a few scalars are read
 * elsewhere, the rest is unknown (dcpk_model_read). */
static dcpk_status map_other(struct dcpk_fsdp_reader *r, uint32_t source, struct dcpk_error *err)
{
    const char *key = r->model->ckpt->tensors[source].key;
    bool is_known = dcpk_starts_with(key, FD_RNG);

    if (dcpk_starts_with(key, FD_MASTERS) && (r->model->flags & DCPK_MODEL_WEIGHTS_ONLY) != 0) {
        dcpk_model_omit(r->model, key, dcpk_reason_weights_only);
        return DCPK_OK;
    }
    if (!is_known && dcpk_fsdp_map_scalar(r, source, &is_known, err))
        return err->status;
    if (!is_known)
        look_at_unknown(r, key, err);
    return err->status;
}

static dcpk_status reader_map_tensor(struct dcpk_fsdp_reader *r, uint32_t source,
                                     struct dcpk_error *err)
{
    struct dcpk_model *model = r->model;
    const struct dcpk_tensor *stored = &model->ckpt->tensors[source];
    struct dcpk_fsdp_key parts;
    const char *name;
    int half;
    bool cut = false;

    if (split_key(r, stored->key, &parts, err))
        return err->status;
    if (parts.name == NULL)
        return map_other(r, source, err);
    if (unwanted(r, parts.role) != NULL) {
        dcpk_model_omit(model, stored->key, unwanted(r, parts.role));
        return DCPK_OK;
    }
    if (r->numbers != NULL && check_numbered(r, &parts, stored, err))
        return err->status;
    half = dcpk_fsdp_half(parts.name);
    if (half < 0)
        return fsdp_stored_add_tensor(r, source, &parts, parts.name, false, err);
    if (is_cut(r, &parts, stored, &cut, err))
        return err->status;
    if (half > 0)
        return skip_up(model, &parts, source, cut, err);
    name = dcpk_arena_strndup(model->arena, parts.name, strlen(parts.name) - 2, err);
    if (name == NULL)
        return err->status;
    return fsdp_stored_add_tensor(r, source, &parts, name, cut, err);
}

/* Finds whether the parameter has a moment in the folder, wanted or not. */
static dcpk_status has_moment(const struct dcpk_fsdp_reader *r, const struct dcpk_param *p,
                              bool *has, struct dcpk_error *err)
{
    struct dcpk_model *model = r->model;
    const char *names[2] = {p->name, NULL};
    const char *end = "";

    if (dcpk_fsdp_fused_name(model->arena, p->name, &names[1], err))
        return err->status;
    if (p->parts != NULL)
        end = dcpk_fsdp_part_end(p->parts[0].name);
    *has = p->tensor[DCPK_EXP_AVG] != DCPK_NO_TENSOR;
    for (size_t i = 0; i < 2 && names[i] != NULL; i++) {
        const char *key =
            dcpk_arena_printf(model->arena, err, "%s%s%s%s.exp_avg", r->prefixes.state,
                              r->prefixes.has_q ? FD_Q_LOW : "", names[i], end);

        if (key == NULL)
            return err->status;
        *has |= dcpk_checkpoint_tensor(model->ckpt, key) != NULL;
    }
    return DCPK_OK;
}

/*
 * In a run with low-precision compute weights the fp32 weight of a trained parameter is its master
 * (section 6). In a folder without any optimizer state that is every fp32 parameter.
 */
static dcpk_status name_masters(const struct dcpk_fsdp_reader *r, bool any_state,
                                struct dcpk_error *err)
{
    struct dcpk_model *model = r->model;

    for (size_t i = 0; i < model->n_params && !model->is_fp32; i++) {
        struct dcpk_param *p = &model->params[i];
        const uint32_t weight = p->tensor[DCPK_WEIGHT];
        /* A router's expert_bias is fp32 under any dtype of the model, and not a parameter. */
        bool is_trained = !any_state && !dcpk_ends_with(p->name, ".expert_bias");

        if (weight == DCPK_NO_TENSOR || p->tensor[DCPK_MASTER] != DCPK_NO_TENSOR ||
            model->tensors[weight].dtype != DCPK_F32)
            continue;
        if (any_state && has_moment(r, p, &is_trained, err))
            return err->status;
        if (!is_trained)
            continue;
        model->tensors[weight].role = DCPK_MASTER;
        p->tensor[DCPK_MASTER] = weight;
        p->tensor[DCPK_WEIGHT] = DCPK_NO_TENSOR;
    }
    return DCPK_OK;
}

/* True if args show an fp32 run: neither bf16 nor fp16. */
static bool is_fp32_by_args(const struct dcpk_model *model)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(model->args);
    bool bf16 = false, fp16 = false;

    return dcpk_value_as_bool(dcpk_value_get(attrs, "bf16"), &bf16) &&
           dcpk_value_as_bool(dcpk_value_get(attrs, "fp16"), &fp16) && !bf16 && !fp16;
}

/* True if there is a tensor or an object whose key begins so. */
static bool has_key(const struct dcpk_checkpoint *ckpt, const char *prefix)
{
    for (size_t t = 0; t < ckpt->n_tensors; t++)
        if (dcpk_starts_with(ckpt->tensors[t].key, prefix) &&
            dcpk_checkpoint_tensor_left_out(ckpt, t) == NULL)
            return true;
    for (size_t i = 0; i < ckpt->n_objects; i++)
        if (dcpk_starts_with(ckpt->objects[i].key, prefix) &&
            dcpk_checkpoint_object_left_out(ckpt, i) == NULL)
            return true;
    return false;
}

/*
 * One wrapper less in the optimizer's keys is how fp32 runs show (section 4, Q). Megatron's
 * converter writes the same for all runs; of its folders, and without such keys, args decide.
 */
static bool is_fp32_run(const struct dcpk_fsdp_reader *r)
{
    const struct dcpk_checkpoint *ckpt = r->model->ckpt;

    if (r->is_converted || r->numbers != NULL)
        return is_fp32_by_args(r->model);
    if ((r->prefixes.has_q && has_key(ckpt, FD_STATE FD_Q_LOW)) || has_key(ckpt, FD_GROUP FD_Q_LOW))
        return false;
    return (r->prefixes.has_q && has_key(ckpt, FD_STATE)) || has_key(ckpt, FD_GROUP FD_Q_FP32) ||
           is_fp32_by_args(r->model);
}

/* Masters that Megatron's converter may have put elsewhere are not believed (FORMAT.md 12.2, T2 and
 * T7). */
static void doubt_masters(const struct dcpk_fsdp_reader *r)
{
    struct dcpk_model *model = r->model;

    for (size_t i = 0; i < model->n_params && r->is_converted; i++)
        model->needs_proof |= model->params[i].tensor[DCPK_MASTER] != DCPK_NO_TENSOR &&
                              model->params[i].tensor[DCPK_WEIGHT] != DCPK_NO_TENSOR;
}

dcpk_status dcpk_fsdp_to_model(struct dcpk_checkpoint *ckpt, struct dcpk_model *model,
                               struct dcpk_error *err)
{
    struct dcpk_fsdp_reader r = {.model = model,
                                 .is_converted =
                                     dcpk_fsdp_is_converted(ckpt) && !dcpk_fsdp_is_torch_dcp(ckpt)};

    if (dcpk_fsdp_find_prefixes(model, &r.prefixes, err) || dcpk_fsdp_read_state(model, err) ||
        dcpk_torch_dcp_number(&r, err))
        return err->status;
    model->is_fp32 = is_fp32_run(&r);
    model->needs_rewrite |= r.is_converted;
    for (uint32_t t = 0; t < ckpt->n_tensors; t++) {
        if (dcpk_checkpoint_tensor_left_out(ckpt, t) != NULL)
            continue;
        if (reader_map_tensor(&r, t, err))
            return dcpk_context(err, "'%s'", ckpt->tensors[t].key);
    }
    if (((model->flags & DCPK_MODEL_WEIGHTS_ONLY) == 0 && dcpk_fsdp_read_groups(model, err)) ||
        (model->has_optimizer && model->n_groups == 0 && dcpk_fsdp_read_listed_groups(&r, err)) ||
        name_masters(&r, has_key(ckpt, r.prefixes.state), err))
        return err->status;
    doubt_masters(&r);
    dcpk_model_read_layout(model);
    model->rows_tp = r.has_parts ? 1 : model->layout.tp;
    model->optimizer_layout = dcpk_fsdp_optimizer_layout(ckpt, NULL);
    if (model->rows_tp <= 1)
        return DCPK_OK;
    return dcpk_parts_unite(model, model->rows_tp, err);
}

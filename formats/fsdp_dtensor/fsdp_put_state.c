/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_put_state.c - the canonical view's training state -> what Megatron-FSDP keeps of it: args,
 * scheduler, RNG (FORMAT.md 4). */
#include <inttypes.h>
#include <string.h>

#include "formats/fsdp_dtensor/fsdp_dtensor_priv.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/model/portable.h"
#include "lib/model/sizes.h"

struct writer {
    const struct dcpk_model *model;
    struct dcpk_output *out;
    int64_t tp;
    bool is_for_tp;
    uint64_t visits_left; /* values may share nodes: a walk is bounded by visits, not by nodes */
};

static dcpk_status state_add_value(struct writer *w, const char *key,
                                   const struct dcpk_value *value, struct dcpk_error *err)
{
    uint32_t payload;

    if (dcpk_output_add_payload(w->out, value, NULL, &payload, err))
        return err->status;
    return dcpk_output_add_object(w->out, key, payload, err);
}

static dcpk_status add_literal(struct writer *w, const char *key,
                               const struct dcpk_value_tensor *tensor, struct dcpk_error *err)
{
    struct dcpk_out_tensor out = {.dtype = tensor->dtype,
                                  .rank = tensor->rank,
                                  .shape = tensor->shape,
                                  .literal = tensor->data,
                                  .n_keys = 1};
    const char **keys = dcpk_arena_array(w->out->arena, 1, sizeof *keys, err);

    if (keys == NULL)
        return err->status;
    keys[0] = key;
    out.keys = keys;
    return dcpk_output_add_tensor(w->out, &out, err);
}

/* True if torch's flattening descends into this list (FORMAT.md 3). Depth is bounded by the pickle
 * reader. */
static bool list_is_nested(struct writer *w, const struct dcpk_value *list)
{
    for (size_t i = 0; i < list->n && w->visits_left > 0; i++, w->visits_left--) {
        const struct dcpk_value *v = list->as.items[i];

        if (v->kind == DCPK_V_TENSOR || v->kind == DCPK_V_DICT ||
            (v->kind == DCPK_V_LIST && list_is_nested(w, v)))
            return true;
    }
    return false;
}

/* The i-th entry's key, as torch's flattening spells it: below `prefix`. *key NULL: its dict's key
 * is neither text nor an int. */
static dcpk_status flat_key(struct writer *w, const char *prefix, const struct dcpk_value *value,
                            size_t i, const char **key, struct dcpk_error *err)
{
    const struct dcpk_value *name = NULL;
    const char *text;

    if (value->kind == DCPK_V_DICT)
        name = value->as.pairs[i].key;
    text = dcpk_value_as_str(name);
    *key = NULL;
    if (text != NULL)
        *key = dcpk_arena_printf(w->out->arena, err, "%s.%s", prefix, text);
    else if (name == NULL)
        *key = dcpk_arena_printf(w->out->arena, err, "%s.%zu", prefix, i);
    else if (name->kind == DCPK_V_INT)
        *key = dcpk_arena_printf(w->out->arena, err, "%s.%" PRId64, prefix, name->as.i);
    return err->status;
}

/*
 * Writes a value as torch's DCP flattens it: dicts and nested lists apart, tensors as tensors, the
 * rest as objects. Values without such a form are dropped.
 */
static dcpk_status add_flat(struct writer *w, const char *prefix, const struct dcpk_value *value,
                            struct dcpk_error *err)
{
    const bool is_dict = value->kind == DCPK_V_DICT;

    if (w->visits_left == 0) {
        dcpk_output_event(w->out, DCPK_EVENT_DROPPED, prefix,
                          "it and the rest after it have more than %d values", FD_MAX_VALUES);
        return DCPK_OK;
    }
    w->visits_left--;
    if (value->kind == DCPK_V_TENSOR)
        return add_literal(w, prefix, value->as.tensor, err);
    if (!is_dict && !(value->kind == DCPK_V_LIST && list_is_nested(w, value)))
        return state_add_value(w, prefix, value, err);
    for (size_t i = 0; i < value->n; i++) {
        const char *key;

        if (flat_key(w, prefix, value, i, &key, err))
            return err->status;
        if (key == NULL) {
            dcpk_output_event(w->out, DCPK_EVENT_DROPPED, prefix,
                              "an entry whose name is neither text nor an int");
        } else if (add_flat(w, key, is_dict ? value->as.pairs[i].value : value->as.items[i], err)) {
            return err->status;
        }
    }
    return DCPK_OK;
}

/*
 * The mesh that the target settles: one pipeline stage, and data parallelism over the ranks of a
 * tensor-parallel rank: those that are given (--target-dp counts context parallelism, which stays
 * the source's where the number allows it), else as many as the source has. world: ranks of the
 * target over all instances of mesh.dp.
 */
static struct dcpk_grid settled_mesh(const struct writer *w)
{
    const struct dcpk_grid *target = &w->out->target.mesh;
    const int64_t cp = dcpk_max_i64(w->model->layout.cp, 1);
    struct dcpk_grid mesh = {.pp = 1};
    int64_t n_ranks;

    if (w->is_for_tp || target->dp > 0 || dcpk_fsdp_wants_v2(w->out))
        mesh.tp = w->tp;
    if (target->dp == 0) {
        dcpk_layout_fit_ranks(&w->model->layout, &mesh);
        return mesh;
    }
    n_ranks = target->dp;
    mesh.ep = dcpk_max_i64(target->ep, 1);
    mesh.dp = n_ranks / cp;
    mesh.world = n_ranks * w->tp;
    if (n_ranks % cp != 0) {
        mesh.cp = 1;
        mesh.dp = n_ranks;
    }
    return mesh;
}

/* Sizes of the mesh; except those that Megatron-FSDP's loader asks for, where args have them. */
static void set_mesh(struct writer *w, struct dcpk_dict *s, struct dcpk_error *err)
{
    static const char instances[] = "num_distributed_optimizer_instances";
    const struct dcpk_value *attrs = dcpk_value_attrs(w->model->args);
    const struct dcpk_grid *target = &w->out->target.mesh, mesh = settled_mesh(w);
    struct dcpk_layout_arg list[DCPK_LAYOUT_MAX_ARGS];
    const size_t n = dcpk_layout_args(&mesh, attrs, list);

    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i].name, "pipeline_model_parallel_size") == 0 ||
            strcmp(list[i].name, "tensor_model_parallel_size") == 0 ||
            dcpk_value_get(attrs, list[i].name) != NULL)
            dcpk_dict_put(s, list[i].name, dcpk_value_int(s->arena, list[i].size, err));
    if (target->dp > 0 && dcpk_value_get(attrs, instances) != NULL)
        dcpk_dict_put(s, instances,
                      dcpk_value_int(s->arena, dcpk_max_i64(target->instances, 1), err));
    for (size_t i = 0; i < DCPK_N_STAGE_ARGS; i++)
        dcpk_dict_put(s, dcpk_stage_args[i].name, dcpk_stage_arg_no(&dcpk_stage_args[i], attrs));
}

/*
 * args of a Megatron-FSDP run (MT/arguments.py@0.19.0 validate_args: that format, one stage) on the
 * target's ranks.
 */
static dcpk_status add_args(struct writer *w, struct dcpk_error *err)
{
    const bool is_v2 = dcpk_fsdp_wants_v2(w->out);
    const bool has_version =
        dcpk_value_get(dcpk_value_attrs(w->model->args), "megatron_fsdp_version") != NULL;
    struct dcpk_dict s = {.arena = w->out->arena, .err = err};
    const struct dcpk_value *args;

    dcpk_dict_put(&s, "ckpt_format", dcpk_value_str(s.arena, w->out->format->name, err));
    dcpk_dict_put(&s, "use_megatron_fsdp", dcpk_value_bool(true));
    if (is_v2 || has_version)
        dcpk_dict_put(&s, "megatron_fsdp_version", dcpk_value_int(s.arena, is_v2 ? 2 : 1, err));
    set_mesh(w, &s, err);
    if (err->status != DCPK_OK || dcpk_args_portable(w->out, w->model->args, &s, &args, err))
        return err->status;
    return state_add_value(w, "args", args, err);
}

/* The reason why the i-th RNG states are not written; NULL: they are. */
static const char *why_no_rng(const struct writer *w, size_t i)
{
    const struct dcpk_rng *rng = &w->model->rng[i];
    const struct dcpk_rng rank = {.pp = rng->pp, .tp = rng->tp};

    if (rng->pp != 0)
        return "RNG state of a later pipeline stage: Megatron-FSDP has one stage";
    if (rng->tp >= w->tp && w->is_for_tp)
        return "RNG state of a tensor-parallel rank that the target does not have";
    if (dcpk_model_rng(w->model, &rank) != rng)
        return "RNG state of one data-parallel rank: Megatron-FSDP gives all of them that of the "
               "first";
    return NULL;
}

/* "rng_state.(<pp>, <tp>)", or of one data-parallel rank "rng_state.(<pp>, <tp>, <dp>)". */
static const char *rng_prefix(struct writer *w, const struct dcpk_rng *rng, struct dcpk_error *err)
{
    struct dcpk_arena *arena = w->out->arena;

    if (rng->n_dp == 0 || rng->dp == 0)
        return dcpk_arena_printf(arena, err, FD_RNG "(%" PRId64 ", %" PRId64 ")", rng->pp, rng->tp);
    return dcpk_arena_printf(arena, err, FD_RNG "(%" PRId64 ", %" PRId64 ", %" PRId64 ")", rng->pp,
                             rng->tp, rng->dp);
}

/*
 * Megatron-FSDP has one pipeline stage, so it takes the states of the first. A loader asks for that
 * of each tensor-parallel rank (MT/checkpointing.py get_rng_state @0.14.0 to main).
 */
static dcpk_status writer_put_rng(struct writer *w, struct dcpk_error *err)
{
    int64_t n_ranks = dcpk_max_i64(w->model->layout.tp, 1), n_found = 0;

    if (w->is_for_tp || w->out->target.mesh.dp > 0)
        n_ranks = w->tp;
    for (size_t i = 0; i < w->model->n_rng; i++) {
        const struct dcpk_rng *rng = &w->model->rng[i];
        const char *prefix = rng_prefix(w, rng, err), *why = why_no_rng(w, i);

        if (prefix == NULL)
            return err->status;
        if (why != NULL) {
            dcpk_output_event(w->out, DCPK_EVENT_OMITTED, prefix, "%s", why);
        } else if (add_flat(w, prefix, rng->states, err)) {
            return err->status;
        }
        n_found += why == NULL && rng->tp < n_ranks;
    }
    if (n_found < n_ranks)
        w->out->load_needs |= DCPK_LOAD_WITHOUT_RNG;
    return DCPK_OK;
}

dcpk_status dcpk_fsdp_put_state(const struct dcpk_model *m, struct dcpk_output *out, int64_t tp,
                                bool is_for_tp, struct dcpk_error *err)
{
    struct writer state = {m, out, tp, is_for_tp, FD_MAX_VALUES}, *w = &state;
    const struct dcpk_value *version = m->version;

    if (version == NULL)
        version = dcpk_value_float(w->out->arena, 3.0, err);
    if (version == NULL || add_args(w, err))
        return err->status;
    if (m->iteration == NULL)
        return dcpk_fail(
            err, DCPK_EFORMAT,
            "the source has no iteration: Megatron-FSDP does not load a checkpoint without it");
    if (state_add_value(w, "checkpoint_version", version, err) ||
        state_add_value(w, "iteration", m->iteration, err) ||
        (m->flops != NULL &&
         state_add_value(w, "num_floating_point_operations_so_far", m->flops, err)) ||
        (m->scheduler != NULL && add_flat(w, "opt_param_scheduler", m->scheduler, err)))
        return err->status;
    return writer_put_rng(w, err);
}

/* ---- version 2 of Megatron-FSDP ---- */

#define FD_V2_GROUP "optimizer.param_groups."

bool dcpk_fsdp_is_v2(const struct dcpk_checkpoint *ckpt)
{
    if (dcpk_checkpoint_object(ckpt, FD_V2_GROUP "0.params") == NULL)
        return false;
    for (size_t i = 0; i < ckpt->n_tensors; i++)
        if (dcpk_starts_with(ckpt->tensors[i].key, FD_MODEL) ||
            dcpk_starts_with(ckpt->tensors[i].key, FD_STATE FD_Q_FP32))
            return false;
    return true;
}

bool dcpk_fsdp_wants_v2(const struct dcpk_output *out)
{
    return out->target.generation != NULL && strcmp(out->target.generation, "V2") == 0;
}

static dcpk_status add_value(struct dcpk_output *out, const char *key,
                             const struct dcpk_value *value, struct dcpk_error *err)
{
    uint32_t payload;

    if (dcpk_output_add_payload(out, value, NULL, &payload, err))
        return err->status;
    return dcpk_output_add_object(out, key, payload, err);
}

/* Every spelling of every parameter of a group: a loader looks each of its own names up. */
static dcpk_status fsdp_list_names(const struct dcpk_model *model, struct dcpk_output *out,
                                   uint32_t group, const struct dcpk_value **names,
                                   struct dcpk_error *err)
{
    const struct dcpk_value **items;
    size_t n = 0;

    for (size_t i = 0; i < model->n_params; i++)
        if (model->params[i].group == group)
            n += model->params[i].n_spellings;
    items = dcpk_arena_array(out->arena, n + 1, sizeof *items, err);
    if (items == NULL)
        return err->status;
    n = 0;
    for (size_t i = 0; i < model->n_params; i++) {
        const struct dcpk_param *p = &model->params[i];

        for (size_t s = 0; p->group == group && s < p->n_spellings; s++) {
            items[n] = dcpk_value_str(out->arena, p->spellings[s], err);
            if (items[n++] == NULL)
                return err->status;
        }
    }
    *names = dcpk_value_seq(out->arena, DCPK_V_LIST, items, n, err);
    return dcpk_made(*names, err);
}

static dcpk_status add_group(const struct dcpk_model *model, struct dcpk_output *out,
                             uint32_t group, struct dcpk_error *err)
{
    const struct dcpk_value *dict = model->groups[group], *names;
    const char *key = dcpk_arena_printf(out->arena, err, FD_V2_GROUP "%" PRIu32 ".params", group);

    if (key == NULL || fsdp_list_names(model, out, group, &names, err) ||
        add_value(out, key, names, err))
        return err->status;
    for (size_t i = 0; i < dict->n; i++) {
        const char *field = dcpk_value_as_str(dict->as.pairs[i].key);

        if (field == NULL || strcmp(field, "params") == 0)
            continue;
        key = dcpk_arena_printf(out->arena, err, FD_V2_GROUP "%" PRIu32 ".%s", group, field);
        if (key == NULL || add_value(out, key, dict->as.pairs[i].value, err))
            return err->status;
    }
    return DCPK_OK;
}

dcpk_status dcpk_fsdp_v2_add_groups(const struct dcpk_model *model, struct dcpk_output *out,
                                    struct dcpk_error *err)
{
    for (uint32_t g = 0; g < model->n_groups; g++)
        if (add_group(model, out, g, err))
            return err->status;
    return DCPK_OK;
}

/* True if "<...>.<module>.weight" is the weight of a ColumnParallelLinear or a RowParallelLinear
 * (MC/tensor_parallel/layers.py, get_extra_state). *n_bytes: of the module's name. */
static bool fsdp_is_linear(const char *name, size_t *n_bytes)
{
    static const char *const modules[] = {"output_layer", "in_proj", "out_proj", "eh_proj"};
    const char *last;

    if (!dcpk_ends_with(name, ".weight"))
        return false;
    *n_bytes = strlen(name) - strlen(".weight");
    last = memrchr(name, '.', *n_bytes);
    if (last == NULL)
        last = name;
    else
        last++;
    for (size_t i = 0; i < DCPK_COUNT(modules); i++)
        if (strncmp(last, modules[i], strlen(modules[i])) == 0 &&
            last + strlen(modules[i]) == name + *n_bytes)
            return true;
    return dcpk_starts_with(last, "linear_");
}

dcpk_status dcpk_fsdp_v2_add_extra_states(const struct dcpk_model *model, struct dcpk_output *out,
                                          struct dcpk_error *err)
{
    bool has_output_layer = false;
    uint32_t payload;

    if (dcpk_output_add_payload(out, dcpk_value_none(), NULL, &payload, err))
        return err->status;
    for (size_t i = 0; i < model->n_params; i++) {
        const struct dcpk_param *p = &model->params[i];

        for (size_t s = 0; s < p->n_spellings; s++) {
            size_t n_bytes;
            const char *key;

            if (!fsdp_is_linear(p->spellings[s], &n_bytes))
                continue;
            has_output_layer |= dcpk_starts_with(p->spellings[s], "output_layer.");
            key = dcpk_arena_printf(out->arena, err, FD_V2_MODEL "%.*s._extra_state", (int)n_bytes,
                                    p->spellings[s]);
            if (key == NULL || dcpk_output_add_object(out, key, payload, err))
                return err->status;
        }
    }
    if (has_output_layer)
        return DCPK_OK;
    /* One that shares the embedding's weight has its extra state all the same. */
    return dcpk_output_add_object(out, FD_V2_MODEL "output_layer._extra_state", payload, err);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_to_model.c - keys of 3D-parallel checkpoints -> the canonical view: unstacked layers,
 * single experts, training state. */
#include <inttypes.h>
#include <string.h>

#include "formats/megatron/buckets/megatron_bucket_list.h"
#include "formats/megatron/buckets/megatron_buckets.h"
#include "formats/megatron/megatron.h"
#include "formats/megatron/megatron_flatten.h"
#include "formats/megatron/megatron_stacking.h"
#include "lib/base/text.h"
#include "lib/ckpt/overlaps.h"
#include "lib/model/parts.h"

/* Layers by experts of one stacked tensor; 200 layers of 1000 experts are a fifth of it. */
#define MAX_SLICES (1 << 20)

/* Add the slice of stored tensors that is layer `layer`, expert `expert`. */
static dcpk_status megatron_add_slice(struct dcpk_model *model, const struct dcpk_sources *sources,
                                      const char *name, const struct dcpk_stacking *s,
                                      struct dcpk_model_tensor tensor, struct dcpk_error *err)
{
    const int64_t *lead = sources->at;
    const char *live = dcpk_stacking_name(model->arena, name, s, lead[0], lead[s->n_axes > 1], err);

    if (live == NULL || dcpk_rows_read(model, sources, &tensor, err) ||
        dcpk_model_param(model, live, &tensor.param, err))
        return err->status;
    return dcpk_model_add(model, &tensor, err);
}

/* Add stored tensors: themselves, or their slices along the stacked axes. `name`: their key without
 * optimizer prefix. */
static dcpk_status stored_add_tensor(struct dcpk_model *model, const struct dcpk_found_parts *found,
                                     const char *name, enum dcpk_role role, const char *state,
                                     struct dcpk_error *err)
{
    const struct dcpk_tensor *stored = &model->ckpt->tensors[found->tensor[0]];
    int64_t lead[2] = {0, 0}, count[2] = {1, 1};
    const struct dcpk_model_tensor tensor = {.role = role, .state = state};
    struct dcpk_sources sources;
    struct dcpk_stacking s;

    if (dcpk_stacking_find(name, stored->rank, &s, err))
        return err->status;
    for (int a = 0; a < s.n_axes; a++)
        count[a] = stored->shape[a];
    if (count[0] > MAX_SLICES || count[1] > MAX_SLICES || count[0] * count[1] > MAX_SLICES)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "'%s' stacks %" PRId64 " x %" PRId64
                         " layers and experts, the limit is %d",
                         stored->key, count[0], count[1], MAX_SLICES);
    sources = (struct dcpk_sources){found->tensor, found->n, lead, s.n_axes};
    for (lead[0] = 0; lead[0] < count[0]; lead[0]++)
        for (lead[1] = 0; lead[1] < count[1]; lead[1]++)
            if (megatron_add_slice(model, &sources, name, &s, tensor, err))
                return err->status;
    return DCPK_OK;
}

/* An optimizer tensor must look like its weight. */
static dcpk_status check_state_shape(const struct dcpk_tensor *tensor,
                                     const struct dcpk_tensor *weight, struct dcpk_error *err)
{
    char a[256], b[256];

    if (!dcpk_shape_equal(tensor->shape, tensor->rank, weight->shape, weight->rank))
        return dcpk_fail(err, DCPK_EFORMAT, "its shape is %s, its weight's %s",
                         dcpk_shape_format(tensor->shape, tensor->rank, a, sizeof a),
                         dcpk_shape_format(weight->shape, weight->rank, b, sizeof b));
    return DCPK_OK;
}

/* The tensor in its model's shape: itself, or a view of it where it is flattened. */
static dcpk_status megatron_find_state(struct dcpk_model *model, uint32_t stored,
                                       const struct dcpk_megatron_key *key, uint32_t *source,
                                       struct dcpk_error *err)
{
    struct dcpk_checkpoint *ckpt = model->ckpt;
    const struct dcpk_tensor *found = dcpk_checkpoint_tensor(ckpt, key->param);
    const bool is_step = dcpk_megatron_state_is(key, "step");
    struct dcpk_tensor weight;

    if (found == NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "there is no weight '%s'", key->param);
    weight = *found; /* a view may move the table */
    *source = stored;
    if ((dcpk_megatron_is_flattened(ckpt, &ckpt->tensors[stored]) &&
         dcpk_megatron_unflatten(model, stored, &weight, source, err)) ||
        (!is_step && check_state_shape(&ckpt->tensors[*source], &weight, err)))
        return err->status;
    return DCPK_OK;
}

/* All stored tensors of a state in their model's shape. */
static dcpk_status find_states(struct dcpk_model *model, struct dcpk_found_parts *sources,
                               struct dcpk_error *err)
{
    for (size_t i = 0; i < sources->n; i++) {
        struct dcpk_megatron_key key;

        dcpk_megatron_split_key(model->ckpt->tensors[sources->tensor[i]].key, &key);
        if (megatron_find_state(model, sources->tensor[i], &key, &sources->tensor[i], err))
            return err->status;
    }
    return DCPK_OK;
}

/*
 * A precision-aware optimizer may keep as masters the 16 bits that bf16 weights lack, and layouts
 * in the model's shape then have these as numbers (MC/optimizer/distrib_optimizer.py@0.15.3 to
 * main, get_parameter_state_dp_zero copies int16 into fp32). Only the weights show which.
 */
static bool is_master_in_doubt(const struct dcpk_model *model)
{
    return dcpk_value_is_true(dcpk_value_attrs(model->args), "use_precision_aware_optimizer");
}

/* key: of all parts together. */
static dcpk_status stored_add_state(struct dcpk_model *model, struct dcpk_found_parts *sources,
                                    const struct dcpk_megatron_key *key, struct dcpk_error *err)
{
    const bool weights_only = (model->flags & DCPK_MODEL_WEIGHTS_ONLY) != 0;
    const char *name = model->ckpt->tensors[sources->tensor[0]].key, *state = NULL;
    const enum dcpk_role role = dcpk_megatron_role(key);

    /* The master is the weight's better half, wanted even when the rest of the optimizer is not. */
    if (weights_only && role != DCPK_MASTER) {
        dcpk_model_omit(model, name, dcpk_reason_weights_only);
        return DCPK_OK;
    }
    if (sources->n == 0)
        return DCPK_OK;
    if (role == DCPK_MASTER && is_master_in_doubt(model)) {
        if (weights_only) {
            dcpk_model_omit(model, name,
                            "master of a precision-aware optimizer; the stored weight is taken");
            return DCPK_OK;
        }
        model->needs_proof = true;
    }
    if (find_states(model, sources, err) == DCPK_EUNSUPPORTED && weights_only) {
        dcpk_error_clear(err);
        dcpk_model_omit(model, name,
                        "fp32 master in a form that is not read; the stored weight is taken");
        return DCPK_OK;
    }
    if (err->status != DCPK_OK)
        return err->status;
    if (role == DCPK_STATE) {
        state = dcpk_arena_strndup(model->arena, key->state, key->state_bytes, err);
        if (state == NULL)
            return err->status;
    }
    if (role != DCPK_MASTER)
        model->has_optimizer = true;
    return stored_add_tensor(model, sources, key->param, role, state, err);
}

/* Finds the second name of a master, for optimizers that are not distributed (our own writing). */
static dcpk_status find_second_name(struct dcpk_model *model, uint32_t source, bool *is_second,
                                    struct dcpk_error *err)
{
    const struct dcpk_checkpoint *ckpt = model->ckpt;
    const struct dcpk_tensor *named;
    struct dcpk_megatron_key parts;
    const char *first;

    *is_second = false;
    if (!dcpk_megatron_split_key(ckpt->tensors[source].key, &parts) ||
        !dcpk_megatron_state_is(&parts, "fp32_param"))
        return DCPK_OK;
    first = dcpk_arena_printf(model->arena, err, "optimizer.state.param.%s", parts.param);
    if (first == NULL)
        return err->status;
    named = dcpk_checkpoint_tensor(ckpt, first);
    *is_second =
        named != NULL && dcpk_tensors_are_aliases(ckpt, source, (uint32_t)(named - ckpt->tensors));
    return DCPK_OK;
}

static dcpk_status model_map_tensor(struct dcpk_model *model, uint32_t source,
                                    struct dcpk_error *err)
{
    const char *key = model->ckpt->tensors[source].key, *name;
    struct dcpk_megatron_key parts;
    const struct dcpk_part_key whole = {.prefix = "", .name = key, .tail = ""};
    struct dcpk_found_parts sources;
    bool is_second;

    if (strstr(key, "._extra_state") != NULL) {
        dcpk_model_omit(model, key, "extra state kept as a tensor, which no release asks for");
        return DCPK_OK;
    }
    if (strstr(key, ".adapter.") != NULL)
        return dcpk_fail_fix(err, DCPK_EUNSUPPORTED, DCPK_FIX_DROP,
                             "it belongs to an adapter (LoRA) of Megatron-Bridge, which is neither "
                             "merged nor taken out: Megatron-Bridge's examples/peft/merge_lora.py "
                             "merges it");
    if (dcpk_starts_with(dcpk_megatron_skip_chained(key), "optimizer.distributed.")) {
        /* Else all of them together, when the weights are there: dcpk_megatron_decode_buckets. */
        if ((model->flags & DCPK_MODEL_WEIGHTS_ONLY) != 0)
            dcpk_model_omit(model, key, dcpk_reason_weights_only);
        return DCPK_OK;
    }
    if (find_second_name(model, source, &is_second, err))
        return err->status;
    if (is_second) {
        dcpk_model_carry(model, key);
        return DCPK_OK;
    }
    if (dcpk_parts_find(model, source, &whole, &sources, err))
        return err->status;
    if (sources.n == 0)
        return dcpk_fail(
            err, DCPK_EUNSUPPORTED,
            "a part of a projection that is not of Mamba or Gated DeltaNet, or lacks other parts");
    if (sources.tensor[0] != source) {
        /* it comes with the first one */
        sources.tensor[0] = source;
        sources.n = 0;
    }
    name = dcpk_arena_strndup(model->arena, key, sources.whole_bytes, err);
    if (name == NULL)
        return err->status;
    if (dcpk_megatron_split_key(name, &parts))
        return stored_add_state(model, &sources, &parts, err);
    if (dcpk_starts_with(dcpk_megatron_skip_chained(key), "optimizer."))
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "an optimizer tensor of a form that this version does not know");
    if (sources.n == 0)
        return DCPK_OK;
    return stored_add_tensor(model, &sources, name, DCPK_WEIGHT, NULL, err);
}

/*
 * Maps an object that dp_reshardable and dp_zero_gather_scatter keep next to tensors
 * (formats/torch_dist/FORMAT.md 5.4, 5.5): lists of one value.
 */
static dcpk_status map_optimizer_object(struct dcpk_model *model, const struct dcpk_object *object,
                                        struct dcpk_error *err)
{
    const struct dcpk_value *value;

    if (strstr(object->key, ".grad_scaler/") != NULL) {
        if (dcpk_model_load(model, object, &value, err))
            return err->status;
        if (value != NULL && dcpk_value_at(value, 0) == NULL)
            dcpk_model_drop(model, object->key,
                            "a loss scaler is a list of one value, and this is not");
        if (value != NULL)
            dcpk_megatron_add_scaler(model, dcpk_value_at(value, 0));
        return DCPK_OK;
    }
    if ((model->flags & DCPK_MODEL_WEIGHTS_ONLY) != 0)
        dcpk_model_omit(model, object->key, dcpk_reason_weights_only);
    else if (!dcpk_bucket_is_key(object->key))
        dcpk_model_drop(model, object->key, "no optimizer item of that name is known");
    return DCPK_OK;
}

/* The offsets in "1.3_2.4" or "0_1": one or two of them. */
static bool read_offsets(const char *at, int64_t offsets[2], int *rank)
{
    for (*rank = 0; *rank < 2; at++) {
        offsets[*rank] = dcpk_take_number(&at);
        if (offsets[(*rank)++] < 0 || *at != '.')
            break;
    }
    return offsets[*rank - 1] >= 0 && *at == '_';
}

/*
 * "<module>._extra_state/shard_<i>_<n>": the state of one module, the same on all tensor- and
 * data-parallel ranks; its axes are those of stacked layers and experts
 * (megatron/core/transformer/utils.py@0.15 to main make_sharded_object_for_checkpoint).
 */
static dcpk_status read_extra(struct dcpk_model *model, const struct dcpk_object *object,
                              struct dcpk_error *err)
{
    const char *shard = strstr(object->key, "/shard_"), *name;
    struct dcpk_extra extra = {.object = object};
    struct dcpk_stacking s;
    int64_t at[2] = {0, 0};
    int rank;

    if (shard == NULL || !read_offsets(shard + strlen("/shard_"), at, &rank)) {
        dcpk_model_drop(model, object->key, "extra state; its key names no shard");
        return DCPK_OK;
    }
    name = dcpk_arena_strndup(model->arena, object->key, (size_t)(shard - object->key), err);
    if (name == NULL || dcpk_stacking_find(name, rank, &s, err)) {
        if (!dcpk_status_is_content(err->status))
            return err->status;
        dcpk_model_drop(model, object->key, err->text);
        dcpk_error_clear(err);
        return DCPK_OK;
    }
    extra.name = dcpk_stacking_name(model->arena, name, &s, at[0], at[s.n_axes > 1], err);
    if (extra.name == NULL)
        return err->status;
    return dcpk_model_add_extra(model, &extra, err);
}

static dcpk_status map_object(struct dcpk_model *model, const struct dcpk_object *object,
                              struct dcpk_error *err)
{
    const char *key = object->key;

    if (dcpk_starts_with(key, DCPK_MEGATRON_RNG))
        return dcpk_megatron_read_rng(model, object, err);
    if (dcpk_starts_with(key, "common_state/"))
        return DCPK_OK;
    if (strstr(key, "._extra_state") != NULL)
        return read_extra(model, object, err);
    if (dcpk_starts_with(key, "rerun_state_machine_state/"))
        dcpk_model_omit(model, key, DCPK_MEGATRON_RERUN_REASON);
    else if (dcpk_starts_with(dcpk_megatron_skip_chained(key), "optimizer."))
        return map_optimizer_object(model, object, err);
    else
        dcpk_model_drop(model, key, "no object of that name is known");
    return DCPK_OK;
}

dcpk_status dcpk_megatron_to_model(struct dcpk_checkpoint *ckpt, struct dcpk_model *model,
                                   struct dcpk_error *err)
{
    if (dcpk_megatron_read_common(model, err))
        return err->status;
    for (uint32_t t = 0; t < ckpt->n_tensors; t++) {
        if (dcpk_checkpoint_tensor_left_out(ckpt, t) != NULL)
            continue;
        if (model_map_tensor(model, t, err))
            return dcpk_context(err, "'%s'", ckpt->tensors[t].key);
    }
    if ((model->flags & DCPK_MODEL_WEIGHTS_ONLY) == 0 && dcpk_megatron_decode_buckets(model, err))
        return err->status;
    if ((ckpt->given.decisions & DCPK_REPAIR_PADDING) != 0 &&
        dcpk_megatron_repair_padding(model, err))
        return err->status;
    for (size_t i = 0; i < ckpt->n_objects; i++) {
        if (dcpk_checkpoint_object_left_out(ckpt, i) != NULL)
            continue;
        if (map_object(model, &ckpt->objects[i], err))
            return dcpk_context(err, "'%s'", ckpt->objects[i].key);
    }
    return DCPK_OK;
}

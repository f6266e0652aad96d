/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_objects.c - extra states as Megatron keeps them in sharded objects
 * (formats/torch_dist/FORMAT.md
 * 7). */
#include <inttypes.h>
#include <string.h>

#include "formats/megatron/megatron_slots.h"
#include "formats/megatron/megatron_stacking.h"
#include "lib/base/order.h"
#include "lib/base/text.h"

/*
 * Transformer Engine asks for the _extra_state of each of its modules and the local spec for that
 * of its linear layers; a missing one fails the load, [None] stands for none, and surplus ones do
 * no harm (formats/torch_dist/FORMAT.md 7). So each module that has a weight gets one, except
 * those that no implementation asks for. (GPTModel leaves out its output layer's, HybridModel does
 * not.)
 */
static bool has_extra_state(const char *module)
{
    static const char *const without[] = {"word_embeddings", "position_embeddings", "router"};
    const char *name = strrchr(module, '.');

    if (name == NULL)
        name = module;
    else
        name++;
    for (size_t i = 0; i < DCPK_COUNT(without); i++)
        if (strcmp(name, without[i]) == 0)
            return false;
    return true;
}

struct extra_state {
    const struct dcpk_model *model;
    struct dcpk_output *out;
    struct dcpk_map done;        /* modules */
    struct dcpk_map sources;     /* the model's extra states by name */
    bool *is_carried;            /* of these */
    struct dcpk_by_place loaded; /* their values, read to be written in another format */
    struct dcpk_by_place made;   /* the payloads of these */
    uint32_t none;               /* the payload [None], of all that the source lacks */
};

static dcpk_status begin_extra(struct extra_state *x, struct dcpk_error *err)
{
    const struct dcpk_value *none = dcpk_value_none();
    const struct dcpk_value *list = dcpk_value_seq(x->out->arena, DCPK_V_LIST, &none, 1, err);

    if (list == NULL || dcpk_output_add_payload(x->out, list, NULL, &x->none, err))
        return err->status;
    x->is_carried =
        dcpk_arena_array(x->out->arena, x->model->n_extra_states, sizeof *x->is_carried, err);
    if (x->is_carried == NULL)
        return err->status;
    for (size_t i = 0; i < x->model->n_extra_states; i++) {
        const char *name = x->model->extra_states[i].name;
        bool existed;
        uint64_t found;

        if (dcpk_map_put(&x->sources, name, strlen(name), i, &existed, &found, err))
            return err->status;
    }
    return DCPK_OK;
}

/* The payload of a value, one for all names of its item. */
static dcpk_status put_loaded(struct extra_state *x, const struct dcpk_object *object,
                              uint32_t *payload, struct dcpk_error *err)
{
    const struct dcpk_value *value = NULL;
    uint64_t found;

    if (dcpk_by_place_get(&x->made, &object->place, NULL, &found)) {
        *payload = (uint32_t)found;
        return DCPK_OK;
    }
    if (dcpk_by_place_load(&x->loaded, x->model->ckpt, object, &value, err) ||
        dcpk_output_add_payload(x->out, value, NULL, payload, err))
        return err->status;
    return dcpk_by_place_put(&x->made, &object->place, NULL, *payload, err);
}

/* The source's state as it is: its bytes, or between formats its value. One that cannot be read,
 * or holds what Python would import or call, is dropped: *payload stays. */
static dcpk_status carry_extra(struct extra_state *x, size_t i, uint32_t *payload,
                               struct dcpk_error *err)
{
    const struct dcpk_object *object = x->model->extra_states[i].object;

    x->is_carried[i] = true;
    if (x->model->ckpt->format == x->out->format)
        (void)dcpk_output_add_payload(x->out, NULL, object, payload, err);
    else
        (void)put_loaded(x, object, payload, err);
    if (dcpk_status_is_content(err->status)) {
        dcpk_output_event(x->out, DCPK_EVENT_DROPPED, object->key, "%s", err->text);
        dcpk_error_clear(err);
    }
    return err->status;
}

/* The extra state of one layer and expert of a module, `module` with the ending. */
static dcpk_status put_one_extra(struct extra_state *x, const char *module,
                                 const struct dcpk_slot *slot, int64_t layer, int64_t expert,
                                 struct dcpk_error *err)
{
    struct dcpk_arena *arena = x->out->arena;
    const char *name, *key;
    struct dcpk_stacking s;
    uint32_t payload = x->none;
    uint64_t found;

    if (dcpk_stacking_find(module, DCPK_MAX_STACKED, &s, err))
        return err->status;
    if (dcpk_slot_axes(slot) == DCPK_MAX_STACKED)
        key = dcpk_arena_printf(arena, err, "%s/shard_%" PRId64 ".%" PRId64 "_%" PRId64 ".%" PRId64,
                                module, layer, expert, slot->n_layers, slot->n_experts);
    else if (slot->has_layers)
        key = dcpk_arena_printf(arena, err, "%s/shard_%" PRId64 "_%" PRId64, module, layer,
                                slot->n_layers);
    else /* experts, or none: shard_0_1 */
        key = dcpk_arena_printf(arena, err, "%s/shard_%" PRId64 "_%" PRId64, module, expert,
                                slot->n_experts);
    name = dcpk_stacking_name(arena, module, &s, layer, expert, err);
    if (key == NULL || name == NULL)
        return err->status;
    if (dcpk_map_get(&x->sources, name, strlen(name), &found) &&
        carry_extra(x, (size_t)found, &payload, err))
        return err->status;
    return dcpk_output_add_object(x->out, key, payload, err);
}

static dcpk_status put_extra_state(struct extra_state *x, const char *module,
                                   const struct dcpk_slot *slot, struct dcpk_error *err)
{
    const char *name = dcpk_arena_printf(x->out->arena, err, "%s._extra_state", module);
    uint64_t found;
    bool existed;

    if (name == NULL || dcpk_map_put(&x->done, name, strlen(name), 0, &existed, &found, err))
        return err->status;
    if (existed)
        return DCPK_OK;
    for (int64_t l = 0; l < slot->n_layers; l++)
        for (int64_t e = 0; e < slot->n_experts; e++)
            if (put_one_extra(x, name, slot, l, e, err))
                return err->status;
    return DCPK_OK;
}

/* The slot's module, and the attention kernel next to a projection, which has no weight. */
static dcpk_status put_slot_extra(struct extra_state *x, const struct dcpk_slot *slot,
                                  struct dcpk_error *err)
{
    static const char projection[] = "attention.linear_proj";
    const char *key = slot->keys[0], *dot = strrchr(key, '.'), *module;

    /* A norm that is named as a part of the linear layer after it is not a module, and in a layer
     * of experts local modules have no such layer. */
    if (dot == NULL || dcpk_starts_with(dot, ".layer_norm_"))
        return DCPK_OK;
    module = dcpk_arena_strndup(x->out->arena, key, (size_t)(dot - key), err);
    if (module == NULL)
        return err->status;
    if (!has_extra_state(module))
        return DCPK_OK;
    if (put_extra_state(x, module, slot, err))
        return err->status;
    if (!dcpk_ends_with(module, projection))
        return DCPK_OK;
    module = dcpk_arena_printf(x->out->arena, err, "%.*score_attention",
                               (int)(strlen(module) - strlen("linear_proj")), module);
    if (module == NULL)
        return err->status;
    return put_extra_state(x, module, slot, err);
}

/* States of modules that the model lacks: none that Megatron writes. */
static void extra_note_left(const struct extra_state *x)
{
    for (size_t i = 0; i < x->model->n_extra_states; i++)
        if (!x->is_carried[i])
            dcpk_output_event(x->out, DCPK_EVENT_OMITTED, x->model->extra_states[i].object->key,
                              "extra state of a module without a weight, which no release asks "
                              "for");
}

dcpk_status dcpk_megatron_put_extra_states(const struct dcpk_model *model, struct dcpk_output *out,
                                           const struct dcpk_slots *slots, struct dcpk_error *err)
{
    const struct dcpk_slot single = {.n_layers = 1, .n_experts = 1};
    struct extra_state x = {
        .model = model, .out = out, .loaded = {.arena = out->arena}, .made = {.arena = out->arena}};

    (void)begin_extra(&x, err);
    for (size_t i = 0; i < slots->n && err->status == DCPK_OK; i++)
        (void)put_slot_extra(&x, &slots->list[i], err);
    if (err->status == DCPK_OK && put_extra_state(&x, "output_layer", &single, err) == DCPK_OK)
        extra_note_left(&x);
    dcpk_by_place_release(&x.loaded);
    dcpk_by_place_release(&x.made);
    dcpk_map_release(&x.done);
    dcpk_map_release(&x.sources);
    return err->status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_slots.c - canonical names -> keys of 3D-parallel checkpoints: which parameters lie in
 * one stored tensor. */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/megatron/megatron_slots.h"
#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/base/text.h"

#define LAYERS  "layers."
#define EXPERTS "mlp.experts."

/* The place of one parameter. */
struct place {
    const char *keys[DCPK_MAX_SLOT_KEYS];
    size_t n_keys;
    int64_t layer, expert; /* -1: no such axis */
    size_t slot;
};

struct finding {
    const struct dcpk_model *model;
    const struct dcpk_output *out;
    struct place *places; /* of each parameter */
    struct dcpk_map slot_by_key;
    size_t slots_capacity;
    unsigned kinds; /* of the model's layers */
};

/* The number at `text`, which digits and `end` must follow; -1: it is none. */
static int64_t number_before(const char *text, char end, const char **rest)
{
    char *stop;
    long long n;

    if (!isdigit((unsigned char)*text))
        return -1;
    n = strtoll(text, &stop, 10);
    if (*stop != end || n < 0 || n >= INT32_MAX)
        return -1;
    *rest = stop;
    return n;
}

/*
 * Bytes of `name` up to and with the "layers." whose number follows; *number: after it begins the
 * rest. Multi-token prediction is kept layer by layer (formats/torch_dist/FORMAT.md 4.2). 0: no
 * layer.
 */
static size_t find_layer(const char *name, int64_t *layer, const char **rest)
{
    if (dcpk_starts_with(name, "mtp."))
        return 0;
    for (const char *p = name; (p = strstr(p, LAYERS)) != NULL; p++) {
        if (p != name && p[-1] != '.')
            continue;
        *layer = number_before(p + strlen(LAYERS), '.', rest);
        if (*layer >= 0) {
            ++*rest;
            return (size_t)(p - name) + strlen(LAYERS);
        }
    }
    return 0;
}

/*
 * The rest of a name after the layer, as Transformer Engine's spec and as a local one store it. A
 * decoder's local spec gives its norms the fused names by sharded_state_dict_keys_map, in MoE
 * layers too (megatron/core/models/gpt/gpt_layer_specs.py@0.12 to main,
 * get_gpt_layer_local_submodules); those of MLA and of hybrid stacks keep theirs
 * (post_training/modelopt/hybrid/model_specs.py@0.19.0 and main, without remap_te_layernorm).
 */
static const struct local_key {
    const char *te, *local;
    unsigned kinds; /* of models */
} local_keys[] = {
    {"input_layernorm.", "self_attention.linear_qkv.layer_norm_", DCPK_SLOTS_DECODER},
    {"pre_mlp_layernorm.", "mlp.linear_fc1.layer_norm_", DCPK_SLOTS_DECODER | DCPK_SLOTS_HYBRID},
    {"mlp.linear_fc1.layer_norm_", "pre_mlp_layernorm.", DCPK_SLOTS_MLA | DCPK_SLOTS_HYBRID},
    {"self_attention.linear_qkv.layer_norm_", "input_layernorm.", DCPK_SLOTS_HYBRID},
    {"self_attention.linear_q_up_proj.layer_norm_", "self_attention.q_layernorm.", DCPK_SLOTS_MLA},
    {"self_attention.linear_kv_up_proj.layer_norm_", "self_attention.kv_layernorm.",
     DCPK_SLOTS_MLA},
    {"self_attention.in_proj.layer_norm_", "self_attention.linear_qkv.layer_norm_",
     DCPK_SLOTS_DECODER},
    {"self_attention.in_proj.layer_norm_", "input_layernorm.", DCPK_SLOTS_MLA | DCPK_SLOTS_HYBRID},
    {"mixer.in_proj.layer_norm_", "norm.", DCPK_SLOTS_MLA | DCPK_SLOTS_HYBRID},
};

const char *dcpk_slots_local(unsigned kinds, const char *rest, const char **tail)
{
    for (size_t i = 0; i < DCPK_COUNT(local_keys); i++)
        if ((local_keys[i].kinds & kinds) != 0 && dcpk_starts_with(rest, local_keys[i].te)) {
            *tail = rest + strlen(local_keys[i].te);
            return local_keys[i].local;
        }
    *tail = rest;
    return "";
}

static const char *local_rest(const struct finding *f, const char *rest, struct dcpk_error *err)
{
    const char *tail, *head = dcpk_slots_local(f->kinds, rest, &tail);

    if (tail == rest)
        return rest;
    return dcpk_arena_printf(f->out->arena, err, "%s%s", head, tail);
}

/* Bytes of a name that lead to the layer inside multi-token prediction; 0: it is none. */
static size_t find_mtp_layer(const char *name)
{
    static const char inner[] = ".transformer_layer.";
    const char *p = strstr(name, inner);

    if (p == NULL || !dcpk_starts_with(name, "mtp."))
        return 0;
    return (size_t)(p - name) + strlen(inner);
}

/* True if any layer has such a module. */
static bool has_module(const struct dcpk_model *model, const char *module)
{
    for (size_t i = 0; i < model->n_params; i++)
        if (strstr(model->params[i].name, module) != NULL)
            return true;
    return false;
}

static unsigned model_kinds(const struct dcpk_model *model)
{
    unsigned kinds = 0;

    if (has_module(model, ".self_attention.linear_kv_up_proj."))
        kinds |= DCPK_SLOTS_MLA;
    if (has_module(model, ".mixer."))
        kinds |= DCPK_SLOTS_HYBRID;
    return kinds == 0 ? DCPK_SLOTS_DECODER : kinds;
}

/* "mlp.experts.linear_fc1.weight7" -> "mlp.experts.experts.linear_fc1.weight", 7. */
static const char *stack_expert(struct dcpk_arena *arena, const char *rest, int64_t *expert,
                                struct dcpk_error *err)
{
    const char *experts = strstr(rest, EXPERTS), *end = rest + strlen(rest), *number = end, *stop;

    if (experts == NULL || (experts != rest && experts[-1] != '.'))
        return rest;
    while (number > experts && isdigit((unsigned char)number[-1]))
        number--;
    *expert = number_before(number, '\0', &stop);
    if (*expert < 0)
        return rest;
    experts += strlen(EXPERTS);
    return dcpk_arena_printf(arena, err, "%.*sexperts.%.*s", (int)(experts - rest), rest,
                             (int)(number - experts), experts);
}

/* Mamba's convolution keeps the name of the module that it was before core 0.19: MambaMixer's
 * sharded_state_dict, ssm/mamba_mixer.py@0.19.0 and main. */
static const char *module_conv(struct dcpk_arena *arena, const char *rest, struct dcpk_error *err)
{
    static const char conv[] = "mixer.conv1d_";

    if (!dcpk_starts_with(rest, conv))
        return rest;
    return dcpk_arena_printf(arena, err, "mixer.conv1d.%s", rest + strlen(conv));
}

/* Both spellings of a key: one of them, or both as aliases, as the target wants. */
static dcpk_status spell(const struct finding *f, const char *head, const char *te,
                         struct place *place, struct dcpk_error *err)
{
    struct dcpk_arena *arena = f->out->arena;
    const char *impl = f->out->target.impl, *local = local_rest(f, te, err);
    const char *rests[2] = {te, local};

    if (local == NULL)
        return err->status;
    for (int i = 0; i < 2; i++) {
        static const char *const impls[] = {"te", "local"};
        const bool is_only = strcmp(te, local) == 0;
        const char *key;

        if ((is_only && i == 1) || (!is_only && impl != NULL && strcmp(impl, impls[i]) != 0))
            continue;
        key = dcpk_arena_printf(arena, err, "%s%s", head, rests[i]);
        if (key == NULL)
            return err->status;
        place->keys[place->n_keys++] = key;
    }
    return DCPK_OK;
}

static dcpk_status place_param(const struct finding *f, const char *name, bool stacked,
                               struct place *place, struct dcpk_error *err)
{
    struct dcpk_arena *arena = f->out->arena;
    const char *rest = name, *head = "", *te;
    int64_t layer = -1;
    const size_t layers = find_layer(name, &layer, &rest);

    *place = (struct place){.layer = -1, .expert = -1};
    if (layers > 0 && stacked) {
        place->layer = layer;
        head = dcpk_arena_strndup(arena, name, layers, err);
    } else if (layers > 0) {
        head = dcpk_arena_strndup(arena, name, (size_t)(rest - name), err);
    } else if (find_mtp_layer(name) > 0) {
        rest = name + find_mtp_layer(name);
        head = dcpk_arena_strndup(arena, name, find_mtp_layer(name), err);
    }
    if (head == NULL)
        return err->status;
    te = stack_expert(arena, rest, &place->expert, err);
    if (te != NULL)
        te = module_conv(arena, te, err);
    if (te == NULL)
        return err->status;
    return spell(f, head, te, place, err);
}

/* A stacked layer or expert makes its axis that long at least. */
static void stretch(struct dcpk_slot *slot, const struct place *place)
{
    slot->has_layers |= place->layer >= 0;
    slot->has_experts |= place->expert >= 0;
    if (place->layer >= slot->n_layers)
        slot->n_layers = place->layer + 1;
    if (place->expert >= slot->n_experts)
        slot->n_experts = place->expert + 1;
}

static dcpk_status join_slot(struct finding *f, struct dcpk_slots *slots, struct place *place,
                             struct dcpk_error *err)
{
    struct dcpk_slot *slot;
    uint64_t found = slots->n;
    bool existed;

    if (dcpk_grow(&slots->list, &f->slots_capacity, slots->n, sizeof *slots->list, err) ||
        dcpk_map_put(&f->slot_by_key, place->keys[0], strlen(place->keys[0]), slots->n, &existed,
                     &found, err))
        return err->status;
    if (!existed) {
        found = slots->n++;
        slots->list[found] =
            (struct dcpk_slot){.n_keys = place->n_keys, .n_layers = 1, .n_experts = 1};
        memcpy(slots->list[found].keys, place->keys, sizeof place->keys);
    }
    slot = &slots->list[found];
    stretch(slot, place);
    place->slot = (size_t)found;
    return DCPK_OK;
}

static dcpk_status fill_members(const struct finding *f, struct dcpk_slots *slots,
                                struct dcpk_error *err)
{
    for (size_t i = 0; i < slots->n; i++) {
        struct dcpk_slot *slot = &slots->list[i];
        const int64_t n = slot->n_layers * slot->n_experts;

        /* A name may claim any number; only as many members as there are parameters can be
         * there. */
        if ((uint64_t)n > f->model->n_params)
            continue;
        slot->members = dcpk_arena_array(f->out->arena, (size_t)n, sizeof *slot->members, err);
        if (slot->members == NULL)
            return err->status;
        for (int64_t m = 0; m < n; m++)
            slot->members[m] = UINT32_MAX;
    }
    for (uint32_t p = 0; p < f->model->n_params; p++) {
        const struct place *place = &f->places[p];
        struct dcpk_slot *slot = &slots->list[place->slot];
        const int64_t layer = dcpk_max_i64(place->layer, 0);
        const int64_t expert = dcpk_max_i64(place->expert, 0);

        if (slot->members != NULL)
            slot->members[layer * slot->n_experts + expert] = p;
    }
    return DCPK_OK;
}

static bool same_shape(const struct dcpk_model_tensor *a, const struct dcpk_model_tensor *b)
{
    return a != NULL && b != NULL && dcpk_model_same_shape(a, b);
}

/* Every member is there, of one shape and with the same optimizer state; else the first that is not
 * (UINT32_MAX itself where it is missing). */
static bool is_even(const struct dcpk_model *model, const struct dcpk_slot *slot, int64_t *odd)
{
    const struct dcpk_param *first, *p;

    *odd = 0;
    if (slot->members == NULL || slot->members[0] == UINT32_MAX)
        return false;
    first = &model->params[slot->members[0]];
    for (*odd = 0; *odd < slot->n_layers * slot->n_experts; ++*odd) {
        if (slot->members[*odd] == UINT32_MAX)
            return false;
        p = &model->params[slot->members[*odd]];
        if (!same_shape(dcpk_model_value(model, first), dcpk_model_value(model, p)) ||
            (p->tensor[DCPK_EXP_AVG] == DCPK_NO_TENSOR) !=
                (first->tensor[DCPK_EXP_AVG] == DCPK_NO_TENSOR))
            return false;
    }
    return true;
}

/* The first slot of the same block of layers: "decoder.layers." of both. */
static const struct dcpk_slot *block_of(const struct dcpk_slots *slots,
                                        const struct dcpk_slot *slot)
{
    const size_t head = (size_t)(strstr(slot->keys[0], LAYERS) - slot->keys[0]) + strlen(LAYERS);

    for (const struct dcpk_slot *first = slots->list; first < slot; first++)
        if (first->has_layers && strncmp(first->keys[0], slot->keys[0], head) == 0)
            return first;
    return slot;
}

/* The layers of one block all have the same parameters of the same shapes. */
static bool layers_are_alike(const struct dcpk_model *model, const struct dcpk_slots *slots)
{
    for (size_t i = 0; i < slots->n; i++) {
        const struct dcpk_slot *slot = &slots->list[i];
        int64_t odd;

        if (slot->has_layers &&
            (slot->n_layers != block_of(slots, slot)->n_layers || !is_even(model, slot, &odd)))
            return false;
    }
    return true;
}

static dcpk_status check_slots(const struct dcpk_model *model, const struct dcpk_slots *slots,
                               struct dcpk_error *err)
{
    const int64_t n_experts = dcpk_value_int_or(dcpk_value_attrs(model->args), "num_experts", 0);
    int64_t odd;

    for (size_t i = 0; i < slots->n; i++) {
        const struct dcpk_slot *slot = &slots->list[i];

        if (slot->has_experts && n_experts > 0 && slot->n_experts != n_experts)
            return dcpk_fail(err, DCPK_EMISMATCH,
                             "'%s' has %" PRId64 " experts, args.num_experts is %" PRId64
                             " (Megatron-FSDP saves the biases of TEGroupedMLP's experts under "
                             "clashing names)",
                             slot->keys[0], slot->n_experts, n_experts);
        if (slot->members == NULL)
            return dcpk_fail(err, DCPK_EMISMATCH,
                             "'%s': the names claim %" PRId64 " layers of %" PRId64
                             " experts, the model has %zu parameters in all",
                             slot->keys[0], slot->n_layers, slot->n_experts, model->n_params);
        if (!is_even(model, slot, &odd))
            return dcpk_fail(err, DCPK_EMISMATCH,
                             "'%s': expert %" PRId64 " of layer %" PRId64
                             " is missing, or has another shape or optimizer state than the first",
                             slot->keys[0], odd % slot->n_experts, odd / slot->n_experts);
    }
    return DCPK_OK;
}

bool dcpk_slots_are_apart(const struct dcpk_split *parts)
{
    return parts->n > 0 && strcmp(parts->list[0].name, dcpk_gate_up[0].name) != 0;
}

/* Lists the stored parts of each slot: those of its first member, which looks like the others. */
static dcpk_status slots_split(const struct finding *f, struct dcpk_slots *slots,
                               struct dcpk_error *err)
{
    static const struct dcpk_stored whole = {.name = ""};

    for (size_t i = 0; i < slots->n; i++) {
        struct dcpk_slot *slot = &slots->list[i];
        const struct dcpk_param *first = &f->model->params[slot->members[0]];

        if (dcpk_parts_of(f->model, first, f->out->arena, &slot->split, err))
            return err->status;
        if (!dcpk_slots_are_apart(&slot->split))
            slot->split = (struct dcpk_split){&whole, 1};
    }
    return DCPK_OK;
}

static dcpk_status find_with(struct finding *f, bool stacked, struct dcpk_slots *slots,
                             struct dcpk_error *err)
{
    dcpk_map_release(&f->slot_by_key);
    memset(&f->slot_by_key, 0, sizeof f->slot_by_key);
    slots->n = 0;
    slots->is_stacked = stacked;
    for (size_t p = 0; p < f->model->n_params; p++)
        if (place_param(f, f->model->params[p].name, stacked, &f->places[p], err) ||
            join_slot(f, slots, &f->places[p], err))
            return err->status;
    return fill_members(f, slots, err);
}

/* True if the arg is an int above 1 or a list. */
static bool is_frequency(const struct dcpk_value *attrs, const char *name)
{
    const struct dcpk_value *v = dcpk_value_get(attrs, name);
    int64_t n = 0;

    if (dcpk_value_is_list(v))
        return true;
    return dcpk_value_as_int(v, &n) && n > 1;
}

static bool is_given(const struct dcpk_value *attrs, const char *name)
{
    const struct dcpk_value *v = dcpk_value_get(attrs, name);
    bool on = true;

    return !dcpk_value_is_none(v) && (!dcpk_value_as_bool(v, &on) || on);
}

/*
 * True unless Megatron keeps layers apart without an entry in content_metadata: TransformerBlock's
 * sharded_state_dict@0.14 to main; Mamba and hybrid stacks always (formats/torch_dist/FORMAT.md
 * 4.2).
 */
static bool is_homogeneous(const struct dcpk_model *model)
{
    static const char *const switches[] = {"heterogeneous_layers_config_path",
                                           "heterogeneous_layers_config_encoded_json",
                                           "hybrid_layer_pattern", "hybrid_override_pattern"};
    const struct dcpk_value *attrs = dcpk_value_attrs(model->args);

    if (has_module(model, ".mixer.") || is_frequency(attrs, "moe_layer_freq") ||
        is_frequency(attrs, "linear_attention_freq"))
        return false;
    for (size_t i = 0; i < DCPK_COUNT(switches); i++)
        if (is_given(attrs, switches[i]))
            return false;
    return true;
}

/* True if the source has kept layers apart that args would stack. content_metadata records it for
 * loaders of the source and of the output. */
static bool keeps_layers_apart(const struct dcpk_model *model)
{
    return dcpk_value_is_true(model->content, "non_homogeneous_layers");
}

dcpk_status dcpk_slots_find(const struct dcpk_model *model, const struct dcpk_output *out,
                            struct dcpk_slots *slots, struct dcpk_error *err)
{
    const bool is_stacked = is_homogeneous(model) && !keeps_layers_apart(model);
    struct finding f = {.model = model, .out = out, .kinds = model_kinds(model)};

    *slots = (struct dcpk_slots){.is_homogeneous_by_args = is_homogeneous(model)};
    f.places = dcpk_alloc_array(model->n_params, sizeof *f.places, err);
    if (f.places != NULL && find_with(&f, is_stacked, slots, err) == DCPK_OK && slots->is_stacked &&
        !layers_are_alike(model, slots))
        (void)find_with(&f, false, slots, err);
    if (err->status == DCPK_OK && check_slots(model, slots, err) == DCPK_OK)
        (void)slots_split(&f, slots, err);
    dcpk_map_release(&f.slot_by_key);
    dcpk_free(f.places);
    return err->status;
}

void dcpk_slots_release(struct dcpk_slots *slots)
{
    dcpk_free(slots->list);
    slots->list = NULL;
}

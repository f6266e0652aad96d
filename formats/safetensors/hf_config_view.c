/* SPDX-License-Identifier: Apache-2.0 */
/* hf_config_view.c - one look at config.json, whichever release of transformers wrote it. */
#include <string.h>

#include "formats/safetensors/hf_config_priv.h"
#include "lib/base/order.h"
#include "lib/base/text.h"

#define MAX_ALIASES 4

/* Names of one thing in models and releases (attribute_map of transformers' configurations). */
static const char *const aliases[][MAX_ALIASES] = {
    {"num_hidden_layers", "n_layer"},
    {"hidden_size", "n_embd"},
    {"intermediate_size", "n_inner"},
    {"num_attention_heads", "n_head"},
    {"max_position_embeddings", "n_positions"},
    {"rms_norm_eps", "norm_eps", "layer_norm_epsilon", "layer_norm_eps"},
    {"num_experts", "num_local_experts", "n_routed_experts"},
    {"num_nextn_predict_layers", "num_mtp_layers"},
    {"torch_dtype", "dtype"},
};

const char *dcpk_hf_alias(const char *key, size_t i)
{
    for (size_t row = 0; row < DCPK_COUNT(aliases); row++)
        for (size_t j = 0; j < MAX_ALIASES && aliases[row][j] != NULL; j++)
            if (strcmp(aliases[row][j], key) == 0)
                return i < MAX_ALIASES ? aliases[row][i] : NULL;
    return i == 0 ? key : NULL;
}

const struct dcpk_value *dcpk_hf_view_get(const struct dcpk_hf_view *view, const char *key)
{
    const struct dcpk_value *value = dcpk_value_get(view->top, key);
    const char *name;

    for (size_t i = 0; value == NULL && (name = dcpk_hf_alias(key, i)) != NULL; i++)
        value = dcpk_value_get(view->top, name);
    if (dcpk_value_is_none(value) && strcmp(key, "partial_rotary_factor") == 0 &&
        dcpk_value_get(view->rope, key) != NULL)
        value = dcpk_value_get(view->rope, key);
    return value;
}

/* Two names of one thing that are both there have one value. */
static void check_aliases(const struct dcpk_hf_view *view, struct dcpk_arena *arena,
                          struct dcpk_hf_faults *faults)
{
    for (size_t row = 0; row < DCPK_COUNT(aliases); row++) {
        const struct dcpk_value *first = NULL;
        const char *name = NULL;

        for (size_t j = 0; j < MAX_ALIASES && aliases[row][j] != NULL; j++) {
            const struct dcpk_value *value = dcpk_value_get(view->top, aliases[row][j]);

            if (value == NULL)
                continue;
            if (first != NULL && !dcpk_value_same(first, value))
                dcpk_hf_fault(faults, DCPK_EFORMAT, "'%s' is %s and '%s' is %s: keep one of them",
                              name, dcpk_hf_show(arena, first), aliases[row][j],
                              dcpk_hf_show(arena, value));
            first = value;
            name = aliases[row][j];
        }
    }
}

/*
 * The same of what stands at the top and in an object of rope as well. transformers takes
 * rope_scaling before rope_parameters, and what is in it before the top
 * (modeling_rope_utils.py@5.23.0, convert_rope_params_to_dict); vLLM and others do not.
 */
static void check_rope_names(const struct dcpk_hf_view *view, struct dcpk_arena *arena,
                             struct dcpk_hf_faults *faults)
{
    static const char factor[] = "partial_rotary_factor";
    static const char length[] = "original_max_position_embeddings";
    const struct dcpk_value *parameters = dcpk_value_get(view->top, "rope_parameters");
    const struct dcpk_value *scaling = dcpk_value_get(view->top, "rope_scaling");
    const struct dcpk_value *outer = dcpk_value_get(view->top, factor);
    const struct dcpk_value *inner = dcpk_value_get(view->rope, factor);
    double share;

    if (!dcpk_value_is_none(parameters) && !dcpk_value_is_none(scaling) &&
        !dcpk_value_same(parameters, scaling))
        dcpk_hf_fault(faults, DCPK_EFORMAT,
                      "'rope_parameters' is %s and 'rope_scaling' is %s: keep one of them",
                      dcpk_hf_show(arena, parameters), dcpk_hf_show(arena, scaling));
    if (!dcpk_value_is_none(outer) && !dcpk_value_is_none(inner) && !dcpk_value_same(outer, inner))
        dcpk_hf_fault(faults, DCPK_EFORMAT, "%s is %s and, in rope_parameters, %s", factor,
                      dcpk_hf_show(arena, outer), dcpk_hf_show(arena, inner));
    if (dcpk_value_as_float(dcpk_hf_view_get(view, factor), &share) && share > 1)
        dcpk_hf_fault(faults, DCPK_EFORMAT, "%s is %.17g, more than all of a head", factor, share);
    outer = dcpk_value_get(view->top, length);
    inner = dcpk_value_get(view->rope, length);
    if (!dcpk_value_is_none(outer) && strcmp(view->rope_kind, "default") != 0 &&
        !dcpk_value_same(outer, inner))
        dcpk_hf_fault(faults, DCPK_EFORMAT, "%s is %s and, in rope_parameters, %s", length,
                      dcpk_hf_show(arena, outer), dcpk_hf_show(arena, inner));
}

/* rope_parameters of transformers 5, or rope_scaling of 4; a kind of layer each has no arg. */
static void view_rope(struct dcpk_hf_view *view, struct dcpk_arena *arena,
                      struct dcpk_hf_faults *faults)
{
    static const char *const names[] = {"rope_parameters", "rope_scaling"};
    const struct dcpk_value *kind;

    view->rope_kind = "default";
    view->theta = dcpk_value_get(view->top, "rope_theta");
    for (size_t i = 0; i < DCPK_COUNT(names) && view->rope == NULL; i++) {
        const struct dcpk_value *rope = dcpk_value_get(view->top, names[i]);

        if (!dcpk_value_is_none(rope) && rope->kind != DCPK_V_DICT)
            dcpk_hf_fault(faults, DCPK_EFORMAT, "'%s' is %s, not an object", names[i],
                          dcpk_hf_show(arena, rope));
        else if (!dcpk_value_is_none(rope))
            view->rope = rope;
    }
    for (size_t i = 0; view->rope != NULL && i < view->rope->n; i++)
        if (view->rope->as.pairs[i].value->kind == DCPK_V_DICT) {
            dcpk_hf_fault(
                faults, DCPK_EUNSUPPORTED,
                "rope differs by the kind of layer ('%s'), which Megatron has no args for",
                dcpk_value_as_str(view->rope->as.pairs[i].key));
            view->rope = NULL;
            return;
        }
    kind = dcpk_value_get(view->rope, "rope_type");
    if (dcpk_value_is_none(kind))
        kind = dcpk_value_get(view->rope, "type");
    if (!dcpk_value_is_none(kind))
        view->rope_kind = dcpk_text_or(dcpk_value_as_str(kind), "?");
    if (dcpk_value_get(view->rope, "rope_theta") != NULL) {
        const struct dcpk_value *inner = dcpk_value_get(view->rope, "rope_theta");

        if (view->theta != NULL && !dcpk_value_same(view->theta, inner))
            dcpk_hf_fault(faults, DCPK_EFORMAT, "rope_theta is %s and, in rope_parameters, %s",
                          dcpk_hf_show(arena, view->theta), dcpk_hf_show(arena, inner));
        view->theta = inner;
    }
}

void dcpk_hf_view_init(struct dcpk_hf_view *view, const struct dcpk_value *config,
                       struct dcpk_arena *arena, struct dcpk_hf_faults *faults)
{
    *view = (struct dcpk_hf_view){.top = config};
    check_aliases(view, arena, faults);
    view_rope(view, arena, faults);
    check_rope_names(view, arena, faults);
}

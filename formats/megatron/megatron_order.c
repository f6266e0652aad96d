/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_order.c - the order in which Megatron's modules register their parameters. */
#include <string.h>

#include "formats/megatron/megatron_buckets.h"
#include "lib/base/text.h"

/*
 * Modules of a decoder layer as named_parameters() walks them: a module's own parameters, then its
 * children in the order of their assignment (MC/transformer/transformer_layer.py, attention.py,
 * mlp.py, moe/moe_layer.py, moe/shared_experts.py, the same at 0.15.3, 0.19.0 and main;
 * fsdp_training.md 4.2). A norm stands under its live name and under the fused one that torch_dist
 * gives it on disk (torch_dist.md 4.3). The first entry that a name starts with counts.
 */
static const char *const local_modules[] = {
    "input_layernorm.",
    "self_attention.linear_qkv.layer_norm_", /* input_layernorm on disk */
    "self_attention.linear_proj.",
    "self_attention.linear_qkv.",
    "self_attention.q_layernorm.",
    "self_attention.k_layernorm.",
    "pre_mlp_layernorm.",
    "mlp.linear_fc1.layer_norm_", /* pre_mlp_layernorm on disk */
    "mlp.router.",
    "mlp.experts.",
    "mlp.shared_experts.gate_weight",
    "mlp.shared_experts.linear_fc1.",
    "mlp.shared_experts.linear_fc2.",
    "mlp.linear_fc1.",
    "mlp.linear_fc2.",
};
/* Transformer Engine's fused linears register their norm in front of their weight. */
static const char *const te_modules[] = {
    "input_layernorm.",
    "self_attention.linear_proj.",
    "self_attention.linear_qkv.layer_norm_",
    "self_attention.linear_qkv.",
    "self_attention.q_layernorm.",
    "self_attention.k_layernorm.",
    "pre_mlp_layernorm.",
    "mlp.router.",
    "mlp.experts.",
    "mlp.shared_experts.gate_weight",
    "mlp.shared_experts.linear_fc1.",
    "mlp.shared_experts.linear_fc2.",
    "mlp.linear_fc1.layer_norm_",
    "mlp.linear_fc1.",
    "mlp.linear_fc2.",
};
#define N_LOCAL_MODULES (sizeof local_modules / sizeof local_modules[0])
#define N_TE_MODULES    (sizeof te_modules / sizeof te_modules[0])

/* Outside the decoder's layers. The decoder's final norm is registered behind its layers. */
static const struct {
    const char *prefix;
    uint64_t section;
    bool is_first;
} outside[] = {
    {"embedding.word_embeddings.", 0, true},
    {"embedding.position_embeddings.", 1, true},
    {"decoder.final_layernorm.", 3, false},
    {"output_layer.", 4, false},
};
#define LAYERS_SECTION 2

/* Buffers that are kept in checkpoints. */
static const char *const buffers[] = {"mlp.router.expert_bias",
                                      "mlp.router.local_tokens_per_expert"};

/*
 * "linear_fc1.weight7" behind "mlp.experts.": in grouped linears all experts' fc1 come before all
 * fc2, else expert by expert. Biases of grouped linears are not known.
 */
static bool find_expert(const char *rest, bool is_grouped, struct dcpk_registered *reg)
{
    const bool is_fc2 = dcpk_starts_with(rest, "linear_fc2.");
    bool is_bias;

    if (!is_fc2 && !dcpk_starts_with(rest, "linear_fc1."))
        return false;
    rest += strlen("linear_fc1.");
    is_bias = dcpk_starts_with(rest, "bias");
    if (!is_bias && !dcpk_starts_with(rest, "weight"))
        return false;
    rest += is_bias ? strlen("bias") : strlen("weight");
    reg->expert = dcpk_take_number(&rest);
    if (reg->expert < 0 || *rest != '\0' || (is_bias && is_grouped))
        return false;
    reg->minor = is_grouped ? ((uint64_t)is_fc2 << 32) + (uint64_t)reg->expert
                            : (uint64_t)reg->expert * 4 + 2 * (uint64_t)is_fc2 + (uint64_t)is_bias;
    return true;
}

static bool is_buffer(const char *rest)
{
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++)
        if (strcmp(rest, buffers[i]) == 0)
            return true;
    return false;
}

/* A parameter of a module: its weight, then its bias. */
static bool find_leaf(const char *name, struct dcpk_registered *reg)
{
    reg->minor = dcpk_ends_with(name, "bias");
    return reg->minor == 1 || dcpk_ends_with(name, "weight");
}

static bool find_in_layer(const char *rest, bool is_te, bool is_grouped,
                          struct dcpk_registered *reg)
{
    const char *const *modules = is_te ? te_modules : local_modules;
    const size_t n = is_te ? N_TE_MODULES : N_LOCAL_MODULES;

    reg->is_buffer = is_buffer(rest);
    if (reg->is_buffer)
        return true;
    for (size_t i = 0; i < n; i++) {
        if (!dcpk_starts_with(rest, modules[i]))
            continue;
        reg->major = (uint64_t)LAYERS_SECTION << 56 | (uint64_t)reg->layer << 16 | i;
        if (strcmp(modules[i], "mlp.experts.") == 0)
            return find_expert(rest + strlen(modules[i]), is_grouped, reg);
        return find_leaf(rest, reg);
    }
    return false;
}

bool dcpk_registered_find(const char *name, bool is_te, bool is_grouped,
                          struct dcpk_registered *reg)
{
    static const char layers[] = "decoder.layers.";

    *reg = (struct dcpk_registered){.layer = -1, .expert = -1};
    if (dcpk_starts_with(name, layers)) {
        const char *rest = name + strlen(layers);

        reg->layer = dcpk_take_number(&rest);
        return reg->layer >= 0 && *rest == '.' && find_in_layer(rest + 1, is_te, is_grouped, reg);
    }
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++)
        if (dcpk_starts_with(name, outside[i].prefix)) {
            reg->major = outside[i].section << 56;
            reg->is_first = outside[i].is_first;
            return find_leaf(name, reg);
        }
    return false;
}

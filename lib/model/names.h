/* SPDX-License-Identifier: Apache-2.0 */
/* names.h - how Megatron spells parameters: one canonical name, and every live name that a loader
 * may ask for. */
#ifndef DCPK_LIB_MODEL_NAMES_H
#define DCPK_LIB_MODEL_NAMES_H

#include "lib/model/model.h"

/*
 * One parameter has several live names, by transformer implementation, expert implementation and
 * release (formats/fsdp_dtensor/FORMAT.md 5.3 and 5.5). Canonical is Transformer Engine's spelling
 * with grouped experts, MTP's inner layer as "transformer_layer":
 * - decoder.layers.3.self_attention.linear_qkv.layer_norm_weight
 *   local: decoder.layers.3.input_layernorm.weight
 * - decoder.layers.3.mlp.linear_fc1.layer_norm_weight
 *   local: decoder.layers.3.pre_mlp_layernorm.weight
 * - decoder.layers.3.pre_mlp_layernorm.weight of a MoE layer: the same everywhere
 * - decoder.layers.3.mlp.experts.linear_fc1.weight7
 *   sequential: decoder.layers.3.mlp.experts.local_experts.7.linear_fc1.weight
 * - mtp.layers.0.transformer_layer.<as above>
 *   0.17 to 0.19: mtp.layers.0.mtp_model_layer.<as above>
 */
enum dcpk_impl {
    DCPK_IMPL_ANY,   /* every spelling, as aliases */
    DCPK_IMPL_TE,    /* Transformer Engine norms, grouped experts */
    DCPK_IMPL_LOCAL, /* local norms, sequential experts */
};

/* Properties that the spellings of a layer's names depend on. */
enum dcpk_layer_flags {
    DCPK_LAYER_MOE = 1,                /* has experts or a router */
    DCPK_LAYER_QKV = 2,                /* has linear_qkv: not MLA */
    DCPK_LAYER_Q_UP_PROJ = 4,          /* MLA with a low-rank query */
    DCPK_LAYER_KV_UP_PROJ = 8,         /* MLA */
    DCPK_LAYER_Q_DOWN_PROJ = 16,       /* MLA whose two down-projections may be fused into one */
    DCPK_LAYER_DELTA_NET = 32,         /* Gated DeltaNet: attention with an in_proj */
    DCPK_LAYER_MIXER = 64,             /* Mamba: a mixer with an in_proj */
    DCPK_LAYER_LINEAR_ATTENTION = 128, /* one linear layer instead of the attention */
    DCPK_LAYER_LINEAR_MLP = 256,       /* one linear layer instead of the MLP */
    DCPK_LAYER_SPARSE = 512, /* sparse attention (DSA), whose norms of latents are not fused */
};

/*
 * Bytes of `name` that name its layer: "decoder.layers.3." or "mtp.layers.0.transformer_layer."; 0
 * outside layers.
 */
size_t dcpk_name_layer(const char *name);

/* The flags that `name` gives the layer it lies in. */
unsigned dcpk_name_layer_flags(const char *name);

/* The canonical name of any spelling; layer_flags: of its layer. In the arena, or `name` itself;
 * NULL and err for memory. */
const char *dcpk_name_canonical(struct dcpk_arena *arena, const char *name, unsigned layer_flags,
                                struct dcpk_error *err);

/* Live spellings of a canonical name for a target, the main one first. In the arena. */
struct dcpk_spellings {
    const char *const *names;
    size_t n;
};
dcpk_status dcpk_name_spellings(struct dcpk_arena *arena, const char *canonical,
                                unsigned layer_flags, enum dcpk_impl impl,
                                struct dcpk_spellings *spellings, struct dcpk_error *err);

/* True for the first linear layer of an MLP, whose rows are gate and up when the activation is
 * SwiGLU (formats/fsdp_dtensor/FORMAT.md 5.1). */
bool dcpk_name_is_fc1(const char *canonical);
/* True for a routed expert's parameter. (Shared experts are dense.) */
bool dcpk_name_is_expert(const char *canonical);
/* True if it is in module `module`: contains ".<module>." or starts with "<module>.". */
bool dcpk_name_in_module(const char *name, const char *module);

#endif

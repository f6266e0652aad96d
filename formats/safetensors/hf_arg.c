/* SPDX-License-Identifier: Apache-2.0 */
/* hf_arg.c - what attributes of args mean, present or not. */
#include <inttypes.h>
#include <string.h>

#include "formats/safetensors/hf_config_priv.h"
#include "lib/base/order.h"
#include "lib/model/moe_layers.h"
#include "lib/model/sizes.h"

#define MAX_LAYERS  20000
#define MAX_EXPERTS 100000

#define NEUTRAL DCPK_HF_ARG_NEUTRAL
#define OF_MOE  (DCPK_HF_ARG_NEUTRAL | DCPK_HF_ARG_OF_MOE)
#define OF_ROPE (DCPK_HF_ARG_NEUTRAL | DCPK_HF_ARG_OF_ROPE)

/*
 * Defaults are those of Megatron's parser (megatron/training/arguments.py@core_v0.19.0; the same in
 * core_v0.15.0 to main), or what the model takes None for (rope_type, the scaling factor of the
 * router).
 */
const struct dcpk_hf_arg dcpk_hf_args[] = {
    {"num_layers", DCPK_HF_ARG_INT, 0, MAX_LAYERS, DCPK_HF_NONE, NULL},
    {"hidden_size", DCPK_HF_ARG_INT, 0, 0, DCPK_HF_NONE, NULL},
    {"ffn_hidden_size", DCPK_HF_ARG_INT, 0, 0, DCPK_HF_NONE, NULL},
    {"num_attention_heads", DCPK_HF_ARG_INT, 0, 0, DCPK_HF_NONE, NULL},
    {"num_query_groups", DCPK_HF_ARG_INT, 0, 0, DCPK_HF_NONE, NULL},
    {"kv_channels", DCPK_HF_ARG_INT, 0, 0, DCPK_HF_NONE, NULL},
    {"max_position_embeddings", DCPK_HF_ARG_INT, 0, 0, DCPK_HF_NONE, NULL},
    {"norm_epsilon", DCPK_HF_ARG_FLOAT, 0, 0, DCPK_HF_NUMBER(1e-5), NULL},
    {"layernorm_epsilon", DCPK_HF_ARG_FLOAT, 0, 0, DCPK_HF_NUMBER(1e-5), NULL},
    {"init_method_std", DCPK_HF_ARG_FLOAT, DCPK_HF_ARG_MAY_BE_0, 0, DCPK_HF_NUMBER(0.02), NULL},
    {"untie_embeddings_and_output_weights", DCPK_HF_ARG_BOOL, 0, 0, DCPK_HF_TRUTH(false), NULL},
    {"normalization", DCPK_HF_ARG_TEXT, 0, 0, DCPK_HF_WORD("LayerNorm"), NULL},
    {"apply_layernorm_1p", DCPK_HF_ARG_BOOL, 0, 0, DCPK_HF_TRUTH(false),
     "layernorm_zero_centered_gamma"},
    {"swiglu", DCPK_HF_ARG_BOOL, NEUTRAL, 0, DCPK_HF_TRUTH(false), NULL},
    {"squared_relu", DCPK_HF_ARG_BOOL, NEUTRAL, 0, DCPK_HF_TRUTH(false), NULL},
    {"quick_geglu", DCPK_HF_ARG_BOOL, NEUTRAL, 0, DCPK_HF_TRUTH(false), NULL},
    {"bias_gelu_fusion", DCPK_HF_ARG_BOOL, 0, 0, DCPK_HF_TRUTH(true), NULL},
    {"activation_func_clamp_value", DCPK_HF_ARG_FLOAT, NEUTRAL, 0, DCPK_HF_NONE, NULL},
    {"glu_linear_offset", DCPK_HF_ARG_FLOAT, NEUTRAL | DCPK_HF_ARG_MAY_BE_0, 0, DCPK_HF_NUMBER(0),
     NULL},
    {"add_bias_linear", DCPK_HF_ARG_BOOL, 0, 0, DCPK_HF_TRUTH(true), NULL},
    {"add_qkv_bias", DCPK_HF_ARG_BOOL, NEUTRAL, 0, DCPK_HF_TRUTH(false), NULL},
    {"apply_residual_connection_post_layernorm", DCPK_HF_ARG_BOOL, NEUTRAL, 0, DCPK_HF_TRUTH(false),
     NULL},
    {"attention_dropout", DCPK_HF_ARG_FLOAT, DCPK_HF_ARG_MAY_BE_0, 0, DCPK_HF_NUMBER(0.1), NULL},
    {"hidden_dropout", DCPK_HF_ARG_FLOAT, DCPK_HF_ARG_MAY_BE_0, 0, DCPK_HF_NUMBER(0.1), NULL},
    {"group_query_attention", DCPK_HF_ARG_BOOL, 0, 0, DCPK_HF_TRUTH(false), NULL},
    {"qk_layernorm", DCPK_HF_ARG_BOOL, NEUTRAL, 0, DCPK_HF_TRUTH(false), NULL},
    {"qk_l2_norm", DCPK_HF_ARG_BOOL, NEUTRAL, 0, DCPK_HF_TRUTH(false), NULL},
    {"attention_output_gate", DCPK_HF_ARG_BOOL, NEUTRAL, 0, DCPK_HF_TRUTH(false), NULL},
    {"experimental_attention_variant", DCPK_HF_ARG_TEXT, NEUTRAL, 0, DCPK_HF_NONE, NULL},
    {"softmax_type", DCPK_HF_ARG_TEXT, NEUTRAL, 0, DCPK_HF_WORD("vanilla"), NULL},
    {"window_size", DCPK_HF_ARG_ANY, NEUTRAL, 0, DCPK_HF_NONE, NULL},
    {"window_attn_skip_freq", DCPK_HF_ARG_ANY, NEUTRAL, 0, DCPK_HF_NONE, NULL},

    {"position_embedding_type", DCPK_HF_ARG_TEXT, 0, 0, DCPK_HF_WORD("learned_absolute"), NULL},
    {"rotary_base", DCPK_HF_ARG_ANY, 0, 0, DCPK_HF_WHOLE(10000), NULL},
    {"rotary_percent", DCPK_HF_ARG_FLOAT, OF_ROPE, 0, DCPK_HF_NUMBER(1), NULL},
    {"rotary_interleaved", DCPK_HF_ARG_BOOL, OF_ROPE, 0, DCPK_HF_TRUTH(false), NULL},
    {"no_rope_freq", DCPK_HF_ARG_ANY, OF_ROPE, 0, DCPK_HF_NONE, NULL},
    {"use_rope_scaling", DCPK_HF_ARG_BOOL, DCPK_HF_ARG_OF_KIND, 0, DCPK_HF_TRUTH(false), NULL},
    {"rope_scaling_factor", DCPK_HF_ARG_FLOAT, 0, 0, DCPK_HF_NUMBER(8), NULL},
    {"rotary_seq_len_interpolation_factor", DCPK_HF_ARG_INT, DCPK_HF_ARG_OF_KIND, 0, DCPK_HF_NONE,
     NULL},
    {"rope_type", DCPK_HF_ARG_TEXT, 0, 0, DCPK_HF_WORD("yarn"), NULL},
    {"rotary_scaling_factor", DCPK_HF_ARG_FLOAT, 0, 0, DCPK_HF_NUMBER(1), NULL},
    {"mscale", DCPK_HF_ARG_FLOAT, DCPK_HF_ARG_MAY_BE_0, 0, DCPK_HF_NUMBER(1), NULL},
    {"mscale_all_dim", DCPK_HF_ARG_FLOAT, DCPK_HF_ARG_MAY_BE_0, 0, DCPK_HF_NUMBER(0), NULL},
    {"original_max_position_embeddings", DCPK_HF_ARG_INT, 0, 0, DCPK_HF_WHOLE(4096), NULL},
    {"beta_fast", DCPK_HF_ARG_FLOAT, 0, 0, DCPK_HF_NUMBER(32), NULL},
    {"beta_slow", DCPK_HF_ARG_FLOAT, 0, 0, DCPK_HF_NUMBER(1), NULL},
    {"yarn_original_max_position_embeddings", DCPK_HF_ARG_INT, 0, 0, DCPK_HF_NONE, NULL},
    {"yarn_beta_fast", DCPK_HF_ARG_FLOAT, 0, 0, DCPK_HF_NUMBER(32), NULL},
    {"yarn_beta_slow", DCPK_HF_ARG_FLOAT, 0, 0, DCPK_HF_NUMBER(1), NULL},
    {"yarn_correction_range_round_to_int", DCPK_HF_ARG_BOOL, 0, 0, DCPK_HF_TRUTH(true), NULL},

    {"multi_latent_attention", DCPK_HF_ARG_BOOL, NEUTRAL, 0, DCPK_HF_TRUTH(false), NULL},
    {"q_lora_rank", DCPK_HF_ARG_INT, DCPK_HF_ARG_NULLABLE, 0, DCPK_HF_NONE, NULL},
    {"kv_lora_rank", DCPK_HF_ARG_INT, 0, 0, DCPK_HF_WHOLE(32), NULL},
    {"qk_head_dim", DCPK_HF_ARG_INT, 0, 0, DCPK_HF_WHOLE(128), NULL},
    {"qk_pos_emb_head_dim", DCPK_HF_ARG_INT, 0, 0, DCPK_HF_WHOLE(64), NULL},
    {"v_head_dim", DCPK_HF_ARG_INT, 0, 0, DCPK_HF_WHOLE(128), NULL},

    {"num_experts", DCPK_HF_ARG_INT, NEUTRAL, MAX_EXPERTS, DCPK_HF_NONE, NULL},
    {"moe_ffn_hidden_size", DCPK_HF_ARG_INT, 0, 0, DCPK_HF_NONE, NULL},
    {"moe_layer_freq", DCPK_HF_ARG_ANY, OF_MOE, 0, DCPK_HF_WHOLE(1), NULL},
    {"moe_router_topk", DCPK_HF_ARG_INT, 0, 0, DCPK_HF_WHOLE(2), NULL},
    {"moe_router_pre_softmax", DCPK_HF_ARG_BOOL, OF_MOE, 0, DCPK_HF_TRUTH(false), NULL},
    {"moe_router_score_function", DCPK_HF_ARG_TEXT, OF_MOE, 0, DCPK_HF_WORD("softmax"), NULL},
    {"moe_router_enable_expert_bias", DCPK_HF_ARG_BOOL, OF_MOE, 0, DCPK_HF_TRUTH(false), NULL},
    {"moe_router_topk_scaling_factor", DCPK_HF_ARG_FLOAT, OF_MOE, 0, DCPK_HF_NUMBER(1), NULL},
    {"moe_router_num_groups", DCPK_HF_ARG_INT, OF_MOE | DCPK_HF_ARG_NULLABLE, 0, DCPK_HF_NONE,
     NULL},
    {"moe_router_group_topk", DCPK_HF_ARG_INT, OF_MOE | DCPK_HF_ARG_NULLABLE, 0, DCPK_HF_NONE,
     NULL},
    {"moe_shared_expert_intermediate_size", DCPK_HF_ARG_INT, OF_MOE, 0, DCPK_HF_NONE, NULL},
    {"moe_shared_expert_gate", DCPK_HF_ARG_BOOL, OF_MOE, 0, DCPK_HF_TRUTH(false), NULL},
    {"moe_aux_loss_coeff", DCPK_HF_ARG_FLOAT, DCPK_HF_ARG_MAY_BE_0, 0, DCPK_HF_NUMBER(0), NULL},
    {"moe_latent_size", DCPK_HF_ARG_INT, OF_MOE, 0, DCPK_HF_NONE, NULL},
    {"moe_apply_probs_on_input", DCPK_HF_ARG_BOOL, OF_MOE, 0, DCPK_HF_TRUTH(false), NULL},
    {"moe_mlp_glu_interleave_size", DCPK_HF_ARG_INT, OF_MOE, 0, DCPK_HF_NONE, NULL},
    {"moe_shared_expert_glu_interleave_size", DCPK_HF_ARG_INT, OF_MOE, 0, DCPK_HF_NONE, NULL},
    {"mtp_num_layers", DCPK_HF_ARG_INT, DCPK_HF_ARG_NULLABLE, MAX_LAYERS, DCPK_HF_NONE, NULL},
};
const size_t dcpk_hf_n_args = DCPK_COUNT(dcpk_hf_args);

const struct dcpk_hf_arg *dcpk_hf_arg_find(const char *name)
{
    for (size_t i = 0; i < DCPK_COUNT(dcpk_hf_args); i++)
        if (strcmp(dcpk_hf_args[i].name, name) == 0)
            return &dcpk_hf_args[i];
    return NULL;
}

const struct dcpk_value *dcpk_hf_arg_value(const struct dcpk_value *attrs, const char *name)
{
    const struct dcpk_hf_arg *arg = dcpk_hf_arg_find(name);
    const struct dcpk_value *value = dcpk_value_get(attrs, name);

    if (arg != NULL && arg->twin != NULL && !dcpk_value_is_true(attrs, name))
        value = dcpk_value_get(attrs, arg->twin);
    if (dcpk_value_is_none(value) && strcmp(name, "moe_ffn_hidden_size") == 0)
        value = dcpk_value_get(attrs, "ffn_hidden_size");
    if (strcmp(name, "num_query_groups") == 0)
        value = dcpk_query_groups(attrs);
    /* The parser takes one for each kind of loss. */
    if (strcmp(name, "moe_aux_loss_coeff") == 0 && dcpk_value_at(value, 0) != NULL)
        value = dcpk_value_at(value, 0);
    if (!dcpk_value_is_none(value))
        return value;
    return arg == NULL ? dcpk_value_none() : &arg->otherwise;
}

/* --- moe_layer_freq --- */

/* A number of experts that is 0 is none. */
static bool has_experts(const struct dcpk_value *attrs)
{
    const struct dcpk_value *value = dcpk_value_get(attrs, "num_experts");
    int64_t n;

    return !dcpk_value_is_none(value) && (!dcpk_value_as_int(value, &n) || n != 0);
}

dcpk_status dcpk_hf_moe_layers(const struct dcpk_value *attrs, int64_t n_layers,
                               struct dcpk_arena *arena, const bool **is_moe,
                               struct dcpk_error *err)
{
    const struct dcpk_value *freq = dcpk_hf_arg_value(attrs, "moe_layer_freq");
    bool *layers;

    if (n_layers < 1 || n_layers > MAX_LAYERS)
        return dcpk_fail(err, DCPK_EFORMAT, "num_layers is %" PRId64 ", not from 1 to %d", n_layers,
                         MAX_LAYERS);
    layers = dcpk_arena_array(arena, (size_t)n_layers, sizeof *layers, err);
    if (layers == NULL)
        return err->status;
    *is_moe = layers;
    if (has_experts(attrs) && !dcpk_moe_layers_read(freq, layers, (size_t)n_layers))
        return dcpk_fail(err, DCPK_EFORMAT,
                         "moe_layer_freq is %s, which is not of %" PRId64 " layers",
                         dcpk_hf_show(arena, freq), n_layers);
    return DCPK_OK;
}

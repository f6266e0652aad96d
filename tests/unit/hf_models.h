/* SPDX-License-Identifier: Apache-2.0 */
/* hf_models.h - a small model of each family: its config.json as transformers has it, and the args
 * that have Megatron compute the same. */
#ifndef DCPK_TESTS_UNIT_HF_MODELS_H
#define DCPK_TESTS_UNIT_HF_MODELS_H

#include "tests/unit/hf_laws.h"

/* The same sizes in all: no two that could be taken for each other. */
enum {
    N_LAYERS = 3,
    N_HEADS = 4,
    HIDDEN = 12,
    VOCAB = 7,
    POSITIONS = 9,
    FFN = 10,
    MOE_FFN = 6,
    N_EXPERTS = 8,
    Q_RANK = 10,
    KV_RANK = 6,
    NOPE = 4,
    ROPE = 2,
    V_HEAD = 5,
    KEY_HEADS = 2, /* of Gated DeltaNet; as many value heads as there are heads, of their size */
    KEY_HEAD = 3,
    CONV = 4,
};

#define SIZES                                                                                      \
    "\"vocab_size\": 7, \"hidden_size\": 12, \"num_hidden_layers\": 3, "                           \
    "\"num_attention_heads\": 4, \"intermediate_size\": 10, \"max_position_embeddings\": 9, "
#define GROUPS "\"num_key_value_heads\": 2, \"head_dim\": 5, "
#define ROUTED "\"num_experts_per_tok\": 4, \"moe_intermediate_size\": 6, "
#define LATENT                                                                                     \
    "\"kv_lora_rank\": 6, \"qk_nope_head_dim\": 4, \"qk_rope_head_dim\": 2, \"v_head_dim\": 5, "   \
    "\"n_routed_experts\": 8, \"n_shared_experts\": 3, \"first_k_dense_replace\": 1, "             \
    "\"routed_scaling_factor\": 2.5, "

#define INDEX "\"index_n_heads\": 3, \"index_head_dim\": 7, \"index_topk\": 8, "
#define DSA_ARGS                                                                                   \
    "\"multi_latent_attention\": true, \"experimental_attention_variant\": \"dsa\", "              \
    "\"dsa_indexer_n_heads\": 3, \"dsa_indexer_head_dim\": 7, \"dsa_indexer_topk\": 8, "           \
    "\"dsa_indexer_k_norm_epsilon\": 1e-06, \"dsa_indexer_rotate_activation\": false, "            \
    "\"dsa_indexer_scoring_relu\": true, \"moe_layer_freq\": [0, 1, 1], "

#define BLOCKS "_scale_inv||quantization_config.weight_block_size"

/* One model of a family: its config.json, and the args that have Megatron compute the same. */
static const struct model_case {
    const char *family;
    unsigned traits;
    int n_groups, head_size, n_dense, moe_ffn, shared_ffn;
    const char *config, *args;
    const char *scales; /* of the map: suffix, ending of values, where the blocks stand */
} model_cases[] = {
    {"llama", LLAMA | UNTIED | HEADS | NORMS | GATED, 2, 5, 3, 0, 0,
     SIZES GROUPS
     "\"rope_theta\": 5e5, \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, "
     "\"low_freq_factor\": 1, \"high_freq_factor\": 4, \"original_max_position_embeddings\": 8192}",
     "\"normalization\": \"RMSNorm\", \"swiglu\": true, \"num_layers\": 3, \"num_query_groups\": "
     "2, "
     "\"kv_channels\": 5, \"norm_epsilon\": 1e-06, \"layernorm_epsilon\": 1e-06, "
     "\"rotary_base\": 500000, \"use_rope_scaling\": true, \"rope_scaling_factor\": 8.0, "
     "\"rotary_percent\": 1.0, \"rotary_interleaved\": false, \"position_embedding_type\": "
     "\"rope\", "
     "\"use_rotary_position_embeddings\": true, \"add_position_embedding\": true, "
     "\"add_bias_linear\": false, \"add_qkv_bias\": false, \"group_query_attention\": true, "
     "\"untie_embeddings_and_output_weights\": true, \"vocab_size\": 7",
     BLOCKS},
    {"llama", LLAMA | HEADS | NORMS | GATED, 4, 3, 3, 0, 0,
     SIZES "\"rms_norm_eps\": 1e-5, \"rope_theta\": 1e4, \"tie_word_embeddings\": true, "
           "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}",
     "\"num_query_groups\": 4, \"kv_channels\": 3, \"layernorm_epsilon\": 1e-05, "
     "\"rotary_seq_len_interpolation_factor\": 2, \"use_rope_scaling\": false, "
     "\"untie_embeddings_and_output_weights\": false",
     BLOCKS},
    {"mistral", LLAMA | UNTIED | HEADS | NORMS | GATED, 2, 5, 3, 0, 0,
     SIZES GROUPS "\"rope_theta\": 1e4, \"sliding_window\": 8",
     "\"window_size\": [7, 0], \"swiglu\": true, \"add_qkv_bias\": false", BLOCKS},
    {"phi3", LLAMA | UNTIED | HEADS_ONE | NORMS | GATED_ONE, 2, 5, 3, 0, 0,
     SIZES GROUPS "\"rope_theta\": 1e4, \"sliding_window\": 8, \"partial_rotary_factor\": 0.5",
     "\"window_size\": [7, 0], \"swiglu\": true, \"rotary_percent\": 0.5, \"norm_epsilon\": 1e-05",
     BLOCKS},
    {"qwen2", LLAMA | UNTIED | HEADS | HEADS_BIAS | NORMS | GATED, 2, 5, 3, 0, 0,
     SIZES GROUPS "\"rope_theta\": 1e6",
     "\"add_qkv_bias\": true, \"add_bias_linear\": false, \"rotary_base\": 1000000", BLOCKS},
    {"ernie4_5", LLAMA | HEADS | NORMS | GATED, 2, 5, 3, 0, 0,
     SIZES GROUPS "\"rope_theta\": 5e5, \"use_bias\": false",
     "\"rotary_interleaved\": true, \"add_bias_linear\": false, \"norm_epsilon\": 1e-05, "
     "\"untie_embeddings_and_output_weights\": false",
     BLOCKS},
    {"smollm3", LLAMA | HEADS | NORMS | GATED, 2, 3, 3, 0, 0,
     SIZES "\"num_key_value_heads\": 2, \"rope_theta\": 5e6, \"no_rope_layers\": [1, 0, 1]",
     "\"no_rope_freq\": [0, 1, 0], \"add_bias_linear\": false, \"norm_epsilon\": 1e-06, "
     "\"untie_embeddings_and_output_weights\": false",
     BLOCKS},
    {"seed_oss", LLAMA | UNTIED | HEADS | HEADS_BIAS | NORMS | GATED, 2, 5, 3, 0, 0,
     SIZES GROUPS "\"rope_theta\": 1e7, \"residual_dropout\": 0.0",
     "\"add_qkv_bias\": true, \"add_bias_linear\": false, \"hidden_dropout\": 0.0, "
     "\"attention_dropout\": 0.1",
     BLOCKS},
    {"qwen3", LLAMA | UNTIED | HEADS | HEADS_NORM | NORMS | GATED, 2, 5, 3, 0, 0,
     SIZES GROUPS "\"rope_theta\": 1e6", "\"qk_layernorm\": true, \"kv_channels\": 5", BLOCKS},
    {"mixtral", LLAMA | UNTIED | HEADS | NORMS | EXPERTS_W, 2, 5, 0, FFN, 0,
     SIZES GROUPS "\"rope_theta\": 1e4, \"num_local_experts\": 8, \"num_experts_per_tok\": 2, "
                  "\"sliding_window\": null",
     "\"num_experts\": 8, \"moe_router_topk\": 2, \"moe_ffn_hidden_size\": 10, "
     "\"moe_router_pre_softmax\": false, \"moe_router_score_function\": \"softmax\", "
     "\"moe_layer_freq\": 1, \"window_size\": null",
     BLOCKS},
    {"qwen2_moe", LLAMA | UNTIED | HEADS | HEADS_BIAS | NORMS | GATED | EXPERTS | SHARED_GATE, 2, 5,
     1, MOE_FFN, 14,
     SIZES GROUPS ROUTED "\"rope_theta\": 1e4, \"num_experts\": 8, \"norm_topk_prob\": false, "
                         "\"shared_expert_intermediate_size\": 14, \"mlp_only_layers\": [0]",
     "\"moe_router_pre_softmax\": true, \"moe_shared_expert_gate\": true, "
     "\"moe_shared_expert_intermediate_size\": 14, \"moe_layer_freq\": [0, 1, 1], "
     "\"moe_ffn_hidden_size\": 6, \"moe_router_topk\": 4, \"add_qkv_bias\": true",
     BLOCKS},
    {"qwen3_next", LLAMA | UNTIED | DELTA_NET | BY_HEAD | GATED | EXPERTS | SHARED_GATE, 2, 5, 1,
     MOE_FFN, 14,
     SIZES GROUPS ROUTED
     "\"rope_theta\": 1e4, \"num_experts\": 8, \"shared_expert_intermediate_size\": 14, "
     "\"mlp_only_layers\": [0], \"num_nextn_predict_layers\": 0, \"linear_num_key_heads\": 2, "
     "\"linear_num_value_heads\": 4, \"linear_key_head_dim\": 3, \"linear_value_head_dim\": 5, "
     "\"layer_types\": [\"linear_attention\", \"full_attention\", \"linear_attention\"]",
     "\"moe_router_pre_softmax\": false, \"moe_shared_expert_gate\": true, "
     "\"qk_layernorm\": true, \"apply_layernorm_1p\": true, \"attention_output_gate\": true, "
     "\"experimental_attention_variant\": \"gated_delta_net\", \"linear_attention_freq\": 2, "
     "\"linear_conv_kernel_dim\": 4, \"linear_num_key_heads\": 2, \"linear_key_head_dim\": 3, "
     "\"linear_num_value_heads\": 4, \"linear_value_head_dim\": 5, \"rotary_percent\": 0.25, "
     "\"moe_layer_freq\": [0, 1, 1], \"mtp_num_layers\": null",
     BLOCKS},
    {"qwen3_5_text", LLAMA | UNTIED | DELTA_NET | IN_FOUR | GATED, 2, 5, 3, 0, 0,
     SIZES GROUPS
     "\"rope_theta\": 1e4, \"linear_num_key_heads\": 2, "
     "\"linear_num_value_heads\": 4, \"linear_key_head_dim\": 3, \"linear_value_head_dim\": 5, "
     "\"layer_types\": [\"linear_attention\", \"full_attention\", \"linear_attention\"], "
     "\"mtp_num_hidden_layers\": 0",
     "\"qk_layernorm\": true, \"apply_layernorm_1p\": true, \"attention_output_gate\": true, "
     "\"experimental_attention_variant\": \"gated_delta_net\", \"linear_attention_freq\": 2, "
     "\"linear_num_key_heads\": 2, \"linear_value_head_dim\": 5, \"rotary_percent\": 0.25, "
     "\"mtp_num_layers\": null",
     BLOCKS},
    {"qwen3_5_moe_text", LLAMA | UNTIED | DELTA_NET | IN_FOUR | EXPERTS | SHARED_GATE, 2, 5, 0,
     MOE_FFN, 14,
     SIZES GROUPS ROUTED
     "\"rope_theta\": 1e4, \"linear_num_key_heads\": 2, "
     "\"linear_num_value_heads\": 4, \"linear_key_head_dim\": 3, \"linear_value_head_dim\": 5, "
     "\"layer_types\": [\"linear_attention\", \"full_attention\", \"linear_attention\"], "
     "\"mtp_num_hidden_layers\": 0, \"num_experts\": 8, "
     "\"shared_expert_intermediate_size\": 14",
     "\"qk_layernorm\": true, \"apply_layernorm_1p\": true, \"attention_output_gate\": true, "
     "\"experimental_attention_variant\": \"gated_delta_net\", \"linear_attention_freq\": 2, "
     "\"linear_num_key_heads\": 2, \"linear_value_head_dim\": 5, \"rotary_percent\": 0.25, "
     "\"mtp_num_layers\": null, \"moe_router_pre_softmax\": false, "
     "\"moe_shared_expert_gate\": true, \"moe_layer_freq\": 1, \"ffn_hidden_size\": 6",
     BLOCKS},
    {"minimax_m2", LLAMA | UNTIED | HEADS | HEADS_NORM_ALL | NORMS | EXPERTS_W | ROUTED_BIAS_W, 2,
     5, 0, FFN, 0,
     SIZES GROUPS "\"num_local_experts\": 8, \"num_experts_per_tok\": 2, \"rope_theta\": 5e6",
     "\"moe_router_score_function\": \"sigmoid\", \"qk_layernorm\": true, "
     "\"moe_router_enable_expert_bias\": true, \"moe_layer_freq\": 1, "
     "\"moe_ffn_hidden_size\": 10, \"qk_layernorm_full_width\": true",
     BLOCKS},
    {"gemma3_text", LLAMA | HEADS | HEADS_NORM | NORMS_FOUR | GATED, 2, 5, 3, 0, 0,
     SIZES GROUPS "\"sliding_window\": 8, \"hidden_activation\": \"gelu_pytorch_tanh\", "
                  "\"query_pre_attn_scalar\": 144",
     "\"query_pre_attn_scalar\": 144, \"apply_layernorm_1p\": true, \"qk_layernorm\": true, "
     "\"window_size\": [7, 0], \"untie_embeddings_and_output_weights\": false",
     BLOCKS},
    {"olmoe", LLAMA | UNTIED | HEADS | HEADS_NORM_ALL | NORMS | EXPERTS, 2, 3, 0, FFN, 0,
     SIZES "\"num_key_value_heads\": 2, \"num_experts_per_tok\": 4, \"rope_theta\": 1e4, "
           "\"num_experts\": 8, \"norm_topk_prob\": false, \"clip_qkv\": null",
     "\"moe_router_pre_softmax\": true, \"qk_layernorm\": true, \"moe_layer_freq\": 1, "
     "\"moe_ffn_hidden_size\": 10, \"layernorm_epsilon\": 1e-05, "
     "\"qk_layernorm_full_width\": true",
     BLOCKS},
    {"qwen3_moe", LLAMA | UNTIED | HEADS | HEADS_NORM | NORMS | EXPERTS, 2, 5, 0, MOE_FFN, 0,
     SIZES GROUPS ROUTED "\"rope_theta\": 1e4, \"num_experts\": 8, \"norm_topk_prob\": true",
     "\"moe_router_pre_softmax\": false, \"qk_layernorm\": true, \"moe_layer_freq\": 1", BLOCKS},
    {"deepseek_v2", LLAMA | UNTIED | MLA | FUSED | Q_WHOLE | GATED | EXPERTS | SHARED, 4, 0, 1,
     MOE_FFN, 18,
     SIZES ROUTED LATENT "\"q_lora_rank\": null, \"rope_theta\": 1e4, \"norm_topk_prob\": false, "
                         "\"n_group\": 1, \"topk_group\": 1, \"topk_method\": \"greedy\", "
                         "\"scoring_func\": \"softmax\"",
     "\"q_lora_rank\": null, \"kv_lora_rank\": 6, \"qk_head_dim\": 4, \"qk_pos_emb_head_dim\": 2, "
     "\"v_head_dim\": 5, \"moe_router_pre_softmax\": true, \"multi_latent_attention\": true, "
     "\"rope_type\": \"rope\", \"rotary_scaling_factor\": 1.0, \"mscale\": 1.0, "
     "\"mscale_all_dim\": 0.0, \"moe_router_topk_scaling_factor\": 2.5, "
     "\"moe_router_score_function\": \"softmax\"",
     BLOCKS},
    {"deepseek_v3",
     LLAMA | UNTIED | MLA | FUSED | Q_LATENT | GATED | EXPERTS | ROUTED_BIAS | SHARED | MTP, 4, 0,
     1, MOE_FFN, 18,
     SIZES ROUTED LATENT
     "\"q_lora_rank\": 10, \"rope_theta\": 1e4, \"n_group\": 4, \"topk_group\": 2, "
     "\"num_nextn_predict_layers\": 1, \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 40, "
     "\"original_max_position_embeddings\": 4096, "
     "\"mscale\": 0.8, \"mscale_all_dim\": 0.6}",
     "\"q_lora_rank\": 10, \"moe_router_num_groups\": 4, \"moe_router_group_topk\": 2, "
     "\"moe_router_topk_scaling_factor\": 2.5, \"moe_router_score_function\": \"sigmoid\", "
     "\"moe_router_enable_expert_bias\": true, \"moe_layer_freq\": [0, 1, 1], "
     "\"moe_shared_expert_intermediate_size\": 18, \"mtp_num_layers\": 1, \"rope_type\": \"yarn\", "
     "\"rotary_scaling_factor\": 40.0, \"mscale\": 0.8, \"mscale_all_dim\": 0.6, "
     "\"original_max_position_embeddings\": 4096, \"beta_fast\": 32.0, \"beta_slow\": 1.0, "
     "\"multi_latent_attention\": true, \"qk_layernorm\": true, \"norm_epsilon\": 1e-06, "
     "\"rotary_interleaved\": false",
     BLOCKS},
    {"glm_moe_dsa",
     LLAMA | UNTIED | MLA | SPARSE | Q_LATENT | GATED | EXPERTS | ROUTED_BIAS | SHARED | MTP, 4, 0,
     1, MOE_FFN, 18,
     SIZES ROUTED LATENT INDEX
     "\"q_lora_rank\": 10, \"rope_theta\": 1e6, \"n_group\": 1, \"topk_group\": 1, "
     "\"num_nextn_predict_layers\": 1, \"index_topk_freq\": 2, "
     "\"indexer_types\": [\"full\", \"full\", \"shared\"], "
     "\"mlp_layer_types\": [\"dense\", \"sparse\", \"sparse\"]",
     DSA_ARGS "\"dsa_indexer_rope_interleaved\": true, \"dsa_indexer_topk_freq\": 2, "
              "\"dsa_indexer_skip_topk_offset\": 2, \"norm_epsilon\": 1e-05, "
              "\"rotary_base\": 1000000, \"mtp_num_layers\": 1",
     BLOCKS},
    {"deepseek_v32",
     LLAMA | UNTIED | MLA | SPARSE | Q_LATENT | GATED | EXPERTS | ROUTED_BIAS | SHARED | MTP, 4, 0,
     1, MOE_FFN, 18,
     SIZES ROUTED LATENT INDEX
     "\"q_lora_rank\": 10, \"rope_theta\": 1e4, \"n_group\": 4, \"topk_group\": 2, "
     "\"num_nextn_predict_layers\": 1, \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 40, "
     "\"original_max_position_embeddings\": 4096}",
     DSA_ARGS "\"dsa_indexer_rope_interleaved\": false, \"norm_epsilon\": 1e-06, "
              "\"moe_router_num_groups\": 4, \"rope_type\": \"yarn\"",
     BLOCKS},
    {"glm4_moe",
     LLAMA | UNTIED | HEADS | HEADS_BIAS | HEADS_NORM | NORMS | GATED | EXPERTS | ROUTED_BIAS |
         SHARED | MTP,
     2, 5, 1, MOE_FFN, 18,
     SIZES GROUPS ROUTED
     "\"n_routed_experts\": 8, \"n_shared_experts\": 3, \"first_k_dense_replace\": 1, "
     "\"routed_scaling_factor\": 2.5, \"rope_theta\": 1e4, \"n_group\": 4, \"topk_group\": 2, "
     "\"num_nextn_predict_layers\": 1, \"attention_bias\": true, \"use_qk_norm\": true",
     "\"moe_router_num_groups\": 4, \"moe_router_topk_scaling_factor\": 2.5, "
     "\"moe_router_enable_expert_bias\": true, \"moe_router_score_function\": \"sigmoid\", "
     "\"rotary_percent\": 0.5, \"add_qkv_bias\": true, \"qk_layernorm\": true, "
     "\"moe_layer_freq\": [0, 1, 1]",
     BLOCKS},
    {"dots1", LLAMA | UNTIED | HEADS | HEADS_NORM | NORMS | GATED | EXPERTS | ROUTED_BIAS | SHARED,
     2, 5, 1, MOE_FFN, 18,
     SIZES GROUPS ROUTED
     "\"n_routed_experts\": 8, \"n_shared_experts\": 3, \"first_k_dense_replace\": 1, "
     "\"routed_scaling_factor\": 2.5, \"rope_theta\": 1e7, \"n_group\": 4, \"topk_group\": 2, "
     "\"norm_topk_prob\": true, \"sliding_window\": null",
     "\"moe_router_num_groups\": 4, \"moe_router_topk_scaling_factor\": 2.5, "
     "\"moe_router_enable_expert_bias\": true, \"moe_router_score_function\": \"sigmoid\", "
     "\"qk_layernorm\": true, \"moe_layer_freq\": [0, 1, 1], \"norm_epsilon\": 1e-06",
     BLOCKS},
    {"gpt_oss", LLAMA | UNTIED | HEADS | HEADS_BIAS | NORMS | OSS, 2, 5, 0, FFN, 0,
     SIZES GROUPS
     "\"num_local_experts\": 8, \"num_experts_per_tok\": 2, \"rope_theta\": 150000, "
     "\"sliding_window\": 8, \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 8, "
     "\"original_max_position_embeddings\": 32, \"truncate\": false}",
     "\"quick_geglu\": true, \"swiglu\": false, \"glu_linear_offset\": 1.0, "
     "\"activation_func_clamp_value\": 7.0, \"add_bias_linear\": true, \"softmax_type\": "
     "\"learnable\", \"window_size\": [7, 0], \"window_attn_skip_freq\": 2, "
     "\"position_embedding_type\": \"yarn\", \"rotary_scaling_factor\": 8.0, "
     "\"yarn_original_max_position_embeddings\": 32, \"yarn_beta_fast\": 32.0, "
     "\"yarn_beta_slow\": 1.0, \"yarn_correction_range_round_to_int\": false, \"mscale\": 1.0, "
     "\"mscale_all_dim\": 0.0, \"moe_router_pre_softmax\": false, "
     "\"use_rotary_position_embeddings\": false",
     "_scales|_blocks|"},
    {"gpt2", GPT2, 4, 3, 3, 0, 0,
     "\"vocab_size\": 7, \"n_embd\": 12, \"n_layer\": 3, \"n_head\": 4, \"n_positions\": 9, "
     "\"n_inner\": 10, \"layer_norm_epsilon\": 1e-05, \"activation_function\": \"gelu_new\"",
     "\"normalization\": \"LayerNorm\", \"swiglu\": false, \"bias_gelu_fusion\": true, "
     "\"add_bias_linear\": true, \"position_embedding_type\": \"learned_absolute\", "
     "\"untie_embeddings_and_output_weights\": false, \"ffn_hidden_size\": 10, "
     "\"use_rotary_position_embeddings\": false, \"max_position_embeddings\": 9",
     ""},
    {"nemotron", LLAMA | UNTIED | HEADS | NORMS | NORM_BIAS | UNGATED, 2, 5, 3, 0, 0,
     SIZES GROUPS "\"rope_theta\": 1e4, \"hidden_act\": \"relu2\", \"partial_rotary_factor\": 0.25",
     "\"normalization\": \"LayerNorm\", \"squared_relu\": true, \"swiglu\": false, "
     "\"apply_layernorm_1p\": true, \"layernorm_zero_centered_gamma\": true, "
     "\"rotary_percent\": 0.25, \"norm_epsilon\": 1e-05",
     BLOCKS},
    {"stablelm", LLAMA | UNTIED | HEADS | HEADS_BIAS | NORMS | NORM_BIAS | GATED, 2, 3, 3, 0, 0,
     SIZES "\"num_key_value_heads\": 2, \"rope_theta\": 1e4, \"use_qkv_bias\": true, "
           "\"use_parallel_residual\": false",
     "\"normalization\": \"LayerNorm\", \"swiglu\": true, \"add_qkv_bias\": true, "
     "\"rotary_percent\": 0.25, \"norm_epsilon\": 1e-05",
     BLOCKS},
    {"starcoder2", LLAMA | HEADS | HEADS_BIAS | NORMS | NORM_BIAS | STARCODER, 2, 3, 3, 0, 0,
     SIZES "\"num_key_value_heads\": 2, \"rope_theta\": 1e6, \"sliding_window\": 8, "
           "\"hidden_act\": \"gelu_pytorch_tanh\"",
     "\"normalization\": \"LayerNorm\", \"swiglu\": false, \"bias_gelu_fusion\": true, "
     "\"add_bias_linear\": true, \"window_size\": [7, 0], "
     "\"untie_embeddings_and_output_weights\": false",
     BLOCKS},
    {"nemotron_h", HYBRID | HYBRID_MIXED | UNTIED, 2, 5, 1, MOE_FFN, 3,
     SIZES GROUPS ROUTED
     "\"hybrid_override_pattern\": \"MEE\", \"mamba_num_heads\": 6, \"n_group\": 2, "
     "\"topk_group\": 1, \"n_routed_experts\": 8, \"moe_shared_expert_intermediate_size\": 3",
     "\"hybrid_layer_pattern\": \"MEE\", \"hybrid_override_pattern\": \"MEE\", \"num_layers\": 3, "
     "\"mamba_num_heads\": 6, \"mamba_num_groups\": 8, \"mamba_state_dim\": 128, "
     "\"mamba_head_dim\": 64, \"num_experts\": 8, \"moe_ffn_hidden_size\": 6, "
     "\"moe_router_num_groups\": 2, \"squared_relu\": true, \"position_embedding_type\": \"none\"",
     BLOCKS},
    {"nemotron_h", HYBRID | HYBRID_PLAIN | UNTIED, 2, 5, 1, 0, 0,
     SIZES GROUPS "\"layers_block_type\": [\"mlp\", \"attention\", \"full_attention\"], "
                  "\"mamba_num_heads\": 6, \"n_routed_experts\": 8",
     "\"hybrid_layer_pattern\": \"-**\", \"num_layers\": 3, \"is_hybrid_model\": true, "
     "\"swiglu\": false, \"norm_epsilon\": 1e-05",
     BLOCKS},
    {"gemma2", LLAMA | HEADS | NORMS_FOUR | GATED, 2, 5, 3, 0, 0,
     SIZES GROUPS
     "\"rope_theta\": 1e4, \"sliding_window\": 8, \"hidden_activation\": \"gelu_pytorch_tanh\", "
     "\"query_pre_attn_scalar\": 144, \"attn_logit_softcapping\": 50.0, "
     "\"final_logit_softcapping\": 20.0",
     "\"query_pre_attn_scalar\": 144, \"attn_logit_softcapping\": 50.0, "
     "\"final_logit_softcapping\": 20.0, "
     "\"apply_layernorm_1p\": true, \"window_size\": [7, 0], \"window_attn_skip_freq\": 2, "
     "\"untie_embeddings_and_output_weights\": false",
     BLOCKS},
};

/* The extent that a letter of a shape means. */
static inline int64_t case_extent(const struct model_case *c, char letter)
{
    const int64_t q = (int64_t)N_HEADS * c->head_size, k = (int64_t)c->n_groups * c->head_size;
    const struct {
        char letter;
        int64_t extent;
    } extents[] = {
        {'h', HIDDEN},
        {'v', VOCAB},
        {'p', POSITIONS},
        {'d', c->head_size},
        {'H', N_HEADS},
        {'q', q},
        {'k', k},
        {'a', q + 2 * k},
        {'f', FFN},
        {'F', 2 * FFN},
        {'m', c->moe_ffn},
        {'M', 2 * c->moe_ffn},
        {'s', c->shared_ffn},
        {'e', N_EXPERTS},
        {'1', 1},
        {'w', 2 * HIDDEN},
        {'l', Q_RANK},
        {'L', N_HEADS * (NOPE + ROPE)},
        {'c', KV_RANK + ROPE},
        {'C', KV_RANK},
        {'K', N_HEADS * (NOPE + V_HEAD)},
        {'V', N_HEADS * V_HEAD},
        {'Q', 2 * q},
        {'Z', 2 * KEY_HEADS * KEY_HEAD + 2 * q},
        {'B', 2 * N_HEADS},
        {'N', 2 * KEY_HEADS * KEY_HEAD + q},
        {'n', CONV},
        {'I', 3 * 7},
        {'J', 7},
        {'G', 3},
    };

    for (size_t i = 0; i < DCPK_COUNT(extents); i++)
        if (extents[i].letter == letter)
            return extents[i].extent;
    return 0;
}

#endif

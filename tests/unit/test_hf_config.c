/* SPDX-License-Identifier: Apache-2.0 */
/* test_hf_config.c - config.json beside args: each key of the families that are built in, what is
 * refused, and what is remarked. */
#include "tests/unit/hf_config_case.h"

/* --- the families --- */

#define MEMBERS                                                                                    \
    "\"vocab_size\": 99, \"hidden_size\": 32, \"num_hidden_layers\": 4, \"num_attention_heads\": " \
    "4, "                                                                                          \
    "\"intermediate_size\": 40, \"max_position_embeddings\": 256, \"rope_theta\": 10000.0"
#define MLA                                                                                        \
    ", \"q_lora_rank\": 12, \"kv_lora_rank\": 8, \"qk_nope_head_dim\": 8, \"qk_rope_head_dim\": "  \
    "4, "                                                                                          \
    "\"v_head_dim\": 6, \"n_routed_experts\": 8, \"num_experts_per_tok\": 4, "                     \
    "\"moe_intermediate_size\": 12, \"n_shared_experts\": 2, \"first_k_dense_replace\": 1, "       \
    "\"routed_scaling_factor\": 2.5"
/* Their classes have numbers of their own where the key is absent; null is that of the heads. */
#define KV_HEADS ", \"num_key_value_heads\": null"
#define EXPERTS  ", \"num_experts\": 8, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 12"

static const char *config_of(const char *family)
{
    static const struct {
        const char *family, *members;
    } configs[] = {
        {"llama", MEMBERS ", \"rms_norm_eps\": 1e-05"},
        {"mistral", MEMBERS KV_HEADS},
        {"qwen2", MEMBERS KV_HEADS},
        {"qwen3", MEMBERS KV_HEADS},
        {"mixtral", MEMBERS KV_HEADS ", \"num_local_experts\": 4, \"num_experts_per_tok\": 2"},
        {"qwen2_moe", MEMBERS KV_HEADS EXPERTS ", \"shared_expert_intermediate_size\": 20"},
        {"qwen3_moe", MEMBERS KV_HEADS EXPERTS},
        {"deepseek_v2", MEMBERS MLA},
        {"deepseek_v3", MEMBERS MLA},
        {"glm_moe_dsa", MEMBERS MLA ", \"index_n_heads\": 3, \"index_head_dim\": 8, "
                                    "\"index_topk\": 4, \"n_group\": 1, \"topk_group\": 1"},
        {"gpt_oss", MEMBERS KV_HEADS ", \"num_local_experts\": 4, \"num_experts_per_tok\": 2"},
        {"gpt2", "\"vocab_size\": 99, \"n_embd\": 32, \"n_layer\": 3, \"n_head\": 4, "
                 "\"n_positions\": 64, \"layer_norm_epsilon\": 1e-05"},
        {"dots1",
         MEMBERS KV_HEADS EXPERTS ", \"n_routed_experts\": 8, \"n_shared_experts\": 2, "
                                  "\"first_k_dense_replace\": 1, \"routed_scaling_factor\": 1.5, "
                                  "\"n_group\": 1, \"topk_group\": 1, \"sliding_window\": 16"},
        {"nemotron", MEMBERS},
        {"gemma2", MEMBERS KV_HEADS ", \"final_logit_softcapping\": 30.0"},
    };

    for (size_t i = 0; i < DCPK_COUNT(configs); i++)
        if (strcmp(configs[i].family, family) == 0)
            return configs[i].members;
    return NULL;
}

static const struct dcpk_hf_map *built_in(const char *family)
{
    struct dcpk_hf_maps maps;

    CHECK_OK(dcpk_hf_maps_load(NULL, arena, &maps, &err), family);
    return dcpk_hf_maps_find(&maps, family);
}

/* A member for each row of the specification: the arg that it becomes. */
static const struct {
    const char *family, *config, *arg, *value;
} families[] = {
    {"llama", "", "num_layers", "4"},
    {"llama", "", "ffn_hidden_size", "40"},
    {"llama", "", "seq_length", "256"},
    {"llama", "", "num_query_groups", "4"},
    {"llama", ", \"num_key_value_heads\": 2", "num_query_groups", "2"},
    {"llama", "", "group_query_attention", "true"},
    {"llama", "", "kv_channels", "8"},
    {"llama", ", \"head_dim\": null", "kv_channels", "8"},
    {"llama", ", \"head_dim\": 16", "kv_channels", "16"},
    {"llama", "", "norm_epsilon", "1e-05"},
    {"llama", "", "layernorm_epsilon", "1e-05"},
    {"mistral", ", \"sliding_window\": null", "layernorm_epsilon", "1e-06"},
    {"dots1", ", \"norm_topk_prob\": true, \"max_window_layers\": 4", "window_size", "absent"},
    {"dots1", ", \"norm_topk_prob\": true", "window_size", "absent"}, /* from layer 62 on */
    {"llama", ", \"tie_word_embeddings\": true", "untie_embeddings_and_output_weights", "false"},
    {"llama", "", "untie_embeddings_and_output_weights", "true"},
    {"llama", ", \"initializer_range\": 0.01", "init_method_std", "0.01"},
    {"llama", ", \"hidden_act\": \"silu\"", "swiglu", "true"},
    {"nemotron", ", \"hidden_act\": \"relu2\"", "squared_relu", "true"},
    {"nemotron", "", "apply_layernorm_1p", "true"},
    {"nemotron", "", "layernorm_zero_centered_gamma", "true"},
    {"nemotron", ", \"partial_rotary_factor\": 0.25", "rotary_percent", "0.25"},
    {"nemotron", ", \"rope_parameters\": {\"partial_rotary_factor\": 0.25}", "rotary_percent",
     "0.25"},
    {"qwen2", "", "add_qkv_bias", "true"},
    {"llama", "", "add_bias_linear", "false"},
    {"llama", "", "rotary_base", "10000"},
    {"llama", "", "rotary_percent", "1.0"},
    {"llama", "", "use_rope_scaling", "false"},
    {"llama",
     ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 32, \"low_freq_factor\": 1.0, "
     "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 8192}",
     "rope_scaling_factor", "32.0"},
    {"llama", ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.0}",
     "rotary_seq_len_interpolation_factor", "2"},
    {"llama", ", \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 10000}",
     "rotary_base", "10000"},
    {"mistral",
     ", \"sliding_window\": null, \"rope_scaling\": {\"type\": \"linear\", \"factor\": 4}",
     "rotary_seq_len_interpolation_factor", "4"},
    {"qwen2",
     ", \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4.0, "
     "\"original_max_position_embeddings\": 32768}",
     "yarn_original_max_position_embeddings", "32768"},
    {"qwen3",
     ", \"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 4.0, "
     "\"original_max_position_embeddings\": 32768}",
     "position_embedding_type", "\"yarn\""},
    {"qwen2_moe", ", \"qkv_bias\": false", "add_qkv_bias", "false"},
    {"qwen2_moe", "", "add_qkv_bias", "true"},
    {"gpt_oss",
     ", \"sliding_window\": 8, \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 8.0, "
     "\"original_max_position_embeddings\": 32, \"truncate\": false}",
     "yarn_correction_range_round_to_int", "false"},
    {"gpt_oss",
     ", \"sliding_window\": 8, \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 8.0, "
     "\"original_max_position_embeddings\": 32, \"mscale\": 1.0}",
     "use_rotary_position_embeddings", "false"},
    {"gpt_oss",
     ", \"sliding_window\": 8, \"swiglu_limit\": 6.5, \"rope_scaling\": {\"rope_type\": \"yarn\", "
     "\"factor\": 8.0, \"original_max_position_embeddings\": 32}, \"layer_types\": "
     "[\"sliding_attention\", \"full_attention\", \"sliding_attention\", \"full_attention\"]",
     "activation_func_clamp_value", "6.5"},
    {"deepseek_v3", ", \"n_group\": 4, \"topk_group\": 2", "moe_router_num_groups", "4"},
    {"deepseek_v3", ", \"n_group\": 4, \"topk_group\": 2", "mscale", "1.0"},
    {"deepseek_v3", ", \"n_group\": 4, \"topk_group\": 2", "rope_type", "\"rope\""},
    {"deepseek_v3",
     ", \"n_group\": 1, \"topk_group\": 1, \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 40, "
     "\"original_max_position_embeddings\": 4096}",
     "rotary_scaling_factor", "40.0"},
    {"deepseek_v3", ", \"n_group\": 1, \"topk_group\": 1", "moe_shared_expert_intermediate_size",
     "24"},
    {"deepseek_v3", ", \"n_group\": 1, \"topk_group\": 1", "moe_layer_freq", "[0, 1, 1, 1]"},
    {"deepseek_v3", ", \"n_group\": 1, \"topk_group\": 1", "moe_router_enable_expert_bias", "true"},
    {"deepseek_v3", ", \"n_group\": 1, \"topk_group\": 1", "mtp_num_layers", "null"},
    {"deepseek_v3", ", \"n_group\": 1, \"topk_group\": 1, \"num_mtp_layers\": 1", "mtp_num_layers",
     "1"},
    {"deepseek_v3", ", \"n_group\": 1, \"topk_group\": 1, \"head_dim\": 4", "kv_channels",
     "absent"},
    {"deepseek_v3", ", \"n_group\": 4, \"topk_group\": 1", "moe_router_group_topk", "1"},
    {"deepseek_v3", ", \"n_group\": 1, \"topk_group\": 1", "moe_router_group_topk", "null"},
    {"qwen2_moe", ", \"norm_topk_prob\": true", "moe_router_pre_softmax", "false"},
    {"qwen2_moe", "", "moe_router_pre_softmax", "true"},
    {"qwen2_moe", "", "moe_shared_expert_gate", "true"},
    {"mixtral", ", \"sliding_window\": null", "moe_ffn_hidden_size", "40"},
    {"gpt2", ", \"activation_function\": \"gelu_new\"", "ffn_hidden_size", "128"},
    {"gpt2", ", \"activation_function\": \"gelu\"", "bias_gelu_fusion", "false"},
    {"gpt2", ", \"activation_function\": \"gelu_new\", \"attn_pdrop\": 0.2", "attention_dropout",
     "0.2"},
    {"llama", "", "params_dtype", "\"torch.float32\""},
    {"llama", ", \"torch_dtype\": \"bfloat16\"", "params_dtype", "\"torch.bfloat16\""},
    {"llama", ", \"dtype\": \"bfloat16\"", "bf16", "true"},
    {"llama", ", \"torch_dtype\": \"float16\"", "fp16", "true"},
    {"llama", "", "add_position_embedding", "true"},
    {"llama", "", "use_rotary_position_embeddings", "true"},
    {"llama", "", "padded_vocab_size", "99"},
    {"llama", "", "no_save_optim", "true"},
    {"llama", ", \"attention_bias\": true, \"mlp_bias\": true", "add_bias_linear", "true"},
    {"llama", "", "add_bias_linear", "false"},
};

/* What cannot be, with the words that the message has; `&` stands between two faults. */
static const struct {
    const char *family, *config, *says;
} refused[] = {
    {"llama", ", \"hidden_act\": \"gelu\"",
     "'hidden_act' is \"gelu\", which Megatron has no args for"},
    {"llama", ", \"attention_bias\": true",
     "'mlp_bias' is false, and by another key args.add_bias_linear is true"},
    {"llama", ", \"mlp_bias\": true",
     "'mlp_bias' is true, and by another key args.add_bias_linear is false"},
    {"llama", ", \"head_dim\": \"8\"", "'head_dim' is \"8\", not a whole number"},
    {"llama", ", \"head_dim\": 0", "'head_dim' is 0"},
    {"llama", ", \"head_dim\": -8", "'head_dim' is -8"},
    {"llama", ", \"head_dim\": 8.5", "'head_dim' is 8.5"},
    {"llama", ", \"head_dim\": 1e300", "'head_dim' is 1e+300"},
    {"llama", ", \"head_dim\": [[8]]", "'head_dim' is [[8]]"},
    {"llama", ", \"num_key_value_heads\": 3", "4 heads are not a multiple of 3"},
    {"llama", ", \"num_key_value_heads\": {}", "'num_key_value_heads' is {}"},
    {"llama", ", \"n_layer\": 5", "'num_hidden_layers' is 4 and 'n_layer' is 5: keep one"},
    {"llama", ", \"initializer_range\": true", "'initializer_range' is true, not a number"},
    {"llama", ", \"torch_dtype\": \"int8\"", "'torch_dtype' is \"int8\""},
    {"llama", ", \"torch_dtype\": 7", "'torch_dtype' is 7"},
    {"llama", ", \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}",
     "rope kind 'dynamic' has no args in Megatron; family 'llama' has default, llama3, linear"},
    {"llama", ", \"rope_scaling\": {\"rope_type\": \"longrope\"}", "rope kind 'longrope'"},
    {"llama", ", \"rope_scaling\": {\"rope_type\": 3}", "rope kind '?'"},
    {"llama", ", \"rope_scaling\": 3", "'rope_scaling' is 3, not an object"},
    {"llama", ", \"rope_scaling\": {\"type\": \"linear\"}", "'factor' is missing in rope kind"},
    {"llama", ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.5}", "'factor' is 2.5"},
    {"llama", ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2, \"x\": 1}",
     "'x' of rope kind 'linear' is 1, which Megatron has no args for"},
    {"llama",
     ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 2, "
     "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 8192}",
     "'low_freq_factor' of rope kind 'llama3' is 2"},
    {"llama",
     ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, "
     "\"high_freq_factor\": 4}",
     "'original_max_position_embeddings' is missing in rope kind 'llama3'"},
    {"llama", ", \"rope_parameters\": {\"full_attention\": {\"rope_theta\": 1.0}}",
     "rope differs by the kind of layer ('full_attention')"},
    {"llama", ", \"rope_parameters\": {\"rope_theta\": 5.0}",
     "rope_theta is 10000.0 and, in rope_parameters, 5.0"},
    {"llama", ", \"rope_parameters\": {\"rope_theta\": 0.5}",
     "'rope_theta' is 0.5, not a number from 1 to 1e+15"},
    {"llama", ", \"rope_parameters\": {\"rope_theta\": 2e15}", "not a number from 1 to 1e+15"},
    {"llama",
     ", \"rope_parameters\": {\"rope_type\": \"default\"}, \"rope_scaling\": {\"rope_type\": "
     "\"linear\", \"factor\": 2}",
     "'rope_parameters' is {\"rope_type\": \"default\"} and 'rope_scaling' is"},
    {"llama",
     ", \"partial_rotary_factor\": 1, \"rope_parameters\": {\"partial_rotary_factor\": 0.5}",
     "partial_rotary_factor is 1 and, in rope_parameters, 0.5"},
    {"llama", ", \"partial_rotary_factor\": 0.5", "'partial_rotary_factor' is 0.5"},
    {"llama", ", \"layer_types\": [\"full_attention\"]", "not a list of all layers"},
    {"llama",
     ", \"layer_types\": [\"full_attention\", \"sliding_attention\", \"full_attention\", 1]",
     "'layer_types' has \"sliding_attention\" in layer 1"},
    {"llama", ", \"quantization_config\": {\"quant_method\": \"gptq\"}", "quant_method \"gptq\""},
    {"llama", ", \"attention_dropout\": 2", "'attention_dropout' is 2, not a rate"},
    {"mistral", "", "'sliding_window' is missing"},
    {"qwen2", ", \"use_sliding_window\": true", "'use_sliding_window' is true"},
    {"qwen2", ", \"qkv_bias\": false", "'qkv_bias' is false"},
    {"dots1", ", \"norm_topk_prob\": true, \"max_window_layers\": 3", "'sliding_window' is 16"},
    {"dots1", "", "'norm_topk_prob' is false"}, /* as the class has it */
    {"qwen3_moe", ", \"num_local_experts\": 9", "'num_experts' is 8 and 'num_local_experts' is 9"},
    {"qwen3_moe", ", \"mlp_only_layers\": [0, 1, 2, 3]", "leaves no layer with experts"},
    {"deepseek_v3", ", \"n_group\": 4, \"topk_group\": 2, \"norm_topk_prob\": false",
     "'norm_topk_prob' is false"},
    {"deepseek_v3", ", \"n_group\": 4, \"topk_group\": 2, \"rope_interleave\": false",
     "'rope_interleave' is false"},
    {"deepseek_v3", ", \"n_group\": 4, \"topk_group\": 2, \"scoring_func\": \"softmax\"",
     "'scoring_func' is \"softmax\""},
    {"deepseek_v3", ", \"n_group\": 4, \"topk_group\": 2, \"num_key_value_heads\": 2",
     "'num_key_value_heads' is 2, and 'num_attention_heads' 4"},
    {"deepseek_v2",
     ", \"n_group\": 4, \"topk_group\": 2, \"topk_method\": \"group_limited_greedy\"",
     "'topk_method' is \"group_limited_greedy\""},
    {"deepseek_v2", ", \"n_group\": 4, \"topk_group\": 2, \"topk_method\": \"greedy\"",
     "'n_group' is 4, and 'topk_method' \"greedy\" does not look at groups"},
    {"deepseek_v2", ", \"n_group\": 4, \"topk_group\": 2",
     "'n_group' is 4, and 'topk_method' \"greedy\" does not look at groups"},
    {"gpt_oss", ", \"sliding_window\": 8, \"swiglu_alpha\": 1.5", "'swiglu_alpha' is 1.5"},
    {"glm_moe_dsa", ", \"indexer_types\": [\"full\", \"shared\", \"full\", \"full\"]",
     "'indexer_types' has \"shared\" in layer 1"},
    {"glm_moe_dsa", ", \"mlp_layer_types\": [\"dense\", \"sparse\", \"dense\", \"sparse\"]",
     "'mlp_layer_types' has \"dense\" in layer 2"},
    {"glm_moe_dsa", ", \"layer_types\": [\"full_attention\", \"x\", \"x\", \"x\"]",
     "'layer_types' has \"full_attention\" in layer 0"},
    {"glm_moe_dsa", ", \"index_topk_pattern\": \"FFSS\"", "'index_topk_pattern' is \"FFSS\""},
    {"glm_moe_dsa", ", \"indexer_rope_interleave\": false", "'indexer_rope_interleave' is false"},
    {"glm_moe_dsa", ", \"index_topk_freq\": 2, \"index_skip_topk_offset\": 0",
     "'index_skip_topk_offset' is 0"},
    {"deepseek_v3", ", \"n_group\": 8, \"topk_group\": 2",
     "8 experts cannot form 8 groups of two or more with 2 picked"},
    {"deepseek_v3", ", \"n_group\": 3, \"topk_group\": 2", "8 experts cannot form 3 groups"},
    {"deepseek_v3", ", \"n_group\": 2, \"topk_group\": 3", "2 groups of two or more with 3"},
    {"deepseek_v3", ", \"n_group\": 4, \"topk_group\": 2, \"head_dim\": 6", "'head_dim' is 6"},
    {"deepseek_v3",
     ", \"n_group\": 4, \"topk_group\": 2, \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 40}",
     "'original_max_position_embeddings' is missing in rope kind 'yarn'"},
    {"deepseek_v2", ", \"n_group\": 1, \"topk_group\": 1, \"mlp_bias\": true",
     "'mlp_bias' is true"},
    {"llama",
     ", \"original_max_position_embeddings\": 64, \"rope_scaling\": {\"rope_type\": \"llama3\", "
     "\"factor\": 8, \"low_freq_factor\": 1, \"high_freq_factor\": 4, "
     "\"original_max_position_embeddings\": 8192}",
     "original_max_position_embeddings is 64 and, in rope_parameters, 8192"},
    {"nemotron", ", \"partial_rotary_factor\": 1.5", "partial_rotary_factor is 1.5, more than all"},
    {"gemma2", "", "'attn_logit_softcapping' is missing"},
    {"gpt2", ", \"activation_function\": \"gelu\", \"add_cross_attention\": true",
     "'add_cross_attention' is true"},
    {"llama", ", \"is_causal\": false", "'is_causal' is false"},
    {"gpt2", ", \"activation_function\": \"gelu\", \"is_causal\": false", "'is_causal' is false"},
    {"llama", ", \"transformers_weights\": \"x.safetensors\"", "'transformers_weights' is \"x.saf"},
    {"llama", ", \"sliding_window\": 16", "'sliding_window' is 16"},
    {"qwen2", ", \"attention_chunk_size\": 16", "'attention_chunk_size' is 16"},
    {"llama", ", \"per_layer_config\": {\"0\": {\"hidden_size\": 8}}", "'per_layer_config' is"},
    {"gpt2", ", \"activation_function\": \"relu\"", "'activation_function' is \"relu\""},
    {"gpt2", ", \"activation_function\": \"gelu\", \"scale_attn_by_inverse_layer_idx\": true",
     "'scale_attn_by_inverse_layer_idx' is true"},
    /* all of them, not the first alone */
    {"llama", ", \"hidden_act\": \"gelu\", \"head_dim\": 0, \"mlp_bias\": true",
     "'hidden_act' is \"gelu\"&'mlp_bias' is true&'head_dim' is 0"},
};

static const char *whole_config(const char *family, const char *more)
{
    static char config[4096];

    (void)snprintf(config, sizeof config, "{%s%s}", config_of(family), more);
    return config;
}

static void each_family(void **state)
{
    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(families); i++) {
        const struct dcpk_hf_map *map;
        const struct dcpk_value *attrs;
        char label[300];
        size_t distance;

        fresh();
        (void)snprintf(label, sizeof label, "%s%s: %s", families[i].family, families[i].config,
                       families[i].arg);
        map = built_in(families[i].family);
        CHECK_OK(import(map, whole_config(families[i].family, families[i].config), label, &attrs),
                 label);
        CHECK_EQ_STR(show(dcpk_value_get(attrs, families[i].arg)), families[i].value, label);
        CHECK_OK(dcpk_hf_args_hold(map, attrs, &distance, &err), label);
    }
}

/* A config.json without a base of rope means that of the family's class. */
static void usual_theta(void **state)
{
    static const struct {
        const char *family, *more, *theta;
    } cases[] = {
        {"llama", "", "10000"},
        {"mixtral", ", \"sliding_window\": null", "1000000"},
        {"gpt_oss",
         ", \"sliding_window\": 8, \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 8.0, "
         "\"original_max_position_embeddings\": 32}",
         "150000"},
    };

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(cases); i++) {
        char text[4096], *at;
        const struct dcpk_value *attrs;

        fresh();
        (void)snprintf(text, sizeof text, "%s", whole_config(cases[i].family, cases[i].more));
        at = strstr(text, "10000.0");
        memcpy(at, "null   ", strlen("10000.0"));
        CHECK_OK(import(built_in(cases[i].family), text, cases[i].family, &attrs), cases[i].family);
        CHECK_EQ_STR(show(dcpk_value_get(attrs, "rotary_base")), cases[i].theta, cases[i].family);
        CHECK(strstr(remarks, cases[i].theta) != NULL, remarks);
    }
}

static void each_refusal(void **state)
{
    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(refused); i++) {
        const struct dcpk_value *attrs;
        char says[300], *rest = says;

        fresh();
        CHECK(import(built_in(refused[i].family),
                     whole_config(refused[i].family, refused[i].config), refused[i].says,
                     &attrs) != DCPK_OK,
              refused[i].says);
        (void)snprintf(says, sizeof says, "%s", refused[i].says);
        while (rest != NULL) {
            const char *part = strsep(&rest, "&");

            if (strstr(err.text, part) == NULL)
                fail_msg("'%s' lacks '%s'", err.text, part);
        }
    }
}

/* A member that is missing, each in turn. */
static void missing(void **state)
{
    static const char *const needed[] = {"hidden_size", "num_hidden_layers", "num_attention_heads",
                                         "intermediate_size", "vocab_size"};
    char config[1024];

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(needed); i++) {
        const struct dcpk_value *attrs;
        char *at;

        fresh();
        (void)snprintf(config, sizeof config, "%s", whole_config("llama", ""));
        at = strstr(config, needed[i]);
        CHECK(at != NULL, needed[i]);
        *at = '_'; /* another key */
        CHECK(import(built_in("llama"), config, needed[i], &attrs) != DCPK_OK, needed[i]);
        CHECK(strstr(err.text, needed[i]) != NULL, err.text);
    }
}

/* Megatron would have routed by groups that transformers then ignores. */
static void ignored_groups(void **state)
{
    const struct dcpk_value *attrs;
    struct dcpk_bytes text = {0};

    (void)state;
    fresh();
    CHECK_OK(import(built_in("deepseek_v3"),
                    whole_config("deepseek_v3", ", \"n_group\": 4, \"topk_group\": 2"), "groups",
                    &attrs),
             "groups");
    CHECK(export(built_in("deepseek_v2"), attrs, NULL, &text) != DCPK_OK, "groups");
    CHECK(strstr(err.text, "moe_router_num_groups is 4, and family 'deepseek_v2' picks experts "
                           "among all") != NULL,
          err.text);
    dcpk_bytes_release(&text);
}

/* Where both sides compute something else: named, and nothing else is. */
static const struct {
    const char *family, *config, *import, *export;
} traps[] = {
    {"llama", "", "", ""},
    {"deepseek_v3", ", \"n_group\": 4, \"topk_group\": 2", "", ""},
    {"deepseek_v3", ", \"n_group\": 4, \"topk_group\": 2, \"rms_norm_eps\": 1e-05",
     "layernorm_epsilon is 1e-05; transformers always uses 1e-06 in norms of latents",
     "layernorm_epsilon is 1e-05"},
    {"deepseek_v3", ", \"n_group\": 4, \"topk_group\": 1",
     "moe_router_group_topk is 1 for a top-k of 4", "moe_router_group_topk is 1"},
    {"llama",
     ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 32, \"low_freq_factor\": 1.0, "
     "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 8192}",
     "rope_scaling_factor is 32, but pretrain_gpt.py always scales by 8",
     "rope_scaling_factor is 32 and goes into config.json"},
    {"qwen3", ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 4}",
     "rotary_seq_len_interpolation_factor is 4, and pretrain_gpt.py scales by it only from core "
     "0.19 on",
     "rotary_seq_len_interpolation_factor is 4 and goes into config.json"},
    {"deepseek_v3",
     ", \"n_group\": 1, \"topk_group\": 1, \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 40, "
     "\"original_max_position_embeddings\": 4096, "
     "\"beta_fast\": 16}",
     "beta_fast is 16.0, and no release has a flag for it", ""},
};

static void each_trap(void **state)
{
    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(traps); i++) {
        const struct dcpk_hf_map *map;
        const struct dcpk_value *attrs;
        struct dcpk_bytes text = {0};

        fresh();
        map = built_in(traps[i].family);
        CHECK_OK(import(map, whole_config(traps[i].family, traps[i].config), "trap", &attrs),
                 traps[i].config);
        CHECK(strstr(remarks, traps[i].import) != NULL, remarks);
        CHECK((*traps[i].import == '\0') == (*remarks == '\0'), remarks);
        CHECK_OK(export(map, attrs, NULL, &text), traps[i].config);
        CHECK(strstr(remarks, traps[i].export) != NULL, remarks);
        CHECK((*traps[i].export == '\0') == (*remarks == '\0'), remarks);
        dcpk_bytes_release(&text);
    }
}

/* --- a config.json under the computed one --- */

static void base_below(void **state)
{
    static const char base[] =
        "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"bos_token_id\": "
        "5,"
        " \"x\": 1.0, \"hidden_size\": 64, \"dtype\": \"float32\", \"n_layer\": 4, \"auto_map\": "
        "{},"
        " \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 5.0}}";
    const struct dcpk_hf_map *map;
    const struct dcpk_value *attrs;
    struct dcpk_bytes text = {0};

    (void)state;
    fresh();
    map = built_in("llama");
    CHECK_OK(import(map, whole_config("llama", ""), "base", &attrs), "base");
    CHECK_OK(export(map, attrs, base, &text), "base");
    CHECK_EQ_STR(member(&text, "bos_token_id", "base"), "5", "kept");
    CHECK_EQ_STR(member(&text, "x", "base"), "1.0", "a float stays one");
    CHECK_EQ_STR(member(&text, "hidden_size", "base"), "32", "replaced");
    CHECK_EQ_STR(member(&text, "torch_dtype", "base"), "\"float32\"", "spelling of 4");
    CHECK_EQ_STR(member(&text, "dtype", "base"), "absent", "spelling of 5");
    CHECK_EQ_STR(member(&text, "n_layer", "base"), "absent", "an alias");
    CHECK_EQ_STR(member(&text, "auto_map", "base"), "absent", "programs");
    CHECK_EQ_STR(member(&text, "rope_parameters", "base"), "absent", "rope of 5");
    CHECK_EQ_STR(member(&text, "rope_theta", "base"), "10000.0", "rope of 4");
    CHECK_EQ_STR(member(&text, "rope_scaling", "base"), "null", "no scaling");
    CHECK_EQ_STR(member(&text, "vocab_size", "base"), "99", "the caller's");
    CHECK(strstr(remarks, "hidden_size is 64 in the given config.json, and args make it 32") !=
              NULL,
          remarks);
    CHECK(strstr(remarks, "rope_theta is 5.0") != NULL, remarks);
    CHECK(strstr(remarks, "auto_map is left out") != NULL, remarks);
    CHECK(strstr(remarks, "bos_token_id") == NULL, remarks);
    CHECK(text.data[text.n_bytes - 1] == '\n' && text.data[0] == '{', "a newline at the end");
    dcpk_bytes_release(&text);
}

/* --- the command line --- */

/* From megatron_side.py over the parsers of core_v0.19.0 and main. */
static const struct {
    const char *family, *config, *flags;
} lines[] = {
    {"llama", "", "\n"},
    {"qwen3", "", "--qk-layernorm --norm-epsilon 1e-06\n"},
    {"mistral", ", \"sliding_window\": 8", "--norm-epsilon 1e-06 --window-size 7,0\n"},
    {"nemotron", "", "--apply-layernorm-1p\n"},
    {"gpt2", ", \"activation_function\": \"gelu\"", "--no-bias-gelu-fusion\n"},
    {"llama",
     ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 32, \"low_freq_factor\": 1.0, "
     "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 8192}",
     "--use-rope-scaling --rope-scaling-factor 32.0\n"},
    {"gpt_oss",
     ", \"sliding_window\": 8, \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 8.0, "
     "\"original_max_position_embeddings\": 32, \"truncate\": false}",
     "--window-size 7,0 --window-attn-skip-freq 2 --softmax-type learnable --quick-geglu "
     "--activation-func-clamp-value 7.0 --glu-linear-offset 1.0 --rotary-scaling-factor 8.0 "
     "--yarn-original-max-position-embeddings 32 --yarn-beta-fast 32.0 --yarn-beta-slow 1.0 "
     "--no-yarn-correction-range-round-to-int\n"},
    {"deepseek_v3", ", \"n_group\": 4, \"topk_group\": 2, \"num_nextn_predict_layers\": 1",
     "--qk-layernorm --norm-epsilon 1e-06 --multi-latent-attention --q-lora-rank 12 "
     "--kv-lora-rank 8 --qk-head-dim 8 --qk-pos-emb-head-dim 4 --v-head-dim 6 --rope-type rope "
     "--moe-router-num-groups 4 --moe-router-group-topk 2 --moe-router-dtype fp32 "
     "--mtp-num-layers 1\n"},
    {"qwen2_moe", "", "--norm-epsilon 1e-06 --moe-shared-expert-gate\n"},
};

static void command_lines(void **state)
{
    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(lines); i++) {
        const struct dcpk_value *attrs;
        struct dcpk_bytes text = {0};

        fresh();
        CHECK_OK(import(built_in(lines[i].family), whole_config(lines[i].family, lines[i].config),
                        "flags", &attrs),
                 lines[i].family);
        CHECK_OK(dcpk_hf_flags_write(attrs, &text, &err), lines[i].family);
        dcpk_bytes_u8(&text, '\0');
        CHECK_EQ_STR((const char *)text.data, lines[i].flags, lines[i].family);
        dcpk_bytes_release(&text);
    }
}

/* --- which family, which files --- */

static void which_map(void **state)
{
    static const struct {
        const char *label, *family, *config, *found; /* or what the message has */
    } cases[] = {
        {"asked for", "qwen3", "{}", "qwen3"},
        {"asked for in vain", "qwen9", "{}", "no map of that family; there are llama"},
        {"architectures", NULL, "{\"architectures\": [\"X\", \"Qwen3ForCausalLM\"]}", "qwen3"},
        {"model_type", NULL, "{\"model_type\": \"gpt2\"}", "gpt2"},
        {"a class of another", NULL, "{\"architectures\": [1], \"model_type\": 2}",
         "are of no family"},
        {"both", NULL, "{\"architectures\": [\"GPT2LMHeadModel\"], \"model_type\": \"gpt2\"}",
         "gpt2"},
        {"both, of two families", NULL,
         "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"mistral\"}",
         "names the family 'llama', but transformers builds"},
        {"both, one of no family", NULL,
         "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"x\"}",
         "the model by 'model_type', 'x'"},
        {"both, and asked for", "llama",
         "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"x\"}", "llama"},
        {"two", NULL, "{\"architectures\": [\"LlamaForCausalLM\", \"Qwen3ForCausalLM\"]}",
         "names the families 'llama' and 'qwen3'"},
        {"none", NULL, "{}", "are of no family; there are llama"},
        {"none, with a reason", NULL, "{\"model_type\": \"kimi_linear\"}",
         "its models have Kimi Delta Attention, which Megatron core 0.19 lacks; there are llama"},
        {"of three", NULL, "{\"model_type\": \"olmo3\"}",
         "norms on the outputs of attention and MLP"},
        {"a part of a type", NULL, "{\"model_type\": \"phi\", \"architectures\": [\"Phi\"]}",
         "attention and MLP next to each other"},
        {"an empty type", NULL, "{\"model_type\": \"\"}", "of no family; there are llama"},
    };

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(cases); i++) {
        const struct dcpk_hf_map *map = NULL;
        struct dcpk_hf_maps maps;
        const struct dcpk_json *doc;

        fresh();
        CHECK_OK(dcpk_hf_maps_load(NULL, arena, &maps, &err), cases[i].label);
        doc = parse(cases[i].config, cases[i].label);
        if (dcpk_hf_config_find_map(&maps, cases[i].family, doc, &map, &err) == DCPK_OK)
            CHECK_EQ_STR(map->family, cases[i].found, cases[i].label);
        else
            CHECK(strstr(err.text, cases[i].found) != NULL, err.text);
        dcpk_json_free((struct dcpk_json *)(uintptr_t)doc);
    }
}

static void assets(void **state)
{
    static const char *const copied[] = {"generation_config.json",
                                         "tokenizer.json",
                                         "tokenizer_config.json",
                                         "tokenizer.model",
                                         "special_tokens_map.json",
                                         "added_tokens.json",
                                         "vocab.json",
                                         "merges.txt",
                                         "chat_template.jinja",
                                         "chat_template.json"};
    static const char *const left[] = {"config.json",      "modeling_x.py", "tokenizer.py",
                                       "chat_template.py", "README.md",     "../tokenizer.json",
                                       "tokenizer/x.json", "tokenizer",     "model.safetensors"};

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(copied); i++)
        CHECK(dcpk_hf_is_asset(copied[i]), copied[i]);
    for (size_t i = 0; i < DCPK_COUNT(left); i++)
        CHECK(!dcpk_hf_is_asset(left[i]), left[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_family),    cmocka_unit_test(each_refusal),
        cmocka_unit_test(usual_theta),    cmocka_unit_test(missing),
        cmocka_unit_test(ignored_groups), cmocka_unit_test(each_trap),
        cmocka_unit_test(base_below),     cmocka_unit_test(command_lines),
        cmocka_unit_test(which_map),      cmocka_unit_test(assets),
    };

    return cmocka_run_group_tests(tests, NULL, release);
}

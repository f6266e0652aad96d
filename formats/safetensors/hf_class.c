/* SPDX-License-Identifier: Apache-2.0 */
/* hf_class.c - what the classes of transformers take in config.json, and what they stop at. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/safetensors/hf_config_priv.h"
#include "formats/safetensors/hf_model.h"
#include "lib/base/order.h"
#include "lib/base/text.h"

/*
 * The fields of the configuration classes, by model_type ("": of all, "!": of all but these), and
 * the kinds of JSON values that they take (huggingface_hub.dataclasses.strict@1.x looks at each):
 * n null, b boolean, i integer, f float, s text, l list of integers, d object. Source: from_dict of
 * each class of transformers 5.23.0 with a value of each kind, which
 * tests/interop/test_huggingface.py asks again.
 */
static const struct field {
    const char *name, *kinds, *classes;
} fields[] = {
    {"activation_function", "s", "gpt2"},
    {"add_cross_attention", "b", "gpt2"},
    {"attention_bias", "b",
     "deepseek_v2 deepseek_v3 deepseek_v32 dots1 gemma2 gemma3_text glm4_moe glm_moe_dsa gpt_oss "
     "llama nemotron nemotron_h olmoe qwen3 qwen3_5_moe_text qwen3_5_text qwen3_moe qwen3_next "
     "seed_oss smollm3"},
    {"attention_dropout", "nif", "deepseek_v3 dots1 gemma2 gemma3_text llama"},
    {"attention_dropout", "if",
     "deepseek_v32 glm4_moe glm_moe_dsa gpt_oss minimax_m2 mistral mixtral nemotron nemotron_h "
     "olmoe phi3 qwen2 qwen2_moe qwen3 qwen3_5_moe_text qwen3_5_text qwen3_moe qwen3_next seed_oss "
     "smollm3 stablelm starcoder2"},
    {"attention_dropout", "nf", "deepseek_v2"},
    {"attention_out_bias", "b", "seed_oss"},
    {"attn_logit_softcapping", "nf", "gemma2 gemma3_text"},
    {"attn_pdrop", "if", "gpt2"},
    {"bos_token_id", "ni", ""},
    {"chunk_size", "i", "nemotron_h"},
    {"clip_qkv", "nf", "olmoe"},
    {"conv_kernel", "i", "nemotron_h"},
    {"decoder_sparse_step", "i", "qwen2_moe qwen3_moe qwen3_next"},
    {"embd_pdrop", "if", "gpt2 phi3"},
    {"embedding_dropout", "if", "starcoder2"},
    {"eos_token_id", "nil", ""},
    {"expand", "i", "nemotron_h"},
    {"final_logit_softcapping", "nf", "gemma2 gemma3_text"},
    {"first_k_dense_replace", "i", "deepseek_v2 deepseek_v32 glm4_moe glm_moe_dsa"},
    {"first_k_dense_replace", "ni", "deepseek_v3 dots1"},
    {"head_dim", "ni", "deepseek_v2 ernie4_5 llama mistral mixtral nemotron seed_oss"},
    {"head_dim", "i",
     "deepseek_v32 gemma2 gemma3_text glm_moe_dsa gpt_oss minimax_m2 nemotron_h qwen3 "
     "qwen3_5_moe_text qwen3_5_text qwen3_next"},
    {"hidden_act", "s", "!gemma2 gemma3_text gpt2 nemotron_h"},
    {"hidden_activation", "s", "gemma2 gemma3_text"},
    {"hidden_dropout", "if", "nemotron_h stablelm"},
    {"hidden_size", "i", "!gpt2"},
    {"index_head_dim", "i", "deepseek_v32 glm_moe_dsa"},
    {"index_n_heads", "i", "deepseek_v32 glm_moe_dsa"},
    {"index_topk", "i", "deepseek_v32 glm_moe_dsa"},
    {"indexer_types", "n?", "glm_moe_dsa"},
    {"initializer_range", "f", ""},
    {"intermediate_size", "i", "!gpt2 qwen3_5_moe_text"},
    {"kv_lora_rank", "i", "deepseek_v2 deepseek_v3 deepseek_v32 glm_moe_dsa"},
    {"layer_norm_eps", "f", "stablelm"},
    {"layer_norm_epsilon", "f", "gpt2 nemotron_h"},
    {"layers_block_type", "n?", "nemotron_h"},
    {"linear_conv_kernel_dim", "i", "qwen3_5_moe_text qwen3_5_text qwen3_next"},
    {"linear_key_head_dim", "i", "qwen3_5_moe_text qwen3_5_text qwen3_next"},
    {"linear_num_key_heads", "i", "qwen3_5_moe_text qwen3_5_text qwen3_next"},
    {"linear_num_value_heads", "i", "qwen3_5_moe_text qwen3_5_text qwen3_next"},
    {"linear_value_head_dim", "i", "qwen3_5_moe_text qwen3_5_text qwen3_next"},
    {"mamba_head_dim", "i", "nemotron_h"},
    {"mamba_hidden_act", "s", "nemotron_h"},
    {"mamba_num_heads", "i", "nemotron_h"},
    {"mamba_proj_bias", "b", "nemotron_h"},
    {"mamba_ssm_cache_dtype", "s", "nemotron_h"},
    {"max_position_embeddings", "i", "!gpt2"},
    {"max_window_layers", "i", "qwen2 qwen2_moe qwen3"},
    {"max_window_layers", "ni", "dots1"},
    {"mlp_bias", "b",
     "deepseek_v2 deepseek_v32 glm_moe_dsa llama nemotron nemotron_h seed_oss smollm3"},
    {"mlp_hidden_act", "s", "nemotron_h"},
    {"mlp_layer_types", "n?", "deepseek_v32 glm_moe_dsa"},
    {"mlp_only_layers", "nl", "qwen2_moe qwen3_moe qwen3_next"},
    {"moe_intermediate_size", "i",
     "deepseek_v2 deepseek_v3 deepseek_v32 dots1 glm4_moe glm_moe_dsa nemotron_h qwen2_moe "
     "qwen3_5_moe_text qwen3_moe qwen3_next"},
    {"moe_latent_size", "ni", "nemotron_h"},
    {"moe_shared_expert_intermediate_size", "i", "nemotron_h"},
    {"moe_shared_expert_overlap", "b", "nemotron_h"},
    {"mtp_layers_block_type", "n?", "nemotron_h"},
    {"n_embd", "i", "gpt2"},
    {"n_group", "i", "deepseek_v32 glm4_moe glm_moe_dsa nemotron_h"},
    {"n_group", "ni", "deepseek_v2 deepseek_v3 dots1"},
    {"n_groups", "i", "nemotron_h"},
    {"n_head", "i", "gpt2"},
    {"n_inner", "ni", "gpt2"},
    {"n_layer", "i", "gpt2"},
    {"n_positions", "i", "gpt2"},
    {"n_routed_experts", "i",
     "deepseek_v2 deepseek_v3 deepseek_v32 glm4_moe glm_moe_dsa nemotron_h"},
    {"n_routed_experts", "ni", "dots1"},
    {"n_shared_experts", "i",
     "deepseek_v2 deepseek_v3 deepseek_v32 glm4_moe glm_moe_dsa nemotron_h"},
    {"n_shared_experts", "ni", "dots1"},
    {"no_rope_layer_interval", "i", "smollm3"},
    {"no_rope_layers", "nl", "smollm3"},
    {"norm_eps", "f", "nemotron"},
    {"norm_epsilon", "f", "starcoder2"},
    {"norm_topk_prob", "b",
     "deepseek_v32 glm4_moe glm_moe_dsa nemotron_h olmoe qwen2_moe qwen3_moe qwen3_next"},
    {"norm_topk_prob", "nb", "deepseek_v2 deepseek_v3 dots1"},
    {"num_attention_heads", "i", "!gpt2"},
    {"num_experts", "i", "olmoe qwen2_moe qwen3_5_moe_text qwen3_moe qwen3_next"},
    {"num_experts_per_tok", "i",
     "deepseek_v32 glm4_moe glm_moe_dsa gpt_oss minimax_m2 mixtral nemotron_h olmoe qwen2_moe "
     "qwen3_5_moe_text qwen3_moe qwen3_next"},
    {"num_experts_per_tok", "ni", "deepseek_v2 deepseek_v3 dots1"},
    {"num_hidden_layers", "i", "!gpt2 nemotron_h"},
    {"num_key_value_heads", "ni",
     "deepseek_v2 deepseek_v3 dots1 ernie4_5 llama nemotron olmoe phi3 qwen2 qwen3 seed_oss "
     "smollm3"},
    {"num_key_value_heads", "i",
     "deepseek_v32 gemma2 gemma3_text glm4_moe glm_moe_dsa gpt_oss minimax_m2 mistral mixtral "
     "nemotron_h qwen2_moe qwen3_5_moe_text qwen3_5_text qwen3_moe qwen3_next stablelm starcoder2"},
    {"num_local_experts", "i", "gpt_oss minimax_m2 mixtral"},
    {"num_logits_to_keep", "i", "nemotron_h"},
    {"num_mtp_layers", "i", "deepseek_v3 glm4_moe"},
    {"num_nextn_predict_layers", "i", "nemotron_h"},
    {"original_max_position_embeddings", "i", "phi3"},
    {"output_router_logits", "b",
     "deepseek_v2 deepseek_v3 deepseek_v32 dots1 glm4_moe glm_moe_dsa gpt_oss minimax_m2 mixtral "
     "nemotron_h olmoe qwen2_moe qwen3_5_moe_text qwen3_moe qwen3_next"},
    {"pad_token_id", "ni", ""},
    {"pretraining_tp", "ni", "deepseek_v2 deepseek_v3 llama"},
    {"pretraining_tp", "i", "seed_oss"},
    {"q_lora_rank", "ni", "deepseek_v2 deepseek_v3"},
    {"q_lora_rank", "i", "deepseek_v32 glm_moe_dsa"},
    {"qk_layernorm", "b", "stablelm"},
    {"qk_nope_head_dim", "i", "deepseek_v2 deepseek_v3 deepseek_v32 glm_moe_dsa"},
    {"qk_rope_head_dim", "i", "deepseek_v2 deepseek_v3 deepseek_v32 glm_moe_dsa"},
    {"qkv_bias", "b", "qwen2_moe"},
    {"query_pre_attn_scalar", "i", "gemma2 gemma3_text"},
    {"reorder_and_upcast_attn", "b", "gpt2"},
    {"rescale_prenorm_residual", "b", "nemotron_h"},
    {"resid_pdrop", "if", "gpt2 phi3"},
    {"residual_dropout", "if", "seed_oss starcoder2"},
    {"residual_in_fp32", "b", "nemotron_h"},
    {"rms_norm_eps", "f", "!gpt2 nemotron nemotron_h stablelm starcoder2"},
    {"rope_interleave", "nb", "deepseek_v3"},
    {"rope_parameters", "nd", "!gpt2 nemotron_h"},
    {"routed_scaling_factor", "f",
     "deepseek_v2 deepseek_v3 deepseek_v32 dots1 glm4_moe glm_moe_dsa"},
    {"routed_scaling_factor", "if", "nemotron_h"},
    {"router_aux_loss_coef", "f",
     "gpt_oss minimax_m2 mixtral olmoe qwen2_moe qwen3_5_moe_text qwen3_moe qwen3_next"},
    {"router_jitter_noise", "f", "minimax_m2 mixtral"},
    {"scale_attn_by_inverse_layer_idx", "b", "gpt2"},
    {"scale_attn_weights", "b", "gpt2"},
    {"shared_expert_intermediate_size", "i", "qwen2_moe qwen3_5_moe_text qwen3_next"},
    {"sliding_window", "ni",
     "dots1 gemma2 gemma3_text gpt_oss mistral mixtral nemotron_h phi3 qwen2 qwen2_moe qwen3 "
     "qwen3_moe smollm3 starcoder2"},
    {"ssm_state_size", "i", "nemotron_h"},
    {"summary_activation", "ns", "gpt2"},
    {"summary_first_dropout", "if", "gpt2"},
    {"summary_proj_to_labels", "b", "gpt2"},
    {"summary_type", "s", "gpt2"},
    {"summary_use_proj", "b", "gpt2"},
    {"swiglu_alpha", "f", "gpt_oss"},
    {"swiglu_limit", "f", "gpt_oss"},
    {"tie_word_embeddings", "b", ""},
    {"time_step_floor", "f", "nemotron_h"},
    {"time_step_limit", "?", "nemotron_h"},
    {"time_step_max", "f", "nemotron_h"},
    {"time_step_min", "f", "nemotron_h"},
    {"topk_group", "i", "deepseek_v32 glm4_moe glm_moe_dsa nemotron_h"},
    {"topk_group", "ni", "deepseek_v2 deepseek_v3 dots1"},
    {"topk_method", "ns", "deepseek_v2"},
    {"use_bias", "b", "nemotron_h starcoder2"},
    {"use_bias", "nb", "ernie4_5"},
    {"use_bidirectional_attention", "nb", "gemma2 gemma3_text"},
    {"use_cache", "b", "!ernie4_5"},
    {"use_cache", "nb", "ernie4_5"},
    {"use_conv_bias", "b", "nemotron_h"},
    {"use_mamba_kernels", "b", "nemotron_h"},
    {"use_parallel_residual", "b", "stablelm"},
    {"use_qk_norm", "b", "glm4_moe"},
    {"use_qkv_bias", "b", "stablelm"},
    {"use_sliding_window", "b", "qwen2 qwen2_moe qwen3 qwen3_moe smollm3"},
    {"v_head_dim", "i", "deepseek_v2 deepseek_v32 glm_moe_dsa"},
    {"v_head_dim", "ni", "deepseek_v3"},
    {"vocab_size", "i", ""},
};

/* The class of a config.json. */
struct reading {
    const struct dcpk_value *config; /* DICT */
    const char *type;                /* model_type */
    struct dcpk_arena *arena;
    struct dcpk_hf_faults faults;
};

/* True if the word is one of those in the list, which blanks separate. */
static bool list_has(const char *list, const char *word)
{
    const size_t n = strlen(word);

    for (const char *at = list; (at = strstr(at, word)) != NULL; at += n)
        if ((at == list || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0'))
            return true;
    return false;
}

static bool field_is_of(const struct field *field, const char *type)
{
    if (field->classes[0] == '!')
        return !list_has(field->classes + 1, type);
    return field->classes[0] == '\0' || list_has(field->classes, type);
}

static bool is_known(const char *type)
{
    for (size_t i = 0; i < DCPK_COUNT(fields); i++)
        if (fields[i].classes[0] != '!' && list_has(fields[i].classes, type))
            return true;
    return false;
}

static char hf_kind_of(const struct dcpk_value *value)
{
    static const char kinds[] = {
        [DCPK_V_NONE] = 'n', [DCPK_V_BOOL] = 'b',  [DCPK_V_INT] = 'i',  [DCPK_V_BIGINT] = 'i',
        [DCPK_V_STR] = 's',  [DCPK_V_FLOAT] = 'f', [DCPK_V_DICT] = 'd', [DCPK_V_LIST] = 'l'};

    for (size_t i = 0; value->kind == DCPK_V_LIST && i < value->n; i++)
        if (value->as.items[i]->kind != DCPK_V_INT)
            return '?';
    if (value->kind >= sizeof kinds || kinds[value->kind] == '\0')
        return '?';
    return kinds[value->kind];
}

/* "null or int" */
static const char *kinds_text(const char *kinds, char text[64])
{
    static const struct {
        char kind;
        const char *name;
    } names[] = {{'n', "null"}, {'b', "true or false"}, {'i', "int"},    {'f', "float"},
                 {'s', "text"}, {'l', "list of ints"},  {'d', "object"}, {'?', "another list"}};
    size_t n = 0;

    text[0] = '\0';
    for (; *kinds != '\0'; kinds++)
        for (size_t i = 0; i < DCPK_COUNT(names); i++)
            if (names[i].kind == *kinds)
                n += (size_t)snprintf(text + n, 64 - n, "%s%s", dcpk_joint(n > 0, " or "),
                                      names[i].name);
    return text;
}

static void check_kinds(struct reading *r)
{
    char text[64];

    for (size_t i = 0; i < DCPK_COUNT(fields); i++) {
        const struct dcpk_value *value = dcpk_value_get(r->config, fields[i].name);

        if (value != NULL && field_is_of(&fields[i], r->type) &&
            strchr(fields[i].kinds, hf_kind_of(value)) == NULL)
            dcpk_hf_fault(&r->faults, DCPK_EMISMATCH, "'%s' is %s, not %s", fields[i].name,
                          dcpk_hf_show(r->arena, value), kinds_text(fields[i].kinds, text));
    }
}

/* torch has an attribute of that name (PreTrainedConfig.__post_init__): "float32". */
static void check_dtype(struct reading *r)
{
    static const char *const names[] = {"torch_dtype", "dtype"};

    for (size_t i = 0; i < DCPK_COUNT(names); i++) {
        const struct dcpk_value *value = dcpk_value_get(r->config, names[i]);
        const char *text = dcpk_value_as_str(value);

        if (text != NULL && dcpk_starts_with(text, "torch."))
            dcpk_hf_fault(&r->faults, DCPK_EMISMATCH,
                          "'%s' is \"%.40s\", which torch has no attribute for: write \"%.30s\"",
                          names[i], text, text + strlen("torch."));
    }
}

/* A whole number among the keys; `by_default` where it is absent or null. */
static int64_t number_at(const struct reading *r, const char *key, int64_t by_default)
{
    int64_t n = by_default;

    (void)dcpk_value_as_int(dcpk_value_get(r->config, key), &n);
    return n;
}

/* validate_architecture of the configuration, and __init__ of GPT2Attention. */
static void check_class_heads(struct reading *r)
{
    static const struct {
        const char *classes, *size, *heads;
    } rows[] = {{"llama gemma2 deepseek_v2 stablelm", "hidden_size", "num_attention_heads"},
                {"gpt2", "n_embd", "n_head"}};

    for (size_t i = 0; i < DCPK_COUNT(rows); i++) {
        const int64_t n = number_at(r, rows[i].size, 0), heads = number_at(r, rows[i].heads, 1);

        if (list_has(rows[i].classes, r->type) && heads > 0 && n % heads != 0)
            dcpk_hf_fault(&r->faults, DCPK_EMISMATCH,
                          "'%s' %" PRId64 " is not a multiple of '%s' %" PRId64
                          ", which the class asks for",
                          rows[i].size, n, rows[i].heads, heads);
    }
}

/* torch.nn.Embedding(padding_idx=...). Two classes have their own where it is absent. */
static void check_padding(struct reading *r)
{
    const bool is_absent = dcpk_value_get(r->config, "pad_token_id") == NULL;
    const int64_t n_rows = number_at(r, "vocab_size", 0);
    int64_t row = number_at(r, "pad_token_id", 0);

    if (is_absent && strcmp(r->type, "phi3") == 0)
        row = 32000;
    if (is_absent && strcmp(r->type, "smollm3") == 0)
        row = 128004;
    if (strcmp(r->type, "gpt2") != 0 && n_rows > 0 && (row >= n_rows || row < -n_rows))
        dcpk_hf_fault(&r->faults, DCPK_EMISMATCH,
                      "'pad_token_id' is %" PRId64 ", past the vocabulary of %" PRId64, row,
                      n_rows);
}

/* Channels of a head are turned in pairs. A part of a head is rounded (validate_rope). */
static void check_rotary(struct reading *r)
{
    const struct dcpk_value *rope = dcpk_value_get(r->config, "rope_parameters");
    const char *key = "head_dim";
    const int64_t heads = number_at(r, "num_attention_heads", 1);
    double share = 1;
    int64_t n = 0;

    if (list_has("deepseek_v2 deepseek_v3 deepseek_v32 glm_moe_dsa", r->type))
        key = "qk_rope_head_dim";
    if (list_has("nemotron glm4_moe qwen3_next qwen3_5_text qwen3_5_moe_text stablelm", r->type))
        share = 0.5;
    if (heads > 0)
        n = number_at(r, key, number_at(r, "hidden_size", 0) / heads);
    (void)dcpk_value_as_float(dcpk_value_get(rope, "partial_rotary_factor"), &share);
    (void)dcpk_value_as_float(dcpk_value_get(r->config, "partial_rotary_factor"), &share);
    if (strcmp(r->type, "gpt2") != 0 && share == 1 && n > 1 && n % 2 != 0)
        dcpk_hf_fault(&r->faults, DCPK_EMISMATCH,
                      "a head of %" PRId64 " channels is odd, and rope turns pairs of them", n);
}

static void check_interval(struct reading *r)
{
    const struct dcpk_value *value = dcpk_value_get(r->config, "initializer_range");
    double range;

    if (strcmp(r->type, "llama") == 0 && dcpk_value_as_float(value, &range) &&
        !(range >= 0 && range <= 1))
        dcpk_hf_fault(&r->faults, DCPK_EMISMATCH, "'initializer_range' is %s, not from 0 to 1",
                      dcpk_hf_show(r->arena, value));
}

/* Adds all that stops the class. A family of the user's own maps has no known class. */
static void check_class(struct reading *r)
{
    const struct dcpk_value *type = dcpk_value_get(r->config, "model_type");

    r->type = dcpk_value_as_str(type);
    if (r->type == NULL) {
        dcpk_hf_fault(&r->faults, DCPK_EMISMATCH,
                      "'model_type' is %s, by which transformers finds the class",
                      dcpk_hf_show(r->arena, type));
        return;
    }
    check_dtype(r);
    if (!is_known(r->type))
        return;
    check_kinds(r);
    check_interval(r);
    check_class_heads(r);
    check_padding(r);
    check_rotary(r);
}

dcpk_status dcpk_hf_class_takes(const struct dcpk_value *config, struct dcpk_arena *arena,
                                struct dcpk_error *err)
{
    struct reading r = {.config = config, .arena = arena};

    check_class(&r);
    return dcpk_hf_faults_end(&r.faults, err);
}

dcpk_status dcpk_hf_class_check(struct dcpk_checkpoint *ckpt, const char **found,
                                struct dcpk_error *err)
{
    struct dcpk_arena *arena = dcpk_arena_new();
    const struct dcpk_value *config = NULL;

    if (dcpk_hf_load_config(ckpt, arena, &config, err) == DCPK_OK && config != NULL) {
        if (dcpk_hf_class_takes(config, arena, err) != DCPK_OK)
            dcpk_context(err, "transformers 5.23 stops at config.json");
        else if (is_known(dcpk_value_as_str(dcpk_value_get(config, "model_type"))))
            *found = "its class accepts config.json";
    }
    dcpk_arena_free(arena);
    return err->status;
}

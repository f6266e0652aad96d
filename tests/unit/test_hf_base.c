/* SPDX-License-Identifier: Apache-2.0 */
/* test_hf_base.c - a config.json that is laid under the one that args give: that of the model
 * itself always fits, and one of another model is refused. */
#include "tests/unit/hf_config_case.h"
#include "tests/unit/hf_models.h"

static const struct dcpk_hf_map *built_in(const char *family)
{
    struct dcpk_hf_maps maps;

    CHECK_OK(dcpk_hf_maps_load(NULL, arena, &maps, &err), family);
    return dcpk_hf_maps_find(&maps, family);
}

static const char *config_of(const char *family)
{
    static char config[4096];

    for (size_t i = 0; i < DCPK_COUNT(model_cases); i++)
        if (strcmp(model_cases[i].family, family) == 0) {
            (void)snprintf(config, sizeof config, "{%s", model_cases[i].config);
            return config;
        }
    return "";
}

/* The args of a family's small model. */
static const struct dcpk_value *args_of(const struct dcpk_hf_map *map, const char *label)
{
    const struct dcpk_value *attrs;
    char config[4096];

    (void)snprintf(config, sizeof config, "%s}", config_of(map->family));
    CHECK_OK(import(map, config, label, &attrs), label);
    return attrs;
}

/* The small model's own config.json laid under it, with further keys, or another (with a brace). */
static dcpk_status lay_under(const struct dcpk_hf_map *map, const struct dcpk_value *attrs,
                             const char *more, struct dcpk_bytes *text)
{
    char base[8192];

    if (*more == '{')
        return export(map, attrs, more, text);
    (void)snprintf(base, sizeof base, "%s%s}", config_of(map->family), more);
    return export(map, attrs, base, text);
}

/* What config.json files of published models have besides what the maps name: those of transformers
 * 4 and 5. */
static const struct {
    const char *family, *more;
} published[] = {
    {"llama", ", \"attention_bias\": false, \"mlp_bias\": false, \"pretraining_tp\": 1, "
              "\"use_cache\": true, \"bos_token_id\": 128000"},
    {"llama", ", \"layer_types\": null, \"attention_dropout\": 0.0"},
    {"mistral", ", \"layer_types\": [\"sliding_attention\", \"sliding_attention\", "
                "\"sliding_attention\"]"},
    {"phi3", ", \"original_max_position_embeddings\": 4096, \"rope_scaling\": null, "
             "\"auto_map\": {\"AutoConfig\": \"x\"}, \"embd_pdrop\": 0.0, \"resid_pdrop\": 0.0, "
             "\"attention_bias\": false"},
    {"qwen2", ", \"use_sliding_window\": false, \"sliding_window\": 131072, "
              "\"max_window_layers\": 28, \"attention_dropout\": 0.0"},
    {"qwen2", ", \"layer_types\": [\"full_attention\", \"full_attention\", \"full_attention\"], "
              "\"sliding_window\": null"},
    {"qwen3", ", \"max_window_layers\": 36, \"sliding_window\": null, "
              "\"use_sliding_window\": false, \"attention_bias\": false"},
    {"qwen3", ", \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 1000000, "
              "\"partial_rotary_factor\": 1.0}"},
    {"mixtral", ", \"output_router_logits\": false, \"router_aux_loss_coef\": 0.02, "
                "\"router_jitter_noise\": 0.0"},
    {"qwen2_moe", ", \"decoder_sparse_step\": 1, \"qkv_bias\": true, \"max_window_layers\": 21, "
                  "\"use_sliding_window\": false, \"sliding_window\": 32768, "
                  "\"output_router_logits\": false"},
    {"qwen3_moe", ", \"decoder_sparse_step\": 1, \"mlp_only_layers\": [], "
                  "\"max_window_layers\": 48, \"use_sliding_window\": false"},
    {"deepseek_v2", ", \"aux_loss_alpha\": 0.001, \"ep_size\": 1, \"moe_layer_freq\": 1, "
                    "\"num_key_value_heads\": 4, \"seq_aux\": true, \"pretraining_tp\": 1"},
    {"deepseek_v3", ", \"ep_size\": 1, \"moe_layer_freq\": 1, \"num_key_value_heads\": 4, "
                    "\"topk_method\": \"noaux_tc\", \"scoring_func\": \"sigmoid\", "
                    "\"norm_topk_prob\": true, \"head_dim\": 2, \"rope_interleave\": true, "
                    "\"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": "
                    "[128, 128]}"},
    {"glm4_moe", ", \"norm_topk_prob\": true, \"partial_rotary_factor\": 0.5, "
                 "\"rope_scaling\": null"},
    {"glm4_moe", ", \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 1e4, "
                 "\"partial_rotary_factor\": 0.5}"},
    {"gpt_oss", ", \"layer_types\": [\"sliding_attention\", \"full_attention\", "
                "\"sliding_attention\"], \"initial_context_length\": 4096, "
                "\"experts_per_token\": 2, \"swiglu_limit\": 7.0, \"attention_bias\": true, "
                "\"quantization_config\": {\"quant_method\": \"mxfp4\"}"},
    {"gpt2", ", \"n_ctx\": 9, \"attn_pdrop\": 0.1, \"embd_pdrop\": 0.1, \"resid_pdrop\": 0.1, "
             "\"summary_type\": \"cls_index\", \"scale_attn_weights\": true"},
    {"nemotron", ", \"norm_eps\": 1e-05, \"attention_bias\": false, \"mlp_bias\": false"},
    {"gemma2", ", \"hidden_act\": \"gelu_pytorch_tanh\", \"cache_implementation\": \"hybrid\", "
               "\"layer_types\": [\"sliding_attention\", \"full_attention\", "
               "\"sliding_attention\"]"},
};

static void check_fits(const char *family, const char *more)
{
    struct dcpk_bytes text = {0};
    const struct dcpk_hf_map *map;
    const struct dcpk_value *attrs;
    char label[600];

    fresh();
    (void)snprintf(label, sizeof label, "%s%s", family, more);
    map = built_in(family);
    CHECK(map != NULL, label);
    attrs = args_of(map, label);
    CHECK_OK(lay_under(map, attrs, more, &text), label);
    CHECK(strstr(remarks, "args make it") == NULL || strstr(remarks, "vocab_size") != NULL,
          remarks);
    dcpk_bytes_release(&text);
}

static void own_config_fits(void **state)
{
    struct dcpk_hf_maps maps;

    (void)state;
    fresh();
    CHECK_OK(dcpk_hf_maps_load(NULL, arena, &maps, &err), "maps");
    CHECK_EQ_INT(maps.n, 30, "families");
    for (size_t i = 0; i < DCPK_COUNT(model_cases); i++)
        check_fits(model_cases[i].family, "");
    for (size_t i = 0; i < DCPK_COUNT(published); i++)
        check_fits(published[i].family, published[i].more);
}

/* What no arg of the family's has, and what would be another model. */
static const struct {
    const char *label, *family, *more, *says;
} refused[] = {
    {"a share of the head", "qwen3", ", \"partial_rotary_factor\": 0.5",
     "'partial_rotary_factor' is 0.5, which Megatron has no args for; family 'qwen3' has 1"},
    {"a share of the head, as transformers 5 has it", "qwen3",
     ", \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 1000000, "
     "\"partial_rotary_factor\": 0.5}",
     "'partial_rotary_factor' is 0.5"},
    {"a share of the head, in rope_scaling", "mistral",
     ", \"rope_scaling\": {\"rope_type\": \"default\", \"partial_rotary_factor\": 0.25}",
     "'partial_rotary_factor' is 0.25"},
    {"a window", "qwen3",
     ", \"sliding_window\": 16, \"layer_types\": [\"sliding_attention\", \"full_attention\", "
     "\"full_attention\"]",
     "'layer_types' has \"sliding_attention\" in layer 0"},
    {"layers without the window", "mistral",
     ", \"layer_types\": [\"sliding_attention\", \"full_attention\", \"full_attention\"]",
     "'layer_types' has \"full_attention\" in layer 1"},
    {"rows of rope in another order", "deepseek_v3", ", \"rope_interleave\": false",
     "'rope_interleave' is false"},
    {"no biases of q, k, v", "qwen2", ", \"qkv_bias\": false", "'qkv_bias' is false"},
};

static void another_model_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(refused); i++) {
        const char *label = refused[i].label;
        struct dcpk_bytes text = {0};
        const struct dcpk_hf_map *map;
        const struct dcpk_value *attrs;

        fresh();
        map = built_in(refused[i].family);
        attrs = args_of(map, label);
        CHECK(lay_under(map, attrs, refused[i].more, &text) != DCPK_OK, label);
        CHECK(strstr(err.text, refused[i].says) != NULL, err.text);
        CHECK_EQ_INT(text.n_bytes, 0, label);
        dcpk_bytes_release(&text);
    }
}

/* What has another spelling in what is written, or does not count any more, goes. */
static const struct {
    const char *label, *family, *more, *key, *value, *remark;
} left[] = {
    {"a share of 1 at the top", "qwen3",
     ", \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 1000000, "
     "\"partial_rotary_factor\": 1.0}",
     "partial_rotary_factor", "1.0", NULL},
    {"another length before scaling", "llama", "{\"original_max_position_embeddings\": 64}",
     "original_max_position_embeddings", "absent",
     "original_max_position_embeddings is left out: args make another rope_scaling"},
    {"a length before no scaling", "phi3", ", \"original_max_position_embeddings\": 64",
     "original_max_position_embeddings", "64", NULL},
    {"layers of another number", "qwen3", ", \"layer_types\": [\"sliding_attention\"]",
     "layer_types", "absent", "layer_types is left out"},
    {"another name of the experts", "qwen3_moe", ", \"num_local_experts\": 8", "num_local_experts",
     "absent", NULL},
};

static void stale_keys_go(void **state)
{
    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(left); i++) {
        const char *label = left[i].label;
        struct dcpk_bytes text = {0};
        const struct dcpk_hf_map *map;
        const struct dcpk_value *attrs;

        fresh();
        map = built_in(left[i].family);
        attrs = args_of(map, label);
        CHECK_OK(lay_under(map, attrs, left[i].more, &text), label);
        CHECK_EQ_STR(member(&text, left[i].key, label), left[i].value, label);
        CHECK(left[i].remark == NULL || strstr(remarks, left[i].remark) != NULL, remarks);
        dcpk_bytes_release(&text);
    }
}

/* A base of rope that would not be read is not written either. */
static void theta_of_args(void **state)
{
    struct dcpk_bytes text = {0};
    const struct dcpk_hf_map *map;
    const struct dcpk_json *doc;

    (void)state;
    fresh();
    map = built_in("llama");
    doc = parse("{\"rotary_base\": 0.5}", "theta");
    CHECK(export(map, dcpk_hf_value(arena, doc, &err), NULL, &text) != DCPK_OK, "theta");
    CHECK(strstr(err.text, "rotary_base is 0.5, not a number from 1 to 1e+15") != NULL, err.text);
    dcpk_json_free((struct dcpk_json *)(uintptr_t)doc);
    dcpk_bytes_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_config_fits),
        cmocka_unit_test(another_model_is_refused),
        cmocka_unit_test(stale_keys_go),
        cmocka_unit_test(theta_of_args),
    };

    return cmocka_run_group_tests(tests, NULL, release);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* test_hf_refused.c - folders whose tensors are not those of their config.json: all that is wrong
 * is named. */
#include <stdio.h>

#include "formats/safetensors/hf_model.h"
#include "lib/base/order.h"
#include "tests/check.h"
#include "tests/hf_folder.h"

/* A layer with two experts, of a family with scales. */
static const char config_text[] =
    "{\"architectures\": [\"Qwen3MoeForCausalLM\"], \"hidden_size\": 4, \"num_hidden_layers\": 1,"
    " \"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"intermediate_size\": 6,"
    " \"max_position_embeddings\": 8, \"rope_theta\": 10000.0, \"num_experts\": 2,"
    " \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 3, \"norm_topk_prob\": true,"
    " \"vocab_size\": 5, \"quantization_config\": {\"quant_method\": \"fp8\", "
    "\"weight_block_size\": [2, 2]}}";

#define L       "model.layers.0."
#define E(e)    L "mlp.experts." #e
#define MLP(e)  E(e) ".gate_proj.weight F32 3,4\n" E(e) ".up_proj.weight F32 3,4\n"
#define DOWN(e) E(e) ".down_proj.weight F32 4,3\n"

static const char tensor_lines[] =
    "model.embed_tokens.weight F32 5,4 1\nlm_head.weight F32 5,4 2\nmodel.norm.weight F32 4\n" /**/
    L "input_layernorm.weight F32 4\n" L "self_attn.q_proj.weight F32 4,4\n"                   /**/
    L "self_attn.k_proj.weight F32 2,4\n" L "self_attn.v_proj.weight F32 2,4\n"                /**/
    L "self_attn.o_proj.weight F8_E4M3 4,4\n" L "self_attn.o_proj.weight_scale_inv F32 2,2\n" L
    "self_attn.q_norm.weight F32 2\n"                                               /**/
    L "self_attn.k_norm.weight F32 2\n" L "post_attention_layernorm.weight F32 4\n" /**/
    L "mlp.gate.weight F32 2,4\n" MLP(0) DOWN(0) MLP(1) DOWN(1);

/* One change, of config.json or of the tensors, and what the message has; `&` stands between parts
 * of it. names NULL: it is taken. */
static const struct {
    const char *label, *was, *is, *names;
} cases[] = {
    {"as it is", "", "", NULL},
    {"a tensor that every model computes", "lm_head", L "rotary_emb.inv_freq F32 2\nlm_head", NULL},
    {"one of bytes", "lm_head", L "rotary_emb.inv_freq U8 2\nlm_head", NULL},
    {"one of bytes with scales", "lm_head",
     L "rotary_emb.inv_freq F8_E4M3 2,2\n" L "rotary_emb.inv_freq_scale_inv F32 1,1\nlm_head",
     NULL},
    {"a part of an expert", E(1) ".up_proj.weight F32 3,4\n", "",
     "in 1 places&'" E(1) ".up_proj.weight' is missing, a part of "
                          "'decoder.layers.0.mlp.experts.linear_fc1.weight1'"},
    {"an expert", MLP(1) DOWN(1), "",
     "in 2 places&'" E(1) ".gate_proj.weight' is missing, it holds&'" E(1) ".down_proj.weight'"},
    {"an expert too many", MLP(1), MLP(1) MLP(2),
     "in 2 places&no rule takes '" E(2) ".gate_proj.weight'&'" E(2) ".up_proj.weight'"},
    {"experts by both forms", MLP(0), MLP(0) L "mlp.experts.gate_up_proj F32 2,6,4\n",
     "'" E(0) ".gate_proj.weight' and '" L "mlp.experts.gate_up_proj' both hold "
              "'decoder.layers.0.mlp.experts.linear_fc1.weight0'&linear_fc1.weight1'"},
    {"experts in one tensor", MLP(0) DOWN(0) MLP(1) DOWN(1),
     L "mlp.experts.gate_up_proj F32 2,6,4\n" L "mlp.experts.down_proj F32 2,4,3\n", NULL},
    {"of another number", MLP(0) DOWN(0) MLP(1) DOWN(1),
     L "mlp.experts.gate_up_proj F32 3,6,4\n" L "mlp.experts.down_proj F32 2,4,3\n",
     "in 1 places&'" L "mlp.experts.gate_up_proj': it is not of 2 experts"},
    {"more experts in config.json", "\"num_experts\": 2", "\"num_experts\": 3",
     "'model.layers.0.mlp.experts.2.gate_proj.weight' is missing"},
    {"one expert a token, of all of the weight", "_tok\": 2", "_tok\": 1",
     "'num_experts_per_tok' is 1: family 'qwen3_moe' gives the expert all of the weight"},
    {"one expert a token, of its probability",
     "_tok\": 2, \"moe_intermediate_size\": 3, \"norm_topk_prob\": true",
     "_tok\": 1, \"moe_intermediate_size\": 3, \"norm_topk_prob\": false", NULL},
    {"no experts in config.json", "\"num_experts\": 2", "\"num_experts\": 0", "num_experts"},
    {"more heads in config.json", "\"num_key_value_heads\": 1", "\"num_key_value_heads\": 2",
     "'" L "self_attn.q_proj.weight': part 2 has 2 rows, 4 are asked for"},
    {"more layers in config.json", "\"num_hidden_layers\": 1", "\"num_hidden_layers\": 2",
     "'model.layers.1.input_layernorm.weight' is missing&"
     "'model.layers.1.mlp.experts.1.down_proj.weight' is missing"},
    {"parts of two dtypes", E(0) ".up_proj.weight F32", E(0) ".up_proj.weight BF16",
     "'" E(0) ".gate_proj.weight': its part 'mlp.experts.{e}.up_proj.weight' is bfloat16, and "
              "'mlp.experts.{e}.gate_proj.weight' float32: Megatron has one tensor for both"},
    {"parts of two widths", E(0) ".up_proj.weight F32 3,4", E(0) ".up_proj.weight F32 3,5",
     "'" E(0) ".gate_proj.weight': its part 'mlp.experts.{e}.up_proj.weight' has the shape [3, 5], "
              "which does not fit [3, 4] of"},
    {"a name of no family", "model.norm.weight", "model.last_norm.weight",
     "in 2 places&'model.norm.weight' is missing, it holds 'decoder.final_layernorm.weight'&"
     "no rule takes 'model.last_norm.weight'"},
    {"a tied model whose output layer is another", "\"vocab_size\": 5",
     "\"vocab_size\": 5, \"tie_word_embeddings\": true", "'lm_head.weight'&tied"},
    {"fp8 without scales", "q_proj.weight F32 4,4", "q_proj.weight F8_E4M3 4,4",
     "'" L "self_attn.q_proj.weight' is float8_e4m3fn without its scales"},
    {"fp8", "q_proj.weight F32 4,4",
     "q_proj.weight F8_E4M3 4,4\n" L "self_attn.q_proj.weight_scale_inv F32 2,2", NULL},
    {"scales of other blocks", "q_proj.weight F32 4,4",
     "q_proj.weight F8_E4M3 4,4\n" L "self_attn.q_proj.weight_scale_inv F32 4,1",
     "'" L "self_attn.q_proj.weight_scale_inv'&for each block"},
    {"scales without weights", "q_proj.weight F32 4,4",
     "q_proj.weight F32 4,4\n" L "self_attn.x_proj.weight_scale_inv F32 2,2",
     "'" L "self_attn.x_proj.weight_scale_inv' scales '" L "self_attn.x_proj.weight', which is "
     "missing"},
    {"scales of what needs none", "q_proj.weight F32 4,4",
     "q_proj.weight F32 4,4\n" L "self_attn.q_proj.weight_scale_inv F32 2,2",
     "a scale is for values of float8_e4m3fn"},
    {"scales without the size of blocks", "\"weight_block_size\": [2, 2]", "\"x\": 0",
     "config.json does not have the size of the blocks"},
    {"a kind of rope that Megatron lacks", "\"rope_theta\": 10000.0",
     "\"rope_theta\": 10000.0, \"rope_scaling\": {\"rope_type\": \"longrope\"}",
     "rope kind 'longrope' has no args in Megatron; family 'qwen3_moe' has default"},
    {"two families", "[\"Qwen3MoeForCausalLM\"]", "[\"Qwen3MoeForCausalLM\", \"LlamaForCausalLM\"]",
     "names the families&'llama'&'qwen3_moe'"},
    {"no family", "Qwen3MoeForCausalLM", "QwenForCausalLM", "are of no family; there are llama"},
    {"more tokens in config.json", "\"vocab_size\": 5", "\"vocab_size\": 6", "6&5"},
};

/* The text with the change in it, where it has the place for it. Owned by the caller. */
static char *changed(const char *text, const char *was, const char *is)
{
    const char *at = strstr(text, was);
    struct dcpk_bytes copy = {0};
    char *made;

    if (at == NULL)
        at = text + strlen(text);
    dcpk_bytes_printf(&copy, "%.*s%s%s", (int)(at - text), text, *at == '\0' ? "" : is,
                      *at == '\0' ? "" : at + strlen(was));
    made = strndup((const char *)copy.data, copy.n_bytes);
    dcpk_bytes_release(&copy);
    CHECK(made != NULL, "memory");
    return made;
}

static dcpk_status view(const char *config, const char *lines, struct dcpk_error *err)
{
    struct dcpk_bytes file = {0};
    struct dcpk_checkpoint *ckpt;
    struct dcpk_model *model = NULL;

    CHECK(hf_folder_file(lines, &file), lines);
    ckpt = hf_folder_open(config, &file, err);
    if (ckpt != NULL && dcpk_model_new(ckpt, &model, err) == DCPK_OK)
        (void)dcpk_hf_to_model(ckpt, model, err);
    dcpk_model_free(model);
    dcpk_checkpoint_close(ckpt);
    dcpk_bytes_release(&file);
    return err->status;
}

static void each_fault_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(cases); i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        char *config = changed(config_text, cases[i].was, cases[i].is);
        char *lines = changed(tensor_lines, cases[i].was, cases[i].is);
        char names[400], *rest = names;

        CHECK(*cases[i].was == '\0' || strcmp(config, config_text) != 0 ||
                  strcmp(lines, tensor_lines) != 0,
              cases[i].label);
        (void)view(config, lines, &err);
        if (cases[i].names == NULL)
            CHECK_EQ_STR(err.text, "", cases[i].label);
        (void)snprintf(names, sizeof names, "%s", cases[i].names == NULL ? "" : cases[i].names);
        while (rest != NULL) {
            const char *part = strsep(&rest, "&");

            if (strstr(err.text, part) == NULL)
                fail_msg("%s: '%s' lacks '%s'", cases[i].label, err.text, part);
        }
        free(config);
        free(lines);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_fault_is_named)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

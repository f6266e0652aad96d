/* SPDX-License-Identifier: Apache-2.0 */
/* test_hf_words.c - each word of a map, from config.json to args and back. */
#include "formats/safetensors/hf_ops.h"
#include "tests/unit/hf_config_case.h"

/* --- the words --- */

/* A family of four rows, the last that of the case. */
static const struct dcpk_hf_map *toy_map(const char *row, const char *label)
{
    static char text[2048];
    const struct dcpk_hf_map *map = NULL;

    (void)snprintf(text, sizeof text,
                   "{\"family\": \"toy\", \"architectures\": [\"Toy\"], \"model_type\": \"toy\","
                   " \"config\": [[\"num_hidden_layers\", \"num_layers\"], [\"hidden_size\","
                   " \"hidden_size\"], [\"num_attention_heads\", \"num_attention_heads\"], %s],"
                   " \"args\": {\"add_bias_linear\": false}, \"set\": {\"num_experts\": 4,"
                   " \"moe_ffn_hidden_size\": 6, \"num_query_groups\": 6},"
                   " \"top\": [], \"at\": [], \"layer\": []}",
                   row);
    CHECK_OK(dcpk_hf_map_read("toy.json", text, strlen(text), arena, &map, &err), label);
    return map;
}

/* config: further members. arg, value: what becomes of them; arg NULL: value is the fault. key,
 * back: what is written again. */
static const struct {
    const char *label, *row, *config, *arg, *value, *key, *back;
} words[] = {
    {"copy", "[\"k\", \"a\"]", ", \"k\": 7", "a", "7", "k", "7"},
    {"copy of null", "[\"q_lora_rank\", \"q_lora_rank\"]", ", \"q_lora_rank\": null", "q_lora_rank",
     "null", "q_lora_rank", "null"},
    {"copy, absent", "[\"k\", \"v_head_dim\"]", "", NULL, "'k' is missing", NULL, NULL},
    {"copy, null", "[\"k\", \"v_head_dim\"]", ", \"k\": null", NULL, "'k' is missing", NULL, NULL},
    {"first alias", "[\"k|l\", \"a\"]", ", \"k\": 7", "a", "7", "k", "7"},
    {"second alias", "[\"k|l\", \"a\"]", ", \"l\": 7", "a", "7", "k", "7"},
    {"both args", "[\"e\", \"norm_epsilon|layernorm_epsilon\"]", ", \"e\": 1e-6",
     "layernorm_epsilon", "1e-06", "e", "1e-06"},
    {"or, absent", "[\"k\", \"init_method_std\", \"or\", 0.5]", "", "init_method_std", "0.5", "k",
     "0.5"},
    {"or, null", "[\"k\", \"init_method_std\", \"or\", 0.5]", ", \"k\": null", "init_method_std",
     "0.5", "k", "0.5"},
    {"or, there", "[\"k\", \"init_method_std\", \"or\", 0.5]", ", \"k\": 1", "init_method_std",
     "1.0", "k", "1.0"},
    {"or_arg, absent", "[\"k\", \"a\", \"or_arg\", \"num_attention_heads\"]", "", "a", "6", "k",
     "6"},
    {"or_arg with a number, absent", "[\"k\", \"a\", \"or_arg\", \"num_attention_heads\", 8]", "",
     "a", "8", "k", "8"},
    {"or_arg with a number, null", "[\"k\", \"a\", \"or_arg\", \"num_attention_heads\", 8]",
     ", \"k\": null", "a", "6", "k", "6"},
    {"or_arg, there", "[\"k\", \"a\", \"or_arg\", \"num_attention_heads\"]", ", \"k\": 3", "a", "3",
     "k", "3"},
    {"or_arg, absent, of the class", "[\"k\", \"a\", \"or_arg\", \"num_attention_heads\", 2]", "",
     "a", "2", "k", "2"},
    {"or_arg, null, of the class", "[\"k\", \"a\", \"or_arg\", \"num_attention_heads\", 2]",
     ", \"k\": null", "a", "6", "k", "6"},
    {"or_mul, null", "[\"k\", \"ffn_hidden_size\", \"or_mul\", \"hidden_size\", 4]",
     ", \"k\": null", "ffn_hidden_size", "192", "k", "null"},
    {"or_mul, there", "[\"k\", \"ffn_hidden_size\", \"or_mul\", \"hidden_size\", 4]",
     ", \"k\": 200", "ffn_hidden_size", "200", "k", "200"},
    {"or_none, 0", "[\"k\", \"mtp_num_layers\", \"or_none\"]", ", \"k\": 0", "mtp_num_layers",
     "null", "k", "0"},
    {"or_none, absent", "[\"k\", \"a\", \"or_none\"]", "", "a", "null", "k", "0"},
    {"or_none, 2", "[\"k\", \"a\", \"or_none\"]", ", \"k\": 2", "a", "2", "k", "2"},
    {"not", "[\"k\", \"a\", \"not\", false]", ", \"k\": true", "a", "false", "k", "true"},
    {"not, absent", "[\"k\", \"a\", \"not\", false]", "", "a", "true", "k", "false"},
    {"not, text", "[\"k\", \"a\", \"not\", false]", ", \"k\": \"yes\"", NULL,
     "'k' is \"yes\", not true or false", NULL, NULL},
    {"head_dim, absent", "[\"k\", \"kv_channels\", \"head_dim\"]", "", "kv_channels", "8", "k",
     "8"},
    {"head_dim, there", "[\"k\", \"kv_channels\", \"head_dim\"]", ", \"k\": 10", "kv_channels",
     "10", "k", "10"},
    {"window", "[\"k\", \"window_size\", \"window\"]", ", \"k\": 16", "window_size", "[15, 0]", "k",
     "16"},
    {"window, null", "[\"k\", \"window_size\", \"window\"]", ", \"k\": null", "window_size", "null",
     "k", "null"},
    {"window, 0", "[\"k\", \"window_size\", \"window\"]", ", \"k\": 0", NULL,
     "'k' is 0, not a number of tokens", NULL, NULL},
    {"window, absent", "[\"k\", \"window_size\", \"window\"]", "", NULL, "'k' is missing", NULL,
     NULL},
    {"times", "[\"k\", \"a\", \"times\", \"num_attention_heads\"]", ", \"k\": 3", "a", "18", "k",
     "3"},
    {"times, 0", "[\"k\", \"a\", \"times\", \"num_attention_heads\"]", ", \"k\": 0", NULL,
     "'k' is 0, not a whole number", NULL, NULL},
    {"times, too many", "[\"k\", \"a\", \"times\", \"num_attention_heads\"]", ", \"k\": 5000000000",
     NULL, "'k' is 5000000000: 5000000000 times num_attention_heads, 6, is not", NULL, NULL},
    {"times, a product that is too large", "[\"k\", \"num_layers\", \"times\", \"hidden_size\"]",
     ", \"k\": 50000000", NULL, "'k' is 50000000: 50000000 times hidden_size, 48, is not", NULL,
     NULL},
    {"or_mul, too many", "[\"k\", \"ffn_hidden_size\", \"or_mul\", \"hidden_size\", 50000000]", "",
     NULL, "'k' is absent: 50000000 times hidden_size, 48, is not", NULL, NULL},
    {"leading", "[\"k\", \"moe_layer_freq\", \"leading\"]", ", \"k\": 1", "moe_layer_freq",
     "[0, 1, 1, 1]", "k", "1"},
    {"leading, 0", "[\"k\", \"moe_layer_freq\", \"leading\"]", ", \"k\": 0", "moe_layer_freq", "1",
     "k", "0"},
    {"leading, all", "[\"k\", \"moe_layer_freq\", \"leading\"]", ", \"k\": 4", NULL,
     "'k' leaves no layer with experts", NULL, NULL},
    {"sparse by step", "[\"s,l\", \"moe_layer_freq\", \"sparse\"]", ", \"s\": 2, \"l\": []",
     "moe_layer_freq", "[0, 1, 0, 1]", "l", "[0, 2]"},
    {"sparse by list", "[\"s,l\", \"moe_layer_freq\", \"sparse\"]", ", \"s\": 1, \"l\": [3, 0]",
     "moe_layer_freq", "[0, 1, 1, 0]", "s", "1"},
    {"sparse, absent", "[\"s,l\", \"moe_layer_freq\", \"sparse\"]", "", "moe_layer_freq", "1", "l",
     "[]"},
    {"sparse past the end", "[\"s,l\", \"moe_layer_freq\", \"sparse\"]", ", \"l\": [4]", NULL,
     "'l' is [4], not a list of layers that the model has", NULL, NULL},
    {"rope_layers by interval", "[\"s,l\", \"no_rope_freq\", \"rope_layers\", 4]", ", \"s\": 3",
     "no_rope_freq", "[0, 0, 1, 0]", "l", "[1, 1, 0, 1]"},
    {"rope_layers by list", "[\"s,l\", \"no_rope_freq\", \"rope_layers\", 4]",
     ", \"s\": 3, \"l\": [0, 1, 1, 0]", "no_rope_freq", "[1, 0, 0, 1]", "l", "[0, 1, 1, 0]"},
    {"rope_layers, absent", "[\"s,l\", \"no_rope_freq\", \"rope_layers\", 4]", "", "no_rope_freq",
     "[0, 0, 0, 1]", "l", "[1, 1, 1, 0]"},
    {"rope_layers, all", "[\"s,l\", \"no_rope_freq\", \"rope_layers\", 4]", ", \"s\": 9",
     "no_rope_freq", "null", "l", "[1, 1, 1, 1]"},
    {"rope_layers, too few", "[\"s,l\", \"no_rope_freq\", \"rope_layers\", 4]", ", \"l\": [1, 0]",
     NULL, "'l' is [1, 0], not a list of 0 and 1 of all layers", NULL, NULL},
    {"rope_layers, no interval", "[\"s,l\", \"no_rope_freq\", \"rope_layers\", 4]", ", \"s\": 0",
     NULL, "'s' is 0, not a number of layers", NULL, NULL},
    {"groups, 1", "[\"k\", \"moe_router_num_groups\", \"groups\"]", ", \"k\": 1",
     "moe_router_num_groups", "null", "k", "1"},
    {"groups, 4", "[\"k\", \"a\", \"groups\"]", ", \"k\": 4", "a", "4", "k", "4"},
    {"enum", "[\"k\", \"a\", \"enum\", {\"x\": true, \"y\": true, \"z\": false}]", ", \"k\": \"y\"",
     "a", "true", "k", "\"x\""},
    {"enum, false", "[\"k\", \"a\", \"enum\", {\"x\": true, \"z\": false}]", ", \"k\": \"z\"", "a",
     "false", "k", "\"z\""},
    {"enum, other", "[\"k\", \"a\", \"enum\", {\"x\": true}]", ", \"k\": \"w\"", NULL,
     "'k' is \"w\", which Megatron has no args for", NULL, NULL},
    {"hf_only", "[\"num_attention_heads\", \"k\", \"hf_only\"]", ", \"k\": 6",
     "num_attention_heads", "6", "k", "6"},
    {"hf_only, other", "[\"num_attention_heads\", \"k\", \"hf_only\"]", ", \"k\": 3", NULL,
     "'k' is 3, and 'num_attention_heads' 6", NULL, NULL},
};

static void each_word(void **state)
{
    char config[512];

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(words); i++) {
        const char *label = words[i].label;
        const struct dcpk_hf_map *map;
        const struct dcpk_value *attrs;
        struct dcpk_bytes text = {0};

        fresh();
        map = toy_map(words[i].row, label);
        (void)snprintf(config, sizeof config,
                       "{\"num_hidden_layers\": 4, \"hidden_size\": 48,"
                       " \"num_attention_heads\": 6, \"vocab_size\": 99%s}",
                       words[i].config);
        if (words[i].arg == NULL) {
            CHECK(import(map, config, label, &attrs) != DCPK_OK, label);
            CHECK(strstr(err.text, words[i].value) != NULL, err.text);
            continue;
        }
        CHECK_OK(import(map, config, label, &attrs), label);
        CHECK_EQ_STR(show(dcpk_value_get(attrs, words[i].arg)), words[i].value, label);
        CHECK_OK(export(map, attrs, NULL, &text), label);
        CHECK_EQ_STR(member(&text, words[i].key, label), words[i].back, label);
        dcpk_bytes_release(&text);
    }
}

/* --- what args of runs have, on the way to config.json --- */

static const struct {
    const char *label, *row, *args, *key, *value; /* key NULL: value is the fault */
} exports[] = {
    {"window of a list", "[\"k\", \"window_size\", \"window\"]", "\"window_size\": [7, 0]", "k",
     "8"},
    {"window without a left side", "[\"k\", \"window_size\", \"window\"]",
     "\"window_size\": [-1, 0]", "k", "null"},
    {"window to the right", "[\"k\", \"window_size\", \"window\"]", "\"window_size\": [7, 1]", NULL,
     "which 'k' cannot express"},
    {"experts by text", "[\"k\", \"moe_layer_freq\", \"leading\"]",
     "\"moe_layer_freq\": \"([0]*2+[1]*2)\"", "k", "2"},
    {"experts by nested text", "[\"s,l\", \"moe_layer_freq\", \"sparse\"]",
     "\"moe_layer_freq\": \"([1]+[0])*2\"", "l", "[1, 3]"},
    {"experts by a number", "[\"s,l\", \"moe_layer_freq\", \"sparse\"]", "\"moe_layer_freq\": 2",
     "l", "[1, 3]"},
    {"experts of too many layers", "[\"s,l\", \"moe_layer_freq\", \"sparse\"]",
     "\"moe_layer_freq\": \"[1]*5\"", NULL, "which is not of 4 layers"},
    {"experts by a program", "[\"s,l\", \"moe_layer_freq\", \"sparse\"]",
     "\"moe_layer_freq\": \"[1]*4 if 1 else 0\"", NULL, "which is not of 4 layers"},
    {"experts of many repeats", "[\"s,l\", \"moe_layer_freq\", \"sparse\"]",
     "\"moe_layer_freq\": \"[1]*999999999999\"", NULL, "which is not of 4 layers"},
    {"experts in the middle", "[\"k\", \"moe_layer_freq\", \"leading\"]",
     "\"moe_layer_freq\": [0, 1, 1, 0]", NULL, "which 'k' cannot express"},
    {"a width that does not divide",
     "[\"k\", \"moe_shared_expert_intermediate_size\", \"times\", "
     "\"moe_ffn_hidden_size\"]",
     "\"moe_shared_expert_intermediate_size\": 15", NULL, "not a multiple of moe_ffn_hidden_size"},
    {"an epsilon of old runs", "[\"e\", \"norm_epsilon|layernorm_epsilon\"]",
     "\"norm_epsilon\": 1e-06", "e", "1e-06"},
    {"an epsilon of new runs", "[\"e\", \"norm_epsilon|layernorm_epsilon\"]",
     "\"layernorm_epsilon\": 1e-06", "e", "1e-06"},
    {"an epsilon that the parser sets", "[\"e\", \"norm_epsilon|layernorm_epsilon\"]",
     "\"swiglu\": false", "e", "1e-05"},
    {"the default of groups", "[\"k\", \"num_query_groups\"]",
     "\"group_query_attention\": false, \"num_query_groups\": 1", "k", "6"},
    {"groups", "[\"k\", \"num_query_groups\"]",
     "\"group_query_attention\": true, \"num_query_groups\": 2", "k", "2"},
    {"groups without the switch", "[\"k\", \"num_query_groups\"]", "\"num_query_groups\": 2", "k",
     "2"},
    {"groups under a switch of 1", "[\"k\", \"num_query_groups\"]",
     "\"group_query_attention\": 1, \"num_query_groups\": 2", "k", "2"},
    {"no number of groups", "[\"k\", \"num_query_groups\"]",
     "\"group_query_attention\": true, \"num_query_groups\": null", "k", "6"},
    {"neither", "[\"k\", \"num_query_groups\"]", "\"swiglu\": false", "k", "6"},
    {"a loss for each kind", "[\"k\", \"moe_aux_loss_coeff\"]", "\"moe_aux_loss_coeff\": [0.01]",
     "k", "0.01"},
    {"a whole number for a float", "[\"rms_norm_eps\", \"norm_epsilon\"]", "\"norm_epsilon\": 1",
     "rms_norm_eps", "1.0"},
    {"a float for a whole number", "[\"k\", \"v_head_dim\"]", "\"v_head_dim\": 1.5", NULL,
     "v_head_dim is 1.5, which is not what the arg holds"},
    {"a window where there is none", "[\"k\", \"a\"]", "\"a\": 1, \"window_size\": [7, 0]", NULL,
     "window_size is [7, 0], which family 'toy' does not have"},
    {"1p by its new name", "[\"k\", \"a\"]", "\"a\": 1, \"layernorm_zero_centered_gamma\": true",
     "k", "1"},
    {"heads of another size", "[\"k\", \"a\"]", "\"a\": 1, \"kv_channels\": 10", NULL,
     "kv_channels is 10"},
    {"what args must be", "[\"k\", \"a\"]", "\"a\": 1, \"add_bias_linear\": true", NULL,
     "add_bias_linear is true, and family 'toy' has false"},
    {"groups that do not count", "[\"k\", \"moe_router_num_groups\", \"groups\"]",
     "\"moe_router_num_groups\": 4", NULL,
     "moe_router_num_groups is 4 without moe_router_group_topk"},
    {"layers without rope by interval", "[\"s,l\", \"no_rope_freq\", \"rope_layers\", 4]",
     "\"no_rope_freq\": 2", "l", "[1, 0, 1, 0]"},
    {"no such interval", "[\"s,l\", \"no_rope_freq\", \"rope_layers\", 4]", "\"no_rope_freq\": 0",
     NULL, "no_rope_freq is 0"},
    {"layers of another number", "[\"s,l\", \"no_rope_freq\", \"rope_layers\", 4]",
     "\"no_rope_freq\": [0, 1]", NULL, "no_rope_freq is [0, 1]"},
    {"one expert a token", "[\"k\", \"a\"]", "\"a\": 1, \"moe_router_topk\": 1", NULL,
     "moe_router_topk is 1: Megatron weighs the expert by its score"},
    {"rows of experts in blocks", "[\"k\", \"a\"]", "\"a\": 1, \"moe_mlp_glu_interleave_size\": 32",
     NULL, "moe_mlp_glu_interleave_size is 32, which family 'toy' does not have"},
    {"rows of shared experts in blocks", "[\"k\", \"a\"]",
     "\"a\": 1, \"moe_shared_expert_glu_interleave_size\": 32", NULL,
     "moe_shared_expert_glu_interleave_size is 32, which family 'toy' does not have"},
    {"a list", "[\"k\", \"a\"]", "\"a\": [1]", NULL, "a is [1], which is not what the arg holds"},
};

static void args_of_runs(void **state)
{
    char args[1024];

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(exports); i++) {
        const char *label = exports[i].label;
        const bool has_bias = strstr(exports[i].args, "add_bias_linear") != NULL;
        const struct dcpk_hf_map *map;
        const struct dcpk_json *doc;
        struct dcpk_bytes text = {0};

        fresh();
        map = toy_map(exports[i].row, label);
        (void)snprintf(args, sizeof args,
                       "{\"num_layers\": 4, \"hidden_size\": 48, \"num_attention_heads\": 6,"
                       " \"num_experts\": 4, \"moe_ffn_hidden_size\": 6%s, %s}",
                       has_bias ? "" : ", \"add_bias_linear\": false", exports[i].args);
        doc = parse(args, label);
        if (exports[i].key != NULL) {
            CHECK_OK(export(map, dcpk_hf_value(arena, doc, &err), NULL, &text), label);
            CHECK_EQ_STR(member(&text, exports[i].key, label), exports[i].value, label);
        } else {
            CHECK(export(map, dcpk_hf_value(arena, doc, &err), NULL, &text) != DCPK_OK, label);
            CHECK(strstr(err.text, exports[i].value) != NULL, err.text);
        }
        dcpk_json_free((struct dcpk_json *)(uintptr_t)doc);
        dcpk_bytes_release(&text);
    }
}

/* The layers that get experts are those that config.json says have them. */
static void layers_of_both_sides(void **state)
{
    static const struct {
        const char *freq, *dense;
    } cases[] = {
        {"\"([1]*3+[0]*1)*3\"", "[3, 7, 11]"},
        {"\"2\"", "[1, 3, 5, 7, 9, 11]"},
        {"2", "[1, 3, 5, 7, 9, 11]"},
        {"[0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]", "[0]"},
        {"null", "[]"},
    };
    char args[512];

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(cases); i++) {
        const char *label = cases[i].freq;
        struct dcpk_bytes text = {0};
        const struct dcpk_value *attrs;
        const struct dcpk_json *doc;
        struct dcpk_hf_sizes sizes;
        char dense[64] = "[";

        fresh();
        (void)snprintf(args, sizeof args,
                       "{\"num_layers\": 12, \"hidden_size\": 48, \"num_attention_heads\": 6,"
                       " \"num_experts\": 4, \"moe_ffn_hidden_size\": 6,"
                       " \"add_bias_linear\": false, \"moe_layer_freq\": %s}",
                       cases[i].freq);
        doc = parse(args, label);
        attrs = dcpk_hf_value(arena, doc, &err);
        CHECK_OK(dcpk_hf_sizes_read(attrs, arena, &sizes, &err), label);
        for (int64_t l = 0; l < sizes.n_layers; l++)
            if (!sizes.is_moe[l])
                (void)snprintf(dense + strlen(dense), sizeof dense - strlen(dense), "%s%d",
                               dense[1] == '\0' ? "" : ", ", (int)l);
        (void)snprintf(dense + strlen(dense), sizeof dense - strlen(dense), "]");
        CHECK_EQ_STR(dense, cases[i].dense, label);
        CHECK_OK(
            export(toy_map("[\"s,l\", \"moe_layer_freq\", \"sparse\"]", label), attrs, NULL, &text),
            label);
        CHECK_EQ_STR(member(&text, "l", label), cases[i].dense, label);
        dcpk_json_free((struct dcpk_json *)(uintptr_t)doc);
        dcpk_bytes_release(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_of_both_sides),
        cmocka_unit_test(each_word),
        cmocka_unit_test(args_of_runs),
    };

    return cmocka_run_group_tests(tests, NULL, release);
}

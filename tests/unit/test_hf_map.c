/* SPDX-License-Identifier: Apache-2.0 */
/* test_hf_map.c - the built-in maps are read; what no map may hold is refused by file and rule. */
#include <stdio.h>
#include <string.h>

#include "formats/safetensors/hf_map.h"
#include "lib/base/order.h"
#include "tests/check.h"

static const char plain_map[] =
    "{\"family\": \"toy\", \"architectures\": [\"ToyModel\"], \"model_type\": \"toy\","
    " \"config\": [[\"n|m\", \"a|b\", \"or\", 7], [\"s,t\", \"f\", \"sparse\"],"
    " [\"k\", \"g\", \"or_mul\", \"a\", 4]],"
    " \"top\": [{\"mg\": \"x\", \"hf\": [\"q\", \"k\", \"v\"], \"op\": \"qkv\", \"if\": \"!w\"}],"
    " \"at\": [{\"mg\": \"l.{l}.\", \"hf\": \"h.{l}.\"}],"
    " \"layer\": [{\"mg\": \"y\", \"hf\": \"z\", \"op\": [\"transpose\", \"deinterleave\"]}]}";

static void test_built_in(void **unused)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_hf_maps maps;
    const struct dcpk_hf_map *map;

    (void)unused;
    assert_non_null(arena);
    CHECK_OK(dcpk_hf_maps_load(NULL, arena, &maps, &err), "built in");
    CHECK_EQ_INT(maps.n, 30, "maps");
    assert_string_equal(maps.list[0]->family, "llama");
    map = dcpk_hf_maps_find(&maps, "deepseek_v3");
    assert_non_null(map);
    CHECK_EQ_INT(map->n_at, 2, "at");
    CHECK_EQ_INT(map->n_rope_kinds, 2, "kinds of rope");
    assert_string_equal(map->scales_suffix, "_scale_inv");
    assert_string_equal(map->scales_values, "");
    map = dcpk_hf_maps_find(&maps, "gpt_oss");
    assert_non_null(map);
    assert_string_equal(map->scales_values, "_blocks");
    assert_null(map->scales_block);
    assert_null(dcpk_hf_maps_find(&maps, "nobody"));
    dcpk_arena_free(arena);
}

static void test_parts(void **unused)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    const struct dcpk_hf_map *map;

    (void)unused;
    assert_non_null(arena);
    CHECK_OK(dcpk_hf_map_read("toy.json", plain_map, strlen(plain_map), arena, &map, &err), "toy");
    CHECK_EQ_INT(map->n_config, 3, "rows");
    CHECK_EQ_INT(map->config[0].n_keys, 2, "aliases");
    assert_string_equal(map->config[0].args[1], "b");
    CHECK_EQ_INT(map->config[0].value->as.i, 7, "otherwise");
    CHECK_EQ_INT(map->config[1].how, DCPK_HF_HOW_SPARSE, "sparse");
    assert_string_equal(map->config[1].keys[1], "t");
    CHECK_EQ_INT(map->config[2].factor, 4, "factor");
    CHECK_EQ_INT(map->top.list[0].n_hf, 3, "parts");
    CHECK_EQ_INT(map->top.list[0].conditions[0].kind, DCPK_HF_IF_NO_ARG, "if");
    CHECK_EQ_INT(map->layer.list[0].ops[1], DCPK_HF_DEINTERLEAVE, "ops");
    dcpk_arena_free(arena);
}

/* One change of the plain map each, and what the message names. */
static const struct {
    const char *label, *was, *is, *named;
} wrong[] = {
    {"a key of the map", "\"at\":", "\"tops\": [], \"at\":", "\"tops\""},
    {"a key of a rule", "\"hf\": \"z\"", "\"hf\": \"z\", \"opp\": 1", "\"layer\"[0] ('y')"},
    {"an op", "\"transpose\"", "\"turn\"", "'turn'"},
    {"a word of a row", "\"sparse\"", "\"spare\"", "\"config\"[1]"},
    {"a row that lacks its value", "\"or\", 7", "\"or\"", "\"config\"[0]"},
    {"a row with more than its word takes", "\"or\", 7", "\"or\", 7, 8", "more than"},
    {"a capture", "{l}.\", \"hf\": \"h.{l}.\"", "{l}.\", \"hf\": \"h.{n}.\"", "h.{n}."},
    {"parts that do not fit the op", "[\"q\", \"k\", \"v\"]", "[\"q\", \"k\"]", "\"top\"[0]"},
    {"no architecture", "[\"ToyModel\"]", "[]", "architectures"},
    {"no family", "\"family\": \"toy\"", "\"family\": 3", "family"},
    {"scales of no form", "\"at\":", "\"scales\": {\"suffix\": \"_s\"}, \"at\":", "\"scales\""},
    {"scales of two forms", "\"at\":",
     "\"scales\": {\"suffix\": \"_s\", \"block\": \"b\", \"values\": \"_v\"}, \"at\":", "either"},
    {"a list that is none", "\"layer\": [", "\"layer\": 3, \"drop\": [", "\"layer\""},
};

static void test_wrong(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < DCPK_COUNT(wrong); i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_arena *arena = dcpk_arena_new();
        const char *at = strstr(plain_map, wrong[i].was);
        const struct dcpk_hf_map *map;
        char text[2 * sizeof plain_map];
        int n;

        assert_non_null(arena);
        assert_non_null(at);
        n = snprintf(text, sizeof text, "%.*s%s%s", (int)(at - plain_map), plain_map, wrong[i].is,
                     at + strlen(wrong[i].was));
        CHECK_EQ_INT(dcpk_hf_map_read("toy.json", text, (size_t)n, arena, &map, &err), DCPK_EFORMAT,
                     wrong[i].label);
        CHECK(strstr(err.text, "the map 'toy.json'") != NULL, wrong[i].label);
        CHECK(strstr(err.text, wrong[i].named) != NULL, err.text);
        dcpk_arena_free(arena);
    }
}

/* What the tensors of these parameters are called in every family: a map that has two of them the
 * wrong way round reads, and computes something else. */
static const struct {
    const char *mg;       /* stands in the canonical name */
    size_t n_parts;       /* of rules with so many */
    const char *hf[3][4]; /* each part's name holds one of these */
} spelled[] = {
    {"linear_fc1.weight", 2, {{"gate_proj", ".w1."}, {"up_proj", ".w3."}}},
    {"linear_fc2.", 1, {{"down_proj", ".w2.", "mlp.c_proj", "post_feedforward"}}},
    {"linear_qkv.weight", 3, {{"q_proj"}, {"k_proj"}, {"v_proj"}}},
    {"linear_qkv.bias", 3, {{"q_proj"}, {"k_proj"}, {"v_proj"}}},
    {"self_attention.linear_proj.", 1, {{"o_proj", "attn.c_proj", "post_attention_layernorm"}}},
    {"linear_qkv.layer_norm", 1, {{"input_layernorm", "ln_1"}}},
    {"linear_fc1.layer_norm", 1, {{"post_attention_layernorm", "ln_2", "pre_feedforward"}}},
    {"pre_mlp_layernorm", 1, {{"post_attention_layernorm"}}},
    {"q_layernorm", 1, {{"q_norm", "q_a_layernorm"}}},
    {"kv_layernorm", 1, {{"kv_a_layernorm"}}},
    {"k_layernorm", 1, {{"k_norm"}}},
    {"linear_q_down_proj", 1, {{"q_a_proj"}}},
    {"linear_q_up_proj.weight", 1, {{"q_b_proj"}}},
    {"linear_q_up_proj.layer_norm", 1, {{"q_a_layernorm"}}},
    {"linear_kv_down_proj", 1, {{"kv_a_proj"}}},
    {"linear_kv_up_proj.weight", 1, {{"kv_b_proj"}}},
    {"linear_kv_up_proj.layer_norm", 1, {{"kv_a_layernorm"}}},
    {"enorm", 1, {{"enorm", "pre_fc_norm_embedding"}}},
    {"hnorm", 1, {{"hnorm", "pre_fc_norm_hidden"}}},
    {"final_layernorm", 1, {{"norm.weight", "norm.bias", "ln_f"}}},
    {"word_embeddings", 1, {{"embed_tokens", "wte", "embeddings"}}},
    {"output_layer", 1, {{"lm_head", "shared_head.head"}}},
};

static bool holds_one(const char *name, const char *const *parts)
{
    for (size_t i = 0; i < 4 && parts[i] != NULL; i++)
        if (strstr(name, parts[i]) != NULL)
            return true;
    return false;
}

static void check_spelling(const struct dcpk_hf_map *map, const struct dcpk_hf_rules *rules)
{
    for (size_t r = 0; r < rules->n; r++) {
        const struct dcpk_hf_rule *rule = &rules->list[r];

        for (size_t i = 0; i < DCPK_COUNT(spelled); i++) {
            char label[200];

            if (strcmp(rule->hf[0], "norm.weight") == 0) /* the one of a hybrid model's layer */
                continue;
            if (strstr(rule->mg, spelled[i].mg) == NULL || rule->n_hf != spelled[i].n_parts)
                continue;
            (void)snprintf(label, sizeof label, "%s: %s", map->family, rule->mg);
            for (size_t p = 0; p < rule->n_hf; p++)
                CHECK(holds_one(rule->hf[p], spelled[i].hf[p]), label);
        }
    }
}

static void test_spelling(void **unused)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_hf_maps maps;

    (void)unused;
    assert_non_null(arena);
    CHECK_OK(dcpk_hf_maps_load(NULL, arena, &maps, &err), "built in");
    for (size_t i = 0; i < maps.n; i++) {
        check_spelling(maps.list[i], &maps.list[i]->top);
        check_spelling(maps.list[i], &maps.list[i]->layer);
    }
    dcpk_arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_built_in),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_spelling),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

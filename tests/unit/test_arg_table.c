/* SPDX-License-Identifier: Apache-2.0 */
/* test_arg_table.c - which args decide what weights compute, and when two runs differ in one. */
#include <stdio.h>
#include <string.h>

#include "lib/base/json.h"
#include "lib/base/order.h"
#include "lib/model/arg_table.h"
#include "tests/check.h"
#include "tests/unit/megatron_flags.h"

static struct dcpk_error err;
static struct dcpk_arena *arena;

static int set_up(void **state)
{
    (void)state;
    arena = dcpk_arena_new();
    return arena == NULL;
}

static int tear_down(void **state)
{
    (void)state;
    dcpk_arena_free(arena);
    return 0;
}

static const struct dcpk_value *attrs(const char *text)
{
    const struct dcpk_value *value;
    struct dcpk_json *doc = NULL;

    CHECK_OK(dcpk_json_parse(text, strlen(text), &doc, &err), text);
    value = dcpk_value_from_json(arena, doc, &err);
    CHECK(value != NULL, text);
    dcpk_json_free(doc);
    return value;
}

#define ROPED    "\"position_embedding_type\": \"rope\""
#define YARNED   "\"position_embedding_type\": \"yarn\""
#define WITH_MLA ROPED ", \"multi_latent_attention\": true"
#define WITH_MOE ROPED ", \"num_experts\": 8"

/* Defaults: megatron/training/arguments.py@core_v0.19.0. */
static const struct {
    const char *label, *a, *b;
    const char *names; /* that differ, parted by blanks */
} cases[] = {
    {"nothing", "{}", "{}", ""},
    {"a number", "{\"glu_linear_offset\": 1}", "{\"glu_linear_offset\": 0.0}", "glu_linear_offset"},
    {"one number, written twice", "{" ROPED ", \"rotary_base\": 500000}",
     "{" ROPED ", \"rotary_base\": 500000.0}", ""},
    {"absent against another than the default", "{" ROPED "}",
     "{" ROPED ", \"rotary_seq_len_interpolation_factor\": 4}",
     "rotary_seq_len_interpolation_factor"},
    {"another than the default against absent", "{" ROPED ", \"rotary_base\": 500000}",
     "{" ROPED "}", "rotary_base"},
    {"absent against the default", "{" ROPED "}",
     "{" ROPED ", \"rotary_base\": 10000, \"rotary_percent\": 1.0, \"softmax_type\": \"vanilla\","
     " \"quick_geglu\": false, \"window_size\": null, \"bias_gelu_fusion\": true}",
     ""},
    {"no default: absent differs from nothing", "{\"kv_channels\": 64}", "{}", ""},
    {"no default: present", "{\"kv_channels\": 64, \"num_attention_heads\": 4}",
     "{\"kv_channels\": 32, \"num_attention_heads\": 8}",
     "num_attention_heads num_query_groups kv_channels"},
    {"a window as a list and as none", "{\"window_size\": [127, 0]}", "{}", "window_size"},
    {"two windows", "{\"window_size\": [127, 0], \"window_attn_skip_freq\": 2}",
     "{\"window_size\": [127, 0]}", "window_attn_skip_freq"},
    {"one name of two", "{\"norm_epsilon\": 1e-6}", "{\"layernorm_epsilon\": 1e-6}", ""},
    {"the other name differs", "{\"layernorm_epsilon\": 1e-5}", "{\"layernorm_epsilon\": 1e-6}",
     "layernorm_epsilon"},
    {"the other name against the default", "{}", "{\"layernorm_epsilon\": 1e-6}",
     "layernorm_epsilon"},
    {"stored norms are no difference", "{\"layernorm_zero_centered_gamma\": true}", "{}", ""},
    {"activation", "{\"swiglu\": true, \"activation_func_clamp_value\": 7.0}",
     "{\"quick_geglu\": true}", "swiglu quick_geglu activation_func_clamp_value"},
    {"tanh in GELU", "{\"bias_gelu_fusion\": false}", "{}", "bias_gelu_fusion"},
    {"and not in SwiGLU", "{\"swiglu\": true, \"bias_gelu_fusion\": false}", "{\"swiglu\": true}",
     ""},
    {"attention", "{\"qk_l2_norm\": true, \"softmax_type\": \"off-by-one\"}", "{}",
     "qk_l2_norm softmax_type"},
    {"rope without rope", "{\"rotary_percent\": 0.5}", "{}", ""},
    {"scaling that is off", "{" ROPED ", \"rope_scaling_factor\": 32.0}", "{" ROPED "}", ""},
    {"scaling", "{" ROPED ", \"use_rope_scaling\": true, \"rope_scaling_factor\": 32.0}",
     "{" ROPED ", \"use_rope_scaling\": true}", "rope_scaling_factor"},
    {"YaRN", "{" YARNED ", \"yarn_beta_fast\": 16, \"yarn_original_max_position_embeddings\": 8}",
     "{" YARNED "}", "yarn_original_max_position_embeddings yarn_beta_fast"},
    {"YaRN and plain rope", "{" YARNED "}", "{" ROPED "}", "position_embedding_type"},
    {"of latent attention alone", "{" ROPED ", \"mscale\": 0.7}", "{" ROPED "}", ""},
    {"latent attention",
     "{" WITH_MLA ", \"mscale\": 0.7, \"rope_type\": \"rope\", \"rotary_scaling_factor\": 40}",
     "{" WITH_MLA "}", "rope_type rotary_scaling_factor mscale"},
    {"of experts alone", "{\"moe_router_topk\": 4}", "{}", ""},
    {"routing",
     "{" WITH_MOE ", \"moe_router_topk\": 4, \"moe_router_topk_scaling_factor\": 2.5, "
     "\"moe_router_num_groups\": 4, \"moe_router_group_topk\": 2}",
     "{" WITH_MOE ", \"moe_router_topk_scaling_factor\": null}",
     "moe_router_topk moe_router_topk_scaling_factor moe_router_num_groups moe_router_group_topk"},
};

static void differences(void **state)
{
    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(cases); i++) {
        const struct dcpk_value *a = attrs(cases[i].a), *b = attrs(cases[i].b);

        for (int turned = 0; turned < 2; turned++) {
            char found[1024] = "";
            const char *name;
            size_t at = 0;

            while ((name = dcpk_args_next_difference(turned ? b : a, turned ? a : b, &at)) != NULL)
                snprintf(found + strlen(found), sizeof found - strlen(found), "%s%s",
                         found[0] == '\0' ? "" : " ", name);
            CHECK_EQ_STR(found, cases[i].names, cases[i].label);
        }
    }
}

static void orders(void **state)
{
    static const char routed[] = "moe_mlp_glu_interleave_size",
                      shared[] = "moe_shared_expert_glu_interleave_size";
    const struct dcpk_value *none = attrs("{\"num_experts\": 8}"),
                            *blocks = attrs("{\"num_experts\": 8, "
                                            "\"moe_mlp_glu_interleave_size\": 32}"),
                            *others = attrs("{\"num_experts\": 8, "
                                            "\"moe_shared_expert_glu_interleave_size\": 32}");

    (void)state;
    CHECK(dcpk_ordering_arg(none, attrs("{\"num_experts\": 8, "
                                        "\"moe_mlp_glu_interleave_size\": null}")) == NULL,
          "none");
    CHECK(dcpk_ordering_arg(blocks, blocks) == NULL, "the same");
    CHECK(dcpk_ordering_arg(attrs("{}"), attrs("{\"moe_mlp_glu_interleave_size\": 32}")) == NULL,
          "no experts");
    CHECK_EQ_STR(dcpk_ordering_arg(none, blocks), routed, "routed");
    CHECK_EQ_STR(dcpk_ordering_arg(others, none), shared, "shared");
}

/* Is the attribute set by a flag of the parser? */
static bool is_flag(const char *name)
{
    const size_t n = strlen(name);

    for (size_t i = 0; i < DCPK_COUNT(megatron_flags); i++)
        for (const char *at = megatron_flags[i]; *at != '\0';) {
            const size_t length = strcspn(at, " ");
            size_t same = 0;

            if (strncmp(at, "no-", 3) == 0 && length == n + 3)
                at += 3;
            while (same < n && (at[same] == name[same] || (at[same] == '-' && name[same] == '_')))
                same++;
            if (same == n && (at[n] == ' ' || at[n] == '\0'))
                return true;
            at += strcspn(at, " ");
            at += *at == ' ';
        }
    return false;
}

/* Attributes that the parser of that release has no flag for: of configurations
 * (megatron/core/transformer/transformer_config.py@core_v0.19.0), of core_v0.16.1's parser, and of
 * main's. */
static const char *const without_flag[] = {
    "original_max_position_embeddings",
    "beta_fast",
    "beta_slow",
    "heterogeneous_block_specs",
    "activation_func",
    "softmax_scale",
    "moe_router_topk_limited_devices",
    "hybrid_attention_ratio",
    "hybrid_mlp_ratio",
    "add_bias_linear",
    "enable_mhc_connections",
    "mhc_num_residual_streams",
    "mhc_sinkhorn_iterations",
    "gdp_num_householder",
};

static void names(void **state)
{
    (void)state;
    for (size_t i = 0; i < dcpk_n_args; i++) {
        const char *name = dcpk_args[i].name;
        bool is_known = is_flag(name);

        for (size_t j = 0; j < DCPK_COUNT(without_flag); j++)
            is_known |= strcmp(name, without_flag[j]) == 0;
        CHECK(is_known, name);
        for (size_t j = 0; j < i; j++)
            CHECK(strcmp(name, dcpk_args[j].name) != 0, name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(differences, set_up, tear_down),
        cmocka_unit_test_setup_teardown(orders, set_up, tear_down),
        cmocka_unit_test(names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* test_bridge_args.c - fields of a model in run_config.yaml, as args.
 * Expected: Megatron-Bridge's src/megatron/bridge/models/gpt_provider.py and
 * megatron/training/arguments.py@core_v0.19.0, core_transformer_config_from_args. */
#include "formats/formats.h"
#include "lib/base/order.h"
#include "tests/unit/hf_config_case.h"

#define GATED(function)                                                                            \
    "  gated_linear_unit: true\n  activation_func:\n    _call_: false\n    _target_: " function "\n"

static const struct {
    const char *label, *fields, *args; /* name=value, parted by blanks */
} cases[] = {
    {"SwiGLU", GATED("torch.nn.functional.silu"), "swiglu=true activation_func=absent"},
    {"GEGLU", GATED("torch._C._nn.gelu"), "swiglu=true activation_func=\"gelu\""},
    {"quick GEGLU", GATED("megatron.core.activations.quick_gelu"),
     "swiglu=false quick_geglu=true activation_func=absent"},
    {"a gated square", GATED("megatron.core.activations.squared_relu"),
     "activation_func=\"squared_relu\""},
    {"a square", "  activation_func: squared_relu\n  gated_linear_unit: false\n",
     "squared_relu=true swiglu=false"},
    {"GELU, exact", "  activation_func: gelu\n  bias_activation_fusion: false\n",
     "activation_func=absent bias_gelu_fusion=false"},
    {"a function with arguments",
     "  activation_func:\n    _target_: torch.nn.functional.gelu\n    _partial_: true\n",
     "activation_func=\"gelu\""},
    {"scaled rope", "  rope_scaling: true\n  rope_scaling_factor: 8.0\n",
     "use_rope_scaling=true rope_scaling_factor=8.0"},
    {"YaRN",
     "  rotary_scaling_factor: null\n  yarn_mscale: 0.7\n  yarn_rotary_scaling_factor: 32\n",
     "rotary_scaling_factor=32 mscale=0.7"},
    {"YaRN of latent attention",
     "  multi_latent_attention: true\n  rotary_scaling_factor: 40\n"
     "  yarn_rotary_scaling_factor: null\n",
     "rotary_scaling_factor=40"},
    {"interpolation", "  seq_len_interpolation_factor: 4\n",
     "rotary_seq_len_interpolation_factor=4"},
    {"a scale", "  softmax_scale: 0.05\n", "softmax_scale=0.05"},
    {"experts", "  num_moe_experts: 8\n", "num_experts=8"},
    {"positions", "  seq_length: 32\n", "max_position_embeddings=32 seq_length=32"},
    {"positions by their name", "  max_position_embeddings: 64\n  seq_length: 32\n",
     "max_position_embeddings=64"},
    {"layers of core",
     "  transformer_layer_spec:\n    _target_: megatron.bridge.models.gpt_provider."
     "default_layer_spec\n",
     "spec=absent"},
    {"layers of a provider",
     "  transformer_layer_spec:\n    _target_: megatron.bridge.models.olmoe.olmoe_layer_spec\n",
     "spec=\"olmoe_layer_spec\""},
    {"a window that is an object", "  window_size:\n    _target_: builtins.tuple\n",
     "window_size=\"tuple\""},
    {"two spellings that differ", "  rotary_scaling_factor: 4\n  yarn_rotary_scaling_factor: 32\n",
     NULL},
};

static void fields_as_args(void **state)
{
    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(cases); i++) {
        const struct dcpk_value *args = NULL;
        char yaml[1024], wanted[300], *at = wanted;

        fresh();
        (void)snprintf(yaml, sizeof yaml, "model:\n  num_layers: 2\n%s", cases[i].fields);
        (void)dcpk_yaml_args_reader(yaml, strlen(yaml), arena, &args, &err);
        CHECK((err.status == DCPK_OK) == (cases[i].args != NULL), cases[i].label);
        (void)snprintf(wanted, sizeof wanted, "%s", cases[i].args == NULL ? "" : cases[i].args);
        for (char *pair; (pair = strsep(&at, " ")) != NULL && *pair != '\0';) {
            const char *name = strsep(&pair, "=");

            CHECK_EQ_STR(show(dcpk_value_get(dcpk_value_attrs(args), name)), pair, cases[i].label);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(fields_as_args)};

    if (dcpk_yaml_args_reader == NULL)
        return 77;
    return cmocka_run_group_tests(tests, NULL, release);
}

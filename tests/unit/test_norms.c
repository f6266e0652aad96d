/* SPDX-License-Identifier: Apache-2.0 */
/* test_norms.c - which parameters are weights of norms that a run may store less one. */
#include "lib/base/order.h"
#include "lib/model/norms.h"
#include "tests/check.h"

/*
 * Source: megatron/core/models/gpt/gpt_layer_specs.py@core_v0.19.0 for names, and
 * megatron/core/ssm/mamba_mixer.py@core_v0.19.0 for the mixer's own, which is mamba_ssm's.
 */
static const struct {
    const char *name;
    bool is_norm;
} names[] = {
    {"decoder.final_layernorm.weight", true},
    {"decoder.final_layernorm.bias", false},
    {"decoder.final_norm.weight", true},
    {"decoder.layers.0.input_layernorm.weight", true},
    {"decoder.layers.0.self_attention.linear_qkv.layer_norm_weight", true},
    {"decoder.layers.0.self_attention.linear_qkv.layer_norm_bias", false},
    {"decoder.layers.0.self_attention.q_layernorm.weight", true},
    {"decoder.layers.0.self_attention.out_norm.weight", true},
    {"decoder.layers.0.mlp.linear_fc1.layer_norm_weight", true},
    {"decoder.layers.0.norm.weight", true},
    {"decoder.layers.0.mixer.in_proj.layer_norm_weight", true},
    {"decoder.layers.0.mixer.norm.weight", false},
    {"mtp.layers.0.mtp_model_layer.mixer.norm.weight", false},
    {"decoder.layers.0.mlp.linear_fc2.weight", false},
    {"embedding.word_embeddings.weight", false},
};

static void knows_norms(void **state)
{
    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(names); i++)
        CHECK_EQ_INT(dcpk_name_is_norm_weight(names[i].name), names[i].is_norm, names[i].name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(knows_norms),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

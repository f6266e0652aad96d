/* SPDX-License-Identifier: Apache-2.0 */
/* test_names.c - spellings of Megatron's parameters (formats/fsdp_dtensor/FORMAT.md 5.1, 5.3, 5.5;
 * formats/torch_dist/FORMAT.md 4.3). */
#include "lib/model/names.h"
#include "tests/check.h"

#define DENSE DCPK_LAYER_QKV
#define MOE   (DCPK_LAYER_QKV | DCPK_LAYER_MOE)
#define MLA   (DCPK_LAYER_Q_UP_PROJ | DCPK_LAYER_KV_UP_PROJ)

/* A name, what canonical makes of it, and the live spellings of that under ANY. */
static const struct {
    const char *name;
    unsigned flags;
    const char *canonical;
    const char *any[5];
} cases[] = {
    {"embedding.word_embeddings.weight", .canonical = "embedding.word_embeddings.weight",
     .any = {"embedding.word_embeddings.weight"}},
    {"decoder.final_layernorm.weight", .canonical = "decoder.final_layernorm.weight",
     .any = {"decoder.final_layernorm.weight"}},
    {"decoder.layers.0.mixer.conv1d.weight", .canonical = "decoder.layers.0.mixer.conv1d_weight",
     .any = {"decoder.layers.0.mixer.conv1d_weight", "decoder.layers.0.mixer.conv1d.weight"}},
    /* An indexer needs what the norm gives. */
    {"decoder.layers.0.self_attention.q_layernorm.weight", .flags = MLA | DCPK_LAYER_SPARSE,
     .canonical = "decoder.layers.0.self_attention.q_layernorm.weight",
     .any = {"decoder.layers.0.self_attention.q_layernorm.weight"}},
    /* Gated DeltaNet's convolution is a module everywhere. */
    {"decoder.layers.0.self_attention.conv1d.weight",
     .canonical = "decoder.layers.0.self_attention.conv1d.weight",
     .any = {"decoder.layers.0.self_attention.conv1d.weight"}},
    {"decoder.layers.3.input_layernorm.weight", .flags = DENSE,
     .canonical = "decoder.layers.3.self_attention.linear_qkv.layer_norm_weight",
     .any = {"decoder.layers.3.self_attention.linear_qkv.layer_norm_weight",
             "decoder.layers.3.input_layernorm.weight"}},
    {"decoder.layers.3.self_attention.linear_qkv.layer_norm_bias", .flags = DENSE,
     .canonical = "decoder.layers.3.self_attention.linear_qkv.layer_norm_bias",
     .any = {"decoder.layers.3.self_attention.linear_qkv.layer_norm_bias",
             "decoder.layers.3.input_layernorm.bias"}},
    {"decoder.layers.3.pre_mlp_layernorm.weight", .flags = DENSE,
     .canonical = "decoder.layers.3.mlp.linear_fc1.layer_norm_weight",
     .any = {"decoder.layers.3.mlp.linear_fc1.layer_norm_weight",
             "decoder.layers.3.pre_mlp_layernorm.weight"}},
    /* A MoE layer's norm has one live name, but torch_dist of the local spec calls it as in a dense
       layer. */
    {"decoder.layers.1.mlp.linear_fc1.layer_norm_weight", .flags = MOE,
     .canonical = "decoder.layers.1.pre_mlp_layernorm.weight",
     .any = {"decoder.layers.1.pre_mlp_layernorm.weight"}},
    {"decoder.layers.1.pre_mlp_layernorm.weight", .flags = MOE,
     .canonical = "decoder.layers.1.pre_mlp_layernorm.weight",
     .any = {"decoder.layers.1.pre_mlp_layernorm.weight"}},
    {"decoder.layers.1.mlp.experts.local_experts.12.linear_fc1.weight", .flags = MOE,
     .canonical = "decoder.layers.1.mlp.experts.linear_fc1.weight12",
     .any = {"decoder.layers.1.mlp.experts.linear_fc1.weight12",
             "decoder.layers.1.mlp.experts.local_experts.12.linear_fc1.weight"}},
    {"decoder.layers.1.mlp.experts.linear_fc2.bias0", .flags = MOE,
     .canonical = "decoder.layers.1.mlp.experts.linear_fc2.bias0",
     .any = {"decoder.layers.1.mlp.experts.linear_fc2.bias0",
             "decoder.layers.1.mlp.experts.local_experts.0.linear_fc2.bias"}},
    {"decoder.layers.1.mlp.shared_experts.linear_fc1.weight", .flags = MOE,
     .canonical = "decoder.layers.1.mlp.shared_experts.linear_fc1.weight",
     .any = {"decoder.layers.1.mlp.shared_experts.linear_fc1.weight"}},
    /*
     * MLA: the layer's own norm is no part of linear_qkv, q_layernorm is one of linear_q_up_proj.
     */
    {"decoder.layers.0.input_layernorm.weight", .flags = MLA,
     .canonical = "decoder.layers.0.input_layernorm.weight",
     .any = {"decoder.layers.0.input_layernorm.weight"}},
    /* Unless its down-projections are fused, and the norm with them. */
    {"decoder.layers.0.self_attention.linear_qkv_down_proj.layer_norm_weight",
     .flags = MLA | DCPK_LAYER_Q_DOWN_PROJ, .canonical = "decoder.layers.0.input_layernorm.weight",
     .any = {"decoder.layers.0.input_layernorm.weight",
             "decoder.layers.0.self_attention.linear_qkv_down_proj.layer_norm_weight"}},
    /* Transformer Engine fuses the norms of Gated DeltaNet and Mamba too. */
    {"decoder.layers.0.input_layernorm.bias", .flags = DCPK_LAYER_DELTA_NET,
     .canonical = "decoder.layers.0.self_attention.in_proj.layer_norm_bias",
     .any = {"decoder.layers.0.self_attention.in_proj.layer_norm_bias",
             "decoder.layers.0.input_layernorm.bias"}},
    {"decoder.layers.0.self_attention.linear_qkv.layer_norm_weight", .flags = DCPK_LAYER_DELTA_NET,
     .canonical = "decoder.layers.0.self_attention.in_proj.layer_norm_weight",
     .any = {"decoder.layers.0.self_attention.in_proj.layer_norm_weight",
             "decoder.layers.0.input_layernorm.weight"}},
    {"mtp.layers.0.mtp_model_layer.layers.1.norm.weight", .flags = DCPK_LAYER_MIXER,
     .canonical = "mtp.layers.0.mtp_model_layer.layers.1.mixer.in_proj.layer_norm_weight",
     .any = {"mtp.layers.0.mtp_model_layer.layers.1.mixer.in_proj.layer_norm_weight",
             "mtp.layers.0.mtp_model_layer.layers.1.norm.weight"}},
    {"decoder.layers.0.mixer.norm.weight", .flags = DCPK_LAYER_MIXER,
     .canonical = "decoder.layers.0.mixer.norm.weight",
     .any = {"decoder.layers.0.mixer.norm.weight"}},
    /* Layers with one linear layer instead of their attention or MLP. */
    {"decoder.layers.5.input_layernorm.weight",
     .flags = DCPK_LAYER_LINEAR_ATTENTION | DCPK_LAYER_LINEAR_MLP,
     .canonical = "decoder.layers.5.self_attention.layer_norm_weight",
     .any = {"decoder.layers.5.self_attention.layer_norm_weight",
             "decoder.layers.5.input_layernorm.weight"}},
    {"decoder.layers.5.pre_mlp_layernorm.weight",
     .flags = DCPK_LAYER_LINEAR_ATTENTION | DCPK_LAYER_LINEAR_MLP,
     .canonical = "decoder.layers.5.mlp.layer_norm_weight",
     .any = {"decoder.layers.5.mlp.layer_norm_weight",
             "decoder.layers.5.pre_mlp_layernorm.weight"}},
    {"decoder.layers.0.self_attention.q_layernorm.weight", .flags = MLA,
     .canonical = "decoder.layers.0.self_attention.linear_q_up_proj.layer_norm_weight",
     .any = {"decoder.layers.0.self_attention.linear_q_up_proj.layer_norm_weight",
             "decoder.layers.0.self_attention.q_layernorm.weight"}},
    /* q/k norms of plain attention are their own. */
    {"decoder.layers.0.self_attention.q_layernorm.weight", .flags = DENSE,
     .canonical = "decoder.layers.0.self_attention.q_layernorm.weight",
     .any = {"decoder.layers.0.self_attention.q_layernorm.weight"}},
    {"mtp.layers.0.mtp_model_layer.pre_mlp_layernorm.weight", .flags = DENSE,
     .canonical = "mtp.layers.0.transformer_layer.mlp.linear_fc1.layer_norm_weight",
     .any = {"mtp.layers.0.transformer_layer.mlp.linear_fc1.layer_norm_weight",
             "mtp.layers.0.mtp_model_layer.mlp.linear_fc1.layer_norm_weight",
             "mtp.layers.0.transformer_layer.pre_mlp_layernorm.weight",
             "mtp.layers.0.mtp_model_layer.pre_mlp_layernorm.weight"}},
    {"mtp.layers.0.eh_proj.weight", .canonical = "mtp.layers.0.eh_proj.weight",
     .any = {"mtp.layers.0.eh_proj.weight"}},
    {"language_model.decoder.layers.7.input_layernorm.weight", .flags = DENSE,
     .canonical = "language_model.decoder.layers.7.self_attention.linear_qkv.layer_norm_weight",
     .any = {"language_model.decoder.layers.7.self_attention.linear_qkv.layer_norm_weight",
             "language_model.decoder.layers.7.input_layernorm.weight"}},
};
#define N_CASES (sizeof cases / sizeof cases[0])

static void names_have_their_canonical_form_and_spellings(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();

    (void)state;
    assert_non_null(arena);
    for (size_t i = 0; i < N_CASES; i++) {
        const char *canonical = dcpk_name_canonical(arena, cases[i].name, cases[i].flags, &err);
        struct dcpk_spellings spellings;
        size_t want = 0;

        CHECK_EQ_STR(canonical, cases[i].canonical, cases[i].name);
        CHECK_OK(
            dcpk_name_spellings(arena, canonical, cases[i].flags, DCPK_IMPL_ANY, &spellings, &err),
            cases[i].name);
        while (want < 5 && cases[i].any[want] != NULL)
            want++;
        CHECK_EQ_INT(spellings.n, want, cases[i].name);
        for (size_t s = 0; s < spellings.n; s++)
            CHECK_EQ_STR(spellings.names[s], cases[i].any[s], cases[i].name);
        /* Every spelling leads back. */
        for (size_t s = 0; s < spellings.n; s++)
            CHECK_EQ_STR(dcpk_name_canonical(arena, spellings.names[s], cases[i].flags, &err),
                         cases[i].canonical, spellings.names[s]);
    }
    dcpk_arena_free(arena);
}

static void one_implementation_has_one_spelling(void **state)
{
    static const struct {
        const char *canonical, *te, *local;
        unsigned flags;
    } one[] = {
        {"decoder.layers.0.self_attention.linear_qkv.layer_norm_weight",
         "decoder.layers.0.self_attention.linear_qkv.layer_norm_weight",
         "decoder.layers.0.input_layernorm.weight", DENSE},
        {"decoder.layers.0.mlp.experts.linear_fc1.weight3",
         "decoder.layers.0.mlp.experts.linear_fc1.weight3",
         "decoder.layers.0.mlp.experts.local_experts.3.linear_fc1.weight", MOE},
        {"decoder.layers.0.pre_mlp_layernorm.weight", "decoder.layers.0.pre_mlp_layernorm.weight",
         "decoder.layers.0.pre_mlp_layernorm.weight", MOE},
        {"mtp.layers.0.transformer_layer.self_attention.linear_proj.weight",
         "mtp.layers.0.transformer_layer.self_attention.linear_proj.weight",
         "mtp.layers.0.transformer_layer.self_attention.linear_proj.weight", DENSE},
    };
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();

    (void)state;
    assert_non_null(arena);
    for (size_t i = 0; i < sizeof one / sizeof one[0]; i++) {
        struct dcpk_spellings spellings;

        CHECK_OK(dcpk_name_spellings(arena, one[i].canonical, one[i].flags, DCPK_IMPL_TE,
                                     &spellings, &err),
                 one[i].canonical);
        CHECK_EQ_INT(spellings.n, 1, one[i].canonical);
        CHECK_EQ_STR(spellings.names[0], one[i].te, one[i].canonical);
        CHECK_OK(dcpk_name_spellings(arena, one[i].canonical, one[i].flags, DCPK_IMPL_LOCAL,
                                     &spellings, &err),
                 one[i].canonical);
        CHECK_EQ_INT(spellings.n, 1, one[i].canonical);
        CHECK_EQ_STR(spellings.names[0], one[i].local, one[i].canonical);
    }
    dcpk_arena_free(arena);
}

static void layers_are_found_with_their_flags(void **state)
{
    static const struct {
        const char *name;
        size_t layer;
        unsigned flags;
    } layers[] = {
        {"embedding.word_embeddings.weight", 0, 0},
        {"decoder.layers.12.mlp.router.weight", 18, DCPK_LAYER_MOE},
        {"decoder.layers.0.self_attention.linear_qkv.weight", 17, DCPK_LAYER_QKV},
        {"decoder.layers.0.self_attention.linear_qkv.layer_norm_weight", 17, 0},
        {"decoder.layers.0.self_attention.linear_q_down_proj.weight", 17, DCPK_LAYER_Q_DOWN_PROJ},
        {"decoder.layers.0.self_attention.core_attention.indexer.linear_wk.weight", 17,
         DCPK_LAYER_SPARSE},
        {"decoder.layers.0.self_attention.in_proj.weight", 17, DCPK_LAYER_DELTA_NET},
        {"mtp.layers.0.mtp_model_layer.layers.2.mixer.in_proj.weight", 38, DCPK_LAYER_MIXER},
        {"decoder.layers.0.self_attention.weight", 17, DCPK_LAYER_LINEAR_ATTENTION},
        {"decoder.layers.0.mlp.weight", 17, DCPK_LAYER_LINEAR_MLP},
        {"mtp.layers.0.transformer_layer.mlp.experts.linear_fc1.weight0", 31, DCPK_LAYER_MOE},
        {"mtp.layers.0.enorm.weight", 13, 0},
        {"decoder.layers.mlp.linear_fc1.weight", 0, 0},    /* stacked: no number */
        {"decoder.sublayers.3.x", 0, 0},                   /* another word */
        {"vision.layers.1.merger.layers.2.weight", 32, 0}, /* the innermost counts */
    };

    (void)state;
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        CHECK_EQ_INT(dcpk_name_layer(layers[i].name), layers[i].layer, layers[i].name);
        CHECK_EQ_INT(dcpk_name_layer_flags(layers[i].name), layers[i].flags, layers[i].name);
    }
}

static void fc1_and_experts_are_known(void **state)
{
    static const struct {
        const char *name;
        bool fc1, expert;
    } kinds[] = {
        {"decoder.layers.0.mlp.linear_fc1.weight", true, false},
        {"decoder.layers.0.mlp.linear_fc1.bias", true, false},
        {"decoder.layers.0.mlp.linear_fc1.layer_norm_weight", false, false},
        {"decoder.layers.0.mlp.linear_fc2.weight", false, false},
        {"decoder.layers.0.mlp.experts.linear_fc1.weight12", true, true},
        {"decoder.layers.0.mlp.experts.linear_fc1.bias12", true, true},
        {"decoder.layers.0.mlp.experts.linear_fc2.weight12", false, true},
        {"decoder.layers.0.mlp.shared_experts.linear_fc1.weight", true, false},
        {"mtp.layers.0.transformer_layer.mlp.linear_fc1.weight", true, false},
        {"vision.blocks.mlp.linear_fc1.weight", true, false},
        {"decoder.layers.0.mlp.linear_fc1.weight_scale", false, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        CHECK_EQ_INT(dcpk_name_is_fc1(kinds[i].name), kinds[i].fc1, kinds[i].name);
        CHECK_EQ_INT(dcpk_name_is_expert(kinds[i].name), kinds[i].expert, kinds[i].name);
    }
    CHECK(dcpk_name_in_module("language_model.decoder.x", "language_model"), "at the start");
    CHECK(dcpk_name_in_module("model.language_model.decoder.x", "language_model"), "in the middle");
    CHECK(!dcpk_name_in_module("my_language_model.decoder.x", "language_model"), "part of a word");
    CHECK(!dcpk_name_in_module("decoder.language_model", "language_model"), "at the end");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_have_their_canonical_form_and_spellings),
        cmocka_unit_test(one_implementation_has_one_spelling),
        cmocka_unit_test(layers_are_found_with_their_flags),
        cmocka_unit_test(fc1_and_experts_are_known),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

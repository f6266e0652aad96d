/* SPDX-License-Identifier: Apache-2.0 */
/* test_registered.c - the table of Megatron's modules: axes of tensor parallelism, order of
 * registration. */
#include "lib/model/registered.h"

#include "tests/check.h"

#define L           "decoder.layers.3."
#define M           "mtp.layers.0."
#define N_OF(table) (sizeof(table) / sizeof(table)[0])

/* --- what tensor parallelism cuts --- */

enum { WHOLE = -1, UNKNOWN = DCPK_TP_UNKNOWN };

/*
 * formats/torch_dist/FORMAT.md 4.3, 4.5, 4.6 and formats/fsdp_dtensor/FORMAT.md 8.2; MLA:
 * multi_latent_attention.py.
 */
static const struct {
    int te, local; /* the axis: of Transformer Engine's modules, of local ones */
    const char *names[20];
} axes[] = {
    {0, 0,
     .names = {"embedding.word_embeddings.weight", "output_layer.weight", "output_layer.bias",
               L "self_attention.linear_qkv.weight", L "self_attention.linear_qkv.bias",
               L "self_attention.linear_kv_up_proj.weight", L "mlp.linear_fc1.weight",
               L "mlp.linear_fc1.bias", L "mlp.experts.linear_fc1.weight7",
               L "mlp.shared_experts.linear_fc1.weight", M "eh_proj.weight",
               M "transformer_layer.mlp.experts.linear_fc1.weight3", L "self_attention.weight",
               L "mlp.bias", L "mixer.in_proj.weight", L "mixer.A_log", L "mixer.norm.weight"}},
    {WHOLE, WHOLE,
     .names = {"embedding.position_embeddings.weight", "decoder.final_layernorm.weight",
               L "self_attention.linear_qkv.layer_norm_weight",
               L "self_attention.linear_qkv.layer_norm_bias", L "self_attention.linear_proj.bias",
               L "self_attention.q_layernorm.weight", L "mlp.linear_fc1.layer_norm_weight",
               L "mlp.linear_fc2.bias", L "mlp.router.weight", L "mlp.router.expert_bias",
               L "mlp.experts.linear_fc2.bias0", L "mlp.shared_experts.gate_weight",
               M "enorm.weight", L "self_attention.layer_norm_weight", L "mlp.layer_norm_bias",
               L "self_attention.out_norm.weight",
               L "self_attention.core_attention.indexer.linear_wq_b.weight",
               L "self_attention.core_attention.indexer.k_norm.bias"}},
    {1, 1,
     .names = {L "self_attention.linear_proj.weight", L "mlp.linear_fc2.weight",
               L "mlp.experts.linear_fc2.weight12", L "mlp.shared_experts.linear_fc2.weight",
               M "transformer_layer.mlp.linear_fc2.weight", L "mixer.out_proj.weight"}},
    {WHOLE, 0, .names = {L "self_attention.linear_q_down_proj.weight"}},
    {UNKNOWN, UNKNOWN,
     .names = {L "mlp.experts.linear_fc1.weight", L "mlp.experts.linear_fc1.weight7x",
               L "mlp.linear_fc1.weight7", L "mlp.linear_fc1.", L "mlp.linear_fc1.scale",
               "decoder.layers.x.mlp.linear_fc1.weight",
               "decoder.layers.99999999999999999999.mlp.linear_fc1.weight", ""}},
};

static const struct {
    const char *name;
    int64_t number;
} experts[] = {
    {L "mlp.experts.linear_fc1.weight7", 7},
    {L "mlp.experts.linear_fc2.weight12", 12},
    {L "mlp.experts.linear_fc2.bias0", 0},
    {M "transformer_layer.mlp.experts.linear_fc1.weight3", 3},
};

static const char *const buffers[] = {L "mlp.router.expert_bias"};

static int64_t expert_of(const char *name)
{
    for (size_t i = 0; i < N_OF(experts); i++)
        if (strcmp(experts[i].name, name) == 0)
            return experts[i].number;
    return -1;
}

static bool is_buffer(const char *name)
{
    for (size_t i = 0; i < N_OF(buffers); i++)
        if (strcmp(buffers[i], name) == 0)
            return true;
    return false;
}

static void names_tell_the_axis(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_OF(axes); i++)
        for (const char *const *name = axes[i].names; *name != NULL; name++) {
            struct dcpk_registered found;

            dcpk_registered_find(*name, DCPK_SPEC_TE, &found);
            CHECK_EQ_INT(found.tp_axis, axes[i].te, *name);
            CHECK_EQ_INT(found.expert, expert_of(*name), *name);
            CHECK_EQ_INT(found.is_buffer, is_buffer(*name), *name);
            dcpk_registered_find(*name, 0, &found);
            CHECK_EQ_INT(found.tp_axis, axes[i].local, *name);
        }
}

/* --- the order of registration --- */

/*
 * formats/fsdp_dtensor/FORMAT.md 8.2, in the names of torch_dist on disk
 * (formats/torch_dist/FORMAT.md 4.3).
 */
static const char *const local_order[] = {
    "embedding.word_embeddings.weight",
    "embedding.position_embeddings.weight",
    "decoder.layers.0.self_attention.linear_qkv.layer_norm_weight",
    "decoder.layers.0.self_attention.linear_qkv.layer_norm_bias",
    "decoder.layers.0.self_attention.linear_proj.weight",
    "decoder.layers.0.self_attention.linear_proj.bias",
    "decoder.layers.0.self_attention.linear_qkv.weight",
    "decoder.layers.0.self_attention.linear_qkv.bias",
    "decoder.layers.0.self_attention.q_layernorm.weight",
    "decoder.layers.0.self_attention.k_layernorm.weight",
    "decoder.layers.0.mlp.linear_fc1.layer_norm_weight",
    "decoder.layers.0.mlp.linear_fc1.weight",
    "decoder.layers.0.mlp.linear_fc2.weight",
    "decoder.layers.1.self_attention.linear_qkv.layer_norm_weight",
    "decoder.layers.1.mlp.linear_fc1.layer_norm_weight",
    "decoder.layers.1.mlp.router.weight",
    "decoder.layers.1.mlp.experts.linear_fc1.weight0",
    "decoder.layers.1.mlp.experts.linear_fc1.bias0",
    "decoder.layers.1.mlp.experts.linear_fc2.weight0",
    "decoder.layers.1.mlp.experts.linear_fc1.weight1",
    "decoder.layers.1.mlp.experts.linear_fc2.weight1",
    "decoder.layers.1.mlp.experts.linear_fc1.weight10",
    "decoder.layers.1.mlp.shared_experts.gate_weight",
    "decoder.layers.1.mlp.shared_experts.linear_fc1.weight",
    "decoder.layers.1.mlp.shared_experts.linear_fc2.weight",
    "decoder.layers.10.self_attention.linear_proj.weight",
    "decoder.final_layernorm.weight",
    "output_layer.weight",
};
static const char *const te_order[] = {
    "embedding.word_embeddings.weight",
    "decoder.layers.0.self_attention.linear_proj.weight",
    "decoder.layers.0.self_attention.linear_qkv.layer_norm_weight",
    "decoder.layers.0.self_attention.linear_qkv.weight",
    "decoder.layers.0.self_attention.q_layernorm.weight",
    "decoder.layers.0.mlp.linear_fc1.layer_norm_weight",
    "decoder.layers.0.mlp.linear_fc1.weight",
    "decoder.layers.0.mlp.linear_fc2.weight",
    "decoder.layers.1.self_attention.linear_proj.weight",
    "decoder.layers.1.pre_mlp_layernorm.weight",
    "decoder.layers.1.mlp.router.weight",
    "decoder.layers.1.mlp.experts.linear_fc1.weight0",
    "decoder.layers.1.mlp.experts.linear_fc1.weight1",
    "decoder.layers.1.mlp.experts.linear_fc1.weight10",
    "decoder.layers.1.mlp.experts.linear_fc2.weight0",
    "decoder.layers.1.mlp.experts.linear_fc2.weight1",
    "decoder.layers.1.mlp.shared_experts.linear_fc1.weight",
    "decoder.final_layernorm.weight",
    "output_layer.weight",
};

/* Mamba: assignments in MC/ssm/mamba_mixer.py; the convolution was a module before core 0.19. */
static const char *const mamba_order[] = {
    "decoder.layers.0.mixer.conv1d.weight",
    "decoder.layers.0.mixer.conv1d.bias",
    "decoder.layers.0.mixer.dt_bias",
    "decoder.layers.0.mixer.A_log",
    "decoder.layers.0.mixer.D",
    "decoder.layers.0.mixer.in_proj.layer_norm_weight",
    "decoder.layers.0.mixer.in_proj.weight",
    "decoder.layers.0.mixer.norm.weight",
    "decoder.layers.0.mixer.out_proj.weight",
    "decoder.layers.1.mixer.dt_bias",
    "decoder.final_norm.weight",
};
static const char *const old_mamba_order[] = {
    "decoder.layers.0.mixer.dt_bias",
    "decoder.layers.0.mixer.A_log",
    "decoder.layers.0.mixer.D",
    "decoder.layers.0.mixer.in_proj.weight",
    "decoder.layers.0.mixer.conv1d.weight",
    "decoder.layers.0.mixer.conv1d.bias",
    "decoder.layers.0.mixer.norm.weight",
    "decoder.layers.0.mixer.out_proj.weight",
    "decoder.layers.0.norm.weight",
};
/* MC/transformer/multi_latent_attention.py, multi_token_prediction.py, ssm/gated_delta_net.py;
 * biases of grouped linears: transformer_engine/pytorch/module/grouped_linear.py. */
static const char *const other_order[] = {
    "embedding.word_embeddings.weight",
    "decoder.layers.0.input_layernorm.weight",
    "decoder.layers.0.self_attention.dt_bias",
    "decoder.layers.0.self_attention.A_log",
    "decoder.layers.0.self_attention.in_proj.weight",
    "decoder.layers.0.self_attention.conv1d.weight",
    "decoder.layers.0.self_attention.out_norm.weight",
    "decoder.layers.0.self_attention.out_proj.weight",
    "decoder.layers.1.input_layernorm.weight",
    "decoder.layers.1.self_attention.core_attention.indexer.linear_wq_b.weight",
    "decoder.layers.1.self_attention.core_attention.indexer.linear_wk.weight",
    "decoder.layers.1.self_attention.core_attention.indexer.k_norm.weight",
    "decoder.layers.1.self_attention.core_attention.indexer.k_norm.bias",
    "decoder.layers.1.self_attention.core_attention.indexer.linear_weights_proj.weight",
    "decoder.layers.1.self_attention.linear_proj.weight",
    "decoder.layers.1.self_attention.linear_q_down_proj.weight",
    "decoder.layers.1.self_attention.linear_q_up_proj.weight",
    "decoder.layers.1.self_attention.linear_kv_down_proj.weight",
    "decoder.layers.1.self_attention.linear_kv_up_proj.weight",
    "decoder.layers.1.self_attention.q_layernorm.weight",
    "decoder.layers.1.self_attention.kv_layernorm.weight",
    "decoder.layers.1.mlp.experts.linear_fc1.weight0",
    "decoder.layers.1.mlp.experts.linear_fc1.bias0",
    "decoder.layers.1.mlp.experts.linear_fc1.weight1",
    "decoder.layers.1.mlp.experts.linear_fc1.bias1",
    "decoder.layers.1.mlp.experts.linear_fc2.weight0",
    "decoder.final_layernorm.weight",
    "mtp.layers.0.enorm.weight",
    "mtp.layers.0.hnorm.weight",
    "mtp.layers.0.eh_proj.weight",
    "mtp.layers.0.transformer_layer.self_attention.linear_proj.weight",
    "mtp.layers.0.transformer_layer.mlp.experts.linear_fc1.weight1",
    "mtp.layers.0.transformer_layer.mlp.experts.linear_fc2.weight0",
    "mtp.layers.0.final_layernorm.weight",
    "mtp.layers.1.enorm.weight",
    "mtp.layers.1.mtp_model_layer.layers.0.mixer.D",
    "mtp.layers.1.mtp_model_layer.layers.0.mixer.in_proj.weight",
    "mtp.layers.1.mtp_model_layer.layers.1.mlp.linear_fc1.weight",
    "mtp.layers.1.mtp_model_layer.layers.10.mlp.linear_fc1.weight",
    "mtp.layers.1.final_layernorm.weight",
    "output_layer.weight",
};

static const struct {
    const char *label;
    unsigned spec;
    const char *const *names;
    size_t n;
} orders[] = {
    {"local", 0, local_order, N_OF(local_order)},
    {"te", DCPK_SPEC_TE | DCPK_SPEC_GROUPED, te_order, N_OF(te_order)},
    {"mamba", DCPK_SPEC_TE, mamba_order, N_OF(mamba_order)},
    {"mamba before 0.19", DCPK_SPEC_CONV_MODULE, old_mamba_order, N_OF(old_mamba_order)},
    {"others, with grouped experts", DCPK_SPEC_GROUPED, other_order, N_OF(other_order)},
};

static void modules_register_in_their_order(void **state)
{
    (void)state;
    for (size_t o = 0; o < N_OF(orders); o++)
        for (size_t i = 0; i < orders[o].n; i++)
            for (size_t k = 0; k < orders[o].n; k++) {
                struct dcpk_registered a, b;

                CHECK(dcpk_registered_find(orders[o].names[i], orders[o].spec, &a),
                      orders[o].names[i]);
                dcpk_registered_find(orders[o].names[k], orders[o].spec, &b);
                CHECK_EQ_INT(dcpk_registered_compare(&a, &b), i < k ? -1 : i > k,
                             orders[o].names[i]);
            }
}

static void names_tell_the_section(void **state)
{
    static const struct {
        const char *name;
        enum dcpk_section section;
        int64_t layer, expert;
    } names[] = {
        {"decoder.layers.7.mlp.experts.linear_fc2.weight12", DCPK_DECODER_LAYERS, 7, 12},
        {"mtp.layers.1.transformer_layer.mlp.router.weight", DCPK_MTP_LAYERS, 1, -1},
        {"embedding.position_embeddings.weight", DCPK_EMBEDDING, 0, -1},
        {"decoder.final_norm.weight", DCPK_FINAL_NORM, 0, -1},
        {"output_layer.weight", DCPK_OUTPUT_LAYER, 0, -1},
    };
    struct dcpk_registered reg;

    (void)state;
    for (size_t i = 0; i < N_OF(names); i++) {
        CHECK(dcpk_registered_find(names[i].name, 0, &reg), names[i].name);
        CHECK_EQ_INT(reg.section, names[i].section, names[i].name);
        CHECK_EQ_INT(reg.layer, names[i].layer, names[i].name);
        CHECK_EQ_INT(reg.expert, names[i].expert, names[i].name);
    }
}

static void names_without_a_known_order_are_said_so(void **state)
{
    static const char *const unknown[] = {
        "mtp.layers.0.mixer.weight",
        "mtp.layers.0.mtp_model_layer.mlp.linear_fc1.weight",
        "decoder.layers.0.mixer.in_proj.scale",
        "decoder.layers.x.mlp.linear_fc1.weight",
        "decoder.layers.1234567890.mlp.linear_fc1.weight",
        "decoder.layers.0",
        "decoder.layers.0.mlp.linear_fc1.scale",
        "decoder.layers.0.mlp.experts.linear_fc1.weight",
        "decoder.layers.0.mlp.experts.linear_fc3.weight0",
        "",
    };
    struct dcpk_registered reg, last;

    (void)state;
    dcpk_registered_find("output_layer.weight", 0, &last);
    for (size_t i = 0; i < N_OF(unknown); i++) {
        CHECK(!dcpk_registered_find(unknown[i], 0, &reg), unknown[i]);
        CHECK(dcpk_registered_compare(&last, &reg) < 0, unknown[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_tell_the_axis),
        cmocka_unit_test(modules_register_in_their_order),
        cmocka_unit_test(names_tell_the_section),
        cmocka_unit_test(names_without_a_known_order_are_said_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

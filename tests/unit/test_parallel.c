/* SPDX-License-Identifier: Apache-2.0 */
/* test_parallel.c - a model's parameters in their order of registration, and FSDP units. */
#include "lib/model/registered.h"

#include "tests/fake_model.h"

#define L "decoder.layers.3."

/*
 * In the order in which named_parameters() gives them, with the unit; -1: outside. Canonical names.
 */
struct registered {
    const char *name;
    int unit;
};

/* --transformer-impl local with biases, experts one by one (formats/fsdp_dtensor/FORMAT.md 8.2). */
static const struct registered local_order[] = {
    {"embedding.word_embeddings.weight", -1},
    {"embedding.position_embeddings.weight", -1},
    {"decoder.layers.2.self_attention.linear_qkv.layer_norm_weight", 0},
    {"decoder.layers.2.self_attention.linear_proj.weight", 0},
    {"decoder.layers.2.self_attention.linear_proj.bias", 0},
    {"decoder.layers.2.self_attention.linear_qkv.weight", 0},
    {"decoder.layers.2.self_attention.linear_qkv.bias", 0},
    {"decoder.layers.2.self_attention.q_layernorm.weight", 0},
    {"decoder.layers.2.self_attention.k_layernorm.weight", 0},
    {"decoder.layers.2.mlp.linear_fc1.layer_norm_weight", 0},
    {"decoder.layers.2.mlp.linear_fc1.weight", 0},
    {"decoder.layers.2.mlp.linear_fc2.weight", 0},
    {"decoder.layers.10.pre_mlp_layernorm.weight", 1},
    {"decoder.layers.10.mlp.router.weight", 1},
    {"decoder.layers.10.mlp.experts.linear_fc1.weight0", 1},
    {"decoder.layers.10.mlp.experts.linear_fc2.weight0", 1},
    {"decoder.layers.10.mlp.experts.linear_fc1.weight1", 1},
    {"decoder.layers.10.mlp.experts.linear_fc2.weight1", 1},
    {"decoder.layers.10.mlp.shared_experts.gate_weight", 1},
    {"decoder.layers.10.mlp.shared_experts.linear_fc1.weight", 1},
    {"decoder.final_layernorm.weight", -1},
    {"output_layer.weight", -1},
};

/*
 * Transformer Engine: fused norms with their linear, grouped experts; MTP's wrapper around a unit.
 */
static const struct registered te_order[] = {
    {"embedding.word_embeddings.weight", -1},
    {"decoder.layers.0.self_attention.linear_proj.bias", 0},
    {"decoder.layers.0.self_attention.linear_qkv.layer_norm_weight", 0},
    {"decoder.layers.0.self_attention.linear_qkv.weight", 0},
    {"decoder.layers.0.mlp.experts.linear_fc1.weight2", 0},
    {"decoder.layers.0.mlp.experts.linear_fc1.weight10", 0},
    {"decoder.layers.0.mlp.experts.linear_fc2.weight2", 0},
    {"decoder.final_layernorm.weight", -1},
    {"mtp.layers.0.enorm.weight", -1},
    {"mtp.layers.0.hnorm.weight", -1},
    {"mtp.layers.0.eh_proj.weight", -1},
    {"mtp.layers.0.transformer_layer.self_attention.linear_proj.weight", 1},
    {"mtp.layers.0.transformer_layer.mlp.linear_fc2.weight", 1},
    {"mtp.layers.0.final_layernorm.weight", -1},
    {"mtp.layers.1.enorm.weight", -1},
    {"mtp.layers.1.transformer_layer.mlp.linear_fc2.weight", 2},
    {"output_layer.weight", -1},
    {"something.else", -1},
};

/* A hybrid stack inside multi-token prediction, as Megatron-FSDP of core 0.19 made its units. */
static const struct registered hybrid_order[] = {
    {"embedding.word_embeddings.weight", -1},
    {"decoder.layers.0.mixer.in_proj.weight", 0},
    {"decoder.layers.1.mlp.linear_fc2.weight", 1},
    {"decoder.final_norm.weight", -1},
    {"mtp.layers.0.enorm.weight", -1},
    {"mtp.layers.0.mtp_model_layer.layers.0.mixer.dt_bias", 2},
    {"mtp.layers.0.mtp_model_layer.layers.0.mixer.in_proj.weight", 2},
    {"mtp.layers.0.mtp_model_layer.layers.1.mlp.linear_fc1.weight", 3},
    {"mtp.layers.0.mtp_model_layer.layers.1.mlp.linear_fc2.weight", 3},
    {"mtp.layers.0.final_layernorm.weight", -1},
    {"mtp.layers.1.mtp_model_layer.layers.0.mixer.in_proj.weight", 4},
    {"output_layer.weight", -1},
};

/* A model of the listed parameters, added in steps of `step`, which is prime to their number: with
 * another one than 1 in another order than theirs. */
static struct dcpk_model *make_model(struct fake *fake, const struct registered *order, size_t n,
                                     size_t step, const char *label)
{
    struct dcpk_model *model = fake_model_new(fake_open(fake, label), label);

    for (size_t i = 0; i < n; i++)
        fake_model_param(model, order[i * step % n].name);
    CHECK_EQ_INT(model->n_params, n, label);
    return model;
}

static void check_order(const struct registered *order, size_t n, enum dcpk_impl impl,
                        const char *label)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct fake fake = {0};
    struct dcpk_model *model = make_model(&fake, order, n, 5, label);
    uint32_t param = fake_model_param(model, L "mlp.router.expert_bias");

    CHECK_OK(dcpk_rules_parallel(model, impl, &err), label);
    CHECK_EQ_INT(model->params[param].place, DCPK_NO_PLACE, "a buffer");
    for (size_t i = 0, place = 0; i < n; i++) {
        param = fake_model_param(model, order[i].name);
        CHECK(i == 0 || model->params[param].place > place, order[i].name);
        place = model->params[param].place;
        CHECK_EQ_INT(model->params[param].unit == DCPK_NO_UNIT, order[i].unit < 0, order[i].name);
    }
    fake_model_close(model);
    fake_release(&fake);
}

/* Parameters share a unit exactly where the list says so. */
static void check_units(const struct registered *order, size_t n, enum dcpk_impl impl,
                        const char *label)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct fake fake = {0};
    struct dcpk_model *model = make_model(&fake, order, n, 1, label);

    CHECK_OK(dcpk_rules_parallel(model, impl, &err), label);
    for (size_t i = 0; i < n; i++) {
        const uint32_t want = order[i].unit < 0 ? DCPK_NO_UNIT : (uint32_t)order[i].unit;

        CHECK_EQ_INT(model->params[i].unit, want, order[i].name);
        CHECK_EQ_INT(model->params[i].place, i, order[i].name);
    }
    fake_model_close(model);
    fake_release(&fake);
}

static void parameters_are_in_order(void **state)
{
    const size_t n_local = sizeof local_order / sizeof local_order[0],
                 n_te = sizeof te_order / sizeof te_order[0];

    (void)state;
    check_order(local_order, n_local - 1, DCPK_IMPL_LOCAL, "local"); /* 21: 5 is prime to it */
    check_order(te_order, n_te, DCPK_IMPL_TE, "te");
    check_order(te_order, n_te, DCPK_IMPL_ANY, "any, no args");
    check_units(local_order, n_local, DCPK_IMPL_LOCAL, "local units");
    check_units(te_order, n_te, DCPK_IMPL_TE, "te units");
    check_units(hybrid_order, sizeof hybrid_order / sizeof hybrid_order[0], DCPK_IMPL_LOCAL,
                "hybrid units");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_are_in_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* test_megatron_slots.c - which parameters share a stored tensor, and its keys:
 * formats/torch_dist/FORMAT.md 4.2 to 4.6. */
#include <stdlib.h>

#include "formats/megatron/megatron_slots.h"
#include "tests/fake_model.h"

#define MAX_NAMES 12

/* A model of parameters by name, one weight of shape [rows, 2] each. */
struct given {
    const char *names[MAX_NAMES];
    int64_t rows[MAX_NAMES]; /* 0: 3 */
    struct fake_arg arg;     /* without a name: no args */
    const char *impl;
};

static struct dcpk_model *make_model(const struct given *g, const char *label)
{
    struct dcpk_model *model = fake_model_new(NULL, label);

    if (g->arg.name != NULL)
        model->args = fake_args(model->arena, (const struct fake_arg[]){g->arg, {.name = NULL}});
    for (size_t i = 0; i < MAX_NAMES && g->names[i] != NULL; i++)
        fake_model_weight(model, g->names[i], 2, g->rows[i] == 0 ? 3 : g->rows[i], 2);
    return model;
}

static dcpk_status find(const struct given *g, const char *label, struct dcpk_model **model,
                        struct dcpk_output **out, struct dcpk_slots *slots, struct dcpk_error *err)
{
    *model = make_model(g, label);
    CHECK_EQ_INT(dcpk_output_new(NULL, NULL, out, err), DCPK_OK, label);
    (*out)->target.impl = g->impl;
    return dcpk_slots_find(*model, *out, slots, err);
}

#define QKV   "self_attention.linear_qkv.weight"
#define FC1   "mlp.experts.linear_fc1.weight"
#define EXPS  "mlp.experts.experts.linear_fc1.weight"
#define NORM  "pre_mlp_layernorm.weight"
#define FUSED "mlp.linear_fc1.layer_norm_weight"

static void slots_are_found(void **state)
{
    static const struct {
        const char *label;
        struct given given;
        bool is_stacked, is_homogeneous;
        struct {
            const char *keys[2];
            int64_t n_layers, n_experts; /* 0: no such axis */
        } slots[5];
    } cases[] = {
        {"the local spec renames no norm of MLA",
         {.names = {"decoder.layers.0.self_attention.linear_kv_up_proj.weight",
                    "decoder.layers.0.input_layernorm.weight",
                    "decoder.layers.0.mlp.linear_fc1.layer_norm_weight"}},
         true,
         true,
         {{{"decoder.layers.self_attention.linear_kv_up_proj.weight"}, 1, 0},
          {{"decoder.layers.input_layernorm.weight"}, 1, 0},
          {{"decoder.layers.mlp.linear_fc1.layer_norm_weight",
            "decoder.layers.pre_mlp_layernorm.weight"},
           1,
           0}}},
        {"the layer inside multi-token prediction has both norms",
         {.names = {"mtp.layers.0.enorm.weight",
                    "mtp.layers.0.transformer_layer.pre_mlp_layernorm.weight"}},
         true,
         true,
         {{{"mtp.layers.0.enorm.weight"}, 0, 0},
          {{"mtp.layers.0.transformer_layer.pre_mlp_layernorm.weight",
            "mtp.layers.0.transformer_layer.mlp.linear_fc1.layer_norm_weight"},
           0,
           0}}},
        {"a hybrid stack renames no norm",
         {.names = {"decoder.layers.0.self_attention.linear_kv_up_proj.weight",
                    "decoder.layers.1.mixer.in_proj.layer_norm_weight",
                    "decoder.layers.2.self_attention.in_proj.layer_norm_weight",
                    "decoder.layers.3.self_attention.linear_qkv.layer_norm_weight"},
          .arg = {"linear_attention_freq", .value = 4}},
         false,
         false,
         {{{"decoder.layers.0.self_attention.linear_kv_up_proj.weight"}, 0, 0},
          {{"decoder.layers.1.mixer.in_proj.layer_norm_weight", "decoder.layers.1.norm.weight"},
           0,
           0},
          {{"decoder.layers.2.self_attention.in_proj.layer_norm_weight",
            "decoder.layers.2.input_layernorm.weight"},
           0,
           0},
          {{"decoder.layers.3.self_attention.linear_qkv.layer_norm_weight",
            "decoder.layers.3.input_layernorm.weight"},
           0,
           0}}},
        {"layers are stacked",
         {.names = {"embedding.word_embeddings.weight", "decoder.layers.0." QKV,
                    "decoder.layers.1." QKV}},
         true,
         true,
         {{{"embedding.word_embeddings.weight"}, 0, 0}, {{"decoder.layers." QKV}, 2, 0}}},
        {"experts behind layers",
         {.names = {"decoder.layers.0." FC1 "0", "decoder.layers.0." FC1 "1",
                    "decoder.layers.1." FC1 "1", "decoder.layers.1." FC1 "0"},
          .arg = {"num_experts", .value = 2}},
         true,
         true,
         {{{"decoder.layers." EXPS}, 2, 2}}},
        {"moe_layer_freq as a list keeps layers apart",
         {.names = {"decoder.layers.0." QKV, "decoder.layers.1." QKV},
          .arg = {"moe_layer_freq", .value = 1, .is_list = true}},
         false,
         false,
         {{{"decoder.layers.0." QKV}, 0, 0}, {{"decoder.layers.1." QKV}, 0, 0}}},
        {"linear_attention_freq above 1 too",
         {.names = {"decoder.layers.0." FC1 "0", "decoder.layers.0." FC1 "1"},
          .arg = {"linear_attention_freq", .value = 4}},
         false,
         false,
         {{{"decoder.layers.0." EXPS}, 0, 2}}},
        {"a Mamba mixer too, and its convolution is called as the module that it was",
         {.names = {"decoder.layers.0.mixer.in_proj.weight", "decoder.layers.0.mixer.conv1d_weight",
                    "decoder.layers.0.mixer.out_proj.weight", "decoder.layers.0.mixer.dt_bias",
                    "decoder.layers.0.mixer.D"},
          .rows = {2 * 2 + 2 * 1 + 3, 2 + 2 * 1}},
         false,
         false,
         {{{"decoder.layers.0.mixer.in_proj.weight"}, 0, 0},
          {{"decoder.layers.0.mixer.conv1d.weight"}, 0, 0},
          {{"decoder.layers.0.mixer.out_proj.weight"}, 0, 0},
          {{"decoder.layers.0.mixer.dt_bias"}, 0, 0},
          {{"decoder.layers.0.mixer.D"}, 0, 0}}},
        {"a frequency of 1 does not",
         {.names = {"decoder.layers.0." QKV}, .arg = {"moe_layer_freq", .value = 1}},
         true,
         true,
         {{{"decoder.layers." QKV}, 1, 0}}},
        {"layers of two shapes are apart, and args do not say so",
         {.names = {"decoder.layers.0." QKV, "decoder.layers.1." QKV}, .rows = {3, 4}},
         false,
         true,
         {{{"decoder.layers.0." QKV}, 0, 0}, {{"decoder.layers.1." QKV}, 0, 0}}},
        {"a layer that lacks a parameter",
         {.names = {"decoder.layers.0." QKV, "decoder.layers.0." FUSED, "decoder.layers.1." QKV}},
         false,
         true,
         {{{"decoder.layers.0." QKV}, 0, 0},
          {{"decoder.layers.0." FUSED}, 0, 0},
          {{"decoder.layers.1." QKV}, 0, 0}}},
        {"a block of two layers beside one of one",
         {.names = {"decoder.layers.0." QKV, "decoder.layers.1." QKV, "encoder.layers.0." QKV}},
         true,
         true,
         {{{"decoder.layers." QKV}, 2, 0}, {{"encoder.layers." QKV}, 1, 0}}},
        {"multi-token prediction is never stacked",
         {.names = {"mtp.layers.0.transformer_layer." QKV,
                    "mtp.layers.0.transformer_layer." FC1 "0"}},
         true,
         true,
         {{{"mtp.layers.0.transformer_layer." QKV}, 0, 0},
          {{"mtp.layers.0.transformer_layer." EXPS}, 0, 1}}},
        {"shared experts are dense",
         {.names = {"decoder.layers.0.mlp.shared_experts.linear_fc1.weight"}},
         true,
         true,
         {{{"decoder.layers.mlp.shared_experts.linear_fc1.weight"}, 1, 0}}},
        {"a MoE layer's norm has two names",
         {.names = {"decoder.layers.0." NORM}},
         true,
         true,
         {{{"decoder.layers." NORM, "decoder.layers." FUSED}, 1, 0}}},
        {"Transformer Engine's only",
         {.names = {"decoder.layers.0." NORM}, .impl = "te"},
         true,
         true,
         {{{"decoder.layers." NORM}, 1, 0}}},
        {"the local spec's only",
         {.names = {"decoder.layers.0." NORM, "decoder.layers.0." QKV}, .impl = "local"},
         true,
         true,
         {{{"decoder.layers." FUSED}, 1, 0}, {{"decoder.layers." QKV}, 1, 0}}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *label = cases[i].label;
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_model *model = NULL;
        struct dcpk_output *out = NULL;
        struct dcpk_slots slots = {.n = 0};
        size_t n = 0;

        CHECK_OK(find(&cases[i].given, label, &model, &out, &slots, &err), label);
        CHECK_EQ_INT(slots.is_stacked, cases[i].is_stacked, label);
        CHECK_EQ_INT(slots.is_homogeneous_by_args, cases[i].is_homogeneous, label);
        for (; n < 5 && cases[i].slots[n].keys[0] != NULL; n++) {
            const struct dcpk_slot *slot = &slots.list[n];
            const int64_t layers = cases[i].slots[n].n_layers,
                          experts = cases[i].slots[n].n_experts;

            CHECK(n < slots.n, label);
            CHECK_EQ_STR(slot->keys[0], cases[i].slots[n].keys[0], label);
            CHECK_EQ_INT(slot->n_keys, cases[i].slots[n].keys[1] != NULL ? 2 : 1, label);
            if (slot->n_keys == 2)
                CHECK_EQ_STR(slot->keys[1], cases[i].slots[n].keys[1], label);
            CHECK_EQ_INT(slot->has_layers ? slot->n_layers : 0, layers, label);
            CHECK_EQ_INT(slot->has_experts ? slot->n_experts : 0, experts, label);
        }
        CHECK_EQ_INT(slots.n, n, label);
        dcpk_slots_release(&slots);
        dcpk_output_free(out);
        dcpk_model_free(model);
    }
}

/* The member at (layer, expert) is the parameter of that name, in whatever order they came. */
static void members_lie_where_their_names_say(void **state)
{
    const struct given given = {.names = {"decoder.layers.1." FC1 "0", "decoder.layers.0." FC1 "1",
                                          "decoder.layers.1." FC1 "1",
                                          "decoder.layers.0." FC1 "0"}};
    static const uint32_t want[] = {3, 1, 0, 2};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_model *model = NULL;
    struct dcpk_output *out = NULL;
    struct dcpk_slots slots = {.n = 0};

    (void)state;
    CHECK_OK(find(&given, "members", &model, &out, &slots, &err), "members");
    CHECK_EQ_INT(slots.n, 1, "members");
    for (size_t i = 0; i < 4; i++)
        CHECK_EQ_INT(slots.list[0].members[i], want[i], "members");
    dcpk_slots_release(&slots);
    dcpk_output_free(out);
    dcpk_model_free(model);
}

static void misfits_are_refused(void **state)
{
    static const struct {
        const char *label;
        struct given given;
        dcpk_status status;
        const char *text;
    } cases[] = {
        {"an expert is missing",
         {.names = {"decoder.layers.0." FC1 "0", "decoder.layers.0." FC1 "2",
                    "output_layer.weight"}},
         DCPK_EMISMATCH,
         "expert 1 of layer 0"},
        {"an expert of another shape",
         {.names = {"decoder.layers.0." FC1 "0", "decoder.layers.0." FC1 "1"}, .rows = {3, 5}},
         DCPK_EMISMATCH,
         "expert 1"},
        {"fewer experts than args say",
         {.names = {"decoder.layers.0." FC1 "0", "decoder.layers.0." FC1 "1"},
          .arg = {"num_experts", .value = 4}},
         DCPK_EMISMATCH,
         "args.num_experts is 4"},
        {"a number that no model has",
         {.names = {"decoder.layers.0." FC1 "2000000000"}},
         DCPK_EMISMATCH,
         "claim 1 layers of 2000000001 experts"},
        {"a mixer without the parameters that tell its parts",
         {.names = {"decoder.layers.0.mixer.in_proj.weight"}},
         DCPK_EUNSUPPORTED,
         "in_proj"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_model *model = NULL;
        struct dcpk_output *out = NULL;
        struct dcpk_slots slots = {.n = 0};

        CHECK_FAILS(find(&cases[i].given, cases[i].label, &model, &out, &slots, &err),
                    cases[i].status, cases[i].text, cases[i].label);
        dcpk_slots_release(&slots);
        dcpk_output_free(out);
        dcpk_model_free(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_are_found),
        cmocka_unit_test(members_lie_where_their_names_say),
        cmocka_unit_test(misfits_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

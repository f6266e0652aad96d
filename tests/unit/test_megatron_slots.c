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

/* A slot as the cases have it. */
static const char *slot_show(const struct dcpk_slot *slot, char *text, size_t n_bytes)
{
    size_t used = 0;

    for (size_t k = 0; k < slot->n_keys; k++)
        used += (size_t)snprintf(text + used, n_bytes - used, "%s%s", k > 0 ? " or " : "",
                                 slot->keys[k]);
    if (slot->has_layers)
        used += (size_t)snprintf(text + used, n_bytes - used, ", %d layers", (int)slot->n_layers);
    if (slot->has_experts)
        snprintf(text + used, n_bytes - used, ", %d experts", (int)slot->n_experts);
    return text;
}

static void slots_are_found(void **state)
{
    static const struct {
        const char *label;
        struct given given;
        bool is_stacked, is_homogeneous;
        /* The key or both keys, then the numbers of stacked layers and experts. */
        const char *slots[5];
    } cases[] = {
        {"the local spec renames no norm of MLA",
         .given = {.names = {"decoder.layers.0.self_attention.linear_kv_up_proj.weight",
                             "decoder.layers.0.input_layernorm.weight",
                             "decoder.layers.0.mlp.linear_fc1.layer_norm_weight"}},
         .is_stacked = true, .is_homogeneous = true,
         .slots = {"decoder.layers.self_attention.linear_kv_up_proj.weight, 1 layers",
                   "decoder.layers.input_layernorm.weight, 1 layers",
                   "decoder.layers.mlp.linear_fc1.layer_norm_weight or "
                   "decoder.layers.pre_mlp_layernorm.weight, 1 layers"}},
        {"the layer inside multi-token prediction has both norms",
         .given = {.names = {"mtp.layers.0.enorm.weight",
                             "mtp.layers.0.transformer_layer.pre_mlp_layernorm.weight"}},
         .is_stacked = true, .is_homogeneous = true,
         .slots = {"mtp.layers.0.enorm.weight",
                   "mtp.layers.0.transformer_layer.pre_mlp_layernorm.weight or "
                   "mtp.layers.0.transformer_layer.mlp.linear_fc1.layer_norm_weight"}},
        {"a hybrid stack renames no norm",
         .given = {.names = {"decoder.layers.0.self_attention.linear_kv_up_proj.weight",
                             "decoder.layers.1.mixer.in_proj.layer_norm_weight",
                             "decoder.layers.2.self_attention.in_proj.layer_norm_weight",
                             "decoder.layers.3.self_attention.linear_qkv.layer_norm_weight"},
                   .arg = {"linear_attention_freq", .value = 4}},
         .is_stacked = false, .is_homogeneous = false,
         .slots =
             {"decoder.layers.0.self_attention.linear_kv_up_proj.weight",
              "decoder.layers.1.mixer.in_proj.layer_norm_weight or decoder.layers.1.norm.weight",
              "decoder.layers.2.self_attention.in_proj.layer_norm_weight or "
              "decoder.layers.2.input_layernorm.weight",
              "decoder.layers.3.self_attention.linear_qkv.layer_norm_weight or "
              "decoder.layers.3.input_layernorm.weight"}},
        {"layers are stacked",
         .given = {.names = {"embedding.word_embeddings.weight", "decoder.layers.0." QKV,
                             "decoder.layers.1." QKV}},
         .is_stacked = true, .is_homogeneous = true,
         .slots = {"embedding.word_embeddings.weight", "decoder.layers." QKV ", 2 layers"}},
        {"experts behind layers",
         .given = {.names = {"decoder.layers.0." FC1 "0", "decoder.layers.0." FC1 "1",
                             "decoder.layers.1." FC1 "1", "decoder.layers.1." FC1 "0"},
                   .arg = {"num_experts", .value = 2}},
         .is_stacked = true, .is_homogeneous = true,
         .slots = {"decoder.layers." EXPS ", 2 layers, 2 experts"}},
        {"moe_layer_freq as a list keeps layers apart",
         .given = {.names = {"decoder.layers.0." QKV, "decoder.layers.1." QKV},
                   .arg = {"moe_layer_freq", .value = 1, .is_list = true}},
         .is_stacked = false, .is_homogeneous = false,
         .slots = {"decoder.layers.0." QKV, "decoder.layers.1." QKV}},
        {"linear_attention_freq above 1 too",
         .given = {.names = {"decoder.layers.0." FC1 "0", "decoder.layers.0." FC1 "1"},
                   .arg = {"linear_attention_freq", .value = 4}},
         .is_stacked = false, .is_homogeneous = false,
         .slots = {"decoder.layers.0." EXPS ", 2 experts"}},
        {"a Mamba mixer too, and its convolution is called as the module that it was",
         .given = {.names = {"decoder.layers.0.mixer.in_proj.weight",
                             "decoder.layers.0.mixer.conv1d_weight",
                             "decoder.layers.0.mixer.out_proj.weight",
                             "decoder.layers.0.mixer.dt_bias", "decoder.layers.0.mixer.D"},
                   .rows = {2 * 2 + 2 * 1 + 3, 2 + 2 * 1}},
         .is_stacked = false, .is_homogeneous = false,
         .slots = {"decoder.layers.0.mixer.in_proj.weight", "decoder.layers.0.mixer.conv1d.weight",
                   "decoder.layers.0.mixer.out_proj.weight", "decoder.layers.0.mixer.dt_bias",
                   "decoder.layers.0.mixer.D"}},
        {"a frequency of 1 does not",
         .given = {.names = {"decoder.layers.0." QKV}, .arg = {"moe_layer_freq", .value = 1}},
         .is_stacked = true, .is_homogeneous = true, .slots = {"decoder.layers." QKV ", 1 layers"}},
        {"layers of two shapes are apart, and args do not say so",
         .given = {.names = {"decoder.layers.0." QKV, "decoder.layers.1." QKV}, .rows = {3, 4}},
         .is_stacked = false, .is_homogeneous = true,
         .slots = {"decoder.layers.0." QKV, "decoder.layers.1." QKV}},
        {"a layer that lacks a parameter",
         .given = {.names = {"decoder.layers.0." QKV, "decoder.layers.0." FUSED,
                             "decoder.layers.1." QKV}},
         .is_stacked = false, .is_homogeneous = true,
         .slots = {"decoder.layers.0." QKV, "decoder.layers.0." FUSED, "decoder.layers.1." QKV}},
        {"a block of two layers beside one of one",
         .given = {.names = {"decoder.layers.0." QKV, "decoder.layers.1." QKV,
                             "encoder.layers.0." QKV}},
         .is_stacked = true, .is_homogeneous = true,
         .slots = {"decoder.layers." QKV ", 2 layers", "encoder.layers." QKV ", 1 layers"}},
        {"multi-token prediction is never stacked",
         .given = {.names = {"mtp.layers.0.transformer_layer." QKV,
                             "mtp.layers.0.transformer_layer." FC1 "0"}},
         .is_stacked = true, .is_homogeneous = true,
         .slots = {"mtp.layers.0.transformer_layer." QKV,
                   "mtp.layers.0.transformer_layer." EXPS ", 1 experts"}},
        {"shared experts are dense",
         .given = {.names = {"decoder.layers.0.mlp.shared_experts.linear_fc1.weight"}},
         .is_stacked = true, .is_homogeneous = true,
         .slots = {"decoder.layers.mlp.shared_experts.linear_fc1.weight, 1 layers"}},
        {"a MoE layer's norm has two names", .given = {.names = {"decoder.layers.0." NORM}},
         .is_stacked = true, .is_homogeneous = true,
         .slots = {"decoder.layers." NORM " or decoder.layers." FUSED ", 1 layers"}},
        {"Transformer Engine's only", .given = {.names = {"decoder.layers.0." NORM}, .impl = "te"},
         .is_stacked = true, .is_homogeneous = true,
         .slots = {"decoder.layers." NORM ", 1 layers"}},
        {"the local spec's only",
         .given = {.names = {"decoder.layers.0." NORM, "decoder.layers.0." QKV}, .impl = "local"},
         .is_stacked = true, .is_homogeneous = true,
         .slots = {"decoder.layers." FUSED ", 1 layers", "decoder.layers." QKV ", 1 layers"}},
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
        for (; n < 5 && cases[i].slots[n] != NULL; n++) {
            char text[256];

            CHECK(n < slots.n, label);
            CHECK_EQ_STR(slot_show(&slots.list[n], text, sizeof text), cases[i].slots[n], label);
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
         .given = {.names = {"decoder.layers.0." FC1 "0", "decoder.layers.0." FC1 "2",
                             "output_layer.weight"}},
         .status = DCPK_EMISMATCH, .text = "expert 1 of layer 0"},
        {"an expert of another shape",
         .given = {.names = {"decoder.layers.0." FC1 "0", "decoder.layers.0." FC1 "1"},
                   .rows = {3, 5}},
         .status = DCPK_EMISMATCH, .text = "expert 1"},
        {"fewer experts than args say",
         .given = {.names = {"decoder.layers.0." FC1 "0", "decoder.layers.0." FC1 "1"},
                   .arg = {"num_experts", .value = 4}},
         .status = DCPK_EMISMATCH, .text = "args.num_experts is 4"},
        {"a number that no model has", .given = {.names = {"decoder.layers.0." FC1 "2000000000"}},
         .status = DCPK_EMISMATCH, .text = "claim 1 layers of 2000000001 experts"},
        {"a mixer without the parameters that tell its parts",
         .given = {.names = {"decoder.layers.0.mixer.in_proj.weight"}}, .status = DCPK_EUNSUPPORTED,
         .text = "in_proj"},
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

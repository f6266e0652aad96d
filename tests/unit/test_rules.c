/* SPDX-License-Identifier: Apache-2.0 */
/* test_rules.c - whether an fc1 is gate and up rows, by args and by its rows. */
#include "lib/model/parts.h"
#include "lib/rules/rules.h"
#include "tests/fake_model.h"

/* A model of one fc1 with so many rows, and args that say SwiGLU with a hidden size of 24. */
static struct dcpk_model *make_model(int64_t n_rows, struct fake_arg arg)
{
    struct dcpk_model *model = fake_model_new(NULL, "model");

    fake_model_weight(model, "decoder.layers.1.mlp.linear_fc1.weight", 2, n_rows, 16);
    model->args = fake_args(
        model->arena,
        (const struct fake_arg[]){
            {"swiglu", .text = "True"}, {"ffn_hidden_size", .value = 24}, arg, {.name = NULL}});
    return model;
}

/* Layers of a heterogeneous model have sizes of their own (heterogeneous_config.py@0.19.0). */
static void rows_prove_the_switch_where_layers_are_alike(void **state)
{
    static const struct {
        const char *label;
        int64_t n_rows;
        struct fake_arg arg;
        const char *refused; /* NULL: it is not */
    } cases[] = {
        {"two halves", .n_rows = 48, .arg = {"heterogeneous_layers_config_path", .text = "None"}},
        {"one half", .n_rows = 24, .arg = {"heterogeneous_layers_config_path", .text = "None"},
         .refused = "hidden size of 24"},
        {"no layers of their own", .n_rows = 24,
         .arg = {"heterogeneous_layers_config_encoded_json", .text = ""},
         .refused = "hidden size of 24"},
        {"a layer of another size", .n_rows = 24,
         .arg = {"heterogeneous_layers_config_encoded_json", .text = "{}"}},
        {"one named by its file", .n_rows = 24,
         .arg = {"heterogeneous_layers_config_path", .text = "blocks.json"}},
        {"an odd one", .n_rows = 25,
         .arg = {"heterogeneous_layers_config_path", .text = "blocks.json"},
         .refused = "not two halves"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct dcpk_rule_options options = {0};
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_model *model = make_model(cases[i].n_rows, cases[i].arg);

        if (cases[i].refused != NULL)
            CHECK_FAILS(dcpk_rules_gate(model, &options, &err), DCPK_EMISMATCH, cases[i].refused,
                        cases[i].label);
        else
            CHECK_OK(dcpk_rules_gate(model, &options, &err), cases[i].label);
        if (cases[i].refused == NULL)
            CHECK(model->params[0].parts == dcpk_gate_up, cases[i].label);
        dcpk_model_free(model);
    }
}

/* What is said of a decoder's fc1 and of a vision tower's beside it, whose config args do not tell
 * (formats/fsdp_dtensor/FORMAT.md 5.1). Names of modules are those of Megatron's converter
 * (formats/fsdp_dtensor/FORMAT.md 12.1, R8). */
static void modules_must_fit_the_model_and_args(void **state)
{
    static const struct {
        const char *label;
        const char *modules[2]; /* NULL: fewer */
        size_t n_modules;
        bool args_say, is_halved;
        const char *refused;  /* NULL: it is not */
        bool decoder, vision; /* what is gated then */
    } cases[] = {
        {"all", .modules = {"mlp"}, .n_modules = 1, .args_say = true, .decoder = true,
         .vision = true},
        {"every decoder", .modules = {"decoder"}, .n_modules = 1, .args_say = true, .decoder = true,
         .vision = true},
        {"the language model alone", .modules = {"model.module.decoder"}, .n_modules = 1,
         .args_say = true, .decoder = true},
        {"both by name", .modules = {"decoder", "vision_model"}, .n_modules = 2, .args_say = true,
         .decoder = true, .vision = true},
        {"mistyped", .modules = {"decodr"}, .n_modules = 1, .args_say = true,
         .refused = "'decoder.layers.1.mlp.linear_fc1.weight' is not in a module"},
        {"one of two mistyped", .modules = {"decoder", "visoin"}, .n_modules = 2, .args_say = true,
         .refused = "in a module 'visoin'"},
        {"part of a name", .modules = {"code"}, .n_modules = 1, .args_say = true,
         .refused = "is not in a module"},
        {"the vision tower alone", .modules = {"vision_model"}, .n_modules = 1, .args_say = true,
         .refused = "is not in a module"},
        {"none", .args_say = true,
         .refused = "switched off, but the checkpoint's args say swiglu=True"},
        {"against args", .modules = {"mlp"}, .n_modules = 1,
         .refused = "switched on, but the checkpoint's args say swiglu=False"},
        {"none, as args say", .refused = NULL},
        {"halves that are left out", .modules = {"vision_model"}, .n_modules = 1, .args_say = true,
         .is_halved = true, .refused = "stored in two halves"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dcpk_rule_options options = {.swiglu = DCPK_SWIGLU_ON,
                                            .swiglu_modules = cases[i].modules,
                                            .n_swiglu_modules = cases[i].n_modules};
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_model *model = make_model(48, (struct fake_arg){"other", .text = "None"});

        if (!cases[i].args_say)
            model->args =
                fake_args(model->arena,
                          (const struct fake_arg[]){{"swiglu", .text = "False"}, {.name = NULL}});
        fake_model_weight(model, "vision_model.decoder.layers.0.mlp.linear_fc1.weight", 2, 48, 16);
        model->params[0].parts = cases[i].is_halved ? dcpk_gate_up : NULL;
        if (cases[i].refused != NULL) {
            CHECK_FAILS(dcpk_rules_gate(model, &options, &err), DCPK_EMISMATCH, cases[i].refused,
                        cases[i].label);
        } else {
            CHECK_OK(dcpk_rules_gate(model, &options, &err), cases[i].label);
            CHECK_EQ_INT(model->params[0].parts != NULL, cases[i].decoder, cases[i].label);
            CHECK_EQ_INT(model->params[1].parts != NULL, cases[i].vision, cases[i].label);
        }
        dcpk_model_free(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(modules_must_fit_the_model_and_args),
        cmocka_unit_test(rows_prove_the_switch_where_layers_are_alike),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

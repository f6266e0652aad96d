/* SPDX-License-Identifier: Apache-2.0 */
/* test_rules.c - whether an fc1 is gate and up rows, by args and by its rows. */
#include "lib/rules/rules.h"
#include "tests/check.h"

/* A model of one fc1 with so many rows, and args that say SwiGLU with a hidden size of 24. */
static struct dcpk_model *make_model(int64_t n_rows, const char *arg, const char *text)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_model *model = NULL;
    struct dcpk_model_tensor t = {.role = DCPK_WEIGHT, .dtype = DCPK_BF16, .rank = 2};
    struct dcpk_value_pair pairs[3];
    int64_t *shape;

    CHECK_OK(dcpk_model_new(NULL, &model, &err), "model");
    shape = dcpk_arena_array(model->arena, 2, sizeof *shape, &err);
    assert_non_null(shape);
    shape[0] = n_rows;
    shape[1] = 16;
    t.shape = shape;
    CHECK_OK(dcpk_model_param(model, "decoder.layers.1.mlp.linear_fc1.weight", &t.param, &err),
             "fc1");
    CHECK_OK(dcpk_model_add(model, &t, &err), "fc1");
    pairs[0].key = dcpk_value_str(model->arena, "swiglu", &err);
    pairs[0].value = dcpk_value_bool(true);
    pairs[1].key = dcpk_value_str(model->arena, "ffn_hidden_size", &err);
    pairs[1].value = dcpk_value_int(model->arena, 24, &err);
    pairs[2].key = dcpk_value_str(model->arena, arg, &err);
    pairs[2].value = text == NULL ? dcpk_value_none() : dcpk_value_str(model->arena, text, &err);
    model->args = dcpk_value_namespace(model->arena, pairs, 3, &err);
    assert_non_null(model->args);
    return model;
}

/* Layers of a heterogeneous model have sizes of their own (heterogeneous_config.py@0.19.0). */
static void rows_prove_the_switch_where_layers_are_alike(void **state)
{
    static const struct {
        const char *label;
        int64_t n_rows;
        const char *arg, *value;
        const char *refused; /* NULL: it is not */
    } cases[] = {
        {"two halves", 48, "heterogeneous_layers_config_path", NULL, NULL},
        {"one half", 24, "heterogeneous_layers_config_path", NULL, "hidden size of 24"},
        {"no layers of their own", 24, "heterogeneous_layers_config_encoded_json", "",
         "hidden size of 24"},
        {"a layer of another size", 24, "heterogeneous_layers_config_encoded_json", "{}", NULL},
        {"one named by its file", 24, "heterogeneous_layers_config_path", "blocks.json", NULL},
        {"an odd one", 25, "heterogeneous_layers_config_path", "blocks.json", "no two halves"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct dcpk_rule_options options = {0};
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_model *model = make_model(cases[i].n_rows, cases[i].arg, cases[i].value);

        if (cases[i].refused != NULL)
            CHECK_FAILS(dcpk_rules_gate(model, &options, &err), DCPK_EMISMATCH, cases[i].refused,
                        cases[i].label);
        else
            CHECK_OK(dcpk_rules_gate(model, &options, &err), cases[i].label);
        if (cases[i].refused == NULL)
            CHECK(model->params[0].is_gated, cases[i].label);
        dcpk_model_free(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_prove_the_switch_where_layers_are_alike),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

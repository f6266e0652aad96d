/* SPDX-License-Identifier: Apache-2.0 */
/* test_parts.c - the parts of Mamba's and Gated DeltaNet's projections. */
#include "lib/model/parts.h"
#include "tests/fake_model.h"

#define MAX_TENSORS 10
#define M           "decoder.layers.0.mixer."
#define G           "decoder.layers.0.self_attention."

/* A module of shapes: rows of its parameters, but for out_proj, of which it is the columns. */
struct shaped {
    struct {
        const char *name;
        int64_t length;
    } params[MAX_TENSORS];
};

static struct dcpk_model *make_model(const struct shaped *shaped, const char *label)
{
    struct dcpk_model *model = fake_model_new(NULL, label);

    for (size_t i = 0; i < MAX_TENSORS && shaped->params[i].name != NULL; i++) {
        const char *name = shaped->params[i].name;
        const int64_t length = shaped->params[i].length;

        if (strstr(name, "out_proj") != NULL)
            fake_model_weight(model, name, 2, 3, length);
        else
            fake_model_weight(model, name, 1, length, 0);
    }
    return model;
}

/*
 * Sizes by the sections that the modules' sharded_state_dict cut (megatron/core/ssm, at the tags
 * that lib/model/parts.c names). Mamba: inner 8, groups x state 6, heads 4. Gated DeltaNet: keys 5,
 * values 6, value heads 3; its second form has one dt_bias a key.
 */
#define MAMBA(conv)                                                                                \
    {M "in_proj.weight", 2 * 8 + 2 * 6 + 4}, {M conv "weight", 8 + 2 * 6},                         \
        {M conv "bias", 8 + 2 * 6}, {M "out_proj.weight", 8}, {M "dt_bias", 4},                    \
    {                                                                                              \
        M "D", 4                                                                                   \
    }
#define DELTA_NET(rows, dt_bias)                                                                   \
    {G "in_proj.weight", rows}, {G "conv1d.weight", 2 * 5 + 6}, {G "out_proj.weight", 6},          \
        {G "dt_bias", dt_bias},                                                                    \
    {                                                                                              \
        G "out_norm.weight", 2                                                                     \
    }

static void sizes_follow_from_the_shapes(void **state)
{
    static const struct {
        const char *label;
        struct shaped shaped;
        size_t ask;
        struct {
            const char *name;
            int64_t n_rows;
        } parts[DCPK_MAX_PARTS + 1];
    } cases[] = {
        {"Mamba",
         {.params = {MAMBA("conv1d_")}},
         0,
         {{"z", 8}, {"x", 8}, {"B", 6}, {"C", 6}, {"dt", 4}}},
        {"its convolution", {.params = {MAMBA("conv1d_")}}, 1, {{"x", 8}, {"B", 6}, {"C", 6}}},
        {"the bias of core 0.18",
         {.params = {MAMBA("conv1d.")}},
         2,
         {{"x", 8}, {"B", 6}, {"C", 6}}},
        {"what is kept whole", {.params = {MAMBA("conv1d_")}}, 4, {{NULL, 0}}},
        {"Gated DeltaNet",
         {.params = {DELTA_NET(2 * 5 + 2 * 6 + 2 * 3, 3)}},
         0,
         {{"query", 5}, {"key", 5}, {"value", 6}, {"z", 6}, {"beta", 3}, {"alpha", 3}}},
        {"its convolution",
         {.params = {DELTA_NET(2 * 5 + 2 * 6 + 2 * 3, 3)}},
         1,
         {{"query", 5}, {"key", 5}, {"value", 6}}},
        {"its second form",
         {.params = {DELTA_NET(4 * 5 + 3 * 6, 5)}},
         0,
         {{"query", 5}, {"key", 5}, {"value", 6}, {"z", 6}, {"f", 5}, {"b", 5}, {"w", 6}}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *label = cases[i].label;
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_model *model = make_model(&cases[i].shaped, label);
        struct dcpk_split parts;
        size_t want = 0;
        int64_t row = 0;

        CHECK_OK(dcpk_parts_of(model, &model->params[cases[i].ask], model->arena, &parts, &err),
                 label);
        for (; cases[i].parts[want].name != NULL; want++) {
            CHECK(want < parts.n, label);
            CHECK_EQ_STR(parts.list[want].name, cases[i].parts[want].name, label);
            CHECK_EQ_INT(parts.list[want].n_rows, 1, label);
            CHECK_EQ_INT(parts.list[want].rows->row, row, label);
            CHECK_EQ_INT(parts.list[want].rows->n_rows, cases[i].parts[want].n_rows, label);
            row += cases[i].parts[want].n_rows;
        }
        CHECK_EQ_INT(parts.n, want, label);
        dcpk_model_free(model);
    }
}

/* What a format or the rules say of a parameter: two equal halves of its rows. */
static void gate_and_up_are_halves(void **state)
{
    static const struct shaped even = {.params = {{"decoder.layers.0.mlp.linear_fc1.bias", 6}}},
                               odd = {.params = {{"decoder.layers.0.mlp.linear_fc1.bias", 7}}};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_model *model = make_model(&even, "even"), *other = make_model(&odd, "odd");
    struct dcpk_split parts;

    (void)state;
    CHECK_OK(dcpk_parts_of(model, model->params, model->arena, &parts, &err), "nobody says so");
    CHECK_EQ_INT(parts.n, 0, "nobody says so");
    CHECK_EQ_INT(dcpk_parts_count(model->params), 1, "nobody says so");
    model->params->parts = other->params->parts = dcpk_gate_up;
    CHECK_OK(dcpk_parts_of(model, model->params, model->arena, &parts, &err), "even");
    CHECK_EQ_INT(parts.n, 2, "even");
    CHECK_EQ_INT(dcpk_parts_count(model->params), 2, "even");
    for (size_t i = 0; i < 2; i++) {
        CHECK_EQ_STR(parts.list[i].name, i == 0 ? "gate" : "up", "name");
        CHECK_EQ_INT(parts.list[i].rows->row, 3 * (int64_t)i, "first row");
        CHECK_EQ_INT(parts.list[i].rows->n_rows, 3, "rows");
    }
    CHECK_FAILS(dcpk_parts_of(other, other->params, other->arena, &parts, &err), DCPK_EMISMATCH,
                "no two equal halves", "odd");
    dcpk_model_free(model);
    dcpk_model_free(other);
}

static void shapes_that_do_not_fit_are_refused(void **state)
{
    static const struct {
        const char *label;
        struct shaped shaped;
        const char *text;
    } cases[] = {
        {"rows that do not add up",
         {.params = {DELTA_NET(2 * 5 + 2 * 6 + 2 * 3 + 1, 3)}},
         "not those of"},
        {"Gated DeltaProduct has neither D nor out_norm",
         {.params = {{M "in_proj.weight", 2 * 5 + 2 * 6 + 2 * 3},
                     {M "conv1d.weight", 2 * 5 + 6},
                     {M "out_proj.weight", 6},
                     {M "dt_bias", 3},
                     {M "norm.weight", 2}}},
         "not those of"},
        {"nothing beside it", {.params = {{M "in_proj.weight", 8}, {M "D", 4}}}, "not those of"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_model *model = make_model(&cases[i].shaped, cases[i].label);
        struct dcpk_split parts;

        CHECK_FAILS(dcpk_parts_of(model, &model->params[0], model->arena, &parts, &err),
                    DCPK_EUNSUPPORTED, cases[i].text, cases[i].label);
        dcpk_model_free(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_follow_from_the_shapes),
        cmocka_unit_test(shapes_that_do_not_fit_are_refused),
        cmocka_unit_test(gate_and_up_are_halves),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

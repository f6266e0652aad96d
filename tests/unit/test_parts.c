/* SPDX-License-Identifier: Apache-2.0 */
/* test_parts.c - the parts of Mamba's and Gated DeltaNet's projections, and the order of ranks. */
#include "lib/ckpt/parts.h"
#include "tests/check.h"

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
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_model *model = NULL;

    CHECK_OK(dcpk_model_new(NULL, &model, &err), label);
    for (size_t i = 0; i < MAX_TENSORS && shaped->params[i].name != NULL; i++) {
        const char *name = shaped->params[i].name;
        const int axis = strstr(name, "out_proj") != NULL;
        int64_t *shape = dcpk_arena_array(model->arena, 2, sizeof *shape, &err);
        struct dcpk_model_tensor t = {
            .role = DCPK_WEIGHT, .dtype = DCPK_BF16, .rank = 1 + axis, .shape = shape};

        CHECK(shape != NULL, label);
        shape[0] = 3;
        shape[axis] = shaped->params[i].length;
        CHECK_OK(dcpk_model_param(model, name, &t.param, &err), label);
        CHECK_OK(dcpk_model_add(model, &t, &err), label);
    }
    return model;
}

/*
 * Sizes by the sections that the modules' sharded_state_dict cut (megatron/core/ssm, at the tags
 * that lib/ckpt/parts.c names). Mamba: inner 8, groups x state 6, heads 4. Gated DeltaNet: keys 5,
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
        struct dcpk_part parts[DCPK_MAX_PARTS + 1];
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
        struct dcpk_part parts[DCPK_MAX_PARTS];
        size_t n, want = 0;

        CHECK_OK(dcpk_parts_of(model, &model->params[cases[i].ask], parts, &n, &err), label);
        for (; cases[i].parts[want].name != NULL; want++) {
            CHECK(want < n, label);
            CHECK_EQ_STR(parts[want].name, cases[i].parts[want].name, label);
            CHECK_EQ_INT(parts[want].n_rows, cases[i].parts[want].n_rows, label);
        }
        CHECK_EQ_INT(n, want, label);
        dcpk_model_free(model);
    }
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
        struct dcpk_part parts[DCPK_MAX_PARTS];
        size_t n;

        CHECK_FAILS(dcpk_parts_of(model, &model->params[0], parts, &n, &err), DCPK_EUNSUPPORTED,
                    cases[i].text, cases[i].label);
        dcpk_model_free(model);
    }
}

/* The source's row that each row of a tensor comes from. */
static void rows_of(const struct dcpk_model_tensor *tensor, int64_t *rows)
{
    for (size_t i = 0; i < tensor->n_pieces; i++) {
        struct dcpk_box from, to;

        dcpk_piece_from(&tensor->pieces[i], &from);
        dcpk_piece_to(&tensor->pieces[i], &to);
        for (int64_t r = 0; r < from.extent[0]; r++)
            rows[to.offset[0] + r] = from.offset[0] + r;
    }
}

/* Rows 0 .. 7 of a tensor of shape (8, 3), in pieces of 5 and 3 rows. */
static void make_tensor(struct dcpk_arena *arena, struct dcpk_model_tensor *tensor)
{
    static const int64_t shape[] = {8, 3};
    static const int64_t rows[] = {0, 5, 8};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_piece *pieces = dcpk_arena_array(arena, 2, sizeof *pieces, &err);

    assert_non_null(pieces);
    *tensor = (struct dcpk_model_tensor){
        .dtype = DCPK_F32, .rank = 2, .shape = shape, .pieces = pieces, .n_pieces = 2};
    for (size_t i = 0; i < 2; i++) {
        const struct dcpk_box box = {
            .rank = 2, .offset = {rows[i], 0}, .extent = {rows[i + 1] - rows[i], 3}};

        CHECK_OK(dcpk_piece_make(arena, 0, &box, &box, &pieces[i], &err), "piece");
    }
}

/* Two ranks hold half of each part: parts of 4, 2 and 2 rows. */
static void ranks_hold_a_block_of_every_part(void **state)
{
    static const struct dcpk_part parts[] = {{"z", 4}, {"B", 2}, {"dt", 2}};
    static const struct {
        int64_t tp;
        enum dcpk_parts_order order;
        int64_t rows[8];
    } cases[] = {
        {2, DCPK_PARTS_BY_RANK, {0, 1, 4, 6, 2, 3, 5, 7}},
        {2, DCPK_PARTS_OF_ONE, {0, 1, 4, 5, 2, 6, 3, 7}},
        {1, DCPK_PARTS_BY_RANK, {0, 1, 2, 3, 4, 5, 6, 7}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct dcpk_parts_held held = {parts, 3, cases[i].tp};
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_arena *arena = dcpk_arena_new(0, &err);
        struct dcpk_model_tensor tensor;
        int64_t rows[8];

        assert_non_null(arena);
        make_tensor(arena, &tensor);
        CHECK_OK(dcpk_parts_reorder(arena, &held, cases[i].order, &tensor, &tensor, &err), "");
        CHECK_EQ_INT(tensor.shape[0], 8, "rows");
        CHECK_EQ_INT(tensor.shape[1], 3, "columns");
        rows_of(&tensor, rows);
        assert_memory_equal(rows, cases[i].rows, sizeof rows);
        CHECK_OK(dcpk_parts_reorder(arena, &held,
                                    cases[i].order == DCPK_PARTS_OF_ONE ? DCPK_PARTS_BY_RANK
                                                                        : DCPK_PARTS_OF_ONE,
                                    &tensor, &tensor, &err),
                 "back");
        rows_of(&tensor, rows);
        for (int64_t r = 0; r < 8; r++)
            CHECK_EQ_INT(rows[r], r, "back");
        dcpk_arena_free(arena);
    }
}

static void parts_that_ranks_cannot_hold_are_refused(void **state)
{
    static const struct dcpk_part parts[] = {{"z", 4}, {"dt", 4}}, few[] = {{"z", 4}, {"dt", 2}};
    const struct dcpk_parts_held three = {parts, 2, 3}, short_of = {few, 2, 2};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new(0, &err);
    struct dcpk_model_tensor tensor;

    (void)state;
    assert_non_null(arena);
    make_tensor(arena, &tensor);
    CHECK_FAILS(dcpk_parts_reorder(arena, &three, DCPK_PARTS_OF_ONE, &tensor, &tensor, &err),
                DCPK_EMISMATCH, "its part 'z' do not divide by 3", "three ranks");
    CHECK_FAILS(dcpk_parts_reorder(arena, &short_of, DCPK_PARTS_OF_ONE, &tensor, &tensor, &err),
                DCPK_EMISMATCH, "has not the 6 rows", "other rows");
    dcpk_arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_follow_from_the_shapes),
        cmocka_unit_test(shapes_that_do_not_fit_are_refused),
        cmocka_unit_test(ranks_hold_a_block_of_every_part),
        cmocka_unit_test(parts_that_ranks_cannot_hold_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

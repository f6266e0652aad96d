/* SPDX-License-Identifier: Apache-2.0 */
/* test_fsdp_rows.c - the fused down-projection of multi-latent attention: its rows and its names
 * are those of FusedMLASelfAttention and handle_mla_down_proj_in_state_dict of Megatron main. */
#include "formats/fsdp_dtensor/fsdp_rows.h"
#include "tests/fake_model.h"

#define A "decoder.layers.0.self_attention."

/* A model whose args give q_lora_rank and the tensor-parallel size. */
static struct dcpk_model *make_model(int64_t q_lora_rank, int64_t tp)
{
    const struct fake_arg args[] = {{"q_lora_rank", .value = q_lora_rank},
                                    {"tensor_model_parallel_size", .value = tp},
                                    {.name = NULL}};
    struct dcpk_model *model = fake_model_new(NULL, "model");

    model->args = fake_args(model->arena, args);
    return model;
}

/* Add source tensor 7, [rows, 4], under the fused name. */
static dcpk_status add_fused(struct dcpk_model *model, int64_t rows, struct dcpk_error *fault)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    const int64_t shape[] = {rows, 4};
    struct dcpk_piece piece;
    struct dcpk_model_tensor tensor = {.role = DCPK_MASTER,
                                       .dtype = DCPK_F32,
                                       .rank = 2,
                                       .shape = shape,
                                       .pieces = &piece,
                                       .n_pieces = 1};
    struct dcpk_box whole;

    dcpk_box_whole(shape, 2, &whole);
    CHECK_OK(dcpk_piece_make(model->arena, 7, &whole, &whole, &piece, &err), "piece");
    return dcpk_fsdp_add_named(model, &tensor, A "linear_qkv_down_proj.weight", fault);
}

static void rows_are_the_querys_then_the_others(void **state)
{
    static const struct {
        const char *name;
        int64_t first, n_rows;
    } want[] = {{A "linear_q_down_proj.weight", 0, 5}, {A "linear_kv_down_proj.weight", 5, 3}};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_model *model = make_model(5, 1);

    (void)state;
    CHECK_OK(add_fused(model, 8, &err), "add");
    CHECK_EQ_INT(model->n_params, 2, "parameters");
    for (size_t i = 0; i < 2; i++) {
        const struct dcpk_model_tensor *t = &model->tensors[model->params[i].tensor[DCPK_MASTER]];
        struct dcpk_box from, to;

        CHECK_EQ_STR(model->params[i].name, want[i].name, want[i].name);
        CHECK_EQ_INT(t->shape[0], want[i].n_rows, want[i].name);
        CHECK_EQ_INT(t->shape[1], 4, want[i].name);
        CHECK_EQ_INT(t->n_pieces, 1, want[i].name);
        dcpk_piece_from(&t->pieces[0], &from);
        dcpk_piece_to(&t->pieces[0], &to);
        CHECK_EQ_INT(t->pieces[0].src, 7, want[i].name);
        CHECK_EQ_INT(from.offset[0], want[i].first, want[i].name);
        CHECK_EQ_INT(to.offset[0], 0, want[i].name);
        CHECK_EQ_INT(to.extent[0], want[i].n_rows, want[i].name);
    }
    dcpk_model_free(model);
}

static void what_args_do_not_tell_is_refused(void **state)
{
    static const struct {
        const char *label;
        int64_t q_lora_rank, tp;
        const char *text;
    } cases[] = {
        {"no rank of the query", 0, 1, "args.q_lora_rank"},
        {"more than there are", 8, 1, "its 8 rows"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_model *model = make_model(cases[i].q_lora_rank, cases[i].tp);

        CHECK_FAILS(add_fused(model, 8, &err), DCPK_EUNSUPPORTED, cases[i].text, cases[i].label);
        dcpk_model_free(model);
    }
}

/* Each of two ranks has half of the query's rows and then half of the others. */
static void ranks_are_told_apart(void **state)
{
    static const int64_t from[2][2] = {{0, 4}, {2, 6}};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_model *model = make_model(4, 2), *uneven = make_model(5, 2);

    (void)state;
    CHECK_OK(add_fused(model, 8, &err), "two ranks");
    for (size_t i = 0; i < 2; i++) {
        const struct dcpk_model_tensor *t = &model->tensors[model->params[i].tensor[DCPK_MASTER]];

        CHECK_EQ_INT(t->shape[0], 4, model->params[i].name);
        CHECK_EQ_INT(t->n_pieces, 2, model->params[i].name);
        for (size_t r = 0; r < 2; r++) {
            struct dcpk_box source, to;

            dcpk_piece_from(&t->pieces[r], &source);
            dcpk_piece_to(&t->pieces[r], &to);
            CHECK_EQ_INT(source.offset[0], from[i][r], model->params[i].name);
            CHECK_EQ_INT(to.offset[0], 2 * (int64_t)r, model->params[i].name);
            CHECK_EQ_INT(to.extent[0], 2, model->params[i].name);
        }
    }
    CHECK_FAILS(add_fused(uneven, 8, &err), DCPK_EMISMATCH, "rows of its part 'query'", "uneven");
    dcpk_model_free(model);
    dcpk_model_free(uneven);
}

/* Main's parameter groups have live names, its tensors those of the parts. */
static void groups_are_found_by_live_names(void **state)
{
    static const char *const params[] = {A "linear_q_down_proj.weight",
                                         A "linear_kv_down_proj.weight",
                                         "decoder.layers.0.input_layernorm.weight"};
    static const struct {
        const char *name;
        size_t n;
        uint32_t params[2];
    } cases[] = {
        {A "linear_qkv_down_proj.weight", 2, {0, 1}},
        {A "linear_qkv_down_proj.layer_norm_weight", 1, {2}},
        {A "linear_kv_down_proj.weight", 1, {1}},
        {"decoder.layers.1.self_attention.linear_qkv_down_proj.weight", 0, {0}},
    };
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_model *model = make_model(5, 1);

    (void)state;
    for (uint32_t i = 0; i < 3; i++)
        CHECK_EQ_INT(fake_model_param(model, params[i]), i, params[i]);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t found[2];
        size_t n;

        CHECK_OK(dcpk_fsdp_group_params(model, cases[i].name, found, &n, &err), cases[i].name);
        CHECK_EQ_INT(n, cases[i].n, cases[i].name);
        for (size_t p = 0; p < n; p++)
            CHECK_EQ_INT(found[p], cases[i].params[p], cases[i].name);
    }
    dcpk_model_free(model);
}

/* The names of SwiGLU halves: split_swiglu_linear_fc1 of megatron/core/transformer/
 * fsdp_dtensor_checkpoint.py. */
static void halves_have_their_ends(void **state)
{
    static const struct {
        const char *name;
        int half;
    } cases[] = {{"mlp.linear_fc1.weight_w", 0},
                 {"mlp.experts.linear_fc1.weight7_v", 1},
                 {"mlp.linear_fc1.weight", -1},
                 {"mlp.linear_fc2.weight_w", -1},
                 {"mlp.linear_fc1._v", 1}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        CHECK_EQ_INT(dcpk_fsdp_half(cases[i].name), cases[i].half, cases[i].name);
    CHECK_EQ_STR(dcpk_fsdp_part_end("gate"), "_w", "gate");
    CHECK_EQ_STR(dcpk_fsdp_part_end("up"), "_v", "up");
    CHECK_EQ_STR(dcpk_fsdp_part_end("z"), "", "Mamba's parts are one tensor");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves_have_their_ends),
        cmocka_unit_test(rows_are_the_querys_then_the_others),
        cmocka_unit_test(what_args_do_not_tell_is_refused),
        cmocka_unit_test(ranks_are_told_apart),
        cmocka_unit_test(groups_are_found_by_live_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* test_params_golden.c - the trainer's table of parameters is what real runs stored: names, shapes,
 * order, cuts and units, from the args of the checkpoint alone. */
#include <stdio.h>
#include <stdlib.h>

#include "formats/formats.h"
#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/io/store.h"
#include "lib/model/registered.h"
#include "lib/rules/rules.h"
#include "lib/train/params.h"
#include "tests/check.h"

#define MAX_LAYERS 16

static const struct {
    const char *folder;
    size_t n_params; /* that it stores and a trainer has, buffers included */
} goldens[] = {
    {"torch_dist_c_fp32_dp1/iter_0000004", 27},
    {"torch_dist_c_dense_tp2pp2/iter_0000004", 27},
    {"torch_dist_c_moe_ep2pp2/iter_0000004", 48},
    {"torch_dist_c_mtp/iter_0000004", 56},
    {"torch_dist_a_bucket_space_tied/iter_0000004", 14},
    {"torch_dist_c_moe_shared/iter_0000004", 29},
    {"torch_dist_c_moe_bias/iter_0000004", 22},
    {"torch_dist_c_per_layer/iter_0000004", 15},
    {"v016_moe_ep2pp2/iter_0000004", 48},
};

static struct dcpk_model *open_model(const char *name)
{
    const struct dcpk_rule_options options = {0};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_store *store = NULL;
    struct dcpk_checkpoint *ckpt = NULL;
    struct dcpk_model *model = NULL;
    char path[4096];

    snprintf(path, sizeof path, "%s/%s", DCPK_SAMPLES, name);
    CHECK_OK(dcpk_store_open(path, &store, &err), name);
    CHECK_OK(dcpk_checkpoint_open(store, dcpk_formats, NULL, &ckpt, &err), name);
    CHECK_OK(dcpk_model_new(ckpt, &model, &err), name);
    CHECK_OK(ckpt->format->mapping->to_model(ckpt, model, &err), name);
    CHECK_OK(dcpk_rules_canonical(model, &err), name);
    CHECK_OK(dcpk_rules_gate(model, &options, &err), name);
    CHECK_OK(dcpk_rules_parallel(model, DCPK_IMPL_ANY, &err), name);
    return model;
}

static int64_t arg_int(const struct dcpk_value *args, const char *name, int64_t by_default)
{
    int64_t value;

    return dcpk_value_as_int(dcpk_value_get(args, name), &value) ? value : by_default;
}

/* --moe-layer-freq: every n-th layer from the first on, or a list. */
static void read_moe_layers(const struct dcpk_value *args, struct dcpk_train_model *m,
                            uint8_t *is_moe)
{
    const struct dcpk_value *freq = dcpk_value_get(args, "moe_layer_freq");
    int64_t every = 1, value;

    dcpk_value_as_int(freq, &every);
    for (int64_t i = 0; i < m->layers; i++) {
        is_moe[i] = i % every == 0;
        if (dcpk_value_as_int(dcpk_value_at(freq, (size_t)i), &value))
            is_moe[i] = value != 0;
    }
    m->moe_layers = is_moe;
}

static void read_config(const struct dcpk_value *args, struct dcpk_train_config *config,
                        uint8_t *is_moe)
{
    struct dcpk_train_model *m = &config->model;
    const char *impl = dcpk_value_as_str(dcpk_value_get(args, "transformer_impl"));

    *config = (struct dcpk_train_config){.layout = {.tp = 1, .cp = 1, .ep = 1, .pp = 1, .dp = 1}};
    m->layers = arg_int(args, "num_layers", 0);
    m->hidden = arg_int(args, "hidden_size", 0);
    m->ffn = arg_int(args, "ffn_hidden_size", 0);
    m->heads = arg_int(args, "num_attention_heads", 0);
    /* Models that were built without Megatron's program have no switch for it. */
    m->groups = arg_int(args, "num_query_groups", m->heads);
    if (dcpk_value_get(args, "group_query_attention") != NULL &&
        !dcpk_value_is_true(args, "group_query_attention"))
        m->groups = m->heads;
    m->head_dim = arg_int(args, "kv_channels", m->hidden / m->heads);
    m->padded_vocab = arg_int(args, "padded_vocab_size", 0);
    m->is_tied = !dcpk_value_is_true(args, "untie_embeddings_and_output_weights");
    m->has_qk_norm = dcpk_value_is_true(args, "qk_layernorm");
    m->experts = arg_int(args, "num_experts", 0);
    m->moe_ffn = arg_int(args, "moe_ffn_hidden_size", m->ffn);
    m->shared_ffn = arg_int(args, "moe_shared_expert_intermediate_size", 0);
    m->has_expert_bias = dcpk_value_is_true(args, "moe_router_enable_expert_bias");
    m->mtp_layers = arg_int(args, "mtp_num_layers", 0);
    m->is_grouped = dcpk_value_is_true(args, "moe_grouped_gemm");
    m->impl = impl != NULL && strcmp(impl, "local") == 0 ? DCPK_IMPL_LOCAL : DCPK_IMPL_TE;
    read_moe_layers(args, m, is_moe);
}

/* What the trainer's models have: no biases, no gate of shared experts. */
static size_t count_known(const struct dcpk_model *model)
{
    size_t n = 0;

    for (size_t i = 0; i < model->n_params; i++)
        n += strstr(model->params[i].name, ".bias") == NULL &&
             !dcpk_ends_with(model->params[i].name, ".gate_weight");
    return n;
}

/* The stored parameter that a row of the table is. */
static void check_param(const struct dcpk_model *model, const struct dcpk_train_param *made,
                        uint32_t *last_place)
{
    const struct dcpk_param *param = NULL;
    struct dcpk_registered registered;
    uint32_t tensor = DCPK_NO_TENSOR;

    for (size_t i = 0; i < model->n_params; i++)
        if (strcmp(model->params[i].name, made->canonical) == 0)
            param = &model->params[i];
    CHECK(param != NULL, made->canonical);
    for (int role = DCPK_WEIGHT; role <= DCPK_MASTER && tensor == DCPK_NO_TENSOR; role++)
        tensor = param->tensor[role];
    CHECK(tensor != DCPK_NO_TENSOR, made->canonical);
    CHECK_EQ_INT(made->rank, model->tensors[tensor].rank, made->canonical);
    for (int a = 0; a < made->rank; a++)
        CHECK_EQ_INT(made->whole[a], model->tensors[tensor].shape[a], made->canonical);
    /* Experts are whole here: expert tensor parallelism is 1. */
    CHECK_EQ_INT(made->tp_axis, made->expert < 0 ? param->tp_axis : -1, made->canonical);
    CHECK(dcpk_registered_find(made->canonical, 0, &registered), made->canonical);
    CHECK_EQ_INT(made->is_buffer, registered.is_buffer, made->canonical);
    CHECK_EQ_INT(made->expert, param->expert, made->canonical);
    CHECK_EQ_INT(made->unit, param->unit == DCPK_NO_UNIT ? -1 : (int64_t)param->unit,
                 made->canonical);
    if (made->is_buffer)
        return;
    CHECK(*last_place == DCPK_NO_PLACE || param->place > *last_place, made->canonical);
    *last_place = param->place;
}

static void tables_are_what_runs_stored(void **state)
{
    const struct dcpk_coords place = {0};
    struct dcpk_error err = DCPK_ERROR_INIT;

    (void)state;
    for (size_t g = 0; g < DCPK_COUNT(goldens); g++) {
        struct dcpk_model *model = open_model(goldens[g].folder);
        struct dcpk_checkpoint *ckpt = model->ckpt;
        const struct dcpk_value *args = dcpk_value_attrs(model->args);
        struct dcpk_train_config config;
        struct dcpk_train_params params;
        uint8_t is_moe[MAX_LAYERS];
        uint32_t last_place = DCPK_NO_PLACE;

        CHECK(args != NULL, goldens[g].folder);
        CHECK(arg_int(args, "num_layers", 0) <= MAX_LAYERS, goldens[g].folder);
        read_config(args, &config, is_moe);
        CHECK_OK(dcpk_train_params(&config, &place, model->arena, &params, &err),
                 goldens[g].folder);
        for (size_t i = 0; i < params.n; i++)
            check_param(model, &params.list[i], &last_place);

        CHECK_EQ_INT(params.n, count_known(model), goldens[g].folder);
        CHECK_EQ_INT(params.n, goldens[g].n_params, goldens[g].folder);
        dcpk_model_free(model);
        dcpk_checkpoint_close(ckpt);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tables_are_what_runs_stored)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

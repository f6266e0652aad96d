/* SPDX-License-Identifier: Apache-2.0 */
/* test_params.c - the trainer's table of parameters on several ranks: order of registration, cuts,
 * and the flat buffers that Megatron-FSDP's own functions made of the same model. */
#include "lib/base/order.h"
#include "lib/model/registered.h"
#include "lib/place/fsdp_layout.h"
#include "lib/train/params.h"
#include "tests/check.h"

#define MAX_PARAMS 128

static struct dcpk_train_config config_of(int64_t layers)
{
    return (struct dcpk_train_config){
        .model = {.layers = layers,
                  .hidden = 64,
                  .ffn = 96,
                  .heads = 4,
                  .groups = 4,
                  .head_dim = 16,
                  .padded_vocab = 256,
                  .moe_ffn = 48,
                  .impl = DCPK_IMPL_LOCAL},
        .layout = {.tp = 1, .cp = 1, .ep = 1, .pp = 1, .dp = 1},
    };
}

static struct dcpk_train_params params_of(const struct dcpk_train_config *config,
                                          struct dcpk_coords place, struct dcpk_arena *arena,
                                          const char *label)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_train_params params;

    CHECK_OK(dcpk_train_params(config, &place, arena, &params, &err), label);
    return params;
}

static struct dcpk_arena *new_arena(void)
{
    struct dcpk_arena *arena = dcpk_arena_new();

    return arena;
}

static const struct dcpk_train_param *find(const struct dcpk_train_params *params, const char *live)
{
    for (size_t i = 0; i < params->n; i++)
        if (strcmp(params->list[i].live, live) == 0)
            return &params->list[i];
    fail_msg("no parameter is called %s", live);
    return NULL;
}

/* Every kind of model: both specs, both kinds of experts. */
static void order_is_that_of_registration(void **state)
{
    static const char *const labels[] = {"local, sequential", "TE, sequential", "local, grouped",
                                         "TE, grouped"};

    (void)state;
    for (unsigned spec = 0; spec < 4; spec++) {
        struct dcpk_arena *arena = new_arena();
        struct dcpk_train_config config = config_of(3);
        struct dcpk_registered last = {.section = DCPK_EMBEDDING, .order = {-1}}, next;
        struct dcpk_train_params params;
        static const uint8_t is_moe[] = {0, 1, 1};

        config.model.impl = (spec & DCPK_SPEC_TE) != 0 ? DCPK_IMPL_TE : DCPK_IMPL_LOCAL;
        config.model.is_grouped = (spec & DCPK_SPEC_GROUPED) != 0;
        config.model.experts = 4;
        config.model.shared_ffn = 32;
        config.model.has_qk_norm = true;
        config.model.mtp_layers = 2;
        config.model.moe_layers = is_moe;
        params = params_of(&config, (struct dcpk_coords){0}, arena, labels[spec]);
        for (size_t i = 0; i < params.n; i++, last = next) {
            CHECK(dcpk_registered_find(params.list[i].canonical, spec, &next), labels[spec]);
            CHECK(dcpk_registered_compare(&last, &next) < 0, params.list[i].canonical);
        }
        CHECK_EQ_INT(params.n, 1 + (6 + 2) + 2 * (7 + 8 + 2) + 1 + 2 * (3 + 17 + 1) + 1,
                     labels[spec]);
        CHECK_EQ_INT(params.n_units, 5, labels[spec]);
        dcpk_arena_free(arena);
    }
}

/* Parts of all ranks: each row of the whole parameter is one rank's. */
static void cuts_cover_the_parameter(void **state)
{
    struct dcpk_train_config config = config_of(1);
    struct dcpk_arena *arena = new_arena();
    static const char *const names[] = {"decoder.layers.0.mlp.linear_fc1.weight",
                                        "decoder.layers.0.self_attention.linear_qkv.weight",
                                        "output_layer.weight"};

    (void)state;
    config.layout.tp = 2;
    for (size_t n = 0; n < DCPK_COUNT(names); n++) {
        uint8_t seen[256] = {0};
        int64_t whole = 0;

        for (int64_t tp = 0; tp < 2; tp++) {
            const struct dcpk_train_params params =
                params_of(&config, (struct dcpk_coords){.tp = tp}, arena, names[n]);
            const struct dcpk_train_param *p = find(&params, names[n]);

            whole = p->whole[0];
            for (int64_t row = 0; row < p->shape[0]; row++)
                seen[dcpk_train_param_row(p, row)]++;
            /* Gate rows first, then up rows. */
            if (p->has_halves)
                CHECK_EQ_INT(dcpk_train_param_row(p, p->shape[0] / 2), 96 + tp * 48, names[n]);
        }
        for (int64_t row = 0; row < whole; row++)
            CHECK_EQ_INT(seen[row], 1, names[n]);
    }
    dcpk_arena_free(arena);
}

static void stages_and_experts_are_shared_out(void **state)
{
    struct dcpk_train_config config = config_of(4);
    struct dcpk_arena *arena = new_arena();
    struct dcpk_train_params params;

    (void)state;
    config.layout.pp = 2;
    config.layout.ep = 2;
    config.model.experts = 4;
    config.model.is_tied = true;
    params = params_of(&config, (struct dcpk_coords){.ep = 1}, arena, "first stage");
    CHECK_EQ_INT(params.n, 1 + 2 * (5 + 4), "first stage");
    CHECK_EQ_STR(params.list[6].live,
                 "decoder.layers.0.mlp.experts.local_experts.2."
                 "linear_fc1.weight",
                 "first stage");
    params = params_of(&config, (struct dcpk_coords){.ep = 1, .pp = 1}, arena, "last stage");
    CHECK_EQ_INT(params.n, 2 * (5 + 4) + 2, "last stage");
    CHECK_EQ_INT(params.list[0].layer, 2, "last stage");
    CHECK(params.list[params.n - 1].is_shared, "copy of the word embedding");
    CHECK_EQ_STR(params.list[params.n - 1].canonical, "embedding.word_embeddings.weight", "copy");
    dcpk_arena_free(arena);
}

/* What a parameter's rows on FSDP ranks must be. Numbers: formats/fsdp_dtensor/FORMAT.md 8.3, from
 * Megatron-FSDP's own functions. */
struct wanted_cut {
    const char *live;
    int64_t first;
    int64_t cut[5];
};

static const struct {
    const char *label;
    int64_t n_shards, groups, ffn, heads, tp, experts, ep;
    int64_t unit;
    bool is_expert;
    struct wanted_cut wanted[6];
} layouts[] = {
    {"f=96, D=2",
     2,
     4,
     96,
     4,
     1,
     0,
     1,
     0,
     false,
     {{"decoder.layers.0.input_layernorm.weight", 10240, {0, 64, 64}},
      {"decoder.layers.0.self_attention.linear_proj.weight", 6144, {0, 64, 64}},
      {"decoder.layers.0.self_attention.linear_qkv.weight", 10368, {0, 111, 192}},
      {"decoder.layers.0.pre_mlp_layernorm.weight", 10304, {0, 64, 64}},
      {"decoder.layers.0.mlp.linear_fc1.weight", 22656, {0, 0, 192}},
      {"decoder.layers.0.mlp.linear_fc2.weight", 0, {0, 64, 64}}}},
    {"outside units, D=4",
     4,
     4,
     96,
     4,
     1,
     0,
     1,
     -1,
     false,
     {{"embedding.word_embeddings.weight", 0, {0, 129, 256, 256, 256}},
      {"decoder.final_layernorm.weight", 32768, {0, 0, 0, 0, 64}},
      {"output_layer.weight", 16384, {0, 0, 2, 131, 256}}}},
    {"TP2, 8 heads, ng=4, f=160, D=2",
     2,
     4,
     160,
     8,
     2,
     0,
     1,
     0,
     false,
     {{"decoder.layers.0.self_attention.linear_proj.weight", 5120, {0, 64, 64}},
      {"decoder.layers.0.self_attention.linear_qkv.weight", 9280, {0, 75, 128}},
      {"decoder.layers.0.mlp.linear_fc1.weight", 17600, {0, 0, 160}},
      {"decoder.layers.0.mlp.linear_fc2.weight", 0, {0, 64, 64}}}},
    {"MoE, dense part, D=2",
     2,
     4,
     96,
     4,
     1,
     4,
     2,
     0,
     false,
     {{"decoder.layers.0.input_layernorm.weight", 16640, {0, 0, 64}},
      {"decoder.layers.0.self_attention.linear_qkv.weight", 4096, {0, 67, 192}},
      {"decoder.layers.0.mlp.router.weight", 16384, {0, 0, 4}}}},
    {"MoE, experts of one rank of EP2, D=2",
     2,
     4,
     96,
     4,
     1,
     4,
     2,
     0,
     true,
     {{"decoder.layers.0.mlp.experts.local_experts.0.linear_fc1.weight", 0, {0, 96, 96}},
      {"decoder.layers.0.mlp.experts.local_experts.0.linear_fc2.weight", 12288, {0, 0, 64}},
      {"decoder.layers.0.mlp.experts.local_experts.1.linear_fc1.weight", 6144, {0, 48, 96}},
      {"decoder.layers.0.mlp.experts.local_experts.1.linear_fc2.weight", 15360, {0, 0, 64}}}},
};

static void check_layout(size_t l, const struct dcpk_train_params *params)
{
    struct dcpk_fsdp_param fsdp[MAX_PARAMS];
    struct dcpk_fsdp_place places[MAX_PARAMS];
    const struct dcpk_train_param *of[MAX_PARAMS];
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_box box;
    int64_t first;
    size_t n = 0, n_seen = 0;

    for (size_t i = 0; i < params->n; i++)
        if (params->list[i].unit == layouts[l].unit &&
            (params->list[i].expert >= 0) == layouts[l].is_expert) {
            of[n] = &params->list[i];
            fsdp[n++] = (struct dcpk_fsdp_param){.name = params->list[i].live,
                                                 .shape = params->list[i].shape,
                                                 .rank = params->list[i].rank,
                                                 .is_in_unit = layouts[l].unit >= 0,
                                                 .n_shards = layouts[l].n_shards};
        }
    CHECK_OK(dcpk_fsdp_layout(fsdp, n, 0, places, &err), layouts[l].label);
    for (size_t i = 0; i < n; i++)
        for (size_t w = 0; w < DCPK_COUNT(layouts[l].wanted); w++) {
            const struct wanted_cut *wanted = &layouts[l].wanted[w];

            if (wanted->live == NULL || strcmp(wanted->live, of[i]->live) != 0)
                continue;
            CHECK_EQ_INT(places[i].first, wanted->first, layouts[l].label);
            for (int64_t r = 0; r < layouts[l].n_shards; r++) {
                CHECK_OK(dcpk_fsdp_shard(&fsdp[i], &places[i], r, &box, &first, &err),
                         layouts[l].label);
                CHECK_EQ_INT(box.offset[0], wanted->cut[r], wanted->live);
                CHECK_EQ_INT(box.extent[0], wanted->cut[r + 1] - wanted->cut[r], wanted->live);
            }
            n_seen++;
        }
    for (size_t w = 0; w < DCPK_COUNT(layouts[l].wanted); w++)
        n_seen -= layouts[l].wanted[w].live != NULL;
    CHECK_EQ_INT(n_seen, 0, layouts[l].label);
}

static void a12_layouts_are_those_of_megatron_fsdp(void **state)
{
    (void)state;
    for (size_t l = 0; l < DCPK_COUNT(layouts); l++) {
        struct dcpk_train_config config = config_of(1);
        struct dcpk_arena *arena = new_arena();
        struct dcpk_train_params params;

        config.model.groups = layouts[l].groups;
        config.model.heads = layouts[l].heads;
        config.model.ffn = layouts[l].ffn;
        config.model.experts = layouts[l].experts;
        config.layout.tp = layouts[l].tp;
        config.layout.ep = layouts[l].ep;
        params = params_of(&config, (struct dcpk_coords){0}, arena, layouts[l].label);
        check_layout(l, &params);
        dcpk_arena_free(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_is_that_of_registration),
        cmocka_unit_test(cuts_cover_the_parameter),
        cmocka_unit_test(stages_and_experts_are_shared_out),
        cmocka_unit_test(a12_layouts_are_those_of_megatron_fsdp),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

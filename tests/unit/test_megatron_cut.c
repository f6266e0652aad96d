/* SPDX-License-Identifier: Apache-2.0 */
/* test_megatron_cut.c - how args, names and chunks tell the way a model was cut over ranks. */
#include "formats/megatron/megatron_buckets.h"
#include "tests/check.h"
#include "tests/unit/megatron_args.h"

/* --- layers on stages --- */

static const struct {
    const char *label;
    int64_t n_layers, pp, vpp, first, last;
    bool counts_embedding, counts_loss;
    /* By layer: stage * 10 + chunk. Megatron's docstrings (MC/transformer/transformer_block.py
     * get_num_layers_to_build) have the interleaved ones; the others follow its assertions. */
    int want[8];
} cuts[] = {
    {"one stage", 3, 1, 1, -1, -1, false, false, {0, 0, 0}},
    {"even", 4, 2, 1, -1, -1, false, false, {0, 0, 10, 10}},
    {"8 layers, 2 stages, 4 chunks", 8, 2, 4, -1, -1, false, false, {0, 10, 1, 11, 2, 12, 3, 13}},
    {"8 layers, 2 stages, 2 chunks", 8, 2, 2, -1, -1, false, false, {0, 0, 10, 10, 1, 1, 11, 11}},
    {"short first stage", 7, 3, 1, 1, -1, false, false, {0, 10, 10, 10, 20, 20, 20}},
    {"short ends", 5, 3, 1, 1, 2, false, false, {0, 10, 10, 20, 20}},
    {"all but the middle", 4, 2, 1, 3, 1, false, false, {0, 0, 0, 10}},
    {"embedding and loss count", 6, 2, 1, -1, -1, true, true, {0, 0, 0, 10, 10, 10}},
    {"embedding counts", 7, 2, 1, -1, -1, true, false, {0, 0, 0, 10, 10, 10, 10}},
};

static void layers_are_on_their_stages(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        const struct dcpk_cut cut = {.n_layers = cuts[i].n_layers,
                                     .pp = cuts[i].pp,
                                     .vpp = cuts[i].vpp,
                                     .first_layers = cuts[i].first,
                                     .last_layers = cuts[i].last,
                                     .counts_embedding = cuts[i].counts_embedding,
                                     .counts_loss = cuts[i].counts_loss};
        struct dcpk_error err = DCPK_ERROR_INIT;
        int64_t stage, chunk;

        for (int64_t layer = 0; layer < cut.n_layers; layer++) {
            CHECK_OK(dcpk_cut_find_layer(&cut, layer, &stage, &chunk, &err), cuts[i].label);
            CHECK_EQ_INT(stage * 10 + chunk, cuts[i].want[layer], cuts[i].label);
        }
        CHECK_FAILS(dcpk_cut_find_layer(&cut, cut.n_layers, &stage, &chunk, &err), DCPK_EFORMAT,
                    "no pipeline stage", cuts[i].label);
    }
}

static const struct {
    const char *label;
    struct setting settings[10];
    dcpk_status status;
    const char *text;
} bad_args[] = {
    {"no world size",
     {{"tensor_model_parallel_size", 1, NULL},
      {"pipeline_model_parallel_size", 1, NULL},
      {"num_layers", 4, NULL}},
     DCPK_EUNSUPPORTED,
     "args.world_size is not set"},
    {"no layers", {{"tensor_model_parallel_size", 1, NULL}}, DCPK_EUNSUPPORTED, "is not set"},
    {"uneven",
     {{"tensor_model_parallel_size", 1, NULL},
      {"pipeline_model_parallel_size", 3, NULL},
      {"num_layers", 4, NULL},
      {"world_size", 3, NULL}},
     DCPK_EFORMAT,
     "do not come out even"},
    {"a world that does not fit",
     {{"tensor_model_parallel_size", 2, NULL},
      {"pipeline_model_parallel_size", 2, NULL},
      {"num_layers", 4, NULL},
      {"world_size", 6, NULL}},
     DCPK_EFORMAT,
     "no multiple"},
    {"a size of none", {{"tensor_model_parallel_size", 0, NULL}}, DCPK_EFORMAT, "is 0"},
    {"no number", {{"tensor_model_parallel_size", 0, "two"}}, DCPK_EFORMAT, "no number"},
    {"too many chunks",
     {{"tensor_model_parallel_size", 1, NULL},
      {"pipeline_model_parallel_size", 1000000, NULL},
      {"virtual_pipeline_model_parallel_size", 1000000, NULL},
      {"num_layers", 4, NULL}},
     DCPK_ERANGE,
     "pipeline stages"},
    {"multi-token prediction",
     {GOOD_ARGS, {"mtp_num_layers", 1, NULL}},
     DCPK_EUNSUPPORTED,
     "multi-token prediction"},
    {"a layout of its own",
     {GOOD_ARGS, {"pipeline_model_parallel_layout", 0, "Et*3|t*4L"}},
     DCPK_EUNSUPPORTED,
     "args.pipeline_model_parallel_layout"},
    {"experts that do not divide",
     {GOOD_ARGS, {"num_experts", 3, NULL}, {"expert_model_parallel_size", 2, NULL}},
     DCPK_EFORMAT,
     "3 experts on 2"},
};

static void args_that_do_not_tell_are_refused(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new(0, &err);
    struct dcpk_cut cut;

    (void)state;
    for (size_t i = 0; i < sizeof bad_args / sizeof bad_args[0]; i++) {
        err = (struct dcpk_error)DCPK_ERROR_INIT;
        CHECK_FAILS(dcpk_cut_read(make_args(arena, bad_args[i].settings), &cut, &err),
                    bad_args[i].status, bad_args[i].text, bad_args[i].label);
    }
    err = (struct dcpk_error)DCPK_ERROR_INIT;
    CHECK_FAILS(dcpk_cut_read(NULL, &cut, &err), DCPK_EUNSUPPORTED, "no args", "none");
    dcpk_arena_free(arena);
}

/* --- the order of registration --- */

/* fsdp_training.md 4.2, in the names of torch_dist on disk (torch_dist.md 4.3). */
static const char *const local_order[] = {
    "embedding.word_embeddings.weight",
    "embedding.position_embeddings.weight",
    "decoder.layers.0.self_attention.linear_qkv.layer_norm_weight",
    "decoder.layers.0.self_attention.linear_qkv.layer_norm_bias",
    "decoder.layers.0.self_attention.linear_proj.weight",
    "decoder.layers.0.self_attention.linear_proj.bias",
    "decoder.layers.0.self_attention.linear_qkv.weight",
    "decoder.layers.0.self_attention.linear_qkv.bias",
    "decoder.layers.0.self_attention.q_layernorm.weight",
    "decoder.layers.0.self_attention.k_layernorm.weight",
    "decoder.layers.0.mlp.linear_fc1.layer_norm_weight",
    "decoder.layers.0.mlp.linear_fc1.weight",
    "decoder.layers.0.mlp.linear_fc2.weight",
    "decoder.layers.1.self_attention.linear_qkv.layer_norm_weight",
    "decoder.layers.1.mlp.linear_fc1.layer_norm_weight",
    "decoder.layers.1.mlp.router.weight",
    "decoder.layers.1.mlp.experts.linear_fc1.weight0",
    "decoder.layers.1.mlp.experts.linear_fc1.bias0",
    "decoder.layers.1.mlp.experts.linear_fc2.weight0",
    "decoder.layers.1.mlp.experts.linear_fc1.weight1",
    "decoder.layers.1.mlp.experts.linear_fc2.weight1",
    "decoder.layers.1.mlp.experts.linear_fc1.weight10",
    "decoder.layers.1.mlp.shared_experts.gate_weight",
    "decoder.layers.1.mlp.shared_experts.linear_fc1.weight",
    "decoder.layers.1.mlp.shared_experts.linear_fc2.weight",
    "decoder.layers.10.self_attention.linear_proj.weight",
    "decoder.final_layernorm.weight",
    "output_layer.weight",
};
static const char *const te_order[] = {
    "embedding.word_embeddings.weight",
    "decoder.layers.0.self_attention.linear_proj.weight",
    "decoder.layers.0.self_attention.linear_qkv.layer_norm_weight",
    "decoder.layers.0.self_attention.linear_qkv.weight",
    "decoder.layers.0.self_attention.q_layernorm.weight",
    "decoder.layers.0.mlp.linear_fc1.layer_norm_weight",
    "decoder.layers.0.mlp.linear_fc1.weight",
    "decoder.layers.0.mlp.linear_fc2.weight",
    "decoder.layers.1.self_attention.linear_proj.weight",
    "decoder.layers.1.pre_mlp_layernorm.weight",
    "decoder.layers.1.mlp.router.weight",
    "decoder.layers.1.mlp.experts.linear_fc1.weight0",
    "decoder.layers.1.mlp.experts.linear_fc1.weight1",
    "decoder.layers.1.mlp.experts.linear_fc1.weight10",
    "decoder.layers.1.mlp.experts.linear_fc2.weight0",
    "decoder.layers.1.mlp.experts.linear_fc2.weight1",
    "decoder.layers.1.mlp.shared_experts.linear_fc1.weight",
    "decoder.final_layernorm.weight",
    "output_layer.weight",
};

static void check_ascending(const char *const *names, size_t n, bool is_te, bool is_grouped)
{
    struct dcpk_registered before = {0}, reg;

    for (size_t i = 0; i < n; i++) {
        CHECK(dcpk_registered_find(names[i], is_te, is_grouped, &reg), names[i]);
        CHECK(i == 0 || before.major < reg.major ||
                  (before.major == reg.major && before.minor < reg.minor),
              names[i]);
        before = reg;
    }
}

static void modules_register_in_their_order(void **state)
{
    struct dcpk_registered reg;

    (void)state;
    check_ascending(local_order, sizeof local_order / sizeof local_order[0], false, false);
    check_ascending(te_order, sizeof te_order / sizeof te_order[0], true, true);
    CHECK(
        dcpk_registered_find("decoder.layers.7.mlp.experts.linear_fc2.weight12", true, true, &reg),
        "an expert");
    CHECK_EQ_INT(reg.layer, 7, "an expert's layer");
    CHECK_EQ_INT(reg.expert, 12, "an expert's number");
    CHECK(dcpk_registered_find("decoder.layers.1.mlp.router.expert_bias", true, true, &reg) &&
              reg.is_buffer,
          "a buffer");
}

static void names_without_a_known_order_are_said_so(void **state)
{
    static const char *const names[] = {
        "mtp.layers.0.enorm.weight",
        "decoder.layers.0.self_attention.linear_q_down_proj.weight",
        "decoder.layers.0.mixer.in_proj.weight",
        "decoder.layers.x.mlp.linear_fc1.weight",
        "decoder.layers.1234567890.mlp.linear_fc1.weight",
        "decoder.layers.0",
        "decoder.layers.0.mlp.linear_fc1.scale",
        "decoder.layers.0.mlp.experts.linear_fc1.weight",
        "decoder.layers.0.mlp.experts.linear_fc3.weight0",
        "",
    };
    struct dcpk_registered reg;

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        CHECK(!dcpk_registered_find(names[i], false, false, &reg), names[i]);
    CHECK(!dcpk_registered_find("decoder.layers.0.mlp.experts.linear_fc1.bias0", true, true, &reg),
          "a bias of grouped experts");
}

/* --- blocks of tensor parallelism --- */

static const struct {
    const char *label;
    int64_t shape[3], extent[3]; /* of every chunk; they are laid along all axes */
    int64_t tp;
    int axis; /* -2: refused */
    int64_t n_ranks;
    bool is_gated;
} blocks[] = {
    /* Chunks of the sample torch_dist_c_dp_reshardable_tp2dp2 (torch_dist.md 4.4). */
    {"gated fc1, two ranks", {4, 192, 64}, {1, 48, 64}, 2, 0, 2, true},
    {"row parallel", {4, 64, 96}, {1, 64, 48}, 2, 1, 2, false},
    {"column parallel", {4, 128, 64}, {1, 64, 64}, 2, 0, 2, false},
    {"replicated", {4, 1, 64}, {1, 1, 64}, 2, -1, 1, false},
    {"gated fc1, one rank", {4, 192, 64}, {1, 96, 64}, 1, 0, 1, true},
    {"experts together", {4, 192, 64}, {2, 96, 64}, 1, 0, 1, true},
    {"whole", {4, 192, 64}, {1, 192, 64}, 1, -1, 1, false},
    {"three blocks for two ranks", {4, 192, 64}, {1, 64, 64}, 2, -2, 0, false},
    {"cut along two axes", {4, 192, 64}, {1, 96, 32}, 2, -2, 0, false},
    {"twice as many, but on axis 1", {4, 64, 192}, {1, 64, 48}, 2, -2, 0, false},
};

static void blocks_are_read_off_the_chunks(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_chunk chunks[64];
        int64_t spans[64][6], n = 0;
        const struct dcpk_checkpoint ckpt = {.chunks = chunks};
        struct dcpk_tensor tensor = {.key = "t", .rank = 3, .shape = blocks[i].shape};
        struct dcpk_blocks got;
        const int64_t *s = blocks[i].shape, *e = blocks[i].extent;
        dcpk_status st;

        for (int64_t a = 0; a < s[0]; a += e[0])
            for (int64_t b = 0; b < s[1]; b += e[1])
                for (int64_t c = 0; c < s[2]; c += e[2], n++) {
                    memcpy(spans[n], (int64_t[]){a, b, c, e[0], e[1], e[2]}, sizeof spans[n]);
                    chunks[n] = (struct dcpk_chunk){.span = spans[n]};
                }
        tensor.n_chunks = (size_t)n;
        st = dcpk_blocks_find(&ckpt, &tensor, 1, blocks[i].tp, &got, &err);
        if (blocks[i].axis == -2) {
            CHECK_EQ_INT(st, DCPK_EUNSUPPORTED, blocks[i].label);
            continue;
        }
        CHECK_OK(st, blocks[i].label);
        CHECK_EQ_INT(got.axis, blocks[i].axis, blocks[i].label);
        CHECK_EQ_INT(got.n_ranks, blocks[i].n_ranks, blocks[i].label);
        CHECK_EQ_INT(got.is_gated, blocks[i].is_gated, blocks[i].label);
    }
}

static void a_gated_rank_holds_gate_then_up(void **state)
{
    const struct dcpk_blocks gated = {0, 2, true};
    const int64_t shape[] = {192, 64};
    static const int64_t rows[2][2] = {{0, 96}, {48, 144}}; /* torch_dist.md 4.4 */
    struct dcpk_box box;

    (void)state;
    for (int r = 0; r < 2; r++)
        for (int half = 0; half < 2; half++) {
            dcpk_blocks_box(&gated, shape, 2, r, half, &box);
            CHECK_EQ_INT(box.offset[0], rows[r][half], "row");
            CHECK_EQ_INT(box.extent[0], 48, "rows");
            CHECK_EQ_INT(box.extent[1], 64, "columns");
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_are_on_their_stages),
        cmocka_unit_test(args_that_do_not_tell_are_refused),
        cmocka_unit_test(modules_register_in_their_order),
        cmocka_unit_test(names_without_a_known_order_are_said_so),
        cmocka_unit_test(blocks_are_read_off_the_chunks),
        cmocka_unit_test(a_gated_rank_holds_gate_then_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

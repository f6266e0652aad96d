/* SPDX-License-Identifier: Apache-2.0 */
/* test_reverse_golden.c - fsdp_dtensor to torch_dist: what Megatron-FSDP wrote has the keys and
 * shapes that Megatron asks for. */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/kernels.h"
#include "lib/base/alloc.h"
#include "lib/job/compare.h"
#include "tests/golden/conversions.h"

/* Parameters: 3, and in each layer 6; a MoE layer has a router and 2 for each of 4 experts instead
 * of 2, and 2 of the shared experts where there are any. */
static const struct {
    const char *folder;
    uint64_t n_params;
} native[] = {
    {"fsdp_dtensor_native_dp2", 3 + 4 * 6},
    {"fsdp_dtensor_native_moe_ep2dp4", 3 + 6 + 3 * 13},
    {"fsdp_dtensor_telike_dp2_015/iter_0000004", 3 + 2 * 6},
    {"fsdp_dtensor_telike_dp2_019/iter_0000004", 3 + 2 * 6},
    {"fsdp_dtensor_telike_tp2dp2/iter_0000004", 3 + 2 * 6},
    {"fsdp_dtensor_telike_ep2dp4/iter_0000004", 3 + 6 + 15},
};

/* n_sides: of the two, how many have weights beside their masters. */
static void prove(const char *folder, uint64_t n_params, uint64_t n_sides, unsigned flags)
{
    const bool weights_only = (flags & DCPK_MODEL_WEIGHTS_ONLY) != 0;
    const struct dcpk_compare_options options = {
        .policy = DCPK_COMPARE_FAITHFUL,
        .weights_only = weights_only,
        .env = {.kernels = dcpk_host_kernel_sets[0], .n_threads = 2}};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_checkpoint *ours = open_at(scratch("out")), *source = open_at(sample_path(folder));
    struct dcpk_compare_report report;

    CHECK_OK(dcpk_compare_checkpoints(ours, source, &options, &report, &err), folder);
    if (!report.equal)
        fail_msg("%s: %s", folder, report.differences.first->sentence);
    CHECK_EQ_INT(report.n_params, n_params, folder);
    CHECK_EQ_INT(report.n_tensors, weights_only ? n_params : 3 * n_params, folder);
    CHECK_EQ_INT(report.n_masters, weights_only ? 0 : n_sides * n_params, folder);
    dcpk_compare_release(&report);
    dcpk_checkpoint_close(ours);
    dcpk_checkpoint_close(source);
}

static void conversions_are_proven(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof native / sizeof native[0]; i++)
        for (int weights_only = 0; weights_only < 2; weights_only++) {
            const struct wish wish = {.to = "torch_dist",
                                      .flags = weights_only ? DCPK_CONVERT_WEIGHTS_ONLY : 0u};
            struct dcpk_error err = DCPK_ERROR_INIT;
            const char *out = strchr(native[i].folder, '/') != NULL ? "out/iter_0000004" : "out";

            CHECK_OK(convert_as(sample_path(native[i].folder), scratch(out), &wish, &err),
                     native[i].folder);
            prove(native[i].folder, native[i].n_params, 1,
                  weights_only ? DCPK_MODEL_WEIGHTS_ONLY : 0u);
            scratch_clean("out");
        }
}

/* fsdp_dtensor does not record that layers were apart: they come back stacked, as args have it. */
static void layers_apart_come_back_stacked(void **state)
{
    static const char sample[] = "torch_dist_c_per_layer";
    const struct wish forth = {.to = "fsdp_dtensor"}, back = {.to = "torch_dist"};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_checkpoint *ckpt;

    (void)state;
    CHECK_OK(convert_as(sample_path(sample), scratch("forth"), &forth, &err), sample);
    CHECK_OK(convert_as(scratch("forth"), scratch("out"), &back, &err), sample);
    ckpt = open_at(scratch("out"));
    CHECK(dcpk_checkpoint_tensor(ckpt, "decoder.layers.mlp.linear_fc1.weight") != NULL, sample);
    dcpk_checkpoint_close(ckpt);
    prove(sample, 15, 2, 0);
}

/*
 * Shapes and dtypes by formats/torch_dist/FORMAT.md 4.2 to 4.5 for the models that PROVENANCE.txt
 * describes.
 */
static void keys_are_what_megatron_asks_for(void **state)
{
    static const struct {
        const char *sample, *key;
        enum dcpk_dtype dtype;
        int rank;
        int64_t shape[3];
    } cases[] = {
        {"fsdp_dtensor_native_dp2", "embedding.word_embeddings.weight", .dtype = DCPK_BF16,
         .rank = 2, .shape = {256, 64}},
        {"fsdp_dtensor_native_dp2", "decoder.layers.mlp.linear_fc1.weight", .dtype = DCPK_BF16,
         .rank = 3, .shape = {4, 192, 64}},
        {"fsdp_dtensor_native_dp2", "decoder.layers.self_attention.linear_qkv.layer_norm_weight",
         .dtype = DCPK_BF16, .rank = 2, .shape = {4, 64}},
        {"fsdp_dtensor_native_dp2",
         "optimizer.state.param.decoder.layers.mlp.linear_fc1.layer_norm_weight", .dtype = DCPK_F32,
         .rank = 2, .shape = {4, 64}},
        {"fsdp_dtensor_native_dp2",
         "optimizer.state.exp_avg_sq.decoder.layers.mlp.linear_fc2.weight", .dtype = DCPK_F32,
         .rank = 3, .shape = {4, 64, 96}},
        {"fsdp_dtensor_native_moe_ep2dp4", "decoder.layers.2.mlp.experts.experts.linear_fc1.weight",
         .dtype = DCPK_BF16, .rank = 3, .shape = {4, 96, 64}},
        {"fsdp_dtensor_native_moe_ep2dp4",
         "optimizer.state.param.decoder.layers.3.mlp.experts.experts.linear_fc2.weight",
         .dtype = DCPK_F32, .rank = 3, .shape = {4, 64, 48}},
        {"fsdp_dtensor_native_moe_ep2dp4", "decoder.layers.1.pre_mlp_layernorm.weight",
         .dtype = DCPK_BF16, .rank = 1, .shape = {64}},
        {"fsdp_dtensor_native_moe_ep2dp4", "decoder.layers.1.mlp.linear_fc1.layer_norm_weight",
         .dtype = DCPK_BF16, .rank = 1, .shape = {64}},
    };
    static const struct {
        const char *sample, *key;
    } objects[] = {
        {"fsdp_dtensor_native_dp2", "rng_state/shard_0.0_1.1"},
        {"fsdp_dtensor_native_dp2",
         "decoder.layers.self_attention.core_attention._extra_state/shard_3_4"},
        {"fsdp_dtensor_native_dp2", "decoder.final_layernorm._extra_state/shard_0_1"},
        {"fsdp_dtensor_native_moe_ep2dp4",
         "decoder.layers.1.mlp.experts.experts.linear_fc2._extra_state/shard_3_4"},
        {"fsdp_dtensor_native_moe_ep2dp4",
         "decoder.layers.1.pre_mlp_layernorm._extra_state/shard_0_1"},
        {"fsdp_dtensor_native_moe_ep2dp4",
         "decoder.layers.0.self_attention.linear_qkv._extra_state/shard_0_1"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct wish wish = {.to = "torch_dist"};
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_checkpoint *ckpt;
        const struct dcpk_tensor *t;

        CHECK_OK(convert_as(sample_path(cases[i].sample), scratch("out"), &wish, &err),
                 cases[i].key);
        ckpt = open_at(scratch("out"));
        t = dcpk_checkpoint_tensor(ckpt, cases[i].key);
        CHECK(t != NULL, cases[i].key);
        CHECK_EQ_INT(t->dtype, cases[i].dtype, cases[i].key);
        CHECK_EQ_INT(t->rank, cases[i].rank, cases[i].key);
        for (int a = 0; a < t->rank; a++)
            CHECK_EQ_INT(t->shape[a], cases[i].shape[a], cases[i].key);
        for (size_t o = 0; o < sizeof objects / sizeof objects[0]; o++)
            if (strcmp(objects[o].sample, cases[i].sample) == 0)
                CHECK(dcpk_checkpoint_object(ckpt, objects[o].key) != NULL, objects[o].key);
        dcpk_checkpoint_close(ckpt);
        scratch_clean("out");
    }
}

/* Megatron-FSDP has no expert groups; Megatron has them with expert parallelism. */
static void expert_groups_follow_the_target(void **state)
{
    static const struct {
        const char *label;
        int64_t ep;
        bool is_split;
    } cases[] = {{"as args say: 2", 0, true}, {"ep=1", 1, false}, {"ep=4", 4, true}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct wish wish = {.to = "torch_dist", .ep = cases[i].ep};
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_arena *arena = dcpk_arena_new();
        struct dcpk_checkpoint *ckpt;
        const struct dcpk_value *optimizer, *dense, *expert, *groups;
        bool flag = false;

        CHECK_OK(
            convert_as(sample_path("fsdp_dtensor_native_moe_ep2dp4"), scratch("out"), &wish, &err),
            cases[i].label);
        ckpt = open_at(scratch("out"));
        optimizer = dcpk_value_get(load_common(ckpt, arena), "optimizer");
        dense = cases[i].is_split ? dcpk_value_get_int(optimizer, 0) : optimizer;
        expert = dcpk_value_get_int(optimizer, 1);
        groups = dcpk_value_get(dcpk_value_get(dense, "optimizer"), "param_groups");
        CHECK(groups != NULL, cases[i].label);
        CHECK_EQ_INT(groups->n, 2, cases[i].label);
        CHECK_EQ_INT(expert != NULL, cases[i].is_split, cases[i].label);
        if (cases[i].is_split) {
            groups = dcpk_value_get(dcpk_value_get(expert, "optimizer"), "param_groups");
            CHECK_EQ_INT(groups->n, 1, cases[i].label);
            CHECK(dcpk_value_as_bool(dcpk_value_get(dcpk_value_at(groups, 0), "is_expert_parallel"),
                                     &flag),
                  cases[i].label);
            CHECK(flag, cases[i].label);
        }
        dcpk_checkpoint_close(ckpt);
        dcpk_arena_free(arena);
        scratch_clean("out");
    }
}

/*
 * What today's Megatron cannot read, or not at another layout, is written anew in the same format.
 */
static void older_layouts_become_todays(void **state)
{
    static const struct {
        const char *sample, *rng; /* of the last (pipeline, tensor) rank */
        uint64_t n_params;
    } cases[] = {
        {"torch_dist_a_dense_tp2pp2", "rng_state/shard_1.1_2.2", 3 + 4 * 6},
        {"torch_dist_c_dp_reshardable_tp2dp2", "rng_state/shard_0.1_1.2", 3 + 4 * 6},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct wish no_wish = {.to = "torch_dist"};
        const struct wish wish = {.to = "torch_dist", .generation = "B"};
        const struct dcpk_compare_options options = {
            .policy = DCPK_COMPARE_FAITHFUL,
            .env = {.kernels = dcpk_host_kernel_sets[0], .n_threads = 2}};
        const char *label = cases[i].sample,
                   *shape_of = "optimizer.state.exp_avg.output_layer.weight";
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_checkpoint *ours, *source;
        struct dcpk_compare_report report;

        CHECK_FAILS(convert_as(sample_path(label), scratch("out"), &no_wish, &err), DCPK_EUSAGE,
                    "already", label);
        dcpk_error_clear(&err);
        CHECK_OK(convert_as(sample_path(label), scratch("out"), &wish, &err), label);
        ours = open_at(scratch("out"));
        source = open_at(sample_path(label));
        CHECK_EQ_INT(ours->generation[0], 'B', label);
        CHECK_OK(dcpk_compare_checkpoints(ours, source, &options, &report, &err), label);
        if (!report.equal)
            fail_msg("%s: %s", label, report.differences.first->sentence);
        CHECK_EQ_INT(report.n_tensors, 3 * cases[i].n_params, label);
        CHECK(dcpk_checkpoint_object(ours, cases[i].rng) != NULL, label);
        CHECK(dcpk_checkpoint_tensor(ours, shape_of) != NULL, label);
        CHECK_EQ_INT(dcpk_checkpoint_tensor(ours, shape_of)->rank, 2, label);
        dcpk_compare_release(&report);
        dcpk_checkpoint_close(ours);
        dcpk_checkpoint_close(source);
        scratch_clean("out");
    }
}

/* What Megatron's own converter made of a checkpoint goes back to what it was given: masters,
 * moments and the groups that it keeps as a list. */
static void what_megatron_converted_comes_back(void **state)
{
    static const struct wish wishes[] = {{.to = "torch_dist"}, {.to = "fsdp_dtensor"}};
    static const struct {
        const char *converted, *given;
        uint64_t n_params;
    } cases[] = {
        {"fsdp_dtensor_converted_by_megatron", "torch_dist_b_dense_tp2pp2", 27},
        {"fsdp_dtensor_converted_mamba", "torch_dist_c_mamba", 27},     /* parts apart */
        {"fsdp_dtensor_converted_mla_moe", "torch_dist_c_mla_moe", 39}, /* experts in one tensor */
    };
    const struct dcpk_compare_options options = {
        .policy = DCPK_COMPARE_FAITHFUL,
        .env = {.kernels = dcpk_host_kernel_sets[0], .n_threads = 2}};

    (void)state;
    for (size_t i = 0; i < 2 * sizeof cases / sizeof cases[0]; i++) {
        const char *label = cases[i / 2].converted;
        struct dcpk_checkpoint *ours, *given;
        struct dcpk_compare_report report;
        struct dcpk_error err = DCPK_ERROR_INIT;

        CHECK_OK(convert_as(sample_path(label), scratch("out"), &wishes[i % 2], &err), label);
        ours = open_at(scratch("out"));
        given = open_at(sample_path(cases[i / 2].given));
        CHECK_OK(dcpk_compare_checkpoints(ours, given, &options, &report, &err), label);
        if (!report.equal)
            fail_msg("%s: %s", label, report.differences.first->sentence);
        CHECK_EQ_INT(report.n_params, cases[i / 2].n_params, label);
        CHECK_EQ_INT(report.n_tensors, 3 * cases[i / 2].n_params, label);
        dcpk_compare_release(&report);
        dcpk_checkpoint_close(ours);
        dcpk_checkpoint_close(given);
        scratch_clean("out");
    }
}

/*
 * Without enough memory an error, never a leak and never a folder that looks whole. (A probe that
 * runs out of memory says "not mine", and the conversion may still succeed: it ends when the n-th
 * allocation is never made.)
 */
static void every_failed_allocation_is_an_error(void **state)
{
    static const struct {
        const char *sample;
        struct wish wish;
    } cases[] = {
        {"fsdp_dtensor_native_dp2", {.to = "torch_dist"}},
        {"torch_dist_c_mamba", {.to = "torch_dist", .generation = "B"}}, /* parts */
        {"torch_dist_c_extra_state", {.to = "zarr"}},
        {"fsdp_dtensor_converted_by_megatron", {.to = "torch_dist"}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t n_failed = 0;
        bool reached = true;

        for (uint64_t n = 1; reached; n += n < 200 ? 1 : 97) {
            struct dcpk_error err = DCPK_ERROR_INIT;
            bool is_there;
            dcpk_status st;

            dcpk_alloc_fail_nth(n);
            st = convert_as(sample_path(cases[i].sample), scratch("fault"), &cases[i].wish, &err);
            reached = dcpk_alloc_fail_nth(0) >= n;
            n_failed += st != DCPK_OK;
            is_there = st == DCPK_OK || has_only_no_tracker(&err);
            CHECK_EQ_INT(access(scratch("fault/iter_0000004/metadata.json"), F_OK) == 0, is_there,
                         err.text);
            if (is_there)
                scratch_clean("fault");
        }
        CHECK(n_failed > 200, cases[i].sample);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(conversions_are_proven, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(layers_apart_come_back_stacked, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(keys_are_what_megatron_asks_for, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(expert_groups_follow_the_target, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(older_layouts_become_todays, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(what_megatron_converted_comes_back, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(every_failed_allocation_is_an_error, scratch_setup,
                                        scratch_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

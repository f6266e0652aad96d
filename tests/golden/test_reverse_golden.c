/* SPDX-License-Identifier: Apache-2.0 */
/* test_reverse_golden.c - fsdp_dtensor back to torch_dist: what came from Megatron comes back bit
 * for bit, and what Megatron-FSDP wrote has the keys and shapes that Megatron asks for. */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/kernels.h"
#include "lib/base/alloc.h"
#include "lib/exec/prove.h"
#include "tests/golden/conversions.h"

/* What a case asks of a conversion; zeroed: nothing but the format. */
struct wish {
    const char *to;
    const char *generation;
    enum dcpk_impl impl;
    unsigned flags;
    int64_t ep;
};

static dcpk_status convert(const char *in, const char *out, const struct wish *wish,
                           struct dcpk_error *err)
{
    struct dcpk_convert_options options = {
        .formats = dcpk_formats,
        .to = dcpk_format_find(wish->to),
        .backend = dcpk_backends[0],
        .in = in,
        .out = out,
        .exec = {.n_threads = 2},
        .rules = {.impl = wish->impl},
        .flags = wish->flags,
        .target = {.generation = wish->generation, .mesh = {.ep = wish->ep}},
    };

    return run_conversion(&options, err);
}

/* --- round trips --- */

static struct dcpk_hash *hash_all(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena)
{
    const struct dcpk_exec_options options = {.n_threads = 2};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_hash *hashes = calloc(ckpt->n_tensors + 1, sizeof *hashes);
    struct dcpk_view *views = calloc(ckpt->n_tensors + 1, sizeof *views);
    struct dcpk_exec *exec = NULL;
    struct dcpk_exec_stats stats;

    CHECK(hashes != NULL && views != NULL, "memory");
    for (uint32_t i = 0; i < ckpt->n_tensors; i++)
        CHECK_OK(dcpk_view_stored(ckpt, i, arena, &views[i], &err), "view");
    CHECK_OK(dcpk_exec_new(ckpt, dcpk_backends[0], &options, &exec, &err), "exec");
    CHECK_OK(dcpk_exec_hash(exec, views, ckpt->n_tensors, hashes, &stats, &err), "hash");
    dcpk_exec_free(exec);
    free(views);
    return hashes;
}

static void check_same_tensors(struct dcpk_checkpoint *want, struct dcpk_checkpoint *got,
                               struct dcpk_arena *arena, bool more)
{
    struct dcpk_hash *a = hash_all(want, arena), *b = hash_all(got, arena);

    for (size_t i = 0; i < want->n_tensors; i++) {
        const struct dcpk_tensor *t = &want->tensors[i];
        const struct dcpk_tensor *u = dcpk_checkpoint_tensor(got, t->key);

        CHECK(u != NULL, t->key);
        CHECK_EQ_INT(u->dtype, t->dtype, t->key);
        CHECK_EQ_INT(u->rank, t->rank, t->key);
        CHECK(t->rank == 0 || memcmp(u->shape, t->shape, (size_t)t->rank * sizeof *t->shape) == 0,
              t->key);
        CHECK(memcmp(a[i].digest, b[u - got->tensors].digest, sizeof a[i].digest) == 0, t->key);
    }
    if (!more)
        CHECK_EQ_INT(got->n_tensors, want->n_tensors, "no further keys");
    free(a);
    free(b);
}

static const struct dcpk_value *load_common(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    const struct dcpk_value *common = NULL;

    CHECK_OK(ckpt->format->load_common(ckpt, arena, &common, &err), "common state");
    CHECK(common != NULL, "common state");
    return common;
}

/* fsdp_dtensor has the fields of Transformer Engine's and of torch's optimizer (conversion.md 5.5).
 */
static bool is_field_of_either(const char *name)
{
    static const char *const fields[] = {
        "bias_correction", "amsgrad",    "maximize",       "foreach",
        "fused",           "capturable", "differentiable", "decoupled_weight_decay"};

    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (strcmp(name, fields[i]) == 0)
            return true;
    return false;
}

/* Equal, but that `step` comes back as the int that Transformer Engine keeps (4.0: 4). */
static void check_same_group(const struct dcpk_value *want, const struct dcpk_value *got)
{
    for (size_t i = 0; i < want->n; i++) {
        const char *field = dcpk_value_as_str(want->as.pairs[i].key);
        const struct dcpk_value *v = dcpk_value_get(got, field);
        double x, y;

        CHECK(v != NULL, field);
        if (strcmp(field, "step") == 0) {
            CHECK(dcpk_value_as_float(want->as.pairs[i].value, &x), field);
            CHECK(dcpk_value_as_float(v, &y) && x == y, field);
        } else {
            CHECK(dcpk_value_equal(want->as.pairs[i].value, v), field);
        }
    }
    for (size_t i = 0; i < got->n; i++) {
        const char *field = dcpk_value_as_str(got->as.pairs[i].key);

        CHECK(dcpk_value_get(want, field) != NULL || is_field_of_either(field), field);
    }
}

static void check_same_optimizer(const struct dcpk_value *want, const struct dcpk_value *got)
{
    const struct dcpk_value *a = dcpk_value_get(dcpk_value_get(want, "optimizer"), "param_groups");
    const struct dcpk_value *b = dcpk_value_get(dcpk_value_get(got, "optimizer"), "param_groups");

    CHECK(a != NULL && b != NULL, "param_groups");
    CHECK_EQ_INT(b->n, a->n, "param_groups");
    CHECK(dcpk_value_equal(dcpk_value_get(want, "param_state_sharding_type"),
                           dcpk_value_get(got, "param_state_sharding_type")),
          "sharding type");
    for (size_t i = 0; i < a->n; i++)
        check_same_group(dcpk_value_at(a, i), dcpk_value_at(b, i));
}

/*
 * All attributes are the source's, but for no_save_rng where stages after the first are lost; those
 * of classes that another Megatron may not have are left out.
 */
static void check_same_args(const struct dcpk_value *want, const struct dcpk_value *got,
                            size_t n_left_out, bool is_rng_whole)
{
    const struct dcpk_value *a = dcpk_value_attrs(want), *b = dcpk_value_attrs(got);
    bool no_save_rng = false;

    CHECK(a != NULL && b != NULL, "args");
    CHECK_EQ_INT(b->n, a->n - n_left_out, "attributes");
    for (size_t i = 0; i < b->n; i++) {
        const char *name = dcpk_value_as_str(b->as.pairs[i].key);

        if (strcmp(name, "no_save_rng") != 0)
            CHECK(dcpk_value_equal(dcpk_value_get(a, name), b->as.pairs[i].value), name);
    }
    dcpk_value_as_bool(dcpk_value_get(b, "no_save_rng"), &no_save_rng);
    CHECK_EQ_INT(no_save_rng, !is_rng_whole, "no_save_rng");
}

static void check_same_common(const struct dcpk_value *want, const struct dcpk_value *got,
                              size_t n_args_left_out, bool is_rng_whole)
{
    static const char *const equal[] = {"checkpoint_version", "iteration", "opt_param_scheduler",
                                        "num_floating_point_operations_so_far", "content_metadata"};
    const struct dcpk_value *a = dcpk_value_get(want, "optimizer"),
                            *b = dcpk_value_get(got, "optimizer");

    for (size_t i = 0; i < sizeof equal / sizeof equal[0]; i++)
        CHECK(dcpk_value_equal(dcpk_value_get(want, equal[i]), dcpk_value_get(got, equal[i])),
              equal[i]);
    check_same_args(dcpk_value_get(want, "args"), dcpk_value_get(got, "args"), n_args_left_out,
                    is_rng_whole);
    CHECK_EQ_INT(b->n, a->n, "optimizers");
    if (dcpk_value_get_int(a, 0) == NULL)
        check_same_optimizer(a, b);
    for (int64_t i = 0; dcpk_value_get_int(a, i) != NULL; i++)
        check_same_optimizer(dcpk_value_get_int(a, i), dcpk_value_get_int(b, i));
    /* The rerun state is reported as dropped; nothing else is missing or new. */
    CHECK(dcpk_value_get(got, "rerun_state_machine") == NULL, "rerun state");
    CHECK_EQ_INT(got->n, want->n - (dcpk_value_get(want, "rerun_state_machine") != NULL), "keys");
}

/* Every object comes back with its value but for what fsdp_dtensor does not hold. */
static void check_same_objects(struct dcpk_checkpoint *want, struct dcpk_checkpoint *got,
                               struct dcpk_arena *arena, bool has_all_rng)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    for (size_t i = 0; i < want->n_objects; i++) {
        const char *key = want->objects[i].key;
        const struct dcpk_object *object = dcpk_checkpoint_object(got, key);
        const struct dcpk_value *a = NULL, *b = NULL;
        const bool later_stage =
            !has_all_rng && strncmp(key, "rng_state/", strlen("rng_state/")) == 0 &&
            strncmp(key, "rng_state/shard_0.", strlen("rng_state/shard_0.")) != 0;

        if (strncmp(key, "rerun_state", strlen("rerun_state")) == 0 || later_stage) {
            CHECK(object == NULL, key);
            continue;
        }
        if (strncmp(key, "common_state/", strlen("common_state/")) == 0)
            continue;
        CHECK(object != NULL, key);
        CHECK_OK(want->format->load_object(want, &want->objects[i], arena, &a, &err), key);
        CHECK_OK(got->format->load_object(got, object, arena, &b, &err), key);
        CHECK(dcpk_value_equal(a, b), key);
    }
}

static void round_trips_give_the_same(void **state)
{
    static const struct {
        const char *sample, *via, *generation, *reads_as;
        enum dcpk_impl impl;
        size_t n_args_left_out; /* attributes of enum classes, as the sample's pickle has them */
        bool is_rng_whole;      /* one pipeline stage */
        bool more_keys;         /* both spellings of the norms in MoE layers */
    } cases[] = {
        {"torch_dist_b_dense_tp2pp2", "fsdp_dtensor", NULL, "B", DCPK_IMPL_ANY, 3, false, false},
        {"torch_dist_c_dense_tp2pp2", "fsdp_dtensor", "B", "B", DCPK_IMPL_ANY, 3, false, false},
        {"torch_dist_c_dense_tp2pp2", "fsdp_dtensor", "C", "C", DCPK_IMPL_TE, 3, false, false},
        {"torch_dist_c_moe_ep2pp2", "fsdp_dtensor", NULL, "B", DCPK_IMPL_ANY, 3, false, true},
        {"torch_dist_c_moe_ep2pp2", "fsdp_dtensor", "C", "C", DCPK_IMPL_LOCAL, 3, false, false},
        {"torch_dist_c_fp32_dp1", "fsdp_dtensor", NULL, "B", DCPK_IMPL_ANY, 3, true, false},
        /* By the way of zarr also what content_metadata says: that layers are apart. */
        {"torch_dist_c_moe_ep2pp2", "torch_dist", "C", "C", DCPK_IMPL_LOCAL, 3, true, false},
        {"torch_dist_c_extra_state", "torch_dist", "C", "C", DCPK_IMPL_LOCAL, 0, true, false},
        {"torch_dist_c_extra_state", "zarr", "C", "C", DCPK_IMPL_LOCAL, 0, true, false},
        {"torch_dist_c_gdn", "fsdp_dtensor", "C", "C", DCPK_IMPL_LOCAL, 0, true, false},
        {"torch_dist_c_gdn", "zarr", "C", "C", DCPK_IMPL_LOCAL, 0, true, false},
        {"torch_dist_c_mamba", "fsdp_dtensor", "C", "C", DCPK_IMPL_LOCAL, 0, true, false},
        {"torch_dist_c_mamba", "zarr", "C", "C", DCPK_IMPL_LOCAL, 0, true, false},
        {"torch_dist_c_mla_moe", "fsdp_dtensor", "C", "C", DCPK_IMPL_LOCAL, 0, true, false},
        {"torch_dist_c_mla_moe", "zarr", "C", "C", DCPK_IMPL_LOCAL, 0, true, false},
        {"torch_dist_c_moe_bias", "fsdp_dtensor", "C", "C", DCPK_IMPL_LOCAL, 0, true, false},
        {"torch_dist_c_moe_bias", "zarr", "C", "C", DCPK_IMPL_LOCAL, 0, true, false},
        {"torch_dist_c_moe_shared", "fsdp_dtensor", "C", "C", DCPK_IMPL_LOCAL, 0, true, false},
        {"torch_dist_c_moe_shared", "zarr", "C", "C", DCPK_IMPL_LOCAL, 0, true, false},
        {"torch_dist_c_mtp", "fsdp_dtensor", "C", "C", DCPK_IMPL_LOCAL, 0, true, false},
        {"torch_dist_c_mtp", "zarr", "C", "C", DCPK_IMPL_LOCAL, 0, true, false},
        {"torch_dist_c_per_layer", "zarr", "C", "C", DCPK_IMPL_LOCAL, 0, true, false},
        {"torch_dist_c_tied", "fsdp_dtensor", "C", "C", DCPK_IMPL_LOCAL, 0, true, false},
        {"torch_dist_c_tied", "zarr", "C", "C", DCPK_IMPL_LOCAL, 0, true, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct wish forth = {
            .to = cases[i].via, .generation = strcmp(cases[i].via, "torch_dist") == 0 ? "B" : NULL};
        const struct wish back = {
            .to = "torch_dist", .generation = cases[i].generation, .impl = cases[i].impl};
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_arena *arena = dcpk_arena_new(0, &err);
        struct dcpk_checkpoint *want, *got;

        CHECK(arena != NULL, "memory");
        CHECK_OK(convert(sample_path(cases[i].sample), scratch("forth"), &forth, &err),
                 cases[i].sample);
        CHECK_OK(convert(scratch("forth"), scratch("back"), &back, &err), cases[i].sample);
        want = open_at(sample_path(cases[i].sample));
        got = open_at(scratch("back"));
        CHECK_EQ_INT(got->generation[0], cases[i].reads_as[0], cases[i].sample);
        CHECK_OK(dcpk_checkpoint_check_cover(got, &err), cases[i].sample);
        check_same_tensors(want, got, arena, cases[i].more_keys);
        check_same_common(load_common(want, arena), load_common(got, arena),
                          cases[i].n_args_left_out, cases[i].is_rng_whole);
        check_same_objects(want, got, arena, cases[i].is_rng_whole);
        dcpk_checkpoint_close(want);
        dcpk_checkpoint_close(got);
        dcpk_arena_free(arena);
        scratch_clean("forth");
        scratch_clean("back");
    }
}

/* --- what Megatron-FSDP wrote --- */

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

static void prove(const char *folder, uint64_t n_params, unsigned flags)
{
    const struct dcpk_prove_options options = {
        .flags = flags, .backend = dcpk_backends[0], .exec = {.n_threads = 2}};
    const bool weights_only = (flags & DCPK_MODEL_WEIGHTS_ONLY) != 0;
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_checkpoint *ours = open_at(scratch("out")), *source = open_at(sample_path(folder));
    struct dcpk_prove_report report;

    CHECK_OK(dcpk_prove(ours, source, &options, &report, &err), folder);
    if (!report.equal)
        fail_msg("%s: %s", folder, report.differences->text);
    CHECK_EQ_INT(report.n_params, n_params, folder);
    CHECK_EQ_INT(report.n_tensors, weights_only ? n_params : 3 * n_params, folder);
    CHECK_EQ_INT(report.n_masters, weights_only ? 0 : n_params, folder);
    dcpk_prove_release(&report);
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

            CHECK_OK(convert(sample_path(native[i].folder), scratch(out), &wish, &err),
                     native[i].folder);
            prove(native[i].folder, native[i].n_params,
                  weights_only ? DCPK_MODEL_WEIGHTS_ONLY : 0u);
            scratch_clean("out");
        }
}

/* Shapes and dtypes by torch_dist.md 4.2 to 4.5 for the models that PROVENANCE.txt describes. */
static void keys_are_what_megatron_asks_for(void **state)
{
    static const struct {
        const char *sample, *key;
        enum dcpk_dtype dtype;
        int rank;
        int64_t shape[3];
    } cases[] = {
        {"fsdp_dtensor_native_dp2", "embedding.word_embeddings.weight", DCPK_BF16, 2, {256, 64}},
        {"fsdp_dtensor_native_dp2",
         "decoder.layers.mlp.linear_fc1.weight",
         DCPK_BF16,
         3,
         {4, 192, 64}},
        {"fsdp_dtensor_native_dp2",
         "decoder.layers.self_attention.linear_qkv.layer_norm_weight",
         DCPK_BF16,
         2,
         {4, 64}},
        {"fsdp_dtensor_native_dp2",
         "optimizer.state.param.decoder.layers.mlp.linear_fc1.layer_norm_weight",
         DCPK_F32,
         2,
         {4, 64}},
        {"fsdp_dtensor_native_dp2",
         "optimizer.state.exp_avg_sq.decoder.layers.mlp.linear_fc2.weight",
         DCPK_F32,
         3,
         {4, 64, 96}},
        {"fsdp_dtensor_native_moe_ep2dp4",
         "decoder.layers.2.mlp.experts.experts.linear_fc1.weight",
         DCPK_BF16,
         3,
         {4, 96, 64}},
        {"fsdp_dtensor_native_moe_ep2dp4",
         "optimizer.state.param.decoder.layers.3.mlp.experts.experts.linear_fc2.weight",
         DCPK_F32,
         3,
         {4, 64, 48}},
        {"fsdp_dtensor_native_moe_ep2dp4",
         "decoder.layers.1.pre_mlp_layernorm.weight",
         DCPK_BF16,
         1,
         {64}},
        {"fsdp_dtensor_native_moe_ep2dp4",
         "decoder.layers.1.mlp.linear_fc1.layer_norm_weight",
         DCPK_BF16,
         1,
         {64}},
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

        CHECK_OK(convert(sample_path(cases[i].sample), scratch("out"), &wish, &err), cases[i].key);
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
        struct dcpk_arena *arena = dcpk_arena_new(0, &err);
        struct dcpk_checkpoint *ckpt;
        const struct dcpk_value *optimizer, *dense, *expert, *groups;
        bool flag = false;

        CHECK(arena != NULL, "memory");
        CHECK_OK(
            convert(sample_path("fsdp_dtensor_native_moe_ep2dp4"), scratch("out"), &wish, &err),
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

/* What today's Megatron cannot read, or not at another layout, is written anew in the same format.
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
        const struct dcpk_prove_options options = {.backend = dcpk_backends[0],
                                                   .exec = {.n_threads = 2}};
        const char *label = cases[i].sample,
                   *shape_of = "optimizer.state.exp_avg.output_layer.weight";
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_checkpoint *ours, *source;
        struct dcpk_prove_report report;

        CHECK_FAILS(convert(sample_path(label), scratch("out"), &no_wish, &err), DCPK_EUSAGE,
                    "already", label);
        err = (struct dcpk_error)DCPK_ERROR_INIT;
        CHECK_OK(convert(sample_path(label), scratch("out"), &wish, &err), label);
        ours = open_at(scratch("out"));
        source = open_at(sample_path(label));
        CHECK_EQ_INT(ours->generation[0], 'B', label);
        CHECK_OK(dcpk_prove(ours, source, &options, &report, &err), label);
        if (!report.equal)
            fail_msg("%s: %s", label, report.differences->text);
        CHECK_EQ_INT(report.n_tensors, 3 * cases[i].n_params, label);
        CHECK(dcpk_checkpoint_object(ours, cases[i].rng) != NULL, label);
        CHECK(dcpk_checkpoint_tensor(ours, shape_of) != NULL, label);
        CHECK_EQ_INT(dcpk_checkpoint_tensor(ours, shape_of)->rank, 2, label);
        dcpk_prove_release(&report);
        dcpk_checkpoint_close(ours);
        dcpk_checkpoint_close(source);
        scratch_clean("out");
    }
}

/* Megatron's own converter writes no parameter groups: only its weights can go back. */
static void without_groups_only_weights_go_back(void **state)
{
    const struct wish all = {.to = "torch_dist"};
    const struct wish weights = {.to = "torch_dist", .flags = DCPK_CONVERT_WEIGHTS_ONLY};
    struct dcpk_error err = DCPK_ERROR_INIT;

    (void)state;
    CHECK_FAILS(
        convert(sample_path("fsdp_dtensor_converted_by_megatron"), scratch("out"), &all, &err),
        DCPK_EUNSUPPORTED, "--weights-only", "with optimizer");
    err = (struct dcpk_error)DCPK_ERROR_INIT;
    CHECK_OK(
        convert(sample_path("fsdp_dtensor_converted_by_megatron"), scratch("out"), &weights, &err),
        "weights");
}

/* Without enough memory an error, never a leak and never a folder that looks whole. */
static void every_failed_allocation_is_an_error(void **state)
{
    const struct wish wish = {.to = "torch_dist"};
    uint64_t n = 1;
    bool failed = true;

    (void)state;
    for (; failed && n < 1000000; n += n < 200 ? 1 : 97) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        dcpk_status st;

        dcpk_alloc_fail_nth(n);
        st = convert(sample_path("fsdp_dtensor_native_dp2"), scratch("fault"), &wish, &err);
        dcpk_alloc_fail_nth(0);
        failed = st != DCPK_OK;
        if (failed)
            CHECK(access(scratch("fault/iter_0000004/metadata.json"), F_OK) != 0, err.text);
    }
    CHECK(!failed, "it passes in the end");
    CHECK(n > 200, "allocations were made to fail");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(round_trips_give_the_same, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(conversions_are_proven, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(keys_are_what_megatron_asks_for, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(expert_groups_follow_the_target, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(older_layouts_become_todays, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(without_groups_only_weights_go_back, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(every_failed_allocation_is_an_error, scratch_setup,
                                        scratch_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

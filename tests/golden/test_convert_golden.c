/* SPDX-License-Identifier: Apache-2.0 */
/* test_convert_golden.c - samples converted, proven against their source, and the same bytes
 * whatever the threads. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/kernels.h"
#include "lib/base/alloc.h"
#include "lib/job/compare.h"
#include "tests/golden/conversions.h"

static const struct {
    const char *name;
    uint64_t n_params, n_masters;
} samples[] = {
    {"torch_dist_a_dense_tp2pp2", 27, 27},
    {"torch_dist_b_dense_tp2pp2", 27, 27},
    {"torch_dist_c_dense_tp2pp2", 27, 27},
    {"torch_dist_c_moe_ep2pp2", 48, 48},
    {"v016_moe_ep2pp2", 48, 48},
    {"torch_dist_c_fp32_dp1", 27, 27},
    {"zarr_dense_tp2dp2", 27, 27},
    {"torch_dist_c_dp_reshardable_tp2dp2", 27, 27},
    /* By what megatron_models.py printed; moe_shared has a router's expert_bias beside them. */
    {"torch_dist_c_gdn", 19, 19},
    {"torch_dist_c_mamba", 27, 27},
    {"torch_dist_c_mla_moe", 39, 39},
    {"torch_dist_c_moe_bias", 37, 37},
    {"torch_dist_c_moe_shared", 32, 31},
    {"torch_dist_c_mtp", 56, 56},
    {"torch_dist_c_per_layer", 15, 15},
    {"torch_dist_c_tied", 16, 16},
};
#define N_SAMPLES (sizeof samples / sizeof samples[0])

static dcpk_status convert(const char *sample, const char *out, int n_threads,
                           uint64_t memory_bytes, enum dcpk_impl impl, struct dcpk_error *err)
{
    const struct dcpk_convert_options options = {
        .to = dcpk_format_find("fsdp_dtensor"),
        .in = sample_path(sample),
        .out = out,
        .env = {.formats = dcpk_formats,
                .kernels = dcpk_host_kernel_sets[0],
                .n_threads = n_threads,
                .memory_bytes = memory_bytes},
        .rules = {.impl = impl},
    };

    return run_conversion(&options, err);
}

static void conversions_are_proven(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SAMPLES; i++) {
        const struct dcpk_compare_options options = {
            .policy = DCPK_COMPARE_FAITHFUL,
            .env = {.kernels = dcpk_host_kernel_sets[0], .n_threads = 2}};
        const char *label = samples[i].name, *out = scratch(label);
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_compare_report report;
        struct dcpk_checkpoint *ours, *source;

        CHECK_OK(convert(label, out, 2, 0, DCPK_IMPL_ANY, &err), label);
        ours = open_at(out);
        source = open_at(sample_path(label));
        CHECK_EQ_STR(ours->format->name, "fsdp_dtensor", label);
        CHECK_OK(dcpk_checkpoint_check_cover(ours, &err), label);
        CHECK_OK(dcpk_compare_checkpoints(ours, source, &options, &report, &err), label);
        if (!report.equal)
            fail_msg("%s: %s", label, report.differences.first->sentence);
        CHECK_EQ_INT(report.n_params, samples[i].n_params, label);
        CHECK_EQ_INT(report.n_masters, samples[i].n_masters, label);
        CHECK_EQ_INT(report.n_tensors, samples[i].n_params + 2 * samples[i].n_masters, label);
        dcpk_compare_release(&report);
        dcpk_checkpoint_close(ours);
        dcpk_checkpoint_close(source);
    }
}

/* Two keys whose bytes are the same: dtype, shape, chunks, and the places of these. */
static void check_alias(const struct dcpk_checkpoint *ckpt, const char *a, const char *b)
{
    const struct dcpk_tensor *x = dcpk_checkpoint_tensor(ckpt, a),
                             *y = dcpk_checkpoint_tensor(ckpt, b);

    CHECK(x != NULL, a);
    CHECK(y != NULL, b);
    CHECK_EQ_INT(x->dtype, y->dtype, b);
    CHECK_EQ_INT(x->rank, y->rank, b);
    CHECK_EQ_INT(x->n_chunks, y->n_chunks, b);
    for (size_t i = 0; i < x->n_chunks; i++) {
        const struct dcpk_chunk *c = &ckpt->chunks[x->first_chunk + i],
                                *d = &ckpt->chunks[y->first_chunk + i];

        CHECK(x->rank == 0 || memcmp(c->span, d->span, 2 * (size_t)x->rank * sizeof *c->span) == 0,
              b);
        CHECK_EQ_INT(c->place.file, d->place.file, b);
        CHECK_EQ_INT(c->place.offset_bytes, d->place.offset_bytes, b);
        CHECK_EQ_INT(c->place.n_bytes, d->place.n_bytes, b);
    }
}

static void every_spelling_is_an_alias(void **state)
{
    static const struct {
        const char *sample, *te, *local;
    } pairs[] = {
        {"torch_dist_c_dense_tp2pp2",
         "decoder.layers.2.self_attention.linear_qkv.layer_norm_weight",
         "decoder.layers.2.input_layernorm.weight"},
        {"torch_dist_c_dense_tp2pp2", "decoder.layers.2.mlp.linear_fc1.layer_norm_weight",
         "decoder.layers.2.pre_mlp_layernorm.weight"},
        {"torch_dist_c_moe_ep2pp2", "decoder.layers.3.mlp.experts.linear_fc1.weight2_w",
         "decoder.layers.3.mlp.experts.local_experts.2.linear_fc1.weight_w"},
        {"torch_dist_c_moe_ep2pp2", "decoder.layers.3.mlp.experts.linear_fc1.weight2_v",
         "decoder.layers.3.mlp.experts.local_experts.2.linear_fc1.weight_v"},
        {"torch_dist_c_moe_ep2pp2", "decoder.layers.3.mlp.experts.linear_fc2.weight0",
         "decoder.layers.3.mlp.experts.local_experts.0.linear_fc2.weight"},
        {"torch_dist_c_mamba", "decoder.layers.3.mixer.conv1d_weight",
         "decoder.layers.3.mixer.conv1d.weight"},
        {"torch_dist_c_mamba", "decoder.layers.3.mixer.in_proj.layer_norm_weight",
         "decoder.layers.3.norm.weight"},
        {"torch_dist_c_gdn", "decoder.layers.0.self_attention.in_proj.layer_norm_weight",
         "decoder.layers.0.input_layernorm.weight"},
        {"torch_dist_c_mtp", "mtp.layers.1.transformer_layer.pre_mlp_layernorm.weight",
         "mtp.layers.1.mtp_model_layer.pre_mlp_layernorm.weight"},
        {"torch_dist_c_mla_moe", "decoder.layers.0.input_layernorm.weight",
         "decoder.layers.0.self_attention.linear_qkv_down_proj.layer_norm_weight"},
        {"torch_dist_c_mla_moe",
         "decoder.layers.1.self_attention.linear_kv_up_proj.layer_norm_weight",
         "decoder.layers.1.self_attention.kv_layernorm.weight"},
    };
    static const char *const ends[] = {".exp_avg", ".exp_avg_sq", ".step"};

    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_checkpoint *ckpt;
        char a[512], b[512];

        CHECK_OK(convert(pairs[i].sample, scratch("aliases"), 1, 0, DCPK_IMPL_ANY, &err),
                 pairs[i].te);
        ckpt = open_at(scratch("aliases"));
        snprintf(a, sizeof a, "model.module.%s", pairs[i].te);
        snprintf(b, sizeof b, "model.module.%s", pairs[i].local);
        check_alias(ckpt, a, b);
        for (size_t e = 0; e < 3; e++) {
            snprintf(a, sizeof a, "optimizer.state.module.module.module.%s%s", pairs[i].te,
                     ends[e]);
            snprintf(b, sizeof b, "optimizer.state.module.module.module.%s%s", pairs[i].local,
                     ends[e]);
            check_alias(ckpt, a, b);
        }
        dcpk_checkpoint_close(ckpt);
        scratch_clean("aliases");
    }
}

/* The group of MLA's fused down-projection is asked for by its live name. */
static void groups_of_fused_projections_have_live_names(void **state)
{
    static const char key[] =
        "optimizer.param_to_group_meta.module.module.module.decoder.layers.1.self_attention."
        "linear_qkv_down_proj.weight.lr";
    static const struct {
        enum dcpk_impl impl;
        bool is_there;
    } cases[] = {{DCPK_IMPL_ANY, true}, {DCPK_IMPL_TE, false}};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        const char *folder = scratch(cases[i].is_there ? "any" : "te");
        struct dcpk_checkpoint *ckpt;

        CHECK_OK(convert("torch_dist_c_mla_moe", folder, 1, 0, cases[i].impl, &err), folder);
        ckpt = open_at(folder);
        CHECK_EQ_INT(dcpk_checkpoint_object(ckpt, key) != NULL, cases[i].is_there, folder);
        dcpk_checkpoint_close(ckpt);
    }
}

static void one_implementation_gives_one_spelling(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_checkpoint *te, *local;

    (void)state;
    CHECK_OK(convert("torch_dist_c_moe_ep2pp2", scratch("te"), 1, 0, DCPK_IMPL_TE, &err), "te");
    CHECK_OK(convert("torch_dist_c_moe_ep2pp2", scratch("local"), 1, 0, DCPK_IMPL_LOCAL, &err),
             "local");
    te = open_at(scratch("te"));
    local = open_at(scratch("local"));
    CHECK(dcpk_checkpoint_tensor(
              te, "model.module.decoder.layers.1.mlp.experts.linear_fc2.weight3") != NULL,
          "te");
    CHECK(dcpk_checkpoint_tensor(
              te, "model.module.decoder.layers.1.mlp.experts.local_experts.3.linear_fc2.weight") ==
              NULL,
          "te");
    CHECK(
        dcpk_checkpoint_tensor(
            local, "model.module.decoder.layers.1.mlp.experts.local_experts.3.linear_fc2.weight") !=
            NULL,
        "local");
    CHECK(dcpk_checkpoint_tensor(
              local, "model.module.decoder.layers.1.mlp.experts.linear_fc2.weight3") == NULL,
          "local");
    CHECK_EQ_INT(te->n_tensors, local->n_tensors, "as many tensors");
    dcpk_checkpoint_close(te);
    dcpk_checkpoint_close(local);
}

/* The prefix of an fp32 run has one wrapper less, its weights are what they are. */
static void an_fp32_run_has_its_own_prefix(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_checkpoint *ckpt;

    (void)state;
    CHECK_OK(convert("torch_dist_c_fp32_dp1", scratch("fp32"), 1, 0, DCPK_IMPL_ANY, &err), "fp32");
    ckpt = open_at(scratch("fp32"));
    CHECK(dcpk_checkpoint_tensor(
              ckpt, "optimizer.state.module.module.output_layer.weight.exp_avg") != NULL,
          "prefix");
    CHECK(dcpk_checkpoint_object(
              ckpt, "optimizer.param_to_group_meta.module.module.output_layer.weight.lr") != NULL,
          "prefix");
    CHECK(dcpk_checkpoint_tensor(ckpt, "model.module.output_layer.weight") != NULL, "prefix");
    dcpk_checkpoint_close(ckpt);
}

/*
 * Megatron-FSDP orders the rows of Mamba's projections by tensor-parallel rank. What we join is for
 * one rank, so args say one, whatever the source had, and only its RNG state is kept.
 */
static void joined_rows_are_for_one_rank(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_checkpoint *source = open_at(sample_path("torch_dist_c_mamba"));
    struct dcpk_model *model = NULL;
    struct dcpk_output *out = NULL;
    int64_t tp = 0;

    (void)state;
    CHECK_OK(dcpk_model_read(source, 0, &model, &err), "model");
    CHECK_OK(dcpk_rules_canonical(model, &err), "names");
    CHECK_OK(dcpk_model_set_arg(model, "tensor_model_parallel_size", 2, &err), "args");
    dcpk_model_read_layout(model);
    CHECK_EQ_INT(model->n_rng, 1, "RNG states");
    model->rng[0].tp = 1;
    CHECK_OK(dcpk_output_new(source, dcpk_format_find("fsdp_dtensor"), &out, &err), "output");
    CHECK_OK(out->format->mapping->from_model(model, out, &err), "from_model");
    for (size_t i = 0; i < out->n_objects; i++) {
        const struct dcpk_value *value = out->payloads[out->objects[i].payload].value;

        CHECK(strncmp(out->objects[i].key, "rng_state", strlen("rng_state")) != 0, "RNG state");
        if (strcmp(out->objects[i].key, "args") == 0)
            dcpk_value_as_int(dcpk_value_get(dcpk_value_attrs(value), "tensor_model_parallel_size"),
                              &tp);
    }
    CHECK_EQ_INT(tp, 1, "args");
    dcpk_output_free(out);
    dcpk_model_free(model);
    dcpk_checkpoint_close(source);
}

/* Without enough memory an error, never a leak and never a folder that looks whole. */
static void fail_allocations(const char *sample)
{
    uint64_t n = 1, n_failed = 0;
    bool reached = true;

    for (; reached; n += n < 200 ? 1 : 97) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        bool is_there;
        dcpk_status st;

        dcpk_alloc_fail_nth(n);
        st = convert(sample, scratch("fault"), 1, 0, DCPK_IMPL_ANY, &err);
        reached = dcpk_alloc_fail_nth(0) >= n;
        n_failed += st != DCPK_OK;
        is_there = st == DCPK_OK || has_only_no_tracker(&err);
        CHECK_EQ_INT(access(scratch("fault/iter_0000004"), F_OK) == 0, is_there, err.text);
        if (is_there)
            scratch_clean("fault");
    }
    CHECK(n_failed > 200, sample);
}

static void every_failed_allocation_is_an_error(void **state)
{
    (void)state;
    fail_allocations("torch_dist_c_dense_tp2pp2");
    fail_allocations("torch_dist_a_dense_tp2pp2"); /* views */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(conversions_are_proven, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(every_spelling_is_an_alias, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(groups_of_fused_projections_have_live_names, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(one_implementation_gives_one_spelling, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(an_fp32_run_has_its_own_prefix, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test(joined_rows_are_for_one_rank),
        cmocka_unit_test_setup_teardown(every_failed_allocation_is_an_error, scratch_setup,
                                        scratch_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* test_buckets_golden.c - one state that Megatron saved in both optimizer layouts: the decoded
 * buckets are the tensors of the other, and the other is written as those buckets. */
#include <stdio.h>

#include "kernels/kernels.h"
#include "lib/base/alloc.h"
#include "lib/job/compare.h"
#include "tests/golden/conversions.h"

#define C      "torch_dist_c_"
#define SAMPLE C "dp_reshardable_moe_ep2pp2vpp2"

/* The same state, its optimizer in buckets and in the model's shape. n_params: weights of the
 * latter's MANIFEST, experts and layers counted one by one. */
static const struct pair {
    const char *buckets, *plain;
    size_t n_params;
    bool has_own_size; /* of buckets, which args do not record */
} pairs[] = {
    /* Dense and expert optimizers, two model chunks on each of two stages, a tied embedding. */
    {SAMPLE "/dp_reshardable", SAMPLE "/fully_reshardable", 61, false},
    /* Multi-latent attention, experts that are cut otherwise than the rest, several buckets. */
    {C "dp_reshardable_mla_moe", C "mla_moe", 39, true},
    /* Multi-token prediction apart from the ends of a pipeline laid out by hand. */
    {C "dp_reshardable_mtp", C "mtp", 56, false},
    /* Projections in parts, cut by tensor parallelism. */
    {C "dp_reshardable_mamba", C "mamba", 27, false},
    /* Core 0.6: starts that are not rounded, padding that is stored, a shared embedding. */
    {"torch_dist_a_bucket_space_tied", C "tied", 16, false},
};

/* layout: of the optimizer, for torch_dist; NULL: the format's own. */
static dcpk_status convert(const char *sample, const char *to, const char *layout, const char *out,
                           struct dcpk_error *err)
{
    const struct dcpk_convert_options options = {
        .to = dcpk_format_find(to),
        .in = sample_path(sample),
        .out = out,
        .target.optimizer_layout = layout,
        .env = {.formats = dcpk_formats, .kernels = dcpk_host_kernel_sets[0], .n_threads = 1}};

    return run_conversion(&options, err);
}

static void check_pair(const char *buckets, const char *plain, size_t n_params)
{
    const struct dcpk_compare_options options = {
        .tensors_only = true, .env = {.kernels = dcpk_host_kernel_sets[0], .n_threads = 1}};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_compare_report report;
    struct dcpk_checkpoint *ours, *source;
    char path[4096];

    CHECK_OK(convert(buckets, "fsdp_dtensor", NULL, scratch(plain), &err), buckets);
    ours = open_at(scratch(plain));
    snprintf(path, sizeof path, "%s/%s", DCPK_SAMPLES, plain);
    source = open_at(path);
    CHECK_OK(dcpk_compare_checkpoints(ours, source, &options, &report, &err), buckets);
    if (!report.equal)
        fail_msg("%s: %s", report.differences.first->name, buckets);
    CHECK_EQ_INT(report.n_params, n_params, buckets);
    CHECK_EQ_INT(report.n_tensors, 3 * n_params, buckets); /* value and two moments of each */
    dcpk_compare_release(&report);
    dcpk_checkpoint_close(ours);
    dcpk_checkpoint_close(source);
}

static void decoded_buckets_are_the_other_layout(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        check_pair(pairs[i].buckets, pairs[i].plain, pairs[i].n_params);
}

static bool has_chunk(const struct dcpk_checkpoint *ckpt, const struct dcpk_tensor *tensor,
                      const int64_t *span)
{
    for (size_t c = tensor->first_chunk; c < tensor->first_chunk + tensor->n_chunks; c++)
        if (memcmp(ckpt->chunks[c].span, span, 2 * sizeof *span) == 0)
            return true;
    return false;
}

/* Every bucket of `source` is in `ours`, under the same key, cut at the same elements. */
static void check_same_buckets(const struct dcpk_checkpoint *ours,
                               const struct dcpk_checkpoint *source, const char *label)
{
    size_t n = 0;

    for (size_t t = 0; t < source->n_tensors; t++) {
        const struct dcpk_tensor *want = &source->tensors[t];
        const struct dcpk_tensor *got = dcpk_checkpoint_tensor(ours, want->key);

        if (strstr(want->key, ".bucket_idx_") == NULL)
            continue;
        n++;
        CHECK(got != NULL, want->key);
        CHECK_EQ_INT(got->shape[0], want->shape[0], want->key);
        CHECK_EQ_INT(got->dtype, want->dtype, want->key);
        CHECK_EQ_INT(got->n_chunks, want->n_chunks, want->key);
        for (size_t c = 0; c < want->n_chunks; c++)
            CHECK(has_chunk(ours, got, source->chunks[want->first_chunk + c].span), want->key);
    }
    for (size_t t = 0; t < ours->n_tensors; t++)
        if (strstr(ours->tensors[t].key, ".bucket_idx_") != NULL)
            CHECK(dcpk_checkpoint_tensor(source, ours->tensors[t].key) != NULL,
                  ours->tensors[t].key);
    CHECK(n > 0, label);
}

/* Written in buckets, `from` is what Megatron wrote of that state. */
static void check_written(const char *from, const struct pair *pair)
{
    const struct dcpk_compare_options options = {
        .tensors_only = true, .env = {.kernels = dcpk_host_kernel_sets[0], .n_threads = 1}};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_compare_report report;
    struct dcpk_checkpoint *ours, *source;

    CHECK_OK(convert(from, "torch_dist", "dp_reshardable", scratch(from), &err), from);
    ours = open_at(scratch(from));
    source = open_at(sample_path(pair->buckets));
    if (!pair->has_own_size)
        check_same_buckets(ours, source, from);
    CHECK_OK(dcpk_compare_checkpoints(ours, source, &options, &report, &err), from);
    if (!report.equal)
        fail_msg("%s: %s", report.differences.first->name, from);
    CHECK_EQ_INT(report.n_tensors, 4 * pair->n_params,
                 from); /* a weight, its master and two moments */
    dcpk_compare_release(&report);
    dcpk_checkpoint_close(ours);
    dcpk_checkpoint_close(source);
}

/* The other way: what was decoded, laid into buckets again; and of the one pair whose runs have the
 * same ranks, state that never was in buckets. */
static void written_buckets_are_megatrons(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        if (strncmp(pairs[i].buckets, C, strlen(C)) == 0) /* older layouts are not written */
            check_written(pairs[i].buckets, &pairs[i]);
    check_written(pairs[0].plain, &pairs[0]);
}

/* Without enough memory an error, never a leak and never a folder that looks whole. */
static void every_failed_allocation_is_an_error(void **state)
{
    uint64_t n = 1;
    bool failed = true;

    (void)state;
    for (; failed && n < 1000000; n += n < 200 ? 1 : 97) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        dcpk_status st;

        dcpk_alloc_fail_nth(n);
        st = convert(SAMPLE "/dp_reshardable", "fsdp_dtensor", NULL, scratch("fault"), &err);
        dcpk_alloc_fail_nth(0);
        failed = st != DCPK_OK;
        /* The tracker comes after the folder, whose failure says that it is there. */
        if (strstr(err.text, "is in place, and then") != NULL)
            scratch_clean("fault");
        else if (failed)
            CHECK(access(scratch("fault/iter_0000002"), F_OK) != 0, err.text);
    }
    CHECK(!failed, "it passes in the end");
    CHECK(n > 200, "allocations were made to fail");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(decoded_buckets_are_the_other_layout, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(written_buckets_are_megatrons, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(every_failed_allocation_is_an_error, scratch_setup,
                                        scratch_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

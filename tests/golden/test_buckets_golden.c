/* SPDX-License-Identifier: Apache-2.0 */
/* test_buckets_golden.c - one state that Megatron saved in both optimizer layouts: the decoded
 * buckets are the tensors of the other. */
#include <stdio.h>

#include "kernels/kernels.h"
#include "lib/base/alloc.h"
#include "lib/exec/prove.h"
#include "tests/golden/conversions.h"

/* Weights in its MANIFEST, 4 for each stack of experts. */
#define N_PARAMS 61
#define SAMPLE   "torch_dist_c_dp_reshardable_moe_ep2pp2vpp2"

static dcpk_status convert(const char *sample, const char *out, struct dcpk_error *err)
{
    const struct dcpk_convert_options options = {.formats = dcpk_formats,
                                                 .to = dcpk_format_find("fsdp_dtensor"),
                                                 .backend = dcpk_backends[0],
                                                 .in = sample_path(sample),
                                                 .out = out,
                                                 .exec = {.n_threads = 1}};

    return run_conversion(&options, err);
}

/* Dense and expert optimizers, two model chunks on each of two stages, a tied embedding. */
static void decoded_buckets_are_the_other_layout(void **state)
{
    const struct dcpk_prove_options options = {.backend = dcpk_backends[0],
                                               .exec = {.n_threads = 1}};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_prove_report report;
    struct dcpk_checkpoint *ours, *source;
    char path[4096];

    (void)state;
    CHECK_OK(convert(SAMPLE "/dp_reshardable", scratch("out"), &err), "convert");
    ours = open_at(scratch("out"));
    snprintf(path, sizeof path, "%s/%s/fully_reshardable", DCPK_SAMPLES, SAMPLE);
    source = open_at(path);
    CHECK_OK(dcpk_prove(ours, source, &options, &report, &err), "prove");
    if (!report.equal)
        fail_msg("%s", report.differences->text);
    CHECK_EQ_INT(report.n_params, N_PARAMS, "parameters");
    CHECK_EQ_INT(report.n_masters, N_PARAMS, "masters");
    CHECK_EQ_INT(report.n_tensors, 3 * N_PARAMS, "value and two moments of each");
    dcpk_prove_release(&report);
    dcpk_checkpoint_close(ours);
    dcpk_checkpoint_close(source);
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
        st = convert(SAMPLE "/dp_reshardable", scratch("fault"), &err);
        dcpk_alloc_fail_nth(0);
        failed = st != DCPK_OK;
        if (failed)
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
        cmocka_unit_test_setup_teardown(every_failed_allocation_is_an_error, scratch_setup,
                                        scratch_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

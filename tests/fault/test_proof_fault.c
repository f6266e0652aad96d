/* SPDX-License-Identifier: Apache-2.0 */
/* test_proof_fault.c - an allocation fails while an output is read back: an error, nothing
 * published, nothing kept. */
#include <inttypes.h>
#include <stdio.h>

#include "kernels/kernels.h"
#include "lib/base/alloc.h"
#include "tests/golden/conversions.h"

/* The allocation to fail, counted from where the output is complete. A format has no context. */
static uint64_t nth;

static dcpk_status finish_and_arm(struct dcpk_output *out, struct dcpk_folder *folder,
                                  struct dcpk_error *err)
{
    const dcpk_status st = dcpk_format_find(out->format->name)->writer->finish(out, folder, err);

    dcpk_alloc_fail_nth(nth);
    return st;
}

static dcpk_status convert(const struct dcpk_format *to, const char *out, struct dcpk_error *err)
{
    const struct dcpk_convert_options options = {
        .to = to,
        .env = {.formats = dcpk_formats,
                .kernels = dcpk_host_kernel_sets[0],
                .n_threads = 2,
                .memory_bytes = 16 << 20},
        .flags = DCPK_CONVERT_VERIFY | DCPK_CONVERT_HASHES | DCPK_CONVERT_INTEGRITY,
        .in = sample_path("torch_dist_c_tied"),
        .out = out};

    return run_conversion(&options, err);
}

static void test_allocations(void **state)
{
    struct dcpk_format to = *dcpk_format_find("fsdp_dtensor");
    struct dcpk_format_writer writer = *to.writer;
    uint64_t n_failed = 0;
    bool is_reached = true;

    (void)state;
    writer.finish = finish_and_arm;
    to.writer = &writer;
    for (nth = 1; is_reached; nth += 1 + nth / 16) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        char label[64], out[64];
        dcpk_status st;

        snprintf(label, sizeof label, "allocation %" PRIu64 " after writing", nth);
        snprintf(out, sizeof out, "out_%" PRIu64, nth);
        st = convert(&to, scratch(out), &err);
        is_reached = dcpk_alloc_fail_nth(0) >= nth;
        n_failed += st != DCPK_OK;
        CHECK(st == DCPK_OK || st == DCPK_ENOMEM, label); /* what is only advised may go missing */
        CHECK((st == DCPK_OK) == (err.text[0] == '\0'), label);
        CHECK((st == DCPK_OK) == scratch_has(out), label);
    }
    CHECK(n_failed > 40, "it did fail");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_allocations)};

    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}

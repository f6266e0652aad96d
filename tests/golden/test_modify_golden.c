/* SPDX-License-Identifier: Apache-2.0 */
/* test_modify_golden.c - keys and dtypes of samples changed while memory runs out: an error, and
 * nothing half-made. What comes out else, torch and zarr judge (tests/interop). */
#include <stdio.h>
#include <string.h>

#include "formats/formats.h"
#include "kernels/kernels.h"
#include "lib/base/alloc.h"
#include "lib/job/modify.h"
#include "tests/golden/conversions.h"

static dcpk_status modify(const char *sample, const char *out, const char *op,
                          struct dcpk_error *err)
{
    const struct dcpk_modify_options options = {.env = {.formats = dcpk_formats,
                                                        .open_file = dcpk_archive_opener,
                                                        .kernels = dcpk_host_kernel_sets[0],
                                                        .n_threads = 1},
                                                .in = sample_path(sample),
                                                .out = out,
                                                .edits = &op,
                                                .n_edits = 1};
    struct dcpk_modification m = {0};
    dcpk_status st = dcpk_modification_plan(&m, &options, err);

    if (st == DCPK_OK)
        st = dcpk_modification_run(&m, err);
    dcpk_modification_free(&m);
    return st;
}

/* The first 40 allocations fail one by one, later ones in steps. */
static void fail_allocations(const char *sample, const char *out, const char *op)
{
    char partial[256];
    uint64_t n = 1, n_failed = 0;
    bool reached = true;

    snprintf(partial, sizeof partial, "%s.dcpkit-partial", out);
    for (; reached; n += n < 40 ? 1 : 23) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        dcpk_status st;

        dcpk_alloc_fail_nth(n);
        st = modify(sample, scratch(out), op, &err);
        reached = dcpk_alloc_fail_nth(0) >= n;
        n_failed += st != DCPK_OK;
        CHECK_EQ_INT(scratch_has(out), st == DCPK_OK || strstr(err.text, "is in place") != NULL,
                     err.text);
        CHECK(!scratch_has(partial), op);
        if (scratch_has(out))
            scratch_clean(out);
    }
    CHECK(n_failed > 30, op);
}

static void every_failed_allocation_is_an_error(void **state)
{
    static const char *const samples[] = {"tiny_generations/torch_dist_0.10.0_torch2.5",
                                          "tiny_generations/zarr_0.12.0_torch2.5"};

    (void)state;
    for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++) {
        fail_allocations(samples[i], "iter_0000001", "rename bias b");
        fail_allocations(samples[i], "iter_0000001", "cast weight float64");
        fail_allocations(samples[i], "out.tar", "rename bias b");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_failed_allocation_is_an_error, scratch_setup,
                                        scratch_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* test_target.c - which outputs are of many small files, and which are too large for the page
 * cache. */
#include "tests/check.h"

#include <unistd.h>

#include "lib/job/target.h"

enum { MANY = DCPK_MANY_FILES };

static unsigned flags_of(size_t n_files, uint64_t n_bytes_each)
{
    static struct dcpk_out_file files[MANY];
    struct dcpk_output out = {.files = files, .n_files = n_files};

    for (size_t i = 0; i < n_files; i++)
        files[i].n_bytes = n_bytes_each;
    return dcpk_target_flags(&out);
}

static void flags(void **state)
{
    const uint64_t quarter =
        (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 4;

    (void)state;
    CHECK_EQ_INT(flags_of(0, 0), 0, "nothing");
    CHECK_EQ_INT(flags_of(MANY - 1, 1), 0, "few");
    CHECK_EQ_INT(flags_of(MANY, 1), DCPK_FOLDER_MANY, "many");
    CHECK_EQ_INT(flags_of(1, quarter), 0, "as much as stays in memory");
    CHECK_EQ_INT(flags_of(1, quarter + 1), DCPK_FOLDER_LARGE, "more");
    CHECK_EQ_INT(flags_of(2, quarter / 2 + 1), DCPK_FOLDER_LARGE, "more together");
    CHECK_EQ_INT(flags_of(MANY, quarter), DCPK_FOLDER_LARGE, "many, but not small");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(flags)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

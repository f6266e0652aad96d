/* SPDX-License-Identifier: Apache-2.0 */
/* every_alloc.h - a call of which every allocation fails in turn. */
#ifndef DCPK_TESTS_EVERY_ALLOC_H
#define DCPK_TESTS_EVERY_ALLOC_H

#include "lib/base/alloc.h"
#include "tests/check.h"

/*
 * Calls `use` with its first, its second, ... allocation failing, until it passes. Each failure is
 * DCPK_ENOMEM; what else holds then, `use` checks, and that nothing is lost a sanitizer. It makes
 * more than n_least allocations.
 */
static inline void every_alloc_fails(dcpk_status (*use)(struct dcpk_error *err), uint64_t n_least)
{
    dcpk_status st = DCPK_ENOMEM;
    uint64_t n = 0;

    while (st != DCPK_OK) {
        struct dcpk_error err = DCPK_ERROR_INIT;

        dcpk_alloc_fail_nth(++n);
        st = use(&err);
        CHECK(st == DCPK_OK || st == DCPK_ENOMEM, err.text);
        CHECK(n < 10000, "it passes in the end");
    }
    CHECK_EQ_INT(dcpk_alloc_fail_nth(0), n - 1, "all were failed in turn");
    CHECK(n - 1 >= n_least, "some were failed");
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* every_alloc.h - a call of which every allocation fails in turn. */
#ifndef DCPK_TESTS_EVERY_ALLOC_H
#define DCPK_TESTS_EVERY_ALLOC_H

#include "lib/base/alloc.h"
#include "tests/check.h"

/*
 * Calls `use` with its first, its second, ... allocation failing, until all of them were. Each
 * failure is DCPK_ENOMEM, but for n_notes at most, which are of no more than a note and leave `use`
 * to pass; what else holds then, `use` checks, and that nothing is lost a sanitizer. It makes more
 * than n_least allocations.
 */
static inline void every_alloc_fails_but(dcpk_status (*use)(struct dcpk_error *err),
                                         uint64_t n_least, uint64_t n_notes)
{
    uint64_t n = 0, n_made = 0;

    while (n_made >= n) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        dcpk_status st;

        dcpk_alloc_fail_nth(++n);
        st = use(&err);
        n_made = dcpk_alloc_fail_nth(0);
        CHECK(st == DCPK_ENOMEM || st == DCPK_OK, err.text);
        if (n_made < n)
            CHECK_OK(st, "none failed");
        else if (st == DCPK_OK)
            CHECK(n_notes-- > 0, "a failure of more than a note");
        CHECK(n < 10000, "it passes in the end");
    }
    CHECK(n_made >= n_least, "some were failed");
}

static inline void every_alloc_fails(dcpk_status (*use)(struct dcpk_error *err), uint64_t n_least)
{
    every_alloc_fails_but(use, n_least, 0);
}

#endif

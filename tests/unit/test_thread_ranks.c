/* SPDX-License-Identifier: Apache-2.0 */
/* test_thread_ranks.c - ranks that are threads: what they gather, broadcast and agree on. */
#include "lib/exec/ranks.h"

#include <stdatomic.h>
#include <string.h>

#include "tests/check.h"

#define N_ROUNDS 200

struct script_facts {
    int bad_rank; /* fails by itself; -1: none does */
    bool waits;   /* the others are in a collective call by then, else before an agreement */
    atomic_int n_run;
};

static dcpk_status check_gathered(struct dcpk_ranks *ranks, uint64_t round, struct dcpk_error *err)
{
    const size_t n = (size_t)dcpk_ranks_count(ranks);
    const uint64_t mine = 1000 * round + (uint64_t)dcpk_ranks_self(ranks);
    struct dcpk_bytes all = {0};
    dcpk_status st = dcpk_ranks_share(ranks, &mine, sizeof mine, &all, DCPK_OK, err);

    if (st == DCPK_OK && all.n_bytes != n * sizeof mine)
        st = dcpk_fail(err, DCPK_EIO, "round %d: %zu bytes", (int)round, all.n_bytes);
    for (size_t r = 0; st == DCPK_OK && r < n; r++) {
        uint64_t got;

        memcpy(&got, all.data + r * sizeof got, sizeof got);
        if (got != 1000 * round + r)
            st = dcpk_fail(err, DCPK_EIO, "round %d: of rank %zu: %d", (int)round, r, (int)got);
    }
    dcpk_bytes_release(&all);
    return st;
}

static dcpk_status script(struct dcpk_ranks *ranks, void *context, struct dcpk_error *err)
{
    struct script_facts *facts = context;
    dcpk_status st = DCPK_OK;

    atomic_fetch_add(&facts->n_run, 1);
    for (uint64_t i = 0; i < N_ROUNDS && st == DCPK_OK; i++)
        st = check_gathered(ranks, i, err);
    if (dcpk_ranks_self(ranks) == facts->bad_rank)
        st = dcpk_fail(err, DCPK_EFORMAT, "it is bad");
    else if (st == DCPK_OK && facts->waits)
        st = check_gathered(ranks, 1, err);
    return dcpk_ranks_agree(ranks, st, err);
}

static void test_ranks(void **state)
{
    static const struct {
        const char *label;
        int n_ranks, bad_rank;
        bool waits;
        dcpk_status status;
        const char *message;
    } cases[] = {
        {"one", 1, -1, false, DCPK_OK, ""},
        {"one that fails", 1, 0, false, DCPK_EFORMAT, "it is bad"},
        {"two", 2, -1, true, DCPK_OK, ""},
        {"seven", 7, -1, true, DCPK_OK, ""},
        {"a rank fails, the others wait", 5, 3, true, DCPK_EFORMAT, "rank 3 of 5: it is bad"},
        {"a rank fails, the others agree", 4, 0, false, DCPK_EFORMAT, "rank 0 of 4: it is bad"},
        {"most", DCPK_MAX_THREAD_RANKS, -1, true, DCPK_OK, ""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct script_facts facts = {.bad_rank = cases[i].bad_rank, .waits = cases[i].waits};
        struct dcpk_error err = DCPK_ERROR_INIT;

        CHECK_FAILS(dcpk_thread_ranks_run(cases[i].n_ranks, script, &facts, &err), cases[i].status,
                    cases[i].message, cases[i].label);
        CHECK_EQ_INT(atomic_load(&facts.n_run), cases[i].n_ranks, cases[i].label);
    }
}

static dcpk_status leave_early(struct dcpk_ranks *ranks, void *context, struct dcpk_error *err)
{
    (void)context;
    if (dcpk_ranks_self(ranks) == 1)
        return DCPK_OK; /* against the rules: the others are not left to wait */
    return dcpk_ranks_agree(ranks, check_gathered(ranks, 0, err), err);
}

static void test_left(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    (void)state;
    CHECK_FAILS(dcpk_thread_ranks_run(3, leave_early, NULL, &err), DCPK_EIO, "rank", "left early");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ranks), cmocka_unit_test(test_left)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* test_pool.c - every task once, the first failure stops, its error comes back. */
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "lib/exec/pool.h"
#include "tests/check.h"

enum { MAX_TASKS = 5000 };

static struct {
    atomic_int n_runs[MAX_TASKS];
    atomic_int n_begun;
    atomic_bool bad_worker;
    int n_threads;
    uint64_t fails_from; /* tasks from this one on fail */
    dcpk_status status;
} run;

static dcpk_status count_task(void *context, int worker, uint64_t i, struct dcpk_error *err)
{
    (void)context;
    atomic_fetch_add(&run.n_begun, 1);
    atomic_fetch_add(&run.n_runs[i], 1);
    if (worker < 0 || worker >= run.n_threads)
        atomic_store(&run.bad_worker, true);
    if (i >= run.fails_from)
        return dcpk_fail(err, run.status, "task %" PRIu64 " fails", i);
    return DCPK_OK;
}

static const struct {
    const char *label;
    int n_threads;
    uint64_t n_tasks, fails_from;
    dcpk_status status;
    char text[16];
} cases[] = {
    {"no tasks", .n_threads = 4, .n_tasks = 0, .fails_from = MAX_TASKS},
    {"one thread", .n_threads = 1, .n_tasks = 1000, .fails_from = MAX_TASKS},
    {"more threads than tasks", .n_threads = 16, .n_tasks = 3, .fails_from = MAX_TASKS},
    {"many tasks", .n_threads = 7, .n_tasks = MAX_TASKS, .fails_from = MAX_TASKS},
    {"the first task fails", .n_threads = 1, .n_tasks = 1000, .fails_from = 0, .status = DCPK_EIO,
     .text = "task 0 fails"},
    {"all from one on fail, the first is told", .n_threads = 1, .n_tasks = 1000, .fails_from = 400,
     .status = DCPK_EFORMAT, .text = "task 400 fails"},
    {"the last task fails", .n_threads = 4, .n_tasks = 1000, .fails_from = 999,
     .status = DCPK_ENOMEM, .text = "task 999 fails"},
};

static void test_cases(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const uint64_t n_good =
            cases[c].fails_from < cases[c].n_tasks ? cases[c].fails_from : cases[c].n_tasks;
        struct dcpk_error err = DCPK_ERROR_INIT;

        memset(&run, 0, sizeof run);
        run.n_threads = cases[c].n_threads;
        run.fails_from = cases[c].fails_from;
        run.status = cases[c].status;
        CHECK_EQ_INT(dcpk_pool_run(cases[c].n_threads, cases[c].n_tasks, count_task, NULL, &err),
                     cases[c].status, cases[c].label);
        CHECK_EQ_INT(err.status, cases[c].status, cases[c].label);
        CHECK_EQ_STR(err.text, cases[c].text, cases[c].label);
        CHECK(!atomic_load(&run.bad_worker), cases[c].label);
        for (uint64_t i = 0; i < n_good; i++)
            CHECK_EQ_INT(atomic_load(&run.n_runs[i]), 1, cases[c].label);
    }
}

/* With several threads failing at once, the lowest task's error is the one that is reported, and
 * few tasks begin after it. */
static void test_failure_stops(void **state)
{
    (void)state;
    for (int round = 0; round < 50; round++) {
        struct dcpk_error err = DCPK_ERROR_INIT;

        memset(&run, 0, sizeof run);
        run.n_threads = 8;
        run.fails_from = 100;
        run.status = DCPK_EIO;
        CHECK_EQ_INT(dcpk_pool_run(8, MAX_TASKS, count_task, NULL, &err), DCPK_EIO, "stops");
        CHECK_EQ_STR(err.text, "task 100 fails", "stops");
        CHECK(atomic_load(&run.n_begun) <= 101 + 8, "stops");
    }
}

static dcpk_status signal_task(void *context, int worker, uint64_t i, struct dcpk_error *err)
{
    sigset_t blocked;

    (void)context;
    (void)i;
    (void)err;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    if (worker > 0 && (!sigismember(&blocked, SIGINT) || !sigismember(&blocked, SIGTERM)))
        atomic_store(&run.bad_worker, true);
    if (worker == 0 && sigismember(&blocked, SIGINT))
        atomic_store(&run.bad_worker, true);
    return DCPK_OK;
}

/* Signals are the caller's: blocked in the other threads, as they were in this one. */
static void test_signals(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    (void)state;
    memset(&run, 0, sizeof run);
    CHECK_OK(dcpk_pool_run(4, 2000, signal_task, NULL, &err), "signals");
    CHECK(!atomic_load(&run.bad_worker), "signals");
}

static void test_default_threads(void **state)
{
    (void)state;
    CHECK(dcpk_pool_default_threads() >= 1 && dcpk_pool_default_threads() <= 16, "default");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_failure_stops),
        cmocka_unit_test(test_signals),
        cmocka_unit_test(test_default_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

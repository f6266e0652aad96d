/* SPDX-License-Identifier: Apache-2.0 */
/* test_sink_join.c - a partial folder that several processes work in: joined by its mark, late
 * where it shows late. */
#include <stdio.h>
#include <time.h>

#include "lib/exec/pool.h"
#include "lib/io/sink.h"
#include "tests/unit/scratch.h"

#define PARTIAL "runs/out.dcpkit-partial"
#define MARK    PARTIAL "/.dcpkit-mark"

static struct dcpk_folder *begin(unsigned flags)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_folder *folder = NULL;

    CHECK_OK(dcpk_folder_begin(scratch("runs/out"), flags | DCPK_FOLDER_SHARED, &folder, &err),
             "begin");
    return folder;
}

static void joins(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_folder *first = begin(0), *second = NULL;
    uint64_t mark, other;

    (void)state;
    CHECK_OK(dcpk_folder_mark(first, &mark, &err), "mark");
    CHECK_FAILS(
        dcpk_folder_join(scratch("runs/out"), DCPK_FOLDER_SHARED, mark + 1, 0, &second, &err),
        DCPK_EIO, "all ranks share", "another mark");
    CHECK_FAILS(
        dcpk_folder_join(scratch("runs/other"), DCPK_FOLDER_SHARED, mark, 0.3, &second, &err),
        DCPK_EIO, "all ranks share", "another folder");
    CHECK_OK(dcpk_folder_join(scratch("runs/out"), DCPK_FOLDER_SHARED, mark, 0, &second, &err),
             "join");
    CHECK_OK(dcpk_folder_unmark(first, &err), "unmark");
    CHECK(!scratch_has(MARK), "unmark");
    CHECK_OK(dcpk_folder_put(second, "a", "of the second", 13, &err), "a file");
    CHECK_OK(dcpk_folder_put(first, "a", "by the first ", 13, &err), "the same file");
    dcpk_folder_abandon(second);
    CHECK_OK(dcpk_folder_publish(first, &err), "publish");
    CHECK_EQ_STR(scratch_read("runs/out/a"), "by the first ", "both wrote it");

    first = begin(DCPK_FOLDER_REPLACE);
    CHECK_OK(dcpk_folder_mark(first, &other, &err), "mark");
    CHECK(other != mark, "marks differ");
    dcpk_folder_abandon(first);
    CHECK(!scratch_has(PARTIAL), "nothing is left");
}

struct late {
    char path[4200];
    uint64_t mark;
    struct dcpk_folder *joined, *begun;
};

/* Task 1 begins the folder a while after task 0 has begun to wait for it. */
static dcpk_status join_or_begin(void *context, int worker, uint64_t task, struct dcpk_error *err)
{
    const struct timespec pause = {.tv_nsec = 400000000};
    struct late *late = context;

    (void)worker;
    if (task == 0)
        return dcpk_folder_join(late->path, DCPK_FOLDER_SHARED, late->mark, 30, &late->joined, err);
    (void)nanosleep(&pause, NULL);
    if (dcpk_folder_begin(late->path, DCPK_FOLDER_SHARED, &late->begun, err) != DCPK_OK)
        return err->status;
    return dcpk_folder_put(late->begun, ".dcpkit-mark", &late->mark, sizeof late->mark, err);
}

static void waits(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct late late = {.mark = 77};

    (void)state;
    snprintf(late.path, sizeof late.path, "%s", scratch("runs/out"));
    CHECK_OK(dcpk_pool_run(2, 2, join_or_begin, &late, &err), "shown late");
    dcpk_folder_abandon(late.joined);
    CHECK(scratch_has(PARTIAL), "whoever joined leaves it");
    dcpk_folder_abandon(late.begun);
    CHECK(!scratch_has("runs"), "whoever began it does not");
}

/* A run that was killed between mark and unmark: its mark is not published. */
static void stale_mark(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_folder *folder = begin(0);
    uint64_t mark;

    (void)state;
    CHECK_OK(dcpk_folder_mark(folder, &mark, &err), "mark");
    CHECK_OK(dcpk_folder_write_journal(folder, 0, "done", 4, &err), "journal");
    CHECK(dcpk_folder_keep(folder), "keep");
    dcpk_folder_abandon(folder);
    CHECK(scratch_has(MARK), "killed");
    folder = begin(DCPK_FOLDER_RESUME);
    CHECK(dcpk_folder_is_resumed(folder), "resumed");
    CHECK_OK(dcpk_folder_publish(folder, &err), "publish");
    CHECK(!scratch_has("runs/out/.dcpkit-mark"), "not published");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(joins), TEST(waits), TEST(stale_mark)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* test_sink_join.c - a partial folder that several processes work in: joined by its mark, late
 * where it shows late. */
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "lib/base/sink.h"
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
    struct dcpk_folder *folder;
};

static void *begin_late(void *argument)
{
    struct late *late = argument;
    const struct timespec pause = {.tv_nsec = 400000000};
    struct dcpk_error err = DCPK_ERROR_INIT;

    (void)nanosleep(&pause, NULL);
    if (dcpk_folder_begin(late->path, DCPK_FOLDER_SHARED, &late->folder, &err) == DCPK_OK)
        (void)dcpk_folder_put(late->folder, ".dcpkit-mark", &late->mark, sizeof late->mark, &err);
    return NULL;
}

static void waits(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_folder *joined = NULL;
    struct late late = {.mark = 77};
    pthread_t thread;

    (void)state;
    snprintf(late.path, sizeof late.path, "%s", scratch("runs/out"));
    CHECK_EQ_INT(pthread_create(&thread, NULL, begin_late, &late), 0, "thread");
    CHECK_OK(
        dcpk_folder_join(scratch("runs/out"), DCPK_FOLDER_SHARED, late.mark, 30, &joined, &err),
        "shown late");
    pthread_join(thread, NULL);
    dcpk_folder_abandon(joined);
    CHECK(scratch_has(PARTIAL), "whoever joined leaves it");
    dcpk_folder_abandon(late.folder);
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

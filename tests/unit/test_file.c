/* SPDX-License-Identifier: Apache-2.0 */
/* test_file.c - small files: replaced whole, or written into what is not a plain file. */
#include "tests/check.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/io/file.h"
#include "tests/unit/scratch.h"

static void replaces_files(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    (void)state;
    CHECK_OK(dcpk_file_write(scratch("t"), 0, "first, long", 11, &err), "new");
    CHECK_EQ_STR(scratch_read("t"), "first, long", "new");
    scratch_write("t.dcpkit-tmp-0", "left by a killed run, longer than that");
    CHECK_OK(dcpk_file_write(scratch("t"), 0, "second", 6, &err), "over the first");
    CHECK_EQ_STR(scratch_read("t"), "second", "over the first");
    CHECK(!scratch_has_like("tmp"), "what a killed run left is swept");
    CHECK_EQ_INT(mkdir(scratch("d"), 0777), 0, "d");
    CHECK_FAILS(dcpk_file_write(scratch("d"), 0, "x", 1, &err), DCPK_EIO, "moving",
                "onto a folder");
    CHECK(!scratch_has_like("tmp"), "temporary");
    CHECK_FAILS(dcpk_file_write(scratch("none/t"), 0, "x", 1, &err), DCPK_EIO, "No such file",
                "no folder");
}

/* What stands at the name of a temporary file and is not ours to delete is gone around. */
static void stands_strangers(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    int locked;

    (void)state;
    scratch_write("victim", "precious");
    CHECK_EQ_INT(mkfifo(scratch("t.dcpkit-tmp-0"), 0666), 0, "a pipe");
    CHECK_EQ_INT(symlink("victim", scratch("t.dcpkit-tmp-1")), 0, "a link");
    CHECK_EQ_INT(link(scratch("victim"), scratch("t.dcpkit-tmp-2")), 0, "a second name");
    CHECK_EQ_INT(mkdir(scratch("t.dcpkit-tmp-3"), 0777), 0, "a folder");
    scratch_write("t.dcpkit-tmp-4", "in use");
    locked = open(scratch("t.dcpkit-tmp-4"), O_RDONLY);
    CHECK_EQ_INT(flock(locked, LOCK_EX | LOCK_NB), 0, "a file in use");
    CHECK_OK(dcpk_file_write(scratch("t"), 0, "new", 3, &err), "past all");
    CHECK_EQ_STR(scratch_read("t"), "new", "written");
    CHECK_EQ_STR(scratch_read("victim"), "precious", "not written to");
    CHECK_EQ_STR(scratch_read("t.dcpkit-tmp-4"), "in use", "not written to");
    CHECK(scratch_has("t.dcpkit-tmp-2") && !scratch_has("t.dcpkit-tmp-5"), "none gone, none new");
    close(locked);
}

static void writes_into_others(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct stat info;
    char got[8] = "";
    int reader;

    (void)state;
    CHECK_OK(dcpk_file_write(scratch("plain"), DCPK_FILE_INTO, "text", 4, &err), "none");
    CHECK_OK(dcpk_file_write(scratch("plain"), DCPK_FILE_INTO, "new", 3, &err), "a plain file");
    CHECK_EQ_STR(scratch_read("plain"), "new", "a plain file");

    CHECK_EQ_INT(symlink("plain", scratch("link")), 0, "link");
    CHECK_OK(dcpk_file_write(scratch("link"), DCPK_FILE_INTO, "by", 2, &err), "a link");
    CHECK_EQ_STR(scratch_read("plain"), "by", "through the link");
    CHECK(lstat(scratch("link"), &info) == 0 && S_ISLNK(info.st_mode), "the link is one still");

    CHECK_EQ_INT(symlink("/dev/null", scratch("null")), 0, "null");
    CHECK_OK(dcpk_file_write(scratch("null"), DCPK_FILE_INTO, "gone", 4, &err), "a device");
    CHECK(stat(scratch("null"), &info) == 0 && S_ISCHR(info.st_mode), "the device is one still");

    CHECK_EQ_INT(mkfifo(scratch("pipe"), 0666), 0, "pipe");
    CHECK_FAILS(dcpk_file_write(scratch("pipe"), DCPK_FILE_INTO, "x", 1, &err), DCPK_EIO,
                "No such device", "a pipe that has no reader");
    reader = open(scratch("pipe"), O_RDONLY | O_NONBLOCK);
    CHECK_OK(dcpk_file_write(scratch("pipe"), DCPK_FILE_INTO, "read", 4, &err), "a pipe");
    CHECK_EQ_INT(read(reader, got, sizeof got), 4, "a pipe");
    CHECK_EQ_STR(got, "read", "a pipe");
    close(reader);

    CHECK_EQ_INT(mkdir(scratch("folder"), 0777), 0, "folder");
    CHECK_FAILS(dcpk_file_write(scratch("folder"), DCPK_FILE_INTO, "x", 1, &err), DCPK_EIO,
                "moving", "a folder");
    CHECK(!scratch_has_like("tmp"), "temporary");
}

static void locks_a_folder(void **state)
{
    const int lock = dcpk_file_lock_parent(scratch("tracker"), 0);
    int other;

    (void)state;
    CHECK(lock >= 0, "taken");
    CHECK_EQ_INT(dcpk_file_lock_parent(scratch("other"), 0.02), -1, "held by another descriptor");
    dcpk_file_unlock(lock);
    other = dcpk_file_lock_parent(scratch("other"), 0);
    CHECK(other >= 0, "free again");
    dcpk_file_unlock(other);
    CHECK_EQ_INT(dcpk_file_lock_parent(scratch("none/t"), 0), -1, "no folder");
    dcpk_file_unlock(-1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(replaces_files), TEST(stands_strangers),
                                       TEST(writes_into_others), TEST(locks_a_folder)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

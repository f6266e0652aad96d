/* SPDX-License-Identifier: Apache-2.0 */
/* test_remove.c - trees that are deleted, and what they lead to, which is not. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/io/remove.h"
#include "tests/unit/scratch.h"

/* A descriptor of the scratch folder. */
static int open_root(void)
{
    const int fd = open(scratch_root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    CHECK(fd >= 0, scratch_root);
    return fd;
}

static void make_folder(const char *name)
{
    CHECK_EQ_INT(mkdir(scratch(name), 0777), 0, name);
}

/* Folders in each other, n of them, in the folder `name`; a file in the last one. */
static void make_deep(const char *name, int n)
{
    char path[1024];
    int length = snprintf(path, sizeof path, "%s", name);

    make_folder(path);
    for (int i = 1; i < n; i++) {
        length += snprintf(path + length, sizeof path - (size_t)length, "/d");
        make_folder(path);
    }
    snprintf(path + length, sizeof path - (size_t)length, "/f");
    scratch_write(path, "deep");
}

static void deletes(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    const int fd = open_root();
    char name[32];

    (void)state;
    make_folder("precious");
    scratch_write("precious/f", "kept");
    make_deep("tree", 40);
    for (int i = 0; i < 3000; i++) { /* more than one reading of a folder gives */
        snprintf(name, sizeof name, "tree/f%d", i);
        scratch_write(name, "");
    }
    CHECK_EQ_INT(symlink("../precious", scratch("tree/link")), 0, "symlink");
    CHECK_EQ_INT(symlink("nowhere", scratch("tree/d/broken")), 0, "symlink");
    CHECK_EQ_INT(mkfifo(scratch("tree/d/pipe"), 0666), 0, "mkfifo");
    CHECK_OK(dcpk_remove_at(fd, "tree", "scratch", &err), "tree");
    CHECK(!scratch_has("tree"), "tree");
    CHECK_OK(dcpk_remove_at(fd, "tree", "scratch", &err), "nothing is fine");
    CHECK_EQ_INT(symlink("precious", scratch("link")), 0, "symlink");
    CHECK_OK(dcpk_remove_at(fd, "link", "scratch", &err), "a link");
    scratch_write("file", "");
    CHECK_OK(dcpk_remove_at(fd, "file", "scratch", &err), "a file");
    make_folder("empty");
    CHECK_OK(dcpk_remove_at(fd, "empty", "scratch", &err), "an empty folder");
    CHECK(!scratch_has("link") && !scratch_has("file") && !scratch_has("empty"), "gone");
    CHECK_EQ_STR(scratch_read("precious/f"), "kept", "not followed");
    close(fd);
}

static void deletes_inside(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    int fd;

    (void)state;
    make_deep("tree", 3);
    scratch_write("tree/kept", "kept");
    scratch_write("tree/d/kept", "not kept");
    fd = open(scratch("tree"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK_OK(dcpk_remove_inside(fd, "kept", "tree", &err), "but one");
    CHECK(scratch_has("tree/kept") && !scratch_has("tree/d"), "but one");
    CHECK_OK(dcpk_remove_inside(fd, NULL, "tree", &err), "all");
    CHECK(scratch_has("tree") && !scratch_has("tree/kept"), "all");
    close(fd);
}

static void too_deep(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    const int fd = open_root();

    (void)state;
    make_deep("tree", 64);
    CHECK_OK(dcpk_remove_at(fd, "tree", "scratch", &err), "64");
    make_deep("tree", 70);
    CHECK_FAILS(dcpk_remove_at(fd, "tree", "scratch", &err), DCPK_ERANGE, "more than 64 folders",
                "70");
    CHECK(scratch_has("tree"), "70");
    close(fd);
}

/* A folder that may not be changed: what cannot be deleted is named. */
static void refused(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    int fd;

    (void)state;
    if (geteuid() == 0) /* may do all */
        skip();
    make_deep("tree", 2);
    CHECK_EQ_INT(chmod(scratch("tree/d"), 0500), 0, "chmod");
    fd = open_root();
    CHECK_FAILS(dcpk_remove_at(fd, "tree", "scratch", &err), DCPK_EIO, "deleting 'f' in 'scratch'",
                "refused");
    CHECK_EQ_INT(chmod(scratch("tree/d"), 0700), 0, "chmod");
    close(fd);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(deletes),
        TEST(deletes_inside),
        TEST(too_deep),
        TEST(refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

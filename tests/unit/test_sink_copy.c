/* SPDX-License-Identifier: Apache-2.0 */
/* test_sink_copy.c - whole files put into an output folder: the same file or the same bytes. */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/sink.h"
#include "tests/unit/scratch.h"

static ino_t inode(const char *name)
{
    struct stat info = {0};

    CHECK_EQ_INT(lstat(scratch(name), &info), 0, name);
    return info.st_ino;
}

static void links_and_copies(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_folder *folder = NULL;
    bool linked = false;

    (void)state;
    scratch_write("data", "0123456789");
    scratch_write("empty", "");
    CHECK_EQ_INT(symlink("data", scratch("pointer")), 0, "symlink");
    CHECK_OK(dcpk_folder_begin(scratch("out"), 0, &folder, &err), "begin");
    CHECK_OK(dcpk_folder_link(folder, "linked", scratch("data"), &linked, &err), "link");
    CHECK(linked, "one file system");
    CHECK_OK(dcpk_folder_link(folder, "through", scratch("pointer"), &linked, &err), "symbolic");
    CHECK_OK(dcpk_folder_copy(folder, "copied", scratch("data"), &err), "copy");
    CHECK_OK(dcpk_folder_copy(folder, "nothing", scratch("empty"), &err), "copy of nothing");
    CHECK_OK(dcpk_folder_publish(folder, &err), "publish");
    CHECK(inode("out/linked") == inode("data"), "the same file");
    CHECK(inode("out/through") == inode("data"), "what the link points at");
    CHECK(inode("out/copied") != inode("data"), "another file");
    CHECK_EQ_STR(scratch_read("out/copied"), "0123456789", "the same bytes");
    CHECK_EQ_STR(scratch_read("out/nothing"), "", "none");
}

static void fails(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_folder *folder = NULL;
    bool linked = true;

    (void)state;
    scratch_write("data", "0123456789");
    CHECK_OK(dcpk_folder_begin(scratch("out"), 0, &folder, &err), "begin");
    CHECK_FAILS(dcpk_folder_link(folder, "x", scratch("nowhere"), &linked, &err), DCPK_EIO,
                "nowhere", "no source");
    CHECK_FAILS(dcpk_folder_copy(folder, "..", scratch("data"), &err), DCPK_EFORMAT, "'..'",
                "a name that leaves the folder");
    CHECK_OK(dcpk_folder_copy(folder, "x", scratch("data"), &err), "first");
    CHECK_FAILS(dcpk_folder_copy(folder, "x", scratch("data"), &err), DCPK_EIO, "x", "twice");
    dcpk_folder_abandon(folder);
    CHECK_EQ_STR(scratch_read("data"), "0123456789", "the source stays");
    CHECK(!scratch_has("out"), "abandoned");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(links_and_copies, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(fails, scratch_setup, scratch_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* test_sink_copy.c - whole files put into an output folder: the same file or the same bytes. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/io/sink.h"
#include "lib/io/store.h"
#include "tests/unit/scratch.h"

static ino_t inode(const char *name)
{
    struct stat info = {0};

    CHECK_EQ_INT(lstat(scratch(name), &info), 0, name);
    return info.st_ino;
}

/* The scratch folder as a store, and one of its files. */
static struct dcpk_store *open_scratch(void)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_store *store = NULL;

    CHECK_OK(dcpk_store_open(scratch("."), &store, &err), "scratch");
    return store;
}

static struct dcpk_source *find(struct dcpk_store *store, const char *name)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_source *source = NULL;

    CHECK_OK(dcpk_store_find(store, name, &source, &err), name);
    return source;
}

static void links_and_copies(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_folder *folder = NULL;
    struct dcpk_store *store;
    bool linked = false;

    (void)state;
    scratch_write("data", "0123456789");
    scratch_write("empty", "");
    CHECK_EQ_INT(symlink("data", scratch("pointer")), 0, "symlink");
    store = open_scratch();
    CHECK_OK(dcpk_folder_begin(scratch("out"), 0, &folder, &err), "begin");
    CHECK_OK(dcpk_folder_link(folder, "linked", find(store, "data"), &linked, &err), "link");
    CHECK(linked, "one file system");
    CHECK_OK(dcpk_folder_link(folder, "inner/linked", find(store, "data"), &linked, &err), "inner");
    CHECK(linked, "in a folder of it");
    CHECK_OK(dcpk_folder_link(folder, "through", find(store, "pointer"), &linked, &err),
             "symbolic");
    CHECK_OK(dcpk_folder_copy(folder, "copied", find(store, "data"), &err), "copy");
    CHECK_OK(dcpk_folder_copy(folder, "nothing", find(store, "empty"), &err), "copy of nothing");
    CHECK_OK(dcpk_folder_publish(folder, &err), "publish");
    dcpk_store_close(store);
    CHECK(inode("out/linked") == inode("data"), "the same file");
    CHECK(inode("out/inner/linked") == inode("data"), "the same file in a folder");
    CHECK(inode("out/through") == inode("data"), "what the link points at");
    CHECK(inode("out/copied") != inode("data"), "another file");
    CHECK_EQ_STR(scratch_read("out/copied"), "0123456789", "the same bytes");
    CHECK_EQ_STR(scratch_read("out/nothing"), "", "none");
}

/* Members of an archive, and into one: never a link, and the right part of the file. */
static void copies_of_and_into_archives(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_store *ranges = NULL, *memory = NULL;
    struct dcpk_folder *folder = NULL;
    bool linked = true;

    (void)state;
    scratch_write("data", "0123456789");
    CHECK_OK(dcpk_store_new_ranges("data", open(scratch("data"), O_RDONLY), &ranges, &err), "new");
    CHECK_OK(dcpk_store_add_range(ranges, "middle", 3, 4, &err), "range");
    CHECK_OK(dcpk_store_new_memory("memory", &memory, &err), "new");
    CHECK_OK(dcpk_store_add_memory(memory, "word", "word", 4, &err), "memory");
    CHECK_OK(dcpk_folder_begin(scratch("out.tar"), DCPK_FOLDER_TAR, &folder, &err), "begin");
    CHECK_OK(dcpk_folder_put(folder, "first", "x", 1, &err), "first");
    CHECK_OK(dcpk_folder_link(folder, "a/middle", find(ranges, "middle"), &linked, &err), "middle");
    CHECK(!linked, "a range of an archive");
    linked = true;
    CHECK_OK(dcpk_folder_link(folder, "word", find(memory, "word"), &linked, &err), "word");
    CHECK(!linked, "memory");
    CHECK_OK(dcpk_folder_publish(folder, &err), "publish");
    dcpk_store_close(memory);
    dcpk_store_close(ranges);
    /* Each member is a header and its bytes, in whole blocks of 512. */
    CHECK_EQ_STR(scratch_read("out.tar") + 3 * 512, "3456", "middle");
    CHECK_EQ_STR(scratch_read("out.tar") + 5 * 512, "word", "word");
}

static void fails(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_folder *folder = NULL;
    struct dcpk_store *store;
    bool linked = true;

    (void)state;
    scratch_write("data", "0123456789");
    scratch_write("gone", "0123456789");
    store = open_scratch();
    find(store, "gone"); /* its length is known from now on */
    CHECK_EQ_INT(unlink(scratch("gone")), 0, "unlink");
    CHECK_OK(dcpk_folder_begin(scratch("out"), 0, &folder, &err), "begin");
    CHECK_FAILS(dcpk_folder_link(folder, "x", find(store, "gone"), &linked, &err), DCPK_EIO, "gone",
                "no source");
    CHECK_FAILS(dcpk_folder_copy(folder, "..", find(store, "data"), &err), DCPK_EFORMAT, "'..'",
                "a name that leaves the folder");
    CHECK_OK(dcpk_folder_copy(folder, "y", find(store, "data"), &err), "first");
    CHECK_FAILS(dcpk_folder_copy(folder, "y", find(store, "data"), &err), DCPK_EIO, "y", "twice");
    dcpk_folder_abandon(folder);
    dcpk_store_close(store);
    CHECK_EQ_STR(scratch_read("data"), "0123456789", "the source stays");
    CHECK(!scratch_has("out"), "abandoned");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(links_and_copies, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(copies_of_and_into_archives, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(fails, scratch_setup, scratch_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

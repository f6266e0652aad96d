/* SPDX-License-Identifier: Apache-2.0 */
/* test_sink.c - folders that appear whole or not at all, and what stands in their way. */
#include "tests/every_alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/io/file.h"
#include "lib/io/sink.h"
#include "tests/unit/scratch.h"

static void make_folder(const char *name)
{
    CHECK_EQ_INT(mkdir(scratch(name), 0777), 0, name);
}

static void publishes(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_folder *folder = NULL;
    struct dcpk_sink *sink = NULL;

    (void)state;
    /* slashes at the end are no part of the name; parents are made */
    CHECK_OK(dcpk_folder_begin(scratch("run/a/iter_1//"), 0, &folder, &err), "begin");
    CHECK_OK(dcpk_folder_create(folder, "data", 10, &sink, &err), "create");
    CHECK_OK(dcpk_sink_write(sink, 5, "56789", 5, &err), "back first");
    CHECK_OK(dcpk_sink_write(sink, 0, "01234", 5, &err), "front");
    CHECK_OK(dcpk_sink_write(sink, 10, NULL, 0, &err), "nothing");
    dcpk_sink_flush(sink, 0, 10);
    dcpk_sink_flush(sink, 0, 0);
    CHECK_OK(dcpk_sink_close(sink, &err), "close");
    CHECK_OK(dcpk_folder_put(folder, ".metadata", "meta", 4, &err), "put");
    CHECK_OK(dcpk_folder_put(folder, "empty", NULL, 0, &err), "put nothing");
    CHECK(!scratch_has("run/a/iter_1"), "not yet");
    CHECK_OK(dcpk_folder_publish(folder, &err), "publish");
    CHECK_EQ_STR(scratch_read("run/a/iter_1/data"), "0123456789", "data");
    CHECK_EQ_STR(scratch_read("run/a/iter_1/.metadata"), "meta", ".metadata");
    CHECK_EQ_STR(scratch_read("run/a/iter_1/empty"), "", "empty");
    CHECK(!scratch_has("run/a/iter_1.dcpkit-partial"), "moved");
}

static void relative_path(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_folder *folder = NULL;
    char before[4096];

    (void)state;
    CHECK(getcwd(before, sizeof before) != NULL, "getcwd");
    CHECK_EQ_INT(chdir(scratch_root), 0, "chdir");
    CHECK_OK(dcpk_folder_begin("out", 0, &folder, &err), "begin");
    CHECK_OK(dcpk_folder_publish(folder, &err), "publish");
    CHECK_OK(dcpk_file_write("tracker", 0, "7", 1, &err), "replace");
    CHECK_EQ_INT(chdir(before), 0, "chdir");
    CHECK(scratch_has("out"), "published");
    CHECK_EQ_STR(scratch_read("tracker"), "7", "replaced");
}

static void names(void **state)
{
    static const char *const bad_files[] = {"",     ".",    "..",  "/a",  "a/",
                                            "../a", "a/..", "./a", "a/.", "a/b/c"};
    static const char *const bad_folders[] = {"", "/", "//", ".", "..", "a/.", "a/.."};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_folder *folder = NULL;
    struct dcpk_sink *sink = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof bad_folders / sizeof *bad_folders; i++)
        CHECK_FAILS(dcpk_folder_begin(bad_folders[i], DCPK_FOLDER_REPLACE, &folder, &err),
                    DCPK_EUSAGE, "not the name of a folder", bad_folders[i]);
    CHECK(folder == NULL, "untouched");
    CHECK_OK(dcpk_folder_begin(scratch("out"), 0, &folder, &err), "begin");
    for (size_t i = 0; i < sizeof bad_files / sizeof *bad_files; i++)
        CHECK_FAILS(dcpk_folder_create(folder, bad_files[i], 0, &sink, &err), DCPK_EFORMAT,
                    "not a plain file name", bad_files[i]);
    CHECK_OK(dcpk_folder_put(folder, "f", "1", 1, &err), "first");
    CHECK_FAILS(dcpk_folder_put(folder, "f", "2", 1, &err), DCPK_EIO, "File exists", "second");
    CHECK(sink == NULL, "untouched");
    dcpk_folder_abandon(folder);
}

static void folders_inside(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_folder *folder = NULL;

    (void)state;
    CHECK_OK(dcpk_folder_begin(scratch("out"), 0, &folder, &err), "begin");
    CHECK_OK(dcpk_folder_put(folder, "a/x", "1", 1, &err), "new folder");
    CHECK_OK(dcpk_folder_put(folder, "a/.y", "2", 1, &err), "the same folder");
    CHECK_OK(dcpk_folder_put(folder, "b", "3", 1, &err), "beside it");
    CHECK_FAILS(dcpk_folder_put(folder, "b/x", "4", 1, &err), DCPK_EIO, "Not a directory",
                "in a file");
    CHECK_OK(dcpk_folder_publish(folder, &err), "publish");
    CHECK_EQ_STR(scratch_read("out/a/x"), "1", "a/x");
    CHECK_EQ_STR(scratch_read("out/a/.y"), "2", "a/.y");
    folder = NULL;
    CHECK_OK(dcpk_folder_begin(scratch("other"), 0, &folder, &err), "begin");
    CHECK_OK(dcpk_folder_put(folder, "a/x", "1", 1, &err), "new folder");
    dcpk_folder_abandon(folder);
    CHECK(!scratch_has("other.dcpkit-partial"), "all of it is deleted");
}

static void reopens(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_folder *folder = NULL;
    struct dcpk_sink *sink = NULL;

    (void)state;
    CHECK_OK(dcpk_folder_begin(scratch("out"), 0, &folder, &err), "begin");
    CHECK_OK(dcpk_folder_put(folder, "a/f", "0123", 4, &err), "put");
    CHECK_OK(dcpk_folder_reopen(folder, "a/f", 4, &sink, &err), "reopen");
    CHECK_OK(dcpk_sink_write(sink, 1, "xy", 2, &err), "write");
    CHECK_OK(dcpk_sink_close(sink, &err), "close");
    CHECK_FAILS(dcpk_folder_reopen(folder, "g", 4, &sink, &err), DCPK_EIO, "opening file '",
                "no such file");
    CHECK_OK(dcpk_folder_publish(folder, &err), "publish");
    CHECK_EQ_STR(scratch_read("out/a/f"), "0xy3", "what was there stays");
}

static void write_hidden(struct dcpk_folder *folder, const char *text)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_sink *sink = NULL;

    CHECK_OK(dcpk_folder_create_hidden(folder, "f", strlen(text), &sink, &err), "create");
    CHECK_OK(dcpk_sink_write(sink, 0, text, strlen(text), &err), "write");
    CHECK_OK(dcpk_sink_close(sink, &err), "close");
}

static void hides(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_folder *folder = NULL;

    (void)state;
    CHECK_OK(dcpk_folder_begin(scratch("out"), 0, &folder, &err), "begin");
    CHECK_FAILS(dcpk_folder_show(folder, "f", &err), DCPK_EIO, "naming file '", "none is hidden");
    write_hidden(folder, "0123");
    CHECK(!scratch_has("out.dcpkit-partial/f"), "hidden");
    CHECK_OK(dcpk_folder_show(folder, "f", &err), "show");
    CHECK_EQ_STR(scratch_read("out.dcpkit-partial/f"), "0123", "shown");
    write_hidden(folder, "45");
    CHECK_EQ_STR(scratch_read("out.dcpkit-partial/f"), "0123", "what is shown stays");
    CHECK_OK(dcpk_folder_show(folder, "f", &err), "show");
    CHECK_OK(dcpk_folder_publish(folder, &err), "publish");
    CHECK_EQ_STR(scratch_read("out/f"), "45", "replaced");
    CHECK_EQ_INT(unlink(scratch("out/f")), 0, "f");
    CHECK_EQ_INT(rmdir(scratch("out")), 0, "and nothing else");
}

static void abandons(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_folder *folder = NULL;
    struct dcpk_sink *sink = NULL;

    (void)state;
    CHECK_OK(dcpk_folder_begin(scratch("out"), 0, &folder, &err), "begin");
    CHECK_OK(dcpk_folder_put(folder, "f", "1", 1, &err), "put");
    CHECK_OK(dcpk_folder_create(folder, "g", 5, &sink, &err), "create");
    dcpk_sink_abandon(sink);
    dcpk_folder_abandon(folder);
    CHECK(!scratch_has("out") && !scratch_has("out.dcpkit-partial"), "nothing is left");
    dcpk_sink_abandon(NULL);
    dcpk_folder_abandon(NULL);
}

/* What may stand in the way, and what REPLACE does with it. */
static void in_the_way(void **state)
{
    static const struct {
        const char *label;
        const char *in_way; /* a folder with a file "old" in it */
        const char *complaint;
    } cases[] = {
        {"output", "out", "exists"},
        {"partial", "out.dcpkit-partial", "out.dcpkit-partial' is left from a run"},
        {"old", "out.dcpkit-old", "a killed run was replacing '"},
    };
    struct dcpk_error err = DCPK_ERROR_INIT;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dcpk_folder *folder = NULL;
        char file[64];
        make_folder(cases[i].in_way);
        snprintf(file, sizeof file, "%s/old", cases[i].in_way);
        scratch_write(file, "old");
        CHECK_FAILS(dcpk_folder_begin(scratch("out"), 0, &folder, &err), DCPK_EUSAGE,
                    cases[i].complaint, cases[i].label);
        CHECK((err.fixes & DCPK_FIX_REPLACE) != 0, cases[i].label);
        CHECK_EQ_STR(scratch_read(file), "old", "not touched");
        CHECK_OK(dcpk_folder_begin(scratch("out"), DCPK_FOLDER_REPLACE, &folder, &err),
                 cases[i].label);
        if (i == 0)
            CHECK_EQ_STR(scratch_read("out/old"), "old", "stays until the new one is whole");
        CHECK_OK(dcpk_folder_put(folder, "new", "new", 3, &err), cases[i].label);
        CHECK_OK(dcpk_folder_publish(folder, &err), cases[i].label);
        CHECK_EQ_STR(scratch_read("out/new"), "new", cases[i].label);
        CHECK(!scratch_has("out/old") && !scratch_has("out.dcpkit-partial") &&
                  !scratch_has("out.dcpkit-old"),
              cases[i].label);
        CHECK_EQ_INT(unlink(scratch("out/new")), 0, "unlink");
        CHECK_EQ_INT(rmdir(scratch("out")), 0, "rmdir");
    }
}

static void replaces_and_abandons(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_folder *folder = NULL;

    (void)state;
    make_folder("out");
    make_folder("out/deep");
    scratch_write("out/deep/f", "old");
    CHECK_OK(dcpk_folder_begin(scratch("out"), DCPK_FOLDER_REPLACE, &folder, &err), "begin");
    dcpk_folder_abandon(folder);
    CHECK_EQ_STR(scratch_read("out/deep/f"), "old", "abandoned: what was there stays");
    make_folder("out.dcpkit-old"); /* of an earlier killed run, replaced since */
    scratch_write("out.dcpkit-old/f", "older");
    CHECK_OK(dcpk_folder_begin(scratch("out"), DCPK_FOLDER_REPLACE, &folder, &err), "begin");
    CHECK_OK(dcpk_folder_publish(folder, &err), "publish");
    CHECK(scratch_has("out") && !scratch_has("out/deep"), "the whole tree is replaced");
    CHECK(!scratch_has("out.dcpkit-old"), "and deleted");
}

/* A link to a folder is replaced itself, the folder behind it stays. */
static void replaces_links(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_folder *folder = NULL;
    struct stat info;

    (void)state;
    make_folder("precious");
    scratch_write("precious/f", "kept");
    CHECK_EQ_INT(symlink("precious", scratch("out")), 0, "symlink");
    CHECK_FAILS(dcpk_folder_begin(scratch("out"), 0, &folder, &err), DCPK_EUSAGE, "exists", "link");
    CHECK_OK(dcpk_folder_begin(scratch("out"), DCPK_FOLDER_REPLACE, &folder, &err), "begin");
    CHECK_OK(dcpk_folder_publish(folder, &err), "publish");
    CHECK(lstat(scratch("out"), &info) == 0 && S_ISDIR(info.st_mode), "a folder of its own");
    CHECK_EQ_STR(scratch_read("precious/f"), "kept", "not followed");
}

/* Between begin and publish somebody makes the output: it is not ours to replace. */
static void appears_meanwhile(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_folder *folder = NULL;

    (void)state;
    CHECK_OK(dcpk_folder_begin(scratch("out"), 0, &folder, &err), "begin");
    make_folder("out");
    scratch_write("out/f", "theirs");
    CHECK_FAILS(dcpk_folder_publish(folder, &err), DCPK_EUSAGE, "another process has written",
                "publish");
    dcpk_folder_abandon(folder);
    CHECK_EQ_STR(scratch_read("out/f"), "theirs", "stays");
    CHECK(!scratch_has("out.dcpkit-partial"), "abandoned");
}

/* The new folder cannot move in (it is gone): what was there stays, and so does what was taken
 * away. */
static void moved_away(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_folder *folder = NULL;

    (void)state;
    make_folder("out");
    scratch_write("out/f", "old");
    CHECK_OK(dcpk_folder_begin(scratch("out"), DCPK_FOLDER_REPLACE, &folder, &err), "begin");
    CHECK_EQ_INT(rename(scratch("out.dcpkit-partial"), scratch("elsewhere")), 0, "rename");
    CHECK_FAILS(dcpk_folder_publish(folder, &err), DCPK_EIO, "moved it away", "publish");
    dcpk_folder_abandon(folder);
    CHECK_EQ_STR(scratch_read("out/f"), "old", "in its place");
    CHECK(scratch_has("elsewhere"), "not followed");
}

static void parent_is_a_file(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_folder *folder = NULL;

    (void)state;
    scratch_write("file", "x");
    CHECK_FAILS(dcpk_folder_begin(scratch("file/a/out"), 0, &folder, &err), DCPK_EIO,
                "Not a directory", "below a file");
    CHECK_FAILS(dcpk_folder_begin(scratch("file/out"), 0, &folder, &err), DCPK_EIO,
                "Not a directory", "in a file");
}

/* The limit on file sizes stands in for a full disk: both show when the file is made. */
static void no_space(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_folder *folder = NULL;
    struct dcpk_sink *sink = NULL;
    struct rlimit old, small;
    struct dcpk_error replace_err = DCPK_ERROR_INIT;
    dcpk_status st, replace_st;

    (void)state;
    CHECK_OK(dcpk_folder_begin(scratch("out"), 0, &folder, &err), "begin");
    CHECK_FAILS(dcpk_folder_create(folder, "f", UINT64_MAX, &sink, &err), DCPK_EIO,
                "18446744073709551615 bytes: File too large", "no file is that large");
    CHECK_EQ_INT(getrlimit(RLIMIT_FSIZE, &old), 0, "getrlimit");
    small = old;
    small.rlim_cur = 1 << 20;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    st = dcpk_folder_create(folder, "f", (1 << 20) + 1, &sink, &err);
    small.rlim_cur = 4;
    setrlimit(RLIMIT_FSIZE, &small);
    replace_st = dcpk_file_write(scratch("t"), 0, "too long", 8, &replace_err);
    setrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, SIG_DFL);
    CHECK_FAILS(st, DCPK_EIO, "out/f' 1048577 bytes: File too large", "past the limit");
    CHECK(sink == NULL && !scratch_has("out.dcpkit-partial/f"), "no file is left");
    CHECK_EQ_INT(replace_st, DCPK_EIO, "a small file");
    CHECK(strstr(replace_err.text, "writing 4 bytes at byte 4") != NULL, replace_err.text);
    CHECK(!scratch_has("t") && !scratch_has_like(".dcpkit-tmp"), "no small file is left");
    dcpk_folder_abandon(folder);
}

static dcpk_status use(struct dcpk_error *err)
{
    struct dcpk_folder *folder = NULL;
    dcpk_status st;

    st = dcpk_folder_begin(scratch("out"), DCPK_FOLDER_REPLACE, &folder, err);
    if (st != DCPK_OK)
        return st;
    st = dcpk_folder_put(folder, "f", "new", 3, err);
    if (st == DCPK_OK)
        st = dcpk_folder_publish(folder, err);
    if (st != DCPK_OK) {
        dcpk_folder_abandon(folder);
        return st;
    }
    return dcpk_file_write(scratch("t"), 0, "x", 1, err);
}

#define HALF_BYTES ((size_t)64 << 20) /* as much as is flushed until the cache is looked at */

/* How many pages of the file's first half are in the page cache. */
static size_t cached_pages(int fd)
{
    static unsigned char in_core[HALF_BYTES / 4096];
    void *mapped = mmap(NULL, HALF_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    size_t n = 0;

    CHECK(mapped != MAP_FAILED && mincore(mapped, HALF_BYTES, in_core) == 0, "mincore");
    for (size_t i = 0; i < HALF_BYTES / (size_t)sysconf(_SC_PAGESIZE); i++)
        n += in_core[i] & 1;
    munmap(mapped, HALF_BYTES);
    return n;
}

/* Write a file in two halves, the first one synced before the second is flushed; opened to read. */
static int write_halves(const char *name, unsigned flags)
{
    static uint8_t data[1 << 20];
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_folder *folder = NULL;
    struct dcpk_sink *sink = NULL;
    char path[64];
    int fd;

    CHECK_OK(dcpk_folder_begin(scratch(name), flags, &folder, &err), name);
    CHECK_OK(dcpk_folder_create(folder, "f", 2 * HALF_BYTES, &sink, &err), name);
    for (uint64_t at = 0; at < 2 * HALF_BYTES; at += sizeof data) {
        CHECK_OK(dcpk_sink_write(sink, at, data, sizeof data, &err), name);
        if (at + sizeof data == HALF_BYTES)
            CHECK_OK(dcpk_sink_sync(sink, &err), name);
        dcpk_sink_flush(sink, at, sizeof data);
    }
    CHECK_OK(dcpk_sink_close(sink, &err), name);
    CHECK_OK(dcpk_folder_publish(folder, &err), name);
    snprintf(path, sizeof path, "%s/f", name);
    fd = open(scratch(path), O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0, path);
    return fd;
}

static void leaves_the_cache(void **state)
{
    const int kept = write_halves("kept", 0), left = write_halves("left", DCPK_FOLDER_LARGE);
    const size_t n_kept = cached_pages(kept), n_left = cached_pages(left);
    size_t n_stay;

    (void)state;
    posix_fadvise(kept, 0, 0, POSIX_FADV_DONTNEED);
    n_stay = cached_pages(kept);
    close(kept);
    close(left);
    if (n_stay > n_kept / 10)
        skip(); /* a file system, as tmpfs, that lets nothing go */
    CHECK(n_left < n_kept / 10, "only of a large output");
}

/* The same, after which nothing is half made. */
static dcpk_status use_whole(struct dcpk_error *err)
{
    const dcpk_status st = use(err);

    CHECK(!scratch_has("out.dcpkit-partial") && !scratch_has_like(".dcpkit-tmp"), "nothing half");
    return st;
}

static void every_failure(void **state)
{
    (void)state;
    every_alloc_fails(use_whole, 6);
    CHECK_EQ_STR(scratch_read("out/f"), "new", "published");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(publishes),        TEST(relative_path),     TEST(names),
        TEST(folders_inside),   TEST(reopens),           TEST(hides),
        TEST(abandons),         TEST(in_the_way),        TEST(replaces_and_abandons),
        TEST(replaces_links),   TEST(appears_meanwhile), TEST(moved_away),
        TEST(parent_is_a_file), TEST(no_space),          TEST(every_failure),
        TEST(leaves_the_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

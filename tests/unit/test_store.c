/* SPDX-License-Identifier: Apache-2.0 */
/* test_store.c - names that stay in the folder, reads that stay in the file, descriptors that stay
 * few. */
#include "tests/every_alloc.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/alloc.h"
#include "lib/exec/pool.h"
#include "lib/io/store.h"
#include "tests/unit/scratch.h"

#define MANY_FILES 300 /* more than the store keeps open */

static struct dcpk_store *open_scratch(void)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_store *store = NULL;

    CHECK_OK(dcpk_store_open(scratch_root, &store, &err), "open");
    return store;
}

static void opens_folders_only(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_store *store = NULL;

    (void)state;
    scratch_write("file", "x");
    CHECK_FAILS(dcpk_store_open(scratch("none"), &store, &err), DCPK_EIO, "No such file",
                "missing");
    CHECK_FAILS(dcpk_store_open(scratch("file"), &store, &err), DCPK_EIO, "Not a directory",
                "file");
    CHECK(store == NULL, "untouched");
    store = open_scratch();
    CHECK_EQ_STR(dcpk_store_path(store), scratch_root, "path");
    dcpk_store_close(store);
    dcpk_store_close(NULL);
}

enum { OPEN = -1 }; /* the system does not say what is there */

static int look(struct dcpk_store *store, const char *name)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    enum dcpk_path_kind kind;

    return dcpk_store_look(store, name, &kind, &err) == DCPK_OK ? (int)kind : OPEN;
}

static void names(void **state)
{
    static const struct {
        const char *name;
        dcpk_status status;
        const char *complaint;
        int kind;
    } cases[] = {
        {"a", DCPK_OK, "", DCPK_PATH_FILE},
        {"sub/b", DCPK_OK, "", DCPK_PATH_FILE},
        {"./a", DCPK_OK, "", DCPK_PATH_FILE},
        {"..a", DCPK_OK, "", DCPK_PATH_FILE},
        {"link", DCPK_OK, "", DCPK_PATH_FILE},
        {"", DCPK_EFORMAT, "leaves the folder", DCPK_PATH_NOTHING},
        {"/etc/passwd", DCPK_EFORMAT, "leaves the folder", DCPK_PATH_NOTHING},
        {"..", DCPK_EFORMAT, "leaves the folder", DCPK_PATH_NOTHING},
        {"../x", DCPK_EFORMAT, "leaves the folder", DCPK_PATH_NOTHING},
        {"sub/../a", DCPK_EFORMAT, "leaves the folder", DCPK_PATH_NOTHING},
        {"sub//..", DCPK_EFORMAT, "leaves the folder", DCPK_PATH_NOTHING},
        {"sub/..", DCPK_EFORMAT, "leaves the folder", DCPK_PATH_NOTHING},
        {"none", DCPK_EIO, "No such file", DCPK_PATH_NOTHING},
        {"sub", DCPK_EIO, "not a plain file", DCPK_PATH_FOLDER},
        {"folder_link", DCPK_EIO, "not a plain file", DCPK_PATH_FOLDER},
        {"pipe", DCPK_EIO, "not a plain file", DCPK_PATH_OTHER},
        {"dangling", DCPK_EIO, "No such file", DCPK_PATH_NOTHING},
        {"a/b", DCPK_EIO, "No such file", DCPK_PATH_NOTHING},
        {"loop", DCPK_EIO, "levels of symbolic links", OPEN},
    };
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_store *store;

    (void)state;
    CHECK_EQ_INT(mkdir(scratch("sub"), 0777), 0, "mkdir");
    scratch_write("a", "1");
    scratch_write("..a", "1");
    scratch_write("sub/b", "22");
    CHECK_EQ_INT(symlink("sub/b", scratch("link")), 0, "symlink");
    CHECK_EQ_INT(symlink("sub", scratch("folder_link")), 0, "symlink");
    CHECK_EQ_INT(symlink("gone", scratch("dangling")), 0, "symlink");
    CHECK_EQ_INT(symlink("loop", scratch("loop")), 0, "symlink");
    CHECK_EQ_INT(mkfifo(scratch("pipe"), 0666), 0, "mkfifo");
    store = open_scratch();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dcpk_source *source = NULL;
        struct dcpk_source *again = NULL;
        CHECK_EQ_INT(look(store, cases[i].name), cases[i].kind, cases[i].name);
        if (cases[i].status != DCPK_OK) {
            CHECK_FAILS(dcpk_store_find(store, cases[i].name, &source, &err), cases[i].status,
                        cases[i].complaint, cases[i].name);
            CHECK(source == NULL, cases[i].name);
            continue;
        }
        CHECK_OK(dcpk_store_find(store, cases[i].name, &source, &err), cases[i].name);
        CHECK_OK(dcpk_store_find(store, cases[i].name, &again, &err), cases[i].name);
        CHECK(source == again, "the same pointer");
        CHECK_EQ_STR(dcpk_source_name(source), cases[i].name, "name");
        CHECK_EQ_INT(look(store, cases[i].name), DCPK_PATH_FILE, "known");
    }
    dcpk_store_close(store);
}

/* The same reads from a file and from memory. */
static void check_reads(struct dcpk_store *store)
{
    static const struct {
        const char *label;
        uint64_t at;
        size_t n;
        bool ok;
    } cases[] = {
        {"all", 0, 10, true},          {"middle", 3, 4, true},
        {"last", 9, 1, true},          {"none at the end", 10, 0, true},
        {"one past", 10, 1, false},    {"across the end", 5, 6, false},
        {"far", UINT64_MAX, 1, false}, {"wrapping", 1, SIZE_MAX, false},
        {"none past", 11, 0, false},
    };
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_source *source = NULL;
    char *text = NULL;
    size_t n = 0;

    CHECK_OK(dcpk_store_find(store, "ten", &source, &err), "find");
    CHECK_EQ_INT(dcpk_source_bytes(source), 10, "size");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char got[10] = {0};
        if (!cases[i].ok) {
            CHECK_FAILS(dcpk_source_read(source, cases[i].at, got, cases[i].n, &err), DCPK_EFORMAT,
                        "'ten' pass its end at byte 10", cases[i].label);
            continue;
        }
        CHECK_OK(dcpk_source_read(source, cases[i].at, got, cases[i].n, &err), cases[i].label);
        CHECK(memcmp(got, &"0123456789"[cases[i].at], cases[i].n) == 0, cases[i].label);
    }
    CHECK_FAILS(dcpk_source_slurp(source, 9, &text, &n, &err), DCPK_ERANGE,
                "has 10 bytes, the limit is 9", "slurp");
    CHECK_OK(dcpk_source_slurp(source, 10, &text, &n, &err), "slurp");
    CHECK_EQ_STR(text, "0123456789", "slurp");
    CHECK_EQ_INT(n, 10, "slurp");
    dcpk_free(text);
    dcpk_source_advise(source, 0, UINT64_MAX, DCPK_WILL_NEED);
    dcpk_source_advise(source, 5, 5, DCPK_DONE_WITH);
    dcpk_source_advise(source, 11, 5, DCPK_DONE_WITH);
}

static void reads(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_source *source = NULL;
    struct dcpk_store *store;
    char data[] = "0123456789";

    (void)state;
    scratch_write("ten", data);
    store = open_scratch();
    check_reads(store);
    dcpk_store_close(store);
    CHECK_OK(dcpk_store_new_memory("memory", &store, &err), "memory");
    CHECK_OK(dcpk_store_add_memory(store, "ten", data, 10, &err), "add");
    CHECK_FAILS(dcpk_store_add_memory(store, "ten", data, 1, &err), DCPK_EUSAGE, "already",
                "twice");
    memset(data, 'x', 10);
    check_reads(store);
    CHECK_FAILS(dcpk_store_find(store, "none", &source, &err), DCPK_EIO, "'none' in 'memory'",
                "not in memory");
    CHECK(source == NULL, "untouched");
    dcpk_store_close(store);
}

static void file_shrinks(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_source *source = NULL;
    struct dcpk_store *store;
    char got[10];

    (void)state;
    scratch_write("f", "0123456789");
    store = open_scratch();
    CHECK_OK(dcpk_store_find(store, "f", &source, &err), "find");
    CHECK_OK(dcpk_source_read(source, 0, got, 1, &err), "opened");
    CHECK_EQ_INT(truncate(scratch("f"), 4), 0, "truncate");
    CHECK_FAILS(dcpk_source_read(source, 0, got, 10, &err), DCPK_EIO,
                "shrank: it ends at byte 4, had 10", "shrunk");
    CHECK_EQ_INT(unlink(scratch("f")), 0, "unlink");
    CHECK_OK(dcpk_source_read(source, 0, got, 4, &err), "still open");
    dcpk_store_close(store);
    scratch_write("g", "x");
    store = open_scratch();
    CHECK_OK(dcpk_store_find(store, "g", &source, &err), "find");
    CHECK_EQ_INT(unlink(scratch("g")), 0, "unlink");
    CHECK_FAILS(dcpk_source_read(source, 0, got, 1, &err), DCPK_EIO, "opening 'g'", "gone");
    dcpk_store_close(store);
}

static void lists(void **state)
{
    static const char *const want[] = {"B", "a", "folder", "link", "z"};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_store *stores[2];
    char **got = NULL;
    size_t n = 0;

    (void)state;
    scratch_write("z", "");
    scratch_write("a", "");
    scratch_write("B", "");
    CHECK_EQ_INT(mkdir(scratch("folder"), 0777), 0, "mkdir");
    scratch_write("folder/x", "");
    scratch_write("folder/y", "");
    CHECK_EQ_INT(symlink("gone", scratch("link")), 0, "symlink");
    stores[0] = open_scratch();
    CHECK_OK(dcpk_store_new_memory("memory", &stores[1], &err), "memory");
    CHECK_OK(dcpk_store_list(stores[1], &got, &n, &err), "empty");
    CHECK_EQ_INT(n, 0, "empty");
    dcpk_free(got);
    CHECK_OK(dcpk_store_add_memory(stores[1], "folder/x", "", 0, &err), "add");
    CHECK_OK(dcpk_store_add_memory(stores[1], "folder/y", "", 0, &err), "add");
    for (size_t i = 0; i < 5; i++) {
        if (i != 2)
            CHECK_OK(dcpk_store_add_memory(stores[1], want[4 - i], "", 0, &err), "add");
    }
    for (size_t s = 0; s < 2; s++) {
        /* twice: a folder's listing begins anew */
        for (int round = 0; round < 2; round++) {
            CHECK_OK(dcpk_store_list(stores[s], &got, &n, &err), "list");
            CHECK_EQ_INT(n, 5, s == 0 ? "folder" : "memory");
            for (size_t i = 0; i < n; i++)
                CHECK_EQ_STR(got[i], want[i], s == 0 ? "folder" : "memory");
            dcpk_free(got);
        }
        CHECK_OK(dcpk_store_list_in(stores[s], "folder", &got, &n, &err), "in a folder");
        CHECK_EQ_INT(n, 2, "in a folder");
        CHECK_EQ_STR(got[0], "x", "in a folder");
        CHECK_EQ_STR(got[1], "y", "in a folder");
        dcpk_free(got);
        CHECK_FAILS(dcpk_store_list_in(stores[s], "fold", &got, &n, &err), DCPK_EIO, "'fold'",
                    "no folder");
        CHECK_FAILS(dcpk_store_list_in(stores[s], "a", &got, &n, &err), DCPK_EIO, "'a'", "a file");
        CHECK_FAILS(dcpk_store_list_in(stores[s], "folder/..", &got, &n, &err), DCPK_EFORMAT,
                    "leaves", "outside");
        dcpk_store_close(stores[s]);
    }
}

static int n_descriptors(void)
{
    int n = 0;

    for (int fd = 0; fd < 1024; fd++)
        n += dup2(fd, fd) == fd;
    return n;
}

static void make_many(void)
{
    char name[16];

    for (int i = 0; i < MANY_FILES; i++) {
        snprintf(name, sizeof name, "f%d", i);
        scratch_write(name, name);
    }
}

/* Read the first bytes of file i, which are its name. */
static bool read_one(struct dcpk_store *store, int i)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_source *source = NULL;
    char name[16];
    char got[16] = {0};

    snprintf(name, sizeof name, "f%d", i);
    return dcpk_store_find(store, name, &source, &err) == DCPK_OK &&
           dcpk_source_read(source, 0, got, strlen(name), &err) == DCPK_OK &&
           strcmp(got, name) == 0;
}

/* A file that is opened once more is what it was: f0 was closed long ago, the last one was not. */
static void check_changed(struct dcpk_store *store)
{
    const struct timespec times[] = {{0, UTIME_OMIT}, {7, 3}};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_source *source = NULL;
    char got[2];

    CHECK_OK(dcpk_store_find(store, "f0", &source, &err), "find");
    CHECK_EQ_INT(utimensat(AT_FDCWD, scratch("f0"), times, 0), 0, "written to");
    CHECK_FAILS(dcpk_source_read(source, 0, got, 2, &err), DCPK_EIO, "'f0' in '", "written to");
    scratch_write("new", "f1");
    CHECK_EQ_INT(rename(scratch("new"), scratch("f1")), 0, "replaced");
    CHECK_OK(dcpk_store_find(store, "f1", &source, &err), "find");
    CHECK_FAILS(dcpk_source_read(source, 0, got, 2, &err), DCPK_EIO, "has changed since",
                "replaced");
    CHECK(read_one(store, MANY_FILES - 1), "what is open stays open");
    scratch_write("late", "abc");
    CHECK_OK(dcpk_store_find(store, "late", &source, &err), "find");
    scratch_write("late", "abcd");
    CHECK_FAILS(dcpk_source_read(source, 0, got, 2, &err), DCPK_EIO, "has changed since", "grew");
}

static void descriptors_are_bounded(void **state)
{
    struct dcpk_store *store;
    const int before = n_descriptors();

    (void)state;
    make_many();
    store = open_scratch();
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < MANY_FILES; i++)
            CHECK(read_one(store, i), "read");
    }
    CHECK_EQ_INT(n_descriptors(), before + 1 + 256, "the folder's and 256");
    check_changed(store);
    dcpk_store_close(store);
    CHECK_EQ_INT(n_descriptors(), before, "all closed");
}

static dcpk_status read_task(void *context, int worker, uint64_t i, struct dcpk_error *err)
{
    const int file = (int)(i * 7919 % MANY_FILES); /* a prime: neighbours in time lie apart */

    (void)worker;
    return read_one(context, file) ? DCPK_OK : dcpk_fail(err, DCPK_EIO, "file f%d", file);
}

/* Eight threads share what is left of the process's descriptors: three. */
static void threads_share_few_descriptors(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct rlimit old, few;
    struct dcpk_store *store;
    dcpk_status st;
    int top;

    (void)state;
    make_many();
    store = open_scratch();
    top = dup(0); /* the lowest free one */
    close(top);
    CHECK_EQ_INT(getrlimit(RLIMIT_NOFILE, &old), 0, "getrlimit");
    few = old;
    few.rlim_cur = (rlim_t)top + 3;
    CHECK_EQ_INT(setrlimit(RLIMIT_NOFILE, &few), 0, "setrlimit");
    st = dcpk_pool_run(8, 16000, read_task, store, &err);
    setrlimit(RLIMIT_NOFILE, &old);
    CHECK_OK(st, "each thread read what it asked for");
    dcpk_store_close(store);
}

static dcpk_status use(struct dcpk_error *err)
{
    struct dcpk_store *store = NULL;
    struct dcpk_source *source = NULL;
    char **list = NULL;
    char *text = NULL;
    size_t n;
    dcpk_status st;

    st = dcpk_store_open(scratch_root, &store, err);
    if (st == DCPK_OK)
        st = dcpk_store_list(store, &list, &n, err);
    if (st == DCPK_OK)
        st = dcpk_store_find(store, "f", &source, err);
    if (st == DCPK_OK)
        st = dcpk_source_slurp(source, 100, &text, &n, err);
    dcpk_free(list);
    dcpk_free(text);
    dcpk_store_close(store);
    if (st == DCPK_OK)
        st = dcpk_store_new_memory("memory", &store, err);
    else
        return st;
    if (st == DCPK_OK) {
        st = dcpk_store_add_memory(store, "f", "x", 1, err);
        dcpk_store_close(store);
    }
    return st;
}

static void every_failure(void **state)
{
    const int before = n_descriptors();

    (void)state;
    scratch_write("f", "x");
    every_alloc_fails(use, 8);
    CHECK_EQ_INT(n_descriptors(), before, "no descriptor is lost");
}

/* Ranges of one file: each source is its own bytes, whatever lies around them. */
static void ranges(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_store *store = NULL;
    struct dcpk_source *source = NULL, *again = NULL;
    char **list = NULL;
    char text[8] = {0};
    size_t n;
    int fd;

    (void)state;
    scratch_write("pack", "..abcdef..gh");
    fd = open(scratch("pack"), O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0, "open");
    CHECK_OK(dcpk_store_new_ranges("pack:run", fd, &store, &err), "new");
    CHECK_OK(dcpk_store_add_range(store, "d/letters", 2, 6, &err), "add");
    CHECK_OK(dcpk_store_add_range(store, "d/last", 10, 2, &err), "add at the end");
    CHECK_OK(dcpk_store_add_range(store, "cut", 10, 4, &err), "add past the end");
    CHECK_FAILS(dcpk_store_add_range(store, "cut", 0, 1, &err), DCPK_EUSAGE, "already", "twice");
    CHECK_EQ_INT(look(store, "d/last"), DCPK_PATH_FILE, "a file");
    CHECK_EQ_INT(look(store, "d"), DCPK_PATH_NOTHING, "a folder");
    CHECK_OK(dcpk_store_find(store, "d/letters", &source, &err), "find");
    CHECK_OK(dcpk_store_find(store, "d/letters", &again, &err), "find again");
    CHECK(source == again, "one source");
    CHECK_EQ_INT(dcpk_source_bytes(source), 6, "size");
    CHECK_OK(dcpk_source_read(source, 1, text, 5, &err), "read");
    CHECK_EQ_STR(text, "bcdef", "its bytes");
    CHECK_FAILS(dcpk_source_read(source, 1, text, 6, &err), DCPK_EFORMAT, "pass its end",
                "too far");
    CHECK_OK(dcpk_store_find(store, "cut", &source, &err), "find");
    CHECK_FAILS(dcpk_source_read(source, 0, text, 4, &err), DCPK_EIO, "shrank", "file too short");
    CHECK_FAILS(dcpk_store_find(store, "none", &source, &err), DCPK_EIO, "'none' in", "unknown");
    dcpk_source_advise(source, 0, 4, DCPK_WILL_NEED);
    CHECK_OK(dcpk_store_list_in(store, "d", &list, &n, &err), "list");
    CHECK_EQ_INT(n, 2, "list");
    CHECK_EQ_STR(list[0], "last", "list");
    dcpk_free(list);
    CHECK(dcpk_store_note(store) == NULL, "no note");
    CHECK_OK(dcpk_store_set_note(store, "first", &err), "note");
    CHECK_OK(dcpk_store_set_note(store, "second", &err), "note");
    CHECK_EQ_STR(dcpk_store_note(store), "second", "note");
    dcpk_store_close(store);
    CHECK(fcntl(fd, F_GETFD) == -1, "the descriptor is closed with the store");
}

/* The time of change in ns, of files alone; the sources found so far are stepped through. */
static void stamps(void **state)
{
    const struct timespec times[] = {{7, 3}, {1000, 5}};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_source *a, *b, *memory;
    struct dcpk_store *store;
    uint64_t stamp;

    (void)state;
    scratch_write("a", "x");
    scratch_write("b", "y");
    CHECK_EQ_INT(utimensat(AT_FDCWD, scratch("a"), times, 0), 0, "utimensat");
    store = open_scratch();
    CHECK(dcpk_store_next(store, NULL) == NULL, "none yet");
    CHECK_OK(dcpk_store_find(store, "a", &a, &err), "a");
    CHECK_OK(dcpk_source_stamp(a, &stamp, &err), "a");
    CHECK_EQ_INT(stamp, INT64_C(1000000000005), "of change, not of reading");
    CHECK(dcpk_store_next(store, NULL) == a && dcpk_store_next(store, a) == NULL, "one");
    CHECK_OK(dcpk_store_find(store, "b", &b, &err), "b");
    CHECK(dcpk_store_next(store, dcpk_store_next(store, NULL)) != NULL, "two");
    CHECK_EQ_INT(unlink(scratch("b")), 0, "unlink");
    CHECK_FAILS(dcpk_source_stamp(b, &stamp, &err), DCPK_EIO, "'b' in '", "gone");
    dcpk_store_close(store);
    CHECK_OK(dcpk_store_new_memory("memory", &store, &err), "memory");
    CHECK_OK(dcpk_store_add_memory(store, "m", "z", 1, &err), "m");
    CHECK_OK(dcpk_store_find(store, "m", &memory, &err), "m");
    CHECK_OK(dcpk_source_stamp(memory, &stamp, &err), "m");
    CHECK_EQ_INT(stamp, 0, "memory");
    dcpk_store_close(store);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(opens_folders_only),
        TEST(names),
        TEST(reads),
        TEST(file_shrinks),
        TEST(ranges),
        TEST(lists),
        TEST(stamps),
        TEST(descriptors_are_bounded),
        TEST(threads_share_few_descriptors),
        TEST(every_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

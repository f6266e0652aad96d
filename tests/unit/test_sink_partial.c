/* SPDX-License-Identifier: Apache-2.0 */
/* test_sink_partial.c - one run at a time in a partial folder; what stays of it, and is gone on
 * with. */
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "tests/unit/out_folder.h"

#define PARTIAL "out.dcpkit-partial"
#define JOURNAL PARTIAL "/.dcpkit-journal"

static void note(struct dcpk_folder *folder, uint64_t at, const char *text)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    CHECK_OK(dcpk_folder_write_journal(folder, at, text, strlen(text), &err), text);
}

/* A folder that a run left: a file, one in a folder, and a journal. */
static void leave(void)
{
    struct dcpk_folder *folder = begin(0, "leave");

    put(folder, "f", "0123456789");
    put(folder, "a/g", "in a folder");
    note(folder, 0, "what was done");
    CHECK(dcpk_folder_keep(folder), "keep");
    dcpk_folder_abandon(folder);
    CHECK_EQ_STR(scratch_read(JOURNAL), "what was done", "kept");
}

/* What an earlier run left is this one's. */
static void take(struct dcpk_folder *folder, const char *name, uint64_t n_bytes)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    bool taken = false;

    CHECK_OK(dcpk_folder_take(folder, name, n_bytes, &taken, &err), name);
    CHECK(taken, name);
}

static void resumes(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_bytes journal = {0};
    struct dcpk_sink *sink = NULL;
    struct dcpk_folder *folder;
    char read[4];

    (void)state;
    leave();
    folder = begin(DCPK_FOLDER_RESUME, "resume");
    CHECK(dcpk_folder_is_resumed(folder), "there was a journal");
    CHECK_OK(dcpk_folder_read_journal(folder, UINT64_MAX, &journal, &err), "read");
    CHECK_EQ_INT(journal.n_bytes, 13, "journal");
    CHECK(memcmp(journal.data, "what was done", 13) == 0, "journal");
    dcpk_bytes_release(&journal);
    take(folder, "f", 10);
    CHECK_OK(dcpk_folder_settle(folder, &err), "settle");
    CHECK(!scratch_has(PARTIAL "/a") && scratch_has(JOURNAL), "what was not taken goes");
    CHECK_FAILS(dcpk_folder_create(folder, "f", 8, &sink, &err), DCPK_EIO, "File exists", "taken");
    CHECK_FAILS(dcpk_folder_reopen(folder, "f", 8, &sink, &err), DCPK_EIO, "10 bytes, not 8",
                "another length");
    CHECK_OK(dcpk_folder_reopen(folder, "f", 10, &sink, &err), "what is there is opened");
    CHECK_OK(dcpk_sink_write(sink, 2, "xy", 2, &err), "write");
    CHECK_OK(dcpk_sink_read(sink, 1, read, 4, &err), "read");
    CHECK(memcmp(read, "1xy4", 4) == 0, "read");
    CHECK_OK(dcpk_sink_sync(sink, &err), "sync");
    CHECK_OK(dcpk_sink_close(sink, &err), "close");
    put(folder, "a/g", "shorter");
    put(folder, "new", "new");
    note(folder, 5, "is done here");
    CHECK_EQ_STR(scratch_read(JOURNAL), "what is done here", "journal");
    CHECK_OK(dcpk_folder_publish(folder, &err), "publish");
    CHECK_EQ_STR(scratch_read("out/f"), "01xy456789", "f");
    CHECK_EQ_STR(scratch_read("out/a/g"), "shorter", "a/g");
    CHECK_EQ_STR(scratch_read("out/new"), "new", "new");
    CHECK(!scratch_has("out/.dcpkit-journal") && !scratch_has(PARTIAL), "no journal is left");
}

/* What was resumed stays, whatever happens; what was not goes. */
static void stays(void **state)
{
    struct dcpk_folder *folder;

    (void)state;
    leave();
    dcpk_folder_abandon(begin(DCPK_FOLDER_RESUME, "resume"));
    CHECK(scratch_has(PARTIAL "/f") && scratch_has(JOURNAL), "not touched");
    folder = begin(DCPK_FOLDER_REPLACE, "replace");
    CHECK(!dcpk_folder_is_resumed(folder), "begun anew");
    CHECK(!scratch_has(PARTIAL "/f") && !scratch_has(PARTIAL "/a"), "emptied");
    CHECK_EQ_STR(scratch_read(JOURNAL), "", "emptied");
    dcpk_folder_abandon(folder);
    CHECK(!scratch_has(PARTIAL), "deleted");
}

/* A run that was killed before it had a file to write leaves a journal alone: another one need not
 * be told to delete it. One that goes on, and one that has written, are in the way. */
static void bare_is_swept(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_folder *folder = begin(0, "killed"), *other;

    (void)state;
    note(folder, 0, "a head");
    CHECK_FAILS(dcpk_folder_begin(scratch("out"), 0, &other, &err), DCPK_EUSAGE, "is left from",
                "it goes on");
    CHECK_EQ_STR(scratch_read(JOURNAL), "a head", "it goes on");
    CHECK(dcpk_folder_keep(folder), "killed");
    dcpk_folder_abandon(folder);
    folder = begin(0, "swept");
    CHECK(!dcpk_folder_is_resumed(folder), "swept");
    CHECK_EQ_STR(scratch_read(JOURNAL), "", "swept");
    dcpk_folder_abandon(folder);
    leave();
    CHECK_FAILS(dcpk_folder_begin(scratch("out"), 0, &other, &err), DCPK_EUSAGE, "is left from",
                "it has written");
    CHECK(scratch_has(PARTIAL "/f") && scratch_has(JOURNAL), "it has written");
}

/* Nothing in the journal, or no journal: what the files hold is not known. */
static void begins_anew(void **state)
{
    static const char *const labels[] = {"nothing there", "empty journal", "no journal"};
    struct dcpk_error err = DCPK_ERROR_INIT;

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct dcpk_folder *folder;

        if (i > 0) {
            leave();
            CHECK_EQ_INT(truncate(scratch(JOURNAL), 0), 0, labels[i]);
        }
        if (i > 1)
            CHECK_EQ_INT(unlink(scratch(JOURNAL)), 0, labels[i]);
        folder = begin(DCPK_FOLDER_RESUME, labels[i]);
        CHECK(!dcpk_folder_is_resumed(folder), labels[i]);
        CHECK(!scratch_has(PARTIAL "/f") && !scratch_has(PARTIAL "/a"), labels[i]);
        put(folder, "f", "anew");
        CHECK_FAILS(dcpk_folder_put(folder, "f", "twice", 5, &err), DCPK_EIO, "File exists",
                    labels[i]);
        dcpk_folder_abandon(folder);
        CHECK(!scratch_has(PARTIAL), labels[i]);
    }
}

static void one_at_a_time(void **state)
{
    static const unsigned flags[] = {DCPK_FOLDER_RESUME, DCPK_FOLDER_REPLACE,
                                     DCPK_FOLDER_RESUME | DCPK_FOLDER_REPLACE};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_folder *first = begin(0, "first"), *second = NULL;

    (void)state;
    put(first, "f", "first's");
    note(first, 0, "first's");
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        CHECK_FAILS(dcpk_folder_begin(scratch("out"), flags[i], &second, &err), DCPK_EUSAGE,
                    "another process is writing", "second");
    CHECK_FAILS(dcpk_folder_begin(scratch("out"), 0, &second, &err), DCPK_EUSAGE, "is left from",
                "neither");
    CHECK_EQ_INT(err.fixes, DCPK_FIX_REPLACE | DCPK_FIX_RESUME, "neither");
    CHECK_EQ_STR(scratch_read(PARTIAL "/f"), "first's", "not touched");
    CHECK_EQ_STR(scratch_read(JOURNAL), "first's", "not touched");
    CHECK(dcpk_folder_keep(first), "keep");
    dcpk_folder_abandon(first);
    second = begin(DCPK_FOLDER_RESUME, "second");
    CHECK(dcpk_folder_is_resumed(second), "second");
    CHECK_OK(dcpk_folder_publish(second, &err), "publish");
}

/* File systems that cannot lock folders lock the journal. */
static void locked_journal(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_folder *folder = NULL;
    int fd;

    (void)state;
    leave();
    fd = open(scratch(JOURNAL), O_RDWR);
    CHECK(fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0, "lock");
    CHECK_FAILS(dcpk_folder_begin(scratch("out"), DCPK_FOLDER_REPLACE, &folder, &err), DCPK_EUSAGE,
                "another process is writing", "locked");
    CHECK_EQ_STR(scratch_read(PARTIAL "/f"), "0123456789", "not touched");
    close(fd);
    dcpk_folder_abandon(begin(DCPK_FOLDER_REPLACE, "free again"));
}

/* A partial archive, a link to a folder: not what a folder is built in. */
static void other_kinds(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_folder *folder = NULL;

    (void)state;
    CHECK_EQ_INT(mkdir(scratch("precious"), 0777), 0, "mkdir");
    scratch_write("precious/f", "kept");
    CHECK_EQ_INT(symlink("precious", scratch(PARTIAL)), 0, "symlink");
    CHECK_FAILS(dcpk_folder_begin(scratch("out"), DCPK_FOLDER_RESUME, &folder, &err), DCPK_EIO,
                "opening '", "link");
    dcpk_folder_abandon(begin(DCPK_FOLDER_REPLACE, "link"));
    CHECK_EQ_STR(scratch_read("precious/f"), "kept", "not followed");
    scratch_write(PARTIAL, "a file");
    CHECK_FAILS(dcpk_folder_begin(scratch("out"), DCPK_FOLDER_RESUME, &folder, &err), DCPK_EIO,
                "opening '", "file");
    dcpk_folder_abandon(begin(DCPK_FOLDER_REPLACE, "file"));
    CHECK(!scratch_has(PARTIAL), "deleted");
}

/* The output came to be meanwhile: what was done is not lost. */
static void appears_meanwhile(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_folder *folder;

    (void)state;
    leave();
    folder = begin(DCPK_FOLDER_RESUME, "resume");
    CHECK_EQ_INT(mkdir(scratch("out"), 0777), 0, "mkdir");
    take(folder, "f", 10);
    CHECK_FAILS(dcpk_folder_publish(folder, &err), DCPK_EUSAGE, "another process has written",
                "publish");
    CHECK(dcpk_folder_keep(folder), "keep");
    dcpk_folder_abandon(folder);
    CHECK_EQ_STR(scratch_read(JOURNAL), "what was done", "kept");
    CHECK_FAILS(dcpk_folder_begin(scratch("out"), DCPK_FOLDER_RESUME, &folder, &err), DCPK_EUSAGE,
                "exists", "is left from");
    CHECK_EQ_INT(rmdir(scratch("out")), 0, "rmdir");
    folder = begin(DCPK_FOLDER_RESUME, "again");
    take(folder, "f", 10);
    CHECK_OK(dcpk_folder_publish(folder, &err), "publish");
    CHECK_EQ_STR(scratch_read("out/f"), "0123456789", "published");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(resumes),       TEST(stays),          TEST(bare_is_swept), TEST(begins_anew),
        TEST(one_at_a_time), TEST(locked_journal), TEST(other_kinds),   TEST(appears_meanwhile),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

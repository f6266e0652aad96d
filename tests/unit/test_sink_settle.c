/* SPDX-License-Identifier: Apache-2.0 */
/* test_sink_settle.c - another program has a hand in a partial folder: what is published is what
 * was written, and nothing elsewhere changes. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/out_folder.h"

#define PARTIAL "out.dcpkit-partial"
#define JOURNAL PARTIAL "/.dcpkit-journal"

/* Files that no link may lead to. */
static void make_victim(void)
{
    CHECK_EQ_INT(mkdir(scratch("victim"), 0777), 0, "mkdir");
    scratch_write("victim/f", "precious");
    scratch_write("victim/g", "precious");
}

static void check_victim(const char *label)
{
    struct stat info;

    CHECK_EQ_STR(scratch_read("victim/f"), "precious", label);
    CHECK_EQ_STR(scratch_read("victim/g"), "precious", label);
    CHECK(stat(scratch("victim"), &info) == 0 && info.st_nlink == 2, label); /* no folder more */
}

/* ---- what is not ours ---- */

static void strays_go(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_folder *folder = begin(0, "begin");

    (void)state;
    make_victim();
    put(folder, "f", "ours");
    put(folder, "a/f", "ours too");
    scratch_write(PARTIAL "/stray", "theirs");
    scratch_write(PARTIAL "/a/stray", "theirs");
    CHECK_EQ_INT(mkdir(scratch(PARTIAL "/b"), 0777), 0, "mkdir");
    CHECK_EQ_INT(mkdir(scratch(PARTIAL "/b/c"), 0777), 0, "mkdir");
    scratch_write(PARTIAL "/b/c/stray", "theirs");
    CHECK_EQ_INT(symlink("../victim", scratch(PARTIAL "/link")), 0, "symlink");
    CHECK_EQ_INT(symlink("../../victim", scratch(PARTIAL "/b/link")), 0, "symlink");
    CHECK_EQ_INT(mkfifo(scratch(PARTIAL "/a/pipe"), 0666), 0, "mkfifo");
    CHECK_OK(dcpk_folder_publish(folder, &err), "publish");
    check_victim("strays");
    CHECK_EQ_STR(scratch_read("out/f"), "ours", "f");
    CHECK_EQ_STR(scratch_read("out/a/f"), "ours too", "a/f");
    CHECK_EQ_INT(unlink(scratch("out/f")) | unlink(scratch("out/a/f")), 0, "unlink");
    CHECK_EQ_INT(rmdir(scratch("out/a")) | rmdir(scratch("out")), 0, "and nothing else");
}

/* Something stands where a file or a folder is about to be made. */
static void in_the_place(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_folder *folder = begin(0, "begin");

    (void)state;
    make_victim();
    CHECK_EQ_INT(symlink("../victim", scratch(PARTIAL "/a")), 0, "symlink");
    CHECK_EQ_INT(symlink("../victim/f", scratch(PARTIAL "/f")), 0, "symlink");
    CHECK_EQ_INT(mkfifo(scratch(PARTIAL "/p"), 0666), 0, "mkfifo");
    CHECK_FAILS(dcpk_folder_put(folder, "a/f", "ours", 4, &err), DCPK_EIO, "a/f", "a folder");
    CHECK_FAILS(dcpk_folder_put(folder, "a/new", "ours", 4, &err), DCPK_EIO, "a/new", "a new file");
    CHECK_FAILS(dcpk_folder_put(folder, "f", "ours", 4, &err), DCPK_EIO, "'", "a file");
    CHECK_FAILS(dcpk_folder_put(folder, "p", "ours", 4, &err), DCPK_EIO, "'", "a pipe");
    dcpk_folder_abandon(folder);
    check_victim("in the place");
    CHECK(!scratch_has(PARTIAL), "deleted");
}

/* In a shared folder files may be there before: plain ones of this user's alone. */
static void shared(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_folder *folder = begin(DCPK_FOLDER_SHARED, "begin");

    (void)state;
    make_victim();
    CHECK_EQ_INT(link(scratch("victim/f"), scratch(PARTIAL "/f")), 0, "link");
    CHECK_EQ_INT(mkfifo(scratch(PARTIAL "/p"), 0666), 0, "mkfifo");
    CHECK_FAILS(dcpk_folder_put(folder, "f", "ours", 4, &err), DCPK_EIO, "another program",
                "a hard link");
    CHECK_FAILS(dcpk_folder_put(folder, "p", "ours", 4, &err), DCPK_EIO, "another program",
                "a pipe");
    dcpk_folder_abandon(folder);
    check_victim("shared");
}

static void kept_names(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_folder *folder = begin(0, "begin");

    (void)state;
    CHECK_FAILS(dcpk_folder_put(folder, ".dcpkit-journal", "x", 1, &err), DCPK_EFORMAT,
                "reserves for its own files", "a file");
    CHECK_FAILS(dcpk_folder_put(folder, ".dcpkit-journal/x", "x", 1, &err), DCPK_EFORMAT,
                "reserves for its own files", "a folder");
    put(folder, "a/.dcpkit-journal", "x");
    CHECK_OK(dcpk_folder_publish(folder, &err), "elsewhere it is a name as any other");
    CHECK_EQ_STR(scratch_read("out/a/.dcpkit-journal"), "x", "published");
}

/* ---- what was ours ---- */

enum meddling { NONE, DELETED, REPLACED, LINKED, CUT, LONGER, MOVED_AWAY, FOLDER_LINKED };

static void meddle(enum meddling what)
{
    switch (what) {
    case NONE:
        return;
    case DELETED:
        CHECK_EQ_INT(unlink(scratch(PARTIAL "/a/f")), 0, "unlink");
        return;
    case REPLACED:
        scratch_write("other", "0123456789");
        CHECK_EQ_INT(rename(scratch("other"), scratch(PARTIAL "/a/f")), 0, "rename");
        return;
    case LINKED: /* to a file of the same length */
        scratch_write("other", "0123456789");
        CHECK_EQ_INT(unlink(scratch(PARTIAL "/a/f")), 0, "unlink");
        CHECK_EQ_INT(symlink("../../other", scratch(PARTIAL "/a/f")), 0, "symlink");
        return;
    case CUT:
        CHECK_EQ_INT(truncate(scratch(PARTIAL "/a/f"), 9), 0, "truncate");
        return;
    case LONGER:
        CHECK_EQ_INT(truncate(scratch(PARTIAL "/a/f"), 11), 0, "truncate");
        return;
    case MOVED_AWAY:
        CHECK_EQ_INT(rename(scratch(PARTIAL), scratch("elsewhere")), 0, "rename");
        CHECK_EQ_INT(symlink("victim", scratch(PARTIAL)), 0, "symlink");
        return;
    case FOLDER_LINKED:
        CHECK_EQ_INT(rename(scratch(PARTIAL "/a"), scratch("elsewhere")), 0, "rename");
        CHECK_EQ_INT(symlink("../elsewhere", scratch(PARTIAL "/a")), 0, "symlink");
        return;
    }
}

static const struct {
    const char *label;
    enum meddling what;
    const char *complaint;
} meddlings[] = {
    {"deleted", DELETED, "a/f' is gone: another program has deleted it"},
    {"replaced", REPLACED, "a/f' is not the file that was written"},
    {"a link", LINKED, "a/f' is not the file that was written"},
    {"cut", CUT, "a/f' has 9 bytes, and 10 were written"},
    {"longer", LONGER, "a/f' has 11 bytes, and 10 were written"},
    {"moved away", MOVED_AWAY, "moved it away"},
    {"in another folder", FOLDER_LINKED, "/a'"},
};

static void changed_files(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof meddlings / sizeof *meddlings; i++) {
        const char *label = meddlings[i].label;
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_folder *folder;
        bool is_link;

        make_victim();
        folder = begin(0, label);
        put(folder, "b", "another");
        put(folder, "a/f", "0123456789");
        put(folder, "a/g", "another");
        meddle(meddlings[i].what);
        CHECK_FAILS(dcpk_folder_publish(folder, &err), DCPK_EIO, meddlings[i].complaint, label);
        CHECK(!scratch_has("out"), label);
        dcpk_folder_abandon(folder);
        check_victim(label);
        is_link = meddlings[i].what == MOVED_AWAY;
        CHECK_EQ_INT(scratch_has(PARTIAL), is_link, label);
        CHECK(!is_link || scratch_has("elsewhere/a/f"), "what was moved away stays");
        (void)unlink(scratch(PARTIAL));
        (void)unlink(scratch("other"));
        if (scratch_has("elsewhere"))
            scratch_clean("elsewhere");
        scratch_clean("victim");
    }
}

/* Cut short while it is written: the bytes behind the cut would make it long again. */
static void cut_while_written(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_folder *folder = begin(0, "begin");
    struct dcpk_sink *sink = NULL;

    (void)state;
    CHECK_OK(dcpk_folder_create(folder, "f", 10, &sink, &err), "create");
    CHECK_OK(dcpk_sink_write(sink, 0, "01234", 5, &err), "front");
    CHECK_EQ_INT(truncate(scratch(PARTIAL "/f"), 2), 0, "truncate");
    CHECK_FAILS(dcpk_sink_write(sink, 5, "56789", 5, &err), DCPK_EIO, "was cut to 2 bytes", "back");
    dcpk_sink_abandon(sink);
    dcpk_folder_abandon(folder);
}

static void reopens_its_own(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_folder *folder = begin(0, "begin");
    struct dcpk_sink *sink = NULL;

    (void)state;
    make_victim();
    scratch_write("another", "another!");
    put(folder, "f", "01234567");
    CHECK_EQ_INT(unlink(scratch(PARTIAL "/f")), 0, "unlink");
    CHECK_EQ_INT(symlink("../victim/f", scratch(PARTIAL "/f")), 0, "symlink");
    CHECK_FAILS(dcpk_folder_reopen(folder, "f", 8, &sink, &err), DCPK_EIO, "opening file",
                "a link");
    CHECK_EQ_INT(unlink(scratch(PARTIAL "/f")), 0, "unlink");
    /* there before the file was, so that it does not have its inode */
    CHECK_EQ_INT(rename(scratch("another"), scratch(PARTIAL "/f")), 0, "rename");
    CHECK_FAILS(dcpk_folder_reopen(folder, "f", 8, &sink, &err), DCPK_EIO,
                "not the file that was written", "another");
    CHECK_EQ_INT(unlink(scratch(PARTIAL "/f")), 0, "unlink");
    CHECK_EQ_INT(mkfifo(scratch(PARTIAL "/f"), 0666), 0, "mkfifo");
    CHECK_FAILS(dcpk_folder_reopen(folder, "f", 8, &sink, &err), DCPK_EIO,
                "not the file that was written", "a pipe does not wait");
    dcpk_folder_abandon(folder);
    check_victim("reopen");
}

/* ---- what an earlier run left ---- */

/* A partial folder with a journal, a file and one in a folder. */
static void leave(void)
{
    struct dcpk_folder *folder = begin(0, "leave");
    struct dcpk_error err = DCPK_ERROR_INIT;

    put(folder, "f", "precious");
    put(folder, "a/g", "precious");
    CHECK_OK(dcpk_folder_write_journal(folder, 0, "done", 4, &err), "journal");
    CHECK(dcpk_folder_keep(folder), "keep");
    dcpk_folder_abandon(folder);
}

static void check_not_taken(const char *name, uint64_t n_bytes, const char *label)
{
    struct dcpk_folder *folder = begin(DCPK_FOLDER_RESUME, label);
    struct dcpk_error err = DCPK_ERROR_INIT;
    bool taken = true;

    CHECK_OK(dcpk_folder_take(folder, name, n_bytes, &taken, &err), label);
    CHECK(!taken, label);
    CHECK_OK(dcpk_folder_settle(folder, &err), label);
    check_victim(label);
    put(folder, name, "made anew");
    CHECK_OK(dcpk_folder_publish(folder, &err), label);
    check_victim(label);
    scratch_clean("out");
}

static void takes_its_own(void **state)
{
    (void)state;
    make_victim();
    leave();
    check_not_taken("f", 9, "another length");
    leave();
    CHECK_EQ_INT(unlink(scratch(PARTIAL "/f")), 0, "unlink");
    CHECK_EQ_INT(symlink("../victim/f", scratch(PARTIAL "/f")), 0, "symlink");
    check_not_taken("f", 8, "a link");
    leave();
    CHECK_EQ_INT(unlink(scratch(PARTIAL "/f")), 0, "unlink");
    CHECK_EQ_INT(link(scratch("victim/f"), scratch(PARTIAL "/f")), 0, "link");
    check_not_taken("f", 8, "a hard link");
    leave();
    CHECK_EQ_INT(unlink(scratch(PARTIAL "/f")), 0, "unlink");
    CHECK_EQ_INT(mkfifo(scratch(PARTIAL "/f"), 0666), 0, "mkfifo");
    check_not_taken("f", 0, "a pipe");
    leave();
    scratch_clean(PARTIAL "/a");
    CHECK_EQ_INT(symlink("../victim", scratch(PARTIAL "/a")), 0, "symlink");
    check_not_taken("a/g", 8, "a link to a folder");
    leave();
    check_not_taken("a/h", 0, "nothing");
}

/* Begins anew, for what is not to be resumed. */
static void check_refused(const char *label)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_folder *folder = NULL;

    CHECK_FAILS(dcpk_folder_begin(scratch("out"), DCPK_FOLDER_RESUME, &folder, &err), DCPK_EUSAGE,
                "this user", label);
    check_victim(label);
    folder = begin(DCPK_FOLDER_REPLACE, label);
    CHECK(!scratch_has(PARTIAL "/f"), label);
    put(folder, "f", "anew");
    CHECK_OK(dcpk_folder_publish(folder, &err), label);
    CHECK_EQ_STR(scratch_read("out/f"), "anew", label);
    check_victim(label);
    scratch_clean("out");
}

static void journals_of_others(void **state)
{
    (void)state;
    make_victim();
    leave();
    CHECK_EQ_INT(unlink(scratch(JOURNAL)), 0, "unlink");
    CHECK_EQ_INT(link(scratch("victim/f"), scratch(JOURNAL)), 0, "link");
    check_refused("a hard link as journal");
    leave();
    CHECK_EQ_INT(unlink(scratch(JOURNAL)), 0, "unlink");
    CHECK_EQ_INT(symlink("../victim/f", scratch(JOURNAL)), 0, "symlink");
    check_refused("a link as journal");
    leave();
    CHECK_EQ_INT(unlink(scratch(JOURNAL)), 0, "unlink");
    CHECK_EQ_INT(mkfifo(scratch(JOURNAL), 0666), 0, "mkfifo");
    check_refused("a pipe as journal");
}

/* Only root can make a folder another's. */
static void another_users(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    make_victim();
    leave();
    CHECK_EQ_INT(chown(scratch(PARTIAL), 12345, 12345), 0, "chown");
    check_refused("another user's folder");
    leave();
    CHECK_EQ_INT(chown(scratch(JOURNAL), 12345, 12345), 0, "chown");
    check_refused("another user's journal");
    leave();
    CHECK_EQ_INT(chown(scratch(PARTIAL "/f"), 12345, 12345), 0, "chown");
    check_not_taken("f", 8, "another user's file");
}

/* A partial archive that is a further name of another file. */
static void archives_of_others(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_folder *folder = NULL;

    (void)state;
    make_victim();
    CHECK_EQ_INT(link(scratch("victim/f"), scratch("out.tar.dcpkit-partial")), 0, "link");
    CHECK_FAILS(
        dcpk_folder_begin(scratch("out.tar"), DCPK_FOLDER_TAR | DCPK_FOLDER_RESUME, &folder, &err),
        DCPK_EUSAGE, "does not belong to this user alone", "resume");
    check_victim("resume");
    CHECK_OK(
        dcpk_folder_begin(scratch("out.tar"), DCPK_FOLDER_TAR | DCPK_FOLDER_REPLACE, &folder, &err),
        "replace");
    put(folder, "f", "ours");
    CHECK_OK(dcpk_folder_publish(folder, &err), "publish");
    check_victim("replace");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(strays_go),       TEST(in_the_place),       TEST(shared),
        TEST(kept_names),      TEST(changed_files),      TEST(cut_while_written),
        TEST(reopens_its_own), TEST(takes_its_own),      TEST(journals_of_others),
        TEST(another_users),   TEST(archives_of_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

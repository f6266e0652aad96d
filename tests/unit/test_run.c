/* SPDX-License-Identifier: Apache-2.0 */
/* test_run.c - which folder a path means, for reading and for writing. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/formats.h"
#include "lib/ckpt/run.h"
#include "tests/check.h"

/*
 * The one unit test with folders: what is tested is what folders mean. They are made here, in a
 * temporary one that is the current folder while the cases run.
 */
#define ITER "iter_0000004"

static void put_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    CHECK(file != NULL, path);
    CHECK(fputs(text, file) >= 0, path);
    CHECK(fclose(file) == 0, path);
}

static void put_folder(const char *path)
{
    CHECK(mkdir(path, 0700) == 0, path);
}

/* folder/latest_checkpointed_iteration.txt, and the folder. */
static void put_run(const char *folder, const char *tracker)
{
    char path[256];

    put_folder(folder);
    snprintf(path, sizeof path, "%s/" DCPK_TRACKER_NAME, folder);
    put_file(path, tracker);
}

static char root[] = "/tmp/dcpk_test_run_XXXXXX";

static int set_up(void **state)
{
    (void)state;
    if (mkdtemp(root) == NULL || chdir(root) != 0)
        return -1;
    put_run("run", "4");
    put_folder("run/" ITER);
    put_run("spaced", "\t 12\r\n");
    put_folder("spaced/iter_0000012");
    put_run("released", "release\n");
    put_folder("released/release");
    put_run("long", "12345678");
    put_folder("long/iter_12345678");
    put_run("gone", "7");
    put_run("moved", "3");
    put_folder("moved/iter_0000003");
    put_run("word", "latest");
    put_run("minus", "-1");
    put_run("huge", "99999999999999999999");
    put_run("blank", "");
    put_run("older", "7");
    put_folder("older/iter_0000003");
    put_folder("older/iter_0000005");
    put_file("older/iter_0000005/metadata.json", "{}");
    put_folder("older/iter_0000006");
    put_folder("empty");
    put_folder("untracked");
    put_folder("untracked/iter_0000002");
    put_folder("untracked/iter_0000010");
    put_file("untracked/iter_0000010/.metadata", "");
    put_folder("untracked/iter_0000012"); /* a save that did not end */
    put_folder("unfinished");
    put_folder("unfinished/iter_0000002");
    put_folder("dcp");
    put_file("dcp/.metadata", "");
    put_folder("zarr");
    put_file("zarr/metadata.json", "{}");
    put_file("file", "");
    return symlink("run/" ITER, "newest") == 0 && symlink("run", "link") == 0 ? 0 : -1;
}

/* Everything under the temporary folder, which only this test made. */
static int tear_down(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return chdir("/") == 0 && system(command) == 0 ? 0 : -1;
}

static const struct {
    const char *label, *path;
    const char *folder; /* expected */
    int64_t iteration;
} finds[] = {
    {"run folder", "run", "run/" ITER, 4},
    {"slash at the end", "run///", "run/" ITER, 4},
    {"through a link", "link", "link/" ITER, 4},
    {"iteration folder", "run/" ITER "/", "run/" ITER, 4},
    {"link to an iteration folder", "newest", "newest", 4},
    {"dot", ".//run/./" ITER "/.", ".//run/./" ITER "/.", 4},
    {"tracker is stripped", "spaced", "spaced/iter_0000012", 12},
    {"release", "released", "released/release", DCPK_ITERATION_RELEASE},
    {"release folder", "released/release", "released/release", DCPK_ITERATION_RELEASE},
    {"more than seven digits", "long", "long/iter_12345678", 12345678},
    {"plain DCP folder", "dcp", "dcp", DCPK_ITERATION_UNKNOWN},
    {"plain folder with metadata.json", "zarr", "zarr", DCPK_ITERATION_UNKNOWN},
};

static void test_find(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof finds / sizeof *finds; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_run run = {0};

        CHECK_OK(dcpk_run_find(finds[i].path, dcpk_formats, &run, &err), finds[i].label);
        CHECK_EQ_STR(run.folder, finds[i].folder, finds[i].label);
        CHECK_EQ_INT(run.iteration, finds[i].iteration, finds[i].label);
        dcpk_run_release(&run);
    }
}

static const struct {
    const char *label, *path;
    dcpk_status status;
    const char *text;
} bad_finds[] = {
    {"missing", "nowhere", DCPK_EIO, "No such file"},
    {"a file", "file", DCPK_EIO, "not a folder"},
    {"neither", "empty", DCPK_EFORMAT, "neither a checkpoint"},
    {"neither, but iterations", "untracked", DCPK_EFORMAT, "give its folder iter_0000010"},
    {"iterations without a checkpoint", "unfinished", DCPK_EFORMAT, "in it)"},
    {"folder is missing", "gone", DCPK_EFORMAT, "'gone/iter_0000007', but there is no such"},
    {"folder is missing, others are there", "older", DCPK_EFORMAT, "give the folder iter_0000005"},
    {"a word", "word", DCPK_EFORMAT, "'latest', neither an iteration"},
    {"negative", "minus", DCPK_EFORMAT, "'-1'"},
    {"past 64 bits", "huge", DCPK_EFORMAT, "'99999999999999999999'"},
    {"blank", "blank", DCPK_EFORMAT, "''"},
};

static void test_find_fails(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_finds / sizeof *bad_finds; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_run run = {0};

        CHECK_FAILS(dcpk_run_find(bad_finds[i].path, dcpk_formats, &run, &err), bad_finds[i].status,
                    bad_finds[i].text, bad_finds[i].label);
        CHECK(run.folder == NULL, bad_finds[i].label);
    }
}

static const struct {
    const char *label, *out;
    int64_t iteration;
    const char *folder, *tracker, *text; /* expected */
    bool writes_tracker;
} targets[] = {
    {"new run folder", "new", 4, "new/" ITER, "new/" DCPK_TRACKER_NAME, "4", true},
    {"slash at the end", "new/", 4, "new/" ITER, "new/" DCPK_TRACKER_NAME, "4", true},
    {"run folder that exists", "run", 5, "run/iter_0000005", "run/" DCPK_TRACKER_NAME, "5", true},
    {"release into a run folder", "new", DCPK_ITERATION_RELEASE, "new/release",
     "new/" DCPK_TRACKER_NAME, "release", true},
    {"iteration folder", "a/" ITER, 4, "a/" ITER, "a/" DCPK_TRACKER_NAME, "4", true},
    {"its name counts", "a/iter_0000009/", 4, "a/iter_0000009", "a/" DCPK_TRACKER_NAME, "9", true},
    {"no folder before it", ITER, 4, ITER, DCPK_TRACKER_NAME, "4", true},
    {"release folder", "a/release", 4, "a/release", "a/" DCPK_TRACKER_NAME, "release", true},
    {"tracker is there", "run/iter_0000008", 4, "run/iter_0000008", "run/" DCPK_TRACKER_NAME, "8",
     false},
    {"iteration not needed", ITER, DCPK_ITERATION_UNKNOWN, ITER, DCPK_TRACKER_NAME, "4", true},
    {"eight digits", "new", 12345678, "new/iter_12345678", "new/" DCPK_TRACKER_NAME, "12345678",
     true},
    {"a name like it", "iter_x", 4, "iter_x/" ITER, "iter_x/" DCPK_TRACKER_NAME, "4", true},
};

static void test_target(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_run run = {0};

        CHECK_OK(dcpk_run_target(targets[i].out, targets[i].iteration, DCPK_TRACKER_USUAL,
                                 dcpk_formats, &run, &err),
                 targets[i].label);
        CHECK_EQ_STR(run.folder, targets[i].folder, targets[i].label);
        CHECK_EQ_STR(run.tracker, targets[i].tracker, targets[i].label);
        CHECK_EQ_STR(run.tracker_text, targets[i].text, targets[i].label);
        CHECK_EQ_INT(run.fate == DCPK_TRACKER_WRITTEN, targets[i].writes_tracker, targets[i].label);
        dcpk_run_release(&run);
    }
}

/* What becomes of the tracker when iteration 4 is written. */
static const struct {
    const char *label, *out;
    enum dcpk_tracker_policy policy;
    enum dcpk_tracker_fate fate;
    int64_t was;
} trackers[] = {
    {"none yet", "new", DCPK_TRACKER_USUAL, DCPK_TRACKER_WRITTEN, DCPK_ITERATION_UNKNOWN},
    {"none yet, keep", "new", DCPK_TRACKER_KEEP, DCPK_TRACKER_WRITTEN, DCPK_ITERATION_UNKNOWN},
    {"the same", "run", DCPK_TRACKER_USUAL, DCPK_TRACKER_FITS, 4},
    {"the same, set", "run", DCPK_TRACKER_SET, DCPK_TRACKER_FITS, 4},
    {"newer", "spaced", DCPK_TRACKER_USUAL, DCPK_TRACKER_KEPT, 12},
    {"newer, set", "spaced", DCPK_TRACKER_SET, DCPK_TRACKER_WRITTEN, 12},
    {"newer and gone", "gone", DCPK_TRACKER_USUAL, DCPK_TRACKER_WRITTEN, 7},
    {"newer and gone, keep", "gone", DCPK_TRACKER_KEEP, DCPK_TRACKER_KEPT, 7},
    {"release", "released", DCPK_TRACKER_USUAL, DCPK_TRACKER_WRITTEN, DCPK_ITERATION_RELEASE},
    {"a word", "word", DCPK_TRACKER_USUAL, DCPK_TRACKER_KEPT, DCPK_ITERATION_UNKNOWN},
    {"a word, set", "word", DCPK_TRACKER_SET, DCPK_TRACKER_WRITTEN, DCPK_ITERATION_UNKNOWN},
    {"nothing in it", "blank", DCPK_TRACKER_NEWEST, DCPK_TRACKER_KEPT, DCPK_ITERATION_UNKNOWN},
    {"beside", "spaced/" ITER, DCPK_TRACKER_USUAL, DCPK_TRACKER_KEPT, 12},
    {"beside, older", "moved/" ITER, DCPK_TRACKER_NEWEST, DCPK_TRACKER_WRITTEN, 3},
    {"beside, older, usual", "moved/" ITER, DCPK_TRACKER_USUAL, DCPK_TRACKER_KEPT, 3},
};

static void test_tracker(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_run run = {0};

    (void)state;
    for (size_t i = 0; i < sizeof trackers / sizeof *trackers; i++) {
        CHECK_OK(dcpk_run_target(trackers[i].out, 4, trackers[i].policy, dcpk_formats, &run, &err),
                 trackers[i].label);
        CHECK_EQ_INT(run.fate, trackers[i].fate, trackers[i].label);
        CHECK_EQ_INT(run.tracker_was, trackers[i].was, trackers[i].label);
        dcpk_run_release(&run);
    }
    /* a run that goes on in the same folder saves a newer iteration while we write ours */
    CHECK_OK(dcpk_run_target("moved", 4, DCPK_TRACKER_NEWEST, dcpk_formats, &run, &err), "before");
    CHECK_EQ_INT(run.fate, DCPK_TRACKER_WRITTEN, "before");
    put_folder("moved/iter_0000005");
    put_file("moved/" DCPK_TRACKER_NAME, "5");
    CHECK_OK(dcpk_run_judge_tracker(&run, &err), "behind");
    CHECK_EQ_INT(run.fate, DCPK_TRACKER_KEPT, "behind");
    CHECK_EQ_INT(run.tracker_was, 5, "behind");
    dcpk_run_release(&run);
}

static const struct {
    const char *label, *out;
    int64_t iteration;
    const char *text;
} bad_targets[] = {
    {"empty", "", 4, "empty"},
    {"a file", "file", 4, "not a folder"},
    {"a checkpoint", "dcp", 4, "itself a checkpoint"},
    {"not Megatron's spelling", "a/iter_10", 4, "'iter_0000010'"},
    {"iteration not known", "new", DCPK_ITERATION_UNKNOWN, "iteration of the source is not known"},
};

static void test_target_fails(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_targets / sizeof *bad_targets; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_run run = {0};

        CHECK_FAILS(dcpk_run_target(bad_targets[i].out, bad_targets[i].iteration,
                                    DCPK_TRACKER_USUAL, dcpk_formats, &run, &err),
                    DCPK_EUSAGE, bad_targets[i].text, bad_targets[i].label);
    }
}

static const struct {
    const char *label, *in, *out;
    const char *text; /* NULL: apart */
} pairs[] = {
    {"the same", "run", "run", "is the input"},
    {"the same, spelled apart", "run", "./empty/../run/", "is the input"},
    {"the same through a link", "run/" ITER, "newest", "is the input"},
    {"inside", "run", "run/" ITER, "is inside"},
    {"inside, not there yet", "run", "run/a/b/c", "is inside"},
    {"inside through a link", "run", "link/a", "is inside"},
    {"inside by dots", "run", "nowhere/../run/a", "is inside"},
    {"around", "run/" ITER, "run", "contains"},
    {"around everything", "run/" ITER, "/", "contains"},
    {"a sibling", "run/" ITER, "run/iter_0000005", NULL},
    {"a longer name", "run", "run2", NULL},
    {"a shorter name", "run", "ru", NULL},
    {"elsewhere", "run", "a/b/c", NULL},
};

static void test_apart(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;

        if (pairs[i].text == NULL)
            CHECK_OK(dcpk_run_check_apart(pairs[i].in, pairs[i].out, &err), pairs[i].label);
        else
            CHECK_FAILS(dcpk_run_check_apart(pairs[i].in, pairs[i].out, &err), DCPK_EUSAGE,
                        pairs[i].text, pairs[i].label);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find),    cmocka_unit_test(test_find_fails),
        cmocka_unit_test(test_target),  cmocka_unit_test(test_target_fails),
        cmocka_unit_test(test_tracker), cmocka_unit_test(test_apart),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}

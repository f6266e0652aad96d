/* SPDX-License-Identifier: Apache-2.0 */
/* test_run_among.c - the checkpoint among an archive's files is found, or the error names them. */
#include <stdio.h>

#include "formats/formats.h"
#include "lib/base/alloc.h"
#include "lib/ckpt/run.h"
#include "tests/check.h"

#define MAX_FILES 8
#define TRACKER   "latest_checkpointed_iteration.txt"

static const struct {
    const char *label;
    const char *files[MAX_FILES]; /* sorted by byte value */
    char tracker[16];             /* the text of each tracker */
    const char *folder;           /* NULL: fails, and `text` is in the message */
    int64_t iteration;
    const char *text;
} cases[] = {
    {"in the root", .files = {".metadata", "a"}, .folder = "", .iteration = DCPK_ITERATION_UNKNOWN},
    {"an iteration", .files = {"iter_0000007/.metadata"}, .folder = "iter_0000007", .iteration = 7},
    {"deep", .files = {"a/b/release/metadata.json"}, .folder = "a/b/release",
     .iteration = DCPK_ITERATION_RELEASE},
    {"any name", .files = {"x", "y/.zarray", "y/0"}, .folder = "y",
     .iteration = DCPK_ITERATION_UNKNOWN},
    {"zarr inside a checkpoint", .files = {"c/k/.zarray", "c/k2/.zarray", "c/metadata.json"},
     .folder = "c", .iteration = DCPK_ITERATION_UNKNOWN},
    {"a mark before a name", .files = {"release/x/.metadata"}, .folder = "release/x",
     .iteration = DCPK_ITERATION_UNKNOWN},
    {"by name alone", .files = {"r/iter_3/data"}, .folder = "r/iter_3", .iteration = 3},
    {"neighbours that sort between", .files = {"a-b", "a/.metadata", "a/x", "a0"}, .folder = "a",
     .iteration = DCPK_ITERATION_UNKNOWN},
    {"tracker in the root", .files = {"iter_0000001/.metadata", "iter_0000002/.metadata", TRACKER},
     .tracker = "2", .folder = "iter_0000002", .iteration = 2},
    {"tracker in a run",
     .files = {"r/iter_0000001/.metadata", "r/iter_0000012/.metadata", "r/" TRACKER},
     .tracker = " 12\n", .folder = "r/iter_0000012", .iteration = 12},
    {"tracker to release", .files = {TRACKER, "release/x"}, .tracker = "release",
     .folder = "release", .iteration = -1},
    {"tracker to a folder beside a file", .files = {"iter_0000001.json", "iter_0000001/x", TRACKER},
     .tracker = "1", .folder = "iter_0000001", .iteration = 1},
    {"a tracker inside a checkpoint counts not", .files = {"c/.metadata", "c/" TRACKER},
     .tracker = "9", .folder = "c", .iteration = DCPK_ITERATION_UNKNOWN},
    {"two trackers, one checkpoint", .files = {"a/" TRACKER, "b/" TRACKER, "c/.metadata"},
     .tracker = "9", .folder = "c", .iteration = DCPK_ITERATION_UNKNOWN},
    {"no file", .files = {NULL}, .text = "no checkpoint among the 0 files"},
    {"none", .files = {"a", "b/c"}, .text = "no checkpoint among the 2 files"},
    {"a file, no folder", .files = {"iter_0000001"}, .text = "no checkpoint"},
    {"two", .files = {"a/.metadata", "b/c/.metadata"}, .text = "2 checkpoints"},
    {"two, named", .files = {"a/.metadata", "b/c/.metadata"}, .text = "'a', 'b/c'"},
    {"many",
     .files = {"1/.zarray", "2/.zarray", "3/.zarray", "4/.zarray", "5/.zarray", "6/.zarray"},
     .text = "'5', ...;"},
    {"a tracker to nothing", .files = {"iter_0000001/.metadata", TRACKER}, .tracker = "3",
     .text = "iter_0000003"},
    {"a tracker to a file", .files = {"iter_0000003", TRACKER}, .tracker = "3",
     .text = "no such folder"},
    {"a tracker of words", .files = {"iter_0000001/.metadata", TRACKER}, .tracker = "one",
     .text = "neither an"},
};

static dcpk_status read_tracker(void *context, size_t i, char *text, size_t limit_bytes,
                                size_t *n_bytes, struct dcpk_error *err)
{
    const char *tracker = context;

    (void)i;
    (void)err;
    CHECK(strlen(tracker) <= limit_bytes, tracker);
    memcpy(text, tracker, strlen(tracker));
    *n_bytes = strlen(tracker);
    return DCPK_OK;
}

static dcpk_status find(size_t i, struct dcpk_run *run, struct dcpk_error *err)
{
    char names[MAX_FILES][64], tracker[16];
    char *pointers[MAX_FILES];
    struct dcpk_run_files files = {
        .names = pointers, .read = read_tracker, .context = tracker, .formats = dcpk_formats};

    snprintf(tracker, sizeof tracker, "%s", cases[i].tracker);
    for (; files.n < MAX_FILES && cases[i].files[files.n] != NULL; files.n++) {
        snprintf(names[files.n], sizeof names[0], "%s", cases[i].files[files.n]);
        pointers[files.n] = names[files.n];
    }
    return dcpk_run_find_among(&files, NULL, run, err);
}

static void finds(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_run run = {0};

        if (cases[i].folder == NULL) {
            CHECK_FAILS(find(i, &run, &err), DCPK_EFORMAT, cases[i].text, cases[i].label);
            CHECK(run.folder == NULL, cases[i].label);
            continue;
        }
        CHECK_OK(find(i, &run, &err), cases[i].label);
        CHECK_EQ_STR(run.folder, cases[i].folder, cases[i].label);
        CHECK_EQ_INT(run.iteration, cases[i].iteration, cases[i].label);
        dcpk_run_release(&run);
    }
}

/*
 * Every allocation fails in turn: an error, and nothing is kept (the sanitizer build sees leaks).
 */
static void every_failure(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dcpk_status st = DCPK_ENOMEM;

        for (uint64_t n = 1; st == DCPK_ENOMEM; n++) {
            struct dcpk_error err = DCPK_ERROR_INIT;
            struct dcpk_run run = {0};

            CHECK(n < 100, cases[i].label);
            dcpk_alloc_fail_nth(n);
            st = find(i, &run, &err);
            dcpk_run_release(&run);
        }
        dcpk_alloc_fail_nth(0);
        CHECK_EQ_INT(st, cases[i].folder == NULL ? DCPK_EFORMAT : DCPK_OK, cases[i].label);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds),
        cmocka_unit_test(every_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

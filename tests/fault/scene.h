/* SPDX-License-Identifier: Apache-2.0 */
/* scene.h - a whole command in a scratch folder: its input, what stands in its way, its run with
 * something preloaded, and what it leaves. */
#ifndef DCPK_TESTS_FAULT_SCENE_H
#define DCPK_TESTS_FAULT_SCENE_H

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include "lib/io/sink.h"
#include "tests/fault/tree.h"
#include "tests/random.h"
#include "tests/unit/scratch.h"

#define MAX_ARGS     24
#define MAX_UNITS    2
#define HUNG_SECONDS 60

/* A command in its scratch folder, where "in" is the input. */
struct scene {
    const char *label;
    const char *sample;         /* what "in" comes from; NULL: torch_dist_c_tied */
    const char *make[MAX_ARGS]; /* how "in" comes from the sample; empty: it is a copy of it */
    const char *args[MAX_ARGS];
    const char *units[MAX_UNITS]; /* what appears, in this order, each whole or not at all */
    bool replaces;                /* something stands there before */
    bool resumes;                 /* knows --resume */
    /* A library crashes without: libarchive 3.6 uses an entry that it could not allocate. */
    bool needs_memory;
};

#define DCPKIT "dcpkit" /* stands for the program's path */

#define TRACKER "latest_checkpointed_iteration.txt"
#define RUN                                                                                        \
    {                                                                                              \
        "out/run/iter_0000004", "out/run/" TRACKER                                                 \
    }
#define BARE                                                                                       \
    {                                                                                              \
        "out/iter_0000004", "out/" TRACKER                                                         \
    }

/* What has been seen of a scene when nothing went wrong. */
struct expected {
    tree_print input;
    tree_print before[MAX_UNITS], after[MAX_UNITS];
};

/* What came of a run. */
struct result {
    int exit_code;      /* negative: of a signal */
    char said[8192];    /* on stderr */
    char printed[8192]; /* the first of it */
};

/* A library that is loaded into the command, and the variable that it reads. */
struct preload {
    const char *library; /* NULL: none */
    const char *variable, *value;
};

/* The value in the environment, or `otherwise`. */
static inline uint64_t scene_number(const char *variable, uint64_t by_default)
{
    const char *text = getenv(variable);

    return text == NULL ? by_default : strtoull(text, NULL, 10);
}

/* The rounds of a test: round `first` and the n - 1 behind it; the round's number is its seed. */
struct scene_rounds {
    uint64_t first, n;
};

/* What DCPK_FAULT_FIRST and DCPK_FAULT_POINTS say; n: `otherwise`. */
static inline struct scene_rounds scene_rounds(uint64_t by_default)
{
    return (struct scene_rounds){scene_number("DCPK_FAULT_FIRST", 0),
                                 scene_number("DCPK_FAULT_POINTS", by_default)};
}

/* ---- running ---- */

/* In the child: become the command. */
static inline void scene_become(const char *program, const char *const *args,
                                const struct preload *preload)
{
    const char *copy[MAX_ARGS * 4] = {program};
    size_t n = 1;

    for (; *args != NULL; args++)
        copy[n++] = *args;
    if (chdir(scratch_root) != 0 || freopen("stdout", "w", stdout) == NULL ||
        freopen("stderr", "w", stderr) == NULL)
        _exit(126);
    if (preload->library != NULL && (setenv(preload->variable, preload->value, 1) != 0 ||
                                     setenv("LD_PRELOAD", preload->library, 1) != 0))
        _exit(126);
    setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 1);
    setenv("COLUMNS", "1000", 1); /* a reason is not broken where a line ends */
    alarm(HUNG_SECONDS);
    execvp(program, (char *const *)(uintptr_t)copy);
    _exit(127);
}

static inline void scene_load_text(const char *path, char *text, size_t capacity)
{
    FILE *file = fopen(path, "r");

    CHECK(file != NULL, path);
    text[fread(text, 1, capacity - 1, file)] = '\0';
    fclose(file);
}

/* Run a program in the scratch folder. */
static inline struct result scene_run(const char *program, const char *const *args,
                                      const struct preload *preload)
{
    static const struct preload nothing;
    struct result result = {0};
    pid_t child = fork();
    int status = 0;

    if (child == 0)
        scene_become(program, args, preload == NULL ? &nothing : preload);
    CHECK(child > 0 && waitpid(child, &status, 0) == child, program);
    result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    scene_load_text(scratch("stderr"), result.said, sizeof result.said);
    scene_load_text(scratch("stdout"), result.printed, sizeof result.printed);
    return result;
}

/* ---- what stands in the scratch folder ---- */

static inline void scene_copy_sample(const struct scene *scene, const char *to)
{
    const char *sample = scene->sample == NULL ? DCPK_SAMPLES "/torch_dist_c_tied" : scene->sample;
    const char *const args[] = {"-rL", sample, to, NULL};

    CHECK_EQ_INT(scene_run("cp", args, NULL).exit_code, 0, to);
}

static inline void scene_make_input(const struct scene *scene)
{
    tree_delete(scratch("in"));
    tree_delete(scratch("sample"));
    if (scene->make[0] == NULL) {
        scene_copy_sample(scene, "in");
        return;
    }
    scene_copy_sample(scene, "sample");
    CHECK_EQ_INT(scene_run(strcmp(scene->make[0], DCPKIT) == 0 ? DCPK_PROGRAM : scene->make[0],
                           scene->make + 1, NULL)
                     .exit_code,
                 0, scene->label);
}

static inline void scene_put_file(const char *path)
{
    FILE *file = fopen(path, "w");

    CHECK(file != NULL && fputs("4", file) >= 0 && fclose(file) == 0, path);
}

/* An empty place for the output, or one where something stands. */
static inline void scene_make_place(const struct scene *scene)
{
    tree_delete(scratch("out"));
    CHECK(mkdir(scratch("out"), 0700) == 0, scene->label);
    if (!scene->replaces)
        return;
    if (scene->units[1] == NULL) {
        scene_put_file(scratch(scene->units[0]));
        return;
    }
    CHECK(mkdir(scratch("out/run"), 0700) == 0 && mkdir(scratch("out/run/iter_0000004"), 0700) == 0,
          scene->label);
    scene_put_file(scratch("out/run/iter_0000004/old"));
    scene_put_file(scratch("out/run/" TRACKER));
}

static inline void scene_see_units(const struct scene *scene, tree_print *prints)
{
    for (size_t u = 0; u < MAX_UNITS; u++)
        prints[u] = scene->units[u] == NULL ? 0 : tree_of(scratch(scene->units[u]));
}

/* The same after a run that did not come to its end: between its last rename and that a journal is
 * in what is whole otherwise. */
static inline void scene_see_unended(const struct scene *scene, tree_print *prints)
{
    for (size_t u = 0; u < MAX_UNITS; u++)
        prints[u] =
            scene->units[u] == NULL ? 0 : tree_of_but(scratch(scene->units[u]), DCPK_JOURNAL_NAME);
}

/* A place for the output, and what is there before the command runs. */
static inline void scene_begin(const struct scene *scene, struct expected *e)
{
    scene_make_place(scene);
    e->input = tree_of(scratch("in"));
    scene_see_units(scene, e->before);
}

/* How many arguments the command has: more may be put behind them. */
static inline size_t scene_count_args(const struct scene *scene)
{
    size_t n = 0;

    while (scene->args[n] != NULL)
        n++;
    return n;
}

/* Of what stands under the final names every unit is the old or the new one, and none is new before
 * those in front of it. */
static inline void scene_check_prints(const struct expected *e, const tree_print *got,
                                      const char *label)
{
    bool may_be_new = true;

    for (size_t u = 0; u < MAX_UNITS; u++) {
        CHECK(got[u] == e->before[u] || got[u] == e->after[u], label);
        may_be_new = may_be_new && got[u] == e->after[u];
        CHECK(got[u] == e->before[u] || may_be_new, label);
    }
}

static inline void scene_check_units(const struct scene *scene, const struct expected *e,
                                     const char *label)
{
    tree_print got[MAX_UNITS];

    scene_see_unended(scene, got);
    scene_check_prints(e, got, label);
}

/* All units are what an undisturbed run makes. */
static inline void scene_check_new(const struct scene *scene, const tree_print *after,
                                   const char *label)
{
    tree_print got[MAX_UNITS];

    scene_see_units(scene, got);
    CHECK(memcmp(got, after, sizeof got) == 0, label);
}

/* Delete the units that are there, and what the message says is kept; see what else is there. */
static inline tree_print scene_leftovers(const struct scene *scene, const char *said)
{
    for (size_t u = 0; u < MAX_UNITS && scene->units[u] != NULL; u++) {
        char aside[4096];

        tree_delete(scratch(scene->units[u]));
        snprintf(aside, sizeof aside, "%s.dcpkit-old", scene->units[u]);
        if (strstr(said, aside) != NULL)
            tree_delete(scratch(aside));
    }
    (void)rmdir(scratch("out/run"));
    (void)rmdir(scratch("out"));
    return tree_of(scratch("out"));
}

#endif

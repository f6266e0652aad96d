/* SPDX-License-Identifier: Apache-2.0 */
/* test_io_fault.c - whole commands whose n-th system call or allocation goes wrong, n = 1, 2, ...
 */
/*
 * Whatever goes wrong: the input stays as it is; what stands under a final name is what stood there
 * before, or what an undisturbed run writes; the tracker names a folder that is there; a run that
 * was not killed leaves nothing else, and says in one line what failed. After a kill the same
 * command with --force does it all, and so it does with --resume as well.
 *
 * By default some points of each command, so that this takes seconds; DCPK_FAULT_POINTS=N: N of
 * them, 0: all; of a disk that fills up: a point every 12 KB at the most.
 */
#include "tests/fault/strike.h"

#define DEFAULT_POINTS 12
#define NAMED_POINTS   2 /* of each system call by its name */
#define FULL_STEP      12000
#define UNTOUCHED      UINT64_MAX /* an n that no run reaches: the calls are counted only */

static const struct scene scenes[] = {
    {.label = "a new folder",
     .args = {"convert", "-j1", "--to", "fsdp_dtensor", "in", "out/run"},
     .units = RUN,
     .resumes = true},
    {.label = "a replaced folder",
     .args = {"convert", "-j1", "--force", "--to", "zarr", "in", "out/run"},
     .units = RUN,
     .replaces = true,
     .resumes = true},
    {.label = "four threads",
     .args = {"convert", "-j4", "--to", "fsdp_dtensor", "in", "out/run"},
     .units = RUN,
     .resumes = true},
    {.label = "an archive, replaced",
     .make = {DCPKIT, "convert", "--to", "fsdp_dtensor", "sample", "in"},
     .args = {"convert", "-j1", "--force", "--to", "torch_dist", "in", "out/run.tar"},
     .units = {"out/run.tar"},
     .replaces = true},
    {.label = "from a packed archive",
     .make = {"tar", "-czf", "in", "-C", "sample", "iter_0000004"},
     .args = {"convert", "-j1", "--to", "fsdp_dtensor", "in", "out/run"},
     .units = RUN,
     .needs_memory = true},
    {.label = "keys removed",
     .args = {"modify-state-dict", "-j1", "--op", "remove ^optimizer", "in/iter_0000004",
              "out/iter_0000004"},
     .units = BARE},
    {.label = "tensors cast",
     .args = {"modify-state-dict", "-j1", "--op", "cast ^optimizer bfloat16", "in/iter_0000004",
              "out/iter_0000004"},
     .units = BARE,
     .resumes = true},
    {.label = "from Hugging Face",
     .sample = DCPK_SAMPLES "/safetensors_qwen3",
     .args = {"convert", "-j1", "--to", "torch_dist", "in", "out/run"},
     .units = {"out/run/release", "out/run/" TRACKER},
     .resumes = true},
    {.label = "from folders of ranks",
     .sample = DCPK_SAMPLES "/mp_rank_moe_shared",
     .args = {"convert", "-j1", "--to", "torch_dist", "in", "out/run"},
     .units = RUN,
     .resumes = true},
    {.label = "merged, to Hugging Face",
     .sample = DCPK_SAMPLES "/safetensors_qwen3",
     .args = {"merge", "-j1", "--weights", "0.5,0.5", "--to", "huggingface", "in", "in",
              "out/model"},
     .units = {"out/model"},
     .resumes = true},
    {.label = "a delta",
     .make = {DCPKIT, "convert", "--to", "fsdp_dtensor", "sample", "in"},
     .args = {"delta", "-j1", DCPK_SAMPLES "/safetensors_qwen3", "in", "out/delta"},
     .units = {"out/delta"}},
    {.label = "a delta applied",
     .make = {DCPKIT, "delta", DCPK_SAMPLES "/safetensors_qwen3", "sample", "in"},
     .args = {"apply", "-j1", DCPK_SAMPLES "/safetensors_qwen3", "in", "out/new"},
     .units = {"out/new"}},
    {.label = "verify", .args = {"verify", "-j1", "in"}},
    {.label = "hash", .args = {"hash", "-j1", "in"}},
};
#define N_SCENES (sizeof scenes / sizeof *scenes)

/* ---- what must hold ---- */

/* What stands under the final names; after a kill between two renames, what it put aside. */
static void see_units(const struct scene *scene, const struct expected *e, bool killed,
                      tree_print *got)
{
    scene_see_unended(scene, got);
    for (size_t u = 0; u < MAX_UNITS; u++) {
        char aside[4096];

        if (!killed || got[u] != 0 || e->before[u] == 0)
            continue;
        snprintf(aside, sizeof aside, "%s.dcpkit-old", scene->units[u]);
        got[u] = tree_of(scratch(aside));
    }
}

static void check_result(const struct scene *scene, const struct expected *e, const char *kind,
                         const struct result *result, const char *label)
{
    tree_print got[MAX_UNITS];
    const bool killed = result->exit_code < 0;

    CHECK(tree_of(scratch("in")) == e->input, label);
    CHECK(!killed || (strncmp(kind, "kill", 4) == 0 && result->exit_code == -SIGKILL), label);
    CHECK(killed || result->exit_code == 0 || result->exit_code == 4, label);
    see_units(scene, e, killed, got);
    scene_check_prints(e, got, label);
    if (result->exit_code == 4 && strstr(result->printed, "not known") != NULL)
        CHECK(strstr(result->printed, strike_reason(kind)) != NULL, label); /* verify's verdict */
    else if (!killed)
        strike_check_message(result->said, result->exit_code == 0 ? "" : strike_reason(kind),
                             label);
    if (result->exit_code == 0)
        scene_check_new(scene, e->after, label);
    if (!killed)
        CHECK(scene_leftovers(scene, result->said) == 0, label);
}

/* The same command again takes what the killed one left out of the way, or goes on from it. */
static void check_again(const struct scene *scene, const struct expected *e, bool resumes,
                        const char *label)
{
    struct scene again = *scene;
    struct result result;
    size_t n = scene_count_args(scene);

    again.args[n++] = "--force";
    again.args[n] = resumes ? "--resume" : NULL;
    result = strike_run(again.args, "", 0).result;
    CHECK_EQ_INT(result.exit_code, 0, label);
    check_result(&again, e, "", &result, label);
}

/* ---- the walk over a scene's calls ---- */

/* See what the scene does when all goes well; *n_calls: how many the kind could strike. */
static void watch(const struct scene *scene, const char *kind, struct expected *e,
                  uint64_t *n_calls)
{
    struct strike strike;

    scene_begin(scene, e);
    strike = strike_run(scene->args, kind, UNTOUCHED);
    CHECK_EQ_INT(strike.result.exit_code, 0, strike.result.said);
    scene_see_units(scene, e->after);
    for (size_t u = 0; u < MAX_UNITS && scene->units[u] != NULL; u++)
        CHECK(e->after[u] != 0, scene->units[u]);
    CHECK(tree_of(scratch("in")) == e->input, scene->label);
    CHECK(scene_leftovers(scene, "") == 0, scene->label);
    *n_calls = strike.fault.n_calls;
}

static void strike_at(const struct scene *scene, const struct expected *e, const char *kind,
                      uint64_t nth)
{
    struct strike strike;
    char label[16384];

    scene_make_place(scene);
    strike = strike_run(scene->args, kind, nth);
    snprintf(label, sizeof label, "%s: %s at call %" PRIu64 ", %s: exit %d, '%s'", scene->label,
             kind, nth, strike.fault.name, strike.result.exit_code, strike.result.said);
    CHECK(strike.result.exit_code == 0 || strike.fault.n_struck > 0, label);
    check_result(scene, e, kind, &strike.result, label);
    if (strike.result.exit_code < 0 && scene->units[0] != NULL)
        check_again(scene, e, scene->resumes && nth % 2 == 0, label);
}

/* `most` points (0: all) of n_calls, spread evenly, the first and the last call among them. */
static void strike_points(const struct scene *scene, const struct expected *e, const char *kind,
                          uint64_t n_calls, uint64_t most)
{
    const uint64_t n = most == 0 || most > n_calls ? n_calls : most;

    for (uint64_t i = 0; i < n; i++)
        strike_at(scene, e, kind, 1 + i * (n_calls - 1) / (n > 1 ? n - 1 : 1));
}

static void strike_scene(const struct scene *scene, const char *kind)
{
    struct expected e;
    uint64_t n_calls;

    watch(scene, kind, &e, &n_calls);
    /* the library was preloaded, and counts */
    CHECK(n_calls >= 10 || scene->units[0] == NULL, scene->label);
    strike_points(scene, &e, kind, n_calls, scene_number("DCPK_FAULT_POINTS", DEFAULT_POINTS));
}

static void strike_all(const char *kind)
{
    for (size_t s = 0; s < N_SCENES; s++) {
        if (scenes[s].needs_memory && strcmp(kind, "nomem") == 0)
            continue;
        scene_make_input(&scenes[s]);
        strike_scene(&scenes[s], kind);
    }
}

static void test_no_space(void **state)
{
    (void)state;
    strike_all("enospc");
}

static void test_input_output_error(void **state)
{
    (void)state;
    strike_all("eio");
}

static void test_kill(void **state)
{
    (void)state;
    strike_all("kill");
}

/*
 * System calls on the way of an output, the rare ones too, and a scene that makes one of the names.
 */
static const struct {
    const char *names[4];
    size_t scene;
} named_calls[] = {
    {{"open", "openat"}, 0},  {{"read"}, 4},
    {{"pread"}, 0},           {{"pwrite"}, 0},
    {{"mkdir"}, 0},           {{"mkdirat"}, 1},
    {{"linkat"}, 5},          {{"rename", "renameat", "renameat2"}, 0},
    {{"unlinkat"}, 0},        {{"fsync"}, 0},
    {{"ftruncate"}, 4},       {{"fallocate"}, 0},
    {{"close"}, 0},           {{"fstat64"}, 0},
    {{"copy_file_range"}, 5}, {{"lstat64", "fstatat64", "stat64"}, 0},
};
#define N_NAMED (sizeof named_calls / sizeof *named_calls)

/* Returns how many calls of that name there were. */
static uint64_t kill_at(const struct scene *scene, const char *name, uint64_t most)
{
    struct expected e;
    uint64_t n_calls;
    char kind[40];

    snprintf(kind, sizeof kind, "kill@%s", name);
    watch(scene, kind, &e, &n_calls);
    strike_points(scene, &e, kind, n_calls, most);
    return n_calls;
}

/* (The journal's fdatasync: test_cut_short.) A sanitizer takes some calls before they come here. */
static void test_kill_by_name(void **state)
{
    const bool sees_all = DCPK_ALLOC_FAULT[0] != '\0';
    const uint64_t wanted = scene_number("DCPK_FAULT_POINTS", NAMED_POINTS);
    const bool all = getenv("DCPK_FAULT_POINTS") != NULL; /* every scene, not that one alone */

    (void)state;
    for (size_t s = 0; s < N_SCENES; s++) {
        if (scenes[s].units[0] != NULL)
            scene_make_input(&scenes[s]);
        for (size_t c = 0; c < N_NAMED && scenes[s].units[0] != NULL; c++) {
            const bool is_its_scene = named_calls[c].scene == s;
            uint64_t n_calls = 0;

            for (size_t i = 0; named_calls[c].names[i] != NULL && (all || is_its_scene); i++)
                n_calls += kill_at(&scenes[s], named_calls[c].names[i], wanted);
            CHECK(n_calls > 0 || !is_its_scene || !sees_all, named_calls[c].names[0]);
        }
    }
}

/* A disk that fills up in the middle of a write, wherever that is. */
static void test_full(void **state)
{
    const uint64_t wanted = scene_number("DCPK_FAULT_POINTS", DEFAULT_POINTS);

    (void)state;
    for (size_t s = 0; s < N_SCENES; s++) {
        struct expected e;
        uint64_t n_bytes, most;

        if (scenes[s].units[0] == NULL)
            continue;
        scene_make_input(&scenes[s]);
        watch(&scenes[s], "full", &e, &n_bytes);
        most = n_bytes / FULL_STEP + 1;
        strike_points(&scenes[s], &e, "full", n_bytes - 1,
                      wanted == 0 || wanted > most ? most : wanted);
    }
}

static void test_no_memory(void **state)
{
    (void)state;
    if (DCPK_ALLOC_FAULT[0] == '\0') /* a sanitizer has its own malloc */
        skip();
    strike_all("nomem");
}

/* What a system may do at any time is no error. */
static void test_no_fault(void **state)
{
    static const char *const kinds[] = {"short", "eintr"};

    (void)state;
    for (size_t s = 0; s < N_SCENES; s++) {
        scene_make_input(&scenes[s]);
        for (size_t k = 0; k < 2; k++) {
            struct expected e;
            struct strike strike;
            uint64_t n_calls;

            watch(&scenes[s], kinds[k], &e, &n_calls);
            scene_make_place(&scenes[s]);
            strike = strike_run(scenes[s].args, kinds[k], 0);
            CHECK(strike.fault.n_struck > 0, scenes[s].label);
            CHECK_EQ_INT(strike.result.exit_code, 0, strike.result.said);
            check_result(&scenes[s], &e, kinds[k], &strike.result, scenes[s].label);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_no_space, strike_setup, strike_teardown),
        cmocka_unit_test_setup_teardown(test_input_output_error, strike_setup, strike_teardown),
        cmocka_unit_test_setup_teardown(test_kill, strike_setup, strike_teardown),
        cmocka_unit_test_setup_teardown(test_kill_by_name, strike_setup, strike_teardown),
        cmocka_unit_test_setup_teardown(test_full, strike_setup, strike_teardown),
        cmocka_unit_test_setup_teardown(test_no_memory, strike_setup, strike_teardown),
        cmocka_unit_test_setup_teardown(test_no_fault, strike_setup, strike_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

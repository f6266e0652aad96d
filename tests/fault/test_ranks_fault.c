/* SPDX-License-Identifier: Apache-2.0 */
/* test_ranks_fault.c - commands of several ranks, of which one alone meets a failing call or a
 * signal. */
/*
 * All ranks end, soon and with the same answer: the message of the one that failed, once, and
 * nothing under a final name that is not whole. What a proof by several ranks is for is seen too:
 * a byte that is wrong in what one of them wrote.
 *
 * By default a round of each command; DCPK_FAULT_POINTS=N: N of them. The round's number is its
 * seed; DCPK_FAULT_FIRST=N begins with it.
 */
#include "tests/fault/rank_scene.h"

#define DEFAULT_ROUNDS 1

static const struct scene scenes[] = {
    {.label = "converted, with all checks",
     .args = {"convert", "--quiet", "-j1", "--check-input", "--verify", "--integrity", "--to",
              "fsdp_dtensor", "in", "out/run"},
     .units = RUN},
    {.label = "converted to many files",
     .args = {"convert", "--quiet", "-j2", "--to", "zarr", "in", "out/run"},
     .units = RUN},
    {.label = "verified", .args = {"verify", "--quiet", "--against", "in", "in"}},
    {.label = "hashed", .args = {"hash", "--quiet", "in"}},
    {.label = "compared", .args = {"compare-two-checkpoint", "--quiet", "in", "in"}},
};
#define N_SCENES (sizeof scenes / sizeof *scenes)
/* About as many calls as a rank of each makes, one of which goes wrong. */
static const uint64_t n_calls[N_SCENES] = {280, 400, 120, 80, 80};

static const char *const kinds[] = {"own-eio", "own-term", "own-nomem"};
#define N_KINDS (sizeof kinds / sizeof *kinds)

/* What one process makes of it. */
static void watch(const struct scene *scene, tree_print *after)
{
    scene_make_input(scene);
    scene_make_place(scene);
    CHECK_EQ_INT(scene_run(DCPK_PROGRAM, scene->args, NULL).exit_code, 0, scene->label);
    scene_see_units(scene, after);
}

/* Another number of ranks goes on with what is kept. */
static void go_on(const struct scene *scene, const tree_print *after, const char *label)
{
    struct scene again = *scene;
    struct result result;

    again.args[scene_count_args(scene)] = "--resume";
    result = rank_scene_run(&again, MAX_RANKS - 1, -1, "", 0);
    CHECK_EQ_INT(result.exit_code, 0, result.said);
    scene_check_new(scene, after, label);
}

/* Either all is as if nothing had happened, or there is one message and nothing new; verify has a
 * verdict. */
static void check_end(const struct scene *scene, const struct result *result,
                      const tree_print *after, const char *label)
{
    const bool has_verdict = strstr(result->printed, "\nverdict     not known") != NULL;
    tree_print got[MAX_UNITS];

    CHECK(result->exit_code == 0 || result->exit_code == 4, label);
    CHECK_EQ_INT(rank_scene_messages(result->said), result->exit_code == 4 && !has_verdict, label);
    scene_see_units(scene, got);
    for (size_t u = 0; u < MAX_UNITS; u++)
        CHECK(got[u] == after[u] || (got[u] == 0 && result->exit_code == 4), label);
    if (strstr(result->said, "--resume continues it") != NULL)
        go_on(scene, after, label);
    CHECK(scene_leftovers(scene, result->said) == 0, label);
}

/* A call of one rank fails. Returns whether it was made. */
static bool strike_one(const struct scene *scene, int struck, const char *kind, uint64_t nth,
                       const tree_print *after)
{
    struct result result;
    char label[20000];

    scene_make_place(scene);
    result = rank_scene_run(scene, MAX_RANKS, struck, kind, nth);
    snprintf(label, sizeof label,
             "%s: rank %d, %s at call %" PRIu64 ", %s: exit %d, '%s', printed '%s'", scene->label,
             struck, kind, nth, strike_report->name, result.exit_code, result.said, result.printed);
    check_end(scene, &result, after, label);
    return strike_report->n_struck > 0;
}

static void one_fails(void **state)
{
    const struct scene_rounds rounds = scene_rounds(DEFAULT_ROUNDS);
    uint64_t n_struck = 0;

    (void)state;
    if (!rank_scene_begin())
        skip();
    for (size_t s = 0; s < N_SCENES; s++) {
        tree_print after[MAX_UNITS];

        watch(&scenes[s], after);
        for (uint64_t i = 0; i < rounds.n; i++) {
            uint64_t seed = (rounds.first + i) * N_SCENES + s;
            const int struck = (int)random_below(&seed, MAX_RANKS);
            const uint64_t nth = 1 + random_below(&seed, n_calls[s]);
            const size_t n_kinds = DCPK_ALLOC_FAULT[0] == '\0' ? N_KINDS - 1 : N_KINDS;

            n_struck +=
                strike_one(&scenes[s], struck, kinds[random_below(&seed, n_kinds)], nth, after);
        }
    }
    CHECK(rounds.n == 0 || n_struck > 0, "some calls were made");
}

/*
 * Rank 0 alone cannot delete what its folder was marked with for the others, who go on meanwhile.
 */
static void mark_stays(void **state)
{
    const struct scene *scene = &scenes[1];
    tree_print after[MAX_UNITS];

    (void)state;
    if (!rank_scene_begin())
        skip();
    watch(scene, after);
    CHECK(strike_one(scene, 0, "own-eio@unlinkat", 1, after), scene->label);
}

/* safetensors has no checksums: the proof alone finds it. */
static const struct scene proven_scenes[] = {
    {.label = "a wrong byte",
     .args = {"convert", "--quiet", "-j1", "--verify", "--to", "fsdp_dtensor", "in", "out/run"},
     .units = RUN},
    {.label = "a wrong byte of a model's folder",
     .sample = DCPK_SAMPLES "/safetensors_qwen3",
     .make = {DCPKIT, "convert", "--to", "zarr", "sample", "in"},
     .args = {"convert", "--quiet", "-j1", "--verify", "--to", "huggingface", "--max-shard-size",
              "10KB", "in", "out/hf"},
     .units = {"out/hf"}},
};

static void strike_byte(const struct scene *scene, int struck)
{
    struct result result;

    scene_make_place(scene);
    result = rank_scene_run(scene, MAX_RANKS, struck, "own-flip", 1);
    CHECK_EQ_INT(strike_report->n_struck, 1, result.said);
    CHECK_EQ_INT(result.exit_code, 3, result.said);
    CHECK_EQ_INT(rank_scene_messages(result.said), 1, result.said);
    CHECK(strstr(result.said, "checking what was written (nothing is published)") != NULL,
          result.said);
    CHECK(scene_leftovers(scene, "") == 0, result.said);
}

/* A byte is wrong in what one rank writes: the proof of all of them finds it. */
static void byte_is_wrong(void **state)
{
    (void)state;
    if (!rank_scene_begin())
        skip();
    for (size_t s = 0; s < sizeof proven_scenes / sizeof *proven_scenes; s++) {
        tree_print after[MAX_UNITS];

        watch(&proven_scenes[s], after);
        for (int struck = 0; struck < MAX_RANKS; struck++)
            strike_byte(&proven_scenes[s], struck);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_fails, strike_setup, strike_teardown),
        cmocka_unit_test_setup_teardown(mark_stays, strike_setup, strike_teardown),
        cmocka_unit_test_setup_teardown(byte_is_wrong, strike_setup, strike_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* test_cut_short.c - conversions with many commits, cut short again and again, by one process and
 * by several ranks, and gone on with. */
/*
 * A round cuts a conversion short up to three times, at random calls: killed before one or in the
 * middle of one, out of space or memory, an input or output error. Each time what stands under a
 * final name is what stood there before or what an undisturbed run writes, and the input is as it
 * was; a run that was not killed has said so in one line, and has closed what it opened. The last
 * run goes on from there, undisturbed, and gives the same bytes, with nothing left beside them.
 *
 * By default a round of each command; DCPK_FAULT_POINTS=N: N of them, of ranks a fifth. The
 * round's number is its seed; DCPK_FAULT_FIRST=N begins with it.
 */
#include "tests/fault/rank_scene.h"

#define DEFAULT_ROUNDS 1
#define MAX_CUTS       3
#define UNTOUCHED      UINT64_MAX /* an n that no run reaches: the calls are counted only */
#define MOE            DCPK_SAMPLES "/torch_dist_c_moe_ep2pp2"
#define RESHARDABLE    DCPK_SAMPLES "/torch_dist_c_dp_reshardable_tp2dp2"
#define QWEN3          DCPK_SAMPLES "/safetensors_qwen3"
#define RELEASE                                                                                    \
    {                                                                                              \
        "out/run/release", "out/run/" TRACKER                                                      \
    }

static const struct scene scenes[] = {
    {.label = "torch_dist to fsdp_dtensor",
     .sample = MOE,
     .args = {"convert", "-j1", "--to", "fsdp_dtensor", "in", "out/run"},
     .units = RUN,
     .resumes = true},
    {.label = "fsdp_dtensor to torch_dist, four threads",
     .sample = MOE,
     .make = {DCPKIT, "convert", "--to", "fsdp_dtensor", "sample", "in"},
     .args = {"convert", "-j4", "--to", "torch_dist", "--target-mesh", "tp=2", "in", "out/run"},
     .units = RUN,
     .resumes = true},
    {.label = "to zarr, replaced",
     .sample = MOE,
     .args = {"convert", "-j2", "--force", "--to", "zarr", "in", "out/run"},
     .units = RUN,
     .replaces = true,
     .resumes = true},
    {.label = "from zarr, with proof",
     .sample = MOE,
     .make = {DCPKIT, "convert", "--to", "zarr", "sample", "in"},
     .args = {"convert", "-j2", "--verify", "--integrity", "--to", "torch_dist", "in", "out/run"},
     .units = RUN,
     .resumes = true},
    {.label = "decoded, replaced",
     .sample = RESHARDABLE,
     .args = {"convert", "-j2", "--force", "--to", "torch_dist", "--target-generation", "B", "in",
              "out/run"},
     .units = RUN,
     .replaces = true,
     .resumes = true},
    {.label = "tensors cast",
     .sample = MOE,
     .args = {"modify-state-dict", "-j2", "--op", "cast exp_avg bfloat16", "in/iter_0000004",
              "out/iter_0000004"},
     .units = BARE,
     .resumes = true},
    {.label = "tensors of zarr cast, others linked",
     .sample = MOE,
     .make = {DCPKIT, "convert", "--to", "zarr", "sample", "in"},
     .args = {"modify-state-dict", "-j2", "--op", "cast exp_avg bfloat16", "in/iter_0000004",
              "out/iter_0000004"},
     .units = BARE,
     .resumes = true},
    {.label = "to a model's folder",
     .sample = QWEN3,
     .make = {DCPKIT, "convert", "--to", "torch_dist", "sample", "in"},
     .args = {"convert", "-j2", "--to", "huggingface", "--max-shard-size", "20KB", "in", "out/hf"},
     .units = {"out/hf"},
     .resumes = true},
    {.label = "from a model's folder, with proof",
     .sample = QWEN3,
     .args = {"convert", "-j2", "--verify", "--to", "zarr", "in", "out/run"},
     .units = RELEASE,
     .resumes = true},
    {.label = "a sum",
     .sample = MOE,
     .args = {"merge", "-j2", "--weights", "0.7,0.3", "in", "in", "out/run"},
     .units = RELEASE,
     .resumes = true},
    {.label = "an archive, replaced",
     .sample = MOE,
     .args = {"convert", "-j2", "--force", "--to", "fsdp_dtensor", "in", "out/run.tar"},
     .units = {"out/run.tar"},
     .replaces = true},
};
#define N_SCENES (sizeof scenes / sizeof *scenes)

static const char *const kinds[] = {"kill", "tear", "enospc", "eio", "nomem", "kill@fdatasync"};
#define N_KINDS (sizeof kinds / sizeof *kinds)

/* What an undisturbed run does. */
struct usual {
    struct expected expected;
    uint64_t n_calls[N_KINDS];  /* that each kind could strike */
    uint32_t n_open, n_threads; /* at its end; the thread sanitizer has one of its own */
};

static void watch(const struct scene *scene, struct usual *usual)
{
    struct expected *e = &usual->expected;

    for (size_t k = 0; k < N_KINDS; k++) {
        struct strike strike;

        if (strcmp(kinds[k], "nomem") == 0 &&
            (scene->needs_memory || DCPK_ALLOC_FAULT[0] == '\0')) { /* a sanitizer's own malloc */
            usual->n_calls[k] = 0;
            continue;
        }
        scene_begin(scene, e);
        strike = strike_run(scene->args, kinds[k], UNTOUCHED);
        CHECK_EQ_INT(strike.result.exit_code, 0, strike.result.said);
        scene_see_units(scene, e->after);
        CHECK(scene_leftovers(scene, "") == 0, scene->label);
        usual->n_calls[k] = strike.fault.n_calls;
        usual->n_open = strike.fault.n_open;
        usual->n_threads = strike.fault.n_threads;
        CHECK((strike.fault.n_calls > 100 || strchr(kinds[k], '@') != NULL) &&
                  strike.fault.n_threads > 0,
              scene->label);
    }
}

/* The same command again, to go on: with --force where something stands in the way for good, and
 * nothing is resumed. */
static struct scene again(const struct scene *scene)
{
    struct scene copy = *scene;
    size_t n = scene_count_args(scene);

    if (scene->resumes)
        copy.args[n++] = "--resume"; /* also where it was cut short between the folder and its
                                        tracker: the folder is complete */
    else if (!scene->replaces && scratch_has(scene->units[0]))
        copy.args[n++] = "--force";
    return copy;
}

/* Cut the command short once, if the call that it is for comes at all. */
static void cut(const struct scene *scene, const struct usual *usual, uint64_t *seed, bool is_first,
                const char *label)
{
    const struct scene next = is_first ? *scene : again(scene);
    const size_t k = (size_t)random_below(seed, N_KINDS);
    uint64_t nth;
    struct strike strike;
    char said[16384];

    if (usual->n_calls[k] == 0)
        return;
    nth = 1 + random_below(seed, usual->n_calls[k]);
    strike = strike_run(next.args, kinds[k], nth);
    snprintf(said, sizeof said, "%s: %s at call %" PRIu64 ", %s: exit %d, '%s'", label, kinds[k],
             nth, strike.fault.name, strike.result.exit_code, strike.result.said);
    scene_check_units(scene, &usual->expected, said);
    CHECK(tree_of(scratch("in")) == usual->expected.input, said);
    if (strike.result.exit_code < 0) {
        CHECK(strike.result.exit_code == -SIGKILL && strike.fault.n_struck == 1 &&
                  (kinds[k][0] == 'k' || strcmp(kinds[k], "tear") == 0),
              said);
        return;
    }
    CHECK(strike.result.exit_code == 0 || strike.result.exit_code == 4, said);
    strike_check_message(strike.result.said,
                         strike.result.exit_code == 0 ? "" : strike_reason(kinds[k]), said);
    CHECK(strike.fault.n_open <= usual->n_open && strike.fault.n_threads <= usual->n_threads, said);
}

/* Returns whether the last run had something to go on from. */
static bool try_round(const struct scene *scene, const struct usual *usual, uint64_t round)
{
    uint64_t seed = round;
    const uint64_t n_cuts = 1 + random_below(&seed, MAX_CUTS);
    const bool needs_proof = scene->sample != NULL && strcmp(scene->sample, RESHARDABLE) == 0;
    struct scene last;
    struct result result;
    bool is_resumed;
    char label[256];

    snprintf(label, sizeof label, "%s: round %" PRIu64, scene->label, round);
    scene_make_place(scene);
    for (uint64_t i = 0; i < n_cuts; i++)
        cut(scene, usual, &seed, i == 0, label);
    last = again(scene);
    if (needs_proof)
        last.args[scene_count_args(&last)] = "--progress";
    result = scene_run(DCPK_PROGRAM, last.args, NULL);
    CHECK_EQ_INT(result.exit_code, 0, result.said);
    scene_check_new(scene, usual->expected.after, label);
    CHECK(tree_of(scratch("in")) == usual->expected.input, label);
    CHECK(scene_leftovers(scene, "") == 0, label);
    is_resumed = strstr(result.printed, "written by an earlier run") != NULL ||
                 strstr(result.printed, "already complete") != NULL;
    if (needs_proof) /* which what is gone on with has had */
        CHECK_EQ_INT(strstr(result.said, "comparing masters") == NULL, is_resumed, label);
    return is_resumed;
}

static void one_process(void **state)
{
    const struct scene_rounds rounds = scene_rounds(DEFAULT_ROUNDS);

    (void)state;
    for (size_t s = 0; s < N_SCENES; s++) {
        struct usual usual;
        uint64_t n_resumed = 0;

        scene_make_input(&scenes[s]);
        watch(&scenes[s], &usual);
        for (uint64_t i = 0; i < rounds.n; i++)
            n_resumed += try_round(&scenes[s], &usual, rounds.first + i);
        CHECK(!scenes[s].resumes || rounds.n < 8 || n_resumed > rounds.n / 8, scenes[s].label);
    }
}

/* ---- several ranks ---- */

static const struct scene rank_scenes[] = {
    {.label = "ranks, to fsdp_dtensor",
     .sample = MOE,
     .args = {"convert", "--quiet", "-j1", "--to", "fsdp_dtensor", "in", "out/run"},
     .units = RUN,
     .resumes = true},
    {.label = "ranks, to zarr, replaced",
     .sample = MOE,
     .args = {"convert", "--quiet", "-j1", "--force", "--to", "zarr", "in", "out/run"},
     .units = RUN,
     .replaces = true,
     .resumes = true},
    {.label = "ranks, to a model's folder",
     .sample = QWEN3,
     .args = {"merge", "--quiet", "-j1", "--weights", "1,-1", "--max-shard-size", "10KB", "in",
              "in", "out/hf"},
     .units = {"out/hf"},
     .resumes = true},
};
#define N_RANK_SCENES (sizeof rank_scenes / sizeof *rank_scenes)
#define RANK_KIND     "killroom"

/* One of three dies: the others stop, and any number of ranks goes on. */
static void try_dying(const struct scene *scene, const struct usual *usual, uint64_t round)
{
    uint64_t seed = round;
    const int dying = (int)random_below(&seed, MAX_RANKS);
    const uint64_t nth = 1 + random_below(&seed, usual->n_calls[dying]);
    struct result result;
    struct scene last;
    char label[16384];

    scene_make_place(scene);
    result = rank_scene_run(scene, MAX_RANKS, dying, RANK_KIND, nth);
    snprintf(label, sizeof label,
             "%s: round %" PRIu64 ", rank %d at call %" PRIu64 ", %s: exit %d, '%s'", scene->label,
             round, dying, nth, strike_report->name, result.exit_code, result.said);
    CHECK(result.exit_code > 0 || strike_report->n_struck == 0, label);
    CHECK(rank_scene_messages(result.said) <= 1, label);
    scene_check_units(scene, &usual->expected, label);
    CHECK(tree_of(scratch("in")) == usual->expected.input, label);
    last = again(scene);
    result = rank_scene_run(&last, 1 + (int)random_below(&seed, MAX_RANKS), -1, RANK_KIND, 0);
    CHECK_EQ_INT(result.exit_code, 0, result.said);
    scene_check_new(scene, usual->expected.after, label);
    CHECK(tree_of(scratch("in")) == usual->expected.input, label);
    CHECK(scene_leftovers(scene, "") == 0, label);
}

/* What one process makes, and the calls of each of three ranks. */
static void watch_ranks(const struct scene *scene, struct usual *usual)
{
    struct expected *e = &usual->expected;

    scene_begin(scene, e);
    CHECK_EQ_INT(scene_run(DCPK_PROGRAM, scene->args, NULL).exit_code, 0, scene->label);
    scene_see_units(scene, e->after);
    for (int r = 0; r < MAX_RANKS; r++) {
        struct result result;

        scene_make_place(scene);
        result = rank_scene_run(scene, MAX_RANKS, r, RANK_KIND, UNTOUCHED);
        CHECK_EQ_INT(result.exit_code, 0, result.said);
        CHECK(strike_report->n_calls > 10, scene->label);
        usual->n_calls[r] = strike_report->n_calls;
    }
}

static void ranks(void **state)
{
    const struct scene_rounds rounds = scene_rounds(DEFAULT_ROUNDS);
    const uint64_t n = (rounds.n + 4) / 5;

    (void)state;
    if (!rank_scene_begin())
        skip();
    for (size_t s = 0; s < N_RANK_SCENES; s++) {
        struct usual usual;

        scene_make_input(&rank_scenes[s]);
        watch_ranks(&rank_scenes[s], &usual);
        for (uint64_t i = 0; i < n; i++)
            try_dying(&rank_scenes[s], &usual, rounds.first + i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_process, strike_setup, strike_teardown),
        cmocka_unit_test_setup_teardown(ranks, strike_setup, strike_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

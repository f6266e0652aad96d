/* SPDX-License-Identifier: Apache-2.0 */
/* test_power_loss.c - whole commands, and the power fails: what was not synced may be lost, in any
 * order. */
/*
 * Each round runs a command, takes the state that a disk may have had after some of its calls
 * (disk_model.h), and goes on from there with --resume, which the power may cut short again. What
 * stands under a final name is at all times what stood there before, or what an undisturbed run
 * writes; the tracker names a folder that is there; what a command said it had done is on disk; and
 * in the end the bytes are the same.
 *
 * By default some rounds of each command; DCPK_FAULT_POINTS=N: N of them. The round's number is its
 * seed; DCPK_FAULT_FIRST=N begins with it.
 */
#include "tests/fault/disk_log.h"
#include "tests/fault/disk_model.h"
#include "tests/fault/scene.h"

#define DEFAULT_ROUNDS 4

static const struct scene scenes[] = {
    {.label = "a new folder",
     .args = {"convert", "-j1", "--to", "fsdp_dtensor", "in", "out/run"},
     .units = RUN,
     .resumes = true},
    {.label = "four threads",
     .make = {DCPKIT, "convert", "--to", "fsdp_dtensor", "sample", "in"},
     .args = {"convert", "-j4", "--to", "torch_dist", "in", "out/run"},
     .units = RUN,
     .resumes = true},
    {.label = "a replaced folder",
     .args = {"convert", "-j1", "--force", "--to", "zarr", "in", "out/run"},
     .units = RUN,
     .replaces = true,
     .resumes = true},
    {.label = "from zarr, replaced",
     .make = {DCPKIT, "convert", "--to", "zarr", "sample", "in"},
     .args = {"convert", "-j2", "--force", "--integrity", "--to", "torch_dist", "in", "out/run"},
     .units = RUN,
     .replaces = true,
     .resumes = true},
    {.label = "an archive, replaced",
     .args = {"convert", "-j1", "--force", "--to", "fsdp_dtensor", "in", "out/run.tar"},
     .units = {"out/run.tar"},
     .replaces = true},
    {.label = "keys removed",
     .args = {"modify-state-dict", "-j1", "--op", "remove ^optimizer", "in/iter_0000004",
              "out/iter_0000004"},
     .units = BARE},
    {.label = "tensors cast",
     .args = {"modify-state-dict", "-j1", "--op", "cast ^optimizer bfloat16", "in/iter_0000004",
              "out/iter_0000004"},
     .units = BARE,
     .resumes = true},
};
#define N_SCENES (sizeof scenes / sizeof *scenes)

static struct result run_logged(const struct scene *scene)
{
    const struct preload preload = {DCPK_DISK_LOG_LIBRARY, DISK_LOG_VARIABLE, scratch("log")};
    FILE *log = fopen(scratch("log"), "wb");

    CHECK(log != NULL && fclose(log) == 0, "log");
    return scene_run(DCPK_PROGRAM, scene->args, &preload);
}

static struct disk *scan(void)
{
    struct disk *disk = disk_scan(scratch("out"));

    disk_know(disk, scratch("in"));
    return disk;
}

/* The scratch folder's "out", empty. */
static const char *empty_place(void)
{
    tree_delete(scratch("out"));
    CHECK(mkdir(scratch("out"), 0700) == 0, "out");
    return scratch("out");
}

/* One run of a round. */
struct step {
    bool resumes;      /* with --resume, but for the first one */
    bool goes_through; /* the power fails after its last call */
    enum disk_fate fate;
};
#define MAX_STEPS 3

/* Run a command until the power fails at a point of the seed's. */
static void run_and_crash(const struct scene *scene, const struct step *step, uint64_t *seed,
                          const char *label)
{
    struct disk *disk = scan();
    const struct result result = run_logged(scene);
    const size_t n_calls = disk_log_count(scratch("log"));

    CHECK_EQ_INT(result.exit_code, 0, result.said);
    CHECK(n_calls > 0, label); /* the library was preloaded */
    disk_replay(disk, scratch("log"),
                step->goes_through ? n_calls : random_below(seed, n_calls + 1));
    disk_crash(disk, step->fate, random_below(seed, UINT64_MAX), empty_place());
    disk_free(disk);
}

/*
 * The runs of a round but for the last one, which the power does not cut short. Returns how many.
 * Round 0: what a command said it had done is there. Every fourth: after a kill it begins anew, and
 * what it deleted and made again is not to be taken for what was there.
 */
static size_t draw_steps(uint64_t round, uint64_t *seed, struct step steps[MAX_STEPS])
{
    size_t n = 1 + (size_t)random_below(seed, MAX_STEPS);

    for (size_t i = 0; i < n; i++)
        steps[i] = (struct step){random_below(seed, 3) != 0, false,
                                 random_below(seed, 4) == 0 ? DISK_IS_HOLLOW : DISK_LOSES};
    steps[0].goes_through = round == 0;
    if (round % 4 == 1) {
        n = 2;
        steps[0].fate = DISK_KEEPS;
        steps[1] = (struct step){.fate = DISK_IS_HOLLOW};
    }
    return n;
}

/* The same command, to be given after the power was back. */
static struct scene again(const struct scene *scene, bool resumes)
{
    struct scene copy = *scene;
    size_t n = scene_count_args(scene);

    if (!scene->replaces)
        copy.args[n++] = "--force";
    if (resumes && scene->resumes)
        copy.args[n++] = "--resume";
    return copy;
}

static void try_round(const struct scene *scene, const struct expected *e, uint64_t round)
{
    uint64_t seed = round;
    struct step steps[MAX_STEPS];
    const size_t n = draw_steps(round, &seed, steps);
    struct scene last = again(scene, round % 4 != 0);
    struct result result;
    char label[256];

    snprintf(label, sizeof label, "%s: round %" PRIu64, scene->label, round);
    scene_make_place(scene);
    for (size_t i = 0; i < n; i++) {
        const struct scene next = i == 0 ? *scene : again(scene, steps[i].resumes);

        run_and_crash(&next, &steps[i], &seed, label);
        scene_check_units(scene, e, label);
        if (steps[i].goes_through)
            scene_check_new(scene, e->after, label);
    }
    result = scene_run(DCPK_PROGRAM, last.args, NULL);
    CHECK_EQ_INT(result.exit_code, 0, result.said);
    scene_check_new(scene, e->after, label);
    CHECK(tree_of(scratch("in")) == e->input, label);
    CHECK(scene_leftovers(scene, "") == 0, label);
}

/* An undisturbed run: what it makes, and that the log and the model know all that it does. */
static void watch(const struct scene *scene, struct expected *e)
{
    struct disk *disk;
    struct result result;
    tree_print there;

    scene_begin(scene, e);
    disk = scan();
    result = run_logged(scene);
    CHECK_EQ_INT(result.exit_code, 0, result.said);
    scene_see_units(scene, e->after);
    there = tree_of(scratch("out"));
    disk_replay(disk, scratch("log"), disk_log_count(scratch("log")));
    disk_crash(disk, DISK_KEEPS, 0, empty_place());
    disk_free(disk);
    CHECK(tree_of(scratch("out")) == there, scene->label);
}

static void test_power_loss(void **state)
{
    const struct scene_rounds rounds = scene_rounds(DEFAULT_ROUNDS);

    (void)state;
    for (size_t s = 0; s < N_SCENES; s++) {
        struct expected e;

        scene_make_input(&scenes[s]);
        watch(&scenes[s], &e);
        for (uint64_t i = 0; i < rounds.n; i++)
            try_round(&scenes[s], &e, rounds.first + i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_power_loss, scratch_setup, scratch_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* test_remap_killed.c - a rank of a remap is killed, or sleeps, at a random call: the others end
 * with 4 in time, with their sources as they were and the units that were done in their targets. */
/*
 * remap_ranks, a rank, looks at its own memory. Here mpirun starts 2 to 4 of them, which reach each
 * other (direct) or send messages (staged), and lets the others live when one is gone
 * (--enable-recovery): by default it ends them, and that is tried, too.
 *
 * DCPK_FAULT_POINTS=N rounds; the round's number is its seed; DCPK_FAULT_FIRST=N begins with it.
 */
#include "tests/fault/scene.h"

#define DEFAULT_ROUNDS 6
#define TIMEOUT_MS     300 /* of each wait at first */
#define MAX_TIMEOUT_MS 20000
#define MAX_CALLS      150

/* One job: what happens to whom, and when. */
struct job {
    int n, victim, timeout_ms;
    uint64_t nth, seed;
    bool sleeps, is_staged, recovers;
};

static const char *number(uint64_t n)
{
    static char texts[8][24];
    static size_t next;
    char *text = texts[next++ % 8];

    snprintf(text, sizeof texts[0], "%" PRIu64, n);
    return text;
}

/* A shell prints how each rank ended: mpirun knows of one alone. Open MPI does not free all that it
 * allocates when it starts. */
static struct result job_run(const struct job *job)
{
    static const char script[] = "ASAN_OPTIONS=detect_leaks=0 \"$0\" \"$@\"; "
                                 "e=$?; echo \"rank $OMPI_COMM_WORLD_RANK ends with $e;\"; exit $e";
    const char *const args[] = {job->recovers ? "--enable-recovery" : "-q",
                                "-n",
                                number((uint64_t)job->n),
                                "sh",
                                "-c",
                                script,
                                DCPK_PROGRAM,
                                job->sleeps ? "sleep" : "kill",
                                number(job->nth),
                                number((uint64_t)job->victim),
                                job->is_staged ? "staged" : "direct",
                                number(job->seed),
                                number((uint64_t)job->timeout_ms),
                                NULL};

    return scene_run("mpirun", args, NULL);
}

static bool rank_ended(const struct result *result, int rank, int with)
{
    char line[64];

    snprintf(line, sizeof line, "rank %d ends with %d;", rank, with);
    return strstr(result->printed, line) != NULL;
}

/* What a killed rank had shared has no name that stays. */
static bool has_left_names(void)
{
    DIR *folder = opendir("/dev/shm");
    const struct dirent *e;
    bool found = false;

    while (folder != NULL && (e = readdir(folder)) != NULL)
        found = found || (strstr(e->d_name, "dcpkit") != NULL &&
                          strncmp(e->d_name, "dcpkit-test-", 12) != 0);
    if (folder != NULL)
        closedir(folder);
    return found;
}

static struct job job_make(uint64_t round)
{
    uint64_t seed = round;
    struct job job = {.n = 2 + (int)(round / 2 % 3),
                      .timeout_ms = TIMEOUT_MS,
                      .seed = 5000 + round,
                      .recovers = true};

    job.victim = (int)random_below(&seed, (uint64_t)job.n);
    job.nth = 1 + random_below(&seed, MAX_CALLS);
    job.is_staged = round % 2 != 0;
    job.sleeps = round % 3 == 2;
    return job;
}

/*
 * On a machine that is busy a limit may pass before the rank is killed: then all end with 4, and it
 * is tried with longer ones.
 */
static struct result job_run_whole(struct job *job)
{
    struct result result = job_run(job);

    while (!job->sleeps && rank_ended(&result, job->victim, 4) &&
           job->timeout_ms < MAX_TIMEOUT_MS) {
        job->timeout_ms *= 4;
        result = job_run(job);
    }
    return result;
}

static void others_end(void **state)
{
    const struct scene_rounds rounds = scene_rounds(DEFAULT_ROUNDS);
    static char label[9000];

    (void)state;
    for (uint64_t round = rounds.first; round < rounds.first + rounds.n; round++) {
        struct job job = job_make(round);
        const struct result result = job_run_whole(&job);

        snprintf(label, sizeof label, "round %" PRIu64 ": rank %d of %d, call %" PRIu64 ": %s",
                 round, job.victim, job.n, job.nth, result.said);
        for (int r = 0; r < job.n; r++)
            CHECK(rank_ended(&result, r, r == job.victim && !job.sleeps ? 128 + SIGKILL : 4),
                  label);
        CHECK(!has_left_names(), label);
    }
}

static void launcher_ends_the_others(void **state)
{
    struct job job = {.n = 3, .victim = 1, .timeout_ms = TIMEOUT_MS, .nth = 60, .seed = 5001};
    const struct result result = job_run_whole(&job);

    (void)state;
    CHECK_EQ_INT(result.exit_code, 128 + SIGKILL, result.said);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(others_end, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(launcher_ends_the_others, scratch_setup, scratch_teardown),
    };

    if (system("mpirun --version >/dev/null 2>&1") != 0)
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* remap_ranks.c - one rank of an MPI job that remaps again and again until something happens to one
 * of them. test_remap_killed starts it. */
/*
 *     remap_ranks WHAT NTH VICTIM PATH SEED TIMEOUT_MS
 *
 * WHAT happens before the NTH call of the device or link of rank VICTIM: `kill`, or `sleep` for
 * longer than all waits. Ends with 4 and the message when the remap fails as it has to; with 1 and
 * what is wrong when it does not.
 */
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "tests/faulty_device.h"
#include "tests/remap_after.h"
#include "tests/remap_process.h"

#define N_RUNS 300

static struct {
    bool sleeps;
    uint64_t nth, n_calls;
    int victim, timeout_ms;
} fate;
static struct remap_process process;

static dcpk_status meet_fate(struct dcpk_error *err)
{
    const long ms = 4L * fate.timeout_ms;
    const struct timespec nap = {ms / 1000, ms % 1000 * 1000000};

    (void)err;
    if (process.self != fate.victim || ++fate.n_calls != fate.nth)
        return DCPK_OK;
    if (fate.sleeps)
        nanosleep(&nap, NULL);
    else
        (void)raise(SIGKILL);
    return DCPK_OK;
}

static int complain(const char *what)
{
    fprintf(stderr, "rank %d: %s\n", process.self, what);
    return 1;
}

/* Run until it fails; then sources and targets are looked at. */
static int check_end(const struct dcpk_remap *remap, dcpk_status st, const uint8_t *kept,
                     double waited, const struct dcpk_error *err)
{
    const struct remap_case *c = process.c;
    const size_t n_done = dcpk_remap_stats(remap)->units_done;
    uint8_t *marks = malloc(CASE_BYTES);
    size_t wrong;

    if (st != DCPK_EIO)
        return complain("no error, or another one");
    if (memcmp(kept, c->sides[0].memory[process.self], CASE_BYTES) != 0)
        return complain("sources have changed");
    /* another rank may have heard of the end of this unit, and begun the next one */
    wrong = after_check(c, dcpk_remap_plan(remap), process.self, n_done, 2, marks);
    if (wrong < CASE_BYTES)
        return complain("a byte of the targets is wrong");
    if (waited * 1000 > 5.0 * fate.timeout_ms + 3000 && process.self != fate.victim)
        return complain("it took too long");
    fprintf(stderr, "rank %d: %zu of %zu units, %.1f s: %s\n", process.self, n_done,
            dcpk_remap_plan(remap)->n_units, waited, err->text);
    free(marks);
    return 4;
}

static int remap_until_it_fails(const struct dcpk_remap_options *options)
{
    const struct remap_case *c = process.c;
    const struct dcpk_remap_shards mine = process_shards(&process);
    struct dcpk_error err = DCPK_ERROR_INIT;
    uint8_t *kept = malloc(CASE_BYTES);
    double begun = dcpk_now_seconds();
    struct dcpk_remap *remap;
    dcpk_status st;
    int end = 4;

    memcpy(kept, c->sides[0].memory[process.self], CASE_BYTES);
    memset(c->sides[1].memory[process.self], CASE_POISON, CASE_BYTES);
    st = dcpk_remap_new(options, &mine, &remap, &err);
    if (st == DCPK_OK) {
        for (int i = 0; i < N_RUNS && st == DCPK_OK; i++) {
            memset(c->sides[1].memory[process.self], CASE_POISON, CASE_BYTES);
            begun = dcpk_now_seconds();
            st = dcpk_remap_run(remap, NULL, NULL, &err);
        }
        end = check_end(remap, st, kept, dcpk_now_seconds() - begun, &err);
        dcpk_remap_free(remap);
    } else {
        fprintf(stderr, "rank %d: not begun: %s\n", process.self, err.text);
        if (st != DCPK_EIO || memcmp(kept, c->sides[0].memory[process.self], CASE_BYTES) != 0)
            end = complain("another error, or sources have changed");
    }
    free(kept);
    return end;
}

/* The same on all ranks; one with some tensors. */
static void make_case(uint64_t seed, int n_ranks)
{
    struct remap_case *c = process.c;

    case_make(c, seed, n_ranks);
    while (c->sides[1].n < 3 * (size_t)n_ranks) {
        case_release(c);
        case_make(c, seed += 1000, n_ranks);
    }
}

int main(int argc, char **argv)
{
    struct dcpk_remap_options options = {.staging_bytes = 1 << 14, .unit_bytes = 64};
    struct dcpk_error err = DCPK_ERROR_INIT;
    int end;

    if (argc != 7 || process_find_mpi() == NULL || dcpk_ranks_launched() < 2)
        return 77;
    fate.sleeps = strcmp(argv[1], "sleep") == 0;
    fate.victim = (int)strtol(argv[3], NULL, 10);
    fate.timeout_ms = (int)strtol(argv[6], NULL, 10);
    faulty_begin(meet_fate, process_find_mpi());
    if (process_begin(&process, &faulty_ops, &err))
        return complain(err.text);
    faulty_begin(meet_fate, process.link->ops); /* of the plug-in, which is loaded now */
    process.link->ops = &faulty_link_ops;
    make_case(strtoull(argv[5], NULL, 10), dcpk_ranks_count(process.ranks));
    fate.nth = strtoull(argv[2], NULL, 10);
    fate.n_calls = 0;
    options.path = strcmp(argv[4], "staged") == 0 ? DCPK_REMAP_STAGED : DCPK_REMAP_DIRECT;
    options.checks = fate.nth % 2 == 0;
    options.timeout_ms = fate.timeout_ms;
    options.ranks = process.ranks;
    options.device = process.device;
    options.link = process.link;
    end = remap_until_it_fails(&options);
    case_release(process.c);
    process_end(&process);
    (void)dcpk_ranks_leave(process.ranks, &err); /* fails where the others are not there */
    return end;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* test_ranks_prop.c - random jobs of several ranks, some of which fail somewhere, against a model
 * of who hears what. */
/*
 * A job is a row of phases, each a row of operations that all ranks do, with an agreement behind
 * them. A rank may fail at one operation of a phase, and goes on to its end then. The collective
 * calls cut a phase into parts: what a rank fails in, all hear at the end of that part.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/rank_threads.h"

#define DEFAULT_ROUNDS 100 /* DCPK_RANK_ROUNDS: others; the round's number is its seed */
#define MAX_RANKS      RANK_THREADS_MAX
#define MAX_PHASES     4
#define MAX_OPS        6
#define MAX_WORDS      8
#define MAX_SHARED     40
#define NEVER          -1

enum op { WORK, TELL, WAIT, SHARE, LEAST, SAME };

/* What each rank does in a phase. */
struct phase {
    int n_ops;
    enum op ops[MAX_OPS];
    uint64_t numbers[MAX_OPS][MAX_RANKS]; /* of LEAST, SAME; bytes of SHARE; words of TELL */
    int fails_at[MAX_RANKS];              /* an operation, or NEVER */
    dcpk_status fails_with[MAX_RANKS];
    bool tells_in_call; /* who fails at a SHARE says so in it, not at the end */
    bool calls_late;    /* who was told in a call makes another one before the end */
};

/* What came of a phase on one rank. */
struct outcome {
    int failed_in, stopped_in; /* part: by itself, because others failed; NEVER */
    int n_parts;               /* that ended well, without the last one */
    uint64_t n_told[MAX_OPS + 1];
    dcpk_status status;
    char text[200];
};

struct job {
    uint64_t seed;
    int n_ranks, n_phases;
    struct phase phases[MAX_PHASES];
    struct outcome outcomes[MAX_PHASES][MAX_RANKS];
    uint64_t last_word[MAX_RANKS]; /* that rank 0 has heard of each */
    uint64_t n_heard[MAX_PHASES][MAX_OPS + 1][MAX_RANKS];
    bool is_wrong[MAX_RANKS]; /* a result or a word was not what it should be */
};

/* ---- random jobs ---- */

/* Waiting takes time: much of it in one job of forty. */
static enum op draw_op(const struct job *job, uint64_t *seed)
{
    static const enum op ops[] = {WORK,  WORK,  WORK,  TELL,  TELL, TELL,
                                  SHARE, SHARE, SHARE, LEAST, SAME, SAME};

    return random_below(seed, job->seed % 40 == 7 ? 3 : 64) == 0
               ? WAIT
               : ops[random_below(seed, sizeof ops / sizeof *ops)];
}

static void draw_numbers(struct job *job, enum op op, uint64_t *numbers, uint64_t *seed)
{
    const uint64_t limit = op == SHARE ? MAX_SHARED : op == TELL ? MAX_WORDS : 1000;
    const bool alike = op == SAME && random_below(seed, 8) != 0;

    for (int r = 0; r < job->n_ranks; r++)
        numbers[r] = alike && r > 0 ? numbers[0] : random_below(seed, limit);
}

static void draw_phase(struct job *job, struct phase *phase, uint64_t *seed)
{
    static const dcpk_status ways[] = {DCPK_EIO, DCPK_EFORMAT, DCPK_ENOMEM, DCPK_ECANCELLED};
    const uint64_t one_in = 1 + random_below(seed, 3) * 2; /* fails: all, or few */
    const bool may_fail = random_below(seed, 4) != 0;

    phase->n_ops = (int)random_below(seed, MAX_OPS + 1);
    for (int i = 0; i < phase->n_ops; i++) {
        phase->ops[i] = draw_op(job, seed);
        draw_numbers(job, phase->ops[i], phase->numbers[i], seed);
    }
    for (int r = 0; r < job->n_ranks; r++) {
        const bool fails = may_fail && random_below(seed, one_in) == 0;

        phase->fails_at[r] = fails ? (int)random_below(seed, (uint64_t)phase->n_ops + 1) : NEVER;
        phase->fails_with[r] = ways[random_below(seed, sizeof ways / sizeof *ways)];
    }
    phase->tells_in_call = random_below(seed, 2) == 0;
    phase->calls_late = random_below(seed, 2) == 0;
}

static void draw_job(struct job *job, uint64_t seed)
{
    uint64_t state = seed;

    memset(job, 0, sizeof *job);
    job->seed = seed;
    job->n_ranks = 2 + (int)random_below(&state, MAX_RANKS - 1);
    job->n_phases = 1 + (int)random_below(&state, MAX_PHASES);
    for (int p = 0; p < job->n_phases; p++)
        draw_phase(job, &job->phases[p], &state);
}

static bool is_call(enum op op)
{
    return op == SHARE || op == LEAST || op == SAME;
}

/* ---- what a rank does ---- */

/* A rank at its work. */
struct worker {
    struct job *job;
    struct dcpk_ranks *ranks;
    int self, phase, part;
    uint64_t n_words;
    struct dcpk_progress progress;
    struct dcpk_error err;
};

static uint64_t word_of(int rank, int phase, int part, uint64_t number)
{
    return (uint64_t)rank << 48 | (uint64_t)phase << 40 | (uint64_t)part << 32 | number;
}

/* On rank 0: words of one rank come in their order, and none is missed. */
static void hear(void *context, uint64_t word)
{
    struct worker *w = context;
    const int rank = (int)(word >> 48);
    const uint64_t number = word & UINT32_MAX;

    if (rank <= 0 || rank >= w->job->n_ranks || number != w->job->last_word[rank] + 1 ||
        word != word_of(rank, w->phase, w->part, number)) {
        w->job->is_wrong[0] = true;
        return;
    }
    w->job->last_word[rank] = number;
    w->job->n_heard[w->phase][w->part][rank]++;
}

static void begin_part(struct worker *w)
{
    w->progress = dcpk_ranks_progress(w->ranks, (struct dcpk_progress){0}, 1000);
    dcpk_ranks_listen(w->ranks, hear, w);
}

static dcpk_status stop(struct worker *w)
{
    w->job->outcomes[w->phase][w->self].stopped_in = w->part;
    return w->err.status == DCPK_ECANCELLED
               ? DCPK_ECANCELLED
               : dcpk_fail(&w->err, DCPK_ECANCELLED, "stopped on request");
}

static dcpk_status work(struct worker *w)
{
    for (uint64_t i = 0; i < 4; i++)
        if (!w->progress.update(w->progress.context, i, 1000))
            return stop(w);
    return DCPK_OK;
}

static dcpk_status tell(struct worker *w, uint64_t n)
{
    for (uint64_t i = 0; i < n && w->self != 0; i++) {
        const uint64_t word = word_of(w->self, w->phase, w->part, ++w->n_words);

        if (dcpk_ranks_send(w->ranks, word, &w->err) != DCPK_OK)
            return w->err.status;
        w->job->outcomes[w->phase][w->self].n_told[w->part]++;
    }
    return DCPK_OK;
}

/* Bytes of rank r that distinguish it from others. */
static void fill(uint8_t *bytes, int r, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)((uint64_t)r * 50 + i);
}

static dcpk_status share(struct worker *w, const uint64_t *numbers, dcpk_status st)
{
    uint8_t bytes[MAX_RANKS * MAX_SHARED];
    struct dcpk_bytes all = {0};
    uint64_t n = 0;

    fill(bytes, w->self, numbers[w->self]);
    st = dcpk_ranks_share(w->ranks, bytes, (size_t)numbers[w->self], &all, st, &w->err);
    for (int r = 0; r < w->job->n_ranks; n += numbers[r++])
        fill(bytes + n, r, numbers[r]);
    if (st == DCPK_OK && (all.n_bytes != n || (n > 0 && memcmp(all.data, bytes, (size_t)n) != 0)))
        w->job->is_wrong[w->self] = true;
    dcpk_bytes_release(&all);
    return st;
}

static dcpk_status find_least(struct worker *w, const uint64_t *numbers)
{
    uint64_t got = numbers[w->self], least = got;
    const dcpk_status st = dcpk_ranks_least(w->ranks, &got, &w->err);

    for (int r = 0; r < w->job->n_ranks; r++)
        least = numbers[r] < least ? numbers[r] : least;
    if (st == DCPK_OK && got != least)
        w->job->is_wrong[w->self] = true;
    return st;
}

/* Has rank 0 heard what all others had to tell in this part before operation i? */
static bool has_heard_all(const struct worker *w, const struct phase *phase, int i)
{
    uint64_t n[MAX_RANKS] = {0};
    bool all = true;

    for (int j = i; j-- > 0 && !is_call(phase->ops[j]);)
        for (int r = 1; r < w->job->n_ranks && phase->ops[j] == TELL; r++)
            n[r] += phase->numbers[j][r];
    for (int r = 1; r < w->job->n_ranks; r++)
        all = all && w->job->n_heard[w->phase][w->part][r] >= n[r];
    return all;
}

static dcpk_status do_op(struct worker *w, const struct phase *phase, int i)
{
    const uint64_t *numbers = phase->numbers[i];
    dcpk_status st;

    switch (phase->ops[i]) {
    case WORK:
        return work(w);
    case TELL:
        return tell(w, numbers[w->self]);
    case WAIT:
        st = dcpk_ranks_wait(w->ranks, NULL, NULL, &w->err);
        if (st == DCPK_OK && w->self == 0 && !has_heard_all(w, phase, i))
            w->job->is_wrong[0] = true;
        return st == DCPK_ECANCELLED ? stop(w) : st;
    case SHARE:
        return share(w, numbers, DCPK_OK);
    case LEAST:
        return find_least(w, numbers);
    case SAME:
        return dcpk_ranks_check_same(w->ranks, numbers[w->self], "number", &w->err);
    }
    return DCPK_OK;
}

/* This rank fails by itself at operation i. */
static dcpk_status fail_here(struct worker *w, const struct phase *phase, int i)
{
    const dcpk_status st = phase->fails_with[w->self];

    w->job->outcomes[w->phase][w->self].failed_in = w->part;
    dcpk_fail(&w->err, st, "rank %d fails in phase %d", w->self, w->phase);
    return i < phase->n_ops && phase->ops[i] == SHARE && phase->tells_in_call
               ? share(w, phase->numbers[i], st)
               : st;
}

/* Was this rank told in a call, so that it may make others until the end? */
static bool was_told(const struct worker *w, const struct phase *phase, int i)
{
    const struct outcome *o = &w->job->outcomes[w->phase][w->self];

    if (o->failed_in != NEVER)
        return i < phase->n_ops && phase->ops[i] == SHARE && phase->tells_in_call;
    return o->stopped_in == NEVER && i < phase->n_ops && is_call(phase->ops[i]);
}

static void do_phase(struct worker *w)
{
    static const uint64_t one[MAX_RANKS] = {1, 1, 1, 1, 1, 1};
    const struct phase *phase = &w->job->phases[w->phase];
    struct outcome *o = &w->job->outcomes[w->phase][w->self];
    dcpk_status st = DCPK_OK;
    int i;

    dcpk_error_clear(&w->err);
    w->part = 0;
    o->failed_in = o->stopped_in = NEVER;
    begin_part(w);
    for (i = 0; i <= phase->n_ops; i++) {
        if (phase->fails_at[w->self] == i)
            st = fail_here(w, phase, i);
        else if (i < phase->n_ops)
            st = do_op(w, phase, i);
        if (st != DCPK_OK)
            break;
        if (i < phase->n_ops && is_call(phase->ops[i])) {
            w->part++;
            begin_part(w);
        }
    }
    o->n_parts = w->part;
    if (st != DCPK_OK && phase->calls_late && was_told(w, phase, i))
        w->job->is_wrong[w->self] |= share(w, one, st) != w->err.status;
    o->status = dcpk_ranks_agree(w->ranks, st, &w->err);
    snprintf(o->text, sizeof o->text, "%s", w->err.text);
}

static void do_job(struct dcpk_ranks *ranks, int self, void *context)
{
    struct worker w = {.job = context, .ranks = ranks, .self = self};

    for (w.phase = 0; w.phase < w.job->n_phases; w.phase++)
        do_phase(&w);
}

/* ---- what should have come of it ---- */

/* The part that operation i is in; that of n_ops is the last. */
static int part_of(const struct phase *phase, int i)
{
    int part = 0;

    for (int j = 0; j < i; j++)
        part += is_call(phase->ops[j]);
    return part;
}

/* The operation that ends a part; n_ops for the last. */
static int end_of(const struct phase *phase, int part)
{
    int i = 0;

    while (i < phase->n_ops && !(is_call(phase->ops[i]) && part-- == 0))
        i++;
    return i;
}

/* The first rank whose number is not that of rank 0; 0 when there is none. */
static int find_other(const struct job *job, const uint64_t *numbers)
{
    for (int r = 1; r < job->n_ranks; r++)
        if (numbers[r] != numbers[0])
            return r;
    return 0;
}

/* What one that failed in a part may be heard to say: `text` and where it was. */
static bool is_told_by(const struct job *job, int p, int r, bool all_failed,
                       const struct outcome *o)
{
    char bare[100], named[200];

    snprintf(bare, sizeof bare, "rank %d fails in phase %d", r, p);
    snprintf(named, sizeof named, "rank %d of %d: %s", r, job->n_ranks, bare);
    return o->status == job->phases[p].fails_with[r] &&
           (strcmp(o->text, named) == 0 || (all_failed && strcmp(o->text, bare) == 0));
}

/*
 * All heard the same, of the lowest rank that failed in this part by more than an interruption. An
 * interrupted rank says so unless it has heard of others before; which one does, chance decides.
 */
static void check_failure(const struct job *job, int p, int part, const char *label)
{
    const struct outcome *o = job->outcomes[p];
    bool all_failed = true, has_real = false, is_right = false;

    for (int r = 0; r < job->n_ranks; r++) {
        all_failed = all_failed && o[r].failed_in == part;
        has_real =
            has_real || (o[r].failed_in == part && job->phases[p].fails_with[r] != DCPK_ECANCELLED);
    }
    for (int r = 0; r < job->n_ranks; r++) {
        const bool is_real = job->phases[p].fails_with[r] != DCPK_ECANCELLED;

        if (o[r].failed_in != part || (has_real && !is_real))
            continue;
        is_right = is_right || is_told_by(job, p, r, all_failed, &o[0]);
        if (has_real)
            break;
    }
    CHECK(is_right, label);
}

/* The ranks that came to the end of a part did not fail before; returns whether one fails in it. */
static bool check_part(const struct job *job, int p, int part, const char *label)
{
    bool one_fails = false, one_stops = false;

    for (int r = 0; r < job->n_ranks; r++) {
        const struct outcome *o = &job->outcomes[p][r];
        const int at = job->phases[p].fails_at[r];
        const bool is_due = at != NEVER && part_of(&job->phases[p], at) == part;

        CHECK(o->n_parts >= part, label);
        CHECK(o->failed_in != part || is_due, label);
        CHECK(!is_due || o->failed_in == part || o->stopped_in == part, label);
        one_fails = one_fails || o->failed_in == part;
        one_stops = one_stops || o->stopped_in == part;
    }
    CHECK(one_fails || !one_stops, label);
    return one_fails;
}

/* Ends well, or with the part that did not. */
static void check_phase(const struct job *job, int p, const char *label)
{
    const struct phase *phase = &job->phases[p];
    const struct outcome *first = &job->outcomes[p][0];
    const int last = part_of(phase, phase->n_ops);
    bool fails = false, differs = false;
    int part, other = 0;

    for (part = 0; part <= last; part++) {
        const int end = end_of(phase, part);

        fails = check_part(job, p, part, label);
        if (!fails && part < last && phase->ops[end] == SAME)
            other = find_other(job, phase->numbers[end]);
        differs = other > 0;
        if (fails || differs)
            break;
    }
    for (int r = 0; r < job->n_ranks; r++) {
        CHECK_EQ_INT(job->outcomes[p][r].n_parts, part > last ? last : part, label);
        CHECK_EQ_INT(job->outcomes[p][r].status, first->status, label);
        CHECK_EQ_STR(job->outcomes[p][r].text, first->text, label);
    }
    if (fails) {
        check_failure(job, p, part, label);
    } else if (differs) {
        char text[100];

        snprintf(text, sizeof text, "ranks 0 and %d of %d do not see the same number", other,
                 job->n_ranks);
        CHECK_EQ_INT(first->status, DCPK_EIO, label);
        CHECK(strncmp(first->text, text, strlen(text)) == 0, label);
    } else {
        CHECK_EQ_INT(first->status, DCPK_OK, label);
    }
}

static void test_random(void **state)
{
    static struct job job;
    const char *wanted = getenv("DCPK_RANK_ROUNDS");
    const uint64_t n_rounds = wanted == NULL ? DEFAULT_ROUNDS : strtoull(wanted, NULL, 10);
    char label[64];

    (void)state;
    for (uint64_t seed = 1; seed <= n_rounds; seed++) {
        draw_job(&job, seed);
        rank_threads_begin(job.n_ranks, seed);
        snprintf(label, sizeof label, "seed %" PRIu64, seed);
        rank_threads_run(do_job, &job, label);
        for (int p = 0; p < job.n_phases; p++) {
            snprintf(label, sizeof label, "seed %" PRIu64 ", phase %d", seed, p);
            check_phase(&job, p, label);
            for (int part = 0; part <= MAX_OPS; part++)
                for (int r = 1; r < job.n_ranks; r++)
                    CHECK_EQ_INT(job.n_heard[p][part][r], job.outcomes[p][r].n_told[part], label);
        }
        for (int r = 0; r < job.n_ranks; r++)
            CHECK(!job.is_wrong[r], label);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random)};

    unsetenv("OMPI_COMM_WORLD_SIZE");
    unsetenv("SLURM_STEP_NUM_TASKS");
    unsetenv("DCPKIT_ALONE");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* test_ranks.c - what ranks send one another, over a transport of threads. */
#include <stdlib.h>

#include "tests/rank_threads.h"

#define N 4

/* What a rank does, and what came of it. */
struct rank {
    int self;
    void (*script)(struct dcpk_ranks *ranks, struct rank *rank);
    const void *of_case;
    struct dcpk_error err;
    dcpk_status status, late, second;
    struct dcpk_bytes shared;
    uint64_t shown_bytes, shown_total, told;
    int n_ticks;
    bool went_on;
};
static struct rank results[N];

static void run_rank(struct dcpk_ranks *ranks, int self, void *context)
{
    struct rank *rank = &results[self];

    (void)context;
    rank->script(ranks, rank);
}

static void begin_script(void (*script)(struct dcpk_ranks *, struct rank *), const void *of_case)
{
    rank_threads_begin(N, 0);
    for (int r = 0; r < N; r++)
        results[r] = (struct rank){.self = r, .script = script, .of_case = of_case};
}

/* Messages of slow_rank to rank 0 arrive once others have sent it n_before. */
static void run_slow_script(void (*script)(struct dcpk_ranks *, struct rank *), const void *of_case,
                            int slow_rank, int n_before)
{
    begin_script(script, of_case);
    rank_job.slow_rank = slow_rank;
    rank_job.n_before = n_before;
    rank_threads_run(run_rank, NULL, "a job of threads");
}

static void run_script(void (*script)(struct dcpk_ranks *, struct rank *), const void *of_case)
{
    run_slow_script(script, of_case, 0, 0);
}

static const struct agree_case {
    const char *label;
    dcpk_status fails[N];
    dcpk_status status;
    char text[32];
} agree_cases[] = {
    {"all is well", .status = DCPK_OK},
    {"one fails", .fails = {0, 0, DCPK_EIO}, .status = DCPK_EIO,
     .text = "rank 2 of 4: failed by itself"},
    {"the lowest is told", .fails = {0, DCPK_EFORMAT, 0, DCPK_EIO}, .status = DCPK_EFORMAT,
     .text = "rank 1 of 4: failed by itself"},
    {"all fail", .fails = {DCPK_ENOMEM, DCPK_EIO, DCPK_EIO, DCPK_EIO}, .status = DCPK_ENOMEM,
     .text = "failed by itself"},
    {"an interrupted one is told last", .fails = {DCPK_ECANCELLED, 0, 0, DCPK_EIO},
     .status = DCPK_EIO, .text = "rank 3 of 4: failed by itself"},
    {"interrupted", .fails = {DCPK_ECANCELLED, DCPK_ECANCELLED, DCPK_ECANCELLED, DCPK_ECANCELLED},
     .status = DCPK_ECANCELLED, .text = "failed by itself"},
};

static void script_agree(struct dcpk_ranks *ranks, struct rank *rank)
{
    const struct agree_case *c = rank->of_case;
    const dcpk_status fails = c->fails[rank->self];

    if (fails != DCPK_OK)
        dcpk_fail(&rank->err, fails, "failed by itself");
    rank->status = dcpk_ranks_agree(ranks, fails, &rank->err);
    rank->second = dcpk_ranks_agree(ranks, DCPK_OK, &rank->err); /* what failed once is over */
}

static void test_agree(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof agree_cases / sizeof *agree_cases; c++) {
        run_script(script_agree, &agree_cases[c]);
        for (int r = 0; r < N; r++) {
            CHECK_EQ_INT(results[r].status, agree_cases[c].status, agree_cases[c].label);
            CHECK_EQ_STR(results[r].err.text, agree_cases[c].text, agree_cases[c].label);
            CHECK_EQ_INT(results[r].second, DCPK_OK, agree_cases[c].label);
        }
    }
}

static bool show(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    struct rank *rank = context;

    rank->shown_bytes = done_bytes;
    rank->shown_total = total_bytes;
    return true;
}

/* Rank 1 fails; the others work until they hear of it. */
static void script_stop(struct dcpk_ranks *ranks, struct rank *rank)
{
    const struct dcpk_progress progress =
        dcpk_ranks_progress(ranks, (struct dcpk_progress){.update = show, .context = rank}, 400);
    dcpk_status st = DCPK_OK;

    if (rank->self == 1)
        st = dcpk_fail(&rank->err, DCPK_EIO, "no space");
    else
        while (progress.update(progress.context, 1, 100))
            sched_yield();
    if (rank->self != 1)
        st = dcpk_fail(&rank->err, DCPK_ECANCELLED, "stopped on request");
    rank->status = dcpk_ranks_agree(ranks, st, &rank->err);
    rank->went_on = progress.update(progress.context, 2, 100);
    rank->second = dcpk_ranks_agree(ranks, DCPK_OK, &rank->err);
}

static void test_stop(void **state)
{
    (void)state;
    run_script(script_stop, NULL);
    for (int r = 0; r < N; r++) {
        CHECK_EQ_INT(results[r].status, DCPK_EIO, "a rank fails");
        CHECK_EQ_STR(results[r].err.text, "rank 1 of 4: no space", "a rank fails");
        CHECK(results[r].went_on, "the next phase");
        CHECK_EQ_INT(results[r].second, DCPK_OK, "the next phase");
    }
}

/* Rank r is at 10 * (r + 1) bytes; rank 0 looks when all have said so. */
static void script_progress(struct dcpk_ranks *ranks, struct rank *rank)
{
    const struct dcpk_progress progress =
        dcpk_ranks_progress(ranks, (struct dcpk_progress){.update = show, .context = rank}, 400);

    if (rank->self != 0)
        progress.update(progress.context, 10 * (uint64_t)(rank->self + 1), 100);
    else
        while (rank->shown_bytes < 100)
            progress.update(progress.context, 10, 100);
    rank->status = dcpk_ranks_agree(ranks, DCPK_OK, &rank->err);
}

static void test_progress(void **state)
{
    (void)state;
    run_script(script_progress, NULL);
    CHECK_EQ_INT(results[0].shown_bytes, 100, "rank 0 shows the bytes of all");
    CHECK_EQ_INT(results[0].shown_total, 400, "rank 0 shows the bytes of all");
    for (int r = 1; r < N; r++) {
        CHECK_EQ_INT(results[r].shown_bytes, 10 * (r + 1), "the others their own");
        CHECK_EQ_INT(results[r].status, DCPK_OK, "the others their own");
    }
}

static void add_told(void *context, uint64_t word)
{
    struct rank *rank = context;

    rank->told += word;
}

static dcpk_status count_tick(void *context, struct dcpk_error *err)
{
    struct rank *rank = context;

    (void)err;
    rank->n_ticks++;
    return DCPK_OK;
}

/* The others tell 2^r and are done; rank 0 hears of all of it before it goes on. */
static void script_tell(struct dcpk_ranks *ranks, struct rank *rank)
{
    dcpk_ranks_progress(ranks, (struct dcpk_progress){.update = show, .context = rank}, 400);
    dcpk_ranks_listen(ranks, add_told, rank);
    rank->status = DCPK_OK;
    if (rank->self != 0)
        rank->status = dcpk_ranks_send(ranks, UINT64_C(1) << rank->self, &rank->err);
    if (rank->status == DCPK_OK)
        rank->status = dcpk_ranks_wait(ranks, count_tick, rank, &rank->err);
    rank->shown_bytes = rank->told; /* by then */
    rank->second = dcpk_ranks_agree(ranks, rank->status, &rank->err);
}

static void test_tell(void **state)
{
    (void)state;
    run_script(script_tell, NULL);
    for (int r = 0; r < N; r++) {
        CHECK_EQ_INT(results[r].second, DCPK_OK, "all are done");
        CHECK_EQ_INT(results[r].shown_bytes, r == 0 ? 2 + 4 + 8 : 0, "rank 0 is told");
    }
    CHECK(results[0].n_ticks > 0, "it had to wait, or looked once");
}

/* Rank 2 fails while rank 0 waits for it. */
static void script_wait_in_vain(struct dcpk_ranks *ranks, struct rank *rank)
{
    dcpk_status st;

    dcpk_ranks_progress(ranks, (struct dcpk_progress){.update = show, .context = rank}, 400);
    if (rank->self == 2)
        st = dcpk_fail(&rank->err, DCPK_EFORMAT, "bad bytes");
    else
        st = dcpk_ranks_wait(ranks, NULL, NULL, &rank->err);
    rank->status = dcpk_ranks_agree(ranks, st, &rank->err);
}

static void test_wait_in_vain(void **state)
{
    (void)state;
    run_script(script_wait_in_vain, NULL);
    for (int r = 0; r < N; r++) {
        CHECK_EQ_INT(results[r].status, DCPK_EFORMAT, "a rank fails");
        CHECK_EQ_STR(results[r].err.text, "rank 2 of 4: bad bytes", "a rank fails");
    }
}

/*
 * Rank 2 says how far it is and rank 1 fails. Having told so, rank 1 goes on and fails again before
 * rank 0 has heard rank 2: that failure belongs to the second agreement.
 */
static void script_overtake(struct dcpk_ranks *ranks, struct rank *rank)
{
    const struct dcpk_progress progress =
        dcpk_ranks_progress(ranks, (struct dcpk_progress){.update = show, .context = rank}, 400);
    dcpk_status st = DCPK_OK;

    if (rank->self == 2)
        progress.update(progress.context, 1, 100);
    if (rank->self == 1)
        st = dcpk_fail(&rank->err, DCPK_EIO, "no space");
    rank->status = dcpk_ranks_agree(ranks, st, &rank->err);
    st = DCPK_OK;
    if (rank->self == 1)
        st = dcpk_fail(&rank->err, DCPK_EFORMAT, "bad bytes");
    rank->second = dcpk_ranks_agree(ranks, st, &rank->err);
}

static void test_overtake(void **state)
{
    (void)state;
    run_slow_script(script_overtake, NULL, 2, 2);
    for (int r = 0; r < N; r++) {
        CHECK_EQ_INT(results[r].status, DCPK_EIO, "the first failure");
        CHECK_EQ_INT(results[r].second, DCPK_EFORMAT, "the second");
        CHECK_EQ_STR(results[r].err.text, "rank 1 of 4: bad bytes", "the second");
    }
}

/* Rank r gives r letters. */
static void script_share(struct dcpk_ranks *ranks, struct rank *rank)
{
    static const char *const texts[N] = {"", "b", "cc", "ddd"};
    const char *text = texts[rank->self];

    rank->status = dcpk_ranks_share(ranks, text, strlen(text), &rank->shared, DCPK_OK, &rank->err);
    rank->second = dcpk_ranks_check_same(ranks, rank->self == 2, "input", &rank->err);
}

static void test_share(void **state)
{
    (void)state;
    run_script(script_share, NULL);
    for (int r = 0; r < N; r++) {
        CHECK_EQ_INT(results[r].status, DCPK_OK, "share");
        CHECK_EQ_INT(results[r].shared.n_bytes, 6, "share");
        CHECK(memcmp(results[r].shared.data, "bccddd", 6) == 0, "share");
        CHECK_EQ_INT(results[r].second, DCPK_EIO, "check_same");
        CHECK(strncmp(results[r].err.text, "ranks 0 and 2 of 4 do not see the same input", 44) == 0,
              "check_same");
        dcpk_bytes_release(&results[r].shared);
    }
}

/* Steps inside the work, and the one that a rank fails in: before the first, in the second, ... */
static const struct inside_case {
    const char *label;
    int fails_at; /* 0: before all; 1, 2: with the share; 3: after all */
} inside_cases[] = {
    {"before", 0}, {"in the first share", 1}, {"in the second", 2}, {"after", 3}, {"never", 4},
};

/* Rank 1 fails at a step of the work, and goes past what follows in it. */
static void script_inside(struct dcpk_ranks *ranks, struct rank *rank)
{
    const struct inside_case *c = rank->of_case;
    const int fails_at = rank->self == 1 ? c->fails_at : 4;
    const uint8_t mine = (uint8_t)rank->self;
    dcpk_status st = DCPK_OK;

    rank->told = (uint64_t)rank->self + 3;
    for (int step = 0; step < 4 && st == DCPK_OK; step++) {
        if (step == fails_at)
            st = dcpk_fail(&rank->err, DCPK_EIO, "failed by itself");
        if (step == 1 || step == 2)
            st = dcpk_ranks_share(ranks, &mine, 1, &rank->shared, st, &rank->err);
        if (step == 2 && st == DCPK_OK)
            st = dcpk_ranks_least(ranks, &rank->told, &rank->err);
    }
    /* whoever was told hears the same again, and disturbs nobody */
    rank->late = st;
    if (st != DCPK_OK && (rank->self != 1 || c->fails_at == 1 || c->fails_at == 2))
        rank->late = dcpk_ranks_share(ranks, &mine, 1, &rank->shared, st, &rank->err);
    rank->status = dcpk_ranks_agree(ranks, st, &rank->err);
    rank->second = dcpk_ranks_share(ranks, &mine, 1, &rank->shared, DCPK_OK, &rank->err);
}

static void test_inside(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof inside_cases / sizeof *inside_cases; i++) {
        const struct inside_case *c = &inside_cases[i];

        run_script(script_inside, c);
        for (int r = 0; r < N; r++) {
            CHECK_EQ_INT(results[r].status, c->fails_at < 4 ? DCPK_EIO : DCPK_OK, c->label);
            CHECK_EQ_INT(results[r].late == DCPK_OK,
                         c->fails_at == 4 || (c->fails_at == 3 && r != 1), c->label);
            CHECK_EQ_STR(results[r].err.text,
                         c->fails_at < 4 ? "rank 1 of 4: failed by itself" : "", c->label);
            CHECK_EQ_INT(results[r].told, c->fails_at < 3 ? r + 3 : 3, c->label);
            CHECK_EQ_INT(results[r].second, DCPK_OK, c->label); /* the next work */
            CHECK(results[r].shared.n_bytes % N == 0, c->label);
            dcpk_bytes_release(&results[r].shared);
        }
    }
}

/* Rank 1 leaves while the others go on, or makes another call. */
static const struct apart_case {
    const char *label;
    bool leaves;
} apart_cases[] = {{"one leaves", true}, {"one does something else", false}};

static void script_apart(struct dcpk_ranks *ranks, struct rank *rank)
{
    const struct apart_case *c = rank->of_case;
    uint64_t number = 3;

    rank->status = DCPK_OK;
    if (rank->self == 1 && c->leaves)
        return;
    if (rank->self == 1)
        rank->status = dcpk_ranks_agree(ranks, DCPK_OK, &rank->err);
    else
        rank->status = dcpk_ranks_least(ranks, &number, &rank->err);
    rank->second = dcpk_ranks_agree(ranks, rank->status, &rank->err);
}

static void test_apart(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof apart_cases / sizeof *apart_cases; i++) {
        const struct apart_case *c = &apart_cases[i];

        begin_script(script_apart, c);
        rank_threads_run(run_rank, NULL, c->label);
        for (int r = 0; r < N; r++) {
            const bool goes_on = r != 1 || !c->leaves;

            CHECK_EQ_INT(results[r].status, goes_on ? DCPK_EIO : DCPK_OK, c->label);
            CHECK_EQ_INT(results[r].second, goes_on ? DCPK_EIO : DCPK_OK, c->label);
            CHECK_EQ_STR(results[r].err.text,
                         goes_on ? "4 ranks do not do the same (please report this)" : "",
                         c->label);
        }
    }
}

/* One bit of what rank 2 sends arrives otherwise on rank 0: in a vote, in what it shares. */
static struct {
    uint64_t gather; /* whose number; UINT64_MAX: none */
    size_t bit;
    int root; /* whose broadcast; -1: none */
} flip;

static dcpk_status flip_gather(struct dcpk_comm *comm, const void *mine, size_t n_bytes, void *all,
                               struct dcpk_error *err)
{
    const uint64_t number = ((struct rank_comm *)comm)->n_gathered;
    const dcpk_status st = rank_all_gather(comm, mine, n_bytes, all, err);

    if (st == DCPK_OK && comm->rank == 0 && number == flip.gather)
        ((uint8_t *)all)[2 * n_bytes + flip.bit / 8 % n_bytes] ^= (uint8_t)(1u << flip.bit % 8);
    return st;
}

static dcpk_status flip_broadcast(struct dcpk_comm *comm, int root, void *data, size_t n_bytes,
                                  struct dcpk_error *err)
{
    const dcpk_status st = rank_broadcast(comm, root, data, n_bytes, err);

    if (st == DCPK_OK && comm->rank == 0 && root == flip.root)
        ((uint8_t *)data)[flip.bit / 8 % n_bytes] ^= (uint8_t)(1u << flip.bit % 8);
    return st;
}

static void run_flipped(void (*script)(struct dcpk_ranks *, struct rank *), const char *label)
{
    char text[64];

    begin_script(script, NULL);
    rank_job.all_gather = flip_gather;
    rank_job.broadcast = flip_broadcast;
    rank_threads_try(run_rank, NULL);
    snprintf(text, sizeof text, "%s, bit %zu", label, flip.bit);
    CHECK_EQ_INT(results[0].status, DCPK_EIO, text);
    CHECK(strstr(results[0].err.text, "rank 2") != NULL, text);
    CHECK(!rank_job.is_late, text);
}

static void script_flipped(struct dcpk_ranks *ranks, struct rank *rank)
{
    rank->status = dcpk_ranks_share(ranks, "share", 5, &rank->shared, DCPK_OK, &rank->err);
    rank->second = dcpk_ranks_agree(ranks, rank->status, &rank->err);
    dcpk_bytes_release(&rank->shared);
}

/* Rank 2 fails, and its error arrives without its end or with another status. */
static void script_failed(struct dcpk_ranks *ranks, struct rank *rank)
{
    if (rank->self == 2) {
        dcpk_fail(&rank->err, DCPK_EFORMAT, "failed by itself");
        memset(rank->err.text + strlen(rank->err.text) + 1, 'x', 1024);
    }
    rank->status = dcpk_ranks_agree(ranks, rank->err.status, &rank->err);
    rank->second = DCPK_OK;
}

static void test_flipped(void **state)
{
    (void)state;
    flip.root = -1;
    for (flip.gather = 0; flip.gather < 2; flip.gather++)
        for (flip.bit = 0; flip.bit < 256; flip.bit++)
            run_flipped(script_flipped, flip.gather == 0 ? "first vote" : "second vote");
    flip.gather = UINT64_MAX;
    flip.root = 2;
    for (flip.bit = 0; flip.bit < 40; flip.bit++)
        run_flipped(script_flipped, "what is shared");
    for (flip.bit = 0; flip.bit < 32; flip.bit++)
        run_flipped(script_failed, "a status");
}

/* Sums, the most and rank 0's bytes; a rank that fails leaves the numbers of all as they were. */
static void script_folded(struct dcpk_ranks *ranks, struct rank *rank)
{
    const uint64_t self = (uint64_t)rank->self;
    uint64_t sums[] = {self, 1, UINT64_C(1) << 40}, most[] = {self, 7 - self}, kept = 9;
    int first = 5 + rank->self;
    dcpk_status st = DCPK_OK;

    rank->status = dcpk_ranks_sum(ranks, sums, 3, DCPK_OK, &rank->err);
    rank->second = dcpk_ranks_most(ranks, most, 2, DCPK_OK, &rank->err);
    rank->late = dcpk_ranks_first(ranks, &first, sizeof first, DCPK_OK, &rank->err);
    CHECK(sums[0] == 6 && sums[1] == N && sums[2] == (uint64_t)N << 40, "sums");
    CHECK(most[0] == 3 && most[1] == 7, "most");
    CHECK_EQ_INT(first, 5, "of rank 0");
    if (rank->self == 1)
        st = dcpk_fail(&rank->err, DCPK_EIO, "failed by itself");
    st = dcpk_ranks_sum(ranks, &kept, 1, st, &rank->err);
    CHECK_EQ_INT(st, DCPK_EIO, "a rank has failed");
    CHECK_EQ_INT(kept, 9, "numbers of a failure");
    (void)dcpk_ranks_agree(ranks, st, &rank->err);
}

static void test_folded(void **state)
{
    uint64_t number = 4;
    struct dcpk_error err = DCPK_ERROR_INIT;

    (void)state;
    run_script(script_folded, NULL);
    for (int r = 0; r < N; r++) {
        CHECK_EQ_INT(results[r].status, DCPK_OK, "sum");
        CHECK_EQ_INT(results[r].second, DCPK_OK, "most");
        CHECK_EQ_INT(results[r].late, DCPK_OK, "first");
    }
    CHECK_OK(dcpk_ranks_sum(NULL, &number, 1, DCPK_OK, &err), "alone");
    CHECK_EQ_INT(number, 4, "alone");
}

/* Rank 2 shares more than the others. */
static void script_uneven(struct dcpk_ranks *ranks, struct rank *rank)
{
    const size_t n_bytes = rank->self == 2 ? 7 : 5;

    rank->status =
        dcpk_ranks_share_each(ranks, "uneven", n_bytes, &rank->shared, DCPK_OK, &rank->err);
    rank->second = dcpk_ranks_agree(ranks, rank->status, &rank->err);
    rank->late = dcpk_ranks_share_each(ranks, "even", 4, &rank->shared, DCPK_OK, &rank->err);
    dcpk_bytes_release(&rank->shared);
}

static void test_uneven(void **state)
{
    (void)state;
    run_script(script_uneven, NULL);
    for (int r = 0; r < N; r++) {
        CHECK_EQ_INT(results[r].status, DCPK_EIO, "sizes differ");
        CHECK_EQ_INT(results[r].second, DCPK_EIO, "sizes differ");
        CHECK_EQ_INT(results[r].late, DCPK_OK, "the next work");
    }
}

/* The network breaks on rank 2 alone, which tells why and leaves without the others. */
static void script_broken(struct dcpk_ranks *ranks, struct rank *rank)
{
    const uint8_t mine = 1;

    rank->status = dcpk_ranks_share(ranks, &mine, sizeof mine, &rank->shared, DCPK_OK, &rank->err);
    rank->second = dcpk_ranks_agree(ranks, rank->status, &rank->err);
    dcpk_bytes_release(&rank->shared);
}

static dcpk_status broken_gather(struct dcpk_comm *comm, const void *mine, size_t n_bytes,
                                 void *all, struct dcpk_error *err)
{
    if (comm->rank == 2)
        return dcpk_fail(err, DCPK_EIO, "the cable is cut");
    return rank_all_gather(comm, mine, n_bytes, all, err);
}

static dcpk_status broken_broadcast(struct dcpk_comm *comm, int root, void *data, size_t n_bytes,
                                    struct dcpk_error *err)
{
    if (comm->rank == 2)
        return dcpk_fail(err, DCPK_EIO, "the cable is cut");
    return rank_broadcast(comm, root, data, n_bytes, err);
}

static void test_broken(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        const char *label = i == 0 ? "no gathering" : "no broadcast";

        begin_script(script_broken, NULL);
        if (i == 0)
            rank_job.all_gather = broken_gather;
        else
            rank_job.broadcast = broken_broadcast;
        rank_threads_try(run_rank, NULL);
        CHECK_EQ_STR(results[2].err.text, "the cable is cut", label);
        CHECK_EQ_INT(rank_job.n_left, 0, label);
        CHECK_EQ_INT(rank_job.n_abandoned, N, label);
        CHECK(!rank_job.is_late, label);
        for (int r = 0; r < N; r++) {
            CHECK_EQ_INT(results[r].second, DCPK_EIO, label);
            CHECK_EQ_INT(rank_job.ends[r], DCPK_EIO, label);
        }
    }
}

/* Rank 2 has failed when the network breaks on it: it says why as it leaves. */
static void script_failed_and_broken(struct dcpk_ranks *ranks, struct rank *rank)
{
    dcpk_status st = DCPK_OK;

    if (rank->self == 2)
        st = dcpk_fail(&rank->err, DCPK_ENOMEM, "no memory");
    rank->status = dcpk_ranks_agree(ranks, st, &rank->err);
}

static void test_failed_and_broken(void **state)
{
    (void)state;
    begin_script(script_failed_and_broken, NULL);
    rank_job.all_gather = broken_gather;
    rank_threads_try(run_rank, NULL);
    CHECK_EQ_INT(results[2].status, DCPK_ENOMEM, "its own error");
    CHECK_EQ_STR(results[2].err.text, "no memory", "its own error");
    CHECK_EQ_INT(rank_job.ends[2], DCPK_EIO, "the network's");
    CHECK_EQ_STR(rank_job.said[2], "the cable is cut; this rank had failed: no memory", "both");
}

static const struct divide_case {
    const char *label;
    uint64_t n;
    uint64_t bytes[8];
    uint64_t last[N]; /* of each rank; the first is the last of the one before it */
} divide_cases[] = {
    {"nothing", 0, {0}, {0, 0, 0, 0}},
    {"one", 1, {5}, {1, 1, 1, 1}},
    {"alike", 8, {1, 1, 1, 1, 1, 1, 1, 1}, {3, 6, 8, 8}},
    {"a large one first", 5, {100, 1, 1, 1, 1}, {1, 1, 1, 5}},
    {"without bytes", 3, {0, 0, 0}, {3, 3, 3, 3}},
    {"some without", 5, {4, 0, 4, 0, 8}, {3, 5, 5, 5}},
};

static uint64_t case_bytes(const void *context, uint64_t i)
{
    return ((const struct divide_case *)context)->bytes[i];
}

static void script_divide(struct dcpk_ranks *ranks, struct rank *rank)
{
    const struct divide_case *c = rank->of_case;
    struct dcpk_work work = {.n = c->n, .bytes_of = case_bytes, .context = c};

    rank->status = dcpk_ranks_agree(ranks, DCPK_OK, &rank->err);
    dcpk_ranks_divide(ranks, &work);
    rank->shown_bytes = work.first;
    rank->shown_total = work.last;
}

static void test_divide(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof divide_cases / sizeof *divide_cases; i++) {
        const struct divide_case *c = &divide_cases[i];
        uint64_t first = 0;

        run_script(script_divide, c);
        for (int r = 0; r < N; first = results[r++].shown_total) {
            CHECK_EQ_INT(results[r].shown_bytes, first, c->label);
            CHECK_EQ_INT(results[r].shown_total, c->last[r], c->label);
        }
        CHECK_EQ_INT(first, c->n, c->label);
    }
}

static dcpk_status join_nothing(struct dcpk_comm **comm, struct dcpk_error *err)
{
    (void)comm;
    return dcpk_fail(err, DCPK_EUSAGE, "there is none");
}

static void test_launched(void **state)
{
    static const struct dcpk_transport missing = {.name = "none", .join = join_nothing};
    static const struct dcpk_transport *const none[] = {&missing, NULL};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_ranks *ranks;

    (void)state;
    CHECK_EQ_INT(dcpk_ranks_launched(), N, "PMI_SIZE");
    CHECK_FAILS(dcpk_ranks_join(none, &ranks, &err), DCPK_EUSAGE,
                "started as one of 4 processes: there is none", "no transport");
    setenv("DCPKIT_ALONE", "1", 1);
    CHECK_EQ_INT(dcpk_ranks_launched(), 1, "DCPKIT_ALONE");
    unsetenv("DCPKIT_ALONE");
    unsetenv("PMI_SIZE");
    CHECK_EQ_INT(dcpk_ranks_launched(), 1, "no launcher");
    CHECK_OK(dcpk_ranks_join(rank_transports, &ranks, &err), "alone");
    CHECK(ranks == NULL, "alone");
    CHECK_EQ_INT(dcpk_ranks_count(ranks), 1, "alone");
    CHECK_EQ_INT(dcpk_ranks_agree(ranks, DCPK_EIO, &err), DCPK_EIO, "alone");
    setenv("PMI_SIZE", "4", 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_agree),    cmocka_unit_test(test_stop),
        cmocka_unit_test(test_progress), cmocka_unit_test(test_share),
        cmocka_unit_test(test_tell),     cmocka_unit_test(test_wait_in_vain),
        cmocka_unit_test(test_overtake), cmocka_unit_test(test_inside),
        cmocka_unit_test(test_apart),    cmocka_unit_test(test_flipped),
        cmocka_unit_test(test_folded),   cmocka_unit_test(test_uneven),
        cmocka_unit_test(test_broken),   cmocka_unit_test(test_failed_and_broken),
        cmocka_unit_test(test_divide),   cmocka_unit_test(test_launched),
    };

    unsetenv("OMPI_COMM_WORLD_SIZE");
    unsetenv("SLURM_STEP_NUM_TASKS");
    setenv("PMI_SIZE", "4", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

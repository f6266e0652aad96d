/* SPDX-License-Identifier: Apache-2.0 */
/* test_remap_fault.c - something fails on one rank of a remap: all ranks get the same error,
 * sources are as they were, nothing hangs, and where nothing had begun the targets are untouched.
 */
#include <sched.h>
#include <stdatomic.h>

#include "lib/base/alloc.h"
#include "tests/remap_job.h"

#define N_RANKS 3

/* ---- a device whose n-th call fails, on one rank ---- */
static struct dcpk_space_ops faulty_ops;
static const struct dcpk_space_ops *real_ops;
static _Thread_local uint64_t n_calls;
static uint64_t failing_call; /* 0: none */
static int failing_rank;
static atomic_bool has_failed, has_moved;

static bool call_fails(struct dcpk_error *err)
{
    if (rank_self != failing_rank || ++n_calls != failing_call)
        return false;
    atomic_store(&has_failed, true);
    dcpk_fail(err, DCPK_EIO, "the device is gone");
    return true;
}

static dcpk_status faulty_export(struct dcpk_space *space, const void *at, size_t n_bytes,
                                 struct dcpk_memory_id *id, struct dcpk_error *err)
{
    return call_fails(err) ? err->status : real_ops->export_memory(space, at, n_bytes, id, err);
}

static dcpk_status faulty_import(struct dcpk_space *space, const struct dcpk_memory_id *id,
                                 void **at, struct dcpk_error *err)
{
    return call_fails(err) ? err->status : real_ops->import_memory(space, id, at, err);
}

static dcpk_status faulty_alloc(struct dcpk_space *space, enum dcpk_memory_kind kind,
                                size_t n_bytes, void **at, struct dcpk_error *err)
{
    return call_fails(err) ? err->status : real_ops->alloc(space, kind, n_bytes, at, err);
}

static dcpk_status faulty_load(struct dcpk_space *space, const struct dcpk_tiles *tiles,
                               struct dcpk_table **table, struct dcpk_error *err)
{
    return call_fails(err) ? err->status : real_ops->load(space, tiles, table, err);
}

static dcpk_status faulty_run(struct dcpk_space *space, int queue, const struct dcpk_table *table,
                              uint64_t *sums, struct dcpk_error *err)
{
    atomic_store(&has_moved, true);
    return call_fails(err) ? err->status : real_ops->run(space, queue, table, sums, err);
}

static dcpk_status faulty_copy(struct dcpk_space *space, int queue, void *to, const void *from,
                               size_t n_bytes, struct dcpk_error *err)
{
    return call_fails(err) ? err->status : real_ops->copy(space, queue, to, from, n_bytes, err);
}

static dcpk_status faulty_poll(struct dcpk_space *space, uint64_t ticket, bool *done,
                               struct dcpk_error *err)
{
    return call_fails(err) ? err->status : real_ops->poll(space, ticket, done, err);
}

/* Spaces know the real operations by their own table: give them this one. */
static dcpk_status faulty_open(const struct dcpk_space_options *options, struct dcpk_space **space,
                               struct dcpk_error *err)
{
    const dcpk_status st = real_ops->open(options, space, err);

    if (st == DCPK_OK)
        (*space)->ops = &faulty_ops;
    return st;
}

static void make_faulty(void)
{
    real_ops = dcpk_spaces[0];
    faulty_ops = *real_ops;
    faulty_ops.open = faulty_open;
    faulty_ops.alloc = faulty_alloc;
    faulty_ops.export_memory = faulty_export;
    faulty_ops.import_memory = faulty_import;
    faulty_ops.load = faulty_load;
    faulty_ops.run = faulty_run;
    faulty_ops.copy = faulty_copy;
    faulty_ops.poll = faulty_poll;
}

static void begin_round(struct remap_case *c)
{
    for (int r = 0; r < c->n_ranks; r++)
        memset(c->sides[1].memory[r], CASE_POISON, CASE_BYTES);
    atomic_store(&has_failed, false);
    atomic_store(&has_moved, false);
}

static void check_same_end(const struct remap_job *job, const char *label)
{
    for (int r = 0; r < N_RANKS; r++) {
        CHECK_EQ_INT(job->ends[r], job->ends[0], label);
        CHECK_EQ_STR(job->errs[r].text, job->errs[0].text, label);
        CHECK(memcmp(the_case->kept[r], job->c->sides[0].memory[r], CASE_BYTES) == 0, label);
    }
}

static void check_untouched(const struct remap_case *c, const char *label)
{
    for (int r = 0; r < c->n_ranks; r++)
        for (size_t i = 0; i < CASE_BYTES; i++)
            CHECK(c->sides[1].memory[r][i] == CASE_POISON, label);
}

/* A case in which all ranks talk; its sources are kept. */
static void make_case(uint64_t seed)
{
    case_make(the_case, seed, N_RANKS);
    for (int r = 0; r < N_RANKS; r++)
        memcpy(the_case->kept[r], the_case->sides[0].memory[r], CASE_BYTES);
}

static const struct dcpk_remap_options paths[] = {
    {.path = DCPK_REMAP_DIRECT, .timeout_ms = 20000, .checks = true},
    {.path = DCPK_REMAP_STAGED, .timeout_ms = 20000, .staging_bytes = 1 << 16, .checks = true},
};

/* The n-th call of the device on one rank fails, n = 1, 2, ... until none does. */
static void device_calls_fail(void **state)
{
    (void)state;
    make_faulty();
    make_case(2007);
    for (size_t path = 0; path < DCPK_COUNT(paths); path++)
        for (uint64_t nth = 1, ends = 0; !ends; nth++) {
            struct remap_job job = {
                .c = the_case, .to = 1, .n_runs = 1, .options = paths[path], .space = &faulty_ops};
            char label[64];

            snprintf(label, sizeof label, "path %zu, call %" PRIu64, path, nth);
            begin_round(the_case);
            job.only_gathers = nth / N_RANKS % 2 != 0;
            failing_rank = (int)(nth % N_RANKS);
            failing_call = nth / N_RANKS + 1;
            job_run(&job, 0, label);
            check_same_end(&job, label);
            if (atomic_load(&has_failed)) {
                CHECK_EQ_INT(job.ends[0], DCPK_EIO, label);
                CHECK(strstr(job.errs[0].text, "the device is gone") != NULL, label);
                if (!atomic_load(&has_moved))
                    check_untouched(the_case, label);
            } else {
                job_check_ends(&job, label);
                case_check(the_case, label);
                ends = nth > 3 * N_RANKS;
            }
            CHECK(nth < 2000, "it ends");
        }
    case_release(the_case);
}

/* The n-th allocation of all ranks together fails. */
static uint64_t failing_allocation;
static atomic_uint_fast64_t armed; /* the failing_allocation that counts by now */

/* No rank allocates while the count begins. */
static void arm(int self)
{
    if (self == 0) {
        dcpk_alloc_fail_nth(failing_allocation);
        atomic_store(&armed, failing_allocation);
    }
    while (atomic_load(&armed) != failing_allocation)
        sched_yield();
}

static void allocations_fail(void **state)
{
    (void)state;
    make_case(2011);
    for (size_t path = 0; path < DCPK_COUNT(paths); path++)
        for (failing_allocation = 1, atomic_store(&armed, 0);; failing_allocation++) {
            struct remap_job job = {
                .c = the_case, .to = 1, .n_runs = 1, .options = paths[path], .before = arm};
            char label[64];

            snprintf(label, sizeof label, "path %zu, allocation %" PRIu64, path,
                     failing_allocation);
            begin_round(the_case);
            job_run(&job, 0, label);
            check_same_end(&job, label);
            if (dcpk_alloc_fail_nth(0) < failing_allocation) {
                job_check_ends(&job, label);
                case_check(the_case, label);
                break;
            }
            CHECK_EQ_INT(job.ends[0], DCPK_ENOMEM, label);
        }
    case_release(the_case);
}

/*
 * A byte of each target of a rank changes before it is checked: the tensor is named on all ranks.
 */
static struct dcpk_space_ops flipping_ops;
static _Thread_local int n_waits, n_flipped; /* of a rank, in a job */

static dcpk_status flipping_ticket(struct dcpk_space *space, int queue, uint64_t *ticket,
                                   struct dcpk_error *err)
{
    n_waits++;
    return real_ops->ticket(space, queue, ticket, err);
}

static dcpk_status flipping_run(struct dcpk_space *space, int queue, const struct dcpk_table *table,
                                uint64_t *sums, struct dcpk_error *err)
{
    const struct case_side *side = &the_case->sides[1];

    /* The first wait is for sums of zero; behind the next ones all have moved, and met. */
    if (rank_self == 1 && n_waits > 1 && n_flipped++ == 0)
        for (size_t i = 0; i < side->n; i++)
            if (side->shards[i].holder == 1)
                *(uint8_t *)(uintptr_t)side->shards[i].at ^= 0x10;
    return real_ops->run(space, queue, table, sums, err);
}

static dcpk_status flipping_open(const struct dcpk_space_options *options,
                                 struct dcpk_space **space, struct dcpk_error *err)
{
    const dcpk_status st = real_ops->open(options, space, err);

    if (st == DCPK_OK)
        (*space)->ops = &flipping_ops;
    n_waits = n_flipped = 0;
    return st;
}

static void flipped_bytes_are_found(void **state)
{
    size_t n_found = 0;

    (void)state;
    make_faulty();
    flipping_ops = *real_ops;
    flipping_ops.open = flipping_open;
    flipping_ops.run = flipping_run;
    flipping_ops.ticket = flipping_ticket;
    for (uint64_t seed = 3000; seed < 3040; seed++) {
        struct remap_job job = {
            .c = the_case, .to = 1, .n_runs = 1, .options = paths[0], .space = &flipping_ops};
        bool is_right = true;

        make_case(seed);
        begin_round(the_case);
        job_run(&job, 0, "flipped");
        check_same_end(&job, "flipped");
        for (int r = 0; r < N_RANKS; r++)
            is_right = is_right &&
                       memcmp(the_case->want[r], the_case->sides[1].memory[r], CASE_BYTES) == 0;
        CHECK_EQ_INT(job.ends[0] == DCPK_OK, is_right,
                     "an error where, and only where, it is wrong");
        if (!is_right)
            CHECK(strstr(job.errs[0].text, "(unit 0): what was sent has the fingerprint") != NULL,
                  "the tensor is named");
        n_found += !is_right;
        case_release(the_case);
    }
    CHECK(n_found > 5, "some are wrong");
}

/* The network fails on one rank in the n-th gathering: nobody waits for ever. */
static atomic_uint_fast64_t n_gathers, failing_gather;

static dcpk_status failing_all_gather(struct dcpk_comm *comm, const void *mine, size_t n_bytes,
                                      void *all, struct dcpk_error *err)
{
    if (comm->rank == 1 && atomic_fetch_add(&n_gathers, 1) + 1 == atomic_load(&failing_gather)) {
        pthread_mutex_lock(&rank_job.mutex);
        rank_job.is_over = true; /* its connections are gone */
        pthread_cond_broadcast(&rank_job.changed);
        pthread_mutex_unlock(&rank_job.mutex);
        return dcpk_fail(err, DCPK_EIO, "the network is gone");
    }
    return rank_all_gather(comm, mine, n_bytes, all, err);
}

static void gatherings_fail(void **state)
{
    bool ends = false;

    (void)state;
    make_case(2013);
    for (uint64_t nth = 1; !ends; nth++) {
        struct remap_job job = {.c = the_case, .to = 1, .n_runs = 1, .options = paths[nth % 2]};
        char label[64];

        snprintf(label, sizeof label, "gathering %" PRIu64, nth);
        begin_round(the_case);
        atomic_store(&n_gathers, 0);
        atomic_store(&failing_gather, nth);
        rank_threads_begin(N_RANKS, 0);
        rank_job.all_gather = failing_all_gather;
        for (int r = 0; r < N_RANKS; r++)
            job.errs[r] = (struct dcpk_error)DCPK_ERROR_INIT;
        rank_threads_try(job_rank, &job);
        ends = atomic_load(&n_gathers) < nth;
        for (int r = 0; r < N_RANKS; r++) {
            CHECK(ends || rank_job.ends[r] != DCPK_OK, label); /* at the latest when they leave */
            CHECK(memcmp(the_case->kept[r], the_case->sides[0].memory[r], CASE_BYTES) == 0, label);
        }
        CHECK(nth < 200, "it ends");
    }
    case_release(the_case);
}

/* Without a link, what cannot be done directly is refused. */
static dcpk_status far_import(struct dcpk_space *space, const struct dcpk_memory_id *id, void **at,
                              struct dcpk_error *err)
{
    (void)space;
    (void)id;
    (void)at;
    return dcpk_fail(err, DCPK_EUNSUPPORTED, "no peer access");
}

static void ranks_that_do_not_reach_each_other(void **state)
{
    struct remap_job job = {
        .c = the_case, .to = 1, .n_runs = 1, .options = paths[0], .space = &faulty_ops};

    (void)state;
    make_faulty();
    failing_call = 0;
    faulty_ops.import_memory = far_import;
    make_case(2007);
    begin_round(the_case);
    job_run(&job, 0, "direct");
    check_same_end(&job, "direct");
    CHECK_EQ_INT(job.ends[0], DCPK_EUNSUPPORTED, "direct");
    CHECK(strstr(job.errs[0].text, "a link is not wanted: no peer access") != NULL, "direct");
    check_untouched(the_case, "direct");
    job.options.path = DCPK_REMAP_AUTO;
    job.has_no_link = true;
    job_run(&job, 0, "no link");
    CHECK(strstr(job.errs[0].text, "there is no link: no peer access") != NULL, "no link");
    job.has_no_link = false;
    job_run(&job, 0, "auto");
    job_check_ends(&job, "auto");
    case_check(the_case, "auto");
    CHECK(job.stats[0].n_messages + job.stats[1].n_messages + job.stats[2].n_messages > 0,
          "over the link");
    case_release(the_case);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(device_calls_fail),
        cmocka_unit_test(allocations_fail),
        cmocka_unit_test(flipped_bytes_are_found),
        cmocka_unit_test(gatherings_fail),
        cmocka_unit_test(ranks_that_do_not_reach_each_other),
    };

    return cmocka_run_group_tests(tests, case_begin_tests, case_end_tests);
}

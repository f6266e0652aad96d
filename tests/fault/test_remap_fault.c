/* SPDX-License-Identifier: Apache-2.0 */
/* test_remap_fault.c - something fails on one rank of a remap: all ranks get the same error,
 * sources are as they were, nothing hangs, and where nothing had begun the targets are untouched.
 */
#include <sched.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "tests/fault/remap_scene.h"

/* ---- a device or link whose n-th call fails, on one rank ---- */
static _Thread_local uint64_t n_calls;
static uint64_t failing_call; /* 0: none */
static int failing_rank;
static atomic_bool has_failed;

/* One thread may be a rank of several jobs. */
static void count_from_here(struct remap_job *job, int self)
{
    (void)job;
    (void)self;
    n_calls = 0;
}

static dcpk_status call_fails(struct dcpk_error *err)
{
    if (rank_self != failing_rank || ++n_calls != failing_call)
        return DCPK_OK;
    atomic_store(&has_failed, true);
    return dcpk_fail(err, DCPK_EIO, "the device is gone");
}

static const struct dcpk_remap_options paths[] = {
    {.path = DCPK_REMAP_DIRECT, .timeout_ms = 20000, .checks = true},
    {.path = DCPK_REMAP_STAGED, .timeout_ms = 20000, .staging_bytes = 1 << 16, .checks = true},
    {.path = DCPK_REMAP_DIRECT, .timeout_ms = 20000, .unit_bytes = 600},
    {.path = DCPK_REMAP_STAGED, .timeout_ms = 20000, .staging_bytes = 1 << 14, .unit_bytes = 600},
};

/* The n-th call of the device or link on one rank fails, n = 1, 2, ... until no rank makes it. */
static void device_calls_fail(void **state)
{
    size_t most_done = 0;

    (void)state;
    faulty_begin(call_fails, dcpk_links[0]);
    make_case(2007);
    for (size_t path = 0; path < DCPK_COUNT(paths); path++)
        for (uint64_t nth = 0, n_whole = 0; n_whole < N_RANKS; nth++) {
            struct remap_job job = {.c = the_case,
                                    .to = 1,
                                    .n_runs = 1,
                                    .options = paths[path],
                                    .device = &faulty_ops,
                                    .link = &faulty_link_ops,
                                    .before = count_from_here,
                                    .after = see_units};
            char label[64];

            snprintf(label, sizeof label, "path %zu, call %" PRIu64, path, nth);
            begin_round(the_case);
            atomic_store(&has_failed, false);
            job.only_gathers = nth / N_RANKS % 2 != 0;
            failing_rank = (int)(nth % N_RANKS);
            failing_call = nth / N_RANKS + 1;
            job_run(&job, 0, label);
            check_same_end(&job, label);
            if (atomic_load(&has_failed)) {
                CHECK_EQ_INT(job.ends[0], DCPK_EIO, label);
                CHECK(strstr(job.errs[0].text, "the device is gone") != NULL, label);
                n_whole = 0;
                most_done = dcpk_max_size(most_done, job.stats[0].units_done);
            } else {
                job_check_ends(&job, label);
                case_check(the_case, label);
                n_whole++;
            }
            CHECK(nth < 2000, "it ends");
        }
    CHECK(most_done > 1, "some units are done before one fails");
    case_release(the_case);
}

/* The n-th allocation of all ranks together fails. */
static uint64_t failing_allocation;
static atomic_uint_fast64_t armed; /* the failing_allocation that counts by now */

/* No rank allocates while the count begins. */
static void arm(struct remap_job *job, int self)
{
    (void)job;
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
    for (size_t path = 0; path < 2; path++)
        for (failing_allocation = 1, atomic_store(&armed, 0);; failing_allocation++) {
            struct remap_job job = {.c = the_case,
                                    .to = 1,
                                    .n_runs = 1,
                                    .options = paths[path],
                                    .before = arm,
                                    .after = see_units};
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

/* The network fails on one rank in the n-th collective call: no other one waits for ever. */
static atomic_uint_fast64_t n_collectives, failing_collective;
static atomic_bool has_links; /* where they fail to open, no rank knows who has one */

static void begin_to_fail(struct remap_job *job, int self)
{
    (void)job;
    if (self == failing_rank)
        atomic_store(&has_links, true);
}

static bool network_fails(const struct dcpk_comm *comm, struct dcpk_error *err)
{
    if (comm->rank != failing_rank || !atomic_load(&has_links) ||
        atomic_fetch_add(&n_collectives, 1) + 1 != atomic_load(&failing_collective))
        return false;
    pthread_mutex_lock(&rank_job.mutex);
    rank_job.is_over = true; /* its connections are gone */
    pthread_cond_broadcast(&rank_job.changed);
    pthread_mutex_unlock(&rank_job.mutex);
    dcpk_fail(err, DCPK_EIO, "the network is gone");
    return true;
}

static dcpk_status failing_all_gather(struct dcpk_comm *comm, const void *mine, size_t n_bytes,
                                      void *all, struct dcpk_error *err)
{
    if (network_fails(comm, err))
        return err->status;
    return rank_all_gather(comm, mine, n_bytes, all, err);
}

static dcpk_status failing_broadcast(struct dcpk_comm *comm, int root, void *data, size_t n_bytes,
                                     struct dcpk_error *err)
{
    if (network_fails(comm, err))
        return err->status;
    return rank_broadcast(comm, root, data, n_bytes, err);
}

static void collectives_fail(void **state)
{
    bool ends = false;

    (void)state;
    make_case(2013);
    for (uint64_t nth = 1; !ends; nth++) {
        struct remap_job job = {.c = the_case, .to = 1, .n_runs = 1, .before = begin_to_fail};
        char label[64];

        snprintf(label, sizeof label, "collective call %" PRIu64, nth);
        job.options = paths[nth % DCPK_COUNT(paths)];
        begin_round(the_case);
        failing_rank = (int)(nth / 4 % N_RANKS);
        atomic_store(&has_links, false);
        atomic_store(&n_collectives, 0);
        atomic_store(&failing_collective, nth);
        rank_threads_begin(N_RANKS, 0);
        rank_job.all_gather = failing_all_gather;
        rank_job.broadcast = failing_broadcast;
        for (int r = 0; r < N_RANKS; r++)
            job.errs[r] = (struct dcpk_error)DCPK_ERROR_INIT;
        rank_threads_try(job_rank, &job);
        ends = atomic_load(&n_collectives) < nth;
        for (int r = 0; r < N_RANKS; r++) {
            CHECK(ends || rank_job.ends[r] != DCPK_OK, label); /* at the latest when they leave */
            CHECK(memcmp(the_case->kept[r], the_case->sides[0].memory[r], CASE_BYTES) == 0, label);
        }
        CHECK(nth < 300, "it ends");
    }
    case_release(the_case);
}

/* A rank leaves where the others are about to run. */
static void rank_leaves(void **state)
{
    (void)state;
    make_case(2007);
    for (int quitter = 1; quitter <= N_RANKS; quitter++)
        for (size_t path = 0; path < DCPK_COUNT(paths); path++) {
            struct remap_job job = {
                .c = the_case, .to = 1, .n_runs = 1, .options = paths[path], .quitter = quitter};

            begin_round(the_case);
            job_run(&job, 0, "a rank leaves");
            for (int r = 0; r < N_RANKS; r++) {
                CHECK_EQ_INT(job.ends[r], r + 1 == quitter ? DCPK_OK : DCPK_EIO, "a rank leaves");
                CHECK(r + 1 == quitter || strstr(job.errs[r].text, "do not do the same") != NULL,
                      "a rank leaves");
                CHECK(memcmp(the_case->kept[r], the_case->sides[0].memory[r], CASE_BYTES) == 0,
                      "a rank leaves");
            }
            check_untouched(the_case, "a rank leaves");
        }
    case_release(the_case);
}

#define SHORT_MS 60 /* a limit that passes */

/* A device of which a table takes for ever, and a rank that sleeps where it has to exchange. */
static bool hangs;

static dcpk_status hanging_poll(struct dcpk_device *device, uint64_t ticket, bool *done,
                                struct dcpk_error *err)
{
    if (faulty_real->poll(device, ticket, done, err))
        return err->status;
    if (hangs && rank_self == failing_rank)
        *done = false;
    return DCPK_OK;
}

static dcpk_status sleepy_begin(struct dcpk_link *link, const struct dcpk_exchange *exchange,
                                struct dcpk_error *err)
{
    const struct timespec nap = {.tv_nsec = 5 * SHORT_MS * 1000000L};

    if (!hangs && rank_self == failing_rank)
        nanosleep(&nap, NULL);
    return faulty_real_link->begin(link, exchange, err);
}

static void waits_end(void **state)
{
    static const struct {
        const char *label;
        bool hangs;
        enum dcpk_remap_path path;
        const char *message;
    } cases[] = {
        {"device, direct", true, DCPK_REMAP_DIRECT, "the device is not done after 60 ms"},
        {"device, staged", true, DCPK_REMAP_STAGED, "the device is not done after 60 ms"},
        {"link", false, DCPK_REMAP_STAGED,
         "the link 'local' did not deliver all messages in 120 ms"},
    };

    (void)state;
    make_case(2007);
    faulty_begin(call_fails, dcpk_links[0]);
    failing_call = 0;
    faulty_ops.poll = hanging_poll;
    faulty_link_ops.begin = sleepy_begin;
    for (size_t i = 0; i < DCPK_COUNT(cases); i++)
        for (failing_rank = 0; failing_rank < N_RANKS; failing_rank++) {
            struct remap_job job = {.c = the_case,
                                    .to = 1,
                                    .n_runs = 2,
                                    .device = &faulty_ops,
                                    .link = &faulty_link_ops,
                                    .after = see_units};

            job.options =
                (struct dcpk_remap_options){.path = cases[i].path, .timeout_ms = SHORT_MS};
            hangs = cases[i].hangs;
            begin_round(the_case);
            job_run(&job, 0, cases[i].label);
            check_same_end(&job, cases[i].label);
            CHECK_EQ_INT(job.ends[0], DCPK_EIO, cases[i].label);
            CHECK(strstr(job.errs[0].text, cases[i].message) != NULL, job.errs[0].text);
        }
    case_release(the_case);
}

/* ---- a table that cannot be queued: what was queued before it is waited for ---- */
static _Thread_local bool is_queued[DCPK_N_QUEUES];
static _Thread_local uint64_t n_tables;
static atomic_int n_left_queued;

static dcpk_status noting_run(struct dcpk_device *device, int queue, const struct dcpk_table *table,
                              uint64_t *sums, struct dcpk_error *err)
{
    if (rank_self == failing_rank && ++n_tables == failing_call) {
        atomic_store(&has_failed, true);
        return dcpk_fail(err, DCPK_EIO, "the device is gone");
    }
    is_queued[queue] = true;
    return faulty_real->run(device, queue, table, sums, err);
}

/* A ticket is the queue's number. */
static dcpk_status noting_ticket(struct dcpk_device *device, int queue, uint64_t *ticket,
                                 struct dcpk_error *err)
{
    (void)device;
    (void)err;
    *ticket = (uint64_t)queue;
    return DCPK_OK;
}

static dcpk_status noting_poll(struct dcpk_device *device, uint64_t ticket, bool *done,
                               struct dcpk_error *err)
{
    (void)device;
    (void)err;
    is_queued[ticket] = false;
    *done = true;
    return DCPK_OK;
}

static void begin_noting(struct remap_job *job, int self)
{
    (void)job;
    (void)self;
    n_tables = 0;
    memset(is_queued, 0, sizeof is_queued);
}

static void count_queued(struct remap_job *job, int self, const struct dcpk_remap *remap)
{
    see_units(job, self, remap);
    for (int queue = 0; queue < DCPK_N_QUEUES; queue++)
        atomic_fetch_add(&n_left_queued, is_queued[queue]);
}

static void nothing_is_left_queued(void **state)
{
    (void)state;
    make_case(2007);
    faulty_begin(call_fails, dcpk_links[0]);
    faulty_ops.run = noting_run;
    faulty_ops.ticket = noting_ticket;
    faulty_ops.poll = noting_poll;
    atomic_store(&n_left_queued, 0);
    for (size_t path = 0; path < DCPK_COUNT(paths); path++)
        for (uint64_t nth = 0, n_whole = 0; n_whole < N_RANKS; nth++) {
            struct remap_job job = {.c = the_case,
                                    .to = 1,
                                    .n_runs = 1,
                                    .options = paths[path],
                                    .device = &faulty_ops,
                                    .before = begin_noting,
                                    .after = count_queued};
            char label[64];

            snprintf(label, sizeof label, "path %zu, table %" PRIu64, path, nth);
            begin_round(the_case);
            atomic_store(&has_failed, false);
            failing_rank = (int)(nth % N_RANKS);
            failing_call = nth / N_RANKS + 1;
            job_run(&job, 0, label);
            check_same_end(&job, label);
            CHECK_EQ_INT(atomic_load(&n_left_queued), 0, label);
            CHECK_EQ_INT(job.ends[0], atomic_load(&has_failed) ? DCPK_EIO : DCPK_OK, label);
            n_whole = atomic_load(&has_failed) ? 0 : n_whole + 1;
            CHECK(nth < 2000, "it ends");
        }
    case_release(the_case);
}

/* ---- remaps over a link that broke in the run of another one ---- */
static dcpk_status breaking_begin(struct dcpk_link *link, const struct dcpk_exchange *exchange,
                                  struct dcpk_error *err)
{
    if (rank_self == failing_rank)
        return dcpk_fail(err, DCPK_EIO, "the cable is cut");
    return faulty_real_link->begin(link, exchange, err);
}

static struct dcpk_error after_break[4]
                                    [N_RANKS]; /* the run that breaks it, and those that follow */

static void share_link(struct dcpk_ranks *ranks, int self, void *context)
{
    static const struct dcpk_device_options first = {0};
    struct dcpk_remap_options options = paths[1];
    struct dcpk_remap *remaps[4] = {NULL};
    struct dcpk_remap_shards mine;
    struct dcpk_error err = DCPK_ERROR_INIT;

    (void)context;
    options.ranks = ranks;
    mine.sources = case_shards(&the_case->sides[0], self, &mine.n_sources);
    mine.targets = case_shards(&the_case->sides[1], self, &mine.n_targets);
    CHECK_OK(dcpk_devices[0]->open(&first, &options.device, &err), "device");
    CHECK_OK(dcpk_links[0]->open(dcpk_ranks_comm(ranks), options.device, &options.link, &err),
             "link");
    options.link->ops = &faulty_link_ops;
    for (int i = 0; i < 4; i++) { /* the third begins after the break, the fourth needs no link */
        struct dcpk_error *why = &after_break[i][self];

        dcpk_error_clear(why);
        options.path = i == 3 ? DCPK_REMAP_DIRECT : DCPK_REMAP_STAGED;
        if (i == 0)
            CHECK_OK(dcpk_remap_new(&options, &mine, &remaps[1], why), "before the break");
        if (i == 1 || dcpk_remap_new(&options, &mine, &remaps[i], why) == DCPK_OK)
            (void)dcpk_remap_run(remaps[i], NULL, NULL, why);
        (void)dcpk_ranks_agree(ranks, DCPK_OK, &(struct dcpk_error){0}); /* all are idle */
    }
    for (int i = 0; i < 4; i++)
        dcpk_remap_free(remaps[i]);
    options.link->ops->close(options.link);
    dcpk_devices[0]->close(options.device);
}

static void a_broken_link_stays_broken(void **state)
{
    static const char *const messages[] = {"the cable is cut",
                                           "the link 'local' broke in an earlier run",
                                           "the link 'local' broke in an earlier run", ""};

    (void)state;
    make_case(2007);
    faulty_begin(call_fails, dcpk_links[0]);
    faulty_link_ops.begin = breaking_begin;
    failing_call = 0;
    for (failing_rank = 0; failing_rank < N_RANKS; failing_rank++) {
        begin_round(the_case);
        rank_threads_begin(N_RANKS, 0);
        rank_threads_run(share_link, NULL, "a broken link");
        for (int i = 0; i < 4; i++)
            for (int r = 0; r < N_RANKS; r++) {
                CHECK_EQ_INT(after_break[i][r].status, i == 3 ? DCPK_OK : DCPK_EIO, messages[i]);
                CHECK(strstr(after_break[i][r].text, messages[i]) != NULL, after_break[i][r].text);
            }
        case_check(the_case, "the last one");
    }
    case_release(the_case);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(device_calls_fail),
        cmocka_unit_test(allocations_fail),
        cmocka_unit_test(collectives_fail),
        cmocka_unit_test(rank_leaves),
        cmocka_unit_test(waits_end),
        cmocka_unit_test(nothing_is_left_queued),
        cmocka_unit_test(a_broken_link_stays_broken),
    };

    return cmocka_run_group_tests(tests, case_begin_tests, case_end_tests);
}

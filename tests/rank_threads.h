/* SPDX-License-Identifier: Apache-2.0 */
/* rank_threads.h - the ranks of a job as threads of a test, over a transport that is as unkind as a
 * network may be. */
/*
 * As with MPI the root of a broadcast does not wait for the others, nobody waits for who receives a
 * message, and messages of two ranks may overtake each other; those between two stay in order. With
 * a seed ranks dawdle and messages are late, at random. Whoever waits for ever is told so after
 * some seconds: the call fails, and with it the test.
 */
#ifndef DCPK_TESTS_RANK_THREADS_H
#define DCPK_TESTS_RANK_THREADS_H

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "lib/exec/pool.h"
#include "lib/exec/ranks.h"
#include "tests/check.h"
#include "tests/random.h"

#define RANK_THREADS_MAX 6
#ifndef RANK_MAX_BYTES
#define RANK_MAX_BYTES 4096 /* of one collective call */
#endif
#define RANK_MAX_WAITING  1024 /* messages from one rank to another */
#define RANK_N_BROADCASTS 16   /* more than there are from one gathering to the next but one */
#define RANK_PATIENCE     10   /* seconds */

/* What a rank does; context: of rank_threads_run. */
typedef void rank_script(struct dcpk_ranks *ranks, int self, void *context);

struct rank_comm {
    struct dcpk_comm base;
    uint64_t seed;
    uint64_t n_gathered, n_heard; /* collective calls so far */
};

static struct {
    int n;
    uint64_t seed;           /* 0: none dawdles */
    int slow_rank, n_before; /* its messages reach rank 0 once it has been sent so many by others */
    /* in the place of rank_all_gather, rank_broadcast */
    dcpk_status (*all_gather)(struct dcpk_comm *, const void *, size_t, void *,
                              struct dcpk_error *);
    dcpk_status (*broadcast)(struct dcpk_comm *, int, void *, size_t, struct dcpk_error *);
    rank_script *script;
    void *context;
    dcpk_status ends[RANK_THREADS_MAX]; /* of joining or leaving */
    char said[RANK_THREADS_MAX][256];   /* of leaving, where it failed */
    pthread_mutex_t mutex;              /* of all that follows */
    pthread_cond_t changed;
    bool is_late; /* somebody has waited in vain */
    bool is_over; /* or has gone: all others stop waiting */
    int n_left, n_abandoned;
    struct {
        uint8_t bytes[RANK_THREADS_MAX][RANK_MAX_BYTES];
        uint64_t n_in; /* contributions so far, of all rounds */
    } gathers[2];      /* none is further than one round ahead */
    struct {
        uint8_t bytes[RANK_MAX_BYTES];
        uint64_t number; /* of the broadcast that it holds, from 1 */
    } broadcasts[RANK_N_BROADCASTS];
    struct {
        uint64_t messages[RANK_MAX_WAITING];
        uint64_t n_sent, n_taken;
    } queues[RANK_THREADS_MAX][RANK_THREADS_MAX]; /* of the receiver, from each */
} rank_job;

static _Thread_local int rank_self;

static inline struct rank_comm *rank_comm_of(struct dcpk_comm *comm)
{
    return (struct rank_comm *)comm;
}

static inline void rank_dawdle(struct rank_comm *comm)
{
    const struct timespec pause = {.tv_nsec = 100000};

    if (rank_job.seed == 0)
        return;
    if (random_below(&comm->seed, 16) == 0)
        nanosleep(&pause, NULL);
    else if (random_below(&comm->seed, 4) == 0)
        sched_yield();
}

static inline double rank_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/*
 * Wait a little for a change; false when `since` is too long ago, or somebody has given up. Under
 * the lock.
 */
static inline bool rank_wait(double since)
{
    struct timespec until;

    rank_job.is_late = rank_job.is_late || rank_seconds() > since + RANK_PATIENCE;
    if (rank_job.is_over || rank_job.is_late) {
        rank_job.is_over = true;
        pthread_cond_broadcast(&rank_job.changed);
        return false;
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 1000000; /* what is late has no sign of its own */
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    (void)pthread_cond_timedwait(&rank_job.changed, &rank_job.mutex, &until);
    return true;
}

static inline dcpk_status rank_all_gather(struct dcpk_comm *comm, const void *mine, size_t n_bytes,
                                          void *all, struct dcpk_error *err)
{
    struct rank_comm *c = rank_comm_of(comm);
    const uint64_t round = c->n_gathered++, wanted = (round / 2 + 1) * (uint64_t)comm->n_ranks;
    const double since = rank_seconds();
    bool goes_on = true;

    rank_dawdle(c);
    pthread_mutex_lock(&rank_job.mutex);
    memcpy(rank_job.gathers[round % 2].bytes[comm->rank], mine, n_bytes);
    rank_job.gathers[round % 2].n_in++;
    pthread_cond_broadcast(&rank_job.changed);
    while (rank_job.gathers[round % 2].n_in < wanted && goes_on)
        goes_on = rank_wait(since);
    for (int r = 0; r < comm->n_ranks; r++)
        memcpy((uint8_t *)all + (size_t)r * n_bytes, rank_job.gathers[round % 2].bytes[r], n_bytes);
    pthread_mutex_unlock(&rank_job.mutex);
    return goes_on ? DCPK_OK : dcpk_fail(err, DCPK_EIO, "gathering never ends");
}

static inline dcpk_status rank_any_gather(struct dcpk_comm *comm, const void *mine, size_t n_bytes,
                                          void *all, struct dcpk_error *err)
{
    return (rank_job.all_gather == NULL ? rank_all_gather : rank_job.all_gather)(comm, mine,
                                                                                 n_bytes, all, err);
}

static inline dcpk_status rank_broadcast(struct dcpk_comm *comm, int root, void *data,
                                         size_t n_bytes, struct dcpk_error *err)
{
    struct rank_comm *c = rank_comm_of(comm);
    const uint64_t number = ++c->n_heard;
    const size_t slot = (size_t)(number % RANK_N_BROADCASTS);
    const double since = rank_seconds();
    bool goes_on = true;

    rank_dawdle(c);
    pthread_mutex_lock(&rank_job.mutex);
    if (comm->rank == root) {
        memcpy(rank_job.broadcasts[slot].bytes, data, n_bytes);
        rank_job.broadcasts[slot].number = number;
        pthread_cond_broadcast(&rank_job.changed);
    }
    while (rank_job.broadcasts[slot].number != number && goes_on)
        goes_on = rank_wait(since);
    if (goes_on && n_bytes > 0)
        memcpy(data, rank_job.broadcasts[slot].bytes, n_bytes);
    pthread_mutex_unlock(&rank_job.mutex);
    return goes_on ? DCPK_OK : dcpk_fail(err, DCPK_EIO, "nothing is broadcast");
}

static inline dcpk_status rank_any_broadcast(struct dcpk_comm *comm, int root, void *data,
                                             size_t n_bytes, struct dcpk_error *err)
{
    return (rank_job.broadcast == NULL ? rank_broadcast : rank_job.broadcast)(comm, root, data,
                                                                              n_bytes, err);
}

static inline dcpk_status rank_send(struct dcpk_comm *comm, int to, uint64_t message,
                                    struct dcpk_error *err)
{
    uint64_t n_waiting;

    rank_dawdle(rank_comm_of(comm));
    pthread_mutex_lock(&rank_job.mutex);
    n_waiting = rank_job.queues[to][comm->rank].n_sent - rank_job.queues[to][comm->rank].n_taken;
    if (n_waiting < RANK_MAX_WAITING)
        rank_job.queues[to][comm->rank]
            .messages[rank_job.queues[to][comm->rank].n_sent++ % RANK_MAX_WAITING] = message;
    pthread_cond_broadcast(&rank_job.changed);
    pthread_mutex_unlock(&rank_job.mutex);
    return n_waiting < RANK_MAX_WAITING ? DCPK_OK : dcpk_fail(err, DCPK_EIO, "nobody receives");
}

/* Has a message of rank r arrived that was not taken? */
static inline bool rank_has_arrived(struct rank_comm *comm, int r)
{
    const int rank = comm->base.rank;
    uint64_t n_by_others = 0;

    if (rank_job.queues[rank][r].n_taken == rank_job.queues[rank][r].n_sent)
        return false;
    for (int other = 0; other < rank_job.n; other++)
        n_by_others += other == r ? 0 : rank_job.queues[0][other].n_sent;
    if (rank_job.n_before > 0 && rank == 0 && r == rank_job.slow_rank)
        return n_by_others >= (uint64_t)rank_job.n_before;
    return rank_job.seed == 0 || random_below(&comm->seed, 3) > 0;
}

/* The rank of a message to take, n when there is none. */
static inline int rank_find_sender(struct rank_comm *comm, int wanted)
{
    const int n = rank_job.n;
    const int first = rank_job.seed == 0 ? 0 : (int)random_below(&comm->seed, (uint64_t)n);

    for (int i = 0; i < n; i++) {
        const int r = (first + i) % n;

        if ((wanted == DCPK_ANY_RANK || wanted == r) && rank_has_arrived(comm, r))
            return r;
    }
    return n;
}

static inline dcpk_status rank_receive(struct dcpk_comm *comm, bool waits, bool *got, int *from,
                                       uint64_t *message, struct dcpk_error *err)
{
    const int n = rank_job.n, rank = comm->rank, wanted = *from;
    const double since = rank_seconds();
    bool goes_on = waits;

    pthread_mutex_lock(&rank_job.mutex);
    *from = rank_find_sender(rank_comm_of(comm), wanted);
    while (*from == n && goes_on) {
        goes_on = rank_wait(since);
        *from = rank_find_sender(rank_comm_of(comm), wanted);
    }
    *got = *from < n;
    if (*got)
        *message = rank_job.queues[rank][*from]
                       .messages[rank_job.queues[rank][*from].n_taken++ % RANK_MAX_WAITING];
    pthread_mutex_unlock(&rank_job.mutex);
    return *got || !waits ? DCPK_OK : dcpk_fail(err, DCPK_EIO, "nothing is received");
}

static inline void rank_leave(struct dcpk_comm *comm)
{
    pthread_mutex_lock(&rank_job.mutex);
    rank_job.n_left++;
    pthread_mutex_unlock(&rank_job.mutex);
    free(comm);
}

static inline void rank_abandon(struct dcpk_comm *comm)
{
    pthread_mutex_lock(&rank_job.mutex);
    rank_job.n_abandoned++;
    rank_job.is_over = true; /* a launcher would end the others */
    pthread_mutex_unlock(&rank_job.mutex);
    free(comm);
}

static inline dcpk_status rank_join(struct dcpk_comm **comm, struct dcpk_error *err);

static const struct dcpk_transport rank_transport = {
    .name = "threads",
    .summary = "threads of this test",
    .join = rank_join,
    .all_gather = rank_any_gather,
    .broadcast = rank_any_broadcast,
    .send = rank_send,
    .receive = rank_receive,
    .leave = rank_leave,
    .abandon = rank_abandon,
};
static const struct dcpk_transport *const rank_transports[] = {&rank_transport, NULL};

static inline dcpk_status rank_join(struct dcpk_comm **comm, struct dcpk_error *err)
{
    struct rank_comm *made = calloc(1, sizeof *made);

    if (made == NULL)
        return dcpk_fail(err, DCPK_ENOMEM, "no memory for a test's rank");
    made->base = (struct dcpk_comm){&rank_transport, rank_self, rank_job.n, 0};
    made->seed = rank_job.seed + (uint64_t)rank_self;
    *comm = &made->base;
    return DCPK_OK;
}

/* A task that waits for all others, so that each has a thread, and never fails: the pool would
 * begin no more of them. */
static inline dcpk_status rank_task(void *context, int worker, uint64_t number,
                                    struct dcpk_error *err)
{
    struct dcpk_error left = DCPK_ERROR_INIT;
    struct dcpk_ranks *ranks;

    (void)context;
    (void)worker;
    rank_self = (int)number;
    rank_job.ends[number] = dcpk_ranks_join(rank_transports, &ranks, err);
    if (rank_job.ends[number] == DCPK_OK) {
        rank_job.script(ranks, (int)number, rank_job.context);
        rank_job.ends[number] = dcpk_ranks_leave(ranks, &left);
        snprintf(rank_job.said[number], sizeof rank_job.said[number], "%s", left.text);
    }
    return DCPK_OK;
}

/* Run a script by rank_job.n ranks, which leave; what else is set in rank_job goes for it. */
static inline void rank_threads_try(rank_script *script, void *context)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    char n_text[16];

    rank_job.script = script;
    rank_job.context = context;
    snprintf(n_text, sizeof n_text, "%d", rank_job.n);
    setenv("PMI_SIZE", n_text, 1);
    pthread_mutex_init(&rank_job.mutex, NULL);
    pthread_cond_init(&rank_job.changed, NULL);
    CHECK_OK(dcpk_pool_run(rank_job.n, (uint64_t)rank_job.n, rank_task, NULL, &err), "threads");
    pthread_cond_destroy(&rank_job.changed);
    pthread_mutex_destroy(&rank_job.mutex);
}

/* The same where all leave well, with nothing of one phase left for the next. */
static inline void rank_threads_run(rank_script *script, void *context, const char *label)
{
    const int n = rank_job.n;

    rank_threads_try(script, context);
    CHECK_EQ_INT(rank_job.n_left, n, label);
    for (int r = 0; r < n; r++)
        CHECK_EQ_INT(rank_job.ends[r], DCPK_OK, label);
    for (int r = 0; r < n * n; r++)
        CHECK_EQ_INT(rank_job.queues[r / n][r % n].n_taken, rank_job.queues[r / n][r % n].n_sent,
                     label);
}

/* A new job. */
static inline void rank_threads_begin(int n, uint64_t seed)
{
    memset(&rank_job, 0, sizeof rank_job);
    rank_job.n = n;
    rank_job.seed = seed;
}

#endif

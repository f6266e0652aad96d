/* SPDX-License-Identifier: Apache-2.0 */
/* thread_ranks.c - a transport between threads: each shows where its bytes lie, all copy them. */
#include "lib/exec/ranks.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "lib/base/alloc.h"
#include "lib/exec/pool.h"

#define START_SECONDS 30 /* for all threads to be started */

/* State that the ranks share. All but what is set before they start is under the lock. */
struct rank_group {
    int n_ranks;
    dcpk_rank_script *script;
    void *context;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int n_arrived;   /* at the next meeting */
    uint64_t n_met;  /* meetings so far */
    bool is_over;    /* a rank has gone: the others wait for nothing any more */
    const void **at; /* by rank, between two meetings */
};

struct group_comm {
    struct dcpk_comm base;
    struct rank_group *group;
};

static struct rank_group *comm_group(const struct dcpk_comm *comm)
{
    return ((const struct group_comm *)comm)->group;
}

/* Wait for all ranks. until: NULL: as long as it takes. False when a rank has gone, or is late. */
static bool group_meet(struct rank_group *group, const struct timespec *until)
{
    uint64_t number;
    bool is_met;

    pthread_mutex_lock(&group->mutex);
    number = group->n_met;
    /* Once a rank has gone, no meeting succeeds: an earlier arrival would count for its rank. */
    if (!group->is_over && ++group->n_arrived == group->n_ranks) {
        group->n_arrived = 0;
        group->n_met++;
        pthread_cond_broadcast(&group->changed);
    }
    while (group->n_met == number && !group->is_over) {
        if (until == NULL)
            pthread_cond_wait(&group->changed, &group->mutex);
        else if (pthread_cond_timedwait(&group->changed, &group->mutex, until) == ETIMEDOUT)
            break;
    }
    is_met = group->n_met != number;
    if (!is_met) {
        group->is_over = true;
        pthread_cond_broadcast(&group->changed);
    }
    pthread_mutex_unlock(&group->mutex);
    return is_met;
}

static dcpk_status group_fail(struct dcpk_error *err)
{
    return dcpk_fail(err, DCPK_EIO, "another rank, a thread of this process, has ended");
}

static dcpk_status group_all_gather(struct dcpk_comm *comm, const void *mine, size_t n_bytes,
                                    void *all, struct dcpk_error *err)
{
    struct rank_group *group = comm_group(comm);

    group->at[comm->rank] = mine;
    if (!group_meet(group, NULL))
        return group_fail(err);
    for (size_t r = 0; r < (size_t)comm->n_ranks && n_bytes > 0; r++)
        memmove((uint8_t *)all + r * n_bytes, group->at[r], n_bytes);
    if (!group_meet(group, NULL)) /* all have copied */
        return group_fail(err);
    return DCPK_OK;
}

static dcpk_status group_broadcast(struct dcpk_comm *comm, int root, void *data, size_t n_bytes,
                                   struct dcpk_error *err)
{
    struct rank_group *group = comm_group(comm);

    group->at[comm->rank] = data;
    if (!group_meet(group, NULL))
        return group_fail(err);
    if (comm->rank != root && n_bytes > 0)
        memcpy(data, group->at[root], n_bytes);
    if (!group_meet(group, NULL))
        return group_fail(err);
    return DCPK_OK;
}

static void group_leave(struct dcpk_comm *comm)
{
    dcpk_free(comm);
}

static void group_end(struct rank_group *group)
{
    pthread_mutex_lock(&group->mutex);
    group->is_over = true;
    pthread_cond_broadcast(&group->changed);
    pthread_mutex_unlock(&group->mutex);
}

static void group_abandon(struct dcpk_comm *comm)
{
    group_end(comm_group(comm));
    dcpk_free(comm);
}

static const struct dcpk_transport group_transport = {
    .name = "threads",
    .summary = "threads of one process",
    .all_gather = group_all_gather,
    .broadcast = group_broadcast,
    .leave = group_leave,
    .abandon = group_abandon,
};

static dcpk_status group_join(struct rank_group *group, int rank, struct dcpk_ranks **ranks,
                              struct dcpk_error *err)
{
    struct group_comm *comm = dcpk_alloc(sizeof *comm, err);

    if (comm == NULL)
        return err->status;
    comm->base =
        (struct dcpk_comm){.transport = &group_transport, .rank = rank, .n_ranks = group->n_ranks};
    comm->group = group;
    if (dcpk_ranks_over(&comm->base, ranks, err) != DCPK_OK)
        dcpk_free(comm);
    return err->status;
}

/* A task for each rank. It waits for the others, so that each has a thread of its own. */
static dcpk_status group_rank_task(void *context, int worker, uint64_t number,
                                   struct dcpk_error *err)
{
    struct rank_group *group = context;
    struct dcpk_error ignored = DCPK_ERROR_INIT;
    struct dcpk_ranks *ranks = NULL;
    struct timespec until;
    dcpk_status st = group_join(group, (int)number, &ranks, err);

    (void)worker;
    if (st != DCPK_OK) {
        group_end(group);
        return st;
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += START_SECONDS;
    if (!group_meet(group, &until))
        st = dcpk_fail(err, DCPK_EIO, "the system does not start %d threads, or one has no memory",
                       group->n_ranks);
    if (st == DCPK_OK)
        st = group->script(ranks, group->context, err);
    (void)dcpk_ranks_leave(ranks, &ignored); /* the script has the error */
    return st;
}

dcpk_status dcpk_thread_ranks_run(int n_ranks, dcpk_rank_script *script, void *context,
                                  struct dcpk_error *err)
{
    struct rank_group group = {.n_ranks = n_ranks, .script = script, .context = context};

    assert(n_ranks >= 1 && n_ranks <= DCPK_MAX_THREAD_RANKS);
    if (n_ranks == 1)
        return script(NULL, context, err);
    group.at = dcpk_alloc_array((size_t)n_ranks, sizeof *group.at, err);
    if (group.at == NULL)
        return err->status;
    pthread_mutex_init(&group.mutex, NULL);
    pthread_cond_init(&group.changed, NULL);
    (void)dcpk_pool_run(n_ranks, (uint64_t)n_ranks, group_rank_task, &group, err);
    pthread_cond_destroy(&group.changed);
    pthread_mutex_destroy(&group.mutex);
    dcpk_free(group.at);
    return err->status;
}

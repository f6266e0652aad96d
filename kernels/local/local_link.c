/* SPDX-License-Identifier: Apache-2.0 */
/* local_link.c - messages between threads of one process: the receiver copies them. */
/*
 * All ranks share a hub with a slot for each pair and each of the exchanges that may be under way.
 * A sender puts address and length into its slot; the receiver copies the bytes when it polls, and
 * clears the slot, upon which the sender is done, too.
 */
#include "kernels/kernels.h"

#include <assert.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/digest.h"

#define N_UNDER_WAY 2

struct slot {
    const void *at; /* NULL: empty */
    size_t n_bytes;
};

struct hub {
    pthread_mutex_t mutex; /* of all that follows */
    int n_holders;         /* links that may still use it */
    bool is_over;
    struct slot slots[]; /* of (sender * n_ranks + receiver) * N_UNDER_WAY + exchange */
};

struct local_link {
    struct dcpk_link base;
    struct hub *hub;
    const struct dcpk_exchange *exchanges[N_UNDER_WAY]; /* number i is at i % N_UNDER_WAY */
    uint64_t n_begun, n_done;
    bool *got; /* of each receive of the oldest */
};

static struct slot *slot_of(const struct local_link *link, int from, int to, uint64_t number)
{
    const size_t pair = (size_t)from * (size_t)link->base.n_ranks + (size_t)to;

    return &link->hub->slots[pair * N_UNDER_WAY + number % N_UNDER_WAY];
}

static dcpk_status hub_new(int n_ranks, struct hub **hub, struct dcpk_error *err)
{
    const size_t n_slots = (size_t)n_ranks * (size_t)n_ranks * N_UNDER_WAY;
    struct hub *made = dcpk_alloc(sizeof *made + n_slots * sizeof made->slots[0], err);

    if (made == NULL)
        return err->status;
    pthread_mutex_init(&made->mutex, NULL);
    made->n_holders = n_ranks;
    *hub = made;
    return DCPK_OK;
}

/* NULL is a no-op. */
static void hub_free(struct hub *hub)
{
    if (hub == NULL)
        return;
    pthread_mutex_destroy(&hub->mutex);
    dcpk_free(hub);
}

/* One holder less; the last one frees the hub. */
static void hub_leave(struct hub *hub, bool is_over)
{
    bool is_last;

    pthread_mutex_lock(&hub->mutex);
    hub->is_over = hub->is_over || is_over;
    is_last = --hub->n_holders == 0;
    pthread_mutex_unlock(&hub->mutex);
    if (is_last)
        hub_free(hub);
}

/* The broadcast of rank 0: the place of its hub, and its process. */
struct invitation {
    struct dcpk_memory_id process;
    struct hub *hub; /* NULL: rank 0 could not make one */
    uint64_t sum;    /* of the fields before it: nothing follows a pointer that has changed */
};

static uint64_t invitation_sum(const struct invitation *invitation)
{
    return dcpk_crc32(0, invitation, offsetof(struct invitation, sum));
}

/* Collective, also for a rank that has failed. */
static dcpk_status invitation_share(struct invitation *invitation, struct dcpk_comm *comm,
                                    struct dcpk_error *err)
{
    struct dcpk_error network = DCPK_ERROR_INIT;

    if (comm->transport->broadcast(comm, 0, invitation, sizeof *invitation, &network)) {
        if (err->status == DCPK_OK)
            *err = network;
        return err->status;
    }
    if (err->status == DCPK_OK && !dcpk_memory_id_is_own(&invitation->process))
        dcpk_fail(err, DCPK_EUNSUPPORTED, "ranks are not threads of one process");
    if (err->status == DCPK_OK && invitation->sum != invitation_sum(invitation))
        dcpk_fail(err, DCPK_EIO, "the broadcast of rank 0 arrived with other bytes");
    return dcpk_link_agree(comm, dcpk_link_local.name, err);
}

static dcpk_status local_open(struct dcpk_comm *comm, struct dcpk_device *device,
                              struct dcpk_link **link, struct dcpk_error *err)
{
    struct invitation invitation = {.hub = NULL};
    struct local_link *made = dcpk_alloc(sizeof *made, err);
    bool *got = dcpk_alloc_array((size_t)comm->n_ranks, sizeof *got, err);

    (void)device;
    if (comm->rank == 0) {
        dcpk_memory_id_sign(&invitation.process);
        if (err->status == DCPK_OK)
            hub_new(comm->n_ranks, &invitation.hub, err);
        invitation.sum = invitation_sum(&invitation);
    }
    if (invitation_share(&invitation, comm, err)) {
        /* where the network broke, another rank may have the hub: it stays */
        if (comm->rank == 0 && err->status != DCPK_EIO)
            hub_free(invitation.hub);
        dcpk_free(made);
        dcpk_free(got);
        return err->status;
    }
    made->base = (struct dcpk_link){&dcpk_link_local, comm->rank, comm->n_ranks, false};
    made->hub = invitation.hub;
    made->got = got;
    *link = &made->base;
    return DCPK_OK;
}

static void local_close(struct dcpk_link *link)
{
    struct local_link *l = (struct local_link *)link;

    if (l == NULL)
        return;
    hub_leave(l->hub, l->n_done < l->n_begun);
    dcpk_free(l->got);
    dcpk_free(l);
}

static dcpk_status local_begin(struct dcpk_link *link, const struct dcpk_exchange *exchange,
                               struct dcpk_error *err)
{
    struct local_link *l = (struct local_link *)link;
    bool is_over;

    assert(l->n_begun - l->n_done < N_UNDER_WAY);
    pthread_mutex_lock(&l->hub->mutex);
    is_over = l->hub->is_over;
    for (size_t i = 0; i < exchange->n_sends && !is_over; i++) {
        const struct dcpk_message *m = &exchange->sends[i];

        assert(m->peer != link->rank && m->n_bytes > 0);
        *slot_of(l, link->rank, m->peer, l->n_begun) = (struct slot){m->at, m->n_bytes};
    }
    pthread_mutex_unlock(&l->hub->mutex);
    if (is_over)
        return dcpk_fail(err, DCPK_ECANCELLED, "another rank has given up");
    l->exchanges[l->n_begun++ % N_UNDER_WAY] = exchange;
    return DCPK_OK;
}

/* Copy message `m` of the oldest exchange, if it is there; under the lock, so that its sender
 * cannot give up and free it meanwhile. */
static dcpk_status receive_one(struct local_link *l, const struct dcpk_message *m, bool *got,
                               struct dcpk_error *err)
{
    struct slot *slot = slot_of(l, m->peer, l->base.rank, l->n_done);

    if (slot->at == NULL)
        return DCPK_OK;
    if (slot->n_bytes != m->n_bytes)
        return dcpk_fail(err, DCPK_EIO, "rank %d sends %zu bytes, expected are %zu", m->peer,
                         slot->n_bytes, m->n_bytes);
    memcpy(m->at, slot->at, m->n_bytes);
    slot->at = NULL;
    *got = true;
    return DCPK_OK;
}

/* Receives all that can be received now; *all: nothing is missing, and all that was sent was
 * taken. */
static dcpk_status receive_all(struct local_link *l, bool *all, struct dcpk_error *err)
{
    const struct dcpk_exchange *exchange = l->exchanges[l->n_done % N_UNDER_WAY];

    *all = true;
    for (size_t i = 0; i < exchange->n_receives && !l->hub->is_over; i++) {
        if (!l->got[i] && receive_one(l, &exchange->receives[i], &l->got[i], err))
            return err->status;
        *all = *all && l->got[i];
    }
    for (size_t i = 0; i < exchange->n_sends; i++)
        *all = *all && slot_of(l, l->base.rank, exchange->sends[i].peer, l->n_done)->at == NULL;
    if (l->hub->is_over)
        return dcpk_fail(err, DCPK_ECANCELLED, "another rank has given up");
    return DCPK_OK;
}

static dcpk_status local_poll(struct dcpk_link *link, bool *done, struct dcpk_error *err)
{
    struct local_link *l = (struct local_link *)link;
    bool all = true;
    dcpk_status st;

    *done = true;
    if (l->n_done == l->n_begun)
        return DCPK_OK;
    pthread_mutex_lock(&l->hub->mutex);
    st = receive_all(l, &all, err);
    pthread_mutex_unlock(&l->hub->mutex);
    *done = st == DCPK_OK && all;
    if (!*done)
        return st;
    memset(l->got, 0, (size_t)link->n_ranks * sizeof *l->got);
    l->n_done++;
    return DCPK_OK;
}

static void local_abort(struct dcpk_link *link)
{
    struct local_link *l = (struct local_link *)link;

    pthread_mutex_lock(&l->hub->mutex);
    l->hub->is_over = true;
    pthread_mutex_unlock(&l->hub->mutex);
    l->n_done = l->n_begun;
}

const struct dcpk_link_ops dcpk_link_local = {
    .name = "local",
    .summary = "threads of one process",
    .memory = DCPK_MEMORY_HOST,
    .n_under_way = N_UNDER_WAY,
    DCPK_LINK_FUNCTIONS(local),
};

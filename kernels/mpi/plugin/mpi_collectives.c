/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_collectives.c - collectives of a training step by MPI's nonblocking calls. */
/*
 * A ticket is the number of a slot, which keeps the requests of one call:
 *
 *   call -> slot_take -> MPI_I...(&slot->requests[i]) ... -> slot_begun: the ticket, or slot_wait
 *
 * MPI counts in int. Longer messages go as one element of a type of its own where bytes are moved
 * (bytes_begin), and in several requests where they are added.
 */
#include <assert.h>
#include <limits.h>
#include <string.h>

#include "kernels/mpi/plugin/mpi_priv.h"
#include "lib/base/alloc.h"
#include "lib/base/clock.h"

#define TAG_MESSAGE    3
#define TAG_ALL_TO_ALL 4

/* The most elements that one call of MPI is given; tests build this file with fewer. */
#ifndef DCPK_MPI_COUNT
#define DCPK_MPI_COUNT (1 << 30)
#endif

/* A call under way. */
struct slot {
    bool is_taken;
    MPI_Request *requests;
    size_t n, capacity;
    size_t at, from, n_bytes; /* a result to move in `all` at the end: n_bytes 0: none */
    uint8_t *all;
};

struct mpi_group {
    struct dcpk_group base;
    MPI_Comm comm;
    MPI_Op sum_bf16;
    struct slot *slots;
    size_t n_slots, capacity;
    bool has_failed; /* a call did, whose requests stay with MPI */
};

static struct mpi_group *group_of(struct dcpk_group *group)
{
    return (struct mpi_group *)group;
}

/* ---- slots ---- */

/* A free slot with no requests; the number is its ticket. */
static dcpk_status slot_take(struct mpi_group *g, size_t *number, struct dcpk_error *err)
{
    size_t i = 0;

    while (i < g->n_slots && g->slots[i].is_taken)
        i++;
    if (i == g->n_slots) {
        if (dcpk_grow(&g->slots, &g->capacity, g->n_slots, sizeof *g->slots, err))
            return err->status;
        g->slots[g->n_slots++] = (struct slot){0};
    }
    g->slots[i].is_taken = true;
    g->slots[i].n = 0;
    g->slots[i].n_bytes = 0;
    *number = i;
    return DCPK_OK;
}

/* Room for one more request, or NULL. */
static MPI_Request *slot_request(struct slot *slot, struct dcpk_error *err)
{
    if (dcpk_grow(&slot->requests, &slot->capacity, slot->n, sizeof *slot->requests, err))
        return NULL;
    slot->requests[slot->n] = MPI_REQUEST_NULL;
    return &slot->requests[slot->n++];
}

static dcpk_status slot_test(struct mpi_group *g, struct slot *slot, struct dcpk_error *err)
{
    const double begun = dcpk_now_seconds();
    int is_done = 0;

    for (;;) {
        const double waited = dcpk_now_seconds() - begun;

        if (dcpk_mpi_check(MPI_Testall((int)slot->n, slot->requests, &is_done, MPI_STATUSES_IGNORE),
                           "a collective call", err))
            return err->status;
        if (is_done)
            return DCPK_OK;
        if (waited * 1000 > g->base.timeout_ms)
            return dcpk_fail(err, DCPK_EIO,
                             "MPI, a collective call: another rank is not there after %d ms",
                             g->base.timeout_ms);
        dcpk_pause(waited);
    }
}

/* Wait for all that the slot began, and free it. */
static dcpk_status slot_wait(struct mpi_group *g, size_t number, struct dcpk_error *err)
{
    struct slot *slot = &g->slots[number];
    dcpk_status st;

    assert(number < g->n_slots && slot->is_taken);
    if (g->base.timeout_ms > 0)
        st = slot_test(g, slot, err);
    else
        st = dcpk_mpi_check(MPI_Waitall((int)slot->n, slot->requests, MPI_STATUSES_IGNORE),
                            "a collective call", err);
    if (st != DCPK_OK) {
        g->has_failed = true; /* the slot's requests are lost, and so it stays taken */
        return st;
    }
    if (slot->n_bytes > 0)
        memmove(slot->all + slot->at, slot->all + slot->from, slot->n_bytes);
    slot->is_taken = false;
    return DCPK_OK;
}

/* End of every call: st is how its requests were begun. */
static dcpk_status slot_begun(struct mpi_group *g, size_t number, dcpk_status st, uint64_t *ticket,
                              struct dcpk_error *err)
{
    if (st != DCPK_OK) {
        g->has_failed = true;
        return st;
    }
    if (ticket == NULL)
        return slot_wait(g, number, err);
    *ticket = number;
    return DCPK_OK;
}

/* ---- groups ---- */

static float bf16_widen(uint16_t code)
{
    const uint32_t bits = (uint32_t)code << 16;
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

/* To the nearest, ties to even. */
static uint16_t bf16_narrow(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void bf16_sum(void *in, void *sum, int *n, MPI_Datatype *type)
{
    const uint16_t *a = in;
    uint16_t *b = sum;

    (void)type;
    for (int i = 0; i < *n; i++)
        b[i] = bf16_narrow(bf16_widen(a[i]) + bf16_widen(b[i]));
}

static void group_free(struct dcpk_group *group)
{
    struct mpi_group *g = group_of(group);

    if (g == NULL)
        return;
    for (size_t i = 0; i < g->n_slots; i++) {
        if (g->slots[i].is_taken) /* MPI may still use what a call that failed was given */
            g->has_failed = true;
        else
            dcpk_free(g->slots[i].requests);
    }
    dcpk_free(g->slots);
    if (g->sum_bf16 != MPI_OP_NULL)
        (void)MPI_Op_free(&g->sum_bf16);
    if (g->comm != MPI_COMM_NULL && !g->has_failed)
        (void)MPI_Comm_free(&g->comm);
    dcpk_free(g);
}

/* A group over `comm`, which it takes: also when it fails. */
static dcpk_status group_make(MPI_Comm comm, int timeout_ms, struct dcpk_group **made,
                              struct dcpk_error *err)
{
    struct mpi_group *g = dcpk_alloc(sizeof *g, err);

    if (g == NULL) {
        (void)MPI_Comm_free(&comm);
        return err->status;
    }
    g->comm = comm;
    g->sum_bf16 = MPI_OP_NULL;
    g->base.by = &dcpk_collectives_mpi;
    g->base.timeout_ms = timeout_ms;
    if (dcpk_mpi_check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "a group", err) ||
        dcpk_mpi_check(MPI_Comm_rank(comm, &g->base.rank), "a group", err) ||
        dcpk_mpi_check(MPI_Comm_size(comm, &g->base.n_ranks), "a group", err) ||
        dcpk_mpi_check(MPI_Op_create(bf16_sum, 1, &g->sum_bf16), "a group", err)) {
        group_free(&g->base);
        return err->status;
    }
    *made = &g->base;
    return DCPK_OK;
}

static dcpk_status group_world(struct dcpk_comm *comm, int ordinal, struct dcpk_group **world,
                               struct dcpk_error *err)
{
    MPI_Comm dup;

    (void)ordinal;
    if (comm == NULL)
        return dcpk_collectives_alone.world(NULL, 0, world, err);
    if (comm->transport != &dcpk_transport_mpi)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "the ranks did not find each other by MPI");
    if (dcpk_mpi_check(MPI_Comm_dup(dcpk_mpi_world(comm), &dup), "a group of all ranks", err))
        return err->status;
    return group_make(dup, comm->timeout_ms, world, err);
}

/* MPI_Comm_split waits without end: it is called when all ranks are there. */
static dcpk_status group_meet(struct mpi_group *g, struct dcpk_error *err)
{
    MPI_Request *request;
    size_t number;
    dcpk_status st = DCPK_ENOMEM;

    if (slot_take(g, &number, err))
        return err->status;
    request = slot_request(&g->slots[number], err);
    if (request != NULL)
        st = dcpk_mpi_check(MPI_Ibarrier(g->comm, request), "meeting", err);
    return slot_begun(g, number, st, NULL, err);
}

static dcpk_status group_split(struct dcpk_group *of, int colour, struct dcpk_group **group,
                               struct dcpk_error *err)
{
    struct mpi_group *g = group_of(of);
    MPI_Comm comm;

    if (group_meet(g, err) ||
        dcpk_mpi_check(MPI_Comm_split(g->comm, colour, g->base.rank, &comm), "splitting", err))
        return err->status;
    return group_make(comm, g->base.timeout_ms, group, err);
}

/* ---- bytes ---- */

/* The form of n_bytes for MPI: `count` elements of `type`, which bytes_end releases. */
struct bytes {
    MPI_Datatype type;
    int count;
};

static dcpk_status bytes_begin(size_t n_bytes, struct bytes *bytes, struct dcpk_error *err)
{
    const size_t block = DCPK_MPI_COUNT, n_blocks = n_bytes / block;
    int lengths[2] = {(int)n_blocks, (int)(n_bytes % block)};
    MPI_Aint places[2] = {0, (MPI_Aint)(n_blocks * block)};
    MPI_Datatype types[2] = {MPI_DATATYPE_NULL, MPI_BYTE};
    int code;

    *bytes = (struct bytes){MPI_BYTE, (int)n_bytes};
    if (n_bytes <= block)
        return DCPK_OK;
    if (n_blocks > INT_MAX)
        return dcpk_fail(err, DCPK_ERANGE, "%zu bytes are too many for one message", n_bytes);
    if (dcpk_mpi_check(MPI_Type_contiguous((int)block, MPI_BYTE, &types[0]), "a type", err))
        return err->status;
    code = MPI_Type_create_struct(2, lengths, places, types, &bytes->type);
    if (code == MPI_SUCCESS)
        code = MPI_Type_commit(&bytes->type);
    (void)MPI_Type_free(&types[0]);
    bytes->count = 1;
    return dcpk_mpi_check(code, "a type", err);
}

/* MPI keeps the type of a call under way. */
static void bytes_end(struct bytes *bytes)
{
    if (bytes->type != MPI_BYTE)
        (void)MPI_Type_free(&bytes->type);
}

/* Calls that move the same number of bytes for every rank, or to and from one. */
enum move { MOVE_ALL_GATHER, MOVE_BROADCAST, MOVE_SEND, MOVE_RECEIVE };

struct moved {
    enum move move;
    int peer, tag; /* root, receiver or sender */
    void *data;
    const void *sent; /* instead of data */
    size_t n_bytes;   /* of a rank */
};

/* Begin one move in the slot. */
static dcpk_status slot_move(struct mpi_group *g, size_t number, const struct moved *m,
                             struct dcpk_error *err)
{
    MPI_Request *request = slot_request(&g->slots[number], err);
    struct bytes b;
    int code = MPI_SUCCESS;

    if (request == NULL || bytes_begin(m->n_bytes, &b, err))
        return err->status;
    switch (m->move) {
    case MOVE_ALL_GATHER:
        code = MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, m->data, b.count, b.type, g->comm,
                              request);
        break;
    case MOVE_BROADCAST:
        code = MPI_Ibcast(m->data, b.count, b.type, m->peer, g->comm, request);
        break;
    case MOVE_SEND:
        code = MPI_Isend(m->sent, b.count, b.type, m->peer, m->tag, g->comm, request);
        break;
    case MOVE_RECEIVE:
        code = MPI_Irecv(m->data, b.count, b.type, m->peer, m->tag, g->comm, request);
        break;
    }
    bytes_end(&b);
    return dcpk_mpi_check(code, "a collective call", err);
}

static dcpk_status group_move(struct mpi_group *g, const struct moved *m, uint64_t *ticket,
                              struct dcpk_error *err)
{
    size_t number;
    dcpk_status st;

    if (slot_take(g, &number, err))
        return err->status;
    st = slot_move(g, number, m, err);
    return slot_begun(g, number, st, ticket, err);
}

static dcpk_status group_all_gather(struct dcpk_group *group, const void *mine, size_t n_bytes,
                                    void *all, uint64_t *ticket, struct dcpk_error *err)
{
    uint8_t *place = (uint8_t *)all + (size_t)group->rank * n_bytes;
    const struct moved m = {.move = MOVE_ALL_GATHER, .data = all, .n_bytes = n_bytes};

    if (place != mine)
        memcpy(place, mine, n_bytes);
    return group_move(group_of(group), &m, ticket, err);
}

static dcpk_status group_broadcast(struct dcpk_group *group, int root, void *data, size_t n_bytes,
                                   uint64_t *ticket, struct dcpk_error *err)
{
    const struct moved m = {MOVE_BROADCAST, root, 0, data, NULL, n_bytes};

    return group_move(group_of(group), &m, ticket, err);
}

static dcpk_status group_send(struct dcpk_group *group, int to, const void *data, size_t n_bytes,
                              uint64_t *ticket, struct dcpk_error *err)
{
    const struct moved m = {MOVE_SEND, to, TAG_MESSAGE, NULL, data, n_bytes};

    assert(to != group->rank);
    return group_move(group_of(group), &m, ticket, err);
}

static dcpk_status group_receive(struct dcpk_group *group, int from, void *data, size_t n_bytes,
                                 uint64_t *ticket, struct dcpk_error *err)
{
    const struct moved m = {MOVE_RECEIVE, from, TAG_MESSAGE, data, NULL, n_bytes};

    assert(from != group->rank);
    return group_move(group_of(group), &m, ticket, err);
}

/* MPI_Ialltoallw places parts by int. */
static dcpk_status slot_exchange(struct mpi_group *g, size_t number, const struct dcpk_parts *parts,
                                 enum move move, struct dcpk_error *err)
{
    uint8_t *at = parts->at;

    for (int r = 0; r < g->base.n_ranks; at += parts->n_bytes[r++]) {
        const struct moved m = {move, r, TAG_ALL_TO_ALL, at, at, parts->n_bytes[r]};

        if (slot_move(g, number, &m, err))
            return err->status;
    }
    return DCPK_OK;
}

static dcpk_status group_all_to_all(struct dcpk_group *group, const struct dcpk_parts *send,
                                    const struct dcpk_parts *receive, uint64_t *ticket,
                                    struct dcpk_error *err)
{
    struct mpi_group *g = group_of(group);
    size_t number;
    dcpk_status st;

    if (slot_take(g, &number, err))
        return err->status;
    st = slot_exchange(g, number, receive, MOVE_RECEIVE, err);
    if (st == DCPK_OK)
        st = slot_exchange(g, number, send, MOVE_SEND, err);
    return slot_begun(g, number, st, ticket, err);
}

/* ---- sums ---- */

static MPI_Datatype reduction_type(enum dcpk_reduction reduction)
{
    if (reduction == DCPK_SUM_I64)
        return MPI_INT64_T;
    if (reduction == DCPK_SUM_BF16)
        return MPI_UINT16_T;
    if (reduction == DCPK_SUM_F32 || reduction == DCPK_MAX_F32)
        return MPI_FLOAT;
    return MPI_DOUBLE;
}

static MPI_Op reduction_op(const struct mpi_group *g, enum dcpk_reduction reduction)
{
    if (reduction == DCPK_SUM_BF16)
        return g->sum_bf16;
    if (reduction == DCPK_MAX_F32 || reduction == DCPK_MAX_F64)
        return MPI_MAX;
    return MPI_SUM;
}

/* Elements that stay with one rank, or (root -1) come to all of them. */
struct summed {
    enum dcpk_reduction reduction;
    int root;
    uint8_t *at;
    size_t n;
};

static dcpk_status slot_sum(struct mpi_group *g, size_t number, const struct summed *s,
                            struct dcpk_error *err)
{
    const size_t elem_bytes = dcpk_reduction_bytes(s->reduction);
    const MPI_Datatype type = reduction_type(s->reduction);
    const MPI_Op op = reduction_op(g, s->reduction);

    for (size_t first = 0; first < s->n; first += DCPK_MPI_COUNT) {
        const size_t left = s->n - first;
        const int n = (int)(left < DCPK_MPI_COUNT ? left : DCPK_MPI_COUNT);
        void *at = s->at + first * elem_bytes;
        MPI_Request *request = slot_request(&g->slots[number], err);
        int code;

        if (request == NULL)
            return err->status;
        if (s->root < 0)
            code = MPI_Iallreduce(MPI_IN_PLACE, at, n, type, op, g->comm, request);
        else if (s->root == g->base.rank)
            code = MPI_Ireduce(MPI_IN_PLACE, at, n, type, op, s->root, g->comm, request);
        else
            code = MPI_Ireduce(at, NULL, n, type, op, s->root, g->comm, request);
        if (dcpk_mpi_check(code, "adding", err))
            return err->status;
    }
    return DCPK_OK;
}

static dcpk_status group_all_reduce(struct dcpk_group *group, enum dcpk_reduction reduction,
                                    void *all, size_t n, uint64_t *ticket, struct dcpk_error *err)
{
    struct mpi_group *g = group_of(group);
    const struct summed s = {reduction, -1, all, n};
    size_t number;
    dcpk_status st;

    if (slot_take(g, &number, err))
        return err->status;
    st = slot_sum(g, number, &s, err);
    return slot_begun(g, number, st, ticket, err);
}

/* In one call, whose result lies at the start of `all` at first. */
static dcpk_status slot_scatter(struct mpi_group *g, size_t number, const struct summed *s,
                                struct dcpk_error *err)
{
    MPI_Request *request = slot_request(&g->slots[number], err);
    struct slot *slot = &g->slots[number];

    if (request == NULL)
        return err->status;
    slot->all = s->at;
    slot->n_bytes = s->n * dcpk_reduction_bytes(s->reduction);
    slot->from = 0;
    slot->at = (size_t)g->base.rank * slot->n_bytes;
    return dcpk_mpi_check(
        MPI_Ireduce_scatter_block(MPI_IN_PLACE, s->at, (int)s->n, reduction_type(s->reduction),
                                  reduction_op(g, s->reduction), g->comm, request),
        "adding", err);
}

static dcpk_status slot_scatter_long(struct mpi_group *g, size_t number, const struct summed *s,
                                     struct dcpk_error *err)
{
    struct summed of_root = *s;

    for (of_root.root = 0; of_root.root < g->base.n_ranks; of_root.root++) {
        if (slot_sum(g, number, &of_root, err))
            return err->status;
        of_root.at += s->n * dcpk_reduction_bytes(s->reduction);
    }
    return DCPK_OK;
}

static dcpk_status group_reduce_scatter(struct dcpk_group *group, enum dcpk_reduction reduction,
                                        void *all, size_t n, uint64_t *ticket,
                                        struct dcpk_error *err)
{
    struct mpi_group *g = group_of(group);
    const struct summed s = {reduction, -1, all, n};
    size_t number;
    dcpk_status st;

    if (slot_take(g, &number, err))
        return err->status;
    if (n <= DCPK_MPI_COUNT)
        st = slot_scatter(g, number, &s, err);
    else
        st = slot_scatter_long(g, number, &s, err);
    return slot_begun(g, number, st, ticket, err);
}

static dcpk_status group_wait(struct dcpk_group *group, uint64_t ticket, struct dcpk_error *err)
{
    return slot_wait(group_of(group), (size_t)ticket, err);
}

const struct dcpk_collectives dcpk_collectives_mpi = {
    .name = "mpi",
    .summary = "processes of one MPI job, from host memory",
    .is_device = false,
    DCPK_COLLECTIVES_FUNCTIONS(group),
};

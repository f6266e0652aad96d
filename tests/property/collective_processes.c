/* SPDX-License-Identifier: Apache-2.0 */
/* collective_processes.c - collectives between the processes of an MPI job, against what each rank
 * works out by itself. Started by mpirun. */

#include "tests/check.h"
#include "tests/random.h"
#include "tests/world_case.h"

#define MOST      100 /* elements of a rank */
#define MAX_RANKS 8

static uint64_t *room; /* of calls: 2 * MOST * MAX_RANKS numbers */

/* What rank r gives in round `seed` at place i: small integers, exact in every type. */
static int64_t given(uint64_t seed, int r, size_t i)
{
    return (int64_t)((seed * 7 + (uint64_t)r * 31 + i * 3) % 11) - 5;
}

static void put(enum dcpk_reduction reduction, void *at, size_t i, int64_t value)
{
    const float narrow = (float)value;
    uint32_t bits;

    switch (reduction) {
    case DCPK_SUM_I64:
        ((int64_t *)at)[i] = value;
        break;
    case DCPK_SUM_BF16:
        memcpy(&bits, &narrow, sizeof bits);
        ((uint16_t *)at)[i] = (uint16_t)(bits >> 16);
        break;
    case DCPK_SUM_F32:
    case DCPK_MAX_F32:
        ((float *)at)[i] = narrow;
        break;
    case DCPK_SUM_F64:
    case DCPK_MAX_F64:
        ((double *)at)[i] = (double)value;
        break;
    }
}

static int64_t reduced(const struct dcpk_group *g, enum dcpk_reduction reduction, uint64_t seed,
                       size_t i)
{
    const bool is_max = reduction == DCPK_MAX_F32 || reduction == DCPK_MAX_F64;
    int64_t all = given(seed, 0, i);

    for (int r = 1; r < g->n_ranks; r++) {
        const int64_t one = given(seed, r, i);

        if (!is_max)
            all += one;
        else if (one > all)
            all = one;
    }
    return all;
}

static void try_sums(struct dcpk_group *g, uint64_t seed, bool has_ticket, const char *label)
{
    static uint64_t want[MOST * MAX_RANKS];
    uint64_t *a = room, *b = room + MOST * MAX_RANKS;
    const enum dcpk_reduction reduction = (enum dcpk_reduction)(seed % 6);
    const size_t n = 1 + seed % MOST, bytes = n * dcpk_reduction_bytes(reduction);
    uint64_t tickets[2], *first = has_ticket ? &tickets[0] : NULL,
                         *second = has_ticket ? &tickets[1] : NULL;
    struct dcpk_error err = DCPK_ERROR_INIT;

    for (size_t i = 0; i < n * (size_t)g->n_ranks; i++) {
        put(reduction, a, i, given(seed, g->rank, i));
        put(reduction, b, i, given(seed, g->rank, i));
        put(reduction, want, i, reduced(g, reduction, seed, i));
    }
    CHECK_OK(g->by->all_reduce(g, reduction, a, n, first, &err), label);
    CHECK_OK(g->by->reduce_scatter(g, reduction, b, n, second, &err), label);
    if (has_ticket) { /* in the other order */
        CHECK_OK(g->by->wait(g, tickets[1], &err), label);
        CHECK_OK(g->by->wait(g, tickets[0], &err), label);
    }
    CHECK(memcmp(a, want, bytes) == 0, label);
    CHECK(memcmp((uint8_t *)b + (size_t)g->rank * bytes, (uint8_t *)want + (size_t)g->rank * bytes,
                 bytes) == 0,
          label);
}

static void try_gather(struct dcpk_group *g, uint64_t seed, bool has_ticket, const char *label)
{
    uint8_t *all = (uint8_t *)room, *mine = all + MOST * MAX_RANKS, *data = mine + MOST;
    const int root = (int)(seed % (uint64_t)g->n_ranks);
    const size_t n = seed % MOST;
    const bool is_in_place = seed % 3 == 0;
    uint8_t *from = is_in_place ? all + (size_t)g->rank * n : mine;
    uint64_t tickets[2], *first = has_ticket ? &tickets[0] : NULL,
                         *second = has_ticket ? &tickets[1] : NULL;
    struct dcpk_error err = DCPK_ERROR_INIT;

    for (size_t i = 0; i < n; i++)
        from[i] = data[i] = (uint8_t)given(seed, g->rank, i);
    CHECK_OK(g->by->all_gather(g, from, n, all, first, &err), label);
    CHECK_OK(g->by->broadcast(g, root, data, n, second, &err), label);
    if (has_ticket) {
        CHECK_OK(g->by->wait(g, tickets[1], &err), label);
        CHECK_OK(g->by->wait(g, tickets[0], &err), label);
    }
    for (int r = 0; r < g->n_ranks; r++)
        for (size_t i = 0; i < n; i++)
            CHECK_EQ_INT(all[(size_t)r * n + i], (uint8_t)given(seed, r, i), label);
    for (size_t i = 0; i < n; i++)
        CHECK_EQ_INT(data[i], (uint8_t)given(seed, root, i), label);
}

/* Rank s sends (s + 2 r) % 9 bytes of its own number to rank r. */
static void try_all_to_all(struct dcpk_group *g, bool has_ticket, const char *label)
{
    uint8_t *sent = (uint8_t *)room, *received = sent + 9 * MAX_RANKS;
    size_t send_bytes[MAX_RANKS], receive_bytes[MAX_RANKS], n = 0;
    const struct dcpk_parts send = {sent, send_bytes}, receive = {received, receive_bytes};
    struct dcpk_error err = DCPK_ERROR_INIT;
    uint64_t ticket;

    memset(sent, g->rank + 1, 9 * MAX_RANKS);
    memset(received, 0, 9 * MAX_RANKS + 1);
    for (int r = 0; r < g->n_ranks; r++) {
        send_bytes[r] = (size_t)(g->rank + 2 * r) % 9;
        receive_bytes[r] = (size_t)(r + 2 * g->rank) % 9;
    }
    CHECK_OK(g->by->all_to_all(g, &send, &receive, has_ticket ? &ticket : NULL, &err), label);
    if (has_ticket)
        CHECK_OK(g->by->wait(g, ticket, &err), label);
    for (int r = 0; r < g->n_ranks; r++)
        for (size_t i = 0; i < receive_bytes[r]; i++)
            CHECK_EQ_INT(received[n++], r + 1, label);
    CHECK_EQ_INT(received[n], 0, label);
}

/* Two messages to the next rank, two from the one before; they stay in order. */
static void try_messages(struct dcpk_group *g, const char *label)
{
    const int next = (g->rank + 1) % g->n_ranks, before = (g->rank + g->n_ranks - 1) % g->n_ranks;
    int64_t *sent = (int64_t *)room, *got = sent + 2;
    uint64_t tickets[2];
    struct dcpk_error err = DCPK_ERROR_INIT;

    if (g->n_ranks == 1)
        return;
    sent[0] = g->rank * 10;
    sent[1] = g->rank * 10 + 1;
    got[0] = got[1] = -1;
    CHECK_OK(g->by->send(g, next, &sent[0], sizeof sent[0], &tickets[0], &err), label);
    CHECK_OK(g->by->send(g, next, &sent[1], sizeof sent[1], &tickets[1], &err), label);
    CHECK_OK(g->by->receive(g, before, &got[0], sizeof got[0], NULL, &err), label);
    CHECK_OK(g->by->receive(g, before, &got[1], sizeof got[1], NULL, &err), label);
    CHECK_OK(g->by->wait(g, tickets[0], &err), label);
    CHECK_OK(g->by->wait(g, tickets[1], &err), label);
    CHECK_EQ_INT(got[0], before * 10, label);
    CHECK_EQ_INT(got[1], before * 10 + 1, label);
}

static void try_group(struct dcpk_group *g, uint64_t seed)
{
    char label[64];

    snprintf(label, sizeof label, "seed %" PRIu64 ", rank %d of %d", seed, g->rank, g->n_ranks);
    for (int has_ticket = 0; has_ticket < 2; has_ticket++) {
        try_sums(g, seed, has_ticket, label);
        try_gather(g, seed, has_ticket, label);
        try_all_to_all(g, has_ticket, label);
    }
    try_messages(g, label);
}

static void all_ranks_agree(void **state)
{
    (void)state;
    for (uint64_t seed = 100; seed < 160; seed++)
        try_group(world, seed);
}

static void parts_of_the_world_agree(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_group *half;

    (void)state;
    CHECK_OK(world->by->split(world, world->rank % 2, &half, &err), "split");
    CHECK_EQ_INT(half->rank, world->rank / 2, "rank of a part");
    CHECK_EQ_INT(half->n_ranks, (world->n_ranks + 1 - world->rank % 2) / 2, "ranks of a part");
    for (uint64_t seed = 200; seed < 230; seed++)
        try_group(half, seed);
    half->by->free(half);
}

/* bf16 is added in fp32 and rounded to nearest, ties to even: 256 + 1 is a tie. */
static void bf16_rounds(void **state)
{
    uint16_t *code = (uint16_t *)room;
    struct dcpk_error err = DCPK_ERROR_INIT;

    (void)state;
    *code = world->rank == 0 ? 0x4380 : 0x3f80; /* 256, 1 */
    CHECK_OK(world->by->all_reduce(world, DCPK_SUM_BF16, code, 1, NULL, &err), "sum");
    if (world->n_ranks <= 2)
        CHECK_EQ_INT(*code, 0x4380, "256 + 1");
}

/* The last rank comes late: the others give up, and need not wait for it without end. NCCL's ranks
 * cannot meet then any more. */
static void late_rank_is_an_error(void **state)
{
    int64_t *value = (int64_t *)room; /* MPI keeps it */
    uint8_t *given_up = (uint8_t *)(value + 1);
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_group *g;
    uint64_t ticket;

    (void)state;
    if (world->n_ranks == 1)
        return;
    *value = 1;
    CHECK_OK(world->by->split(world, 0, &g, &err), "split");
    g->timeout_ms = 100;
    if (g->rank < g->n_ranks - 1) {
        CHECK_OK(g->by->all_reduce(g, DCPK_SUM_I64, value, 1, &ticket, &err), "begin");
        CHECK_FAILS(g->by->wait(g, ticket, &err), DCPK_EIO, "is not there after 100 ms", "wait");
        CHECK_OK(world->by->send(world, world->n_ranks - 1, given_up, 1, NULL, &err), "given up");
    } else {
        for (int r = 0; r < world->n_ranks - 1; r++)
            CHECK_OK(world->by->receive(world, r, given_up, 1, NULL, &err), "given up");
        g->timeout_ms = 60000; /* what the others have begun is still with MPI */
        if (!g->by->is_device)
            CHECK_OK(g->by->all_reduce(g, DCPK_SUM_I64, value, 1, NULL, &err), "late");
    }
    g->by->free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_agree),
        cmocka_unit_test(parts_of_the_world_agree),
        cmocka_unit_test(bf16_rounds),
        cmocka_unit_test(late_rank_is_an_error),
    };
    const int exit_with = world_join();
    int n_failed;

    if (exit_with != 0)
        return exit_with;
    room = world_memory(2 * MOST * MAX_RANKS * sizeof *room);
    if (room == NULL)
        return 4;
    n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (n_failed > 0)
        return n_failed; /* the launcher ends the others */
    world_leave();
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* test_gather_link.c - messages by all_gather: every byte arrives where it belongs, whatever the
 * lengths; lengths that differ are an error,
 * the same on all ranks. */
#define RANK_MAX_BYTES (1 << 20)

#include "kernels/kernels.h"

#include "tests/rank_threads.h"

#define MOST  5  /* ranks */
#define GUARD 16 /* bytes before and behind what is received */

struct exchange_job {
    size_t n_bytes[MOST][MOST]; /* from, to; 0: no message */
    size_t expected[MOST][MOST];
    dcpk_status ends[MOST];
};

static uint8_t byte_of(int from, int to, size_t i)
{
    return (uint8_t)(random_nth((uint64_t)(from * MOST + to) << 32 | i) >> 8);
}

static void send_make(const struct exchange_job *job, int from, int to, struct dcpk_message *m)
{
    uint8_t *bytes = malloc(job->n_bytes[from][to]);

    CHECK(bytes != NULL, "memory");
    for (size_t i = 0; i < job->n_bytes[from][to]; i++)
        bytes[i] = byte_of(from, to, i);
    *m = (struct dcpk_message){to, bytes, job->n_bytes[from][to]};
}

static void receive_make(const struct exchange_job *job, int from, int to, struct dcpk_message *m)
{
    uint8_t *bytes = malloc(job->expected[from][to] + (size_t)2 * GUARD);

    CHECK(bytes != NULL, "memory");
    memset(bytes, 0xa5, job->expected[from][to] + (size_t)2 * GUARD);
    *m = (struct dcpk_message){from, bytes + GUARD, job->expected[from][to]};
}

static void receive_check(const struct dcpk_message *m, int to)
{
    const uint8_t *bytes = m->at;

    for (size_t i = 0; i < m->n_bytes; i++)
        if (bytes[i] != byte_of(m->peer, to, i))
            fail_msg("byte %zu from rank %d to rank %d", i, m->peer, to);
    for (size_t i = 0; i < GUARD; i++)
        CHECK(bytes[m->n_bytes + i] == 0xa5 && *(bytes - 1 - i) == 0xa5, "bytes beside a message");
}

static void exchange_rank(struct dcpk_ranks *ranks, int self, void *context)
{
    struct exchange_job *job = context;
    struct dcpk_comm *comm = dcpk_ranks_comm(ranks);
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_message sends[MOST], receives[MOST];
    struct dcpk_exchange exchange = {sends, receives, 0, 0};
    struct dcpk_link *link;

    CHECK_OK(dcpk_link_gather.open(comm, NULL, &link, &err), "open");
    for (int k = comm->n_ranks - 1; k > 0; k--) { /* not in the order of ranks */
        const int peer = (self + k) % comm->n_ranks;

        if (job->n_bytes[self][peer] > 0)
            send_make(job, self, peer, &sends[exchange.n_sends++]);
        if (job->expected[peer][self] > 0)
            receive_make(job, peer, self, &receives[exchange.n_receives++]);
    }
    for (int round = 0; round < 2 && job->ends[self] == DCPK_OK; round++) {
        CHECK_OK(dcpk_link_gather.begin(link, &exchange, &err), "begin");
        job->ends[self] = dcpk_link_wait(link, 1000, &err);
        for (size_t i = 0; i < exchange.n_receives && job->ends[self] == DCPK_OK; i++)
            receive_check(&receives[i], self);
    }
    if (job->ends[self] != DCPK_OK)
        CHECK_EQ_INT(dcpk_link_gather.begin(link, &exchange, &err), DCPK_EIO, "after a failure");
    for (size_t i = 0; i < exchange.n_sends; i++)
        free(sends[i].at);
    for (size_t i = 0; i < exchange.n_receives; i++)
        free((uint8_t *)receives[i].at - GUARD);
    dcpk_link_gather.close(link);
    dcpk_link_gather.close(NULL);
}

static void test_random_lengths(void **state)
{
    static const size_t most[] = {3, 300, 70000, (size_t)3 << 20};

    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        static struct exchange_job job;
        uint64_t random = seed;
        char label[32];

        snprintf(label, sizeof label, "seed %d", (int)seed);
        memset(&job, 0, sizeof job);
        rank_threads_begin(2 + (int)random_below(&random, MOST - 1), seed);
        for (int from = 0; from < rank_job.n; from++)
            for (int to = 0; to < rank_job.n; to++)
                if (from != to && random_below(&random, 4) > 0)
                    job.n_bytes[from][to] = (size_t)random_below(&random, most[seed % 4]);
        memcpy(job.expected, job.n_bytes, sizeof job.expected);
        rank_threads_run(exchange_rank, &job, label);
        for (int r = 0; r < rank_job.n; r++)
            CHECK_EQ_INT(job.ends[r], DCPK_OK, label);
    }
}

static void test_other_lengths(void **state)
{
    static struct exchange_job job;

    (void)state;
    for (int i = 0; i < 3; i++) {
        memset(&job, 0, sizeof job);
        rank_threads_begin(3, 0);
        job.n_bytes[0][2] = job.expected[0][2] = 3 * RANK_MAX_BYTES;
        job.n_bytes[0][1] = i == 1 ? 0 : 10;
        job.expected[0][1] = i == 2 ? 0 : 11;
        rank_threads_run(exchange_rank, &job, "other lengths");
        for (int r = 0; r < 3; r++)
            CHECK_EQ_INT(job.ends[r], DCPK_EIO, "all ranks see it");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_lengths),
        cmocka_unit_test(test_other_lengths),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

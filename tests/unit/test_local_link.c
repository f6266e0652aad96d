/* SPDX-License-Identifier: Apache-2.0 */
/* test_local_link.c - a link of threads opens on all ranks or on none, and none waits for one that
 * cannot. */
#include "kernels/kernels.h"

#include "tests/rank_threads.h"

#define N_RANKS 3

static struct dcpk_error errs[N_RANKS];
static int lacking; /* the ranks from this one on lack something */

/* As dcpk_link_agree is called by a link. */
static void agree_rank(struct dcpk_ranks *ranks, int self, void *context)
{
    (void)context;
    errs[self] = (struct dcpk_error)DCPK_ERROR_INIT;
    if (self >= lacking)
        dcpk_fail(&errs[self], DCPK_EUNSUPPORTED, "reason %d", self);
    (void)dcpk_link_agree(dcpk_ranks_comm(ranks), "some", &errs[self]);
}

static void the_lowest_reason_is_kept(void **state)
{
    (void)state;
    for (lacking = 0; lacking <= N_RANKS; lacking++) {
        char wanted[64];

        rank_threads_begin(N_RANKS, 0);
        rank_threads_run(agree_rank, NULL, "agree");
        for (int r = 0; r < N_RANKS; r++) {
            CHECK_EQ_INT(errs[r].status, lacking == N_RANKS ? DCPK_OK : DCPK_EUNSUPPORTED, "agree");
            if (lacking == N_RANKS)
                continue;
            snprintf(wanted, sizeof wanted, "reason %d", r);
            if (r < lacking)
                snprintf(wanted, sizeof wanted, "rank %d has no link 'some': reason %d", lacking,
                         lacking);
            CHECK_EQ_STR(errs[r].text, wanted, "agree");
        }
    }
}

/* What rank 0 broadcasts first begins with its process: the last rank gets another one. */
static dcpk_status broadcast_from_elsewhere(struct dcpk_comm *comm, int root, void *data,
                                            size_t n_bytes, struct dcpk_error *err)
{
    const bool is_first = ((struct rank_comm *)comm)->n_heard == 0;
    const dcpk_status st = rank_broadcast(comm, root, data, n_bytes, err);
    struct dcpk_memory_id id;

    if (is_first && comm->rank == N_RANKS - 1) {
        CHECK(n_bytes >= sizeof id, "an invitation");
        memcpy(&id, data, sizeof id);
        id.process++;
        memcpy(data, &id, sizeof id);
    }
    return st;
}

static void open_rank(struct dcpk_ranks *ranks, int self, void *context)
{
    struct dcpk_link *link = NULL;

    (void)context;
    errs[self] = (struct dcpk_error)DCPK_ERROR_INIT;
    (void)dcpk_link_local.open(dcpk_ranks_comm(ranks), NULL, &link, &errs[self]);
    CHECK((link != NULL) == (errs[self].status == DCPK_OK), "a link");
    dcpk_link_local.close(link);
}

static void another_process_is_refused_by_all(void **state)
{
    (void)state;
    rank_threads_begin(N_RANKS, 0);
    rank_job.broadcast = broadcast_from_elsewhere;
    rank_threads_run(open_rank, NULL, "another process");
    for (int r = 0; r < N_RANKS; r++) {
        CHECK_EQ_INT(errs[r].status, DCPK_EUNSUPPORTED, "another process");
        CHECK(strstr(errs[r].text, "ranks are not threads of one process") != NULL, errs[r].text);
    }
    rank_threads_begin(N_RANKS, 0);
    rank_threads_run(open_rank, NULL, "one process");
    for (int r = 0; r < N_RANKS; r++)
        CHECK_EQ_INT(errs[r].status, DCPK_OK, "one process");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lowest_reason_is_kept),
        cmocka_unit_test(another_process_is_refused_by_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

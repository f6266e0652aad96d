/* SPDX-License-Identifier: Apache-2.0 */
/* remap_processes.c - random layouts remapped by the processes of an MPI job: directly through
 * shared memory, and over the link of MPI. Started by mpirun. */
#include <stdio.h>

#include "lib/exec/remap.h"
#include "tests/remap_case.h"

static struct dcpk_ranks *ranks;
static struct dcpk_space *space;
static struct dcpk_link *link_mpi;

static void run_path(struct remap_case *c, enum dcpk_remap_path path, const char *label)
{
    const int self = dcpk_ranks_self(ranks);
    const struct dcpk_remap_options options = {.ranks = ranks,
                                               .space = space,
                                               .link = link_mpi,
                                               .path = path,
                                               .staging_bytes = 1 << 16,
                                               .timeout_ms = 60000,
                                               .checks = true};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_remap_shards mine;
    struct dcpk_remap *remap;

    memset(c->sides[1].memory[self], CASE_POISON, CASE_BYTES);
    mine.sources = case_shards(&c->sides[0], self, &mine.n_sources);
    mine.targets = case_shards(&c->sides[1], self, &mine.n_targets);
    CHECK_OK(dcpk_remap_new(&options, &mine, &remap, &err), label);
    CHECK_OK(dcpk_remap_run(remap, NULL, NULL, &err), label);
    CHECK(memcmp(c->sides[1].memory[self], c->want[self], CASE_BYTES) == 0, label);
    CHECK(path == DCPK_REMAP_STAGED || dcpk_remap_stats(remap)->n_messages == 0, label);
    CHECK_OK(dcpk_ranks_agree(ranks, DCPK_OK, &err), label); /* all are idle */
    dcpk_remap_free(remap);
}

/* All processes make the same case; each has the memory of its own rank only. */
static void processes_remap(void **state)
{
    struct remap_case *c = case_new();
    const int self = dcpk_ranks_self(ranks);
    uint8_t *unshared[2] = {c->sides[0].memory[self], c->sides[1].memory[self]};
    struct dcpk_error err = DCPK_ERROR_INIT;
    char label[64];

    (void)state;
    for (int side = 0; side < 2; side++) {
        void *at;

        CHECK_OK(space->ops->alloc(space, DCPK_MEMORY_DEVICE, CASE_BYTES, &at, &err), "memory");
        c->sides[side].memory[self] = at;
    }
    for (uint64_t seed = 5000; seed < 5030; seed++) {
        case_make(c, seed, dcpk_ranks_count(ranks));
        snprintf(label, sizeof label, "seed %" PRIu64 ", rank %d", seed, self);
        run_path(c, DCPK_REMAP_DIRECT, label);
        run_path(c, DCPK_REMAP_STAGED, label);
        case_release(c);
    }
    for (int side = 0; side < 2; side++) {
        space->ops->free(space, c->sides[side].memory[self]);
        c->sides[side].memory[self] = unshared[side];
    }
    case_free(c);
}

static const struct dcpk_link_ops *find_mpi(void)
{
    for (const struct dcpk_link_ops *const *l = dcpk_links; *l != NULL; l++)
        if (strcmp((*l)->name, "mpi") == 0)
            return *l;
    return NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(processes_remap)};
    const struct dcpk_space_options first = {0};
    struct dcpk_error err = DCPK_ERROR_INIT;
    int n_failed;

    if (find_mpi() == NULL || dcpk_ranks_launched() < 2)
        return 77;
    if (dcpk_ranks_join(dcpk_transports, &ranks, &err) ||
        dcpk_spaces[0]->open(&first, &space, &err) ||
        find_mpi()->open(dcpk_ranks_comm(ranks), space, &link_mpi, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 4;
    }
    n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    link_mpi->ops->close(link_mpi);
    space->ops->close(space);
    if (n_failed > 0)
        return n_failed; /* the launcher ends the others */
    return dcpk_ranks_leave(ranks, &err) == DCPK_OK ? 0 : 4;
}

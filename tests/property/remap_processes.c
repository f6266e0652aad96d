/* SPDX-License-Identifier: Apache-2.0 */
/* remap_processes.c - random layouts remapped by the processes of an MPI job: directly through
 * shared memory, and over the link of MPI. Started by mpirun. */
#include <stdio.h>

#include "tests/remap_process.h"

static struct remap_process process;

static void run_path(enum dcpk_remap_path path, const char *label)
{
    const struct remap_case *c = process.c;
    const int self = process.self;
    const struct dcpk_remap_options options = {.ranks = process.ranks,
                                               .device = process.device,
                                               .link = process.link,
                                               .path = path,
                                               .staging_bytes = 1 << 16,
                                               .timeout_ms = 60000,
                                               .checks = true};
    const struct dcpk_remap_shards mine = process_shards(&process);
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_remap *remap;

    memset(c->sides[1].memory[self], CASE_POISON, CASE_BYTES);
    CHECK_OK(dcpk_remap_new(&options, &mine, &remap, &err), label);
    CHECK_OK(dcpk_remap_run(remap, NULL, NULL, &err), label);
    CHECK(memcmp(c->sides[1].memory[self], c->want[self], CASE_BYTES) == 0, label);
    CHECK(path == DCPK_REMAP_STAGED || dcpk_remap_stats(remap)->n_messages == 0, label);
    CHECK_OK(dcpk_ranks_agree(process.ranks, DCPK_OK, &err), label); /* all are idle */
    dcpk_remap_free(remap);
}

/* All processes make the same case; each has the memory of its own rank only. */
static void processes_remap(void **state)
{
    char label[64];

    (void)state;
    for (uint64_t seed = 5000; seed < 5030; seed++) {
        case_make(process.c, seed, dcpk_ranks_count(process.ranks));
        snprintf(label, sizeof label, "seed %" PRIu64 ", rank %d", seed, process.self);
        run_path(DCPK_REMAP_DIRECT, label);
        run_path(DCPK_REMAP_STAGED, label);
        case_release(process.c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(processes_remap)};
    struct dcpk_error err = DCPK_ERROR_INIT;
    int n_failed;

    if (process_find_mpi() == NULL || dcpk_ranks_launched() < 2)
        return 77;
    if (process_begin(&process, dcpk_devices[0], &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 4;
    }
    n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    process_end(&process);
    if (n_failed > 0)
        return n_failed; /* the launcher ends the others */
    return dcpk_ranks_leave(process.ranks, &err) == DCPK_OK ? 0 : 4;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* test_remap_prop.c - random layouts remapped by ranks that are threads: direct, staged and mixed
 * paths give the same bytes, those of the owner of each element; back again is the identity. */
#include "tests/remap_job.h"

static void poison(struct remap_case *c, int side)
{
    for (int r = 0; r < c->n_ranks; r++)
        memset(c->sides[side].memory[r], CASE_POISON, CASE_BYTES);
}

static bool any_cast(const struct remap_case *c)
{
    for (size_t i = 0; i < c->n_tensors; i++)
        if (c->tensors[i].from != c->tensors[i].to)
            return true;
    return false;
}

/* From the targets back to the sources. */
static void go_back(struct remap_job *job, uint64_t seed, const char *label)
{
    struct remap_case *c = job->c;

    if (any_cast(c))
        return;
    for (int r = 0; r < c->n_ranks; r++)
        memcpy(c->kept[r], c->sides[0].memory[r], CASE_BYTES);
    poison(c, 0);
    job->from = 1;
    job->to = 0;
    job_run(job, seed, label);
    job->from = 0;
    job->to = 1;
    for (int r = 0; r < c->n_ranks; r++)
        if (job->ends[r] == DCPK_OK)
            CHECK(memcmp(c->kept[r], c->sides[0].memory[r], CASE_BYTES) == 0, label);
        else /* not every element of the sources is wanted by a target */
            CHECK(strstr(job->errs[r].text, "which no source holds") != NULL, label);
    if (job->ends[0] != DCPK_OK)
        for (int r = 0; r < c->n_ranks; r++)
            memcpy(c->sides[0].memory[r], c->kept[r], CASE_BYTES);
}

static uint64_t n_staged, n_direct_only; /* messages of staged runs; of direct ones */

static void count_messages(const struct remap_job *job)
{
    for (int r = 0; r < job->c->n_ranks; r++)
        if (job->options.path == DCPK_REMAP_STAGED)
            n_staged += job->stats[r].n_messages;
        else
            n_direct_only += job->stats[r].n_messages;
}

static void every_path(struct remap_case *c, uint64_t seed)
{
    static const char *const names[] = {"auto", "direct", "staged"};
    struct remap_job job = {.c = c, .from = 0, .to = 1, .n_runs = 1 + (int)(seed % 2)};
    char label[64];

    for (int path = DCPK_REMAP_AUTO; path <= DCPK_REMAP_STAGED; path++) {
        snprintf(label, sizeof label, "seed %" PRIu64 ", %s", seed, names[path]);
        job.options =
            (struct dcpk_remap_options){.path = (enum dcpk_remap_path)path,
                                        .staging_bytes = UINT64_C(1024) << seed % 7,
                                        .unit_bytes = seed % 3 == 0 ? 1000 * (1 + seed % 5) : 0,
                                        .timeout_ms = 60000,
                                        .checks = (seed + (uint64_t)path) % 2 != 0};
        poison(c, 1);
        job_run(&job, seed % 4 == 0 ? seed : 0, label);
        job_check_ends(&job, label);
        case_check(c, label);
        count_messages(&job);
    }
    go_back(&job, 0, label);
}

static void layouts_become_layouts(void **state)
{
    struct remap_case *c = the_case;

    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        case_make(c, 1000 + seed, 1 + (int)(seed % CASE_RANKS));
        every_path(c, seed);
        case_release(c);
    }
    CHECK(n_staged > 300, "staged runs send messages, many of them in several rounds");
    CHECK_EQ_INT(n_direct_only, 0, "threads reach each other");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(layouts_become_layouts)};

    return cmocka_run_group_tests(tests, case_begin_tests, case_end_tests);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* remap_scene.h - a case that three ranks remap while something is wrong, and what must hold then.
 */
#ifndef DCPK_TESTS_FAULT_REMAP_SCENE_H
#define DCPK_TESTS_FAULT_REMAP_SCENE_H

#include <stdatomic.h>

#include "tests/faulty_device.h"
#include "tests/remap_after.h"

#define N_RANKS 3

static atomic_int n_ran;         /* ranks that came as far as running */
static size_t wrong_at[N_RANKS]; /* of each of those: a byte of the targets, or CASE_BYTES */

static inline void begin_round(struct remap_case *c)
{
    for (int r = 0; r < c->n_ranks; r++)
        memset(c->sides[1].memory[r], CASE_POISON, CASE_BYTES);
    atomic_store(&n_ran, 0);
}

/* As job.after: units that are done are in their targets, those behind the one under way have not
 * begun. */
static inline void see_units(struct remap_job *job, int self, const struct dcpk_remap *remap)
{
    uint8_t *marks = malloc(CASE_BYTES);

    wrong_at[self] = after_check(job->c, dcpk_remap_plan(remap), self,
                                 dcpk_remap_stats(remap)->units_done, 1, marks);
    free(marks);
    atomic_fetch_add(&n_ran, 1);
}

static inline void check_untouched(const struct remap_case *c, const char *label)
{
    for (int r = 0; r < c->n_ranks; r++)
        for (size_t i = 0; i < CASE_BYTES; i++)
            CHECK(c->sides[1].memory[r][i] == CASE_POISON, label);
}

/* The same error on all ranks, with nothing broken. */
static inline void check_same_end(const struct remap_job *job, const char *label)
{
    const bool has_run = atomic_load(&n_ran) > 0;

    for (int r = 0; r < N_RANKS; r++) {
        CHECK_EQ_INT(job->ends[r], job->ends[0], label);
        CHECK_EQ_STR(job->errs[r].text, job->errs[0].text, label);
        CHECK_EQ_INT(job->stats[r].units_done, job->stats[0].units_done, label);
        CHECK(memcmp(the_case->kept[r], job->c->sides[0].memory[r], CASE_BYTES) == 0, label);
        if (has_run)
            CHECK_EQ_INT(wrong_at[r], CASE_BYTES, label);
    }
    if (job->ends[0] != DCPK_OK && !has_run)
        check_untouched(job->c, label);
}

/* A case in which all ranks talk; its sources are kept. */
static inline void make_case(uint64_t seed)
{
    case_make(the_case, seed, N_RANKS);
    for (int r = 0; r < N_RANKS; r++)
        memcpy(the_case->kept[r], the_case->sides[0].memory[r], CASE_BYTES);
}

#endif

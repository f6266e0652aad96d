/* SPDX-License-Identifier: Apache-2.0 */
/* remap_after.h - what the targets of a case hold after a run that ended early. */
#ifndef DCPK_TESTS_REMAP_AFTER_H
#define DCPK_TESTS_REMAP_AFTER_H

#include "tests/remap_job.h"

/* What a byte may be. */
enum after_mark {
    AFTER_POISON, /* no target's, or of a unit that has not begun */
    AFTER_WANTED, /* of a unit that is done */
    AFTER_ANY,    /* of one under way */
};

static inline size_t after_unit_of(const struct dcpk_remap_plan *plan, const char *name)
{
    for (size_t u = 0; u < plan->n_units; u++)
        for (size_t t = plan->units[u].first_tensor; t < plan->units[u + 1].first_tensor; t++)
            if (strcmp(plan->tensors[t].name, name) == 0)
                return u;
    return plan->n_units;
}

static inline void after_mark_shard(const struct remap_case *c, const struct dcpk_shard *s,
                                    enum after_mark mark, uint8_t *marks)
{
    const uint64_t base = (uint64_t)(uintptr_t)c->sides[1].memory[s->holder];
    int64_t index[5] = {0};
    int a;

    if (case_is_empty(s))
        return;
    do {
        uint64_t at = s->at - base;

        for (a = 0; a < s->rank; a++)
            at += (uint64_t)(index[a] * s->stride_bytes[a]);
        memset(marks + at, (int)mark, dcpk_dtype_bytes(s->dtype));
        for (a = s->rank - 1; a >= 0 && ++index[a] == s->span[s->rank + a]; a--)
            index[a] = 0;
    } while (a >= 0);
}

/*
 * Targets of rank `self`: units before n_done are there, the next n_open may hold anything, behind
 * them and between targets nothing was written. marks: CASE_BYTES, scratch. Returns the first byte
 * that is not so, or CASE_BYTES.
 */
static inline size_t after_check(const struct remap_case *c, const struct dcpk_remap_plan *plan,
                                 int self, size_t n_done, size_t n_open, uint8_t *marks)
{
    const uint8_t *got = c->sides[1].memory[self];
    size_t n;
    const struct dcpk_shard *mine = case_shards(&c->sides[1], self, &n);

    memset(marks, AFTER_POISON, CASE_BYTES);
    for (size_t i = 0; i < n; i++) {
        const size_t unit = after_unit_of(plan, mine[i].name);

        if (unit < n_done + n_open)
            after_mark_shard(c, &mine[i], unit < n_done ? AFTER_WANTED : AFTER_ANY, marks);
    }
    for (size_t i = 0; i < CASE_BYTES; i++)
        if ((marks[i] == AFTER_POISON && got[i] != CASE_POISON) ||
            (marks[i] == AFTER_WANTED && got[i] != c->want[self][i]))
            return i;
    return CASE_BYTES;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* compare_verdict.c - the answer of a comparison in one sentence. */
#include <inttypes.h>

#include "lib/base/order.h"
#include "lib/job/compare_priv.h"

/* Kinds of state that one side may have nothing of. */
static const struct {
    enum dcpk_compare_part part;
    bool of_optimizer; /* not named where moments are lacking too */
    const char *words;
} kinds[] = {
    {DCPK_COMPARED_MOMENTS, false, "no optimizer state"},
    {DCPK_COMPARED_MASTERS, true, "no masters"},
    {DCPK_COMPARED_GROUPS, true, "no parameter groups"},
    {DCPK_COMPARED_ARGS, false, "no args"},
};

/* True if side s has nothing of a part that the other side has. */
static bool lacks_part(const struct dcpk_compare_report *report, int s, enum dcpk_compare_part p)
{
    const struct dcpk_part_result *part = &report->parts[p];

    return part->n_compared == 0 && part->n_only[s] == 0 && part->n_only[!s] > 0;
}

static bool lacks_kind(const struct dcpk_compare_report *report, int s, size_t kind)
{
    return lacks_part(report, s, kinds[kind].part) &&
           !(kinds[kind].of_optimizer && lacks_part(report, s, DCPK_COMPARED_MOMENTS));
}

bool dcpk_compare_lacks(const struct dcpk_compare_report *report)
{
    for (size_t i = 0; i < DCPK_COUNT(kinds); i++)
        if (lacks_kind(report, 0, i) || lacks_kind(report, 1, i))
            return true;
    return false;
}

/* "equal", or what of two that differ in nothing was compared. */
static const char *word_equal(const struct dcpk_compare_report *report)
{
    uint64_t n_compared = 0;

    for (int p = 0; p < DCPK_N_COMPARED; p++)
        n_compared += report->parts[p].n_compared;
    if (n_compared == 0)
        return "nothing to compare";
    if (lacks_part(report, 0, DCPK_COMPARED_MOMENTS) ||
        lacks_part(report, 1, DCPK_COMPARED_MOMENTS))
        return "weights equal";
    return dcpk_compare_lacks(report) ? "tensors equal" : "equal";
}

dcpk_status dcpk_comparing_verdict(struct dcpk_comparing *c, struct dcpk_error *err)
{
    struct dcpk_compare_report *report = c->report;
    struct dcpk_bytes text = {0};
    dcpk_status st;

    if (report->equal)
        dcpk_bytes_text(&text, word_equal(report));
    else
        dcpk_bytes_printf(&text, "DIFFERENT (%" PRIu64 ")", report->differences.n);
    for (int s = 0; s < 2; s++) {
        const char *before = s == DCPK_A ? "; A has " : "; B has ";

        for (size_t i = 0; i < DCPK_COUNT(kinds); i++)
            if (lacks_kind(report, s, i)) {
                dcpk_bytes_printf(&text, "%s%s", before, kinds[i].words);
                before = ", ";
            }
    }
    dcpk_bytes_u8(&text, 0);
    st = dcpk_bytes_status(&text, err);
    if (st == DCPK_OK)
        report->verdict = dcpk_arena_strdup(report->arena, (const char *)text.data, err);
    if (st == DCPK_OK && report->verdict == NULL)
        st = err->status;
    dcpk_bytes_release(&text);
    return st;
}

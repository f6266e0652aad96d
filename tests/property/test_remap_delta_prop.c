/* SPDX-License-Identifier: Apache-2.0 */
/* test_remap_delta_prop.c - random layouts whose sources change between runs: a run of what changed
 * leaves what a full run leaves, also after one that failed, and sends no more than it must. */
#include <stdatomic.h>

#include "lib/exec/remap_inside.h"
#include "tests/faulty_device.h"
#include "tests/remap_job.h"

/* What happens to sources before a run. */
enum change { NOTHING, ONE_BYTE, SOME, ALL, N_CHANGES };

static const enum change steps[] = {ALL, NOTHING, ONE_BYTE, SOME, NOTHING, ALL,
                                    ALL, ALL,     SOME,     SOME, ONE_BYTE};

static struct dcpk_remap_changes sent[CASE_RANKS][DCPK_COUNT(steps)];
static _Thread_local int calls_left = -1; /* before this rank's device fails; below 0: never */
static atomic_ulong n_failed, n_healed, n_overwritten, n_saved, n_messages;

static dcpk_status call_fails(struct dcpk_error *err)
{
    if (calls_left < 0 || calls_left-- > 0)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EIO, "the device is gone");
}

static void change(struct remap_job *job, int self, enum change what, uint64_t seed)
{
    struct case_side *side = &job->c->sides[job->from];
    const size_t n = side->used[self];

    if (what == NOTHING || n == 0)
        return;
    for (size_t i = 0; i < n && what == ALL; i++)
        side->memory[self][i] += 3;
    for (int k = what == SOME ? 12 : what == ONE_BYTE; k > 0; k--)
        side->memory[self][random_nth(seed + (uint64_t)(k * 7 + self)) % n] ^= 0x11;
}

/* A full run by another remap must change no byte of the targets. */
static void compare(struct remap_job *job, int self, struct dcpk_remap *full, const char *label)
{
    uint8_t *targets = job->c->sides[job->to].memory[self];
    struct dcpk_error err = DCPK_ERROR_INIT;

    memcpy(job->c->kept[self], targets, CASE_BYTES);
    CHECK_OK(dcpk_remap_run(full, NULL, NULL, &err), label);
    CHECK(memcmp(job->c->kept[self], targets, CASE_BYTES) == 0, label);
}

/* Runs that fail, each on one rank: the next one has to send everything. */
static void fail_once(struct remap_job *job, int self, struct dcpk_remap *remap, uint64_t seed)
{
    struct dcpk_remap_changes changes;
    struct dcpk_error err = DCPK_ERROR_INIT;
    const int n_ranks = job->c->n_ranks;
    dcpk_status st;

    change(job, self, seed % 3 == 0 ? ALL : SOME, seed);
    if (self == (int)(seed % (uint64_t)n_ranks))
        calls_left = (int)(random_nth(seed) % 24);
    st = dcpk_remap_run_changed(remap, NULL, NULL, &changes, &err);
    calls_left = -1;
    if (st != DCPK_OK) {
        CHECK(strstr(err.text, "the device is gone") != NULL, err.text);
        n_failed++;
    }
}

/* With checks: a target that somebody overwrote is an error for all, and is there again next. */
static void overwrite(int self, struct dcpk_remap *remap)
{
    const struct dcpk_remap_plan *plan = remap->plan;
    struct dcpk_remap_changes changes;
    struct dcpk_error err = DCPK_ERROR_INIT;
    uint64_t hit = 0;

    for (int run = 0; run < 3; run++) /* a sample, the sums of all blocks, then nothing to send */
        CHECK_OK(dcpk_remap_run_changed(remap, NULL, NULL, &changes, &err), "nothing changed");
    CHECK_EQ_INT(changes.n_sent_blocks, 0, "then it sends nothing");
    for (size_t i = 0; i < plan->n_moves && hit == 0; i++) {
        const struct dcpk_shard *t = &remap->targets[plan->moves[i].target];

        if (t->holder != self || dcpk_move_is_kept(plan, &plan->moves[i]))
            continue;
        *(uint8_t *)(uintptr_t)t->at ^= 1;
        hit = 1;
    }
    CHECK_OK(dcpk_ranks_sum(remap->options.ranks, &hit, 1, DCPK_OK, &err), "hits");
    if (hit == 0)
        return;
    CHECK_EQ_INT(dcpk_remap_run_changed(remap, NULL, NULL, &changes, &err), DCPK_EIO, err.text);
    n_overwritten++;
}

static void check_step(int self, size_t step, const char *label)
{
    const struct dcpk_remap_changes *s = &sent[self][step];

    CHECK(s->n_sent_blocks <= s->n_blocks, label);
    if (step == 1) /* before some later ones much had changed: they send all */
        CHECK(s->n_sent_blocks == 0 && s->sent_bytes == 0 && s->n_messages == 0, label);
    n_saved += s->n_blocks - s->n_sent_blocks;
    n_messages += s->n_messages;
}

static void churn(struct remap_job *job, int self, const struct dcpk_remap *made)
{
    struct dcpk_remap *remap = (struct dcpk_remap *)(uintptr_t)made, *full = NULL;
    struct dcpk_remap_shards mine;
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_remap_changes changes;
    char label[96];

    mine.sources = case_shards(&job->c->sides[job->from], self, &mine.n_sources);
    mine.targets = case_shards(&job->c->sides[job->to], self, &mine.n_targets);
    CHECK_OK(dcpk_remap_new(&remap->options, &mine, &full, &err), "another remap");
    for (size_t step = 0; step < DCPK_COUNT(steps); step++) {
        snprintf(label, sizeof label, "path %d, rank %d, step %zu", (int)job->options.path, self,
                 step);
        change(job, self, steps[step], job->c->seed + step);
        CHECK_OK(dcpk_remap_run_changed(remap, NULL, NULL, &sent[self][step], &err), label);
        check_step(self, step, label);
        compare(job, self, full, label);
    }
    for (uint64_t k = 0; k < 6; k++) {
        snprintf(label, sizeof label, "rank %d, after failure %d", self, (int)k);
        fail_once(job, self, remap, job->c->seed + k);
        change(job, self, k % 2 == 0 ? NOTHING : SOME, job->c->seed - k);
        CHECK_OK(dcpk_remap_run_changed(remap, NULL, NULL, &changes, &err), label);
        compare(job, self, full, label);
        n_healed++;
    }
    if (job->options.checks) {
        overwrite(self, remap);
        CHECK_OK(dcpk_remap_run_changed(remap, NULL, NULL, &changes, &err), "once more");
        compare(job, self, full, "after a target was overwritten");
    }
    /* A full run of the same remap in between: what it moved is not taken for known. */
    change(job, self, SOME, job->c->seed);
    CHECK_OK(dcpk_remap_run(remap, NULL, NULL, &err), "full");
    change(job, self, SOME, job->c->seed);
    CHECK_OK(dcpk_remap_run_changed(remap, NULL, NULL, &changes, &err), "changed back");
    compare(job, self, full, "changed back");
    CHECK_OK(dcpk_ranks_agree(remap->options.ranks, DCPK_OK, &err), "all are idle");
    dcpk_remap_free(full);
}

static void sources_change(void **state)
{
    static const uint32_t block_bytes[] = {0, 64, 1000, 4096};
    static const uint64_t unit_bytes[] = {0, 1, 1000};
    struct remap_case *c = the_case;

    (void)state;
    faulty_begin(call_fails, dcpk_links[0]);
    for (uint64_t seed = 1; seed <= 24; seed++)
        for (int path = DCPK_REMAP_AUTO; path <= DCPK_REMAP_STAGED; path += DCPK_REMAP_STAGED) {
            struct remap_job job = {.c = c, .to = 1, .n_runs = (int)(seed % 2), .after = churn};
            char label[64];

            calls_left = -1;
            case_make(c, 5000 + seed, 1 + (int)(seed % CASE_RANKS));
            snprintf(label, sizeof label, "seed %" PRIu64 ", path %d", seed, path);
            job.device = &faulty_ops;
            job.options = (struct dcpk_remap_options){
                .path = (enum dcpk_remap_path)path,
                .staging_bytes = UINT64_C(2048) << seed % 5,
                .unit_bytes = unit_bytes[seed % DCPK_COUNT(unit_bytes)],
                .block_bytes = block_bytes[seed / 2 % DCPK_COUNT(block_bytes)],
                .timeout_ms = 60000,
                .checks = seed % 4 < 2};
            job_run(&job, 0, label);
            job_check_ends(&job, label);
            case_release(c);
        }
    CHECK(n_failed > 20 && n_healed > n_failed && n_overwritten > 20, "failures");
    CHECK(n_saved > 1000 && n_messages > 200, "blocks that need not be sent, messages");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sources_change)};

    return cmocka_run_group_tests(tests, case_begin_tests, case_end_tests);
}

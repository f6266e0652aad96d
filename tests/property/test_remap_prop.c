/* SPDX-License-Identifier: Apache-2.0 */
/* test_remap_prop.c - random layouts remapped by ranks that are threads: direct, staged and mixed
 * paths give the same bytes, those of the owner of each element; back again is the identity. */
#include "tests/faulty_device.h"
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

static uint64_t n_back; /* cases that went back */

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
    job_check_ends(job, label);
    for (int r = 0; r < c->n_ranks; r++)
        CHECK(memcmp(c->kept[r], c->sides[0].memory[r], CASE_BYTES) == 0, label);
    n_back++;
}

static uint64_t n_messages[4]; /* of each path */

static void count_messages(const struct remap_job *job, size_t path)
{
    uint64_t n = 0;

    for (int r = 0; r < job->c->n_ranks; r++)
        n += job->stats[r].n_messages;
    n_messages[path] += n;
    for (int r = 0; r < job->c->n_ranks; r++)
        CHECK_EQ_INT(job->notes[r][0] != '\0', n > 0 && job->options.path == DCPK_REMAP_AUTO,
                     "a note where, and only where, a link is fallen back to");
}

/* ---- fingerprints, on both sides, by any layout ---- */
static dcpk_status sum_ends[CASE_RANKS][2];
static uint64_t sums[CASE_RANKS][2][CASE_TENSORS];
static size_t sum_tensors[CASE_TENSORS]; /* of the case, in the plan's order, as rank 0 has it */
static size_t n_sums;

static void see_fingerprints(struct remap_job *job, int self, const struct dcpk_remap *remap)
{
    const struct dcpk_remap_plan *plan = dcpk_remap_plan(remap);
    struct dcpk_error err = DCPK_ERROR_INIT;

    (void)job;
    for (int side = 0; side < 2; side++)
        sum_ends[self][side] =
            dcpk_remap_fingerprint((struct dcpk_remap *)(uintptr_t)remap,
                                   (enum dcpk_remap_side)side, sums[self][side], &err);
    for (size_t t = 0; t < plan->n_tensors && self == 0; t++)
        sum_tensors[t] = (size_t)strtol(plan->tensors[t].name + 1, NULL, 10);
    if (self == 0)
        n_sums = plan->n_tensors;
}

/* By the definition, of a tensor that nobody cut. */
static uint64_t sum_of_tensor(const struct remap_case *c, size_t tensor, int side)
{
    const struct case_tensor *t = &c->tensors[tensor];
    const enum dcpk_dtype dtype = side == 0 ? t->from : t->to;
    const size_t elem_bytes = dcpk_dtype_bytes(dtype), word_bytes = elem_bytes < 4 ? elem_bytes : 4;
    struct dcpk_error err = DCPK_ERROR_INIT;
    uint64_t n = 1, sum = 0;

    for (int a = 0; a < t->rank; a++)
        n *= (uint64_t)t->shape[a];
    for (uint64_t i = 0; i < n; i++) {
        uint8_t from[16], elem[16];

        for (size_t b = 0; b < sizeof from; b++)
            from[b] = case_byte(tensor, i, b);
        memcpy(elem, from, sizeof elem);
        if (t->from != dtype)
            CHECK_OK(dcpk_host_kernels_plain.cast(t->from, from, dtype, elem, 1, &err), "cast");
        for (size_t w = 0; w < elem_bytes / word_bytes; w++) {
            uint64_t k = (i * (elem_bytes / word_bytes) + w + 1) * UINT64_C(0x9e3779b97f4a7c15);
            uint64_t v = 0;

            for (size_t b = 0; b < word_bytes; b++)
                v |= (uint64_t)elem[w * word_bytes + b] << 8 * b;
            k = (k ^ k >> 32) * UINT64_C(0xd6e8feb86659fd93);
            sum += v * (k | 1);
        }
    }
    return sum;
}

static void check_fingerprints(const struct remap_case *c, const char *label)
{
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < n_sums; i++) {
            const uint64_t want = sum_of_tensor(c, sum_tensors[i], side);

            for (int r = 0; r < c->n_ranks; r++)
                CHECK(sum_ends[r][side] == DCPK_OK && sums[r][side][i] == want, label);
        }
}

/* ---- some ranks that do not reach each other ---- */
static uint64_t apart_seed;

static dcpk_status nothing_fails(struct dcpk_error *err)
{
    (void)err;
    return DCPK_OK;
}

/* All memory of a process is one: its holder is written beside it. */
static dcpk_status marked_export(struct dcpk_device *device, const void *at, size_t n_bytes,
                                 struct dcpk_memory_id *id, struct dcpk_error *err)
{
    if (faulty_real->export_memory(device, at, n_bytes, id, err))
        return err->status;
    id->handle[sizeof id->handle - 1] = (uint8_t)rank_self;
    return DCPK_OK;
}

static dcpk_status picky_import(struct dcpk_device *device, const struct dcpk_memory_id *id,
                                void **at, struct dcpk_error *err)
{
    const uint64_t pair = (uint64_t)rank_self * CASE_RANKS + id->handle[sizeof id->handle - 1];

    if (random_nth(apart_seed * 64 + pair + 1) % 4 == 0) /* in one direction: that is enough */
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "ranks are apart");
    return faulty_real->import_memory(device, id, at, err);
}

static void every_path(struct remap_case *c, uint64_t seed)
{
    static const char *const names[] = {"auto", "direct", "staged", "mixed"};
    static const uint64_t unit_bytes[] = {0, 1, 1000, 5000};
    struct remap_job job = {.c = c, .from = 0, .to = 1, .n_runs = 1 + (int)(seed % 2)};
    char label[64];

    apart_seed = seed;
    job.after = see_fingerprints;
    for (size_t path = 0; path < DCPK_COUNT(names); path++) {
        const bool is_mixed = path > DCPK_REMAP_STAGED;

        snprintf(label, sizeof label, "seed %" PRIu64 ", %s", seed, names[path]);
        job.device = is_mixed ? &faulty_ops : NULL;
        job.options = (struct dcpk_remap_options){
            .path = is_mixed ? DCPK_REMAP_AUTO : (enum dcpk_remap_path)path,
            .staging_bytes = UINT64_C(1024) << seed % 7,
            .unit_bytes = unit_bytes[(seed + path) % DCPK_COUNT(unit_bytes)],
            .timeout_ms = 60000,
            .checks = (seed + path) % 2 != 0};
        poison(c, 1);
        job_run(&job, seed % 4 == 0 ? seed : 0, label);
        job_check_ends(&job, label);
        case_check(c, label);
        check_fingerprints(c, label);
        count_messages(&job, path);
    }
    job.after = NULL;
    go_back(&job, 0, label);
}

/* Nothing of what a layout may be is missing. */
static void check_counts(const struct case_counts *n)
{
    for (int kind = 0; kind < PLACED_N_KINDS; kind++)
        CHECK(n->kinds[kind] > 10, "placements");
    for (size_t i = 0; i < DCPK_COUNT(n->dims); i++)
        CHECK(n->dims[i] > 10, "dims of a mesh");
    for (size_t i = 0; i < DCPK_COUNT(n->ranks); i++)
        CHECK(n->ranks[i] > 10, "axes of a tensor");
    CHECK(n->n_absent > 10 && n->n_several > 5 && n->n_empty > 10, "holders");
    CHECK(n->n_backwards > 10 && n->n_odd > 10 && n->n_casts > 10, "places");
}

static void layouts_become_layouts(void **state)
{
    struct remap_case *c = the_case;

    (void)state;
    faulty_begin(nothing_fails, dcpk_links[0]);
    faulty_ops.export_memory = marked_export;
    faulty_ops.import_memory = picky_import;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        case_make(c, 1000 + seed, 1 + (int)(seed % CASE_RANKS));
        every_path(c, seed);
        case_release(c);
    }
    CHECK(n_messages[2] > 300, "staged runs send messages, many of them in several rounds");
    CHECK(n_messages[3] > 100 && n_messages[3] < n_messages[2], "mixed ones some");
    CHECK_EQ_INT(n_messages[0] + n_messages[1], 0, "threads reach each other");
    CHECK(n_back > 10, "some go back");
    check_counts(&c->counts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(layouts_become_layouts)};

    return cmocka_run_group_tests(tests, case_begin_tests, case_end_tests);
}

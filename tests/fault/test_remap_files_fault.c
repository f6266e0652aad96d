/* SPDX-License-Identifier: Apache-2.0 */
/* test_remap_files_fault.c - files that are short, targets that do not fit, allocations and devices
 * that fail while ranks are fed: one error, the same on all ranks, and nothing hangs. */
#include <sched.h>
#include <stdatomic.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "tests/fake_ckpt.h"
#include "tests/faulty_device.h"
#include "tests/feed_job.h"

#define N_RANKS 3

static struct fake fake;
static struct dcpk_checkpoint *ckpt;
static struct dcpk_remap_view views[FAKE_TENSORS];
static struct dcpk_arena *arena;

/* A few tensors of some chunks; the last one has the most bytes. */
static void make_files(void)
{
    static const int64_t shapes[][2] = {{6, 5}, {40, 17}, {1, 3}, {300, 40}};
    uint64_t seed = 11;

    for (size_t i = 0; i < DCPK_COUNT(shapes); i++)
        fake_add(&fake, DCPK_F32, 2, shapes[i], 4, &seed);
    for (size_t c = 0; c < fake.n_chunks; c++) /* the gatherer has tests of its own */
        fake.chunks[c].extent.is_row_major = true;
    arena = dcpk_arena_new();
}

static void open_files(void)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    ckpt = fake_open(&fake, "files");
    for (uint32_t t = 0; t < fake.n_tensors; t++) {
        views[t].name = fake.keys[t];
        CHECK_OK(dcpk_view_stored(ckpt, t, arena, &views[t].view, &err), views[t].name);
    }
}

static void release_files(void)
{
    dcpk_checkpoint_close(ckpt);
    dcpk_arena_free(arena);
    fake_release(&fake);
}

static struct feed_job new_job(void)
{
    return (struct feed_job){.n_ranks = N_RANKS,
                             .n_threads = 2,
                             .n_runs = 1,
                             .options = {.ckpt = ckpt,
                                         .views = views,
                                         .n_views = fake.n_tensors,
                                         .ring_bytes = DCPK_REMAP_MIN_RING_BYTES,
                                         .timeout_ms = 20000,
                                         .checks = true}};
}

static void check_same_end(const struct feed_job *job, const char *label)
{
    for (int r = 1; r < job->n_ranks; r++) {
        CHECK_EQ_INT(job->ends[r], job->ends[0], label);
        CHECK_EQ_STR(job->errs[r].text, job->errs[0].text, label);
    }
}

/* What is wrong. */
enum fault {
    GOOD,
    SHORT_FILE,
    BAD_BYTE,
    BAD_UNSEEN,
    UNCOVERED,
    NO_NAME,
    OTHER_SHAPE,
    TWO_DTYPES,
    NO_CAST,
    TWICE
};
static const struct {
    const char *label;
    enum fault fault;
    dcpk_status status;
    const char *text; /* in the message of all ranks */
} fault_cases[] = {
    {"good", GOOD, DCPK_OK, ""},
    {"a file is short", SHORT_FILE, DCPK_EFORMAT, "reading 'tensor3' from '"},
    {"a byte is another", BAD_BYTE, DCPK_EFORMAT, "checking 'tensor3': the "},
    {"a byte is another, which is not looked for", BAD_UNSEEN, DCPK_OK, ""},
    {"chunks leave a gap", UNCOVERED, DCPK_EMISMATCH, "which no source holds"},
    {"no tensor of that name", NO_NAME, DCPK_EMISMATCH,
     "]: the checkpoint has no tensor of that name"},
    {"a tensor of another shape", OTHER_SHAPE, DCPK_EMISMATCH,
     "belongs to a tensor [301, 40], but in the checkpoint that is [300, 40]"},
    {"targets of two dtypes", TWO_DTYPES, DCPK_EMISMATCH, "others of the tensor on this side are"},
    {"a cast that is none", NO_CAST, DCPK_EUNSUPPORTED, "cannot be cast from float32 to int64"},
    {"targets in one place", TWICE, DCPK_EMISMATCH, "overlap"},
};

/* All targets of the last tensor are spoilt the same way, or the first of them. */
static void spoil(struct feed_job *job, enum fault fault)
{
    static const int64_t other_shape[] = {301, 40};
    struct dcpk_shard *first = NULL;

    for (size_t i = 0; i < job->n_targets; i++) {
        struct dcpk_shard *s = &job->targets[i];

        if (strcmp(s->name, "tensor3") != 0 || s->span[2] * s->span[3] == 0)
            continue;
        if (fault == NO_NAME)
            s->name = "tensor4";
        if (fault == OTHER_SHAPE)
            s->shape = other_shape;
        if (fault == NO_CAST)
            s->dtype = DCPK_I64;
        if (fault == TWO_DTYPES && first == NULL)
            s->dtype = DCPK_BF16;
        if (fault == TWICE && first != NULL && s->holder == first->holder)
            s->at = first->at;
        first = s;
    }
}

static void faults_are_named(void **state)
{
    (void)state;
    for (size_t c = 0; c < DCPK_COUNT(fault_cases); c++) {
        const char *label = fault_cases[c].label;
        struct fake_chunk *chunk;
        struct feed_job job;

        make_files();
        chunk = &fake.chunks[fake.tensors[3].first_chunk];
        if (fault_cases[c].fault == SHORT_FILE)
            chunk->extent.first_bytes = fake.files[chunk->place.file].n_bytes - 1;
        if (fault_cases[c].fault == BAD_BYTE || fault_cases[c].fault == BAD_UNSEEN)
            fake.files[chunk->place.file].data[chunk->place.offset_bytes] ^= 1;
        if (fault_cases[c].fault == UNCOVERED)
            chunk->span[2]--;
        open_files();
        job = new_job();
        job.options.checks_files = fault_cases[c].fault != BAD_UNSEEN;
        if (fault_cases[c].fault == TWICE)
            job.n_ranks = 1;
        for (int i = 0; i < 4; i++) { /* layouts */
            feed_make(&job, 40 + (uint64_t)i, label);
            if (fault_cases[c].fault == TWICE) { /* the same tensor again, where it lies */
                job.targets = realloc(job.targets, (job.n_targets + 1) * sizeof *job.targets);
                CHECK(job.targets != NULL, label);
                job.targets[job.n_targets] = job.targets[job.n_targets - 1];
                job.targets[job.n_targets++].at += 4;
                job.first[1] = job.n_targets;
            }
            spoil(&job, fault_cases[c].fault);
            feed_run(&job, 0, label);
            check_same_end(&job, label);
            if (job.ends[0] != fault_cases[c].status ||
                strstr(job.errs[0].text, fault_cases[c].text) == NULL)
                fail_msg("%s: status %d '%s'", label, (int)job.ends[0], job.errs[0].text);
            feed_release(&job);
        }
        release_files();
    }
}

/* What was reported last comes to the whole, and nothing before passes it. */
static atomic_int n_passed, n_whole_bytes;

static bool see_progress(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    (void)context;
    atomic_fetch_add(&n_passed, done_bytes > total_bytes);
    atomic_fetch_add(&n_whole_bytes, done_bytes == total_bytes);
    return true;
}

static void progress_ends_whole(void **state)
{
    (void)state;
    make_files();
    open_files();
    for (int checks = 0; checks < 2; checks++) {
        struct feed_job job = new_job();

        job.options.checks_files = checks != 0;
        job.progress.update = see_progress;
        atomic_store(&n_passed, 0);
        atomic_store(&n_whole_bytes, 0);
        feed_make(&job, 3, "progress");
        feed_run(&job, 0, "progress");
        feed_check_ends(&job, "progress");
        CHECK_EQ_INT(atomic_load(&n_passed), 0, "progress");
        CHECK(atomic_load(&n_whole_bytes) >= N_RANKS, "progress");
        feed_release(&job);
    }
    release_files();
}

/* What is another thing on the last rank. */
enum otherness { NOTHING, ITERATION, NO_ITERATION, FILE_SIZE, CHUNK_ORDER, VIEW_ORDER };
static const struct {
    const char *label;
    enum otherness other;
    dcpk_status status;
    const char *text;
} other_cases[] = {
    {"nothing", NOTHING, DCPK_OK, ""},
    {"the iteration", ITERATION, DCPK_EIO,
     "ranks 0 and 2 of 3 do not see the same checkpoint: iteration 10 and 20"},
    {"no iteration", NO_ITERATION, DCPK_EIO,
     "ranks 0 and 2 of 3 do not see the same checkpoint: iteration 10 and unknown"},
    {"the size of a file", FILE_SIZE, DCPK_EIO,
     "ranks 0 and 2 of 3 do not see the same checkpoint: its files differ"},
    {"the order of chunks", CHUNK_ORDER, DCPK_EIO,
     "ranks 0 and 2 of 3 do not see the same checkpoint: its files differ"},
    {"the order of views", VIEW_ORDER, DCPK_EIO, "do not see the same tensors"},
};

/* The checkpoint of the last rank. */
static struct dcpk_checkpoint *open_other(enum otherness what)
{
    const size_t n_less = what == FILE_SIZE;
    struct dcpk_checkpoint *other;
    struct dcpk_place place;

    fake.files[1].n_bytes -= n_less;
    other = fake_open(&fake, "other files");
    fake.files[1].n_bytes += n_less;
    other->iteration = ckpt->iteration = 10;
    if (what == ITERATION)
        other->iteration = 20;
    if (what == NO_ITERATION)
        other->iteration = DCPK_ITERATION_UNKNOWN;
    if (what == CHUNK_ORDER) {
        place = other->chunks[0].place;
        other->chunks[0].place = other->chunks[1].place;
        other->chunks[1].place = place;
    }
    return other;
}

static void ranks_see_the_same(void **state)
{
    struct dcpk_remap_view turned[FAKE_TENSORS];

    (void)state;
    make_files();
    dcpk_bytes_u8(&fake.files[1], 0xee); /* FILE_SIZE leaves it out */
    open_files();
    CHECK(fake.tensors[0].n_chunks > 1, "there are chunks");
    for (size_t v = 0; v < fake.n_tensors; v++)
        turned[v] = views[fake.n_tensors - 1 - v];
    for (size_t c = 0; c < DCPK_COUNT(other_cases); c++) {
        const char *label = other_cases[c].label;
        struct feed_job job = new_job();

        job.last_ckpt = open_other(other_cases[c].other);
        if (other_cases[c].other == VIEW_ORDER)
            job.last_views = turned;
        feed_make(&job, 9, label);
        feed_run(&job, 0, label);
        for (int r = 0; r < job.n_ranks; r++)
            if (job.ends[r] != other_cases[c].status ||
                strstr(job.errs[r].text, other_cases[c].text) == NULL)
                fail_msg("%s: rank %d: status %d '%s'", label, r, (int)job.ends[r],
                         job.errs[r].text);
        feed_release(&job);
        dcpk_checkpoint_close(job.last_ckpt);
    }
    release_files();
}

/* The n-th allocation of all ranks together fails. */
static uint64_t failing_allocation;
static atomic_uint_fast64_t armed; /* the failing_allocation that counts by now */

/* No rank allocates while the count begins. */
static void arm(int self)
{
    if (self == 0) {
        dcpk_alloc_fail_nth(failing_allocation);
        atomic_store(&armed, failing_allocation);
    }
    while (atomic_load(&armed) != failing_allocation)
        sched_yield();
}

static void allocations_fail(void **state)
{
    uint64_t n_counted;

    (void)state;
    make_files();
    open_files();
    atomic_store(&armed, 0);
    for (failing_allocation = 1;; failing_allocation++) {
        struct feed_job job = new_job();
        char label[64];

        snprintf(label, sizeof label, "allocation %" PRIu64, failing_allocation);
        feed_make(&job, 5, label);
        job.before = arm;
        feed_run(&job, 0, label);
        n_counted = dcpk_alloc_fail_nth(0);
        check_same_end(&job, label);
        if (n_counted < failing_allocation) {
            feed_check_ends(&job, label);
            feed_release(&job);
            break;
        }
        CHECK(job.ends[0] == DCPK_ENOMEM || job.ends[0] == DCPK_OK, label); /* a thread less */
        feed_release(&job);
    }
    CHECK(failing_allocation > 50, "there are allocations");
    release_files();
}

/* ---- a device whose n-th call fails, on one rank ---- */
static _Thread_local uint64_t n_calls;
static uint64_t failing_call;
static int failing_rank;
static atomic_bool has_failed;

static dcpk_status call_fails(struct dcpk_error *err)
{
    if (rank_self != failing_rank || ++n_calls != failing_call)
        return DCPK_OK;
    atomic_store(&has_failed, true);
    return dcpk_fail(err, DCPK_EIO, "the device is gone");
}

static void device_calls_fail(void **state)
{
    (void)state;
    faulty_begin(call_fails, dcpk_links[0]);
    make_files();
    open_files();
    for (uint64_t nth = 0, n_whole = 0; n_whole < N_RANKS; nth++) {
        struct feed_job job = new_job();
        char label[64];

        snprintf(label, sizeof label, "call %" PRIu64, nth);
        feed_make(&job, 7, label);
        job.device = &faulty_ops;
        faulty_ops.is_host = nth % 2 == 0;
        atomic_store(&has_failed, false);
        failing_rank = (int)(nth / 2 % N_RANKS);
        failing_call = nth / 2 / N_RANKS + 1;
        feed_run(&job, 0, label);
        check_same_end(&job, label);
        if (atomic_load(&has_failed)) {
            CHECK_EQ_INT(job.ends[0], DCPK_EIO, label);
            CHECK(strstr(job.errs[0].text, "the device is gone") != NULL, label);
            n_whole = 0;
        } else {
            feed_check_ends(&job, label);
            n_whole++;
        }
        feed_release(&job);
        CHECK(nth < 2000, "it ends");
    }
    release_files();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults_are_named), cmocka_unit_test(ranks_see_the_same),
        cmocka_unit_test(progress_ends_whole), cmocka_unit_test(allocations_fail),
        cmocka_unit_test(device_calls_fail)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

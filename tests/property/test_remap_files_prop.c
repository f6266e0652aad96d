/* SPDX-License-Identifier: Apache-2.0 */
/* test_remap_files_prop.c - outputs of random pieces, fed from their files into random layouts: a
 * naive loop says what every byte of every rank's memory is, for any ranks, threads, rings, and a
 * device that is late. */
#include "tests/feed_job.h"
#include "tests/late_device.h"
#include "tests/out_case.h"

#define N_ROUNDS 200

static struct out_case round_case;

/* How often rounds have been such. */
static struct {
    unsigned late, checks, dawdling, many_ranks, all; /* all: of the four at once */
    unsigned runs, staged, read_once;
} counts;

/* A round: what is made up, and the names and dtypes that targets have. */
struct feeding {
    struct feed_job job;
    struct dcpk_remap_view views[OUT_MAX];
    enum dcpk_dtype wanted[OUT_MAX];
    uint8_t *want[RANK_THREADS_MAX]; /* memory of each rank afterwards */
};

static void make_views(struct feeding *f, struct out_case *r)
{
    for (size_t i = 0; i < r->out->n_tensors; i++) {
        const struct dcpk_out_tensor *t = &r->out->tensors[i];

        f->views[i] = (struct dcpk_remap_view){.name = t->keys[0],
                                               .view = {.dtype = t->dtype,
                                                        .rank = t->rank,
                                                        .shape = t->shape,
                                                        .pieces = t->pieces,
                                                        .n_pieces = t->n_pieces,
                                                        .literal = t->literal}};
        f->wanted[i] = t->dtype;
        if ((t->dtype == DCPK_F32 || t->dtype == DCPK_BF16) && fake_below(&r->seed, 3) == 0)
            f->wanted[i] = t->dtype == DCPK_F32 ? DCPK_BF16 : DCPK_F32;
    }
}

/* What the memory of all ranks must be. */
static void make_want(struct feeding *f, const struct out_case *r)
{
    const struct feed_job *job = &f->job;

    for (int rank = 0; rank < job->n_ranks; rank++) {
        f->want[rank] = malloc(job->n_bytes[rank] + 1);
        CHECK(f->want[rank] != NULL, r->label);
        memset(f->want[rank], FEED_POISON, job->n_bytes[rank] + 1);
        for (size_t i = job->first[rank]; i < job->first[rank + 1]; i++) {
            const struct dcpk_shard *s = &job->targets[i];
            const size_t t = (size_t)strtol(s->name + strlen("out"), NULL, 10);
            const enum dcpk_dtype dtype = f->views[t].view.dtype;
            struct dcpk_box box;

            dcpk_box_unpack(s->span, s->rank, &box);
            for (int64_t e = 0; e < fake_elems(box.extent, box.rank); e++) {
                uint64_t at = s->at - (uint64_t)(uintptr_t)job->memory[rank];
                int64_t rest = e;

                for (int a = s->rank - 1; a >= 0; a--) {
                    at += (uint64_t)(rest % box.extent[a] * s->stride_bytes[a]);
                    rest /= box.extent[a];
                }
                out_cast_naive(dtype,
                               r->want[t] +
                                   (size_t)fake_index(s->shape, &box, e) * dcpk_dtype_bytes(dtype),
                               s->dtype, f->want[rank] + at);
            }
        }
    }
}

static void check_memory(struct feeding *f, const char *label)
{
    for (int rank = 0; rank < f->job.n_ranks; rank++) {
        for (size_t i = 0; i <= f->job.n_bytes[rank]; i++)
            if (f->job.memory[rank][i] != f->want[rank][i])
                fail_msg("%s: rank %d, byte %zu", label, rank, i);
        free(f->want[rank]);
    }
}

/* Everything that is wanted is read by one rank, also what lies between. Strided chunks are
 * gathered slice by slice. */
static void check_read_once(const struct feed_job *job, const struct out_case *r)
{
    uint64_t read = 0, stored = 0;

    for (size_t c = 0; c < r->fake.n_chunks; c++)
        if (!r->fake.chunks[c].extent.is_row_major)
            return;
    counts.read_once++;
    for (int rank = 0; rank < job->n_ranks; rank++)
        read += job->stats[rank].read_bytes;
    for (size_t i = 0; i < 2; i++)
        stored += r->fake.files[i].n_bytes;
    if (read > stored * (uint64_t)job->n_runs + (64u << 10))
        fail_msg("%s: %" PRIu64 " bytes read of %" PRIu64, r->label, read, stored);
}

/* Each choice by itself, so that all come together with all. dawdles: the ranks do. */
static void choose_job(struct feeding *f, struct out_case *r, uint64_t seed, bool *dawdles)
{
    struct feed_job *job = &f->job;

    *job = (struct feed_job){.n_ranks = 1 + (int)random_below(&seed, 4),
                             .wanted = f->wanted,
                             .n_threads = 1 + (int)random_below(&seed, 3),
                             .n_runs = 1 + (random_below(&seed, 5) == 0),
                             .drops = random_below(&seed, 3) == 0};
    job->options = (struct dcpk_remap_files_options){
        .ckpt = r->ckpt,
        .views = f->views,
        .n_views = r->out->n_tensors,
        .path = random_below(&seed, 7) == 0 ? DCPK_REMAP_STAGED : DCPK_REMAP_AUTO,
        .ring_bytes = DCPK_REMAP_MIN_RING_BYTES * (1 + random_below(&seed, 3)),
        .checks = random_below(&seed, 2) == 0};
    if (random_below(&seed, 2) == 0)
        job->device = &late_ops;
    *dawdles = random_below(&seed, 2) == 0 && job->n_ranks > 1;
    counts.late += job->device != NULL;
    counts.checks += job->options.checks;
    counts.dawdling += *dawdles;
    counts.many_ranks += job->n_ranks > 2;
    counts.all += job->device != NULL && job->options.checks && *dawdles && job->n_ranks > 2;
    counts.runs += job->n_runs > 1;
    counts.staged += job->options.path == DCPK_REMAP_STAGED;
}

static void feed_round(uint64_t seed)
{
    struct out_case *r = &round_case;
    static struct feeding f;
    const bool large = seed % 20 == 19;
    struct dcpk_error err = DCPK_ERROR_INIT;
    bool dawdles;

    memset(&f, 0, sizeof f);
    snprintf(r->label, sizeof r->label, "seed %" PRIu64, seed);
    r->seed = seed;
    fake_add_object(&r->fake, "object", 50);
    CHECK_OK(dcpk_output_new(NULL, &fake_format, &r->out, &err), r->label);
    for (size_t t = 0; t < (large ? 1 : seed % OUT_MAX); t++)
        out_make_tensor(r, t, large);
    r->ckpt = fake_open(&r->fake, r->label);
    make_views(&f, r);
    choose_job(&f, r, random_nth(seed), &dawdles);
    feed_make(&f.job, seed, r->label);
    make_want(&f, r);
    feed_run(&f.job, dawdles ? seed : 0, r->label);
    feed_check_ends(&f.job, r->label);
    check_memory(&f, r->label);
    if (f.job.options.path == DCPK_REMAP_AUTO)
        check_read_once(&f.job, r);
    feed_release(&f.job);
    out_case_release(r);
}

static void targets_are_filled(void **state)
{
    (void)state;
    late_begin();
    for (uint64_t seed = 1; seed <= N_ROUNDS; seed++)
        feed_round(seed);
    CHECK(counts.late > 0 && counts.checks > 0 && counts.dawdling > 0, "each choice was made");
    CHECK(counts.many_ranks > 0 && counts.runs > 0 && counts.staged > 0, "each choice was made");
    CHECK(counts.all > 0, "late devices, checks, dawdling and more than two ranks came together");
    CHECK(counts.read_once > 0, "there were rounds without strided chunks");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(targets_are_filled)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

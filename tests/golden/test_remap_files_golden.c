/* SPDX-License-Identifier: Apache-2.0 */
/* test_remap_files_golden.c - every sample, fed from its files into random layouts of 1, 2 and 4
 * ranks, and remapped to others: what lies in the shards has the hashes that PyTorch gave. */
#include "lib/exec/remap.h"
#include "lib/job/feed_views.h"
#include "tests/feed_job.h"
#include "tests/golden/samples.h"

/* Views of all stored tensors. */
static struct dcpk_remap_view *views_of(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_remap_view *views = calloc(ckpt->n_tensors + 1, sizeof *views);

    CHECK(views != NULL, "views");
    for (uint32_t i = 0; i < ckpt->n_tensors; i++) {
        views[i].name = ckpt->tensors[i].key;
        CHECK_OK(dcpk_view_stored(ckpt, i, arena, &views[i].view, &err), views[i].name);
    }
    return views;
}

static void check_hash(const struct feed_job *job, size_t view, const struct dcpk_json *want)
{
    const struct dcpk_remap_view *v = &job->options.views[view];
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_hash hash;
    uint8_t *data, *was_set;
    int64_t n_elems;
    size_t n_bytes;
    char hex[33];

    CHECK_OK(dcpk_shape_count(v->view.shape, v->view.rank, &n_elems, &err), v->name);
    n_bytes = (size_t)n_elems * dcpk_dtype_bytes(v->view.dtype);
    data = malloc(n_bytes + 1);
    was_set = malloc((size_t)n_elems + 1);
    CHECK(data != NULL && was_set != NULL, v->name);
    feed_put_together(job, view, data, was_set, n_elems);
    dcpk_hash_bytes(data, n_bytes, &hash);
    for (size_t i = 0; i < 16; i++)
        snprintf(hex + 2 * i, 3, "%02x", hash.digest[i]);
    CHECK_EQ_STR(hex, dcpk_json_string(dcpk_json_member(want, "xxh3_128")), v->name);
    free(data);
    free(was_set);
}

/* From the layout of one job to that of another, in memory. */
struct move_job {
    const struct feed_job *from;
    struct feed_job *to;
    enum dcpk_remap_path path;
};

static dcpk_status move_all(const struct move_job *move, int self,
                            const struct dcpk_remap_options *options, struct dcpk_error *err)
{
    const size_t *sources = move->from->first + self, *targets = move->to->first + self;
    const struct dcpk_remap_shards mine = {.sources = move->from->targets + sources[0],
                                           .n_sources = sources[1] - sources[0],
                                           .targets = move->to->targets + targets[0],
                                           .n_targets = targets[1] - targets[0]};
    struct dcpk_remap *remap = NULL;
    dcpk_status st = dcpk_remap_new(options, &mine, &remap, err);

    if (st == DCPK_OK)
        st = dcpk_remap_run(remap, NULL, NULL, err);
    (void)dcpk_ranks_agree(options->ranks, DCPK_OK, &(struct dcpk_error){0}); /* all are idle */
    dcpk_remap_free(remap);
    return st;
}

static void move_rank(struct dcpk_ranks *ranks, int self, void *context)
{
    static const struct dcpk_device_options first = {0};
    const struct move_job *move = context;
    struct dcpk_error *err = &move->to->errs[self];
    struct dcpk_remap_options options = {.ranks = ranks,
                                         .path = move->path,
                                         .staging_bytes = 1 << 16,
                                         .unit_bytes = 100000,
                                         .checks = true};
    dcpk_status st = dcpk_devices[0]->open(&first, &options.device, err);

    if (st == DCPK_OK && ranks != NULL)
        st = dcpk_links[0]->open(dcpk_ranks_comm(ranks), options.device, &options.link, err);
    st = dcpk_ranks_agree(ranks, st, err);
    if (st == DCPK_OK)
        st = move_all(move, self, &options, err);
    move->to->ends[self] = st;
    dcpk_links[0]->close(options.link);
    dcpk_devices[0]->close(options.device);
}

static void check_moved(const struct feed_job *from, uint64_t seed,
                        const struct dcpk_json *manifest, const char *label)
{
    struct feed_job to = {.n_ranks = from->n_ranks, .options = from->options};
    struct move_job move = {from, &to, seed % 2 ? DCPK_REMAP_DIRECT : DCPK_REMAP_STAGED};

    for (int r = 0; r < to.n_ranks; r++)
        to.errs[r] = (struct dcpk_error)DCPK_ERROR_INIT;
    feed_make(&to, seed, label);
    rank_threads_begin(to.n_ranks, 0);
    if (to.n_ranks > 1)
        rank_threads_run(move_rank, &move, label);
    else
        move_rank(NULL, 0, &move);
    feed_check_ends(&to, label);
    for (size_t v = 0; v < to.options.n_views; v++)
        check_hash(
            &to, v,
            dcpk_json_member(dcpk_json_member(manifest, "tensors"), to.options.views[v].name));
    feed_release(&to);
}

static void check_sample(size_t number)
{
    static const int n_ranks[] = {1, 2, 4};
    const struct sample *s = &samples[number];
    struct dcpk_checkpoint *ckpt = sample_open(s);
    struct dcpk_json *manifest = sample_manifest(s);
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_remap_view *views;

    views = views_of(ckpt, arena);
    for (size_t i = 0; i < sizeof n_ranks / sizeof *n_ranks; i++) {
        struct feed_job job = {
            .n_ranks = n_ranks[i], .n_threads = 1 + (int)(number + i) % 3, .n_runs = 1};
        uint64_t read_bytes = 0;

        job.options = (struct dcpk_remap_files_options){.ckpt = ckpt,
                                                        .views = views,
                                                        .n_views = ckpt->n_tensors,
                                                        .checks = number % 2 == 0,
                                                        .checks_files = number % 3 == 0};
        if (i > 0)
            job.options.ring_bytes = DCPK_REMAP_MIN_RING_BYTES << number % 4;
        feed_make(&job, 100 * number + i, s->folder);
        feed_run(&job, number % 3, s->folder);
        feed_check_ends(&job, s->folder);
        for (size_t v = 0; v < ckpt->n_tensors; v++)
            check_hash(&job, v,
                       dcpk_json_member(dcpk_json_member(manifest, "tensors"), views[v].name));
        check_moved(&job, 100 * number + i + 50, manifest, s->folder);
        for (int r = 0; r < n_ranks[i]; r++)
            read_bytes += job.stats[r].read_bytes;
        print_message("%s: %d ranks, %" PRIu64 " bytes read\n", s->folder, n_ranks[i], read_bytes);
        feed_release(&job);
    }
    free(views);
    dcpk_arena_free(arena);
    dcpk_json_free(manifest);
    dcpk_checkpoint_close(ckpt);
}

static void test_every_sample(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SAMPLES; i++)
        check_sample(i);
}

/* What Megatron's checkpoint_inspector.py made of a sample, and what we feed of it by those names.
 */
static const struct {
    size_t n_least; /* tensors of that name */
    const char *from, *converted;
} conversions[] = {
    {93, "torch_dist_b_dense_tp2pp2", "fsdp_dtensor_converted_by_megatron"},
    {20, "torch_dist_c_mamba", "fsdp_dtensor_converted_mamba"},
    {20, "torch_dist_c_mla_moe", "fsdp_dtensor_converted_mla_moe"},
};

static const struct sample *find_sample(const char *name)
{
    for (size_t i = 0; i < N_SAMPLES; i++)
        if (strncmp(samples[i].folder, name, strlen(name)) == 0 &&
            samples[i].folder[strlen(name)] == '/')
            return &samples[i];
    fail_msg("no sample '%s'", name);
    return NULL;
}

/* What Megatron has for a name of ours: weights are its masters, where it has them. */
static const struct dcpk_json *find_converted(const struct dcpk_json *manifest, const char *name)
{
    const struct dcpk_json *tensors = dcpk_json_member(manifest, "tensors"), *param = NULL;
    char master[512];

    if (strncmp(name, "model.", 6) == 0) {
        snprintf(master, sizeof master, "optimizer.state.module.module.%s.param", name + 6);
        param = dcpk_json_member(tensors, master);
    }
    return param != NULL ? param : dcpk_json_member(tensors, name);
}

static void check_as(const char *from, const char *converted, size_t n_least)
{
    struct dcpk_checkpoint *ckpt = sample_open(find_sample(from));
    struct dcpk_json *manifest = sample_manifest(find_sample(converted));
    struct feed_job job = {.n_ranks = 2, .n_threads = 2, .n_runs = 1};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_feed_views *views = NULL;
    size_t n_checked = 0;

    job.options.ckpt = ckpt;
    job.options.checks = true;
    CHECK_OK(dcpk_feed_views_new(ckpt, dcpk_format_find("fsdp_dtensor"), NULL, 0, &views, &err),
             from);
    job.options.views = dcpk_feed_views(views, &job.options.n_views);
    feed_make(&job, n_least, from);
    feed_run(&job, 0, from);
    feed_check_ends(&job, from);
    for (size_t v = 0; v < job.options.n_views; v++) {
        const struct dcpk_json *want = find_converted(manifest, job.options.views[v].name);

        if (want != NULL)
            check_hash(&job, v, want);
        n_checked += want != NULL;
    }
    print_message("%s as %s: %zu of %zu tensors\n", from, converted, n_checked,
                  job.options.n_views);
    CHECK(n_checked >= n_least, from);
    feed_release(&job);
    dcpk_feed_views_free(views);
    dcpk_json_free(manifest);
    dcpk_checkpoint_close(ckpt);
}

static void test_as_converted(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof conversions / sizeof *conversions; i++)
        check_as(conversions[i].from, conversions[i].converted, conversions[i].n_least);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_sample),
                                       cmocka_unit_test(test_as_converted)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

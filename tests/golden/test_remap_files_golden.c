/* SPDX-License-Identifier: Apache-2.0 */
/* test_remap_files_golden.c - every sample, fed from its files into random layouts of 1, 2 and 4
 * ranks: what lies in the shards has the hashes that PyTorch gave. */
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

static void check_hash(const struct feed_job *job, size_t view, const struct dcpk_json *manifest)
{
    const struct dcpk_remap_view *v = &job->options.views[view];
    const struct dcpk_json *want = dcpk_json_member(dcpk_json_member(manifest, "tensors"), v->name);
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_hasher *hasher = NULL;
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
    CHECK_OK(dcpk_hasher_new(&hasher, &err), v->name);
    dcpk_hasher_update(hasher, data, n_bytes);
    dcpk_hasher_digest(hasher, &hash);
    dcpk_hasher_free(hasher);
    for (size_t i = 0; i < 16; i++)
        snprintf(hex + 2 * i, 3, "%02x", hash.digest[i]);
    CHECK_EQ_STR(hex, dcpk_json_string(dcpk_json_member(want, "xxh3_128")), v->name);
    free(data);
    free(was_set);
}

static void check_sample(size_t number)
{
    static const int n_ranks[] = {1, 2, 4};
    const struct sample *s = &samples[number];
    struct dcpk_checkpoint *ckpt = sample_open(s);
    struct dcpk_json *manifest = sample_manifest(s);
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new(0, &err);
    struct dcpk_remap_view *views;

    CHECK(arena != NULL, s->folder);
    views = views_of(ckpt, arena);
    for (size_t i = 0; i < sizeof n_ranks / sizeof *n_ranks; i++) {
        struct feed_job job = {
            .n_ranks = n_ranks[i], .n_threads = 1 + (int)(number + i) % 3, .n_runs = 1};
        uint64_t read_bytes = 0;

        job.options = (struct dcpk_remap_files_options){
            .ckpt = ckpt, .views = views, .n_views = ckpt->n_tensors, .checks = number % 2 == 0};
        if (i > 0)
            job.options.ring_bytes = DCPK_REMAP_LEAST_RING_BYTES << number % 4;
        feed_make(&job, 100 * number + i, s->folder);
        feed_run(&job, number % 3, s->folder);
        feed_check_ends(&job, s->folder);
        for (size_t v = 0; v < ckpt->n_tensors; v++)
            check_hash(&job, v, manifest);
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_sample)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* test_hash_golden.c - every tensor of every sample is what PyTorch says: shape, chunks, bytes; and
 * the fingerprint of these bytes. */
#include <inttypes.h>
#include <stdlib.h>

#include "lib/base/digest.h"
#include "lib/job/hash_list.h"
#include "tests/golden/hashes.h"
#include "tests/golden/samples.h"

/* The whole numbers of a JSON array into `out`; returns how many. */
static int read_ints(const struct dcpk_json *array, int64_t out[DCPK_MAX_RANK], const char *label)
{
    int n = 0;

    for (const struct dcpk_json *i = dcpk_json_first(array); i != NULL; i = dcpk_json_next(i)) {
        CHECK(n < DCPK_MAX_RANK, label);
        CHECK(dcpk_json_int(i, &out[n]), label);
        n++;
    }
    return n;
}

/* Is the box (offsets, sizes) one of the tensor's chunks? */
static bool has_chunk(const struct dcpk_checkpoint *ckpt, const struct dcpk_tensor *t,
                      const int64_t *offsets, const int64_t *sizes)
{
    const size_t axis_bytes = (size_t)t->rank * sizeof(int64_t);

    for (size_t i = t->first_chunk; i < t->first_chunk + t->n_chunks; i++) {
        const int64_t *span = ckpt->chunks[i].span;

        if (t->rank == 0 || (memcmp(span, offsets, axis_bytes) == 0 &&
                             memcmp(span + t->rank, sizes, axis_bytes) == 0))
            return true;
    }
    return false;
}

/* The chunk lists have the same length, and each of the manifest's (they differ from each other) is
 * there. */
static void check_chunks(const struct dcpk_checkpoint *ckpt, const struct dcpk_tensor *t,
                         const struct dcpk_json *want)
{
    size_t n_chunks = 0;

    for (const struct dcpk_json *chunk = dcpk_json_first(dcpk_json_member(want, "chunks"));
         chunk != NULL; chunk = dcpk_json_next(chunk)) {
        const struct dcpk_json *offsets_json = dcpk_json_first(chunk);
        int64_t offsets[DCPK_MAX_RANK], sizes[DCPK_MAX_RANK];

        CHECK_EQ_INT(read_ints(offsets_json, offsets, t->key), t->rank, t->key);
        CHECK_EQ_INT(read_ints(dcpk_json_next(offsets_json), sizes, t->key), t->rank, t->key);
        CHECK(has_chunk(ckpt, t, offsets, sizes), t->key);
        n_chunks++;
    }
    CHECK_EQ_INT(t->n_chunks, n_chunks, t->key);
}

/*
 * A zarr manifest gives one chunk's shape: the chunks are the cells of that grid, cut at the end.
 */
static void check_grid(const struct dcpk_checkpoint *ckpt, const struct dcpk_tensor *t,
                       const struct dcpk_json *want)
{
    int64_t cell[DCPK_MAX_RANK], n_cells = 1;

    CHECK_EQ_INT(read_ints(dcpk_json_member(want, "chunk_shape"), cell, t->key), t->rank, t->key);
    for (int a = 0; a < t->rank; a++)
        n_cells *= (t->shape[a] + cell[a] - 1) / cell[a];
    CHECK_EQ_INT(t->n_chunks, n_cells, t->key);
    for (size_t i = t->first_chunk; i < t->first_chunk + t->n_chunks; i++) {
        const int64_t *offset = ckpt->chunks[i].span, *extent = offset + t->rank;

        for (int a = 0; a < t->rank; a++) {
            const int64_t left = t->shape[a] - offset[a];

            CHECK_EQ_INT(offset[a] % cell[a], 0, t->key);
            CHECK_EQ_INT(extent[a], left < cell[a] ? left : cell[a], t->key);
        }
    }
}

/* torch's name of a dtype that a manifest gives in numpy's spelling. */
static const char *torch_dtype(const char *name)
{
    return name != NULL && strcmp(name, "<f4") == 0 ? "float32" : name;
}

/* The model's shape of a flattened tensor, where the manifest has it (torch_dist generation A). */
static void check_model_shape(const struct dcpk_tensor *t, const struct dcpk_json *want)
{
    const struct dcpk_json *mcore = dcpk_json_member(want, "mcore_data");
    int64_t shape[DCPK_MAX_RANK];

    if (mcore == NULL)
        return;
    CHECK(t->model_shape != NULL, t->key);
    CHECK_EQ_INT(
        read_ints(dcpk_json_member(mcore, "nd_reformulated_orig_global_shape"), shape, t->key),
        t->model_rank, t->key);
    for (int a = 0; a < t->model_rank; a++)
        CHECK_EQ_INT(t->model_shape[a], shape[a], t->key);
}

static void check_tensor(const struct dcpk_checkpoint *ckpt, const struct dcpk_json *want,
                         const struct dcpk_hash *hashes)
{
    const char *key = dcpk_json_key(want);
    const struct dcpk_tensor *t = dcpk_checkpoint_tensor(ckpt, key);
    int64_t shape[DCPK_MAX_RANK], n_elems = 0, n_bytes = 0;
    struct dcpk_error err = DCPK_ERROR_INIT;
    char hex[33];

    CHECK(t != NULL, key);
    CHECK_EQ_INT(t->rank, read_ints(dcpk_json_member(want, "shape"), shape, key), key);
    for (int a = 0; a < t->rank; a++)
        CHECK_EQ_INT(t->shape[a], shape[a], key);
    CHECK_EQ_STR(dcpk_dtype_name(t->dtype),
                 torch_dtype(dcpk_json_string(dcpk_json_member(want, "dtype"))), key);
    CHECK_OK(dcpk_shape_count(t->shape, t->rank, &n_elems, &err), key);
    CHECK(dcpk_json_int(dcpk_json_member(want, "bytes"), &n_bytes), key);
    CHECK_EQ_INT(n_elems * (int64_t)dcpk_dtype_bytes(t->dtype), n_bytes, key);
    if (dcpk_json_member(want, "chunk_shape") != NULL)
        check_grid(ckpt, t, want);
    else
        check_chunks(ckpt, t, want);
    check_model_shape(t, want);

    for (size_t i = 0; i < 16; i++)
        snprintf(hex + 2 * i, 3, "%02x", hashes[t - ckpt->tensors].digest[i]);
    CHECK_EQ_STR(hex, dcpk_json_string(dcpk_json_member(want, "xxh3_128")), key);
}

/* The fingerprint by its formula, a word at a time from the last to the first. */
static uint64_t naive_fingerprint(const uint8_t *bytes, size_t n_bytes, size_t elem_bytes)
{
    const size_t word_bytes = elem_bytes > 4 ? 4 : elem_bytes;
    uint64_t sum = 0;

    for (size_t i = n_bytes / word_bytes; i-- > 0;) {
        uint64_t k = (i + 1) * 0x9E3779B97F4A7C15u, v = 0;

        for (size_t b = 0; b < word_bytes; b++)
            v += (uint64_t)bytes[i * word_bytes + b] << (8 * b);
        k ^= k >> 32;
        k *= 0xD6E8FEB86659FD93u;
        sum += v * (k | 1);
    }
    return sum;
}

static void check_fingerprints(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                               const char *label)
{
    const struct dcpk_env env = {.kernels = dcpk_host_kernel_sets[0], .n_threads = 3};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_hash_list list = {0};
    struct dcpk_exec *exec = NULL;

    CHECK_OK(dcpk_exec_new(ckpt, &env, &exec, &err), label);
    CHECK_OK(dcpk_hash_list_make_fingerprints(exec, ckpt, &list, &err), label);
    CHECK_EQ_INT(list.n, ckpt->n_tensors, label);
    for (size_t i = 0; i < list.n; i++) {
        const struct dcpk_tensor *t = dcpk_checkpoint_tensor(ckpt, list.items[i].key);
        struct dcpk_view_reader *reader = NULL;
        struct dcpk_view view;
        struct dcpk_box whole;
        char text[DCPK_HASH_TEXT_BYTES], want[17];
        uint8_t *bytes = malloc((size_t)list.items[i].n_bytes + 1);

        CHECK(t != NULL && bytes != NULL, list.items[i].key);
        CHECK_OK(dcpk_view_stored(ckpt, (uint32_t)(t - ckpt->tensors), arena, &view, &err), t->key);
        CHECK_OK(dcpk_view_reader_new(exec, &view, &reader, &err), t->key);
        dcpk_box_whole(view.shape, view.rank, &whole);
        CHECK_OK(dcpk_view_reader_read(reader, &whole, bytes, &err), t->key);
        snprintf(
            want, sizeof want, "%016" PRIx64,
            naive_fingerprint(bytes, (size_t)list.items[i].n_bytes, dcpk_dtype_bytes(t->dtype)));
        CHECK_EQ_STR(dcpk_hashed_text(&list.items[i], text), want, t->key);
        dcpk_view_reader_free(reader);
        free(bytes);
    }
    dcpk_hash_list_release(&list);
    dcpk_exec_free(exec);
}

static void check_sample(const struct sample *s)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_checkpoint *ckpt = sample_open(s);
    struct dcpk_json *manifest = sample_manifest(s);
    const struct dcpk_json *items = dcpk_json_member(manifest, "bytes_items");
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_hash *hashes;
    size_t n_tensors = 0, n_objects = 0;

    CHECK_EQ_STR(ckpt->format->name, s->format, s->folder);
    if (s->generation != NULL)
        CHECK_EQ_INT(ckpt->generation[0], s->generation[0], s->folder);
    CHECK_OK(dcpk_checkpoint_check_cover(ckpt, &err), s->folder);

    hashes = hash_all(ckpt, arena, s->folder);
    for (const struct dcpk_json *t = dcpk_json_first(dcpk_json_member(manifest, "tensors"));
         t != NULL; t = dcpk_json_next(t)) {
        check_tensor(ckpt, t, hashes);
        n_tensors++;
    }
    CHECK_EQ_INT(ckpt->n_tensors, n_tensors, s->folder);

    if (items != NULL) { /* a zarr manifest lists files instead */
        for (const struct dcpk_json *o = dcpk_json_first(items); o != NULL; o = dcpk_json_next(o)) {
            CHECK(dcpk_checkpoint_object(ckpt, dcpk_json_string(o)) != NULL, dcpk_json_string(o));
            n_objects++;
        }
        CHECK_EQ_INT(ckpt->n_objects, n_objects, s->folder);
    }
    CHECK(n_tensors + n_objects > 0, s->folder);

    check_fingerprints(ckpt, arena, s->folder);
    print_message("%s: %zu tensors, %zu objects\n", s->folder, n_tensors, n_objects);
    free(hashes);
    dcpk_arena_free(arena);
    dcpk_json_free(manifest);
    dcpk_checkpoint_close(ckpt);
}

static void test_every_sample(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SAMPLES; i++)
        check_sample(&samples[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_sample)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

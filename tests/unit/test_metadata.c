/* SPDX-License-Identifier: Apache-2.0 */
/* test_metadata.c - .metadata of every generation, patched ones that lie, and what the writer
 * makes. */
#include <stdio.h>
#include <stdlib.h>

#include "formats/dcp/dcp.h"
#include "lib/base/alloc.h"
#include "lib/ckpt/output.h"
#include "tests/check.h"
#include "tests/unit/metadata_cases.h"
#include "tests/unit/pickle_show.h"

#define TINY DCPK_SOURCE_DIR "/sample-data/tiny_generations/"

static const struct dcpk_format *const formats[] = {&dcpk_format_dcp, NULL};

/* Counts: the manifests beside the samples; torch and Megatron: the names of the samples. */
static const struct {
    const char *folder, *torch_generation;
    size_t n_tensors, n_chunks, n_objects;
    bool is_mcore_class, has_mcore_data, has_planner_data;
    const char *flattened; /* a tensor with a model_shape of (4, 6) */
} generations[] = {
    {"torch_dist_0.8.0_torch2.1", .torch_generation = "2.1-2.2", .n_tensors = 6, .n_chunks = 11,
     .n_objects = 2, .has_mcore_data = true, .has_planner_data = true,
     .flattened = "opt.exp_avg.w"},
    {"torch_dist_0.10.0_torch2.5", .torch_generation = "2.4-2.8", .n_tensors = 6, .n_chunks = 11,
     .n_objects = 2, .has_mcore_data = true, .has_planner_data = true,
     .flattened = "opt.exp_avg.w"},
    {"torch_dist_0.12.0_torch2.5", .torch_generation = "2.4-2.8", .n_tensors = 8, .n_chunks = 15,
     .n_objects = 2, .has_mcore_data = true, .flattened = "opt.exp_avg.w"},
    {"torch_dist_0.14.0_torch2.11", .torch_generation = "2.9+", .n_tensors = 6, .n_chunks = 11,
     .n_objects = 2},
    {"torch_dist_0.15.0_torch2.5", .torch_generation = "2.4-2.8", .n_tensors = 6, .n_chunks = 11,
     .n_objects = 2, .is_mcore_class = true, .has_mcore_data = true},
    {"torch_dist_0.17.0_torch2.5", .torch_generation = "2.4-2.8", .n_tensors = 3, .n_chunks = 5,
     .n_objects = 2},
    {"torch_dist_0.19.0_torch2.11", .torch_generation = "2.9+", .n_tensors = 3, .n_chunks = 5,
     .n_objects = 3},
    {"torch_dist_main_torch2.11", .torch_generation = "2.9+", .n_tensors = 3, .n_chunks = 5,
     .n_objects = 3},
};

static void reads_every_generation(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof generations / sizeof *generations; i++) {
        const char *label = generations[i].folder;
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_store *store = NULL;
        struct dcpk_checkpoint *ckpt = NULL;
        const struct dcpk_dcp_info *info;
        const struct dcpk_tensor *t;
        char path[512];

        snprintf(path, sizeof path, "%s%s", TINY, label);
        CHECK_OK(dcpk_store_open(path, &store, &err), label);
        CHECK_OK(dcpk_checkpoint_open(store, formats, NULL, &ckpt, &err), label);
        info = ckpt->state;
        CHECK_EQ_STR(info->torch_generation, generations[i].torch_generation, label);
        CHECK_EQ_INT(info->is_mcore_class, generations[i].is_mcore_class, label);
        CHECK_EQ_INT(info->has_mcore_data, generations[i].has_mcore_data, label);
        CHECK_EQ_INT(info->has_planner_data, generations[i].has_planner_data, label);
        CHECK_EQ_INT(ckpt->n_tensors, generations[i].n_tensors, label);
        CHECK_EQ_INT(ckpt->n_chunks, generations[i].n_chunks, label);
        CHECK_EQ_INT(ckpt->n_objects, generations[i].n_objects, label);
        CHECK(ckpt->notes == NULL, label);
        t = dcpk_checkpoint_tensor(ckpt, "layers.weight");
        CHECK(t != NULL && t->dtype == DCPK_BF16 && t->rank == 3 && t->shape[2] == 4, label);
        CHECK_EQ_INT(t->n_chunks, 2, label);
        t = generations[i].flattened == NULL
                ? NULL
                : dcpk_checkpoint_tensor(ckpt, generations[i].flattened);
        CHECK(generations[i].flattened == NULL ||
                  (t != NULL && t->model_rank == 2 && t->model_shape[0] == 4 &&
                   t->model_shape[1] == 6),
              label);
        dcpk_checkpoint_close(ckpt);
    }
}

/* Open .metadata bytes with the files of the sample in memory. */
static dcpk_status open_bytes(const uint8_t *data, size_t n, struct dcpk_checkpoint **ckpt,
                              struct dcpk_error *err)
{
    static const uint8_t zeros[8192];
    struct dcpk_store *store = NULL;

    assert_int_equal(dcpk_store_new_memory("memory", &store, err), DCPK_OK);
    assert_int_equal(dcpk_store_add_memory(store, "__0_0.distcp", zeros, 7697, err), DCPK_OK);
    assert_int_equal(dcpk_store_add_memory(store, "__1_0.distcp", zeros, 4415, err), DCPK_OK);
    assert_int_equal(dcpk_store_add_memory(store, ".metadata", data, n, err), DCPK_OK);
    return dcpk_checkpoint_open(store, formats, NULL, ckpt, err);
}

static uint8_t sample[2048];
static size_t n_sample;

static int load_sample(void **state)
{
    FILE *f = fopen(TINY "torch_dist_main_torch2.11/.metadata", "rb");

    (void)state;
    if (f == NULL)
        return -1;
    n_sample = fread(sample, 1, sizeof sample, f);
    fclose(f);
    return n_sample == 1663 ? 0 : -1;
}

/* Patches at offsets of the sample's pickle (pickletools shows it): n_old bytes at `at` become the
 * new ones. */
static const struct {
    const char *label;
    size_t at, n_old, n_new;
    const char *bytes;
    dcpk_status status;
    char text[64], key[16]; /* what the message holds */
    bool is_read;           /* the metadata by itself is good */
} patches[] = {
    {"root class", .at = 53, .n_old = 8, .n_new = 8, .bytes = "Metadatb", .status = DCPK_EFORMAT,
     .text = "not a torch.distributed.checkpoint"},
    {"unknown dtype", .at = 191, .n_old = 7, .n_new = 7, .bytes = "float33",
     .status = DCPK_EUNSUPPORTED, .text = "dtype torch.float33", .key = "tp.weight"},
    {"dtype elsewhere", .at = 183, .n_old = 5, .n_new = 5, .bytes = "tarch", .status = DCPK_EFORMAT,
     .text = "no torch dtype", .key = "tp.weight"},
    {"layout", .at = 241, .n_old = 13, .n_new = 13, .bytes = "torch.sparse0",
     .status = DCPK_EUNSUPPORTED, .text = "torch.sparse0", .key = "tp.weight"},
    {"chunk outside", .at = 322, .n_old = 1, .n_new = 1, .bytes = "\x03", .status = DCPK_EFORMAT,
     .text = "outside the tensor's 3", .key = "tp.weight"},
    {"negative size", .at = 321, .n_old = 2, .n_new = 5, .bytes = "J\xff\xff\xff\xff",
     .status = DCPK_EFORMAT, .text = "below 0", .key = "tp.weight"},
    {"negative offset", .at = 388, .n_old = 2, .n_new = 5, .bytes = "J\xff\xff\xff\xff",
     .status = DCPK_EFORMAT, .text = "below 0", .key = "tp.weight"},
    {"size past 2^63", .at = 321, .n_old = 2, .n_new = 11, .bytes = "\x8a\x09\0\0\0\0\0\0\0\0\1",
     .status = DCPK_EFORMAT, .text = "64-bit", .key = "tp.weight"},
    {"shape overflow", .at = 321, .n_old = 4, .n_new = 12,
     .bytes = "\x8a\x04\0\0\0\x7f\x8a\x04\0\0\0\x7f", .status = DCPK_ERANGE, .key = "tp.weight"},
    {"offset is text", .at = 388, .n_old = 2, .n_new = 2, .bytes = "N2", .status = DCPK_EFORMAT},
    {"rank of the size", .at = 321, .n_old = 5, .n_new = 4, .bytes = "K\4\x85\x94",
     .status = DCPK_EFORMAT},
    {"same offsets", .at = 433, .n_old = 1, .n_new = 1, .bytes = "\0", .status = DCPK_EFORMAT,
     .text = "two chunks have the same offsets", .key = "tp.weight"},
    {"no place", .at = 433, .n_old = 1, .n_new = 1, .bytes = "\1", .status = DCPK_EFORMAT,
     .text = "no place for it", .key = "tp.weight"},
    {"two places", .at = 1387, .n_old = 1, .n_new = 1, .bytes = "\0", .status = DCPK_EFORMAT,
     .text = "two places", .key = "tp.weight"},
    {"entry class", .at = 645, .n_old = 5, .n_new = 5, .bytes = "Megas",
     .status = DCPK_EUNSUPPORTED, .text = "MegasStorageMetadata where TensorStorageMetadata",
     .key = "obj/shard_0_2"},
    {"NUL in a key", .at = 680, .n_old = 1, .n_new = 1, .bytes = "\0", .status = DCPK_EFORMAT,
     .text = "holds a NUL"},
    {"missing file", .at = 1335, .n_old = 1, .n_new = 1, .bytes = "9", .status = DCPK_EFORMAT,
     .text = "'__9_0.distcp' is missing", .key = "obj/shard_1_2"},
    {"file outside", .at = 1333, .n_old = 3, .n_new = 3, .bytes = "../", .status = DCPK_EFORMAT,
     .text = "leaves the folder", .key = "obj/shard_1_2"},
    {"item passes its file", .at = 1353, .n_old = 2, .n_new = 2, .bytes = "\xff\xff",
     .status = DCPK_EFORMAT, .text = "passes the end", .key = "obj/shard_1_2", .is_read = true},
    {"negative length", .at = 1352, .n_old = 3, .n_new = 5, .bytes = "J\xff\xff\xff\xff",
     .status = DCPK_EFORMAT, .text = "not a count of bytes", .key = "obj/shard_1_2"},
    {"safetensors", .at = 1153, .n_old = 2, .n_new = 2, .bytes = "\x30\0",
     .status = DCPK_EUNSUPPORTED, .text = "SAFETENSORS", .key = "tp.weight"},
    {"no storage_data", .at = 832, .n_old = 12, .n_new = 12, .bytes = "storage_datb",
     .status = DCPK_EFORMAT, .text = "no storage_data"},
    {"no entries", .at = 72, .n_old = 19, .n_new = 19, .bytes = "state_dict_metadatb",
     .status = DCPK_EFORMAT, .text = "no state_dict_metadata"},
    {"transformed", .at = 1026, .n_old = 0, .n_new = 46,
     .bytes = "X\x15\0\0\0transform_descriptors]X\x0d\0\0\0stream.zstd/1a",
     .status = DCPK_EUNSUPPORTED, .text = "stream.zstd/1", .key = "obj/shard_0_2"},
    {"flattened shape of nothing", .at = 1660, .n_old = 0, .n_new = 66,
     .bytes =
         "X\x0a\0\0\0mcore_data}X\1\0\0\0k}X\x21\0\0\0nd_reformulated_orig_global_shapeK\3\x85ss",
     .status = DCPK_EFORMAT, .text = "'k' is not a tensor", .key = "mcore_data"},
    {"other mcore_data", .at = 1660, .n_old = 0, .n_new = 33,
     .bytes = "X\x0a\0\0\0mcore_data}X\1\0\0\0k}X\1\0\0\0aK\3ss", .status = DCPK_EUNSUPPORTED,
     .text = "attributes other than", .key = "mcore_data"},
    {"cut", .at = 1600, .n_old = 63, .n_new = 0, .bytes = "", .status = DCPK_EFORMAT},
};

/* The sample with one patch. */
static size_t patch(uint8_t *data, size_t at, size_t n_old, const char *bytes, size_t n_new)
{
    memcpy(data, sample, at);
    memcpy(data + at, bytes, n_new);
    memcpy(data + at + n_new, sample + at + n_old, n_sample - at - n_old);
    return n_sample - n_old + n_new;
}

static void refuses_metadata_that_lies(void **state)
{
    uint8_t data[sizeof sample + 128];

    (void)state;
    for (size_t i = 0; i < sizeof patches / sizeof *patches; i++) {
        const char *label = patches[i].label;
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_checkpoint *ckpt = NULL;
        const size_t n =
            patch(data, patches[i].at, patches[i].n_old, patches[i].bytes, patches[i].n_new);

        CHECK_FAILS(open_bytes(data, n, &ckpt, &err), patches[i].status, patches[i].text, label);
        CHECK(strstr(err.text, patches[i].key) != NULL, label);
        CHECK_EQ_INT(strstr(err.text, "reading '.metadata'") == NULL, patches[i].is_read, label);
    }
}

/* Two tensors of two chunks and two objects, whatever is shared and in whatever order it comes. */
static void reads_objects_that_are_shared(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof metadata_cases / sizeof *metadata_cases; i++) {
        const struct metadata_case *c = &metadata_cases[i];
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_checkpoint *ckpt = NULL;
        const struct dcpk_tensor *t;
        size_t n;
        uint8_t *data = from_hex(c->hex, &n);

        if (c->status != DCPK_OK) {
            CHECK_FAILS(open_bytes(data, n, &ckpt, &err), c->status, c->message, c->label);
            free(data);
            continue;
        }
        CHECK_OK(open_bytes(data, n, &ckpt, &err), c->label);
        free(data);
        t = dcpk_checkpoint_tensor(ckpt, "b");
        CHECK_EQ_INT(ckpt->n_tensors, 2, c->label);
        CHECK_EQ_INT(ckpt->n_objects, 2, c->label);
        CHECK(t != NULL && t->dtype == DCPK_F32 && t->rank == 2 && t->n_chunks == 2, c->label);
        CHECK_EQ_INT(ckpt->chunks[t->first_chunk].span[0] +
                         ckpt->chunks[t->first_chunk + 1].span[0],
                     2, c->label);
        CHECK(dcpk_checkpoint_object(ckpt, "y") != NULL, c->label);
        dcpk_checkpoint_close(ckpt);
    }
}

/* Not wrong, but to be said. */
static void notes_what_it_leaves_out(void **state)
{
    static const char ghost[] = "hs)\x81}(hvX\5\0\0\0ghosthxNubh{)\x81}(h~h\x7fh\x80K\0h\x81K\5ub";
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_checkpoint *ckpt = NULL;
    uint8_t data[sizeof sample + 128];
    size_t n = patch(data, 1493, 0, ghost, sizeof ghost - 1);

    (void)state;
    CHECK_OK(open_bytes(data, n, &ckpt, &err), "an item of nobody");
    CHECK(ckpt->notes != NULL && strstr(ckpt->notes->text, "ghost") != NULL, "an item of nobody");
    dcpk_checkpoint_close(ckpt);
    n = patch(data, 1644, 7, "versiom", 7);
    CHECK_OK(open_bytes(data, n, &ckpt, &err), "unknown attribute");
    CHECK(ckpt->notes != NULL && strstr(ckpt->notes->text, "'versiom'") != NULL,
          "unknown attribute");
    CHECK_EQ_STR(((struct dcpk_dcp_info *)ckpt->state)->torch_generation, "2.4-2.8", "no version");
    dcpk_checkpoint_close(ckpt);
}

#define GIB ((int64_t)1 << 30)
/* Chunks of an int8 tensor and where they belong: extents in bytes. */
static const struct {
    const char *label;
    int64_t n_bytes;
    uint32_t file;
    bool is_aligned;
} placed[] = {
    {"small, behind the object", 1000, 0, false},
    {"large, at a page", 3 << 20, 0, true},
    {"small again", 10, 0, false},
    {"fits still", 7 * GIB, 0, true},
    {"would pass 8 GiB", GIB, 1, true},
    {"no file holds it, it has its own", 120 * GIB, 2, true}, /* a 16th of all is above 8 GiB */
    {"and the next", 10, 3, false},
};
enum { N_PLACED = sizeof placed / sizeof *placed };

/* An output of one tensor with the chunks above, two names for it, and an object with two names. */
static struct dcpk_output *make_output(const int64_t *n_bytes, size_t n_chunks)
{
    static const char *const keys[] = {"layer.weight", "layer.weight.alias"};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_output *out = NULL;
    struct dcpk_out_tensor tensor = {
        .keys = keys, .n_keys = 2, .dtype = DCPK_I8, .rank = 1, .n_chunks = n_chunks};
    int64_t *spans, *shape, at = 0;
    uint32_t payload;

    CHECK_OK(dcpk_output_new(NULL, &dcpk_format_dcp, &out, &err), "output");
    shape = dcpk_arena_alloc(out->arena, sizeof *shape, &err);
    spans = dcpk_arena_array(out->arena, n_chunks, 2 * sizeof *spans, &err);
    out->chunks = dcpk_alloc_array(n_chunks, sizeof *out->chunks, &err);
    out->n_chunks = n_chunks;
    for (size_t i = 0; i < n_chunks; i++) {
        spans[2 * i] = at;
        spans[2 * i + 1] = n_bytes[i];
        out->chunks[i].span = spans + 2 * i;
        at += n_bytes[i];
    }
    *shape = at;
    tensor.shape = shape;
    CHECK_OK(dcpk_output_add_tensor(out, &tensor, &err), "output");
    CHECK_OK(dcpk_output_add_payload(out, dcpk_value_none(), NULL, &payload, &err), "output");
    CHECK_OK(dcpk_output_add_object(out, "obj", payload, &err), "output");
    CHECK_OK(dcpk_output_add_object(out, "obj.alias", payload, &err), "output");
    CHECK_OK(dcpk_dcp_writer.lay_out(out, &err), "output");
    return out;
}

static void lays_out_files(void **state)
{
    int64_t n_bytes[N_PLACED];
    struct dcpk_output *out;
    uint64_t end = 0;

    (void)state;
    for (size_t i = 0; i < N_PLACED; i++)
        n_bytes[i] = placed[i].n_bytes;
    out = make_output(n_bytes, N_PLACED);
    CHECK_EQ_INT(out->n_files, 4, "files");
    CHECK_EQ_STR(out->files[3].name, "__0_3.distcp", "files");
    CHECK_EQ_INT(out->payloads[0].offset_bytes, 0, "object");
    for (size_t i = 0; i < N_PLACED; i++) {
        const struct dcpk_out_chunk *c = &out->chunks[i];
        const uint64_t n_item = c->lead_bytes + c->data_bytes + c->tail_bytes;

        CHECK_EQ_INT(c->file, placed[i].file, placed[i].label);
        CHECK_EQ_INT(c->data_bytes, placed[i].n_bytes, placed[i].label);
        CHECK(!placed[i].is_aligned || c->offset_bytes % 4096 == 0, placed[i].label);
        if (i == 0)
            end = out->payloads[0].n_bytes;
        else if (placed[i].file != placed[i - 1].file)
            end = 0;
        CHECK(c->offset_bytes >= end && c->offset_bytes < end + 4096, placed[i].label);
        CHECK(placed[i].is_aligned || c->offset_bytes == end, placed[i].label);
        end = c->offset_bytes + n_item;
        CHECK(end <= out->files[c->file].n_bytes, placed[i].label);
    }
    CHECK_EQ_INT(out->files[3].n_bytes, end, "last file");
    dcpk_output_free(out);
}

/* Another file begins at a 16th of the data, and not below 256 MiB. */
static void spreads_over_files(void **state)
{
    static const struct {
        size_t n_chunks, n_files;
        int64_t n_bytes; /* of each */
    } cases[] = {{8, 4, 100 << 20}, {40, 20, 500 << 20}, {160, 20, GIB - 8192}};
    int64_t n_bytes[160];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dcpk_output *out;

        for (size_t c = 0; c < cases[i].n_chunks; c++)
            n_bytes[c] = cases[i].n_bytes;
        out = make_output(n_bytes, cases[i].n_chunks);
        CHECK_EQ_INT(out->n_files, cases[i].n_files, "files");
        dcpk_output_free(out);
    }
}

static void check_places(const struct dcpk_checkpoint *ckpt, const struct dcpk_output *out,
                         const char *key)
{
    const struct dcpk_tensor *t = dcpk_checkpoint_tensor(ckpt, key);

    CHECK(t != NULL && t->dtype == DCPK_I8 && t->rank == 1, key);
    CHECK_EQ_INT(t->shape[0], out->tensors[0].shape[0], key);
    CHECK_EQ_INT(t->n_chunks, out->n_chunks, key);
    for (size_t i = 0; i < t->n_chunks; i++) {
        const struct dcpk_chunk *got = &ckpt->chunks[t->first_chunk + i];
        const struct dcpk_out_chunk *want = &out->chunks[i];

        CHECK_EQ_INT(got->span[0], want->span[0], key);
        CHECK_EQ_INT(got->span[1], want->span[1], key);
        CHECK_EQ_INT(got->place.offset_bytes, want->offset_bytes, key);
        CHECK_EQ_INT(got->place.n_bytes, want->lead_bytes + want->data_bytes + want->tail_bytes,
                     key);
    }
}

static dcpk_status collect(void *context, const void *data, size_t n_bytes, struct dcpk_error *err)
{
    dcpk_bytes_put(context, data, n_bytes);
    return dcpk_bytes_status(context, err);
}

/* Takes so many pieces, then fails. */
static dcpk_status take_some(void *context, const void *data, size_t n_bytes,
                             struct dcpk_error *err)
{
    int *n_left = context;

    (void)data;
    CHECK(n_bytes <= 2u << 20, "a piece is small");
    CHECK(*n_left >= 0, "nothing is put after a failure");
    return (*n_left)-- > 0 ? DCPK_OK : dcpk_fail(err, DCPK_EIO, "no space");
}

static void writes_in_pieces(void **state)
{
    static int64_t n_bytes[40000]; /* some 9 MB of .metadata */
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_output *out;

    (void)state;
    for (size_t i = 0; i < 40000; i++)
        n_bytes[i] = 1;
    out = make_output(n_bytes, 40000);
    for (int n_pieces = 0; n_pieces < 4; n_pieces++) {
        int n_left = n_pieces;

        CHECK_FAILS(dcpk_metadata_write(out, take_some, &n_left, &err), DCPK_EIO, "no space",
                    "the error is that of put");
        CHECK_EQ_INT(n_left, -1, "the piece after those was tried");
        dcpk_error_clear(&err);
    }
    dcpk_output_free(out);
}

/* More than one batch of chunks, of a size whose items torch and we measure in unit test_item. */
static void reads_what_it_writes(void **state)
{
    static int64_t n_bytes[2500];
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_bytes bytes = {.data = NULL}, again = {.data = NULL};
    struct dcpk_store *store = NULL;
    struct dcpk_checkpoint *ckpt = NULL;
    struct dcpk_output *out;
    uint8_t *zeros;

    (void)state;
    for (size_t i = 0; i < 2500; i++)
        n_bytes[i] = 1 + (int64_t)(i % 7);
    out = make_output(n_bytes, 2500);
    CHECK_OK(dcpk_metadata_write(out, collect, &bytes, &err), "write");
    CHECK_OK(dcpk_metadata_write(out, collect, &again, &err), "write");
    CHECK(bytes.n_bytes == again.n_bytes && memcmp(bytes.data, again.data, again.n_bytes) == 0,
          "deterministic");
    zeros = calloc(1, (size_t)out->files[0].n_bytes);
    CHECK(zeros != NULL && out->n_files == 1, "one file");
    CHECK_OK(dcpk_store_new_memory("memory", &store, &err), "store");
    CHECK_OK(dcpk_store_add_memory(store, out->files[0].name, zeros, (size_t)out->files[0].n_bytes,
                                   &err),
             "store");
    CHECK_OK(dcpk_store_add_memory(store, ".metadata", bytes.data, bytes.n_bytes, &err), "store");
    CHECK_OK(dcpk_checkpoint_open(store, formats, NULL, &ckpt, &err), "open");
    CHECK_OK(dcpk_checkpoint_check_cover(ckpt, &err), "cover");
    CHECK_EQ_INT(ckpt->n_tensors, 2, "tensors");
    CHECK_EQ_INT(ckpt->n_objects, 2, "objects");
    check_places(ckpt, out, "layer.weight");
    check_places(ckpt, out, "layer.weight.alias");
    CHECK_EQ_INT(dcpk_checkpoint_object(ckpt, "obj.alias")->place.n_bytes, out->payloads[0].n_bytes,
                 "object");
    CHECK_EQ_STR(((struct dcpk_dcp_info *)ckpt->state)->torch_generation, "2.9+", "generation");
    CHECK(((struct dcpk_dcp_info *)ckpt->state)->has_planner_data, "planner_data");
    dcpk_checkpoint_close(ckpt);
    free(zeros);
    dcpk_bytes_release(&bytes);
    dcpk_bytes_release(&again);
    dcpk_output_free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_every_generation),
        cmocka_unit_test(refuses_metadata_that_lies),
        cmocka_unit_test(reads_objects_that_are_shared),
        cmocka_unit_test(notes_what_it_leaves_out),
        cmocka_unit_test(lays_out_files),
        cmocka_unit_test(spreads_over_files),
        cmocka_unit_test(reads_what_it_writes),
        cmocka_unit_test(writes_in_pieces),
    };

    return cmocka_run_group_tests(tests, load_sample, NULL);
}

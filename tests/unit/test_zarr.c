/* SPDX-License-Identifier: Apache-2.0 */
/* test_zarr.c - zarr folders in memory: grids, edges, left-out and compressed chunks, damage. */
#include <stdio.h>
#include <stdlib.h>
#include <zlib.h>

#include "formats/formats.h"
#include "formats/zarr/zarr_array.h"
#include "kernels/kernels.h"
#include "lib/base/alloc.h"
#include "lib/base/digest.h"
#include "lib/exec/exec.h"
#include "tests/check.h"

static struct dcpk_store *new_store(void)
{
    static const char json[] = "{\"sharded_backend\": \"zarr\", \"sharded_backend_version\": 1}";
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_store *store = NULL;

    CHECK_OK(dcpk_store_new_memory("memory", &store, &err), "store");
    CHECK_OK(dcpk_store_add_memory(store, "metadata.json", json, sizeof json - 1, &err), "json");
    return store;
}

static void put(struct dcpk_store *store, const char *name, const void *data, size_t n)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    CHECK_OK(dcpk_store_add_memory(store, name, data, n, &err), name);
}

/* "<key>/.zarray" of little-endian 4-byte integers; `more`: further fields, ",\"x\": 1". */
static void put_array(struct dcpk_store *store, const char *key, const char *shape,
                      const char *chunks, const char *more)
{
    char name[64], text[512];

    snprintf(name, sizeof name, "%s/.zarray", key);
    snprintf(text, sizeof text,
             "{\"zarr_format\": 2, \"order\": \"C\", \"dtype\": \"<i4\", \"shape\": %s, "
             "\"chunks\": %s%s}",
             shape, chunks, more);
    put(store, name, text, strlen(text));
}

static struct dcpk_checkpoint *open_store(struct dcpk_store *store)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_checkpoint *ckpt = NULL;

    CHECK_OK(dcpk_checkpoint_open(store, dcpk_formats, NULL, &ckpt, &err), "open");
    CHECK_EQ_STR(ckpt->format->name, "zarr", "probe");
    return ckpt;
}

/* Hash two tensors of a checkpoint at once. */
static dcpk_status hash_two(struct dcpk_checkpoint *ckpt, const char *a, const char *b,
                            struct dcpk_hash hash[2], struct dcpk_error *hash_err)
{
    const struct dcpk_env env = {
        .kernels = dcpk_host_kernel_sets[0], .n_threads = 2, .memory_bytes = 16 << 20};
    const char *const keys[2] = {a, b};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_exec *exec = NULL;
    struct dcpk_view views[2];
    dcpk_status st;

    for (size_t i = 0; i < 2; i++) {
        const struct dcpk_tensor *t = dcpk_checkpoint_tensor(ckpt, keys[i]);

        CHECK(t != NULL, keys[i]);
        CHECK_OK(dcpk_view_stored(ckpt, (uint32_t)(t - ckpt->tensors), arena, &views[i], &err),
                 keys[i]);
    }
    CHECK_OK(dcpk_exec_new(ckpt, &env, &exec, &err), a);
    st = dcpk_exec_hash(exec, views, 2, hash, NULL, hash_err);
    dcpk_exec_free(exec);
    dcpk_arena_free(arena);
    return st;
}

static void check_same(struct dcpk_checkpoint *ckpt, const char *a, const char *b)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_hash hash[2];

    CHECK_OK(hash_two(ckpt, a, b, hash, &err), a);
    CHECK(memcmp(&hash[0], &hash[1], sizeof hash[0]) == 0, a);
}

/* Element (r, c) of the 5 x 3 array is 10 r + c; what lies outside it in a chunk is -1. */
static void put_cell(struct dcpk_store *store, const char *key, char separator, int row, int column)
{
    int32_t cell[2][2];
    char name[64];

    for (int r = 0; r < 2; r++)
        for (int c = 0; c < 2; c++) {
            const bool inside = 2 * row + r < 5 && 2 * column + c < 3;

            cell[r][c] = inside ? 10 * (2 * row + r) + 2 * column + c : -1;
        }
    snprintf(name, sizeof name, "%s/%d%c%d", key, row, separator, column);
    put(store, name, cell, sizeof cell);
}

static void edges_are_cut(void **state)
{
    static const int32_t whole[] = {0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32, 40, 41, 42};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_store *store = new_store();
    struct dcpk_checkpoint *ckpt;
    const struct dcpk_tensor *t;

    (void)state;
    put_array(store, "cells", "[5, 3]", "[2, 2]", "");
    put_array(store, "folders", "[5, 3]", "[2, 2]", ", \"dimension_separator\": \"/\"");
    for (int row = 0; row < 3; row++)
        for (int column = 0; column < 2; column++) {
            put_cell(store, "cells", '.', row, column);
            put_cell(store, "folders", '/', row, column);
        }
    put_array(store, "whole", "[5, 3]", "[5, 3]", "");
    put(store, "whole/0.0", whole, sizeof whole);
    put(store, "whole.sync/.zarray", "", 0);
    put(store, "whole.sync/0.0", "", 0);
    put_array(store, "scalar", "[]", "[]", "");
    put(store, "scalar/0", "\x02\0\0", 4);
    put_array(store, "empty", "[0, 3]", "[1, 3]", "");

    ckpt = open_store(store);
    CHECK_EQ_INT(ckpt->n_tensors, 5, "tensors");
    CHECK_OK(dcpk_checkpoint_check_cover(ckpt, &err), "cover");
    t = dcpk_checkpoint_tensor(ckpt, "cells");
    CHECK_EQ_INT(t->n_chunks, 6, "chunks");
    CHECK_EQ_INT(ckpt->chunks[t->first_chunk + 5].span[3], 1, "the last chunk's columns");
    check_same(ckpt, "cells", "whole");
    check_same(ckpt, "folders", "whole");
    CHECK_EQ_INT(dcpk_checkpoint_tensor(ckpt, "scalar")->n_chunks, 1, "scalar");
    CHECK_EQ_INT(dcpk_checkpoint_tensor(ckpt, "empty")->n_chunks, 0, "empty");
    CHECK(ckpt->notes == NULL, "no notes");
    dcpk_checkpoint_close(ckpt);
}

static void left_out_chunks_are_zero(void **state)
{
    static const int32_t some[] = {7, 8}, all[] = {0, 0, 7, 8, 0, 0};
    struct dcpk_store *store = new_store();
    struct dcpk_checkpoint *ckpt;

    (void)state;
    put_array(store, "sparse", "[6]", "[2]", ", \"fill_value\": 0");
    put(store, "sparse/1", some, sizeof some);
    put(store, "sparse/3", some, sizeof some); /* beside the grid */
    put_array(store, "full", "[6]", "[6]", "");
    put(store, "full/0", all, sizeof all);
    ckpt = open_store(store);
    check_same(ckpt, "sparse", "full");
    CHECK(ckpt->notes != NULL && ckpt->notes->next != NULL, "notes");
    CHECK(strstr(ckpt->notes->text, "2 chunks are left out") != NULL, ckpt->notes->text);
    CHECK(strstr(ckpt->notes->next->text, "1 files are not chunks") != NULL,
          ckpt->notes->next->text);
    dcpk_checkpoint_close(ckpt);
}

/* Two arrays of 40000 chunks that are left out: with so many files of a third they may be. */
static const struct {
    const char *label;
    int n_files;
    dcpk_status status;
} left_out[] = {
    {"too many for what is there", 7000, DCPK_ERANGE},
    {"as moments beside masters", 7232, DCPK_OK},
};

static void chunks_of_all_arrays_count(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_store *store = new_store();
        struct dcpk_checkpoint *ckpt = NULL;
        char text[32];

        put_array(store, "a", "[40000]", "[1]", ", \"fill_value\": 0");
        put_array(store, "b", "[40000]", "[1]", ", \"fill_value\": 0");
        snprintf(text, sizeof text, "[%d]", left_out[i].n_files);
        put_array(store, "c", text, "[1]", "");
        for (int n = 0; n < left_out[i].n_files; n++) {
            snprintf(text, sizeof text, "c/%d", n);
            put(store, text, "abc", 4);
        }
        if (left_out[i].status == DCPK_OK)
            dcpk_checkpoint_close(open_store(store));
        else
            CHECK_FAILS(dcpk_checkpoint_open(store, dcpk_formats, NULL, &ckpt, &err),
                        left_out[i].status, "missing in all arrays together", left_out[i].label);
    }
}

/* (numpy.arange(128, dtype='<f4') % 4).tobytes(), encoded by numcodecs 0.15.1. */
static const struct {
    const char *label, *id, *hex;
} encoded[] = {
    {"zlib", "zlib", "780163600081067b20e10044400c02a37c6020388c84f000008ca12fe1"},
    {"gzip", "gzip",
     "1f8b080010f3006b04ff63600081067b20e10044400c02a37c6020388c84f000009b307e1d00020000"},
    {"zstd", "zstd", "28b52ffd600001c50000680000803f0000004000004040000300e7331500e2038005"},
    {"blosc lz4", "blosc",
     "02012101000200000002000035000000140000001d00000011000100b1803f00000040000040400011000f1000ff"
     "d3504000004040"},
    {"blosc zstd, bits shuffled", "blosc",
     "02019401000200000002000033000000140000001b00000028b52ffd6000018d000030800000c8400003400203d2"
     "80b497ea02"},
    {"blosc zlib, not shuffled", "blosc",
     "020160010002000000020000300000001400000018000000785e63600081067b20e100440e0ca3fc11c507008ca1"
     "2fe1"},
};
#define N_ENCODED (sizeof encoded / sizeof *encoded)

static size_t unhex(const char *hex, uint8_t out[256])
{
    const size_t n = strlen(hex) / 2;
    unsigned byte;

    for (size_t i = 0; i < n; i++) {
        CHECK(sscanf(hex + 2 * i, "%2x", &byte) == 1, hex);
        out[i] = (uint8_t)byte;
    }
    return n;
}

static void every_codec(void **state)
{
    struct dcpk_store *store = new_store();
    struct dcpk_checkpoint *ckpt;
    float plain[128];
    uint8_t data[256];
    char key[16], name[32], codec[64];

    (void)state;
    for (int i = 0; i < 128; i++)
        plain[i] = (float)(i % 4);
    put_array(store, "plain", "[128]", "[128]", "");
    put(store, "plain/0", plain, sizeof plain);
    for (size_t i = 0; i < N_ENCODED; i++) {
        if (dcpk_zarr_codec_find(encoded[i].id) == NULL)
            continue;
        snprintf(key, sizeof key, "e%zu", i);
        snprintf(name, sizeof name, "%s/0", key);
        snprintf(codec, sizeof codec, ", \"compressor\": {\"id\": \"%s\"}", encoded[i].id);
        put_array(store, key, "[128]", "[128]", codec);
        put(store, name, data, unhex(encoded[i].hex, data));
    }
    ckpt = open_store(store);
    for (size_t i = 0; i < N_ENCODED; i++) {
        snprintf(key, sizeof key, "e%zu", i);
        if (dcpk_zarr_codec_find(encoded[i].id) != NULL)
            check_same(ckpt, key, "plain");
    }
    dcpk_checkpoint_close(ckpt);
}

/* Each byte flipped, each length cut: an error or other elements, never a crash. */
static void damaged_codecs(void **state)
{
    uint8_t data[256], *out = malloc(512), *exact;

    (void)state;
    CHECK(out != NULL, "memory");
    for (size_t i = 0; i < N_ENCODED; i++) {
        const struct dcpk_zarr_codec *codec = dcpk_zarr_codec_find(encoded[i].id);
        const size_t n = unhex(encoded[i].hex, data);

        if (codec == NULL)
            continue;
        for (size_t at = 0; at < n; at++) {
            struct dcpk_error err = DCPK_ERROR_INIT;

            exact = malloc(at + 1);
            CHECK(exact != NULL, "memory");
            memcpy(exact, data, at);
            CHECK(codec->decode(exact, at, out, 512, &err) != DCPK_OK, encoded[i].label);
            free(exact);
            data[at] ^= 0x55;
            (void)codec->decode(data, n, out, 512, &err);
            data[at] ^= 0x55;
            CHECK(codec->decode(data, n, out, 511, &err) == DCPK_EFORMAT, encoded[i].label);
        }
    }
    free(out);
}

#define MIB_ELEMS (1 << 18)

/* Three arrays of 8 chunks of 1 MiB each, read at once through 8 MiB for what is decoded. */
static void more_than_fits(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_store *store = new_store();
    struct dcpk_checkpoint *ckpt;
    int32_t *plain = calloc(9 * MIB_ELEMS, sizeof *plain);
    uLong n_max = compressBound(9 * MIB_ELEMS * sizeof *plain), n;
    uint8_t *small = malloc(n_max);
    struct dcpk_hash hash[2];
    char name[32];

    (void)state;
    CHECK(plain != NULL && small != NULL, "memory");
    for (int i = 0; i < 8 * MIB_ELEMS; i++)
        plain[i] = i / 3;
    put_array(store, "plain", "[8, 262144]", "[8, 262144]", "");
    put(store, "plain/0.0", plain, 8 * MIB_ELEMS * sizeof *plain);
    for (int k = 0; k < 3; k++) {
        snprintf(name, sizeof name, "k%d", k);
        put_array(store, name, "[8, 262144]", "[1, 262144]",
                  ", \"compressor\": {\"id\": \"zlib\"}");
        for (int c = 0; c < 8; c++) {
            n = n_max;
            CHECK_EQ_INT(compress2(small, &n, (const uint8_t *)(plain + c * MIB_ELEMS),
                                   MIB_ELEMS * sizeof *plain, 1),
                         Z_OK, "compress");
            snprintf(name, sizeof name, "k%d/%d.0", k, c);
            put(store, name, small, n);
        }
    }
    memset(plain, 0, 9 * MIB_ELEMS * sizeof *plain);
    n = n_max;
    CHECK_EQ_INT(compress2(small, &n, (const uint8_t *)plain, 9 * MIB_ELEMS * sizeof *plain, 9),
                 Z_OK, "compress");
    put_array(store, "large", "[9, 262144]", "[9, 262144]", ", \"compressor\": {\"id\": \"zlib\"}");
    put(store, "large/0.0", small, n);
    ckpt = open_store(store);
    check_same(ckpt, "k0", "plain");
    CHECK_OK(hash_two(ckpt, "k1", "k2", hash, &err), "both");
    CHECK(memcmp(&hash[0], &hash[1], sizeof hash[0]) == 0, "both");
    CHECK_FAILS(hash_two(ckpt, "large", "plain", hash, &err), DCPK_ERANGE,
                "half of the memory limit", "large");
    dcpk_checkpoint_close(ckpt);
    free(plain);
    free(small);
}

static const struct {
    const char *label, *more; /* fields of an array [4] in chunks [2] */
    const char *chunk;        /* the content of "a/1"; NULL: none. "a/0" is 8 zero bytes */
    size_t n_bytes;
    dcpk_status status;
    const char *message;
} damage[] = {
    {"missing", "", NULL, 0, DCPK_EFORMAT, "'a/1' is missing"},
    {"missing, other fill", ", \"fill_value\": 5", NULL, 0, DCPK_EUNSUPPORTED, "not 0"},
    {"short", "", "1234567", 7, DCPK_EFORMAT, "7 bytes, a chunk has 8"},
    {"empty", ", \"fill_value\": 0", "", 0, DCPK_EFORMAT, "0 bytes"},
    {"cut to the edge", "", "1234", 4, DCPK_EFORMAT, "at the edge too"},
};

static void damage_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof damage / sizeof *damage; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_store *store = new_store();
        struct dcpk_checkpoint *ckpt = NULL;

        put_array(store, "a", "[4]", "[2]", damage[i].more);
        put(store, "a/0", "\0\0\0\0\0\0\0", 8);
        if (damage[i].chunk != NULL)
            put(store, "a/1", damage[i].chunk, damage[i].n_bytes);
        CHECK_FAILS(dcpk_checkpoint_open(store, dcpk_formats, NULL, &ckpt, &err), damage[i].status,
                    damage[i].message, damage[i].label);
    }
}

static void compressed_damage_is_named(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_store *store = new_store();
    struct dcpk_checkpoint *ckpt;
    struct dcpk_hash hash[2];

    (void)state;
    put_array(store, "a", "[2]", "[2]", ", \"compressor\": {\"id\": \"zlib\"}");
    put(store, "a/0", "nothing like it", 15);
    ckpt = open_store(store);
    CHECK_FAILS(hash_two(ckpt, "a", "a", hash, &err), DCPK_EFORMAT, "decoding 'a/0' (zlib)",
                "no stream");
    dcpk_checkpoint_close(ckpt);

    store = new_store();
    dcpk_error_clear(&err);
    CHECK_FAILS(dcpk_checkpoint_open(store, dcpk_formats, NULL, &ckpt, &err), DCPK_EFORMAT,
                "no arrays", "an empty folder");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(edges_are_cut),
        cmocka_unit_test(left_out_chunks_are_zero),
        cmocka_unit_test(chunks_of_all_arrays_count),
        cmocka_unit_test(every_codec),
        cmocka_unit_test(damaged_codecs),
        cmocka_unit_test(more_than_fits),
        cmocka_unit_test(damage_is_named),
        cmocka_unit_test(compressed_damage_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

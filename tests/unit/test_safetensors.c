/* SPDX-License-Identifier: Apache-2.0 */
/* test_safetensors.c - headers that readers take and refuse, and indexes that lie. */
#include <stdio.h>
#include <stdlib.h>

#include "formats/formats.h"
#include "formats/safetensors/safetensors_header.h"
#include "lib/base/order.h"
#include "lib/ckpt/format.h"
#include "tests/check.h"

#define U8(shape, first, end)                                                                      \
    "{\"dtype\": \"U8\", \"shape\": " shape ", \"data_offsets\": [" #first ", " #end "]}"

/* status DCPK_OK: it is taken, and has n tensors; else: the message holds `says`. */
static const struct {
    const char *label, *header;
    uint64_t data_bytes;
    dcpk_status status;
    size_t n;
    const char *says;
} headers[] = {
    {.label = "no tensors", .header = "{}"},
    {.label = "spaces behind", .header = "{}    "},
    {.label = "one", .header = "{\"a\": " U8("[2, 3]", 0, 6) "}", .data_bytes = 6, .n = 1},
    {.label = "any order",
     .header = "{\"b\": " U8("[1]", 6, 7) ", \"a\": " U8("[6]", 0, 6) "}",
     .data_bytes = 7,
     .n = 2},
    {.label = "without axes", .header = "{\"a\": " U8("[]", 0, 1) "}", .data_bytes = 1, .n = 1},
    {.label = "without elements",
     .header = "{\"e\": " U8("[0, 9]", 1, 1) ", \"a\": " U8("[1]", 0, 1) "}",
     .data_bytes = 1,
     .n = 2},
    {.label = "metadata",
     .header = "{\"__metadata__\": {\"format\": \"pt\"}, \"a\": " U8("[1]", 0, 1) "}",
     .data_bytes = 1,
     .n = 1},
    {.label = "nothing", .header = "", .status = DCPK_EFORMAT, .says = "does not begin with '{'"},
    {.label = "space in front",
     .header = " {}",
     .status = DCPK_EFORMAT,
     .says = "does not begin with '{'"},
    {.label = "more behind", .header = "{} {}", .status = DCPK_EFORMAT, .says = "JSON"},
    {.label = "metadata of numbers",
     .header = "{\"__metadata__\": {\"format\": 1}}",
     .status = DCPK_EFORMAT,
     .says = "'format' is not a string"},
    {.label = "a tensor that is a number",
     .header = "{\"a\": 1}",
     .status = DCPK_EFORMAT,
     .says = "tensor 'a': not an object"},
    {.label = "twice",
     .header = "{\"a\": " U8("[1]", 0, 1) ", \"a\": " U8("[1]", 1, 2) "}",
     .data_bytes = 2,
     .status = DCPK_EFORMAT,
     .says = "'a' twice"},
    {.label = "shared bytes",
     .header = "{\"a\": " U8("[4]", 0, 4) ", \"b\": " U8("[4]", 2, 6) "}",
     .data_bytes = 6,
     .status = DCPK_EFORMAT,
     .says = "'a' and 'b' share bytes"},
    {.label = "a gap",
     .header = "{\"a\": " U8("[1]", 0, 1) ", \"b\": " U8("[1]", 3, 4) "}",
     .data_bytes = 4,
     .status = DCPK_EFORMAT,
     .says = "2 bytes before tensor 'b' belong to no tensor"},
    {.label = "bytes behind",
     .header = "{\"a\": " U8("[1]", 0, 1) "}",
     .data_bytes = 3,
     .status = DCPK_EFORMAT,
     .says = "last 2 bytes belong to no tensor"},
    {.label = "cut short",
     .header = "{\"a\": " U8("[8]", 0, 8) "}",
     .data_bytes = 7,
     .status = DCPK_EFORMAT,
     .says = "truncated"},
    {.label = "fewer bytes than elements",
     .header = "{\"a\": " U8("[8]", 0, 7) "}",
     .data_bytes = 7,
     .status = DCPK_EFORMAT,
     .says = "give it 7 bytes, its shape and dtype 8"},
    {.label = "end before first",
     .header = "{\"a\": " U8("[1]", 1, 0) "}",
     .data_bytes = 1,
     .status = DCPK_EFORMAT,
     .says = "not a first byte and an end"},
    {.label = "a negative extent",
     .header = "{\"a\": " U8("[-1]", 0, 1) "}",
     .data_bytes = 1,
     .status = DCPK_EFORMAT,
     .says = "\"shape\"[0] is not a whole number"},
    {.label = "an extent that is not whole",
     .header = "{\"a\": " U8("[1.5]", 0, 1) "}",
     .data_bytes = 1,
     .status = DCPK_EFORMAT,
     .says = "\"shape\"[0] is not a whole number"},
    {.label = "more elements than 2^63",
     .header = "{\"a\": " U8("[4294967296, 4294967296]", 0, 0) "}",
     .status = DCPK_ERANGE,
     .says = "tensor 'a'"},
    {.label = "a dtype that is none",
     .header = "{\"a\": {\"dtype\": \"F31\", \"shape\": [1], \"data_offsets\": [0, 4]}}",
     .data_bytes = 4,
     .status = DCPK_EUNSUPPORTED,
     .says = "dtype \"F31\""},
    {.label = "less than a byte",
     .header = "{\"a\": {\"dtype\": \"F4\", \"shape\": [2], \"data_offsets\": [0, 1]}}",
     .data_bytes = 1,
     .status = DCPK_EUNSUPPORTED,
     .says = "dtype \"F4\""},
    {.label = "seventeen axes",
     .header = "{\"a\": " U8("[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", 0, 1) "}",
     .data_bytes = 1,
     .status = DCPK_EUNSUPPORTED,
     .says = "more than 16"},
};

static void test_headers(void **state)
{
    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(headers); i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_safetensors_header header = {0};
        struct dcpk_arena *arena = dcpk_arena_new();
        const dcpk_status st = dcpk_safetensors_parse(headers[i].header, strlen(headers[i].header),
                                                      headers[i].data_bytes, arena, &header, &err);

        CHECK_EQ_INT(st, headers[i].status, headers[i].label);
        CHECK_EQ_INT(header.n_entries, headers[i].n, headers[i].label);
        if (headers[i].says != NULL)
            CHECK(strstr(err.text, headers[i].says) != NULL, headers[i].label);
        dcpk_arena_free(arena);
    }
}

/* ---- folders ---- */

/* A file of one tensor `key` of four bytes. */
static void put_file(struct dcpk_store *store, const char *name, const char *key)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    uint8_t file[256] = {0};
    const int n =
        snprintf((char *)file + 8, sizeof file - 12, "{\"%s\": " U8("[4]", 0, 4) "}", key);

    file[0] = (uint8_t)n;
    CHECK_OK(dcpk_store_add_memory(store, name, file, (size_t)n + 12, &err), name);
}

static const struct {
    const char *label;
    const char *index; /* NULL: there is none */
    dcpk_status status;
    size_t n_tensors;
    const char *says;
    const char *single; /* the tensor of model.safetensors; NULL: there is none */
} folders[] = {
    {.label = "no index", .n_tensors = 2},
    {.label = "both",
     .index = "{\"weight_map\": {\"a\": \"1.safetensors\", \"b\": \"2.safetensors\"}}",
     .n_tensors = 2},
    {.label = "one of them alone",
     .index = "{\"weight_map\": {\"b\": \"2.safetensors\"}}",
     .n_tensors = 1},
    {.label = "no map", .index = "{}", .status = DCPK_EFORMAT, .says = "no \"weight_map\""},
    {.label = "a missing file",
     .index = "{\"weight_map\": {\"a\": \"3.safetensors\"}}",
     .status = DCPK_EIO,
     .says = "3.safetensors"},
    {.label = "another folder's file",
     .index = "{\"weight_map\": {\"a\": \"../1.safetensors\"}}",
     .status = DCPK_EFORMAT,
     .says = "not the name of a safetensors file"},
    {.label = "a number for a file",
     .index = "{\"weight_map\": {\"a\": 1}}",
     .status = DCPK_EFORMAT,
     .says = "'a' names no file"},
    {.label = "the wrong file",
     .index = "{\"weight_map\": {\"a\": \"2.safetensors\", \"b\": \"1.safetensors\"}}",
     .status = DCPK_EFORMAT,
     .says = "'a' is not in '2.safetensors', but in '1.safetensors'"},
    {.label = "a tensor that is not there",
     .index = "{\"weight_map\": {\"a\": \"1.safetensors\", \"c\": \"1.safetensors\"}}",
     .status = DCPK_EFORMAT,
     .says = "'c' is not in '1.safetensors'"},
    {.label = "a tensor that is not named",
     .index = "{\"weight_map\": {\"a\": \"1.safetensors\", \"b2\": \"3.safetensors\"}}",
     .status = DCPK_EIO,
     .says = "3.safetensors"},
    /* transformers 5.23, _get_resolved_checkpoint_files: the single file, whatever the index */
    {.label = "an index of other files",
     .index = "{\"weight_map\": {\"a\": \"1.safetensors\"}}",
     .single = "a",
     .status = DCPK_EUNSUPPORTED,
     .says = "'model.safetensors' and 'model.safetensors.index.json' of other files"},
    {.label = "an index of the file and others",
     .index = "{\"weight_map\": {\"a\": \"1.safetensors\", \"c\": \"model.safetensors\"}}",
     .single = "c",
     .status = DCPK_EUNSUPPORTED,
     .says = "of other files"},
    {.label = "an index of the file",
     .index = "{\"weight_map\": {\"c\": \"model.safetensors\"}}",
     .single = "c",
     .n_tensors = 1},
};

static void test_folders(void **state)
{
    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(folders); i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_store *store = NULL;
        struct dcpk_checkpoint *ckpt = NULL;

        CHECK_OK(dcpk_store_new_memory("memory", &store, &err), folders[i].label);
        put_file(store, "1.safetensors", "a");
        put_file(store, "2.safetensors", "b");
        if (folders[i].single != NULL)
            put_file(store, "model.safetensors", folders[i].single);
        if (folders[i].index != NULL)
            CHECK_OK(dcpk_store_add_memory(store, "model.safetensors.index.json", folders[i].index,
                                           strlen(folders[i].index), &err),
                     folders[i].label);
        CHECK_EQ_INT(dcpk_checkpoint_open(store, dcpk_formats, NULL, &ckpt, &err),
                     folders[i].status, folders[i].label);
        if (folders[i].says != NULL)
            CHECK(strstr(err.text, folders[i].says) != NULL, folders[i].label);
        if (ckpt != NULL)
            CHECK_EQ_INT(ckpt->n_tensors, folders[i].n_tensors, folders[i].label);
        dcpk_checkpoint_close(ckpt);
    }
}

/* Without an index every file counts: one name in two of them. */
static void test_named_twice(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_store *store = NULL;
    struct dcpk_checkpoint *ckpt = NULL;

    (void)state;
    CHECK_OK(dcpk_store_new_memory("memory", &store, &err), "store");
    put_file(store, "1.safetensors", "a");
    put_file(store, "2.safetensors", "a");
    CHECK_FAILS(dcpk_checkpoint_open(store, dcpk_formats, NULL, &ckpt, &err), DCPK_EFORMAT, "'a'",
                "twice");
    CHECK(strstr(err.text, "twice") != NULL, err.text);
}

/* A file with a tensor that its index does not name. */
static void test_unnamed(void **state)
{
    static const char index[] = "{\"weight_map\": {\"a\": \"1.safetensors\"}}";
    static const char file[] =
        "\x78\0\0\0\0\0\0\0{\"a\": " U8("[1]", 0, 1) ", \"b\": " U8("[1]", 1, 2) "}xy";
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_store *store = NULL;
    struct dcpk_checkpoint *ckpt = NULL;

    (void)state;
    CHECK_OK(dcpk_store_new_memory("memory", &store, &err), "store");
    CHECK_OK(dcpk_store_add_memory(store, "1.safetensors", file, sizeof file - 1, &err), "file");
    CHECK_OK(
        dcpk_store_add_memory(store, "model.safetensors.index.json", index, sizeof index - 1, &err),
        "index");
    CHECK_EQ_INT(dcpk_checkpoint_open(store, dcpk_formats, NULL, &ckpt, &err), DCPK_EFORMAT,
                 err.text);
    CHECK(strstr(err.text, "does not name tensor 'b'") != NULL, err.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_folders),
        cmocka_unit_test(test_named_twice),
        cmocka_unit_test(test_unnamed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* item_bytes.h - for the tests of items: tensors' pickles with numbers of choice, and archives. */
#ifndef DCPK_TESTS_UNIT_ITEM_BYTES_H
#define DCPK_TESTS_UNIT_ITEM_BYTES_H

#include <libdeflate.h>

#include "formats/torch/item.h"
#include "lib/base/cursor.h"
#include "tests/check.h"

#define V2 "_rebuild_tensor_v2"
#define V3 "_rebuild_tensor_v3"
/* A storage of floats, and all of six of them. */
#define FLOATS .call = V2, .module = "torch", .storage = "FloatStorage", .key = "0"
#define SIX    .numel = 6, .rank = 1, .shape = {6}, .strides = {1}, .data_bytes = 24

/* A tensor's pickle with numbers of choice, in the opcodes of protocol 2. */
struct tensor_case {
    const char *label, *call, *module, *storage, *key;
    int64_t numel, offset;
    int rank;
    int64_t shape[3], strides[3];
    size_t data_bytes;
    dcpk_status status;
    const char *text;   /* of the error; NULL: accepted */
    size_t first_bytes; /* of the first element in the data, when accepted */
};

static inline void put_text(struct dcpk_bytes *b, const char *text)
{
    dcpk_bytes_u8(b, 'X');
    dcpk_bytes_u32(b, (uint32_t)strlen(text));
    dcpk_bytes_text(b, text);
}

static inline void put_int(struct dcpk_bytes *b, int64_t v)
{
    dcpk_bytes_u8(b, 0x8a);
    dcpk_bytes_u8(b, 8);
    dcpk_bytes_u64(b, (uint64_t)v);
}

static inline void put_ints(struct dcpk_bytes *b, const int64_t *numbers, int n)
{
    dcpk_bytes_u8(b, '(');
    for (int i = 0; i < n; i++)
        put_int(b, i < 3 ? numbers[i] : 1);
    dcpk_bytes_u8(b, 't');
}

/* The call of a tensor up to its flags: four arguments. */
static inline void put_call(struct dcpk_bytes *b, const struct tensor_case *c)
{
    dcpk_bytes_printf(b, "ctorch._utils\n%s\n((", c->call);
    put_text(b, "storage");
    dcpk_bytes_printf(b, "c%s\n%s\n", c->module, c->storage);
    put_text(b, c->key);
    put_text(b, "cuda:0");
    put_int(b, c->numel);
    dcpk_bytes_text(b, "tQ");
    put_int(b, c->offset);
    put_ints(b, c->shape, c->rank);
    put_ints(b, c->strides, c->rank);
}

static inline void put_tensor(struct dcpk_bytes *b, const struct tensor_case *c)
{
    put_call(b, c);
    dcpk_bytes_text(b, "\x89"
                       "ccollections\nOrderedDict\n)R");
    if (strcmp(c->storage, "UntypedStorage") == 0)
        dcpk_bytes_text(b, "ctorch\nfloat8_e5m2\n");
    dcpk_bytes_text(b, "tR");
}

/*
 * The smallest archive that every torch reads (formats/torch/FORMAT.md 2.2): no descriptors, no
 * padding, no zip64 records.
 */
static inline void put_record(struct dcpk_bytes *b, struct dcpk_bytes *directory, const char *name,
                              const void *data, size_t n)
{
    const uint32_t crc32 = libdeflate_crc32(0, data, n), at = (uint32_t)b->n_bytes;
    const size_t n_name = strlen(name);

    dcpk_bytes_put(b, "PK\3\4\0\0\0\0\0\0\0\0\0\0", 14);
    dcpk_bytes_u32(b, crc32);
    dcpk_bytes_u32(b, (uint32_t)n);
    dcpk_bytes_u32(b, (uint32_t)n);
    dcpk_bytes_u32(b, (uint32_t)n_name);
    dcpk_bytes_text(b, name);
    dcpk_bytes_put(b, data, n);
    dcpk_bytes_put(directory, "PK\1\2\0\0\0\0\0\0\0\0\0\0\0\0", 16);
    dcpk_bytes_u32(directory, crc32);
    dcpk_bytes_u32(directory, (uint32_t)n);
    dcpk_bytes_u32(directory, (uint32_t)n);
    dcpk_bytes_u16(directory, (uint16_t)n_name);
    dcpk_bytes_zeros(directory, 12);
    dcpk_bytes_u32(directory, at);
    dcpk_bytes_text(directory, name);
}

/* With a record `name`, "a/byteorder" say, that holds `text`; NULL: without. */
static inline void put_archive(struct dcpk_bytes *b, const struct dcpk_bytes *pickle, size_t n_data,
                               const char *name, const char *text)
{
    static const uint8_t counting[64] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11,
                                         12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23};
    struct dcpk_bytes directory = {.data = NULL};
    size_t at;
    uint16_t n_records = 3;

    put_record(b, &directory, "a/data.pkl", pickle->data, pickle->n_bytes);
    put_record(b, &directory, "a/data/0", counting, n_data);
    if (text != NULL)
        put_record(b, &directory, name, text, strlen(text));
    n_records = (uint16_t)(n_records + (text != NULL));
    put_record(b, &directory, "a/version", "3", 1);
    at = b->n_bytes;
    dcpk_bytes_put(b, directory.data, directory.n_bytes);
    dcpk_bytes_put(b, "PK\5\6\0\0\0\0", 8);
    dcpk_bytes_u16(b, n_records);
    dcpk_bytes_u16(b, n_records);
    dcpk_bytes_u32(b, (uint32_t)directory.n_bytes);
    dcpk_bytes_u32(b, (uint32_t)at);
    dcpk_bytes_u16(b, 0);
    dcpk_bytes_release(&directory);
}

/* An item under test: its pickle is put first. */
struct item {
    struct dcpk_bytes pickle, archive;
    struct dcpk_arena *arena;
    struct dcpk_store *store;
    struct dcpk_item_range range; /* all of the archive */
};

/* Opens the bytes of item->archive. */
static inline void item_open(struct item *item)
{
    struct dcpk_error err = DCPK_ERROR_INIT;

    item->arena = dcpk_arena_new();
    CHECK_OK(dcpk_store_new_memory("memory", &item->store, &err), "store");
    CHECK_OK(
        dcpk_store_add_memory(item->store, "item", item->archive.data, item->archive.n_bytes, &err),
        "store");
    CHECK_OK(dcpk_store_find(item->store, "item", &item->range.source, &err), "store");
    item->range.n_bytes = item->archive.n_bytes;
}

/* Packs item->pickle with n_data bytes of data and opens that. byteorder: NULL: without a record.
 */
static inline void item_pack(struct item *item, size_t n_data, const char *byteorder)
{
    put_archive(&item->archive, &item->pickle, n_data, "a/byteorder", byteorder);
    item_open(item);
}

static inline void item_close(struct item *item)
{
    dcpk_store_close(item->store);
    dcpk_arena_free(item->arena);
    dcpk_bytes_release(&item->pickle);
    dcpk_bytes_release(&item->archive);
    *item = (struct item){.arena = NULL};
}

static inline dcpk_status item_value(struct item *item, const struct dcpk_value **value,
                                     struct dcpk_error *err)
{
    const struct dcpk_item_range range = dcpk_item_whole(item->range.source);

    return dcpk_item_read_value(&range, item->arena, value, err);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* test_item.c - tensor items as torch writes them, odd and hostile ones, and values with tensors.
 */
#include <libdeflate.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "formats/torch/item.h"
#include "lib/base/cursor.h"
#include "tests/check.h"

/*
 * CRC-32 of the bytes that torch 2.11.0 writes before and behind the data (all zeros) of an item:
 * torch.save(torch.zeros(shape, dtype=dtype), f), the parts cut at the record data/0.
 */
static const struct {
    const char *dtype;
    int64_t shape[4];
    int rank;
    uint32_t lead_bytes, lead_crc32, tail_bytes, tail_crc32, data_crc32;
} frames[] = {
    {"float64", {3, 1, 2, 5}, 4, 704, 0xf35c051bu, 825, 0x88b7e93au, 0xbc612413u},
    {"float32", {3, 1, 2, 5}, 4, 704, 0x1894827bu, 817, 0x271359c2u, 0x395d7a27u},
    {"float16", {3, 1, 2, 5}, 4, 704, 0xf05609c9u, 813, 0x666a6beau, 0x04128908u},
    {"bfloat16", {3, 1, 2, 5}, 4, 704, 0x44b8ccddu, 813, 0xfdbb65d4u, 0x04128908u},
    {"int64", {3, 1, 2, 5}, 4, 704, 0x27379522u, 825, 0x9dad799eu, 0xbc612413u},
    {"int32", {3, 1, 2, 5}, 4, 704, 0xec792124u, 817, 0xca733a88u, 0x395d7a27u},
    {"int16", {3, 1, 2, 5}, 4, 704, 0x7344f3ceu, 813, 0x293f42ddu, 0x04128908u},
    {"int8", {3, 1, 2, 5}, 4, 704, 0x5ad89dc2u, 843, 0x6e4556dau, 0x00043eb5u},
    {"uint64", {3, 1, 2, 5}, 4, 768, 0xb0ce288fu, 825, 0xdea3cd66u, 0xbc612413u},
    {"uint32", {3, 1, 2, 5}, 4, 768, 0x644c692au, 817, 0x735fd615u, 0x395d7a27u},
    {"uint16", {3, 1, 2, 5}, 4, 768, 0xed521bd5u, 813, 0xa975cd42u, 0x04128908u},
    {"uint8", {3, 1, 2, 5}, 4, 704, 0x30631228u, 843, 0x354f68fdu, 0x00043eb5u},
    {"bool", {3, 1, 2, 5}, 4, 704, 0xbb63dc25u, 843, 0x56ab2797u, 0x00043eb5u},
    {"complex128", {3, 1, 2, 5}, 4, 704, 0x45718739u, 841, 0xd4e1a928u, 0xfbbac38du},
    {"complex64", {3, 1, 2, 5}, 4, 704, 0x74b72cb4u, 825, 0xd9ad4a9cu, 0xbc612413u},
    {"complex32", {3, 1, 2, 5}, 4, 768, 0x9d87e1eeu, 817, 0x52287b2au, 0x395d7a27u},
    {"float8_e4m3fn", {3, 1, 2, 5}, 4, 768, 0xe953a655u, 843, 0xf55e3f0au, 0x00043eb5u},
    {"float8_e5m2", {3, 1, 2, 5}, 4, 768, 0x5453edd3u, 843, 0xf57ba7b5u, 0x00043eb5u},
    {"float8_e4m3fnuz", {3, 1, 2, 5}, 4, 768, 0x643ef67au, 843, 0x9df2200cu, 0x00043eb5u},
    {"float8_e5m2fnuz", {3, 1, 2, 5}, 4, 768, 0xae3e21e9u, 843, 0xfc0e6bc7u, 0x00043eb5u},
    {"float8_e8m0fnu", {3, 1, 2, 5}, 4, 768, 0x5ca37e08u, 843, 0xb063b1b5u, 0x00043eb5u},
    {"float4_e2m1fn_x2", {3, 1, 2, 5}, 4, 768, 0x7da12c81u, 843, 0x9821e6b7u, 0x00043eb5u},
    {"bits8", {3, 1, 2, 5}, 4, 768, 0x27ac1b07u, 843, 0xba514380u, 0x00043eb5u},
    {"bits16", {3, 1, 2, 5}, 4, 768, 0x76a33aabu, 813, 0x52c6496du, 0x04128908u},
    {"bits1x8", {3, 1, 2, 5}, 4, 768, 0xd1bfabc3u, 843, 0xc31060c6u, 0x00043eb5u},
    {"bits2x4", {3, 1, 2, 5}, 4, 768, 0xda2535d1u, 843, 0x3013264du, 0x00043eb5u},
    {"bits4x2", {3, 1, 2, 5}, 4, 768, 0xca59a676u, 843, 0xf2bdd4b6u, 0x00043eb5u},
    /* a scalar, no elements, a long axis; past 4 GiB: every zip64 rule */
    {"float32", {0}, 0, 704, 401216770u, 869, 3818377012u, 558161692u},
    {"float32", {0, 3}, 2, 704, 3637243073u, 809, 2430061861u, 0},
    {"float32", {70000}, 1, 704, 1882738807u, 873, 292240082u, 2149788769u},
    {"int8", {4400000004}, 1, 704, 0x5b955086u, 921, 0xe2e8e054u, 0xfa23a1e2u},
    {"int8", {4294967295}, 1, 704, 0x6cc8f5fau, 926, 0x0c66bfc6u, 0},
    {"int8", {4294966591}, 1, 704, 0x26d84fb5u, 906, 0xc0701eb6u, 0xe34156beu},
};

static void frames_are_torchs(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_item_sizes sizes;
    uint8_t lead[2048], tail[2048];
    char label[64];

    (void)state;
    for (size_t i = 0; i < sizeof frames / sizeof *frames; i++) {
        const enum dcpk_dtype dtype = dcpk_dtype_from_name(frames[i].dtype);
        const struct dcpk_item_form form = {dtype, frames[i].rank, frames[i].shape};
        uint64_t n = dcpk_dtype_bytes(dtype);

        snprintf(label, sizeof label, "%s, row %zu", frames[i].dtype, i);
        for (int k = 0; k < frames[i].rank; k++)
            n *= (uint64_t)frames[i].shape[k];
        CHECK_OK(dcpk_item_measure(&form, &sizes, &err), label);
        CHECK_EQ_INT(sizes.lead_bytes, frames[i].lead_bytes, label);
        CHECK_EQ_INT(sizes.data_bytes, n, label);
        CHECK_EQ_INT(sizes.tail_bytes, frames[i].tail_bytes, label);
        CHECK_OK(dcpk_item_frame(&form, frames[i].data_crc32, lead, tail, &err), label);
        CHECK_EQ_INT(libdeflate_crc32(0, lead, sizes.lead_bytes), frames[i].lead_crc32, label);
        CHECK_EQ_INT(libdeflate_crc32(0, tail, sizes.tail_bytes), frames[i].tail_crc32, label);
    }
}

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

static void put_text(struct dcpk_bytes *b, const char *text)
{
    dcpk_bytes_u8(b, 'X');
    dcpk_bytes_u32(b, (uint32_t)strlen(text));
    dcpk_bytes_text(b, text);
}

static void put_int(struct dcpk_bytes *b, int64_t v)
{
    dcpk_bytes_u8(b, 0x8a);
    dcpk_bytes_u8(b, 8);
    dcpk_bytes_u64(b, (uint64_t)v);
}

static void put_ints(struct dcpk_bytes *b, const int64_t *numbers, int n)
{
    dcpk_bytes_u8(b, '(');
    for (int i = 0; i < n; i++)
        put_int(b, i < 3 ? numbers[i] : 1);
    dcpk_bytes_u8(b, 't');
}

/* The call of a tensor up to its flags: four arguments. */
static void put_call(struct dcpk_bytes *b, const struct tensor_case *c)
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

static void put_tensor(struct dcpk_bytes *b, const struct tensor_case *c)
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
static void put_record(struct dcpk_bytes *b, struct dcpk_bytes *directory, const char *name,
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
static void put_archive_with(struct dcpk_bytes *b, const struct dcpk_bytes *pickle, size_t n_data,
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

static void put_archive(struct dcpk_bytes *b, const struct dcpk_bytes *pickle, size_t n_data,
                        const char *byteorder)
{
    put_archive_with(b, pickle, n_data, "a/byteorder", byteorder);
}

static struct dcpk_store *make_store(const struct dcpk_bytes *b, struct dcpk_source **source)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_store *store = NULL;

    CHECK_OK(dcpk_store_new_memory("memory", &store, &err), "store");
    CHECK_OK(dcpk_store_add_memory(store, "item", b->data, b->n_bytes, &err), "store");
    CHECK_OK(dcpk_store_find(store, "item", source, &err), "store");
    return store;
}

static dcpk_status read_value(struct dcpk_source *source, struct dcpk_arena *arena,
                              const struct dcpk_value **value, struct dcpk_error *err)
{
    const struct dcpk_item_range range = dcpk_item_whole(source);

    return dcpk_item_read_value(&range, arena, value, err);
}

#define V2 "_rebuild_tensor_v2"
#define V3 "_rebuild_tensor_v3"
/* A storage of floats, and all of six of them. */
#define FLOATS .call = V2, .module = "torch", .storage = "FloatStorage", .key = "0"
#define SIX    .numel = 6, .rank = 1, .shape = {6}, .strides = {1}, .data_bytes = 24
static const struct tensor_case tensor_cases[] = {
    {"contiguous", FLOATS, .numel = 6, .rank = 2, .shape = {2, 3}, .strides = {3, 1},
     .data_bytes = 24},
    {"transposed", FLOATS, .numel = 6, .rank = 2, .shape = {3, 2}, .strides = {1, 3},
     .data_bytes = 24},
    {"a view", FLOATS, .numel = 6, .offset = 2, .rank = 1, .shape = {4}, .strides = {1},
     .data_bytes = 24, .first_bytes = 8},
    {"expanded", FLOATS, .numel = 1, .rank = 2, .shape = {4, 5}, .strides = {0, 0},
     .data_bytes = 4},
    {"no elements, wild stride", FLOATS, .numel = 0, .rank = 2, .shape = {0, 3},
     .strides = {INT64_MAX, 1}, .data_bytes = 0},
    {"one element, wild stride", FLOATS, .numel = 1, .rank = 1, .shape = {1},
     .strides = {INT64_MAX}, .data_bytes = 4},
    {"untyped", .call = V3, .module = "torch.storage", .storage = "UntypedStorage", .key = "0",
     .numel = 6, .offset = 2, .rank = 1, .shape = {4}, .strides = {1}, .data_bytes = 6,
     .first_bytes = 2},
    {"past its storage", FLOATS, .numel = 6, .offset = 1, .rank = 2, .shape = {2, 3},
     .strides = {3, 1}, .data_bytes = 24, .status = DCPK_EFORMAT, .text = "outside its storage"},
    {"offset past an empty one", FLOATS, .numel = 0, .offset = 1, .rank = 1, .strides = {1},
     .data_bytes = 0, .status = DCPK_EFORMAT, .text = "outside"},
    {"negative stride", FLOATS, .numel = 6, .offset = 5, .rank = 1, .shape = {6}, .strides = {-1},
     .data_bytes = 24, .status = DCPK_EFORMAT, .text = "axis 0"},
    {"negative size", FLOATS, .numel = 6, .rank = 1, .shape = {-6}, .strides = {1},
     .data_bytes = 24, .status = DCPK_EFORMAT, .text = "axis 0"},
    {"negative offset", FLOATS, .numel = 6, .offset = -1, .rank = 1, .shape = {6}, .strides = {1},
     .data_bytes = 24, .status = DCPK_EFORMAT, .text = "storage offset"},
    {"negative storage", FLOATS, .numel = -6, .rank = 1, .shape = {6}, .strides = {1},
     .data_bytes = 24, .status = DCPK_EUNSUPPORTED, .text = "persistent id"},
    {"stride overflow", FLOATS, .numel = 6, .rank = 2, .shape = {3, 3},
     .strides = {INT64_MAX, INT64_MAX}, .data_bytes = 24, .status = DCPK_ERANGE, .text = "2^63"},
    {"shape overflow", FLOATS, .numel = 6, .rank = 2, .shape = {INT64_MAX, 3}, .strides = {0, 0},
     .data_bytes = 24, .status = DCPK_ERANGE, .text = ""},
    {"storage shorter", FLOATS, .numel = 6, .rank = 1, .shape = {6}, .strides = {1},
     .data_bytes = 23, .status = DCPK_EFORMAT, .text = "23 bytes"},
    {"storage longer", FLOATS, .numel = 6, .rank = 1, .shape = {6}, .strides = {1},
     .data_bytes = 25, .status = DCPK_EFORMAT, .text = "25 bytes"},
    {"storage overflow", FLOATS, .numel = INT64_MAX, .rank = 1, .shape = {6}, .strides = {1},
     .data_bytes = 24, .status = DCPK_EFORMAT, .text = "24 bytes"},
    {"rank 17", FLOATS, .numel = 1, .rank = 17, .shape = {1, 1, 1}, .strides = {1, 1, 1},
     .data_bytes = 4, .status = DCPK_EUNSUPPORTED, .text = "rank 17"},
    {"other storage key", .call = V2, .module = "torch", .storage = "FloatStorage", .key = "1", SIX,
     .status = DCPK_EFORMAT, .text = "data/1"},
    {"key with a path", .call = V2, .module = "torch", .storage = "FloatStorage", .key = "../0",
     SIX, .status = DCPK_EUNSUPPORTED, .text = "persistent id"},
    {"quantised", .call = V2, .module = "torch", .storage = "QInt8Storage", .key = "0", .numel = 6,
     .rank = 1, .shape = {6}, .strides = {1}, .data_bytes = 6, .status = DCPK_EUNSUPPORTED,
     .text = "torch.QInt8Storage"},
    {"untyped without dtype", .call = V2, .module = "torch.storage", .storage = "UntypedStorage",
     .key = "0", .numel = 6, .rank = 1, .shape = {6}, .strides = {1}, .data_bytes = 6,
     .status = DCPK_EFORMAT, .text = "without a dtype"},
    {"typed with dtype", .call = V3, .module = "torch", .storage = "FloatStorage", .key = "0", SIX,
     .status = DCPK_EFORMAT, .text = "without a dtype"},
    {"another call", .call = "_rebuild_sparse_tensor", .module = "torch", .storage = "FloatStorage",
     .key = "0", SIX, .status = DCPK_EUNSUPPORTED, .text = "torch._utils._rebuild_sparse_tensor"},
};

static void reads_odd_tensors_and_refuses_hostile_ones(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof tensor_cases / sizeof *tensor_cases; i++) {
        const struct tensor_case *c = &tensor_cases[i];
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_bytes pickle = {.data = NULL}, archive = {.data = NULL};
        struct dcpk_item_range range = {.n_bytes = 0};
        struct dcpk_item_tensor t;
        struct dcpk_store *store;

        dcpk_bytes_put(&pickle, "\x80\x02", 2);
        put_tensor(&pickle, c);
        dcpk_bytes_u8(&pickle, '.');
        put_archive(&archive, &pickle, c->data_bytes, NULL);
        store = make_store(&archive, &range.source);
        range.n_bytes = archive.n_bytes;
        if (c->text != NULL) {
            CHECK_FAILS(dcpk_item_read_tensor(&range, NULL, &t, &err), c->status, c->text,
                        c->label);
        } else {
            CHECK_OK(dcpk_item_read_tensor(&range, NULL, &t, &err), c->label);
            CHECK_EQ_INT(t.rank, c->rank, c->label);
            CHECK_EQ_INT(t.record_bytes, c->data_bytes, c->label);
            CHECK_EQ_INT(t.first_bytes - t.record_offset_bytes, c->first_bytes, c->label);
        }
        dcpk_store_close(store);
        dcpk_bytes_release(&pickle);
        dcpk_bytes_release(&archive);
    }
}

/*
 * What torch would do to a tensor, or run on the way, beyond the four arguments that say where its
 * elements lie. Each text stands where the arguments end, or behind the call.
 */
static void refuses_what_torch_would_do_besides(void **state)
{
#define HOOKS "ccollections\nOrderedDict\n)R"
#define RUNS  "cos\nsystem\n)R"
    static const struct {
        const char *label, *rest, *behind, *text;
    } cases[] = {
        {"as torch writes it", "\x89" HOOKS, "", NULL},
        {"metadata None", "\x89" HOOKS "N", "", NULL},
        {"a call for a flag", RUNS HOOKS, "", "argument 4 of _rebuild_tensor_v2"},
        {"hooks", "\x89" RUNS, "", "argument 5 of _rebuild_tensor_v2"},
        {"negated", "\x89" HOOKS "}U\x03neg\x88s", "", "argument 6 of _rebuild_tensor_v2"},
        {"more arguments", "\x89" HOOKS "NN", "", "8 arguments, at most 7"},
        {"a state, which is set_()", "\x89" HOOKS, "}b", "changed behind its _rebuild_tensor_v2"},
        {"an item", "\x89" HOOKS, "K\x01K\x02s", "changed behind its _rebuild_tensor_v2"},
        {"taken off again", "\x89" HOOKS, RUNS "0", "takes a object off the stack"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_bytes pickle = {.data = NULL}, archive = {.data = NULL};
        struct dcpk_arena *arena = dcpk_arena_new(0, &err);
        struct dcpk_item_range range = {.n_bytes = 0};
        const struct dcpk_value *value;
        struct dcpk_item_tensor t;
        struct dcpk_store *store;

        dcpk_bytes_put(&pickle, "\x80\x02", 2);
        put_call(&pickle, &tensor_cases[0]);
        dcpk_bytes_text(&pickle, cases[i].rest);
        dcpk_bytes_text(&pickle, "tR");
        dcpk_bytes_text(&pickle, cases[i].behind);
        dcpk_bytes_u8(&pickle, '.');
        put_archive(&archive, &pickle, 24, NULL);
        store = make_store(&archive, &range.source);
        range.n_bytes = archive.n_bytes;
        if (cases[i].text == NULL) {
            CHECK_OK(dcpk_item_read_tensor(&range, NULL, &t, &err), cases[i].label);
            CHECK_OK(read_value(range.source, arena, &value, &err), cases[i].label);
        } else {
            CHECK_FAILS(dcpk_item_read_tensor(&range, NULL, &t, &err), DCPK_EUNSUPPORTED,
                        cases[i].text, cases[i].label);
            err = (struct dcpk_error)DCPK_ERROR_INIT;
            CHECK_FAILS(read_value(range.source, arena, &value, &err), DCPK_EUNSUPPORTED,
                        cases[i].text, cases[i].label);
        }
        dcpk_store_close(store);
        dcpk_arena_free(arena);
        dcpk_bytes_release(&pickle);
        dcpk_bytes_release(&archive);
    }
}

/* A file that torch.load is given: nothing, what it would call, or why it cannot be read. */
static void finds_the_fault_of_a_file(void **state)
{
    static const struct {
        const char *label, *pickle, *fault;
    } cases[] = {
        {"a dict", "}U\4stepK\1s.", NULL},
        {"a call", "}U\4stepcos\nsystem\n)Rs.", "holds 'os.system'"},
        {"a call taken off again", "cos\nsystem\n)R0N.", "takes a object off the stack"},
        {"a pickle that is cut", "}U\4step", "without STOP"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_bytes pickle = {.data = NULL}, archive = {.data = NULL};
        struct dcpk_arena *arena = dcpk_arena_new(0, &err);
        const char *fault = "unset";
        struct dcpk_source *source;
        struct dcpk_store *store;

        dcpk_bytes_text(&pickle, cases[i].pickle);
        put_archive(&archive, &pickle, 0, NULL);
        store = make_store(&archive, &source);
        CHECK_OK(dcpk_item_find_fault(source, arena, &fault, &err), cases[i].label);
        if (cases[i].fault == NULL)
            CHECK(fault == NULL, cases[i].label);
        else
            CHECK(fault != NULL && strstr(fault, cases[i].fault) != NULL, cases[i].label);
        dcpk_store_close(store);
        dcpk_arena_free(arena);
        dcpk_bytes_release(&pickle);
        dcpk_bytes_release(&archive);
    }
}

/* torch.load gives an archive with constants.pkl to TorchScript, which runs its code. */
static void refuses_torchscript(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_bytes pickle = {.data = NULL}, archive = {.data = NULL};
    struct dcpk_arena *arena = dcpk_arena_new(0, &err);
    const struct dcpk_value *value;
    struct dcpk_source *source;
    struct dcpk_store *store;

    (void)state;
    dcpk_bytes_put(&pickle, "\x80\x02N.", 4);
    put_archive_with(&archive, &pickle, 0, "a/constants.pkl", "\x80\x02).");
    store = make_store(&archive, &source);
    CHECK_FAILS(read_value(source, arena, &value, &err), DCPK_EUNSUPPORTED, "TorchScript", "value");
    dcpk_store_close(store);
    dcpk_arena_free(arena);
    dcpk_bytes_release(&pickle);
    dcpk_bytes_release(&archive);
}

/* torch finds each class that a persistent id names, which imports its module. */
static void refuses_odd_persistent_ids(void **state)
{
    static const struct {
        const char *label, *rest, *text;
    } cases[] = {
        {"as torch writes it", "U\3cpuK\6tQ.", "does not belong to a dense tensor"},
        {"a name for a location", "cantigravity\ngeohash\nK\6tQ.", "a persistent id that is not"},
        {"a name behind it", "U\3cpuK\6cantigravity\ngeohash\ntQ.", "a persistent id that is not"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_bytes pickle = {.data = NULL}, archive = {.data = NULL};
        struct dcpk_arena *arena = dcpk_arena_new(0, &err);
        const struct dcpk_value *value;
        struct dcpk_source *source;
        struct dcpk_store *store;

        dcpk_bytes_put(&pickle, "\x80\x02", 2);
        dcpk_bytes_text(&pickle, "(U\x07storagectorch\nFloatStorage\nU\x01"
                                 "0");
        dcpk_bytes_text(&pickle, cases[i].rest);
        put_archive(&archive, &pickle, 24, NULL);
        store = make_store(&archive, &source);
        CHECK_FAILS(read_value(source, arena, &value, &err), DCPK_EUNSUPPORTED, cases[i].text,
                    cases[i].label);
        dcpk_store_close(store);
        dcpk_arena_free(arena);
        dcpk_bytes_release(&pickle);
        dcpk_bytes_release(&archive);
    }
}

static void minds_the_byte_order(void **state)
{
    static const struct {
        const char *order, *text;
        dcpk_status status;
    } orders[] = {{"little", NULL, DCPK_OK},
                  {"big", "big-endian", DCPK_EUNSUPPORTED},
                  {"native", "byteorder", DCPK_EFORMAT}};

    (void)state;
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_bytes pickle = {.data = NULL}, archive = {.data = NULL};
        struct dcpk_item_range range = {.n_bytes = 0};
        struct dcpk_item_tensor t;
        struct dcpk_store *store;

        dcpk_bytes_put(&pickle, "\x80\x02", 2);
        put_tensor(&pickle, &tensor_cases[0]);
        dcpk_bytes_u8(&pickle, '.');
        put_archive(&archive, &pickle, 24, orders[i].order);
        store = make_store(&archive, &range.source);
        range.n_bytes = archive.n_bytes;
        if (orders[i].text != NULL)
            CHECK_FAILS(dcpk_item_read_tensor(&range, NULL, &t, &err), orders[i].status,
                        orders[i].text, orders[i].order);
        else
            CHECK_OK(dcpk_item_read_tensor(&range, NULL, &t, &err), orders[i].order);
        dcpk_store_close(store);
        dcpk_bytes_release(&pickle);
        dcpk_bytes_release(&archive);
    }
}

/* [transposed view, the same again by memo, a Parameter of a view]: bytes row-major. */
static void fills_tensors_of_values(void **state)
{
    static const struct tensor_case view = {"",     V2,     "torch", "ByteStorage", "0",  24, 2, 2,
                                            {2, 3}, {1, 6}, 24,      DCPK_OK,       NULL, 0};
    static const uint8_t wanted[] = {2, 8, 14, 3, 9, 15};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_bytes pickle = {.data = NULL}, archive = {.data = NULL};
    struct dcpk_arena *arena = dcpk_arena_new(0, &err);
    const struct dcpk_value *v = NULL, *last;
    struct dcpk_source *source;
    struct dcpk_store *store;

    (void)state;
    dcpk_bytes_put(&pickle, "\x80\x02](", 4);
    put_tensor(&pickle, &view);
    dcpk_bytes_text(&pickle, "q\1h\1"
                             "ctorch._utils\n_rebuild_parameter\n(");
    put_tensor(&pickle, &view);
    dcpk_bytes_text(&pickle, "\x88"
                             "ccollections\nOrderedDict\n)RtRe.");
    put_archive(&archive, &pickle, 24, "little");
    store = make_store(&archive, &source);
    CHECK_OK(read_value(source, arena, &v, &err), "value");
    CHECK_EQ_INT(v->n, 3, "value");
    CHECK(dcpk_value_at(v, 0)->as.tensor == dcpk_value_at(v, 1)->as.tensor, "shared");
    last = dcpk_value_at(v, 2);
    CHECK_EQ_INT(last->kind, DCPK_V_TENSOR, "parameter");
    CHECK_EQ_INT(last->as.tensor->n_bytes, sizeof wanted, "parameter");
    CHECK(memcmp(last->as.tensor->data, wanted, sizeof wanted) == 0, "parameter");
    archive.data[archive.n_bytes / 4] ^=
        1; /* in a record that is not interpreted: a CRC must show it */
    dcpk_store_close(store);
    store = make_store(&archive, &source);
    CHECK(read_value(source, arena, &v, &err) != DCPK_OK, "CRC");
    dcpk_store_close(store);
    dcpk_bytes_release(&pickle);
    dcpk_bytes_release(&archive);
    dcpk_arena_free(arena);
}

struct seen_records {
    struct dcpk_source *source;
    uint64_t n, end_bytes;
};

/* Records come in the order of their bytes, and their checksums are right. */
static dcpk_status see_record(void *context, const struct dcpk_record *record,
                              struct dcpk_error *unused)
{
    struct seen_records *seen = context;
    struct dcpk_error err = DCPK_ERROR_INIT;
    uint8_t data[1024];

    (void)unused;
    CHECK(record->offset_bytes >= seen->end_bytes && record->n_bytes <= sizeof data, "record");
    CHECK_OK(
        dcpk_source_read(seen->source, record->offset_bytes, data, (size_t)record->n_bytes, &err),
        "record");
    CHECK_EQ_INT(libdeflate_crc32(0, data, (size_t)record->n_bytes), record->crc32, "CRC-32");
    seen->end_bytes = record->offset_bytes + record->n_bytes;
    seen->n++;
    return DCPK_OK;
}

/* An outline locates the elements of tensors, however many a tensor claims to have. */
static void outlines_point_at_tensors(void **state)
{
    static const struct tensor_case whole = {"",  V2,  "torch", "FloatStorage", "0",  5, 1, 1,
                                             {4}, {1}, 20,      DCPK_OK,        NULL, 0};
    static const struct tensor_case every_second = {
        "", V2, "torch", "FloatStorage", "0", 5, 1, 1, {2}, {2}, 20, DCPK_OK, NULL, 0};
    static const struct tensor_case repeated = {
        "", V2, "torch", "FloatStorage", "0", 5, 0, 1, {INT64_MAX / 4}, {0}, 20, DCPK_OK, NULL, 0};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_bytes pickle = {.data = NULL}, archive = {.data = NULL};
    struct dcpk_arena *arena = dcpk_arena_new(0, &err);
    const struct dcpk_value *v = NULL, *loaded = NULL;
    const struct dcpk_value_tensor *t;
    struct seen_records seen = {.end_bytes = 0};
    struct dcpk_item_range range = {.offset_bytes = 0};
    uint8_t bytes[16];
    struct dcpk_store *store;

    (void)state;
    dcpk_bytes_put(&pickle, "\x80\x02](", 4);
    put_tensor(&pickle, &whole);
    put_tensor(&pickle, &every_second);
    dcpk_bytes_text(&pickle, "e.");
    put_archive(&archive, &pickle, 20, "little");
    store = make_store(&archive, &range.source);
    range.n_bytes = archive.n_bytes;
    CHECK_OK(dcpk_item_read_outline(&range, arena, &v, &err), "outline");
    t = dcpk_value_at(v, 0)->as.tensor;
    CHECK(t->data == NULL && t->is_row_major && t->n_bytes == 16 && t->dtype == DCPK_F32, "whole");
    CHECK_OK(dcpk_source_read(range.source, t->first_bytes, bytes, sizeof bytes, &err), "whole");
    CHECK_OK(dcpk_item_read_value(&range, arena, &loaded, &err), "load");
    CHECK(memcmp(dcpk_value_at(loaded, 0)->as.tensor->data, bytes, sizeof bytes) == 0, "bytes");
    CHECK(!dcpk_value_at(v, 1)->as.tensor->is_row_major, "every second element");
    seen.source = range.source;
    CHECK_OK(dcpk_item_each_record(&range, see_record, &seen, &err), "records");
    CHECK(seen.n >= 4, "data.pkl, byteorder, data/0, version");
    dcpk_store_close(store);

    pickle.n_bytes = archive.n_bytes = 0;
    dcpk_bytes_put(&pickle, "\x80\x02", 2);
    put_tensor(&pickle, &repeated);
    dcpk_bytes_u8(&pickle, '.');
    put_archive(&archive, &pickle, 20, NULL);
    store = make_store(&archive, &range.source);
    range.n_bytes = archive.n_bytes;
    CHECK_OK(dcpk_item_read_outline(&range, arena, &v, &err), "nothing is read");
    CHECK(!v->as.tensor->is_row_major, "one element many times");
    range.n_bytes--;
    CHECK_FAILS(dcpk_item_read_outline(&range, arena, &v, &err), DCPK_EFORMAT, "not an end record",
                "cut");
    dcpk_store_close(store);
    dcpk_bytes_release(&pickle);
    dcpk_bytes_release(&archive);
    dcpk_arena_free(arena);
}

/* A GiB is what is taken into memory; the file is a hole, and no byte of it is asked for. */
static void refuses_large_values(void **state)
{
    const uint64_t n_bytes = DCPK_MOST_LOADED_BYTES + 1;
    const int fd = memfd_create("item", MFD_CLOEXEC);
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new(0, &err);
    const struct dcpk_value *v = NULL;
    struct dcpk_source *source = NULL;
    struct dcpk_store *store = NULL;

    (void)state;
    CHECK(fd >= 0 && ftruncate(fd, (off_t)n_bytes) == 0, "a hole");
    CHECK_OK(dcpk_store_new_ranges("memory", fd, &store, &err), "store");
    CHECK_OK(dcpk_store_add_range(store, "item", 0, n_bytes, &err), "store");
    CHECK_OK(dcpk_store_find(store, "item", &source, &err), "store");
    CHECK_FAILS(read_value(source, arena, &v, &err), DCPK_ERANGE,
                "1073741825 bytes; the limit is 1073741824", "limit");
    dcpk_store_close(store);
    dcpk_arena_free(arena);
}

/* A tiny storage may not become a huge tensor in memory. */
static void refuses_to_blow_up(void **state)
{
    static const struct tensor_case huge = {"",          V2,  "torch", "ByteStorage", "0",  1, 0, 1,
                                            {INT64_MAX}, {0}, 1,       DCPK_OK,       NULL, 0};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_bytes pickle = {.data = NULL}, archive = {.data = NULL};
    struct dcpk_arena *arena = dcpk_arena_new(0, &err);
    const struct dcpk_value *v = NULL;
    struct dcpk_source *source;
    struct dcpk_store *store;

    (void)state;
    dcpk_bytes_put(&pickle, "\x80\x02", 2);
    put_tensor(&pickle, &huge);
    dcpk_bytes_u8(&pickle, '.');
    put_archive(&archive, &pickle, 1, NULL);
    store = make_store(&archive, &source);
    CHECK_FAILS(read_value(source, arena, &v, &err), DCPK_ERANGE, "64 times", "expanded");
    dcpk_store_close(store);
    dcpk_bytes_release(&pickle);
    dcpk_bytes_release(&archive);
    dcpk_arena_free(arena);
}

/* What encode writes, read_value gives back; the peer reads it in tests/interop. */
static void values_come_back(void **state)
{
    static const int64_t shape[] = {2, 3};
    static const uint8_t bytes[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    const struct dcpk_value_tensor f16 = {DCPK_F16, 2, shape, 12, bytes, 0, false};
    const struct dcpk_value_tensor f8 = {DCPK_F8_E5M2, 1, shape, 2, bytes, 0, false};
    const struct dcpk_value a = {.kind = DCPK_V_TENSOR, .as.tensor = &f16};
    const struct dcpk_value b = {.kind = DCPK_V_TENSOR, .as.tensor = &f8};
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_arena *arena = dcpk_arena_new(0, &err);
    const struct dcpk_value *items[] = {&a, dcpk_value_int(arena, INT64_MIN, &err), &b, &a};
    const struct dcpk_value *list = dcpk_value_seq(arena, DCPK_V_LIST, items, 4, &err),
                            *back = NULL;

    (void)state;
    for (int protocol = 2; protocol <= 4; protocol += 2) {
        struct dcpk_bytes archive = {.data = NULL}, again = {.data = NULL};
        struct dcpk_source *source;
        struct dcpk_store *store;

        CHECK_OK(dcpk_item_encode(list, "archive", protocol, &archive, &err), "encode");
        CHECK_OK(dcpk_item_encode(list, "archive", protocol, &again, &err), "encode");
        CHECK(archive.n_bytes == again.n_bytes &&
                  memcmp(archive.data, again.data, again.n_bytes) == 0,
              "deterministic");
        store = make_store(&archive, &source);
        CHECK_OK(read_value(source, arena, &back, &err), "read");
        CHECK(dcpk_value_equal(list, back), "equal");
        dcpk_store_close(store);
        dcpk_bytes_release(&archive);
        dcpk_bytes_release(&again);
    }
    dcpk_arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_are_torchs),
        cmocka_unit_test(reads_odd_tensors_and_refuses_hostile_ones),
        cmocka_unit_test(refuses_what_torch_would_do_besides),
        cmocka_unit_test(refuses_torchscript),
        cmocka_unit_test(finds_the_fault_of_a_file),
        cmocka_unit_test(refuses_odd_persistent_ids),
        cmocka_unit_test(minds_the_byte_order),
        cmocka_unit_test(fills_tensors_of_values),
        cmocka_unit_test(outlines_point_at_tensors),
        cmocka_unit_test(refuses_large_values),
        cmocka_unit_test(refuses_to_blow_up),
        cmocka_unit_test(values_come_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

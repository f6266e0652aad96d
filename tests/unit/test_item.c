/* SPDX-License-Identifier: Apache-2.0 */
/* test_item.c - tensor items as torch writes them, odd and hostile ones. */
#include <stdio.h>

#include "tests/unit/item_bytes.h"

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
        struct item item = {.arena = NULL};
        struct dcpk_item_tensor t;

        dcpk_bytes_put(&item.pickle, "\x80\x02", 2);
        put_tensor(&item.pickle, c);
        dcpk_bytes_u8(&item.pickle, '.');
        item_pack(&item, c->data_bytes, NULL);
        if (c->text != NULL) {
            CHECK_FAILS(dcpk_item_read_tensor(&item.range, NULL, &t, &err), c->status, c->text,
                        c->label);
        } else {
            CHECK_OK(dcpk_item_read_tensor(&item.range, NULL, &t, &err), c->label);
            CHECK_EQ_INT(t.rank, c->rank, c->label);
            CHECK_EQ_INT(t.record_bytes, c->data_bytes, c->label);
            CHECK_EQ_INT(t.first_bytes - t.record_offset_bytes, c->first_bytes, c->label);
        }
        item_close(&item);
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
        {"a state, which is set_()", "\x89" HOOKS, "}b", "changed after its _rebuild_tensor_v2"},
        {"an item", "\x89" HOOKS, "K\x01K\x02s", "changed after its _rebuild_tensor_v2"},
        {"taken off again", "\x89" HOOKS, RUNS "0", "takes a object off the stack"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct item item = {.arena = NULL};
        const struct dcpk_value *value;
        struct dcpk_item_tensor t;

        dcpk_bytes_put(&item.pickle, "\x80\x02", 2);
        put_call(&item.pickle, &tensor_cases[0]);
        dcpk_bytes_text(&item.pickle, cases[i].rest);
        dcpk_bytes_text(&item.pickle, "tR");
        dcpk_bytes_text(&item.pickle, cases[i].behind);
        dcpk_bytes_u8(&item.pickle, '.');
        item_pack(&item, 24, NULL);
        if (cases[i].text == NULL) {
            CHECK_OK(dcpk_item_read_tensor(&item.range, NULL, &t, &err), cases[i].label);
            CHECK_OK(item_value(&item, &value, &err), cases[i].label);
        } else {
            CHECK_FAILS(dcpk_item_read_tensor(&item.range, NULL, &t, &err), DCPK_EUNSUPPORTED,
                        cases[i].text, cases[i].label);
            dcpk_error_clear(&err);
            CHECK_FAILS(item_value(&item, &value, &err), DCPK_EUNSUPPORTED, cases[i].text,
                        cases[i].label);
        }
        item_close(&item);
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
        struct item item = {.arena = NULL};
        struct dcpk_item_tensor t;

        dcpk_bytes_put(&item.pickle, "\x80\x02", 2);
        put_tensor(&item.pickle, &tensor_cases[0]);
        dcpk_bytes_u8(&item.pickle, '.');
        item_pack(&item, 24, orders[i].order);
        if (orders[i].text != NULL)
            CHECK_FAILS(dcpk_item_read_tensor(&item.range, NULL, &t, &err), orders[i].status,
                        orders[i].text, orders[i].order);
        else
            CHECK_OK(dcpk_item_read_tensor(&item.range, NULL, &t, &err), orders[i].order);
        item_close(&item);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_are_torchs),
        cmocka_unit_test(reads_odd_tensors_and_refuses_hostile_ones),
        cmocka_unit_test(refuses_what_torch_would_do_besides),
        cmocka_unit_test(minds_the_byte_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

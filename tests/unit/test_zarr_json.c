/* SPDX-License-Identifier: Apache-2.0 */
/* test_zarr_json.c - `.zarray` files: what Megatron, zarr and TensorStore write, and what is
 * refused. */
#include <stdio.h>

#include "formats/formats.h"
#include "formats/zarr/zarr_array.h"
#include "tests/check.h"

/* The text that zarr 2.18 wrote for Megatron core 0.12 (formats/zarr/FORMAT.md 2). */
static const char megatron[] = "{\n    \"chunks\": [\n        1,\n        2,\n        4\n    ],\n"
                               "    \"compressor\": null,\n    \"dtype\": \"bfloat16\",\n"
                               "    \"fill_value\": null,\n    \"filters\": null,\n"
                               "    \"order\": \"C\",\n    \"shape\": [\n        3,\n        5,\n"
                               "        4\n    ],\n    \"zarr_format\": 2\n}";

static void megatrons_own(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_zarr_array a;

    (void)state;
    CHECK_OK(dcpk_zarr_parse(megatron, strlen(megatron), &a, &err), "megatron");
    CHECK_EQ_INT(a.dtype, DCPK_BF16, "dtype");
    CHECK_EQ_INT(a.rank, 3, "rank");
    CHECK_EQ_INT(a.shape[1], 5, "shape");
    CHECK_EQ_INT(a.chunk[1], 2, "chunk");
    CHECK_EQ_INT(a.grid[0], 3, "grid");
    CHECK_EQ_INT(a.grid[1], 3, "grid: ceil(5 / 2)");
    CHECK_EQ_INT(a.grid[2], 1, "grid");
    CHECK_EQ_INT(a.n_chunks, 9, "chunks");
    CHECK_EQ_INT(a.chunk_bytes, 16, "bytes of a chunk");
    CHECK_EQ_INT(a.separator, '.', "separator");
    CHECK_EQ_INT(a.fill, DCPK_ZARR_FILL_NONE, "fill");
    CHECK(a.codec == NULL, "codec");
    CHECK(!a.is_void, "void");
    CHECK_EQ_STR(a.unknown, "", "unknown");
}

/* Field text -> dtype; numpy's own names for the sizes (numpy.dtype(x).str). */
static const struct {
    const char *name;
    enum dcpk_dtype dtype;
} dtypes[] = {
    {"<f2", DCPK_F16},  {"<f4", DCPK_F32},   {"<f8", DCPK_F64},       {"|i1", DCPK_I8},
    {"<i2", DCPK_I16},  {"<i4", DCPK_I32},   {"<i8", DCPK_I64},       {"|u1", DCPK_U8},
    {"<u2", DCPK_U16},  {"<u4", DCPK_U32},   {"<u8", DCPK_U64},       {"|b1", DCPK_BOOL},
    {"<c8", DCPK_C64},  {"<c16", DCPK_C128}, {"bfloat16", DCPK_BF16}, {"<V2", DCPK_BF16},
    {"|V2", DCPK_BF16},
};

/* {"zarr_format":2,"order":"C","shape":[4],"chunks":[2],"dtype":"<f4"<more>} */
static dcpk_status parse(const char *dtype, const char *more, struct dcpk_zarr_array *a,
                         struct dcpk_error *err)
{
    char text[512];

    snprintf(text, sizeof text,
             "{\"zarr_format\":2,\"order\":\"C\",\"shape\":[4],\"chunks\":[2],\"dtype\":\"%s\"%s}",
             dtype, more);
    return dcpk_zarr_parse(text, strlen(text), a, err);
}

static void every_dtype(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_zarr_array a;

    (void)state;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        CHECK_OK(parse(dtypes[i].name, "", &a, &err), dtypes[i].name);
        CHECK_EQ_INT(a.dtype, dtypes[i].dtype, dtypes[i].name);
        CHECK_EQ_INT(a.is_void, dtypes[i].name[1] == 'V', dtypes[i].name);
    }
}

/*
 * What other writers put in. The compressor's text is TensorStore's default
 * (formats/zarr/FORMAT.md 2).
 */
static void other_writers(void **state)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_zarr_array a;
    static const char scalar[] = "{\"zarr_format\":2,\"order\":\"C\",\"shape\":[],\"chunks\":[],"
                                 "\"dtype\":\"<i8\",\"fill_value\":0}";
    static const char empty[] = "{\"zarr_format\":2,\"order\":\"C\",\"shape\":[0,3],"
                                "\"chunks\":[1,3],\"dtype\":\"<i8\",\"fill_value\":0}";

    (void)state;
    CHECK_OK(
        parse("<f4", ",\"dimension_separator\":\"/\",\"fill_value\":0.0,\"filters\":[]", &a, &err),
        "separator");
    CHECK_EQ_INT(a.separator, '/', "separator");
    CHECK_EQ_INT(a.fill, DCPK_ZARR_FILL_ZERO, "0.0");
    CHECK_OK(parse("|b1", ",\"fill_value\":false", &a, &err), "false");
    CHECK_EQ_INT(a.fill, DCPK_ZARR_FILL_ZERO, "false");
    CHECK_OK(parse("<f4", ",\"fill_value\":1.5", &a, &err), "1.5");
    CHECK_EQ_INT(a.fill, DCPK_ZARR_FILL_OTHER, "1.5");
    CHECK_OK(parse("<f4", ",\"fill_value\":\"NaN\"", &a, &err), "NaN");
    CHECK_EQ_INT(a.fill, DCPK_ZARR_FILL_OTHER, "NaN");
    CHECK_OK(parse("<f4", ",\"compressor\":{\"id\":\"gzip\",\"level\":5}", &a, &err), "gzip");
    CHECK(a.codec != NULL, "gzip");
    CHECK_EQ_STR(a.codec->id, "gzip", "gzip");
    CHECK_OK(parse("<f4", ",\"shuffled\":1", &a, &err), "unknown");
    CHECK_EQ_STR(a.unknown, "shuffled", "unknown");
    CHECK_OK(dcpk_zarr_parse(scalar, strlen(scalar), &a, &err), "scalar");
    CHECK_EQ_INT(a.n_chunks, 1, "scalar");
    CHECK_EQ_INT(a.chunk_bytes, 8, "scalar");
    CHECK_OK(dcpk_zarr_parse(empty, strlen(empty), &a, &err), "empty");
    CHECK_EQ_INT(a.n_chunks, 0, "empty");
    if (dcpk_zarr_codec_find("blosc") != NULL) {
        CHECK_OK(parse("<f4",
                       ",\"compressor\":{\"blocksize\":0,\"clevel\":5,\"cname\":\"lz4\","
                       "\"id\":\"blosc\",\"shuffle\":-1}",
                       &a, &err),
                 "blosc");
        CHECK_EQ_STR(a.codec->id, "blosc", "blosc");
    }
}

#define BEGIN "{\"zarr_format\":2,\"order\":\"C\","
static const struct {
    const char *label, *text;
    dcpk_status status;
    const char *message;
} bad[] = {
    {"no JSON", "{", DCPK_EFORMAT, "byte"},
    {"a list", "[]", DCPK_EFORMAT, "object"},
    {"empty", "", DCPK_EFORMAT, ""},
    {"no format", "{}", DCPK_EFORMAT, "zarr_format"},
    {"format 3", "{\"zarr_format\":3}", DCPK_EUNSUPPORTED, "zarr_format 3"},
    {"format as text", "{\"zarr_format\":\"2\"}", DCPK_EFORMAT, "zarr_format"},
    {"no order", "{\"zarr_format\":2}", DCPK_EFORMAT, "order"},
    {"order F", "{\"zarr_format\":2,\"order\":\"F\"}", DCPK_EUNSUPPORTED, "\"F\""},
    {"order X", "{\"zarr_format\":2,\"order\":\"X\"}", DCPK_EFORMAT, "order"},
    {"no dtype", BEGIN "\"shape\":[],\"chunks\":[]}", DCPK_EFORMAT, "dtype"},
    {"big-endian", BEGIN "\"dtype\":\">f4\"}", DCPK_EUNSUPPORTED, "big-endian"},
    {"text", BEGIN "\"dtype\":\"<U4\"}", DCPK_EUNSUPPORTED, "<U4"},
    {"fields", BEGIN "\"dtype\":[[\"a\",\"<f4\"]]}", DCPK_EUNSUPPORTED, "structured"},
    {"no shape", BEGIN "\"dtype\":\"<f4\"}", DCPK_EFORMAT, "shape"},
    {"shape no list", BEGIN "\"dtype\":\"<f4\",\"shape\":4}", DCPK_EFORMAT, "list"},
    {"negative", BEGIN "\"dtype\":\"<f4\",\"shape\":[4,-1],\"chunks\":[1,1]}", DCPK_EFORMAT,
     "\"shape\"[1]"},
    {"fraction", BEGIN "\"dtype\":\"<f4\",\"shape\":[4.5],\"chunks\":[1]}", DCPK_EFORMAT,
     "\"shape\"[0]"},
    {"huge", BEGIN "\"dtype\":\"<f4\",\"shape\":[1e300],\"chunks\":[1]}", DCPK_EFORMAT,
     "\"shape\"[0]"},
    {"no chunks", BEGIN "\"dtype\":\"<f4\",\"shape\":[4]}", DCPK_EFORMAT, "chunks"},
    {"ranks", BEGIN "\"dtype\":\"<f4\",\"shape\":[4,4],\"chunks\":[4]}", DCPK_EFORMAT, "axes"},
    {"chunk of 0", BEGIN "\"dtype\":\"<f4\",\"shape\":[4],\"chunks\":[0]}", DCPK_EFORMAT,
     "\"chunks\"[0] is 0"},
    {"17 axes",
     BEGIN "\"dtype\":\"<f4\",\"shape\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],\"chunks\":[1]}",
     DCPK_EUNSUPPORTED, "axes"},
    {"too many chunks", BEGIN "\"dtype\":\"<f4\",\"shape\":[9007199254740991],\"chunks\":[1]}",
     DCPK_ERANGE, "chunks"},
    {"too large a chunk",
     BEGIN "\"dtype\":\"<f4\",\"shape\":[1,1],\"chunks\":[4503599627370496,4096]}", DCPK_ERANGE,
     "bytes"},
    {"filter",
     BEGIN "\"dtype\":\"<f4\",\"shape\":[4],\"chunks\":[4],\"filters\":[{\"id\":\"delta\"}]}",
     DCPK_EUNSUPPORTED, "delta"},
    {"compressor",
     BEGIN "\"dtype\":\"<f4\",\"shape\":[4],\"chunks\":[4],\"compressor\":{\"id\":\"lzma\"}}",
     DCPK_EUNSUPPORTED, "lzma"},
    {"compressor without id",
     BEGIN "\"dtype\":\"<f4\",\"shape\":[4],\"chunks\":[4],\"compressor\":{}}", DCPK_EFORMAT, "id"},
    {"separator",
     BEGIN "\"dtype\":\"<f4\",\"shape\":[4],\"chunks\":[4],\"dimension_separator\":\"..\"}",
     DCPK_EFORMAT, "dimension_separator"},
};

static void refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct dcpk_error err = DCPK_ERROR_INIT;
        struct dcpk_zarr_array a;

        CHECK_FAILS(dcpk_zarr_parse(bad[i].text, strlen(bad[i].text), &a, &err), bad[i].status,
                    bad[i].message, bad[i].label);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(megatrons_own),
        cmocka_unit_test(every_dtype),
        cmocka_unit_test(other_writers),
        cmocka_unit_test(refused_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* zarr_json.c - the `.zarray` file: shape, chunks, dtype and how chunk files are stored. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/zarr/zarr_array.h"
#include "lib/base/checked.h"
#include "lib/base/json.h"
#include "lib/base/order.h"

/* numpy's names (FORMAT.md 2), and TensorStore's for bfloat16, which Megatron writes. */
static const struct {
    const char *name;
    enum dcpk_dtype dtype;
} dtypes[] = {
    {"bfloat16", DCPK_BF16}, {"<f2", DCPK_F16}, {"<f4", DCPK_F32},   {"<f8", DCPK_F64},
    {"|i1", DCPK_I8},        {"<i2", DCPK_I16}, {"<i4", DCPK_I32},   {"<i8", DCPK_I64},
    {"|u1", DCPK_U8},        {"<u2", DCPK_U16}, {"<u4", DCPK_U32},   {"<u8", DCPK_U64},
    {"|b1", DCPK_BOOL},      {"<c8", DCPK_C64}, {"<c16", DCPK_C128}, {"<V2", DCPK_BF16},
    {"|V2", DCPK_BF16},
};

const char *dcpk_zarr_dtype_name(enum dcpk_dtype dtype)
{
    for (size_t i = 0; i < DCPK_COUNT(dtypes); i++)
        if (dtypes[i].dtype == dtype)
            return dtypes[i].name;
    return NULL;
}

static dcpk_status need(const struct dcpk_json *doc, const char *key, const struct dcpk_json **node,
                        struct dcpk_error *err)
{
    *node = dcpk_json_member(doc, key);
    if (*node == NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "\"%s\" is missing", key);
    return DCPK_OK;
}

static bool is_null(const struct dcpk_json *node)
{
    return node == NULL || dcpk_json_kind(node) == DCPK_JSON_NULL;
}

/* zarr_format and order: what is understood at all. */
static dcpk_status check_format(const struct dcpk_json *doc, struct dcpk_error *err)
{
    const struct dcpk_json *node;
    const char *order;
    int64_t version;

    if (need(doc, "zarr_format", &node, err))
        return err->status;
    if (!dcpk_json_int(node, &version))
        return dcpk_fail(err, DCPK_EFORMAT, "\"zarr_format\" is not a whole number");
    if (version != 2)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "zarr_format %" PRId64 ": only 2 is read",
                         version);
    if (need(doc, "order", &node, err))
        return err->status;
    order = dcpk_json_string(node);
    if (order == NULL || (strcmp(order, "C") != 0 && strcmp(order, "F") != 0))
        return dcpk_fail(err, DCPK_EFORMAT, "\"order\" is neither \"C\" nor \"F\"");
    if (order[0] == 'F')
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "order \"F\" (column-major chunks) is not read; Megatron writes \"C\"");
    return DCPK_OK;
}

static dcpk_status array_read_dtype(const struct dcpk_json *doc, struct dcpk_zarr_array *array,
                                    struct dcpk_error *err)
{
    const struct dcpk_json *node;
    const char *name;

    if (need(doc, "dtype", &node, err))
        return err->status;
    name = dcpk_json_string(node);
    if (name == NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "a structured dtype (a list) is not read");
    for (size_t i = 0; i < DCPK_COUNT(dtypes); i++)
        if (strcmp(dtypes[i].name, name) == 0) {
            array->dtype = dtypes[i].dtype;
            array->is_void = name[1] == 'V';
            return DCPK_OK;
        }
    return dcpk_fail(err, DCPK_EUNSUPPORTED, "dtype \"%.40s\" is not read%s", name,
                     name[0] == '>' ? " (big-endian)" : "");
}

/* A list of whole numbers >= 0; *rank: how many. */
static dcpk_status read_extents(const struct dcpk_json *doc, const char *key,
                                int64_t extents[DCPK_MAX_RANK], int *rank, struct dcpk_error *err)
{
    const struct dcpk_json *node;

    if (need(doc, key, &node, err))
        return err->status;
    if (dcpk_json_kind(node) != DCPK_JSON_ARRAY)
        return dcpk_fail(err, DCPK_EFORMAT, "\"%s\" is not a list", key);
    *rank = 0;
    for (node = dcpk_json_first(node); node != NULL; node = dcpk_json_next(node)) {
        if (*rank == DCPK_MAX_RANK)
            return dcpk_fail(err, DCPK_EUNSUPPORTED, "more than %d axes", DCPK_MAX_RANK);
        if (!dcpk_json_int(node, &extents[*rank]) || extents[*rank] < 0)
            return dcpk_fail(err, DCPK_EFORMAT, "\"%s\"[%d] is not a whole number from 0 to 2^53",
                             key, *rank);
        ++*rank;
    }
    return DCPK_OK;
}

/* The grid of chunks that the shape needs, and a chunk's bytes. */
static dcpk_status make_grid(struct dcpk_zarr_array *array, struct dcpk_error *err)
{
    uint64_t n_chunks = 1, n_bytes = dcpk_dtype_bytes(array->dtype);

    for (int a = 0; a < array->rank; a++) {
        if (array->chunk[a] == 0 && array->shape[a] > 0)
            return dcpk_fail(err, DCPK_EFORMAT, "\"chunks\"[%d] is 0, \"shape\"[%d] is %" PRId64, a,
                             a, array->shape[a]);
        array->grid[a] = 0;
        if (array->shape[a] > 0)
            array->grid[a] = (array->shape[a] - 1) / array->chunk[a] + 1;
        if (!dcpk_mul_u64(n_chunks, (uint64_t)array->grid[a], &n_chunks) || n_chunks > UINT32_MAX)
            return dcpk_fail(err, DCPK_ERANGE, "more than %u chunks", UINT32_MAX);
    }
    array->n_chunks = (int64_t)n_chunks;
    if (n_chunks == 0)
        return DCPK_OK;
    for (int a = 0; a < array->rank; a++)
        if (!dcpk_mul_u64(n_bytes, (uint64_t)array->chunk[a], &n_bytes) || n_bytes > INT64_MAX)
            return dcpk_fail(err, DCPK_ERANGE, "a chunk has more than 2^63 bytes");
    array->chunk_bytes = n_bytes;
    return DCPK_OK;
}

static dcpk_status read_shape(const struct dcpk_json *doc, struct dcpk_zarr_array *array,
                              struct dcpk_error *err)
{
    int n_chunk_axes = 0;

    if (read_extents(doc, "shape", array->shape, &array->rank, err) ||
        read_extents(doc, "chunks", array->chunk, &n_chunk_axes, err))
        return err->status;
    if (n_chunk_axes != array->rank)
        return dcpk_fail(err, DCPK_EFORMAT, "\"shape\" has %d axes, \"chunks\" %d", array->rank,
                         n_chunk_axes);
    return make_grid(array, err);
}

static dcpk_status read_codec(const struct dcpk_json *doc, struct dcpk_zarr_array *array,
                              struct dcpk_error *err)
{
    const struct dcpk_json *filters = dcpk_json_member(doc, "filters");
    const struct dcpk_json *codec = dcpk_json_member(doc, "compressor");
    const char *id;

    if (!is_null(filters)) {
        if (dcpk_json_kind(filters) != DCPK_JSON_ARRAY)
            return dcpk_fail(err, DCPK_EFORMAT, "\"filters\" is not a list");
        filters = dcpk_json_first(filters);
        if (filters != NULL) {
            id = dcpk_json_string(dcpk_json_member(filters, "id"));
            return dcpk_fail(err, DCPK_EUNSUPPORTED,
                             "filter \"%.40s\": arrays with filters are not read",
                             id != NULL ? id : "?");
        }
    }
    if (is_null(codec))
        return DCPK_OK;
    id = dcpk_json_string(dcpk_json_member(codec, "id"));
    if (id == NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "\"compressor\" has no \"id\"");
    array->codec = dcpk_zarr_codec_find(id);
    if (array->codec == NULL)
        return dcpk_fail_fix(err, DCPK_EUNSUPPORTED, DCPK_FIX_LIST_BUILT,
                             "compressor \"%.40s\" is not built in; write the array with another "
                             "compressor, or with none",
                             id);
    return DCPK_OK;
}

static enum dcpk_zarr_fill read_fill(const struct dcpk_json *doc)
{
    const struct dcpk_json *node = dcpk_json_member(doc, "fill_value");
    int64_t i;
    bool b;

    if (is_null(node))
        return DCPK_ZARR_FILL_NONE;
    if ((dcpk_json_int(node, &i) && i == 0) || (dcpk_json_bool(node, &b) && !b))
        return DCPK_ZARR_FILL_ZERO;
    return DCPK_ZARR_FILL_OTHER;
}

static dcpk_status read_separator(const struct dcpk_json *doc, struct dcpk_zarr_array *array,
                                  struct dcpk_error *err)
{
    const struct dcpk_json *node = dcpk_json_member(doc, "dimension_separator");
    const char *text = dcpk_json_string(node);

    array->separator = '.';
    if (is_null(node))
        return DCPK_OK;
    if (text == NULL || (strcmp(text, ".") != 0 && strcmp(text, "/") != 0))
        return dcpk_fail(err, DCPK_EFORMAT, "\"dimension_separator\" is neither \".\" nor \"/\"");
    array->separator = text[0];
    return DCPK_OK;
}

/* The first field that zarr format 2 does not have. */
static void find_unknown(const struct dcpk_json *doc, struct dcpk_zarr_array *array)
{
    static const char *const known[] = {
        "chunks",  "compressor", "dtype", "fill_value", "dimension_separator",
        "filters", "order",      "shape", "zarr_format"};

    for (const struct dcpk_json *m = dcpk_json_first(doc); m != NULL; m = dcpk_json_next(m)) {
        bool found = false;

        for (size_t i = 0; i < DCPK_COUNT(known); i++)
            found = found || strcmp(known[i], dcpk_json_key(m)) == 0;
        if (found)
            continue;
        snprintf(array->unknown, sizeof array->unknown, "%s", dcpk_json_key(m));
        return;
    }
}

dcpk_status dcpk_zarr_parse(const char *text, size_t n, struct dcpk_zarr_array *array,
                            struct dcpk_error *err)
{
    struct dcpk_zarr_array read = {.rank = 0};
    struct dcpk_json *doc = NULL;

    if (dcpk_json_parse(text, n, &doc, err))
        return err->status;
    if (dcpk_json_kind(doc) != DCPK_JSON_OBJECT)
        (void)dcpk_fail(err, DCPK_EFORMAT, "no JSON object");
    if (err->status == DCPK_OK && check_format(doc, err) == DCPK_OK &&
        array_read_dtype(doc, &read, err) == DCPK_OK && read_shape(doc, &read, err) == DCPK_OK &&
        read_codec(doc, &read, err) == DCPK_OK && read_separator(doc, &read, err) == DCPK_OK) {
        read.fill = read_fill(doc);
        find_unknown(doc, &read);
        *array = read;
    }
    dcpk_json_free(doc);
    return err->status;
}

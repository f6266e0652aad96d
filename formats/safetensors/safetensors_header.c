/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors_header.c - reads the JSON header of a safetensors file. */
#include "formats/safetensors/safetensors_header.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/checked.h"
#include "lib/base/json.h"
#include "lib/base/order.h"

#define METADATA_KEY "__metadata__"

/* FORMAT.md 2. */
static const struct {
    const char *name;
    enum dcpk_dtype dtype;
} dtypes[] = {
    {"BOOL", DCPK_BOOL},
    {"U8", DCPK_U8},
    {"I8", DCPK_I8},
    {"F8_E5M2", DCPK_F8_E5M2},
    {"F8_E4M3", DCPK_F8_E4M3FN},
    {"F8_E8M0", DCPK_F8_E8M0FNU},
    {"I16", DCPK_I16},
    {"U16", DCPK_U16},
    {"F16", DCPK_F16},
    {"BF16", DCPK_BF16},
    {"I32", DCPK_I32},
    {"U32", DCPK_U32},
    {"F32", DCPK_F32},
    {"I64", DCPK_I64},
    {"U64", DCPK_U64},
    {"F64", DCPK_F64},
    {"C64", DCPK_C64},
};

const char *dcpk_safetensors_dtype_name(enum dcpk_dtype dtype)
{
    for (size_t i = 0; i < DCPK_COUNT(dtypes); i++)
        if (dtypes[i].dtype == dtype)
            return dtypes[i].name;
    return NULL;
}

static dcpk_status entry_read_dtype(const struct dcpk_json *node,
                                    struct dcpk_safetensors_entry *entry, struct dcpk_error *err)
{
    const char *name = dcpk_json_string(dcpk_json_member(node, "dtype"));

    if (name == NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "\"dtype\" is missing");
    for (size_t i = 0; i < DCPK_COUNT(dtypes); i++)
        if (strcmp(dtypes[i].name, name) == 0) {
            entry->dtype = dtypes[i].dtype;
            return DCPK_OK;
        }
    return dcpk_fail(err, DCPK_EUNSUPPORTED, "dtype \"%.40s\" is not read", name);
}

/* The members of a list of whole numbers >= 0; *n: how many, at most `most`. */
static dcpk_status read_numbers(const struct dcpk_json *node, const char *key, int64_t *numbers,
                                int most, int *n, struct dcpk_error *err)
{
    const struct dcpk_json *list = dcpk_json_member(node, key);

    if (list == NULL || dcpk_json_kind(list) != DCPK_JSON_ARRAY)
        return dcpk_fail(err, DCPK_EFORMAT, "\"%s\" is not a list", key);
    *n = 0;
    for (list = dcpk_json_first(list); list != NULL; list = dcpk_json_next(list)) {
        if (*n == most)
            return dcpk_fail(err, DCPK_EUNSUPPORTED, "\"%s\" has more than %d numbers", key, most);
        if (!dcpk_json_int(list, &numbers[*n]) || numbers[*n] < 0)
            return dcpk_fail(err, DCPK_EFORMAT, "\"%s\"[%d] is not a whole number from 0 to 2^53",
                             key, *n);
        ++*n;
    }
    return DCPK_OK;
}

static dcpk_status entry_read_shape(const struct dcpk_json *node, struct dcpk_arena *arena,
                                    struct dcpk_safetensors_entry *entry, struct dcpk_error *err)
{
    int64_t shape[DCPK_MAX_RANK], *kept;

    if (read_numbers(node, "shape", shape, DCPK_MAX_RANK, &entry->rank, err))
        return err->status;
    kept = dcpk_arena_array(arena, (size_t)entry->rank, sizeof *kept, err);
    if (kept == NULL)
        return err->status;
    for (int a = 0; a < entry->rank; a++)
        kept[a] = shape[a];
    entry->shape = kept;
    return DCPK_OK;
}

/* The bytes are as many as shape and dtype make. */
static dcpk_status entry_read_place(const struct dcpk_json *node,
                                    struct dcpk_safetensors_entry *entry, struct dcpk_error *err)
{
    int64_t place[2], n_elems;
    uint64_t n_bytes;
    int n;

    if (read_numbers(node, "data_offsets", place, 2, &n, err) ||
        dcpk_shape_count(entry->shape, entry->rank, &n_elems, err))
        return err->status;
    if (n != 2 || place[0] > place[1])
        return dcpk_fail(err, DCPK_EFORMAT, "\"data_offsets\" is not a first byte and an end");
    entry->first_bytes = (uint64_t)place[0];
    entry->end_bytes = (uint64_t)place[1];
    if (!dcpk_mul_u64((uint64_t)n_elems, dcpk_dtype_bytes(entry->dtype), &n_bytes))
        return dcpk_fail(err, DCPK_ERANGE, "more than 2^64 bytes");
    if (n_bytes != entry->end_bytes - entry->first_bytes)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "\"data_offsets\" give it %" PRIu64 " bytes, its shape and dtype %" PRIu64,
                         entry->end_bytes - entry->first_bytes, n_bytes);
    return DCPK_OK;
}

static dcpk_status entry_read(const struct dcpk_json *node, struct dcpk_arena *arena,
                              struct dcpk_safetensors_entry *entry, struct dcpk_error *err)
{
    const char *key = dcpk_json_key(node);

    entry->key = dcpk_arena_strdup(arena, key, err);
    if (entry->key == NULL)
        return err->status;
    if (dcpk_json_kind(node) != DCPK_JSON_OBJECT) {
        dcpk_fail(err, DCPK_EFORMAT, "not an object with dtype, shape and data_offsets");
        goto out;
    }
    if (entry_read_dtype(node, entry, err) || entry_read_shape(node, arena, entry, err) ||
        entry_read_place(node, entry, err))
        goto out;
    return DCPK_OK;
out:
    dcpk_context(err, "tensor '%.200s'", key);
    return err->status;
}

/* Text alone: readers refuse another. */
static dcpk_status read_remarks(const struct dcpk_json *node, struct dcpk_arena *arena,
                                struct dcpk_safetensors_header *header, struct dcpk_error *err)
{
    struct dcpk_safetensors_remark *remarks;
    size_t n = 0;

    if (dcpk_json_kind(node) != DCPK_JSON_OBJECT)
        return dcpk_fail(err, DCPK_EFORMAT, "\"" METADATA_KEY "\" is not an object");
    for (const struct dcpk_json *m = dcpk_json_first(node); m != NULL; m = dcpk_json_next(m), n++)
        if (dcpk_json_string(m) == NULL)
            return dcpk_fail(err, DCPK_EFORMAT, "\"" METADATA_KEY "\": '%.200s' is not a string",
                             dcpk_json_key(m));
    remarks = dcpk_arena_array(arena, n, sizeof *remarks, err);
    if (remarks == NULL)
        return err->status;
    header->remarks = remarks;
    for (node = dcpk_json_first(node); node != NULL; node = dcpk_json_next(node)) {
        struct dcpk_safetensors_remark *remark = &remarks[header->n_remarks++];

        remark->key = dcpk_arena_strdup(arena, dcpk_json_key(node), err);
        remark->text = dcpk_arena_strdup(arena, dcpk_json_string(node), err);
        if (remark->key == NULL || remark->text == NULL)
            return err->status;
    }
    return DCPK_OK;
}

static int compare_entries(const void *a, const void *b)
{
    const struct dcpk_safetensors_entry *x = a, *y = b;
    const int order = DCPK_ORDER_BY_2(x, y, first_bytes, end_bytes);

    return order != 0 ? order : strcmp(x->key, y->key);
}

/* The tensors lie one after the other, and fill the data. */
static dcpk_status safetensors_check_places(const struct dcpk_safetensors_header *header,
                                            uint64_t data_bytes, struct dcpk_error *err)
{
    uint64_t end_bytes = 0;

    for (size_t i = 0; i < header->n_entries; i++) {
        const struct dcpk_safetensors_entry *entry = &header->entries[i];

        if (entry->first_bytes < end_bytes)
            return dcpk_fail(err, DCPK_EFORMAT, "tensors '%.200s' and '%.200s' share bytes",
                             header->entries[i - 1].key, entry->key);
        if (entry->first_bytes > end_bytes)
            return dcpk_fail(err, DCPK_EFORMAT,
                             "%" PRIu64 " bytes before tensor '%.200s' belong to no tensor",
                             entry->first_bytes - end_bytes, entry->key);
        end_bytes = entry->end_bytes;
        if (end_bytes > data_bytes)
            return dcpk_fail(err, DCPK_EFORMAT,
                             "tensor '%.200s' ends at byte %" PRIu64 " of the data, there are "
                             "%" PRIu64 " (is the file truncated?)",
                             entry->key, end_bytes, data_bytes);
    }
    if (end_bytes < data_bytes)
        return dcpk_fail(err, DCPK_EFORMAT, "the last %" PRIu64 " bytes belong to no tensor",
                         data_bytes - end_bytes);
    return DCPK_OK;
}

static dcpk_status header_read(const struct dcpk_json *doc, struct dcpk_arena *arena,
                               struct dcpk_safetensors_header *header, struct dcpk_error *err)
{
    struct dcpk_safetensors_entry *entries;
    size_t n = 0;

    if (dcpk_json_kind(doc) != DCPK_JSON_OBJECT)
        return dcpk_fail(err, DCPK_EFORMAT, "not a JSON object");
    for (const struct dcpk_json *m = dcpk_json_first(doc); m != NULL; m = dcpk_json_next(m))
        n++;
    entries = dcpk_arena_array(arena, n, sizeof *entries, err);
    if (entries == NULL)
        return err->status;
    n = 0;
    for (const struct dcpk_json *m = dcpk_json_first(doc); m != NULL; m = dcpk_json_next(m)) {
        if (strcmp(dcpk_json_key(m), METADATA_KEY) == 0) {
            if (read_remarks(m, arena, header, err))
                return err->status;
        } else if (entry_read(m, arena, &entries[n++], err)) {
            return err->status;
        }
    }
    qsort(entries, n, sizeof *entries, compare_entries);
    header->entries = entries;
    header->n_entries = n;
    return DCPK_OK;
}

dcpk_status dcpk_safetensors_parse(const char *text, size_t n, uint64_t data_bytes,
                                   struct dcpk_arena *arena, struct dcpk_safetensors_header *header,
                                   struct dcpk_error *err)
{
    struct dcpk_safetensors_header read = {0};
    struct dcpk_json *doc = NULL;

    if (n == 0 || text[0] != '{')
        return dcpk_fail(err, DCPK_EFORMAT, "the header does not begin with '{'");
    if (dcpk_json_parse(text, n, &doc, err) || header_read(doc, arena, &read, err) ||
        safetensors_check_places(&read, data_bytes, err))
        goto out;
    *header = read;
out:
    dcpk_json_free(doc);
    return err->status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* item_write.c - tensors and values as torch.save archives. */
#include "formats/torch/item_priv.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/torch/pickle.h"
#include "lib/base/alloc.h"
#include "lib/base/checked.h"
#include "lib/base/cursor.h"

#define AROUND_BYTES 2048u /* most items have this much around their data */

/* data.pkl of a tensor: the opcodes and memo numbers of CPython's protocol 2, as torch.save leaves
 * them. */
struct tensor_pickle {
    struct dcpk_bytes *bytes;
    uint8_t n_memo; /* at most 13 */
};

static void put_memo(struct tensor_pickle *p)
{
    dcpk_bytes_u8(p->bytes, 'q'); /* BINPUT */
    dcpk_bytes_u8(p->bytes, p->n_memo++);
}

static void put_global(struct tensor_pickle *p, const char *module, const char *name)
{
    dcpk_bytes_u8(p->bytes, 'c'); /* GLOBAL */
    dcpk_bytes_text(p->bytes, module);
    dcpk_bytes_u8(p->bytes, '\n');
    dcpk_bytes_text(p->bytes, name);
    dcpk_bytes_u8(p->bytes, '\n');
    put_memo(p);
}

static void put_text(struct tensor_pickle *p, const char *text)
{
    dcpk_bytes_u8(p->bytes, 'X'); /* BINUNICODE */
    dcpk_bytes_u32(p->bytes, (uint32_t)strlen(text));
    dcpk_bytes_text(p->bytes, text);
    put_memo(p);
}

static void put_int(struct dcpk_bytes *b, int64_t v)
{
    int n = 1;

    if (v >= 0 && v <= UINT8_MAX) {
        dcpk_bytes_u8(b, 'K'); /* BININT1 */
        dcpk_bytes_u8(b, (uint8_t)v);
    } else if (v >= 0 && v <= UINT16_MAX) {
        dcpk_bytes_u8(b, 'M'); /* BININT2 */
        dcpk_bytes_u16(b, (uint16_t)v);
    } else if (v >= INT32_MIN && v <= INT32_MAX) {
        dcpk_bytes_u8(b, 'J'); /* BININT */
        dcpk_bytes_u32(b, (uint32_t)v);
    } else {
        while (n < 8 && v >> (8 * n - 1) != 0) /* positive here: sizes */
            n++;
        dcpk_bytes_u8(b, 0x8a); /* LONG1 */
        dcpk_bytes_u8(b, (uint8_t)n);
        for (int i = 0; i < n; i++)
            dcpk_bytes_u8(b, (uint8_t)(v >> (8 * i)));
    }
}

static void put_ints(struct tensor_pickle *p, const int64_t *numbers, int n)
{
    static const uint8_t closing[] = {DCPK_OP_EMPTY_TUPLE, DCPK_OP_TUPLE1, DCPK_OP_TUPLE2,
                                      DCPK_OP_TUPLE3};

    if (n > 3)
        dcpk_bytes_u8(p->bytes, DCPK_OP_MARK);
    for (int i = 0; i < n; i++)
        put_int(p->bytes, numbers[i]);
    dcpk_bytes_u8(p->bytes, n > 3 ? (uint8_t)DCPK_OP_TUPLE : closing[n]);
    if (n > 0)
        put_memo(p);
}

/* Strides of a contiguous tensor as torch reports them: an empty axis counts as one. */
static void contiguous_strides(const int64_t *shape, int rank, int64_t *strides)
{
    int64_t next = 1;

    for (int i = rank - 1; i >= 0; i--) {
        strides[i] = next;
        if (shape[i] > 1 && !dcpk_mul_i64(next, shape[i], &next))
            next = INT64_MAX; /* only for tensors without elements: no step goes that far */
    }
}

/* The facts that an item's sizes follow from. */
struct tensor_form {
    enum dcpk_dtype dtype;
    const int64_t *shape;
    int rank;
    int64_t n_elems;
    uint64_t n_bytes;
};

/* The names of a storage in a pickle: a class of torch where there is one of the dtype. */
struct storage_names {
    bool is_untyped;
    const char *rebuild, *module, *name;
};
static struct storage_names name_storage(enum dcpk_dtype dtype)
{
    const char *name = dcpk_storage_class_name(dtype);

    if (name == NULL)
        return (struct storage_names){true, "_rebuild_tensor_v3", "torch.storage",
                                      "UntypedStorage"};
    return (struct storage_names){false, "_rebuild_tensor_v2", "torch", name};
}

/* numel of the persistent id: elements, or bytes of an UntypedStorage. */
static int64_t storage_numel(const struct tensor_form *form)
{
    return dcpk_storage_class_name(form->dtype) != NULL ? form->n_elems : (int64_t)form->n_bytes;
}

static void put_tensor_pickle(struct dcpk_bytes *out, const struct tensor_form *form)
{
    const struct storage_names names = name_storage(form->dtype);
    struct tensor_pickle pickle = {.bytes = out}, *p = &pickle;
    int64_t strides[DCPK_MAX_RANK];

    contiguous_strides(form->shape, form->rank, strides);
    dcpk_bytes_put(p->bytes, "\x80\x02", 2);
    put_global(p, "torch._utils", names.rebuild);
    dcpk_bytes_put(p->bytes, "((", 2);
    put_text(p, "storage");
    put_global(p, names.module, names.name);
    put_text(p, "0");
    put_text(p, "cpu");
    put_int(p->bytes, storage_numel(form));
    dcpk_bytes_u8(p->bytes, DCPK_OP_TUPLE);
    put_memo(p);
    dcpk_bytes_u8(p->bytes, DCPK_OP_BINPERSID);
    put_int(p->bytes, 0); /* storage offset */
    put_ints(p, form->shape, form->rank);
    put_ints(p, strides, form->rank);
    dcpk_bytes_u8(p->bytes, DCPK_OP_NEWFALSE); /* requires_grad */
    put_global(p, "collections", "OrderedDict");
    dcpk_bytes_put(p->bytes, ")R", 2);
    put_memo(p);
    if (names.is_untyped)
        put_global(p, "torch", dcpk_dtype_name(form->dtype));
    dcpk_bytes_u8(p->bytes, DCPK_OP_TUPLE);
    put_memo(p);
    dcpk_bytes_u8(p->bytes, DCPK_OP_REDUCE);
    put_memo(p);
    dcpk_bytes_u8(p->bytes, DCPK_OP_STOP);
}

/* The records before the storages: torch/serialization.py@2.11.0 _save. */
static dcpk_status add_leading(struct dcpk_zip_writer *zip, const struct dcpk_bytes *pickle,
                               struct dcpk_error *err)
{
    if (dcpk_bytes_status(pickle, err) ||
        dcpk_zip_writer_add(zip, "data.pkl", pickle->data, pickle->n_bytes, err) ||
        dcpk_zip_writer_add(zip, ".format_version", "1", 1, err) ||
        dcpk_zip_writer_add(zip, ".storage_alignment", "64", 2, err))
        return err->status;
    return dcpk_zip_writer_add(zip, "byteorder", "little", 6, err);
}

static dcpk_status add_trailing(struct dcpk_zip_writer *zip, struct dcpk_error *err)
{
    if (dcpk_zip_writer_add(zip, "version", "3\n", 2, err))
        return err->status;
    return dcpk_zip_writer_finish(zip, err);
}

/* All bytes of a tensor's item but its data, which belongs at split_bytes of `out`. */
static dcpk_status put_around(const struct tensor_form *form, uint32_t crc32,
                              struct dcpk_bytes *out, size_t *split_bytes, struct dcpk_error *err)
{
    struct dcpk_bytes pickle = {.data = NULL};
    struct dcpk_zip_writer zip;

    (void)dcpk_bytes_reserve(out, AROUND_BYTES); /* a failure shows at the first append */
    dcpk_zip_writer_init(&zip, out, "archive");
    put_tensor_pickle(&pickle, form);
    if (add_leading(&zip, &pickle, err) == DCPK_OK &&
        dcpk_zip_writer_add_external(&zip, "data/0", form->n_bytes, crc32, split_bytes, err) ==
            DCPK_OK)
        (void)add_trailing(&zip, err);
    dcpk_zip_writer_release(&zip);
    dcpk_bytes_release(&pickle);
    return err->status;
}

static dcpk_status form_describe(const struct dcpk_item_form *form, struct tensor_form *sized,
                                 struct dcpk_error *err)
{
    int64_t n_elems;
    uint64_t n_bytes;

    if (dcpk_shape_count(form->shape, form->rank, &n_elems, err))
        return err->status;
    if (!dcpk_mul_u64((uint64_t)n_elems, dcpk_dtype_bytes(form->dtype), &n_bytes) ||
        n_bytes > INT64_MAX)
        return dcpk_fail(err, DCPK_ERANGE, "%" PRId64 " elements of %s pass 2^63 bytes", n_elems,
                         dcpk_dtype_name(form->dtype));
    *sized = (struct tensor_form){form->dtype, form->shape, form->rank, n_elems, n_bytes};
    return DCPK_OK;
}

dcpk_status dcpk_item_put_pickle(const struct dcpk_item_form *form, struct dcpk_bytes *out,
                                 struct dcpk_error *err)
{
    struct tensor_form sized;

    if (form_describe(form, &sized, err))
        return err->status;
    put_tensor_pickle(out, &sized);
    return dcpk_bytes_status(out, err);
}

dcpk_status dcpk_item_measure(const struct dcpk_item_form *form, struct dcpk_item_sizes *sizes,
                              struct dcpk_error *err)
{
    struct dcpk_bytes around = {.data = NULL};
    struct tensor_form sized;
    size_t split_bytes = 0;

    if (form_describe(form, &sized, err) == DCPK_OK &&
        put_around(&sized, 0, &around, &split_bytes, err) == DCPK_OK)
        *sizes = (struct dcpk_item_sizes){.lead_bytes = (uint32_t)split_bytes,
                                          .tail_bytes = (uint32_t)(around.n_bytes - split_bytes),
                                          .data_bytes = sized.n_bytes};
    dcpk_bytes_release(&around);
    return err->status;
}

dcpk_status dcpk_item_frame(const struct dcpk_item_form *form, uint32_t crc32, uint8_t *lead,
                            uint8_t *tail, struct dcpk_error *err)
{
    struct dcpk_bytes around = {.data = NULL};
    struct tensor_form sized;
    size_t split_bytes = 0;

    if (form_describe(form, &sized, err) == DCPK_OK &&
        put_around(&sized, crc32, &around, &split_bytes, err) == DCPK_OK) {
        memcpy(lead, around.data, split_bytes);
        memcpy(tail, around.data + split_bytes, around.n_bytes - split_bytes);
    }
    dcpk_bytes_release(&around);
    return err->status;
}

/* Tensors met while a value is pickled, each kind in the order of its storage keys. */
struct storages {
    const struct dcpk_value_tensor **tensors; /* with bytes */
    size_t n, capacity;
    const struct dcpk_value_tensor **outside; /* those that the caller writes */
    size_t n_outside, outside_capacity;
    size_t n_first; /* keys below are of those */
};

/* The next storage key of a tensor. */
static dcpk_status take_number(struct storages *storages, const struct dcpk_value_tensor *tensor,
                               size_t *number, struct dcpk_error *err)
{
    if (tensor->data == NULL && storages->n_outside < storages->n_first) {
        if (dcpk_grow(&storages->outside, &storages->outside_capacity, storages->n_outside,
                      sizeof(struct dcpk_value_tensor *), err))
            return err->status;
        *number = storages->n_outside;
        storages->outside[storages->n_outside++] = tensor;
        return DCPK_OK;
    }
    if (dcpk_grow(&storages->tensors, &storages->capacity, storages->n,
                  sizeof(struct dcpk_value_tensor *), err))
        return err->status;
    *number = storages->n_first + storages->n;
    storages->tensors[storages->n++] = tensor;
    return DCPK_OK;
}

static void put_size(struct dcpk_pickle_writer *w, const int64_t *numbers, int n)
{
    dcpk_pickle_put_op(w, DCPK_OP_MARK);
    for (int i = 0; i < n; i++)
        dcpk_pickle_put_int(w, numbers[i]);
    dcpk_pickle_put_op(w, DCPK_OP_TUPLE);
}

static void put_string(struct dcpk_pickle_writer *w, const char *text)
{
    dcpk_pickle_put_text(w, text, strlen(text));
}

/* A tensor inside a value: the same call as in put_tensor_pickle, with the next storage key. */
static dcpk_status put_inner_tensor(void *context, struct dcpk_pickle_writer *w,
                                    const struct dcpk_value_tensor *tensor, struct dcpk_error *err)
{
    struct storages *storages = context;
    const struct storage_names names = name_storage(tensor->dtype);
    int64_t strides[DCPK_MAX_RANK];
    struct tensor_form form;
    size_t number;
    char key[24];

    if (form_describe(&(struct dcpk_item_form){tensor->dtype, tensor->rank, tensor->shape}, &form,
                      err) ||
        take_number(storages, tensor, &number, err))
        return err->status;
    snprintf(key, sizeof key, "%zu", number);
    contiguous_strides(form.shape, form.rank, strides);
    dcpk_pickle_put_global(w, "torch._utils", names.rebuild);
    dcpk_pickle_put_op(w, DCPK_OP_MARK);
    dcpk_pickle_put_op(w, DCPK_OP_MARK);
    put_string(w, "storage");
    dcpk_pickle_put_global(w, names.module, names.name);
    put_string(w, key);
    put_string(w, "cpu");
    dcpk_pickle_put_int(w, storage_numel(&form));
    dcpk_pickle_put_op(w, DCPK_OP_TUPLE);
    dcpk_pickle_put_op(w, DCPK_OP_BINPERSID);
    dcpk_pickle_put_int(w, 0);
    put_size(w, form.shape, form.rank);
    put_size(w, strides, form.rank);
    dcpk_pickle_put_op(w, DCPK_OP_NEWFALSE);
    dcpk_pickle_put_global(w, "collections", "OrderedDict");
    dcpk_pickle_put_op(w, DCPK_OP_EMPTY_TUPLE);
    dcpk_pickle_put_op(w, DCPK_OP_REDUCE);
    if (names.is_untyped)
        dcpk_pickle_put_global(w, "torch", dcpk_dtype_name(form.dtype));
    dcpk_pickle_put_op(w, DCPK_OP_TUPLE);
    dcpk_pickle_put_op(w, DCPK_OP_REDUCE);
    return DCPK_OK;
}

/* The records of the storages: those with bytes, then those that the caller writes, with the places
 * of their parts. */
static dcpk_status add_storages(struct dcpk_zip_writer *zip, const struct storages *storages,
                                const uint32_t *crcs, struct dcpk_item_gap *gaps,
                                struct dcpk_error *err)
{
    char name[32];

    for (size_t i = 0; i < storages->n; i++) {
        snprintf(name, sizeof name, "data/%zu", storages->n_first + i);
        if (dcpk_zip_writer_add(zip, name, storages->tensors[i]->data,
                                (size_t)storages->tensors[i]->n_bytes, err))
            return err->status;
    }
    for (size_t i = 0; i < storages->n_outside; i++) {
        snprintf(name, sizeof name, "data/%zu", i);
        gaps[i] = (struct dcpk_item_gap){.lead = zip->out->n_bytes - zip->start_bytes,
                                         .tensor = storages->outside[i]};
        if (dcpk_zip_writer_add_external(zip, name, gaps[i].tensor->n_bytes,
                                         crcs == NULL ? 0 : crcs[i], &gaps[i].data, err))
            return err->status;
        gaps[i].data -= zip->start_bytes;
        gaps[i].end = zip->out->n_bytes - zip->start_bytes;
    }
    return DCPK_OK;
}

dcpk_status dcpk_item_encode_around(const struct dcpk_value *value,
                                    const struct dcpk_item_style *style, const uint32_t *crcs,
                                    struct dcpk_item_gap *gaps, struct dcpk_bytes *out,
                                    struct dcpk_error *err)
{
    struct storages storages = {.n_first = style->n_outside};
    struct dcpk_bytes pickle = {.data = NULL};
    struct dcpk_zip_writer zip;

    dcpk_zip_writer_init(&zip, out, style->prefix);
    if (dcpk_pickle_write(value, style->protocol, put_inner_tensor, &storages, &pickle, err) ==
            DCPK_OK &&
        add_leading(&zip, &pickle, err) == DCPK_OK &&
        add_storages(&zip, &storages, crcs, gaps, err) == DCPK_OK)
        (void)add_trailing(&zip, err);
    assert(err->status != DCPK_OK || storages.n_outside == style->n_outside);
    dcpk_zip_writer_release(&zip);
    dcpk_bytes_release(&pickle);
    dcpk_free(storages.tensors);
    dcpk_free(storages.outside);
    return err->status;
}

dcpk_status dcpk_item_encode(const struct dcpk_value *value, const char *prefix, int protocol,
                             struct dcpk_bytes *out, struct dcpk_error *err)
{
    const struct dcpk_item_style style = {.prefix = prefix, .protocol = protocol};

    return dcpk_item_encode_around(value, &style, NULL, NULL, out, err);
}

dcpk_status dcpk_item_frame_outside(const char *prefix, const struct dcpk_item_outside *record,
                                    uint32_t crc32, uint8_t *lead, uint8_t *tail,
                                    struct dcpk_error *err)
{
    struct dcpk_bytes around = {.data = NULL};
    struct dcpk_zip_writer zip;
    size_t split_bytes = 0;
    char name[32];

    dcpk_zip_writer_init(&zip, &around, prefix);
    zip.external_bytes = record->offset_bytes;
    snprintf(name, sizeof name, "data/%zu", record->number);
    if (dcpk_zip_writer_add_external(&zip, name, record->n_bytes, crc32, &split_bytes, err) ==
        DCPK_OK) {
        memcpy(lead, around.data, split_bytes);
        memcpy(tail, around.data + split_bytes, around.n_bytes - split_bytes);
    }
    dcpk_zip_writer_release(&zip);
    dcpk_bytes_release(&around);
    return err->status;
}

uint32_t dcpk_item_frame_crc32(const uint8_t *tail)
{
    return dcpk_load_u32le(tail + sizeof(uint32_t));
}

dcpk_status dcpk_item_put_file(struct dcpk_output *out, const char *prefix,
                               const struct dcpk_value *value, struct dcpk_error *err)
{
    const char *name = dcpk_arena_printf(out->arena, err, "%s.pt", prefix);
    struct dcpk_bytes bytes = {.data = NULL};

    if (name == NULL)
        return err->status;
    if (dcpk_item_encode(value, prefix, out->pickle_protocol, &bytes, err))
        dcpk_context(err, "encoding '%s'", name);
    else
        (void)dcpk_output_put_small_file(out, name, bytes.data, bytes.n_bytes, err);
    dcpk_bytes_release(&bytes);
    return err->status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* item_read.c - torch.save archives of one tensor: where its elements lie. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/torch/item_priv.h"
#include "formats/torch/pickle.h"
#include "lib/base/checked.h"

/* ---- classes of storages ---- */

/* torch/storage.py@2.11.0 _dtype_to_storage_type_map; its quantised types are not read. */
static const char *const names[DCPK_N_DTYPES] = {
    [DCPK_F64] = "DoubleStorage",
    [DCPK_F32] = "FloatStorage",
    [DCPK_F16] = "HalfStorage",
    [DCPK_BF16] = "BFloat16Storage",
    [DCPK_I64] = "LongStorage",
    [DCPK_I32] = "IntStorage",
    [DCPK_I16] = "ShortStorage",
    [DCPK_I8] = "CharStorage",
    [DCPK_U8] = "ByteStorage",
    [DCPK_BOOL] = "BoolStorage",
    [DCPK_C128] = "ComplexDoubleStorage",
    [DCPK_C64] = "ComplexFloatStorage",
};

const char *dcpk_storage_class_name(enum dcpk_dtype dtype)
{
    return names[dtype];
}

/* The dtype of a storage class of module `torch`, or DCPK_DTYPE_NONE. */
static enum dcpk_dtype storage_class_dtype(const char *name)
{
    for (int i = 0; i < DCPK_N_DTYPES; i++)
        if (names[i] != NULL && strcmp(names[i], name) == 0)
            return (enum dcpk_dtype)i;
    return DCPK_DTYPE_NONE;
}

/* ---- items ---- */

#define MAX_TENSOR_MEMBERS      64u
#define MAX_TENSOR_PICKLE_BYTES ((uint64_t)64 << 10) /* an ordinary one has 150 */
#define MAX_SMALL_BYTES         64u                  /* byteorder, version */
#define MAX_KEY_BYTES           20u                  /* decimal storage keys */

const char dcpk_storage_mark[] = "torch storage";

bool dcpk_strides_are_row_major(const int64_t *shape, const int64_t *stride_elems, int rank)
{
    int64_t next = 1;
    bool is_row_major = true;

    for (int i = rank - 1; i >= 0; i--) {
        if (shape[i] == 0)
            return true;
        if (shape[i] == 1)
            continue;
        is_row_major = is_row_major && stride_elems[i] == next;
        if (!dcpk_mul_i64(next, shape[i], &next))
            is_row_major = false;
    }
    return is_row_major;
}

/* ('storage', class, key, location, numel): torch/serialization.py@2.11.0 persistent_id. context:
 * counts them. */
static dcpk_status take_storage(void *context, struct dcpk_arena *arena,
                                const struct dcpk_value *pid, const struct dcpk_value **value,
                                struct dcpk_error *err)
{
    size_t *n_storages = context;
    const struct dcpk_value *cls = dcpk_value_at(pid, 1), *key = dcpk_value_at(pid, 2);
    struct dcpk_value *v;
    struct dcpk_value_object *object;
    int64_t numel;

    if (!dcpk_value_is_str(dcpk_value_at(pid, 0), "storage") || cls == NULL ||
        cls->kind != DCPK_V_GLOBAL || dcpk_value_as_str(key) == NULL || key->n == 0 ||
        key->n > MAX_KEY_BYTES || strspn(key->as.str, "0123456789") != key->n ||
        dcpk_value_as_str(dcpk_value_at(pid, 3)) == NULL ||
        !dcpk_value_as_int(dcpk_value_at(pid, 4), &numel) || numel < 0 || pid->n != 5)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "a persistent id that is not ('storage', class, key, location, numel)");
    v = dcpk_arena_alloc(arena, sizeof *v, err);
    object = dcpk_arena_alloc(arena, sizeof *object, err);
    if (v == NULL || object == NULL)
        return err->status;
    *object = (struct dcpk_value_object){.module = "", .name = dcpk_storage_mark, .args = pid};
    v->kind = DCPK_V_OBJECT;
    v->as.object = object;
    *value = v;
    ++*n_storages;
    return DCPK_OK;
}

/* Describes a value for messages. */
static const char *describe_value(const struct dcpk_value *v, char *text, size_t n)
{
    if (v != NULL && v->kind == DCPK_V_OBJECT)
        snprintf(text, n, "a %s.%s", v->as.object->module, v->as.object->name);
    else
        snprintf(text, n, "a plain value");
    return text;
}

/* The storage of a tensor: dtype (NONE for an untyped one) and element count, from its persistent
 * id. */
static dcpk_status read_storage(const struct dcpk_value *v, struct dcpk_rebuilt *r,
                                struct dcpk_error *err)
{
    const struct dcpk_value *pid, *cls;

    if (v == NULL || v->kind != DCPK_V_OBJECT || v->as.object->name != dcpk_storage_mark)
        return dcpk_fail(err, DCPK_EFORMAT, "a tensor without a storage");
    pid = v->as.object->args;
    cls = dcpk_value_at(pid, 1);
    r->key = dcpk_value_as_str(dcpk_value_at(pid, 2));
    dcpk_value_as_int(dcpk_value_at(pid, 4), &r->storage_elems);
    if (strcmp(cls->as.global.module, "torch") == 0)
        r->dtype = storage_class_dtype(cls->as.global.name);
    else if (strcmp(cls->as.global.module, "torch.storage") == 0 &&
             strcmp(cls->as.global.name, "UntypedStorage") == 0)
        return DCPK_OK;
    if (r->dtype == DCPK_DTYPE_NONE)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "a storage of class %s.%s", cls->as.global.module,
                         cls->as.global.name);
    return DCPK_OK;
}

/* The dtype argument of _rebuild_tensor_v3; its storage counts bytes. */
static dcpk_status rebuilt_read_dtype(const struct dcpk_value *v, struct dcpk_rebuilt *r,
                                      struct dcpk_error *err)
{
    const bool is_torch =
        v != NULL && v->kind == DCPK_V_GLOBAL && strcmp(v->as.global.module, "torch") == 0;

    if (r->dtype != DCPK_DTYPE_NONE || !is_torch)
        return dcpk_fail(err, DCPK_EFORMAT, "a tensor of an untyped storage without a dtype");
    r->dtype = dcpk_dtype_from_name(v->as.global.name);
    if (r->dtype == DCPK_DTYPE_NONE)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "dtype torch.%s", v->as.global.name);
    if ((uint64_t)r->storage_elems % dcpk_dtype_bytes(r->dtype) != 0)
        return dcpk_fail(err, DCPK_EFORMAT, "a storage of %" PRId64 " bytes for torch.%s",
                         r->storage_elems, v->as.global.name);
    r->storage_elems /= (int64_t)dcpk_dtype_bytes(r->dtype);
    return DCPK_OK;
}

static dcpk_status read_shape(const struct dcpk_value *size, const struct dcpk_value *stride,
                              struct dcpk_rebuilt *r, struct dcpk_error *err)
{
    if (size == NULL || size->kind != DCPK_V_TUPLE || stride == NULL ||
        stride->kind != DCPK_V_TUPLE || size->n != stride->n)
        return dcpk_fail(err, DCPK_EFORMAT, "size and stride of a tensor are not equal tuples");
    if (size->n > DCPK_MAX_RANK)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "a tensor of rank %zu; the limit is %d", size->n,
                         DCPK_MAX_RANK);
    r->rank = (int)size->n;
    for (size_t i = 0; i < size->n; i++)
        if (!dcpk_value_as_int(dcpk_value_at(size, i), &r->shape[i]) || r->shape[i] < 0 ||
            !dcpk_value_as_int(dcpk_value_at(stride, i), &r->stride_elems[i]) ||
            r->stride_elems[i] < 0)
            return dcpk_fail(err, DCPK_EFORMAT, "axis %zu of a tensor has no valid size and stride",
                             i);
        else if (r->shape[i] <= 1)
            r->stride_elems[i] = 0; /* no step goes there, and the file may hold any number */
    return DCPK_OK;
}

/* Every element lies in the storage. */
static dcpk_status check_bounds(struct dcpk_rebuilt *r, struct dcpk_error *err)
{
    int64_t last = r->offset_elems, n_elems, reach;

    if (dcpk_shape_count(r->shape, r->rank, &n_elems, err))
        return err->status;
    if (n_elems == 0)
        memset(r->stride_elems, 0, sizeof r->stride_elems);
    for (int i = 0; i < r->rank; i++)
        if (n_elems > 0 && (!dcpk_mul_i64(r->shape[i] - 1, r->stride_elems[i], &reach) ||
                            !dcpk_add_i64(last, reach, &last)))
            return dcpk_fail(err, DCPK_ERANGE, "axis %d of a tensor strides past 2^63", i);
    if (last > r->storage_elems - (n_elems > 0))
        return dcpk_fail(err, DCPK_EFORMAT,
                         "element %" PRId64 " of a tensor lies outside its storage of %" PRId64
                         " elements",
                         last, r->storage_elems);
    return DCPK_OK;
}

/* Nothing, a flag, an empty dict or a dtype: no call, no hook, no metadata such as {"neg":
 * True}. */
static bool is_inert(const struct dcpk_value *v)
{
    return v->kind == DCPK_V_NONE || v->kind == DCPK_V_BOOL || v->kind == DCPK_V_INT ||
           (v->kind == DCPK_V_DICT && v->n == 0) ||
           (v->kind == DCPK_V_GLOBAL &&
            dcpk_pickle_is_known(v->as.global.module, v->as.global.name));
}

/*
 * The call describes the whole tensor: torch would do nothing else to it (a state is set_(),
 * metadata negates it), and nothing hides in arguments from `at` on, which are not looked at any
 * further.
 */
static dcpk_status check_rest(const struct dcpk_value_object *call, size_t at, size_t most,
                              struct dcpk_error *err)
{
    const struct dcpk_value *args = call->args;

    if (call->state != NULL || call->n_items > 0 || call->n_pairs > 0)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "a tensor that is changed after its %s",
                         call->name);
    if (args->n > most)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "%s with %zu arguments, at most %zu are known",
                         call->name, args->n, most);
    for (size_t i = at; i < args->n; i++)
        if (!is_inert(args->as.items[i]))
            return dcpk_fail(
                err, DCPK_EUNSUPPORTED,
                "argument %zu of %s is more than None, a flag, an empty dict or a dtype", i,
                call->name);
    return DCPK_OK;
}

/* _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks[, metadata]); v3 has the
 * dtype before the metadata. torch/_utils.py@2.11.0 */
static dcpk_status read_call(const struct dcpk_value_object *call, bool is_v3,
                             struct dcpk_rebuilt *r, struct dcpk_error *err)
{
    const struct dcpk_value *args = call->args;

    memset(r, 0, sizeof *r);
    if (read_storage(dcpk_value_at(args, 0), r, err) ||
        (is_v3 && rebuilt_read_dtype(dcpk_value_at(args, 6), r, err)))
        return err->status;
    if (r->dtype == DCPK_DTYPE_NONE)
        return dcpk_fail(err, DCPK_EFORMAT, "a tensor of an untyped storage without a dtype");
    if (!dcpk_value_as_int(dcpk_value_at(args, 1), &r->offset_elems) || r->offset_elems < 0)
        return dcpk_fail(err, DCPK_EFORMAT, "a tensor without a storage offset");
    if (read_shape(dcpk_value_at(args, 2), dcpk_value_at(args, 3), r, err))
        return err->status;
    return check_bounds(r, err);
}

/* The attributes in args are a dict of names and flags or integers: none sets the tensor's data. */
static bool has_flags_alone(const struct dcpk_value *args)
{
    const struct dcpk_value *attributes = args->as.items[3];

    for (size_t i = 0; attributes->kind == DCPK_V_DICT && i < attributes->n; i++)
        if (attributes->as.pairs[i].value->kind != DCPK_V_BOOL &&
            attributes->as.pairs[i].value->kind != DCPK_V_INT)
            return false;
    return attributes->kind == DCPK_V_DICT;
}

/*
 * The call in _rebuild_from_type_v2(_rebuild_tensor_v2, torch.Tensor, (..), attributes): a plain
 * tensor with attributes, which are nothing of it. NULL: it is none. *call: room for it.
 * torch/_tensor.py@2.11.0
 */
static const struct dcpk_value_object *attributed_call(const struct dcpk_value *v,
                                                       struct dcpk_value_object *call)
{
    const struct dcpk_value *function, *type, *args;

    if (!dcpk_value_is_object(v, "torch._tensor", "_rebuild_from_type_v2") ||
        v->as.object->state != NULL || v->as.object->args->n != 4)
        return NULL;
    function = v->as.object->args->as.items[0];
    type = v->as.object->args->as.items[1];
    args = v->as.object->args->as.items[2];
    if (function->kind != DCPK_V_GLOBAL || type->kind != DCPK_V_GLOBAL ||
        args->kind != DCPK_V_TUPLE || strcmp(function->as.global.module, "torch._utils") != 0 ||
        strcmp(function->as.global.name, "_rebuild_tensor_v2") != 0 ||
        strcmp(type->as.global.module, "torch") != 0 ||
        strcmp(type->as.global.name, "Tensor") != 0 || !has_flags_alone(v->as.object->args))
        return NULL;
    *call = (struct dcpk_value_object){.module = function->as.global.module,
                                       .name = function->as.global.name,
                                       .is_reduce = true,
                                       .args = args};
    return call;
}

/* Calls of torch._utils; a _rebuild_parameter may be around them. */
dcpk_status dcpk_rebuilt_read(const struct dcpk_value *v, bool *is_tensor, struct dcpk_rebuilt *r,
                              struct dcpk_error *err)
{
    const struct dcpk_value *outer = v;
    const bool is_parameter = dcpk_value_is_object(v, "torch._utils", "_rebuild_parameter");
    struct dcpk_value_object room;
    const struct dcpk_value_object *call;
    bool is_v3;

    if (is_parameter)
        v = dcpk_value_at(v->as.object->args, 0);
    call = attributed_call(v, &room);
    if (call != NULL && !is_parameter) {
        *is_tensor = true;
        if (check_rest(call, 4, 7, err))
            return err->status;
        return read_call(call, false, r, err);
    }
    is_v3 = dcpk_value_is_object(v, "torch._utils", "_rebuild_tensor_v3");
    *is_tensor = is_v3 || dcpk_value_is_object(v, "torch._utils", "_rebuild_tensor_v2");
    if (!*is_tensor)
        return DCPK_OK;
    if ((is_parameter && check_rest(outer->as.object, 1, 3, err)) ||
        check_rest(v->as.object, 4, is_v3 ? 8 : 7, err))
        return err->status;
    return read_call(v->as.object, is_v3, r, err);
}

dcpk_status dcpk_rebuilt_find_storage(const struct dcpk_zip *zip, const struct dcpk_rebuilt *r,
                                      const struct dcpk_zip_member **member, struct dcpk_error *err)
{
    char name[8 + MAX_KEY_BYTES];
    uint64_t n_bytes;

    memcpy(name, "data/", 5); /* a key has at most MAX_KEY_BYTES: take_storage */
    memcpy(name + 5, r->key, strlen(r->key) + 1);
    *member = dcpk_zip_find(zip, name);
    if (*member == NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "no record '%s' for a tensor's storage", name);
    if (!dcpk_mul_u64((uint64_t)r->storage_elems, dcpk_dtype_bytes(r->dtype), &n_bytes) ||
        n_bytes != (*member)->n_bytes)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "record '%s' has %" PRIu64 " bytes, its storage has %" PRId64
                         " elements of %s",
                         name, (*member)->n_bytes, r->storage_elems, dcpk_dtype_name(r->dtype));
    return DCPK_OK;
}

/* byteorder is absent (old: little) or "little"; version is there. torch/serialization.py@2.11.0
 * _load. With constants.pkl torch.load takes it for TorchScript, whose code it runs
 * (_is_torchscript_zip). */
static dcpk_status check_small_records(struct dcpk_zip *zip, struct dcpk_error *err)
{
    const struct dcpk_zip_member *order = dcpk_zip_find(zip, "byteorder");
    const uint8_t *data;

    if (dcpk_zip_find(zip, "constants.pkl") != NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "a TorchScript archive (it has a constants.pkl): its code is not data");
    if (dcpk_zip_find(zip, "version") == NULL && dcpk_zip_find(zip, ".data/version") == NULL)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "an archive without a version record: not torch.save's");
    if (order == NULL)
        return DCPK_OK;
    if (dcpk_zip_borrow(zip, order, MAX_SMALL_BYTES, &data, err))
        return err->status;
    if (order->n_bytes == 3 && memcmp(data, "big", 3) == 0)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "a big-endian item");
    if (order->n_bytes != 6 || memcmp(data, "little", 6) != 0)
        return dcpk_fail(err, DCPK_EFORMAT, "byteorder is neither 'little' nor 'big'");
    return DCPK_OK;
}

/* The bytes of data.pkl, borrowed from the zip. */
static dcpk_status find_pickle(struct dcpk_zip *zip, uint64_t limit_bytes,
                               const struct dcpk_zip_member **member, const uint8_t **data,
                               struct dcpk_error *err)
{
    if (check_small_records(zip, err))
        return err->status;
    *member = dcpk_zip_find(zip, "data.pkl");
    if (*member == NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "an archive without a data.pkl: not torch.save's");
    return dcpk_zip_borrow(zip, *member, limit_bytes, data, err);
}

dcpk_status dcpk_item_read_pickle(struct dcpk_zip *zip, uint64_t limit_bytes,
                                  struct dcpk_arena *arena, const struct dcpk_value **value,
                                  size_t *n_storages, struct dcpk_error *err)
{
    struct dcpk_pickle_options options = {.persistent = take_storage, .context = n_storages};
    const struct dcpk_zip_member *member;
    const uint8_t *data;

    *n_storages = 0;
    if (find_pickle(zip, limit_bytes, &member, &data, err))
        return err->status;
    options.base_bytes = zip->base_bytes + member->data_offset_bytes;
    if (dcpk_pickle_read(data, (size_t)member->n_bytes, &options, arena, value, err))
        return dcpk_context(err, "data.pkl");
    return DCPK_OK;
}

static size_t count_storages(const struct dcpk_zip *zip)
{
    size_t n = 0;

    for (size_t i = 0; i < zip->n_members; i++)
        n += zip->members[i].name_bytes > 5 && memcmp(zip->members[i].name, "data/", 5) == 0;
    return n;
}

/* The tensor that data.pkl describes. */
static dcpk_status rebuild(struct dcpk_zip *zip, struct dcpk_arena *arena, struct dcpk_rebuilt *r,
                           struct dcpk_error *err)
{
    const struct dcpk_value *value;
    size_t n_storages;
    bool is_tensor;
    char text[256];

    if (dcpk_item_read_pickle(zip, MAX_TENSOR_PICKLE_BYTES, arena, &value, &n_storages, err) ||
        dcpk_rebuilt_read(value, &is_tensor, r, err))
        return err->status;
    if (!is_tensor)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "the item holds %s, not a dense tensor",
                         describe_value(value, text, sizeof text));
    if (n_storages != 1)
        return dcpk_fail(err, DCPK_EFORMAT, "the item of a tensor has %zu storages", n_storages);
    return DCPK_OK;
}

/* A contiguous tensor, alone in storage "0". */
static dcpk_status describe_plain(const struct dcpk_item_form *form, struct dcpk_rebuilt *r,
                                  struct dcpk_error *err)
{
    int64_t stride = 1;

    *r = (struct dcpk_rebuilt){.dtype = form->dtype, .rank = form->rank, .key = "0"};
    if (dcpk_shape_count(form->shape, form->rank, &r->storage_elems, err) != DCPK_OK)
        return err->status;
    for (int i = r->rank - 1; i >= 0; i--) {
        r->shape[i] = form->shape[i];
        if (r->shape[i] > 1 && r->storage_elems > 0) {
            r->stride_elems[i] = stride;
            stride *= r->shape[i];
        }
    }
    return DCPK_OK;
}

/* The same without reading the pickle, when it is the one of the expected tensor. */
static dcpk_status rebuild_expected(struct dcpk_zip *zip, const struct dcpk_item_form *expected,
                                    bool *is_it, struct dcpk_rebuilt *r, struct dcpk_error *err)
{
    struct dcpk_bytes pickle = {.data = NULL};
    const struct dcpk_zip_member *member;
    const uint8_t *data;

    *is_it = false;
    if (find_pickle(zip, MAX_TENSOR_PICKLE_BYTES, &member, &data, err) == DCPK_OK &&
        dcpk_item_put_pickle(expected, &pickle, err) == DCPK_OK)
        *is_it =
            member->n_bytes == pickle.n_bytes && memcmp(data, pickle.data, pickle.n_bytes) == 0;
    if (*is_it)
        (void)describe_plain(expected, r, err);
    dcpk_bytes_release(&pickle);
    return err->status;
}

/* The one tensor of an open archive. */
static dcpk_status read_only_tensor(struct dcpk_zip *zip, const struct dcpk_item_form *expected,
                                    struct dcpk_arena *arena, struct dcpk_item_tensor *tensor,
                                    struct dcpk_error *err)
{
    const struct dcpk_zip_member *member;
    struct dcpk_rebuilt r;
    bool is_it = false;

    if ((expected != NULL && rebuild_expected(zip, expected, &is_it, &r, err)) ||
        (!is_it && rebuild(zip, arena, &r, err)))
        return err->status;
    if (count_storages(zip) != 1)
        return dcpk_fail(err, DCPK_EFORMAT, "the item of a tensor has %zu storages",
                         count_storages(zip));
    if (dcpk_rebuilt_find_storage(zip, &r, &member, err))
        return err->status;
    *tensor = (struct dcpk_item_tensor){
        .dtype = r.dtype,
        .rank = r.rank,
        .record_offset_bytes = zip->base_bytes + member->data_offset_bytes,
        .record_bytes = member->n_bytes,
        .record_crc32 = member->crc32,
    };
    memcpy(tensor->shape, r.shape, sizeof r.shape);
    memcpy(tensor->stride_elems, r.stride_elems, sizeof r.stride_elems);
    tensor->first_bytes =
        tensor->record_offset_bytes + (uint64_t)r.offset_elems * dcpk_dtype_bytes(r.dtype);
    return DCPK_OK;
}

dcpk_status dcpk_item_read_tensor(const struct dcpk_item_range *range,
                                  const struct dcpk_item_form *expected,
                                  struct dcpk_item_tensor *tensor, struct dcpk_error *err)
{
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_zip zip;

    if (dcpk_zip_open(&zip, range, MAX_TENSOR_MEMBERS, err) ||
        read_only_tensor(&zip, expected, arena, tensor, err))
        dcpk_context(err, "item at byte %" PRIu64 " of '%s'", range->offset_bytes,
                     dcpk_source_name(range->source));
    dcpk_zip_release(&zip);
    dcpk_arena_free(arena);
    return err->status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* metadata_read.c - .metadata bytes -> tensors, chunks, objects and files of a checkpoint. */
#include "formats/dcp/dcp.h"

#include <inttypes.h>
#include <string.h>

#include "formats/dcp/pickle.h"
#include "lib/base/alloc.h"

/*
 * The pickle becomes a value tree in a scratch arena; what counts is copied out of it, packed:
 *   1. storage_data -> places, a table found by (fqn, offsets);
 *   2. state_dict_metadata -> tensors with their chunks, and objects, each looked up there;
 *   3. mcore_data -> shapes of flattened tensors.
 * Everything is linear in the bytes of the file. Classes and attributes: FORMAT.md ".metadata".
 */

#define METADATA_MODULE   "torch.distributed.checkpoint.metadata"
#define OLD_MODULE        "torch.distributed._shard.sharded_tensor.metadata" /* torch 2.1, 2.2 */
#define FILESYSTEM_MODULE "torch.distributed.checkpoint.filesystem"
#define MCORE_MODULE      "megatron.core.dist_checkpointing.strategies.torch"

/* An entry of storage_data. */
struct stored {
    struct dcpk_place place;
    const char *fqn; /* in the scratch arena */
    bool is_used;
};

struct reading {
    struct dcpk_checkpoint *ckpt;
    struct dcpk_dcp_info *info;
    struct dcpk_arena *scratch;
    struct stored *stored;
    size_t n_stored;
    struct dcpk_map stored_by_key; /* keys: put_key */
    struct dcpk_bytes key;         /* reused for look-ups */
    struct dcpk_map file_by_name;  /* keys: sources' names */
    size_t files_capacity, chunks_capacity;
    bool is_old_module; /* TensorProperties of torch 2.1 or 2.2 */
};

static bool is_a(const struct dcpk_value *v, const char *module, const char *name)
{
    return dcpk_value_is_object(v, module, name) && !v->as.object->is_reduce;
}

/* What a value is, for messages: its class, or its kind. */
static const char *class_of(const struct dcpk_value *v, const char **module)
{
    *module = "";
    if (v == NULL || (v->kind != DCPK_V_OBJECT && v->kind != DCPK_V_GLOBAL))
        return "something that is no object";
    *module = v->kind == DCPK_V_OBJECT ? v->as.object->module : v->as.global.module;
    return v->kind == DCPK_V_OBJECT ? v->as.object->name : v->as.global.name;
}

/* An object of another class than is known in its place. */
static dcpk_status fail_class(struct dcpk_error *err, const struct dcpk_value *v,
                              const char *wanted)
{
    const char *module, *name = class_of(v, &module);

    return dcpk_fail(err, DCPK_EUNSUPPORTED, "%s%s%s where %s is expected", module,
                     *module == '\0' ? "" : ".", name, wanted);
}

/* A text that can be a C string. */
static const char *plain_text(const struct dcpk_value *v)
{
    const char *text = dcpk_value_as_str(v);

    return text != NULL && strlen(text) == v->n ? text : NULL;
}

static bool is_count(const struct dcpk_value *v, uint64_t *out)
{
    int64_t i;

    if (v == NULL || v->kind != DCPK_V_INT || !dcpk_value_as_int(v, &i) || i < 0)
        return false;
    *out = (uint64_t)i;
    return true;
}

/* A torch.Size (or tuple) of non-negative numbers, at most DCPK_MAX_RANK of them. what: for
 * messages. */
static dcpk_status read_size(const struct dcpk_value *v, const char *what, int64_t *numbers,
                             int *rank, struct dcpk_error *err)
{
    if (v == NULL || (v->kind != DCPK_V_TUPLE && v->kind != DCPK_V_LIST))
        return dcpk_fail(err, DCPK_EFORMAT, "%s is missing or no torch.Size of 64-bit numbers",
                         what);
    if (v->n > DCPK_MAX_RANK)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "%s of rank %zu; the limit is %d", what, v->n,
                         DCPK_MAX_RANK);
    for (size_t i = 0; i < v->n; i++) {
        const struct dcpk_value *item = v->as.items[i];

        if (item->kind != DCPK_V_INT)
            return dcpk_fail(err, DCPK_EFORMAT,
                             "number %zu of %s does not fit 64 bits or is no number", i, what);
        if (item->as.i < 0)
            return dcpk_fail(err, DCPK_EFORMAT, "number %zu of %s is %" PRId64 ", below 0", i, what,
                             item->as.i);
        numbers[i] = item->as.i;
    }
    *rank = (int)v->n;
    return DCPK_OK;
}

/*
 * Look-up key of a storage place into r->key: the fqn, a NUL, and for chunks a mark and the
 * offsets. rank -1: an object. MetadataIndex compares (fqn, offset) only; `index` is a hint
 * (torch/distributed/checkpoint/metadata.py@2.11.0).
 */
static dcpk_status put_key(struct reading *r, const char *fqn, const int64_t *offsets, int rank,
                           struct dcpk_error *err)
{
    r->key.n_bytes = 0;
    dcpk_bytes_put(&r->key, fqn, strlen(fqn) + 1);
    if (rank >= 0)
        dcpk_bytes_u8(&r->key, 1);
    for (int i = 0; i < rank; i++)
        dcpk_bytes_u64(&r->key, (uint64_t)offsets[i]);
    return dcpk_bytes_status(&r->key, err);
}

/* The number of a file in the checkpoint, which is opened when it is new. */
static dcpk_status find_file(struct reading *r, const char *name, uint32_t *file,
                             struct dcpk_error *err)
{
    struct dcpk_checkpoint *ckpt = r->ckpt;
    struct dcpk_source *source;
    const char *copy;
    uint64_t i;
    bool existed;
    dcpk_status st;

    if (dcpk_map_get(&r->file_by_name, name, strlen(name), &i)) {
        *file = (uint32_t)i;
        return DCPK_OK;
    }
    st = dcpk_store_find(ckpt->store, name, &source, err);
    if (st == DCPK_OK)
        st = dcpk_grow(&ckpt->files, &r->files_capacity, ckpt->n_files,
                       sizeof(struct dcpk_source *), err);
    if (st != DCPK_OK)
        return st;
    copy = dcpk_arena_strdup(r->scratch, name, err);
    if (copy == NULL)
        return err->status;
    st = dcpk_map_put(&r->file_by_name, copy, strlen(copy), ckpt->n_files, &existed, &i, err);
    if (st != DCPK_OK)
        return st;
    *file = (uint32_t)ckpt->n_files;
    ckpt->files[ckpt->n_files++] = source;
    return DCPK_OK;
}

/* transform_descriptors: absent, None or empty. */
static dcpk_status check_transforms(const struct dcpk_value *v, struct dcpk_error *err)
{
    const char *first;

    if (v == NULL || v->kind == DCPK_V_NONE ||
        ((v->kind == DCPK_V_LIST || v->kind == DCPK_V_TUPLE) && v->n == 0))
        return DCPK_OK;
    first = dcpk_value_as_str(dcpk_value_at(v, 0));
    return dcpk_fail(err, DCPK_EUNSUPPORTED,
                     "the item is transformed ('%s'); save without a stream transform extension",
                     first == NULL ? "?" : first);
}

/* _StorageInfo -> place; the range lies inside its file. */
static dcpk_status read_place(struct reading *r, const struct dcpk_value *v,
                              struct dcpk_place *place, struct dcpk_error *err)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(v);
    const char *name = plain_text(dcpk_value_get(attrs, "relative_path"));
    uint64_t file_bytes;
    dcpk_status st;

    if (!is_a(v, FILESYSTEM_MODULE, "_StorageInfo") || name == NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "its place is no _StorageInfo with a relative_path");
    if (!is_count(dcpk_value_get(attrs, "offset"), &place->offset_bytes) ||
        !is_count(dcpk_value_get(attrs, "length"), &place->n_bytes))
        return dcpk_fail(err, DCPK_EFORMAT,
                         "offset or length of its place in '%s' is no count of bytes", name);
    st = check_transforms(dcpk_value_get(attrs, "transform_descriptors"), err);
    if (st == DCPK_OK)
        st = find_file(r, name, &place->file, err);
    if (st != DCPK_OK)
        return st;
    file_bytes = dcpk_source_bytes(r->ckpt->files[place->file]);
    if (place->n_bytes > file_bytes || place->offset_bytes > file_bytes - place->n_bytes)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "its item at byte %" PRIu64 " of %" PRIu64
                         " bytes passes the end of '%s' (%" PRIu64
                         " bytes; is the file truncated?)",
                         place->offset_bytes, place->n_bytes, name, file_bytes);
    return DCPK_OK;
}

/* One MetadataIndex: _StorageInfo of storage_data. */
static dcpk_status read_stored(struct reading *r, const struct dcpk_value_pair *pair,
                               struct dcpk_error *err)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(pair->key);
    const struct dcpk_value *offset = dcpk_value_get(attrs, "offset");
    struct stored *s = &r->stored[r->n_stored];
    int64_t offsets[DCPK_MAX_RANK];
    const char *key;
    uint64_t other;
    bool existed;
    int rank = -1;
    dcpk_status st = DCPK_OK;

    s->fqn = plain_text(dcpk_value_get(attrs, "fqn"));
    if (!is_a(pair->key, METADATA_MODULE, "MetadataIndex") || s->fqn == NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "a key that is no MetadataIndex with an fqn");
    if (offset != NULL && offset->kind != DCPK_V_NONE)
        st = read_size(offset, "offset of its MetadataIndex", offsets, &rank, err);
    if (st == DCPK_OK)
        st = read_place(r, pair->value, &s->place, err);
    if (st == DCPK_OK)
        st = put_key(r, s->fqn, offsets, rank, err);
    if (st == DCPK_OK) {
        key = dcpk_arena_strndup(r->scratch, (const char *)r->key.data, r->key.n_bytes, err);
        st = key == NULL ? err->status
                         : dcpk_map_put(&r->stored_by_key, key, r->key.n_bytes, r->n_stored,
                                        &existed, &other, err);
        if (st == DCPK_OK && existed)
            st = dcpk_fail(err, DCPK_EFORMAT, "two places for the same offsets");
    }
    if (st != DCPK_OK)
        dcpk_context(err, "'%s'", s->fqn);
    r->n_stored++;
    return st;
}

static dcpk_status read_storage_data(struct reading *r, const struct dcpk_value *dict,
                                     struct dcpk_error *err)
{
    dcpk_status st = DCPK_OK;

    if (dict == NULL || dict->kind != DCPK_V_DICT)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "no storage_data: it does not say where the items lie (not written by a "
                         "file system writer)");
    r->stored = dcpk_alloc_array(dict->n, sizeof *r->stored, err);
    if (r->stored == NULL)
        return err->status;
    for (size_t i = 0; i < dict->n && st == DCPK_OK; i++)
        st = read_stored(r, &dict->as.pairs[i], err);
    if (st != DCPK_OK)
        dcpk_context(err, "storage_data");
    return st;
}

/* Take the place stored for (fqn, offsets); each is taken once. */
static dcpk_status take_place(struct reading *r, const char *fqn, const int64_t *offsets, int rank,
                              struct dcpk_place *place, struct dcpk_error *err)
{
    uint64_t i;
    dcpk_status st = put_key(r, fqn, offsets, rank, err);

    if (st != DCPK_OK)
        return st;
    if (!dcpk_map_get(&r->stored_by_key, (const char *)r->key.data, r->key.n_bytes, &i))
        return dcpk_fail(err, DCPK_EFORMAT, "storage_data has no place for it");
    if (r->stored[i].is_used)
        return dcpk_fail(err, DCPK_EFORMAT, "two chunks have the same offsets");
    r->stored[i].is_used = true;
    *place = r->stored[i].place;
    return DCPK_OK;
}

/* TensorProperties: BUILD of the tuple (dtype, layout, requires_grad, memory format, pin_memory).
 */
static dcpk_status read_properties(struct reading *r, const struct dcpk_value *v,
                                   enum dcpk_dtype *dtype, struct dcpk_error *err)
{
    const bool is_old = is_a(v, OLD_MODULE, "TensorProperties");
    const struct dcpk_value *state, *name, *layout;
    const char *layout_name;

    if (!is_old && !is_a(v, METADATA_MODULE, "TensorProperties"))
        return dcpk_fail(err, DCPK_EFORMAT, "properties are no TensorProperties");
    r->is_old_module = r->is_old_module || is_old;
    state = v->as.object->state;
    name = dcpk_value_at(state, 0);
    layout = dcpk_value_at(state, 1);
    if (name == NULL || name->kind != DCPK_V_GLOBAL || strcmp(name->as.global.module, "torch") != 0)
        return dcpk_fail(err, DCPK_EFORMAT, "TensorProperties have no torch dtype");
    *dtype = dcpk_dtype_from_name(name->as.global.name);
    if (*dtype == DCPK_DTYPE_NONE)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "dtype torch.%s", name->as.global.name);
    if (!dcpk_value_is_object(layout, "torch.serialization", "_get_layout"))
        return dcpk_fail(err, DCPK_EFORMAT, "TensorProperties have no layout");
    layout_name = dcpk_value_as_str(dcpk_value_at(layout->as.object->args, 0));
    if (layout_name == NULL || strcmp(layout_name, "torch.strided") != 0)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "layout %s; only torch.strided is read",
                         layout_name == NULL ? "?" : layout_name);
    return DCPK_OK;
}

/*
 * SerializationFormat.SAFETENSORS (torch >= 2.8) stores the raw size of the tensor as the item's
 * length, which no zip archive of it can have.
 */
static dcpk_status check_serialization(const struct dcpk_tensor *tensor, const int64_t *extent,
                                       const struct dcpk_place *place, struct dcpk_error *err)
{
    int64_t n_elems;
    dcpk_status st = dcpk_shape_count(extent, tensor->rank, &n_elems, err);

    if (st == DCPK_OK && n_elems > 0 &&
        place->n_bytes / dcpk_dtype_bytes(tensor->dtype) == (uint64_t)n_elems &&
        place->n_bytes % dcpk_dtype_bytes(tensor->dtype) == 0)
        st = dcpk_fail(err, DCPK_EUNSUPPORTED,
                       "its item of %" PRIu64
                       " bytes has no room for a torch.save archive: saved with "
                       "SerializationFormat.SAFETENSORS; save with TORCH_SAVE",
                       place->n_bytes);
    return st;
}

/* One ChunkStorageMetadata into `chunk`, its span (already allocated) and its place. */
static dcpk_status read_chunk(struct reading *r, const struct dcpk_tensor *tensor,
                              const struct dcpk_value *v, int64_t *span, struct dcpk_place *place,
                              struct dcpk_error *err)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(v);
    int64_t offsets[DCPK_MAX_RANK], sizes[DCPK_MAX_RANK];
    int offsets_rank, sizes_rank;
    dcpk_status st;

    if (!is_a(v, METADATA_MODULE, "ChunkStorageMetadata"))
        return fail_class(err, v, "ChunkStorageMetadata");
    st = read_size(dcpk_value_get(attrs, "offsets"), "offsets", offsets, &offsets_rank, err);
    if (st == DCPK_OK)
        st = read_size(dcpk_value_get(attrs, "sizes"), "sizes", sizes, &sizes_rank, err);
    if (st != DCPK_OK)
        return st;
    if (offsets_rank != tensor->rank || sizes_rank != tensor->rank)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "offsets of rank %d and sizes of rank %d in a tensor of rank %d",
                         offsets_rank, sizes_rank, tensor->rank);
    for (int i = 0; i < tensor->rank; i++) {
        if (offsets[i] > tensor->shape[i] || sizes[i] > tensor->shape[i] - offsets[i])
            return dcpk_fail(err, DCPK_EFORMAT,
                             "on axis %d %" PRId64 " elements at %" PRId64
                             " lie outside the tensor's %" PRId64,
                             i, sizes[i], offsets[i], tensor->shape[i]);
        span[i] = offsets[i];
        span[tensor->rank + i] = sizes[i];
    }
    st = take_place(r, tensor->key, offsets, tensor->rank, place, err);
    return st == DCPK_OK ? check_serialization(tensor, sizes, place, err) : st;
}

static dcpk_status read_chunks(struct reading *r, struct dcpk_tensor *tensor,
                               const struct dcpk_value *list, struct dcpk_error *err)
{
    struct dcpk_checkpoint *ckpt = r->ckpt;
    const size_t n_numbers = 2 * (size_t)tensor->rank;
    int64_t *spans;
    dcpk_status st = DCPK_OK;

    if (list == NULL || list->kind != DCPK_V_LIST)
        return dcpk_fail(err, DCPK_EFORMAT, "chunks are missing or no list");
    spans = dcpk_arena_array(ckpt->arena, list->n, n_numbers * sizeof *spans, err);
    if (spans == NULL)
        return err->status;
    tensor->first_chunk = ckpt->n_chunks;
    tensor->n_chunks = list->n;
    for (size_t i = 0; i < list->n && st == DCPK_OK; i++) {
        struct dcpk_chunk chunk = {.tensor = (uint32_t)ckpt->n_tensors,
                                   .span = spans + i * n_numbers};

        st = read_chunk(r, tensor, list->as.items[i], spans + i * n_numbers, &chunk.place, err);
        if (st != DCPK_OK)
            dcpk_context(err, "chunk %zu", i);
        else
            st = dcpk_grow(&ckpt->chunks, &r->chunks_capacity, ckpt->n_chunks, sizeof *ckpt->chunks,
                           err);
        if (st == DCPK_OK)
            ckpt->chunks[ckpt->n_chunks++] = chunk;
    }
    return st;
}

/* Copy numbers into the checkpoint's arena; NULL and err when memory is out. */
static const int64_t *keep_numbers(struct dcpk_checkpoint *ckpt, const int64_t *numbers, int n,
                                   struct dcpk_error *err)
{
    int64_t *copy = dcpk_arena_array(ckpt->arena, (size_t)n, sizeof *copy, err);

    if (copy != NULL)
        memcpy(copy, numbers, (size_t)n * sizeof *copy);
    return copy;
}

static dcpk_status read_tensor(struct reading *r, const char *key, const struct dcpk_value *v,
                               struct dcpk_error *err)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(v);
    struct dcpk_tensor tensor = {.key = key};
    int64_t shape[DCPK_MAX_RANK], n_elems;
    dcpk_status st = read_properties(r, dcpk_value_get(attrs, "properties"), &tensor.dtype, err);

    if (st == DCPK_OK)
        st = read_size(dcpk_value_get(attrs, "size"), "size", shape, &tensor.rank, err);
    if (st == DCPK_OK)
        st = dcpk_shape_count(shape, tensor.rank, &n_elems, err);
    if (st != DCPK_OK)
        return st;
    if (n_elems > INT64_MAX / (int64_t)dcpk_dtype_bytes(tensor.dtype))
        return dcpk_fail(err, DCPK_ERANGE, "%" PRId64 " elements of %s pass 2^63 bytes", n_elems,
                         dcpk_dtype_name(tensor.dtype));
    tensor.shape = keep_numbers(r->ckpt, shape, tensor.rank, err);
    if (tensor.shape == NULL)
        return err->status;
    st = read_chunks(r, &tensor, dcpk_value_get(attrs, "chunks"), err);
    return st == DCPK_OK ? dcpk_checkpoint_add_tensor(r->ckpt, &tensor, err) : st;
}

static dcpk_status read_object(struct reading *r, const char *key, struct dcpk_error *err)
{
    struct dcpk_object object = {.key = key};
    dcpk_status st = take_place(r, key, NULL, -1, &object.place, err);

    return st == DCPK_OK ? dcpk_checkpoint_add_object(r->ckpt, &object, err) : st;
}

/* One key: TensorStorageMetadata | BytesStorageMetadata of state_dict_metadata. */
static dcpk_status read_entry(struct reading *r, const struct dcpk_value_pair *pair,
                              struct dcpk_error *err)
{
    const char *text = plain_text(pair->key), *key;
    dcpk_status st;

    if (text == NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "a key that is no text, or holds a NUL");
    key = dcpk_arena_strdup(r->ckpt->arena, text, err);
    if (key == NULL)
        return err->status;
    if (is_a(pair->value, METADATA_MODULE, "TensorStorageMetadata"))
        st = read_tensor(r, key, pair->value, err);
    else if (is_a(pair->value, METADATA_MODULE, "BytesStorageMetadata"))
        st = read_object(r, key, err);
    else
        st = fail_class(err, pair->value, "TensorStorageMetadata or BytesStorageMetadata");
    if (st != DCPK_OK)
        dcpk_context(err, "'%s'", key);
    return st;
}

static dcpk_status read_entries(struct reading *r, const struct dcpk_value *dict,
                                struct dcpk_error *err)
{
    dcpk_status st = DCPK_OK;

    if (dict == NULL || dict->kind != DCPK_V_DICT)
        return dcpk_fail(err, DCPK_EFORMAT, "no state_dict_metadata");
    for (size_t i = 0; i < dict->n && st == DCPK_OK; i++)
        st = read_entry(r, &dict->as.pairs[i], err);
    return st;
}

/* A place that nothing in state_dict_metadata asks for harms nobody, but a person should know. */
static void note_unused(struct reading *r)
{
    const char *first = NULL;
    size_t n = 0;

    for (size_t i = r->n_stored; i-- > 0;)
        if (!r->stored[i].is_used) {
            first = r->stored[i].fqn;
            n++;
        }
    if (n > 0)
        dcpk_checkpoint_note(r->ckpt,
                             ".metadata: %zu item(s) in storage_data belong to no chunk or object "
                             "and are ignored (first: '%s')",
                             n, first);
}

/* mcore_data of one key: {} or {'nd_reformulated_orig_global_shape': (...)}; megatron/core 0.8 to
 * 0.15. */
static dcpk_status read_mcore_entry(struct reading *r, const char *key,
                                    const struct dcpk_value *dict, struct dcpk_error *err)
{
    static const char attribute[] = "nd_reformulated_orig_global_shape";
    int64_t shape[DCPK_MAX_RANK];
    struct dcpk_tensor *tensor;
    uint64_t i;
    dcpk_status st;

    if (dict->n == 0)
        return DCPK_OK;
    if (dict->n != 1 || dcpk_value_get(dict, attribute) == NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "'%s': attributes other than %s", key, attribute);
    if (!dcpk_map_get(&r->ckpt->tensor_by_key, key, strlen(key), &i))
        return dcpk_fail(err, DCPK_EFORMAT, "'%s' is no tensor", key);
    tensor = &r->ckpt->tensors[i];
    st = read_size(dcpk_value_get(dict, attribute), attribute, shape, &tensor->model_rank, err);
    if (st != DCPK_OK)
        return st;
    tensor->model_shape = keep_numbers(r->ckpt, shape, tensor->model_rank, err);
    return tensor->model_shape == NULL ? err->status : DCPK_OK;
}

static dcpk_status read_mcore_data(struct reading *r, const struct dcpk_value *dict,
                                   struct dcpk_error *err)
{
    dcpk_status st = DCPK_OK;

    r->info->has_mcore_data = dict != NULL;
    if (dict == NULL)
        return DCPK_OK;
    if (dict->kind != DCPK_V_DICT)
        st = dcpk_fail(err, DCPK_EFORMAT, "no dict");
    for (size_t i = 0; st == DCPK_OK && i < dict->n; i++) {
        const char *key = plain_text(dict->as.pairs[i].key);

        if (key == NULL || dict->as.pairs[i].value->kind != DCPK_V_DICT)
            st = dcpk_fail(err, DCPK_EFORMAT, "entry %zu is not text: dict", i);
        else
            st = read_mcore_entry(r, key, dict->as.pairs[i].value, err);
    }
    if (st != DCPK_OK)
        dcpk_context(err, "mcore_data");
    return st;
}

/* What the root's attributes tell beside their content; names unknown here are noted. */
static void read_info(struct reading *r, const struct dcpk_value *root,
                      const struct dcpk_value *attrs)
{
    static const char *const known[] = {"state_dict_metadata", "planner_data", "storage_data",
                                        "storage_meta",        "version",      "mcore_data",
                                        "all_local_plans"};
    const struct dcpk_value *planner = dcpk_value_get(attrs, "planner_data");

    r->info->is_mcore_class = is_a(root, MCORE_MODULE, "MCoreMetadata");
    r->info->has_planner_data = planner != NULL && planner->kind != DCPK_V_NONE;
    if (r->is_old_module)
        r->info->torch_generation = "2.1-2.2";
    else if (dcpk_value_get(attrs, "version") != NULL)
        r->info->torch_generation = "2.9+";
    else if (dcpk_value_get(attrs, "storage_meta") != NULL)
        r->info->torch_generation = "2.4-2.8";
    else
        r->info->torch_generation = "2.3";
    for (size_t i = 0; i < attrs->n; i++) {
        const char *name = plain_text(attrs->as.pairs[i].key);
        size_t k = 0;

        while (name != NULL && k < sizeof known / sizeof *known && strcmp(name, known[k]) != 0)
            k++;
        if (k == sizeof known / sizeof *known || name == NULL)
            dcpk_checkpoint_note(r->ckpt, ".metadata: attribute '%s' is unknown and ignored",
                                 name == NULL ? "?" : name);
    }
}

static dcpk_status read_root(struct reading *r, const struct dcpk_value *root,
                             struct dcpk_error *err)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(root);
    dcpk_status st;

    if ((!is_a(root, METADATA_MODULE, "Metadata") && !is_a(root, MCORE_MODULE, "MCoreMetadata")) ||
        attrs == NULL)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "the pickle is no torch.distributed.checkpoint Metadata");
    st = read_storage_data(r, dcpk_value_get(attrs, "storage_data"), err);
    if (st == DCPK_OK)
        st = read_entries(r, dcpk_value_get(attrs, "state_dict_metadata"), err);
    if (st == DCPK_OK)
        st = read_mcore_data(r, dcpk_value_get(attrs, "mcore_data"), err);
    if (st != DCPK_OK)
        return st;
    note_unused(r);
    read_info(r, root, attrs);
    return DCPK_OK;
}

dcpk_status dcpk_metadata_read(struct dcpk_checkpoint *ckpt, const void *data, size_t n_bytes,
                               struct dcpk_dcp_info *info, struct dcpk_error *err)
{
    struct reading r = {.ckpt = ckpt, .info = info, .scratch = dcpk_arena_new(0, err)};
    const struct dcpk_value *root;
    dcpk_status st = r.scratch == NULL
                         ? err->status
                         : dcpk_pickle_read(data, n_bytes, NULL, r.scratch, &root, err);

    if (st == DCPK_OK)
        st = read_root(&r, root, err);
    dcpk_map_release(&r.stored_by_key);
    dcpk_map_release(&r.file_by_name);
    dcpk_bytes_release(&r.key);
    dcpk_free(r.stored);
    dcpk_arena_free(r.scratch);
    return st;
}

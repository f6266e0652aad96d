/* SPDX-License-Identifier: Apache-2.0 */
/* metadata_pack.c - the objects of .metadata, packed as they come out of the pickle. */
#include "formats/dcp/metadata_priv.h"

#include <inttypes.h>
#include <string.h>

#include "lib/base/alloc.h"

#define OLD_MODULE        "torch.distributed._shard.sharded_tensor.metadata" /* torch 2.1, 2.2 */
#define FILESYSTEM_MODULE "torch.distributed.checkpoint.filesystem"

void dcpk_packed_close(struct dcpk_packed *p)
{
    dcpk_map_release(&p->key_by_text);
    dcpk_map_release(&p->size_by_numbers);
    dcpk_map_release(&p->file_by_name);
}

void dcpk_packed_release(struct dcpk_packed *p)
{
    dcpk_packed_close(p);
    dcpk_free(p->keys);
    dcpk_free(p->sizes);
    dcpk_free(p->chunks);
    dcpk_free(p->entries);
    dcpk_free(p->places);
}

/* ---- reading values ---- */

bool dcpk_metadata_is_a(const struct dcpk_value *v, const char *module, const char *name)
{
    return dcpk_value_is_object(v, module, name) && !v->as.object->is_reduce;
}

const char *dcpk_metadata_class(const struct dcpk_value *v, const char **module)
{
    *module = "";
    if (v == NULL || (v->kind != DCPK_V_OBJECT && v->kind != DCPK_V_GLOBAL))
        return "something that is not an object";
    *module = v->kind == DCPK_V_OBJECT ? v->as.object->module : v->as.global.module;
    return v->kind == DCPK_V_OBJECT ? v->as.object->name : v->as.global.name;
}

/* An object of another class than is known in its place. */
static dcpk_status fail_class(struct dcpk_error *err, const struct dcpk_value *v,
                              const char *wanted)
{
    const char *module, *name = dcpk_metadata_class(v, &module);

    return dcpk_fail(err, DCPK_EUNSUPPORTED, "%s%s%s where %s is expected", module,
                     *module == '\0' ? "" : ".", name, wanted);
}

const char *dcpk_metadata_text(const struct dcpk_value *v)
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

dcpk_status dcpk_metadata_size(const struct dcpk_value *v, const char *what, int64_t *numbers,
                               int *rank, struct dcpk_error *err)
{
    if (!dcpk_value_is_list(v))
        return dcpk_fail(err, DCPK_EFORMAT, "%s is missing or not a torch.Size of 64-bit numbers",
                         what);
    if (v->n > DCPK_MAX_RANK)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "%s of rank %zu; the limit is %d", what, v->n,
                         DCPK_MAX_RANK);
    for (size_t i = 0; i < v->n; i++) {
        const struct dcpk_value *item = v->as.items[i];

        if (item->kind != DCPK_V_INT)
            return dcpk_fail(err, DCPK_EFORMAT,
                             "number %zu of %s does not fit 64 bits or is not a number", i, what);
        if (item->as.i < 0)
            return dcpk_fail(err, DCPK_EFORMAT, "number %zu of %s is %" PRId64 ", below 0", i, what,
                             item->as.i);
        numbers[i] = item->as.i;
    }
    *rank = (int)v->n;
    return DCPK_OK;
}

/* ---- interning ---- */

/* Indexes are 32 bits wide; UINT32_MAX stands for none. */
static dcpk_status metadata_check_room(size_t n, const char *what, struct dcpk_error *err)
{
    if (n >= UINT32_MAX)
        return dcpk_fail(err, DCPK_ERANGE, "more than %u %s", UINT32_MAX, what);
    return DCPK_OK;
}

static dcpk_status packed_find_key(struct dcpk_packed *p, const struct dcpk_value *text,
                                   uint32_t *key, struct dcpk_error *err)
{
    const char *copy = text->as.str;
    uint64_t number = p->n_keys;
    bool existed = false;

    if (!dcpk_pickle_is_kept(text)) {
        if (dcpk_map_get(&p->key_by_text, copy, text->n, &number)) {
            *key = (uint32_t)number;
            return DCPK_OK;
        }
        copy = dcpk_arena_strndup(p->ckpt->arena, copy, text->n, err);
    }
    if (copy == NULL)
        return err->status;
    if (metadata_check_room(p->n_keys, "keys", err) ||
        dcpk_grow(&p->keys, &p->keys_capacity, p->n_keys, sizeof *p->keys, err) ||
        dcpk_map_put(&p->key_by_text, copy, text->n, p->n_keys, &existed, &number, err))
        return err->status;
    *key = (uint32_t)(existed ? number : p->n_keys);
    if (!existed)
        p->keys[p->n_keys++] = copy;
    return DCPK_OK;
}

/* Most keys come again by a GET of the same text: then nothing is looked up. */
static dcpk_status intern_key(struct dcpk_packed *p, const struct dcpk_value *text, uint32_t *key,
                              struct dcpk_error *err)
{
    if (dcpk_pickle_number(text) != 0) {
        *key = dcpk_pickle_number(text) - 1;
        return DCPK_OK;
    }
    if (packed_find_key(p, text, key, err))
        return err->status;
    if (dcpk_pickle_is_kept(text))
        dcpk_pickle_set_number(text, *key + 1);
    return DCPK_OK;
}

static dcpk_status intern_size(struct dcpk_packed *p, const int64_t *numbers, int rank,
                               uint32_t *size, struct dcpk_error *err)
{
    int64_t words[1 + DCPK_MAX_RANK] = {rank};
    const size_t n_bytes = (size_t)(1 + rank) * sizeof *words;
    uint64_t number = p->n_sizes;
    int64_t *copy;
    bool existed = false;

    memcpy(words + 1, numbers, (size_t)rank * sizeof *words);
    if (dcpk_map_get(&p->size_by_numbers, (const char *)words, n_bytes, &number)) {
        *size = (uint32_t)number;
        return DCPK_OK;
    }
    if (metadata_check_room(p->n_sizes, "sizes", err) ||
        dcpk_grow(&p->sizes, &p->sizes_capacity, p->n_sizes, sizeof *p->sizes, err))
        return err->status;
    copy = dcpk_arena_copy(p->ckpt->arena, words, 1, n_bytes, err);
    if (copy == NULL)
        return err->status;
    *size = (uint32_t)p->n_sizes;
    p->sizes[p->n_sizes++] = copy;
    return dcpk_map_put(&p->size_by_numbers, (const char *)copy, n_bytes, *size, &existed, &number,
                        err);
}

/* The number of an attribute that is a size. */
static dcpk_status pack_size(struct dcpk_packed *p, const struct dcpk_value *attrs,
                             const char *name, uint32_t *size, struct dcpk_error *err)
{
    int64_t numbers[DCPK_MAX_RANK];
    int rank = 0;

    if (dcpk_metadata_size(dcpk_value_get(attrs, name), name, numbers, &rank, err))
        return err->status;
    return intern_size(p, numbers, rank, size, err);
}

/* ---- state_dict_metadata ---- */

static dcpk_status packed_add_chunk(struct dcpk_packed *p, const struct dcpk_value *v,
                                    uint32_t *list, struct dcpk_error *err)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(v);
    struct dcpk_packed_chunk chunk = {.next = (uint32_t)p->n_chunks};

    if (!dcpk_metadata_is_a(v, DCPK_METADATA_MODULE, "ChunkStorageMetadata"))
        return fail_class(err, v, "ChunkStorageMetadata");
    if (pack_size(p, attrs, "offsets", &chunk.offsets, err) ||
        pack_size(p, attrs, "sizes", &chunk.extents, err) ||
        metadata_check_room(p->n_chunks, "chunks", err) ||
        dcpk_grow(&p->chunks, &p->chunks_capacity, p->n_chunks, sizeof *p->chunks, err))
        return err->status;
    if (*list != 0) {
        chunk.next = p->chunks[*list - 1].next;
        p->chunks[*list - 1].next = (uint32_t)p->n_chunks;
    }
    p->chunks[p->n_chunks++] = chunk;
    *list = (uint32_t)p->n_chunks;
    return DCPK_OK;
}

size_t dcpk_packed_count(const struct dcpk_packed *p, uint32_t list)
{
    size_t n = list != 0;

    for (uint32_t at = list; n > 0 && p->chunks[at - 1].next != list - 1; n++)
        at = p->chunks[at - 1].next + 1;
    return n;
}

/* The list of chunks was taken as it was filled; what is left of it begins with what could not
 * be. */
static dcpk_status find_list(struct dcpk_packed *p, const struct dcpk_value *list, uint32_t *number,
                             struct dcpk_error *err)
{
    uint32_t rest = 0;

    if (list == NULL || list->kind != DCPK_V_LIST)
        return dcpk_fail(err, DCPK_EFORMAT, "chunks are missing or not a list");
    *number = dcpk_pickle_run(list);
    if (list->n == 0)
        return DCPK_OK;
    if (packed_add_chunk(p, list->as.items[0], &rest, err) == DCPK_OK)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "its list of chunks was not made in its place");
    return dcpk_context(err, "chunk %zu", dcpk_packed_count(p, *number));
}

/* TensorProperties: BUILD of the tuple (dtype, layout, requires_grad, memory format,
 * pin_memory). */
static dcpk_status read_properties(struct dcpk_packed *p, const struct dcpk_value *v,
                                   enum dcpk_dtype *dtype, struct dcpk_error *err)
{
    const bool is_old = dcpk_metadata_is_a(v, OLD_MODULE, "TensorProperties");
    const struct dcpk_value *state, *name, *layout;
    const char *layout_name;

    if (!is_old && !dcpk_metadata_is_a(v, DCPK_METADATA_MODULE, "TensorProperties"))
        return dcpk_fail(err, DCPK_EFORMAT, "properties are not a TensorProperties");
    p->is_old_module = p->is_old_module || is_old;
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

static dcpk_status pack_tensor(struct dcpk_packed *p, const struct dcpk_value *v,
                               struct dcpk_packed_entry *entry, struct dcpk_error *err)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(v);
    int64_t n_elems = 0;

    if (read_properties(p, dcpk_value_get(attrs, "properties"), &entry->dtype, err) ||
        pack_size(p, attrs, "size", &entry->shape, err) ||
        dcpk_shape_count(p->sizes[entry->shape] + 1, (int)p->sizes[entry->shape][0], &n_elems, err))
        return err->status;
    if (n_elems > INT64_MAX / (int64_t)dcpk_dtype_bytes(entry->dtype))
        return dcpk_fail(err, DCPK_ERANGE, "%" PRId64 " elements of %s pass 2^63 bytes", n_elems,
                         dcpk_dtype_name(entry->dtype));
    return find_list(p, dcpk_value_get(attrs, "chunks"), &entry->list, err);
}

/* Packs the value of an entry: a tensor with its chunks, or bytes. */
static dcpk_status pack_entry(struct dcpk_packed *p, const struct dcpk_value *value,
                              struct dcpk_packed_entry *entry, struct dcpk_error *err)
{
    if (dcpk_metadata_is_a(value, DCPK_METADATA_MODULE, "TensorStorageMetadata"))
        return pack_tensor(p, value, entry, err);
    if (!dcpk_metadata_is_a(value, DCPK_METADATA_MODULE, "BytesStorageMetadata"))
        return fail_class(err, value, "TensorStorageMetadata or BytesStorageMetadata");
    return DCPK_OK;
}

dcpk_status dcpk_packed_add_entry(struct dcpk_packed *p, const struct dcpk_value *key,
                                  const struct dcpk_value *value, struct dcpk_error *err)
{
    const char *text = dcpk_metadata_text(key);
    struct dcpk_packed_entry entry = {.shape = DCPK_NO_SIZE, .dtype = DCPK_DTYPE_NONE};

    if (text == NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "a key that is not text, or holds a NUL");
    if (pack_entry(p, value, &entry, err) || intern_key(p, key, &entry.key, err) ||
        dcpk_grow(&p->entries, &p->entries_capacity, p->n_entries, sizeof *p->entries, err))
        return dcpk_context(err, "'%s'", text);
    p->entries[p->n_entries++] = entry;
    return DCPK_OK;
}

/* ---- storage_data ---- */

/* The source of a data file. That it is missing is the checkpoint's fault: its own .metadata names
 * it. */
static dcpk_status find_source(struct dcpk_store *store, const char *name,
                               struct dcpk_source **source, struct dcpk_error *err)
{
    enum dcpk_path_kind kind;
    dcpk_status st = dcpk_store_look(store, name, &kind, err);

    if (st != DCPK_OK)
        return st;
    st = dcpk_store_find(store, name, source, err);
    if (st == DCPK_EIO && kind != DCPK_PATH_FILE)
        st = dcpk_fail(err, DCPK_EFORMAT,
                       "the data file '%.200s' is %s in '%s'; copy the checkpoint again, or use "
                       "one that was saved completely",
                       name, kind == DCPK_PATH_NOTHING ? "missing" : "not a plain file",
                       dcpk_store_path(store));
    return st;
}

/* The number of a file in the checkpoint, which is opened when it is new. Files lie where their
 * .metadata does. */
static dcpk_status metadata_find_file(struct dcpk_packed *p, const char *name, uint32_t *file,
                                      struct dcpk_error *err)
{
    struct dcpk_checkpoint *ckpt = p->ckpt;
    struct dcpk_source *source;
    char *copy;
    uint64_t i;
    bool existed;

    if (dcpk_map_get(&p->file_by_name, name, strlen(name), &i)) {
        *file = (uint32_t)i;
        return DCPK_OK;
    }
    copy = dcpk_arena_printf(ckpt->arena, err, "%.*s%s", p->folder_bytes, p->folder, name);
    if (copy == NULL || find_source(ckpt->store, copy, &source, err) ||
        dcpk_checkpoint_add_file(ckpt, source, file, err))
        return err->status;
    copy += p->folder_bytes;
    return dcpk_map_put(&p->file_by_name, copy, strlen(copy), *file, &existed, &i, err);
}

/* transform_descriptors: absent, None or empty. */
static dcpk_status check_transforms(const struct dcpk_value *v, struct dcpk_error *err)
{
    const char *first;

    if (dcpk_value_is_none(v) || (dcpk_value_is_list(v) && v->n == 0))
        return DCPK_OK;
    first = dcpk_value_as_str(dcpk_value_at(v, 0));
    return dcpk_fail(err, DCPK_EUNSUPPORTED,
                     "the item is transformed ('%s'); save without a stream transform extension",
                     first == NULL ? "?" : first);
}

/* _StorageInfo; opening checks that the range lies inside its file (lib/ckpt/checkpoint.c). */
static dcpk_status pack_place(struct dcpk_packed *p, const struct dcpk_value *v,
                              struct dcpk_packed_place *place, struct dcpk_error *err)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(v);
    const char *name = dcpk_metadata_text(dcpk_value_get(attrs, "relative_path"));

    if (!dcpk_metadata_is_a(v, FILESYSTEM_MODULE, "_StorageInfo") || name == NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "its place is not a _StorageInfo with a relative_path");
    if (!is_count(dcpk_value_get(attrs, "offset"), &place->offset_bytes) ||
        !is_count(dcpk_value_get(attrs, "length"), &place->n_bytes))
        return dcpk_fail(err, DCPK_EFORMAT,
                         "offset or length of its place in '%s' is not a count of bytes", name);
    if (check_transforms(dcpk_value_get(attrs, "transform_descriptors"), err) ||
        metadata_find_file(p, name, &place->file, err))
        return err->status;
    return DCPK_OK;
}

/* The offsets of a MetadataIndex, which objects lack. */
static dcpk_status pack_offsets(struct dcpk_packed *p, const struct dcpk_value *offset,
                                uint32_t *offsets, struct dcpk_error *err)
{
    int64_t numbers[DCPK_MAX_RANK];
    int rank = 0;

    if (dcpk_value_is_none(offset))
        return DCPK_OK;
    if (dcpk_metadata_size(offset, "offset of its MetadataIndex", numbers, &rank, err))
        return err->status;
    return intern_size(p, numbers, rank, offsets, err);
}

dcpk_status dcpk_packed_add_place(struct dcpk_packed *p, const struct dcpk_value *key,
                                  const struct dcpk_value *value, struct dcpk_error *err)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(key);
    const char *fqn = dcpk_metadata_text(dcpk_value_get(attrs, "fqn"));
    struct dcpk_packed_place place = {.index.offsets = DCPK_NO_SIZE};

    if (!dcpk_metadata_is_a(key, DCPK_METADATA_MODULE, "MetadataIndex") || fqn == NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "a key that is not a MetadataIndex with an fqn");
    if (pack_offsets(p, dcpk_value_get(attrs, "offset"), &place.index.offsets, err) ||
        pack_place(p, value, &place, err) ||
        intern_key(p, dcpk_value_get(attrs, "fqn"), &place.index.key, err) ||
        metadata_check_room(p->n_places, "places", err) ||
        dcpk_grow(&p->places, &p->places_capacity, p->n_places, sizeof *p->places, err))
        return dcpk_context(err, "'%s'", fqn);
    p->places[p->n_places++] = place;
    return DCPK_OK;
}

/* ---- taking batches ---- */

static dcpk_status take_item(struct dcpk_packed *p, enum dcpk_packed_run kind, uint32_t *run,
                             const struct dcpk_value *const *items, struct dcpk_error *err)
{
    switch (kind) {
    case DCPK_PACKED_ENTRIES:
        return dcpk_packed_add_entry(p, items[0], items[1], err);
    case DCPK_PACKED_PLACES:
        return dcpk_packed_add_place(p, items[0], items[1], err);
    case DCPK_PACKED_NOTHING: /* of a dict: a list of chunks */
        return packed_add_chunk(p, items[0], run, err);
    case DCPK_PACKED_IGNORED:
    case DCPK_PACKED_RUNS:
        break;
    }
    return DCPK_OK;
}

const char *const dcpk_packed_keys[] = {"chunks", "state_dict_metadata", "storage_data",
                                        "planner_data", NULL};

/* By index in dcpk_packed_keys. */
static const enum dcpk_packed_run kinds[] = {DCPK_PACKED_NOTHING, DCPK_PACKED_ENTRIES,
                                             DCPK_PACKED_PLACES, DCPK_PACKED_IGNORED};

dcpk_status dcpk_packed_take(void *packed, const struct dcpk_pickle_batch *batch, uint32_t *run,
                             size_t *n_taken, struct dcpk_error *err)
{
    struct dcpk_packed *p = packed;
    const bool is_dict = batch->container->kind == DCPK_V_DICT;
    const size_t step = is_dict ? 2 : 1;
    struct dcpk_error fault = DCPK_ERROR_INIT;
    enum dcpk_packed_run kind = DCPK_PACKED_NOTHING;
    dcpk_status st = DCPK_OK;
    size_t i = 0;

    for (size_t k = 0; dcpk_packed_keys[k] != NULL; k++)
        if (strcmp(batch->key, dcpk_packed_keys[k]) == 0)
            kind = kinds[k];
    if (is_dict != (kind != DCPK_PACKED_NOTHING))
        return DCPK_OK;
    if (is_dict && *run == DCPK_PACKED_NOTHING && !p->has_run[kind]) {
        p->has_run[kind] = true; /* the first dict of each kind: the root has no more */
        *run = kind;
    }
    if (is_dict && *run != (uint32_t)kind)
        return DCPK_OK;
    for (; i < batch->n && st == DCPK_OK; i += step)
        st = take_item(p, kind, run, batch->items + i, &fault);
    *n_taken = st == DCPK_OK ? i : i - step;
    if (st != DCPK_ENOMEM)
        return DCPK_OK;
    *err = fault;
    return st;
}

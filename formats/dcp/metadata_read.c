/* SPDX-License-Identifier: Apache-2.0 */
/* metadata_read.c - .metadata bytes -> tensors, chunks, objects and files of a checkpoint. */
#include "formats/dcp/dcp.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dcp/metadata_priv.h"
#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/base/text.h"

/*
 * Entries, chunks and places are packed while the pickle is read (metadata_pack.c); then
 *   1. places are sorted by (key, offsets);
 *   2. entries become tensors with their chunks, and objects, each looked up there;
 *   3. mcore_data gives the shapes of flattened tensors.
 * Everything but the sort is linear in the bytes of the file. Classes, attributes: FORMAT.md 1.1.
 */

#define MCORE_MODULE "megatron.core.dist_checkpointing.strategies.torch"

#define COMMON  "common_state/" /* Megatron's (formats/torch_dist/FORMAT.md 6) */
#define N_SPANS 4096            /* a power of two */

/* A span that was made: the layers of a model repeat few. */
struct span {
    uint32_t offsets, extents;
    const int64_t *numbers; /* NULL: none yet */
};

struct reading {
    struct dcpk_checkpoint *ckpt;
    struct dcpk_dcp_info *info;
    struct dcpk_packed packed;
    size_t chunks_capacity;
    struct span *spans; /* N_SPANS of them, the last one made in each place */
};

/* A dict of which nothing was taken, or one whose dcpk_pickle_run is `run`. */
static bool metadata_is_dict(const struct dcpk_value *v, enum dcpk_packed_run run)
{
    return v != NULL && v->kind == DCPK_V_DICT &&
           (dcpk_pickle_run(v) == DCPK_PACKED_NOTHING || dcpk_pickle_run(v) == (uint32_t)run);
}

/* ---- storage_data ---- */

static int compare_metadata_places(const void *left, const void *right)
{
    const struct dcpk_packed_index *a = left, *b = right;

    return DCPK_ORDER_BY_2(a, b, key, offsets);
}

static dcpk_status sort_places(struct dcpk_packed *p, struct dcpk_error *err)
{
    bool is_sorted = true;

    for (size_t i = 1; i < p->n_places && is_sorted; i++)
        is_sorted = compare_metadata_places(&p->places[i - 1], &p->places[i]) < 0;
    if (!is_sorted)
        qsort(p->places, p->n_places, sizeof *p->places, compare_metadata_places);
    for (size_t i = 1; i < p->n_places && !is_sorted; i++)
        if (compare_metadata_places(&p->places[i - 1], &p->places[i]) == 0) {
            dcpk_fail(err, DCPK_EFORMAT, "two places for the same offsets");
            return dcpk_context(err, "storage_data: '%s'", p->keys[p->places[i].index.key]);
        }
    return DCPK_OK;
}

/* Reads the entries that were not taken, or all of them when another dict was taken. */
static dcpk_status read_storage_data(struct reading *r, const struct dcpk_value *dict,
                                     struct dcpk_error *err)
{
    if (!metadata_is_dict(dict, DCPK_PACKED_PLACES))
        return dcpk_fail(err, DCPK_EFORMAT,
                         "no storage_data: the places of the items are not known (not written by a "
                         "file system writer)");
    if (dcpk_pickle_run(dict) == DCPK_PACKED_NOTHING)
        r->packed.n_places = 0;
    for (size_t i = 0; i < dict->n; i++) {
        const struct dcpk_value_pair *pair = &dict->as.pairs[i];

        if (dcpk_packed_add_place(&r->packed, pair->key, pair->value, err))
            return dcpk_context(err, "storage_data");
    }
    return DCPK_OK;
}

/* Take the place stored for (key, offsets); each is taken once. */
static dcpk_status take_place(struct reading *r, uint32_t key, uint32_t offsets,
                              struct dcpk_place *place, struct dcpk_error *err)
{
    const struct dcpk_packed_index index = {.key = key, .offsets = offsets};
    struct dcpk_packed_place *packed = NULL;

    if (r->packed.n_places > 0)
        packed = bsearch(&index, r->packed.places, r->packed.n_places, sizeof *packed,
                         compare_metadata_places);
    if (packed == NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "storage_data has no place for it");
    if (packed->is_used)
        return dcpk_fail(err, DCPK_EFORMAT, "two chunks have the same offsets");
    packed->is_used = true;
    *place = (struct dcpk_place){
        .file = packed->file, .offset_bytes = packed->offset_bytes, .n_bytes = packed->n_bytes};
    return DCPK_OK;
}

/* A place that nothing in state_dict_metadata asks for does no harm, but gets a note. */
static void note_unused(struct reading *r)
{
    const struct dcpk_packed *p = &r->packed;
    const char *first = NULL;
    size_t n = 0;

    for (size_t i = p->n_places; i-- > 0;)
        if (!p->places[i].is_used) {
            first = p->keys[p->places[i].index.key];
            n++;
        }
    if (n > 0)
        dcpk_checkpoint_note(r->ckpt,
                             ".metadata: %zu item(s) in storage_data belong to no chunk or object "
                             "and are ignored (first: '%s')",
                             n, first);
}

/* ---- state_dict_metadata ---- */

/*
 * SerializationFormat.SAFETENSORS (torch >= 2.8) stores the raw size of the tensor as the item's
 * length, which no zip archive of it can have.
 */
static dcpk_status check_serialization(const struct dcpk_tensor *tensor, const int64_t *extent,
                                       const struct dcpk_place *place, struct dcpk_error *err)
{
    int64_t n_elems;

    if (dcpk_shape_count(extent, tensor->rank, &n_elems, err))
        return err->status;
    if (n_elems > 0 && place->n_bytes / dcpk_dtype_bytes(tensor->dtype) == (uint64_t)n_elems &&
        place->n_bytes % dcpk_dtype_bytes(tensor->dtype) == 0)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "its item of %" PRIu64
                         " bytes has no room for a torch.save archive: saved with "
                         "SerializationFormat.SAFETENSORS; save with TORCH_SAVE",
                         place->n_bytes);
    return DCPK_OK;
}

/* The span of offsets and extents of the same rank; NULL and err when memory is out. */
static const int64_t *keep_span(struct reading *r, const struct dcpk_packed_chunk *packed,
                                struct dcpk_error *err)
{
    const int64_t *offsets = r->packed.sizes[packed->offsets];
    const int64_t *extents = r->packed.sizes[packed->extents];
    const size_t rank = (size_t)offsets[0];
    struct span *span = &r->spans[(packed->offsets * 31 + packed->extents) % N_SPANS];
    int64_t *numbers;

    if (span->numbers != NULL && span->offsets == packed->offsets &&
        span->extents == packed->extents)
        return span->numbers;
    numbers = dcpk_arena_array(r->ckpt->arena, 2 * rank, sizeof *numbers, err);
    if (numbers == NULL)
        return NULL;
    memcpy(numbers, offsets + 1, rank * sizeof *numbers);
    memcpy(numbers + rank, extents + 1, rank * sizeof *numbers);
    *span = (struct span){packed->offsets, packed->extents, numbers};
    return numbers;
}

static dcpk_status make_chunk(struct reading *r, const struct dcpk_tensor *tensor, uint32_t key,
                              const struct dcpk_packed_chunk *packed, struct dcpk_chunk *chunk,
                              struct dcpk_error *err)
{
    const int64_t *offsets = r->packed.sizes[packed->offsets];
    const int64_t *extents = r->packed.sizes[packed->extents];

    if (offsets[0] != tensor->rank || extents[0] != tensor->rank)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "offsets of rank %d and sizes of rank %d in a tensor of rank %d",
                         (int)offsets[0], (int)extents[0], tensor->rank);
    for (int i = 0; i < tensor->rank; i++) {
        const int64_t at = offsets[1 + i], n = extents[1 + i];

        if (at > tensor->shape[i] || n > tensor->shape[i] - at)
            return dcpk_fail(err, DCPK_EFORMAT,
                             "on axis %d %" PRId64 " elements at %" PRId64
                             " lie outside the tensor's %" PRId64,
                             i, n, at, tensor->shape[i]);
    }
    chunk->span = keep_span(r, packed, err);
    if (chunk->span == NULL)
        return err->status;
    if (take_place(r, key, packed->offsets, &chunk->place, err))
        return err->status;
    return check_serialization(tensor, extents + 1, &chunk->place, err);
}

static dcpk_status make_chunks(struct reading *r, struct dcpk_tensor *tensor,
                               const struct dcpk_packed_entry *entry, struct dcpk_error *err)
{
    struct dcpk_checkpoint *ckpt = r->ckpt;
    const size_t n = dcpk_packed_count(&r->packed, entry->list);
    uint32_t next = 0;

    if (n > r->packed.n_places)
        return dcpk_fail(err, DCPK_EFORMAT, "%zu chunks, storage_data has %zu places", n,
                         r->packed.n_places);
    tensor->first_chunk = ckpt->n_chunks;
    tensor->n_chunks = n;
    if (n > 0)
        next = r->packed.chunks[entry->list - 1].next;
    for (size_t i = 0; i < n; i++) {
        const struct dcpk_packed_chunk *packed = &r->packed.chunks[next];
        struct dcpk_chunk chunk = {.tensor = (uint32_t)ckpt->n_tensors};

        next = packed->next;
        if (make_chunk(r, tensor, entry->key, packed, &chunk, err))
            return dcpk_context(err, "chunk %zu", i);
        if (dcpk_grow(&ckpt->chunks, &r->chunks_capacity, ckpt->n_chunks, sizeof *ckpt->chunks,
                      err))
            return err->status;
        ckpt->chunks[ckpt->n_chunks++] = chunk;
    }
    return DCPK_OK;
}

static dcpk_status make_tensor(struct reading *r, const struct dcpk_packed_entry *entry,
                               struct dcpk_error *err)
{
    const int64_t *shape = r->packed.sizes[entry->shape];
    struct dcpk_tensor tensor = {.key = r->packed.keys[entry->key],
                                 .dtype = entry->dtype,
                                 .rank = (int)shape[0],
                                 .shape = shape + 1};

    if (make_chunks(r, &tensor, entry, err))
        return err->status;
    return dcpk_checkpoint_add_tensor(r->ckpt, &tensor, err);
}

static dcpk_status metadata_make_object(struct reading *r, const struct dcpk_packed_entry *entry,
                                        struct dcpk_error *err)
{
    struct dcpk_object object = {.key = r->packed.keys[entry->key]};

    if (r->info->part != NULL && dcpk_starts_with(object.key, COMMON))
        object.key = dcpk_arena_printf(r->ckpt->arena, err, COMMON "%s%s", r->info->part,
                                       object.key + strlen(COMMON));
    if (object.key == NULL)
        return err->status;
    if (take_place(r, entry->key, DCPK_NO_SIZE, &object.place, err))
        return err->status;
    return dcpk_checkpoint_add_object(r->ckpt, &object, err);
}

static dcpk_status make_entry(struct reading *r, const struct dcpk_packed_entry *entry,
                              struct dcpk_error *err)
{
    if (entry->dtype == DCPK_DTYPE_NONE)
        return metadata_make_object(r, entry, err);
    return make_tensor(r, entry, err);
}

static dcpk_status make_entries(struct reading *r, struct dcpk_error *err)
{
    size_t n_objects = 0;

    r->spans = dcpk_alloc_array(N_SPANS, sizeof *r->spans, err);
    if (r->spans == NULL)
        return err->status;
    for (size_t i = 0; i < r->packed.n_entries; i++)
        n_objects += r->packed.entries[i].dtype == DCPK_DTYPE_NONE;
    if (dcpk_map_reserve(&r->ckpt->object_by_key, n_objects, err) ||
        dcpk_map_reserve(&r->ckpt->tensor_by_key, r->packed.n_entries - n_objects, err))
        return err->status;
    for (size_t i = 0; i < r->packed.n_entries; i++) {
        const struct dcpk_packed_entry *entry = &r->packed.entries[i];

        if (make_entry(r, entry, err))
            return dcpk_context(err, "'%s'", r->packed.keys[entry->key]);
    }
    return DCPK_OK;
}

/* Reads the entries that were not taken, or all of them when another dict was taken. */
static dcpk_status read_entries(struct reading *r, const struct dcpk_value *dict,
                                struct dcpk_error *err)
{
    if (!metadata_is_dict(dict, DCPK_PACKED_ENTRIES))
        return dcpk_fail(err, DCPK_EFORMAT, "no state_dict_metadata");
    if (dcpk_pickle_run(dict) == DCPK_PACKED_NOTHING)
        r->packed.n_entries = 0;
    for (size_t i = 0; i < dict->n; i++)
        if (dcpk_packed_add_entry(&r->packed, dict->as.pairs[i].key, dict->as.pairs[i].value, err))
            return err->status;
    return DCPK_OK;
}

/* ---- the rest ---- */

/* mcore_data of one key: {} or {'nd_reformulated_orig_global_shape': (...)}; megatron/core 0.8 to
 * 0.15. */
static dcpk_status read_mcore_entry(struct reading *r, const char *key,
                                    const struct dcpk_value *dict, struct dcpk_error *err)
{
    static const char attribute[] = "nd_reformulated_orig_global_shape";
    int64_t shape[DCPK_MAX_RANK];
    struct dcpk_tensor *tensor;
    uint64_t i;

    if (dict->n == 0)
        return DCPK_OK;
    if (dict->n != 1 || dcpk_value_get(dict, attribute) == NULL)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "'%s': attributes other than %s", key, attribute);
    if (!dcpk_map_get(&r->ckpt->tensor_by_key, key, strlen(key), &i))
        return dcpk_fail(err, DCPK_EFORMAT, "'%s' is not a tensor", key);
    tensor = &r->ckpt->tensors[i];
    if (dcpk_metadata_size(dcpk_value_get(dict, attribute), attribute, shape, &tensor->model_rank,
                           err))
        return err->status;
    tensor->model_shape =
        dcpk_arena_copy(r->ckpt->arena, shape, (size_t)tensor->model_rank, sizeof(int64_t), err);
    return dcpk_made(tensor->model_shape, err);
}

static dcpk_status read_mcore_entries(struct reading *r, const struct dcpk_value *dict,
                                      struct dcpk_error *err)
{
    if (!metadata_is_dict(dict, DCPK_PACKED_NOTHING))
        return dcpk_fail(err, DCPK_EFORMAT, "not a dict");
    for (size_t i = 0; i < dict->n; i++) {
        const char *key = dcpk_metadata_text(dict->as.pairs[i].key);

        if (key == NULL || !metadata_is_dict(dict->as.pairs[i].value, DCPK_PACKED_NOTHING))
            return dcpk_fail(err, DCPK_EFORMAT, "entry %zu is not text: dict", i);
        if (read_mcore_entry(r, key, dict->as.pairs[i].value, err))
            return err->status;
    }
    return DCPK_OK;
}

static dcpk_status read_mcore_data(struct reading *r, const struct dcpk_value *dict,
                                   struct dcpk_error *err)
{
    r->info->has_mcore_data = dict != NULL;
    if (dict == NULL)
        return DCPK_OK;
    if (read_mcore_entries(r, dict, err))
        return dcpk_context(err, "mcore_data");
    return DCPK_OK;
}

/* Reads the names of the root's attributes; unknown names get a note. */
static void read_info(struct reading *r, const struct dcpk_value *root,
                      const struct dcpk_value *attrs)
{
    static const char *const known[] = {"state_dict_metadata", "planner_data", "storage_data",
                                        "storage_meta",        "version",      "mcore_data",
                                        "all_local_plans"};
    const struct dcpk_value *planner = dcpk_value_get(attrs, "planner_data");

    r->info->is_mcore_class = dcpk_metadata_is_a(root, MCORE_MODULE, "MCoreMetadata");
    r->info->has_planner_data = !dcpk_value_is_none(planner);
    if (r->packed.is_old_module)
        r->info->torch_generation = "2.1-2.2";
    else if (dcpk_value_get(attrs, "version") != NULL)
        r->info->torch_generation = "2.9+";
    else if (dcpk_value_get(attrs, "storage_meta") != NULL)
        r->info->torch_generation = "2.4-2.8";
    else
        r->info->torch_generation = "2.3";
    for (size_t i = 0; i < attrs->n; i++) {
        const char *name = dcpk_metadata_text(attrs->as.pairs[i].key);
        size_t k = 0;

        while (name != NULL && k < DCPK_COUNT(known) && strcmp(name, known[k]) != 0)
            k++;
        if (k == DCPK_COUNT(known) || name == NULL)
            dcpk_checkpoint_note(r->ckpt, ".metadata: attribute '%s' is unknown and ignored",
                                 name == NULL ? "?" : name);
    }
}

static dcpk_status read_root(struct reading *r, const struct dcpk_value *root,
                             struct dcpk_error *err)
{
    const struct dcpk_value *attrs = dcpk_value_attrs(root);
    const char *module, *name = dcpk_metadata_class(root, &module);

    if ((!dcpk_metadata_is_a(root, DCPK_METADATA_MODULE, "Metadata") &&
         !dcpk_metadata_is_a(root, MCORE_MODULE, "MCoreMetadata")) ||
        attrs == NULL)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "the pickle is %s%s%s, not a torch.distributed.checkpoint Metadata",
                         module, *module == '\0' ? "" : ".", name);
    if (read_storage_data(r, dcpk_value_get(attrs, "storage_data"), err) ||
        read_entries(r, dcpk_value_get(attrs, "state_dict_metadata"), err))
        return err->status;
    dcpk_packed_close(&r->packed);
    if (sort_places(&r->packed, err) || make_entries(r, err) ||
        read_mcore_data(r, dcpk_value_get(attrs, "mcore_data"), err))
        return err->status;
    note_unused(r);
    read_info(r, root, attrs);
    return DCPK_OK;
}

/* Also what is taken off again, or in attributes that are not read: torch unpickles all of it. */
static dcpk_status keep_unknown(struct dcpk_checkpoint *ckpt, const struct dcpk_pickle_name *n,
                                struct dcpk_error *err)
{
    if (n->name == NULL)
        return DCPK_OK;
    ckpt->unknown_class = "the result of another call";
    if (*n->name != '\0')
        ckpt->unknown_class = dcpk_arena_printf(ckpt->arena, err, "%s.%s", n->module, n->name);
    if (ckpt->unknown_class == NULL)
        return err->status;
    dcpk_checkpoint_note(ckpt, ".metadata names '%s', which Python would import or call on loading",
                         ckpt->unknown_class);
    return DCPK_OK;
}

/* It is read as a stream, into an eighth of the memory that another pickle may take for a byte. */
static dcpk_status metadata_check_bytes(const struct dcpk_source *source, struct dcpk_error *err)
{
    const uint64_t limit_bytes = 8 * dcpk_source_value_limit(source, UINT64_MAX / 8);

    if (dcpk_source_bytes(source) <= limit_bytes)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_ERANGE,
                     "%" PRIu64 " bytes; the limit for an archive of this size is %" PRIu64
                     "; if that is right, unpack it and give the folder",
                     dcpk_source_bytes(source), limit_bytes);
}

dcpk_status dcpk_metadata_read(struct dcpk_checkpoint *ckpt, struct dcpk_source *source,
                               struct dcpk_dcp_info *info, struct dcpk_error *err)
{
    const char *name = dcpk_source_name(source);
    struct reading r = {.ckpt = ckpt,
                        .info = info,
                        .packed = {.ckpt = ckpt,
                                   .folder = name,
                                   .folder_bytes = (int)(dcpk_name_last(name) - name)},
                        .chunks_capacity = ckpt->n_chunks};
    const struct dcpk_pickle_consumer consumer = {
        .keys = dcpk_packed_keys, .take = dcpk_packed_take, .context = &r.packed};
    struct dcpk_pickle_name unknown = {NULL, NULL};
    const struct dcpk_pickle_options options = {.consumer = &consumer, .unknown = &unknown};
    const struct dcpk_value *root = NULL;

    if (metadata_check_bytes(source, err) == DCPK_OK &&
        dcpk_pickle_read_source(source, &options, ckpt->arena, &root, err) == DCPK_OK &&
        read_root(&r, root, err) == DCPK_OK)
        (void)keep_unknown(ckpt, &unknown, err);
    dcpk_packed_release(&r.packed);
    dcpk_free(r.spans);
    return err->status;
}

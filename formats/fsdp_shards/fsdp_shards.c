/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_shards.c - the format row, and what the files of all ranks hold together. */
#include "formats/fsdp_shards/fsdp_shards.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/fsdp_shards/shards_priv.h"
#include "formats/torch/item.h"
#include "formats/torch/pickle.h"
#include "lib/base/alloc.h"
#include "lib/base/json.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/ckpt/overlaps.h"

#define CONFIG_NAME      "fsdp_config.json"
#define MAX_CONFIG_BYTES (UINT64_C(1) << 20)
#define MAX_RANKS        65536
#define MODEL_PREFIX     "model_world_size_"
#define EXTRA_PREFIX     "extra_state_world_size_"
#define SCORE            90 /* a Hugging Face model may lie in the same folder */

/* Elements of a chunk that another file holds, too. */
struct dcpk_shard_copy {
    uint32_t tensor;
    bool is_whole; /* of a tensor that is whole in each file, by no mesh */
    struct dcpk_place first, again;
};

/* ---- names ---- */

bool dcpk_shards_is_known(const char *module, const char *name)
{
    static const char *const known[][2] = {
        {"torch", "Tensor"},
        {"torch._tensor", "_rebuild_from_type_v2"},
        {"torch._utils", "_rebuild_wrapper_subclass"},
        {"torch.distributed._mesh_layout", "_FlatLayout"},
        {"torch.distributed._mesh_layout", "_MeshLayout"},
        {"torch.distributed.device_mesh", "DeviceMesh"},
        {"torch.distributed.tensor", "DTensor"},
        {"torch.distributed.tensor._dtensor_spec", "DTensorSpec"},
        {"torch.distributed.tensor._dtensor_spec", "ShardOrderEntry"},
        {"torch.distributed.tensor._dtensor_spec", "TensorMeta"},
        {"torch.distributed.tensor.placement_types", "Partial"},
        {"torch.distributed.tensor.placement_types", "Replicate"},
        {"torch.distributed.tensor.placement_types", "Shard"},
        {"torch.distributed.tensor.placement_types", "_StridedShard"},
    };

    for (size_t i = 0; i < DCPK_COUNT(known); i++)
        if (strcmp(module, known[i][0]) == 0 && strcmp(name, known[i][1]) == 0)
            return true;
    return dcpk_pickle_is_known(module, name);
}

static bool shards_is_own(const struct dcpk_checkpoint *ckpt, const char *name)
{
    (void)ckpt;
    return strcmp(name, CONFIG_NAME) == 0 || dcpk_starts_with(name, MODEL_PREFIX) ||
           dcpk_starts_with(name, DCPK_SHARDS_OPTIM) || dcpk_starts_with(name, EXTRA_PREFIX);
}

dcpk_status dcpk_shards_probe(struct dcpk_store *store, int *score, struct dcpk_error *err)
{
    enum dcpk_path_kind kind;

    if (dcpk_store_look(store, CONFIG_NAME, &kind, err))
        return err->status;
    *score = kind == DCPK_PATH_FILE ? SCORE : 0;
    return DCPK_OK;
}

static dcpk_status read_config(struct dcpk_store *store, int64_t *version, int64_t *n_ranks,
                               struct dcpk_error *err)
{
    struct dcpk_json *config = NULL;
    int64_t n = 0;

    *version = 0;
    if (dcpk_json_read(store, CONFIG_NAME, MAX_CONFIG_BYTES, &config, err))
        return err->status;
    if (dcpk_json_kind(config) == DCPK_JSON_OBJECT) {
        (void)dcpk_json_int(dcpk_json_member(config, "FSDP_version"), version);
        (void)dcpk_json_int(dcpk_json_member(config, "world_size"), &n);
    }
    dcpk_json_free(config);
    if (*version != 1 && *version != 2)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "'" CONFIG_NAME "' has no FSDP_version 1 or 2, which are read");
    if (n < 1 || n > MAX_RANKS)
        return dcpk_fail(err, DCPK_EFORMAT, "'" CONFIG_NAME "' has no world_size from 1 to %d",
                         MAX_RANKS);
    *n_ranks = n;
    return DCPK_OK;
}

/* No file is of a run of another size: a folder that was saved into twice. */
static dcpk_status check_sizes(struct dcpk_store *store, int64_t n_ranks, struct dcpk_error *err)
{
    char **names = NULL;
    size_t n = 0;

    if (dcpk_store_list(store, &names, &n, err))
        return err->status;
    for (size_t i = 0; i < n && err->status == DCPK_OK; i++) {
        const char *at = names[i] + strlen(MODEL_PREFIX);

        if (!dcpk_starts_with(names[i], MODEL_PREFIX) || !dcpk_ends_with(names[i], ".pt"))
            continue;
        if (dcpk_take_number(&at) != n_ranks)
            (void)dcpk_fail(err, DCPK_EFORMAT,
                            "'%.200s' is of another world size than %" PRId64
                            ", that of '" CONFIG_NAME "': remove the files of one of the two runs",
                            names[i], n_ranks);
    }
    dcpk_free(names);
    return err->status;
}

/* ---- the tensors of a file ---- */

/* A chunk's span is followed by the record that is checked with it: its place, bytes (0: none) and
 * CRC-32. The first chunk of a record has it, and all at its place. */
enum { RECORD_AT, RECORD_BYTES, RECORD_CRC32, N_RECORD };

static dcpk_status add_record(struct dcpk_shards_reading *r, const struct dcpk_value_tensor *local,
                              int64_t *record, struct dcpk_error *err)
{
    uint64_t *key = dcpk_arena_alloc(r->arena, sizeof *key, err);
    bool existed = false;
    uint64_t first = 0;

    if (key == NULL)
        return err->status;
    *key = local->record_offset_bytes;
    if (dcpk_map_put(&r->records, (const char *)key, sizeof *key, local->first_bytes, &existed,
                     &first, err))
        return err->status;
    if (existed && first != local->first_bytes)
        return DCPK_OK;
    record[RECORD_AT] = (int64_t)local->record_offset_bytes;
    record[RECORD_BYTES] = (int64_t)local->record_bytes;
    record[RECORD_CRC32] = local->record_crc32;
    return DCPK_OK;
}

static dcpk_status add_copy(struct dcpk_shards_reading *r, const struct dcpk_chunk *chunk,
                            const struct dcpk_chunk *again, struct dcpk_error *err)
{
    struct dcpk_shards_state *state = r->state;

    if (dcpk_grow(&state->copies, &state->copies_capacity, state->n_copies, sizeof *state->copies,
                  err))
        return err->status;
    state->copies[state->n_copies++] = (struct dcpk_shard_copy){
        again->tensor, r->layouts[again->tensor]->n_mesh == 0, chunk->place, again->place};
    return DCPK_OK;
}

/* A rank's box of tensor t: a chunk, or a copy of one. */
static dcpk_status add_shard(struct dcpk_shards_reading *r, uint32_t t,
                             const struct dcpk_dtensor *tensor, const struct dcpk_box *box,
                             struct dcpk_error *err)
{
    const size_t rank = (size_t)box->rank;
    int64_t *key = dcpk_arena_array(r->ckpt->arena, 1 + 2 * rank + N_RECORD, sizeof *key, err);
    struct dcpk_chunk chunk = {
        .tensor = t, .place = {r->number, tensor->local->first_bytes, tensor->local->n_bytes}};
    uint64_t number = r->ckpt->n_chunks;
    bool existed = false;

    if (key == NULL)
        return err->status;
    key[0] = t;
    dcpk_box_pack(box, key + 1);
    chunk.span = key + 1;
    if (dcpk_map_put(&r->boxes, (const char *)key, (1 + 2 * rank) * sizeof *key, number, &existed,
                     &number, err))
        return err->status;
    if (existed)
        return add_copy(r, &r->ckpt->chunks[number], &chunk, err);
    if (add_record(r, tensor->local, key + 1 + 2 * rank, err) ||
        dcpk_grow(&r->ckpt->chunks, &r->state->chunks_capacity, r->ckpt->n_chunks, sizeof chunk,
                  err))
        return err->status;
    r->ckpt->chunks[r->ckpt->n_chunks++] = chunk;
    r->ckpt->tensors[t].n_chunks++;
    return DCPK_OK;
}

/* A copy of the layout, the same one for all tensors that have it. */
static const struct dcpk_dtensor_layout *keep_layout(struct dcpk_shards_reading *r,
                                                     const struct dcpk_dtensor_layout *layout,
                                                     struct dcpk_error *err)
{
    struct dcpk_dtensor_layout *kept;
    uint64_t found;
    bool existed;

    if (dcpk_map_get(&r->by_layout, (const char *)layout, sizeof *layout, &found))
        return (const struct dcpk_dtensor_layout *)(uintptr_t)found;
    kept = dcpk_arena_alloc(r->arena, sizeof *kept, err);
    if (kept == NULL)
        return NULL;
    memcpy(kept, layout, sizeof *kept);
    if (dcpk_map_put(&r->by_layout, (const char *)kept, sizeof *kept, (uint64_t)(uintptr_t)kept,
                     &existed, &found, err))
        return NULL;
    return kept;
}

/* A tensor of rank 0: its layout is that of all ranks. */
static dcpk_status add_tensor(struct dcpk_shards_reading *r, const char *key,
                              const struct dcpk_dtensor_layout *layout, struct dcpk_error *err)
{
    struct dcpk_checkpoint *ckpt = r->ckpt;
    const struct dcpk_dtensor_layout *kept = keep_layout(r, layout, err);
    int64_t *shape = dcpk_arena_array(ckpt->arena, (size_t)layout->rank, sizeof *shape, err);
    struct dcpk_tensor tensor = {.key = dcpk_arena_strdup(ckpt->arena, key, err),
                                 .dtype = (enum dcpk_dtype)layout->dtype,
                                 .rank = (int)layout->rank,
                                 .shape = shape};

    if (kept == NULL || shape == NULL || tensor.key == NULL ||
        dcpk_grow(&r->layouts, &r->layouts_capacity, ckpt->n_tensors, sizeof kept, err))
        return err->status;
    memcpy(shape, layout->shape, (size_t)layout->rank * sizeof *shape);
    r->layouts[ckpt->n_tensors] = kept;
    return dcpk_checkpoint_add_tensor(ckpt, &tensor, err);
}

static dcpk_status find_tensor(struct dcpk_shards_reading *r, const char *key,
                               const struct dcpk_dtensor_layout *layout, uint32_t *t,
                               struct dcpk_error *err)
{
    const struct dcpk_tensor *found;

    if (r->file.rank == 0 && add_tensor(r, key, layout, err))
        return err->status;
    found = dcpk_checkpoint_tensor(r->ckpt, key);
    if (found == NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "rank 0 does not have it");
    *t = (uint32_t)(found - r->ckpt->tensors);
    if (memcmp(r->layouts[*t], layout, sizeof *layout) != 0)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "rank 0 has it with another dtype, shape, mesh or placements");
    return DCPK_OK;
}

dcpk_status dcpk_rank_file_take(struct dcpk_shards_reading *r, const char *key,
                                const struct dcpk_value *value, struct dcpk_error *err)
{
    struct dcpk_dtensor tensor;
    struct dcpk_box box;
    uint32_t t;

    if (dcpk_dtensor_read(&r->file, value, &tensor, err) ||
        dcpk_dtensor_place(&tensor, &box, err) || find_tensor(r, key, &tensor.layout, &t, err) ||
        (tensor.local->n_bytes > 0 && add_shard(r, t, &tensor, &box, err)))
        dcpk_context(err, "'%.200s'", key);
    return err->status;
}

/* The pairs of a state dict: an OrderedDict, perhaps with attributes. */
static dcpk_status read_pairs(struct dcpk_shards_reading *r, const struct dcpk_value *value,
                              struct dcpk_error *err)
{
    const bool is_object = dcpk_value_is_object(value, "collections", "OrderedDict");
    const struct dcpk_value_pair *pairs = is_object ? value->as.object->pairs : value->as.pairs;
    const size_t n = is_object ? value->as.object->n_pairs : value->n;

    if (!is_object && value->kind != DCPK_V_DICT)
        return dcpk_fail(err, DCPK_EFORMAT, "it does not hold a state dict");
    for (size_t i = 0; i < n; i++) {
        const char *key = dcpk_value_as_str(pairs[i].key);

        if (key == NULL || strlen(key) != pairs[i].key->n)
            return dcpk_fail(err, DCPK_EFORMAT, "a key of the state dict is not a name");
        if (dcpk_rank_file_take(r, key, pairs[i].value, err))
            return err->status;
    }
    if (n != r->ckpt->n_tensors)
        return dcpk_fail(err, DCPK_EFORMAT, "it has %zu tensors, and rank 0 has %zu", n,
                         r->ckpt->n_tensors);
    return DCPK_OK;
}

static dcpk_status find_file(struct dcpk_store *store, const char *name,
                             struct dcpk_source **source, struct dcpk_error *err)
{
    enum dcpk_path_kind kind;

    if (dcpk_store_look(store, name, &kind, err))
        return err->status;
    if (kind == DCPK_PATH_NOTHING)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "there is no '%s', and '" CONFIG_NAME
                         "' has its world size: copy the files "
                         "of all ranks",
                         name);
    return dcpk_store_find(store, name, source, err);
}

dcpk_status dcpk_rank_file_read(struct dcpk_shards_reading *r, const char *prefix, int64_t rank,
                                struct dcpk_arena *arena, const struct dcpk_value **value,
                                struct dcpk_error *err)
{
    struct dcpk_item_range range;
    struct dcpk_source *source;
    char name[80];

    snprintf(name, sizeof name, "%s%" PRId64 "_rank_%" PRId64 ".pt", prefix, r->n_ranks, rank);
    r->name = dcpk_arena_strdup(arena, name, err);
    dcpk_map_release(&r->records);
    if (r->name == NULL || find_file(r->ckpt->store, name, &source, err) ||
        dcpk_checkpoint_add_file(r->ckpt, source, &r->number, err))
        return err->status;
    r->file = (struct dcpk_shard_file){.source = source, .rank = rank, .n_ranks = r->n_ranks};
    range = dcpk_item_whole(source);
    if (dcpk_item_read_known(&range, dcpk_shards_is_known, arena, value, err)) {
        if (strstr(err->text, "ShardedTensor") != NULL)
            dcpk_append(err, ": save with FSDP2, or give FSDP1 a device mesh");
        dcpk_context(err, "reading '%s'", name);
    }
    return err->status;
}

static dcpk_status read_model(struct dcpk_shards_reading *r, int64_t rank, struct dcpk_error *err)
{
    struct dcpk_arena *arena = dcpk_arena_new(err);
    const struct dcpk_value *value;

    if (arena != NULL &&
        dcpk_rank_file_read(r, MODEL_PREFIX, rank, arena, &value, err) == DCPK_OK &&
        read_pairs(r, value, err))
        dcpk_context(err, "reading '%s'", r->name);
    dcpk_arena_free(arena);
    return err->status;
}

/* Orders the chunks by their tensors, in each by ranks. */
static dcpk_status order_chunks(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    struct dcpk_chunk *ordered = dcpk_alloc_array(ckpt->n_chunks, sizeof *ordered, err);
    size_t n = 0;

    if (ordered == NULL)
        return err->status;
    for (size_t t = 0; t < ckpt->n_tensors; t++) {
        ckpt->tensors[t].first_chunk = n;
        n += ckpt->tensors[t].n_chunks;
        ckpt->tensors[t].n_chunks = 0;
    }
    for (size_t i = 0; i < ckpt->n_chunks; i++) {
        struct dcpk_tensor *tensor = &ckpt->tensors[ckpt->chunks[i].tensor];

        ordered[tensor->first_chunk + tensor->n_chunks++] = ckpt->chunks[i];
    }
    dcpk_free(ckpt->chunks);
    ckpt->chunks = ordered;
    return DCPK_OK;
}

dcpk_status dcpk_shards_open(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    struct dcpk_shards_reading r = {.ckpt = ckpt, .state = ckpt->state};

    r.arena = dcpk_arena_new(err);
    if (r.arena == NULL || read_config(ckpt->store, &r.version, &r.n_ranks, err) ||
        check_sizes(ckpt->store, r.n_ranks, err))
        goto out;
    for (int64_t rank = 0; rank < r.n_ranks; rank++)
        if (read_model(&r, rank, err))
            goto out;
    if (dcpk_shards_read_optimizer(&r, err) == DCPK_OK)
        (void)order_chunks(ckpt, err);
out:
    dcpk_map_release(&r.records);
    dcpk_map_release(&r.boxes);
    dcpk_map_release(&r.by_layout);
    dcpk_free(r.layouts);
    dcpk_arena_free(r.arena);
    return err->status;
}

void dcpk_shards_close(struct dcpk_checkpoint *ckpt)
{
    struct dcpk_shards_state *state = ckpt->state;

    dcpk_free(state->copies);
    dcpk_free(state->fields);
}

/* ---- reading ---- */

static dcpk_status shards_locate(struct dcpk_checkpoint *ckpt, const struct dcpk_chunk *chunk,
                                 const struct dcpk_reader *reader, struct dcpk_extent *where,
                                 struct dcpk_error *err)
{
    const struct dcpk_tensor *tensor = &ckpt->tensors[chunk->tensor];
    const int64_t *extent = chunk->span + tensor->rank, *record = extent + tensor->rank;
    int64_t stride = (int64_t)dcpk_dtype_bytes(tensor->dtype);

    (void)reader;
    (void)err;
    *where = (struct dcpk_extent){.source = ckpt->files[chunk->place.file],
                                  .first_bytes = chunk->place.offset_bytes,
                                  .is_row_major = true,
                                  .has_crc32 = record[RECORD_BYTES] > 0,
                                  .crc32 = (uint32_t)record[RECORD_CRC32],
                                  .record_offset_bytes = (uint64_t)record[RECORD_AT],
                                  .record_bytes = (uint64_t)record[RECORD_BYTES]};
    for (int a = tensor->rank; a-- > 0;) {
        where->stride_bytes[a] = stride;
        stride *= extent[a]; /* a chunk has elements, and they lie in the file */
    }
    return DCPK_OK;
}

/* A tensor with one chunk, such as a step, as a value. */
static dcpk_status load_tensor(struct dcpk_checkpoint *ckpt, const struct dcpk_tensor *tensor,
                               const struct dcpk_place *place, struct dcpk_arena *arena,
                               const struct dcpk_value **value, struct dcpk_error *err)
{
    struct dcpk_value_tensor *t = dcpk_arena_alloc(arena, sizeof *t, err);
    struct dcpk_value *v = dcpk_arena_alloc(arena, sizeof *v, err);
    uint8_t *data;

    if (place->n_bytes > DCPK_MAX_LOADED_BYTES)
        return dcpk_fail(err, DCPK_ERANGE, "%" PRIu64 " bytes are not loaded", place->n_bytes);
    data = dcpk_arena_alloc(arena, (size_t)place->n_bytes, err);
    if (t == NULL || v == NULL || data == NULL ||
        dcpk_source_read(ckpt->files[place->file], place->offset_bytes, data,
                         (size_t)place->n_bytes, err))
        return err->status;
    *t = (struct dcpk_value_tensor){.dtype = tensor->dtype,
                                    .rank = tensor->rank,
                                    .shape = tensor->shape,
                                    .n_bytes = place->n_bytes,
                                    .data = data};
    *v = (struct dcpk_value){.kind = DCPK_V_TENSOR, .as.tensor = t};
    *value = v;
    return DCPK_OK;
}

/* Fields of groups, which were read on opening; or a tensor at its place. */
static dcpk_status shards_load_object(struct dcpk_checkpoint *ckpt,
                                      const struct dcpk_object *object, struct dcpk_arena *arena,
                                      const struct dcpk_value **value, struct dcpk_error *err)
{
    const struct dcpk_shards_state *state = ckpt->state;
    uint64_t t = 0;

    if (dcpk_map_get(&ckpt->tensor_by_key, object->key, strlen(object->key), &t))
        return load_tensor(ckpt, &ckpt->tensors[t], &object->place, arena, value, err);
    for (size_t i = 0; i < state->n_fields; i++)
        if (strcmp(state->fields[i].key, object->key) == 0) {
            *value = state->fields[i].value;
            return DCPK_OK;
        }
    return dcpk_fail(err, DCPK_EFORMAT, "'%.200s' is not in the group of the optimizer",
                     object->key);
}

const struct dcpk_format_reader dcpk_shards_reader = {.locate = shards_locate,
                                                      .load_object = shards_load_object,
                                                      .outline_object = shards_load_object,
                                                      .is_own = shards_is_own};

/* ---- copies ---- */

#define PIECE_BYTES ((size_t)1 << 20)

static dcpk_status compare_copy(struct dcpk_checkpoint *ckpt, const struct dcpk_shard_copy *copy,
                                uint8_t *buffer, struct dcpk_error *err)
{
    struct dcpk_source *first = ckpt->files[copy->first.file];
    struct dcpk_source *again = ckpt->files[copy->again.file];

    if (copy->first.n_bytes != copy->again.n_bytes)
        return dcpk_fail(err, DCPK_EFORMAT, "'%s': equal boxes of unequal bytes",
                         ckpt->tensors[copy->tensor].key);
    for (uint64_t at = 0; at < copy->first.n_bytes; at += PIECE_BYTES) {
        const size_t n = (size_t)dcpk_min_u64(PIECE_BYTES, copy->first.n_bytes - at);

        if (dcpk_source_read(first, copy->first.offset_bytes + at, buffer, n, err) ||
            dcpk_source_read(again, copy->again.offset_bytes + at, buffer + PIECE_BYTES, n, err))
            return err->status;
        if (memcmp(buffer, buffer + PIECE_BYTES, n) != 0)
            return dcpk_fail(
                err, DCPK_EFORMAT,
                "'%s' and '%s' hold the same elements of '%s', and their bytes differ: "
                "the ranks did not agree, or one of the files is damaged",
                dcpk_source_name(first), dcpk_source_name(again), ckpt->tensors[copy->tensor].key);
    }
    return DCPK_OK;
}

/* Each two places once: several tensors may share them. */
static dcpk_status compare_copies(struct dcpk_checkpoint *ckpt, bool whole_ones_alone,
                                  struct dcpk_error *err)
{
    const struct dcpk_shards_state *state = ckpt->state;
    uint8_t *buffer = dcpk_alloc(2 * PIECE_BYTES, err);
    struct dcpk_by_place done = {.arena = dcpk_arena_new(err)};

    for (size_t i = 0; i < state->n_copies && err->status == DCPK_OK; i++) {
        const struct dcpk_shard_copy *copy = &state->copies[i];
        uint64_t unused;

        if ((whole_ones_alone && !copy->is_whole) ||
            dcpk_by_place_get(&done, &copy->first, &copy->again, &unused))
            continue;
        if (compare_copy(ckpt, copy, buffer, err) == DCPK_OK)
            (void)dcpk_by_place_put(&done, &copy->first, &copy->again, 0, err);
    }
    dcpk_by_place_release(&done);
    dcpk_arena_free(done.arena);
    dcpk_free(buffer);
    return err->status;
}

dcpk_status dcpk_shards_check_copies(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    return compare_copies(ckpt, false, err);
}

dcpk_status dcpk_shards_check_whole_copies(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    return compare_copies(ckpt, true, err);
}

/* ---- the row ---- */

const struct dcpk_mark dcpk_shards_marks[] = {
    {DCPK_MARK_CHECKPOINT, CONFIG_NAME, NULL, NULL},
    {DCPK_MARK_PART, MODEL_PREFIX, ".pt",
     "it has shards of FSDP and no " CONFIG_NAME ", which verl and SkyRL write last: the copy is "
     "not whole"},
    {DCPK_MARK_PART, DCPK_SHARDS_OPTIM, ".pt", NULL},
    {DCPK_MARK_PART, EXTRA_PREFIX, ".pt", NULL},
    {0},
};

const struct dcpk_format dcpk_format_fsdp_shards = {
    .name = "fsdp_shards",
    .summary = "verl's and SkyRL's shards of FSDP, a file a rank, with any names (not converted)",
    DCPK_SHARDS_CONTAINER,
};

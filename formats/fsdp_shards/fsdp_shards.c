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
#define MODEL_PREFIX     "model_world_size_"
#define EXTRA_PREFIX     "extra_state_world_size_"
#define SCORE            90 /* a Hugging Face model may lie in the same folder */

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
    if (n < 1 || n > DCPK_SHARDS_MAX_RANKS)
        return dcpk_fail(err, DCPK_EFORMAT, "'" CONFIG_NAME "' has no world_size from 1 to %d",
                         DCPK_SHARDS_MAX_RANKS);
    *n_ranks = n;
    return DCPK_OK;
}

/* A file is of a rank of the run, by its name. */
static dcpk_status check_rank(const char *name, const char *at, int64_t n_ranks,
                              struct dcpk_error *err)
{
    static const char rank[] = "_rank_";

    if (dcpk_take_number(&at) != n_ranks)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "'%.200s' is of another world size than %" PRId64 ", that of '" CONFIG_NAME
                         "': remove the files of one of the two runs",
                         name, n_ranks);
    if (!dcpk_starts_with(at, rank))
        return DCPK_OK;
    at += strlen(rank);
    if (dcpk_take_number(&at) >= n_ranks)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "'%.200s' is of a rank past the world size %" PRId64 " of '" CONFIG_NAME
                         "': remove it if it is of another run",
                         name, n_ranks);
    return DCPK_OK;
}

/* No file is of a run of another size: a folder that was saved into twice. */
static dcpk_status check_sizes(struct dcpk_store *store, int64_t n_ranks, struct dcpk_error *err)
{
    static const char *const prefixes[] = {MODEL_PREFIX, DCPK_SHARDS_OPTIM};
    char **names = NULL;
    size_t n = 0;

    if (dcpk_store_list(store, &names, &n, err))
        return err->status;
    for (size_t i = 0; i < n && err->status == DCPK_OK; i++)
        for (size_t p = 0; p < DCPK_COUNT(prefixes) && err->status == DCPK_OK; p++)
            if (dcpk_starts_with(names[i], prefixes[p]) && dcpk_ends_with(names[i], ".pt"))
                (void)check_rank(names[i], names[i] + strlen(prefixes[p]), n_ranks, err);
    dcpk_free(names);
    return err->status;
}

/* ---- the tensors of a file ---- */

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
    kept = dcpk_arena_copy(r->rank.arena, layout, 1, sizeof *kept, err);
    if (kept == NULL || dcpk_map_put(&r->by_layout, (const char *)kept, sizeof *kept,
                                     (uint64_t)(uintptr_t)kept, &existed, &found, err))
        return NULL;
    return kept;
}

/* A tensor of rank 0: its layout is that of all ranks. */
static dcpk_status add_tensor(struct dcpk_shards_reading *r, const char *key,
                              const struct dcpk_dtensor_layout *layout, struct dcpk_error *err)
{
    struct dcpk_checkpoint *ckpt = r->rank.ckpt;
    const struct dcpk_dtensor_layout *kept = keep_layout(r, layout, err);
    const int64_t *shape =
        dcpk_arena_copy(ckpt->arena, layout->shape, (size_t)layout->rank, sizeof *shape, err);
    struct dcpk_tensor tensor = {.key = dcpk_arena_strdup(ckpt->arena, key, err),
                                 .dtype = (enum dcpk_dtype)layout->dtype,
                                 .rank = (int)layout->rank,
                                 .shape = shape};

    if (kept == NULL || shape == NULL || tensor.key == NULL ||
        dcpk_grow(&r->layouts, &r->layouts_capacity, ckpt->n_tensors, sizeof kept, err))
        return err->status;
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
    found = dcpk_checkpoint_tensor(r->rank.ckpt, key);
    if (found == NULL)
        return dcpk_fail(err, DCPK_EFORMAT, "rank 0 does not have it");
    *t = (uint32_t)(found - r->rank.ckpt->tensors);
    if (memcmp(r->layouts[*t], layout, sizeof *layout) != 0)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "rank 0 has it with another dtype, shape, mesh or placements");
    return DCPK_OK;
}

dcpk_status dcpk_rank_file_take(struct dcpk_shards_reading *r, const char *key,
                                const struct dcpk_value *value, struct dcpk_error *err)
{
    struct dcpk_rank_piece piece;
    struct dcpk_dtensor tensor;

    if (dcpk_dtensor_read(&r->file, value, &tensor, err) ||
        dcpk_dtensor_place(&tensor, &piece.box, err) ||
        find_tensor(r, key, &tensor.layout, &piece.tensor, err)) {
        dcpk_context(err, "'%.200s'", key);
        return err->status;
    }
    piece.local = tensor.local;
    piece.first_bytes = tensor.local->first_bytes;
    piece.n_bytes = tensor.local->n_bytes;
    piece.is_whole = tensor.layout.n_mesh == 0;
    return dcpk_rank_reading_add(&r->rank, &piece, err);
}

/* The tensors of a file. */
static dcpk_status read_pairs(struct dcpk_shards_reading *r, const struct dcpk_value *value,
                              struct dcpk_error *err)
{
    const struct dcpk_value_pair *pairs;
    size_t n;

    if (dcpk_rank_state_dict(value, &pairs, &n, err))
        return err->status;
    for (size_t i = 0; i < n; i++)
        if (dcpk_rank_file_take(r, dcpk_value_as_str(pairs[i].key), pairs[i].value, err))
            return err->status;
    if (n != r->rank.ckpt->n_tensors)
        return dcpk_fail(err, DCPK_EFORMAT, "it has %zu tensors, and rank 0 has %zu", n,
                         r->rank.ckpt->n_tensors);
    return DCPK_OK;
}

static dcpk_status find_file(const struct dcpk_shards_reading *r, struct dcpk_source **source,
                             struct dcpk_error *err)
{
    struct dcpk_store *store = r->rank.ckpt->store;
    enum dcpk_path_kind kind;

    if (dcpk_store_look(store, r->name, &kind, err))
        return err->status;
    if (kind == DCPK_PATH_NOTHING)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "there is no '%s', and '%s' has its world size: copy the files of all "
                         "ranks",
                         r->name, r->config);
    return dcpk_store_find(store, r->name, source, err);
}

/* An archive has the name that its file had: a copy of one rank's under another rank's name would
 * fit where all have as many rows. */
static dcpk_status check_name(const struct dcpk_shards_reading *r, const char *prefix,
                              struct dcpk_error *err)
{
    const char *folder = r->rank.folder;
    const size_t n_name = strlen(r->name) - strlen(".pt");

    if (!dcpk_starts_with(folder, prefix) ||
        (strlen(folder) == n_name && strncmp(folder, r->name, n_name) == 0))
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EFORMAT,
                     "'%s' was saved as '%.95s.pt': copy the files of all ranks again, by their "
                     "own names",
                     r->name, folder);
}

dcpk_status dcpk_rank_file_read(struct dcpk_shards_reading *r, const char *prefix, int64_t rank,
                                struct dcpk_arena *arena, const struct dcpk_value **value,
                                struct dcpk_error *err)
{
    struct dcpk_source *source;

    r->name = dcpk_arena_printf(arena, err, "%s%" PRId64 ".pt", prefix, rank);
    if (r->name == NULL || find_file(r, &source, err))
        return err->status;
    r->file = (struct dcpk_shard_file){.source = source, .rank = rank, .n_ranks = r->n_ranks};
    if (dcpk_rank_reading_open(&r->rank, source, dcpk_shards_is_known, arena, value, err) &&
        strstr(err->text, "ShardedTensor") != NULL)
        dcpk_append(err, ": save with FSDP2, or give FSDP1 a device mesh");
    if (err->status == DCPK_OK)
        (void)check_name(r, prefix, err);
    return err->status;
}

static dcpk_status read_model(struct dcpk_shards_reading *r, int64_t rank, struct dcpk_error *err)
{
    struct dcpk_arena *arena = dcpk_arena_new();
    const struct dcpk_value *value;
    char prefix[64];

    snprintf(prefix, sizeof prefix, MODEL_PREFIX "%" PRId64 "_rank_", r->n_ranks);
    if (dcpk_rank_file_read(r, prefix, rank, arena, &value, err) == DCPK_OK &&
        read_pairs(r, value, err))
        dcpk_context(err, "reading '%s'", r->name);
    dcpk_arena_free(arena);
    return err->status;
}

dcpk_status dcpk_shards_read(struct dcpk_checkpoint *ckpt, dcpk_read_shards *read,
                             struct dcpk_error *err)
{
    struct dcpk_shards_reading r = {.state = ckpt->state};

    r.rank.ckpt = ckpt;
    r.rank.files = &r.state->files;
    r.rank.arena = dcpk_arena_new();
    if (read(&r, err) == DCPK_OK)
        (void)dcpk_rank_reading_order(&r.rank, err);
    dcpk_rank_reading_release(&r.rank);
    dcpk_map_release(&r.by_layout);
    dcpk_free(r.layouts);
    dcpk_arena_free(r.rank.arena);
    return err->status;
}

static dcpk_status read_shards(struct dcpk_shards_reading *r, struct dcpk_error *err)
{
    struct dcpk_store *store = r->rank.ckpt->store;

    r->config = CONFIG_NAME;
    if (read_config(store, &r->version, &r->n_ranks, err) || check_sizes(store, r->n_ranks, err))
        return err->status;
    for (int64_t rank = 0; rank < r->n_ranks; rank++)
        if (read_model(r, rank, err))
            return err->status;
    return dcpk_shards_read_optimizer(r, err);
}

dcpk_status dcpk_shards_open(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    return dcpk_shards_read(ckpt, read_shards, err);
}

void dcpk_shards_close(struct dcpk_checkpoint *ckpt)
{
    struct dcpk_shards_state *state = ckpt->state;

    dcpk_rank_files_release(&state->files);
    dcpk_free(state->fields);
}

/* ---- reading ---- */

/* Fields of groups, which were read on opening; or a tensor at its place. */
dcpk_status dcpk_shards_load_object(struct dcpk_checkpoint *ckpt, const struct dcpk_object *object,
                                    struct dcpk_arena *arena, const struct dcpk_value **value,
                                    struct dcpk_error *err)
{
    const struct dcpk_shards_state *state = ckpt->state;
    uint64_t t = 0;

    if (dcpk_map_get(&ckpt->tensor_by_key, object->key, strlen(object->key), &t))
        return dcpk_rank_files_load(ckpt, &ckpt->tensors[t], &object->place, arena, value, err);
    if (!dcpk_map_get(&ckpt->object_by_key, object->key, strlen(object->key), &t) ||
        t >= state->n_fields)
        return dcpk_fail(err, DCPK_EFORMAT, "'%.200s' is not in the group of the optimizer",
                         object->key);
    *value = state->fields[t];
    return DCPK_OK;
}

const struct dcpk_format_reader dcpk_shards_reader = {.locate = dcpk_rank_files_locate,
                                                      .load_object = dcpk_shards_load_object,
                                                      .outline_object = dcpk_shards_load_object,
                                                      .is_own = shards_is_own};

/* ---- copies ---- */

dcpk_status dcpk_shards_check_copies(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    const struct dcpk_shards_state *state = ckpt->state;

    return dcpk_rank_files_compare(ckpt, &state->files, false, err);
}

dcpk_status dcpk_shards_check_whole_copies(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    const struct dcpk_shards_state *state = ckpt->state;

    return dcpk_rank_files_compare(ckpt, &state->files, true, err);
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

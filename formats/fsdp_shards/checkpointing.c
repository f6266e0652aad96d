/* SPDX-License-Identifier: Apache-2.0 */
/* checkpointing.c - torch_checkpointing 2.0: a file for each item and rank. */
#include <inttypes.h>
#include <string.h>

#include "formats/fsdp_shards/fsdp_shards.h"
#include "formats/fsdp_shards/shards_priv.h"
#include "formats/torch/pickle.h"
#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/base/text.h"

/* FORMAT.md 6. */
#define METADATA       "metadata.pkl"
#define VERSION        "2.0"
#define METADATA_BYTES (UINT64_C(1) << 30)
#define SCORE          90 /* a Hugging Face model may lie in the same folder */

/* The items that are read: the start of their files, and of their keys here. */
static const struct {
    const char *file, *prefix;
} items[] = {{"model_", ""}, {"optimizer_", "optimizer."}};

static bool checkpointing_is_own(const struct dcpk_checkpoint *ckpt, const char *name)
{
    (void)ckpt;
    for (size_t i = 0; i < DCPK_COUNT(items); i++)
        if (dcpk_starts_with(name, items[i].file) && dcpk_ends_with(name, ".pt"))
            return true;
    return strcmp(name, METADATA) == 0;
}

dcpk_status dcpk_checkpointing_probe(struct dcpk_store *store, int *score, struct dcpk_error *err)
{
    enum dcpk_path_kind metadata, model;

    if (dcpk_store_look(store, METADATA, &metadata, err) ||
        dcpk_store_look(store, "model_0.pt", &model, err))
        return err->status;
    *score = metadata == DCPK_PATH_FILE && model == DCPK_PATH_FILE ? SCORE : 0;
    return DCPK_OK;
}

static dcpk_status read_world_size(struct dcpk_shards_reading *r, struct dcpk_error *err)
{
    const struct dcpk_pickle_options options = {0};
    const struct dcpk_value *root = NULL;
    struct dcpk_source *source;
    const char *version;
    char *data;
    size_t n;

    if (dcpk_store_find(r->rank.ckpt->store, METADATA, &source, err) ||
        dcpk_source_slurp(source, METADATA_BYTES, &data, &n, err))
        return err->status;
    (void)dcpk_pickle_read(data, n, &options, r->rank.arena, &root, err);
    dcpk_free(data);
    if (err->status != DCPK_OK) {
        dcpk_context(err, "reading '" METADATA "'");
        return err->status;
    }
    version = dcpk_value_as_str(dcpk_value_get(root, "version"));
    if (version == NULL || strcmp(version, VERSION) != 0)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "'" METADATA "' has no version '" VERSION "' of torch_checkpointing, "
                         "which is read");
    if (!dcpk_value_as_int(dcpk_value_get(root, "world_size"), &r->n_ranks) || r->n_ranks < 1 ||
        r->n_ranks > DCPK_SHARDS_MAX_RANKS)
        return dcpk_fail(err, DCPK_EFORMAT, "'" METADATA "' has no world_size from 1 to %d",
                         DCPK_SHARDS_MAX_RANKS);
    return DCPK_OK;
}

/* A plain value, such as a field of a group: that of rank 0. */
static dcpk_status take_plain(struct dcpk_shards_reading *r, const char *key,
                              const struct dcpk_value *value, struct dcpk_error *err)
{
    const struct dcpk_checkpoint *ckpt = r->rank.ckpt;
    uint64_t at;

    if (r->file.rank == 0)
        return dcpk_shards_add_field(r, key, value, err);
    if (!dcpk_map_get(&ckpt->object_by_key, key, strlen(key), &at) ||
        !dcpk_value_equal(r->state->fields[at], value))
        return dcpk_fail(err, DCPK_EFORMAT, "'%.200s' is not that of rank 0", key);
    return DCPK_OK;
}

/* Takes all that a file of an item holds. `arena`: of the keys. */
static dcpk_status take_all(struct dcpk_shards_reading *r, const struct dcpk_value *value,
                            const char *prefix, struct dcpk_arena *arena, struct dcpk_error *err)
{
    const struct dcpk_value_pair *pairs;
    size_t n;

    if (dcpk_rank_state_dict(value, &pairs, &n, err))
        return err->status;
    for (size_t i = 0; i < n; i++) {
        const char *key =
            dcpk_arena_printf(arena, err, "%s%s", prefix, dcpk_value_as_str(pairs[i].key));

        if (key == NULL)
            return err->status;
        if (dcpk_shards_is_plain(pairs[i].value))
            (void)take_plain(r, key, pairs[i].value, err);
        else
            (void)dcpk_rank_file_take(r, key, pairs[i].value, err);
        if (err->status != DCPK_OK)
            return err->status;
    }
    return DCPK_OK;
}

static dcpk_status read_item(struct dcpk_shards_reading *r, size_t item, int64_t rank,
                             struct dcpk_error *err)
{
    struct dcpk_arena *own = NULL, *arena = r->rank.ckpt->arena; /* keeps plain values */
    const struct dcpk_value *value;

    if (rank > 0)
        arena = own = dcpk_arena_new();
    if (dcpk_rank_file_read(r, items[item].file, rank, arena, &value, err) == DCPK_OK &&
        take_all(r, value, items[item].prefix, arena, err))
        dcpk_context(err, "reading '%s'", r->name);
    dcpk_arena_free(own);
    return err->status;
}

/* The optimizer may be left out of a save. */
static dcpk_status count_items(struct dcpk_store *store, size_t *n, struct dcpk_error *err)
{
    enum dcpk_path_kind kind;

    if (dcpk_store_look(store, "optimizer_0.pt", &kind, err))
        return err->status;
    *n = kind == DCPK_PATH_FILE ? 2 : 1;
    return DCPK_OK;
}

static dcpk_status read_files(struct dcpk_shards_reading *r, struct dcpk_error *err)
{
    size_t n_items;

    r->config = METADATA;
    if (read_world_size(r, err) || count_items(r->rank.ckpt->store, &n_items, err))
        return err->status;
    for (int64_t rank = 0; rank < r->n_ranks; rank++)
        for (size_t item = 0; item < n_items; item++)
            if (read_item(r, item, rank, err))
                return err->status;
    return DCPK_OK;
}

const struct dcpk_format_reader dcpk_checkpointing_reader = {.locate = dcpk_rank_files_locate,
                                                             .load_object = dcpk_shards_load_object,
                                                             .outline_object =
                                                                 dcpk_shards_load_object,
                                                             .is_own = checkpointing_is_own};

dcpk_status dcpk_checkpointing_open(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    return dcpk_shards_read(ckpt, read_files, err);
}

const struct dcpk_mark dcpk_checkpointing_marks[] = {{DCPK_MARK_CHECKPOINT, METADATA, NULL, NULL},
                                                     {0}};

const struct dcpk_format dcpk_format_checkpointing = {
    .name = "torch_checkpointing",
    .summary = "torch_checkpointing 2.0, a file for each item and rank, with any names (not "
               "converted)",
    DCPK_CHECKPOINTING_CONTAINER,
};

/* SPDX-License-Identifier: Apache-2.0 */
/* zarr.c - the format row: how a zarr checkpoint is known, its common state and objects. */
#include <inttypes.h>
#include <string.h>

#include "formats/dcp/dcp.h"
#include "formats/formats.h"
#include "formats/megatron/megatron.h"
#include "formats/torch/item.h"
#include "formats/torch/pickle.h"
#include "formats/zarr/zarr_array.h"
#include "lib/base/alloc.h"
#include "lib/base/checked.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/model/model.h"
#include "lib/model/request.h"

/* ---- arrays and objects that a checkpoint keeps when its keys change ---- */

/* A key is the name of a folder, next to which lie the files and locks of the checkpoint. */
static dcpk_status check_folder(const char *name, size_t n, struct dcpk_error *err)
{
    static const char *const taken[] = {".", "..", DCPK_ZARR_COMMON_PT,
                                        DCPK_MEGATRON_METADATA_JSON};
    bool is_taken = n == 0 || memchr(name, '/', n) != NULL ||
                    (n >= strlen(".sync") && memcmp(name + n - 5, ".sync", 5) == 0);

    for (size_t i = 0; i < DCPK_COUNT(taken); i++)
        is_taken = is_taken || (n == strlen(taken[i]) && memcmp(name, taken[i], n) == 0);
    if (is_taken)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "'%.*s' cannot be a key in zarr: as the name of a folder it clashes with "
                         "the checkpoint's own files",
                         (int)n, name);
    if (n > DCPK_ZARR_MAX_KEY_BYTES)
        return dcpk_fail(err, DCPK_EUSAGE, "'%.100s...' has %zu bytes, a key has at most %d", name,
                         n, DCPK_ZARR_MAX_KEY_BYTES);
    return DCPK_OK;
}

/* The key of an object is "<folder>/shard_<offsets>_<shape>", and the folder holds no array. */
static dcpk_status check_object(const char *name, const struct dcpk_map *arrays,
                                struct dcpk_error *err)
{
    const char *slash = strchr(name, '/');
    uint64_t other;
    bool is_short;

    if (slash == NULL || !dcpk_zarr_is_shard(slash + 1, strlen(slash + 1), &is_short))
        return dcpk_fail(err, DCPK_EUSAGE,
                         "an object's key in zarr is <name>/shard_<offsets>_<shape>, not '%s'",
                         name);
    if (dcpk_map_get(arrays, name, (size_t)(slash - name), &other))
        return dcpk_fail(err, DCPK_EUSAGE, "the folder of '%s' would hold an array, too", name);
    return check_folder(name, (size_t)(slash - name), err);
}

static dcpk_status zarr_check_keys(const struct dcpk_kept_item *items, size_t n,
                                   struct dcpk_error *err)
{
    struct dcpk_map arrays = {0};

    for (size_t i = 0; i < n && err->status == DCPK_OK; i++) {
        const size_t n_name = strlen(items[i].name);
        bool existed;
        uint64_t found;

        if (items[i].tensor != NULL && check_folder(items[i].name, n_name, err) == DCPK_OK)
            (void)dcpk_map_put(&arrays, items[i].name, n_name, i, &existed, &found, err);
    }
    for (size_t i = 0; i < n && err->status == DCPK_OK; i++)
        if (items[i].object != NULL)
            (void)check_object(items[i].name, &arrays, err);
    dcpk_map_release(&arrays);
    return err->status;
}

static dcpk_status keep_file(struct dcpk_output *out, const char *from, const char *to,
                             struct dcpk_error *err)
{
    struct dcpk_store *store = out->source->store;
    enum dcpk_path_kind kind;
    struct dcpk_source *source;

    if (dcpk_store_look(store, from, &kind, err))
        return err->status;
    if (kind != DCPK_PATH_FILE)
        return dcpk_fail(err, DCPK_EUNSUPPORTED,
                         "'%s' is not a plain file: an array with chunks in folders "
                         "(dimension_separator \"/\") is not taken over",
                         from);
    if (dcpk_store_find(store, from, &source, err))
        return err->status;
    return dcpk_output_keep(out, to, source, err);
}

/* Keeps all that the array's folder holds: .zarray, chunks, and files that somebody put next to
 * them. */
static dcpk_status keep_array(struct dcpk_output *out, const char *key, const char *name,
                              struct dcpk_error *err)
{
    char **files = NULL;
    size_t n = 0;

    (void)dcpk_store_list_in(out->source->store, key, &files, &n, err);
    for (size_t i = 0; i < n && err->status == DCPK_OK; i++) {
        const char *from = dcpk_arena_printf(out->arena, err, "%s/%s", key, files[i]);
        const char *to = dcpk_arena_printf(out->arena, err, "%s/%s", name, files[i]);

        if (from != NULL && to != NULL)
            (void)keep_file(out, from, to, err);
    }
    dcpk_free(files);
    return err->status;
}

static dcpk_status keep_object(struct dcpk_output *out, const struct dcpk_object *object,
                               const char *name, struct dcpk_error *err)
{
    const char *to = dcpk_arena_printf(out->arena, err, "%s.pt", name);

    if (to == NULL)
        return err->status;
    return dcpk_output_keep(out, to, out->source->files[object->place.file], err);
}

static dcpk_status zarr_keep(struct dcpk_output *out, const struct dcpk_kept_item *items, size_t n,
                             struct dcpk_error *err)
{
    if (zarr_check_keys(items, n, err))
        return err->status;
    for (size_t i = 0; i < n; i++) {
        if (items[i].object != NULL) {
            if (keep_object(out, items[i].object, items[i].name, err))
                return err->status;
        } else if (!items[i].is_rewritten)
            if (keep_array(out, items[i].tensor->key, items[i].name, err))
                return err->status;
    }
    return DCPK_OK;
}

static const struct dcpk_format_editor zarr_editor = {.keep = zarr_keep};

/* ---- the row ---- */

/* metadata.json names zarr: surer than torch_dist's 90, for which any metadata.json will do. */
static dcpk_status zarr_probe(struct dcpk_store *store, int *score, struct dcpk_error *err)
{
    struct dcpk_megatron_backend backend;
    struct dcpk_error unread = DCPK_ERROR_INIT;
    enum dcpk_path_kind kind = DCPK_PATH_NOTHING;

    if (dcpk_store_look(store, DCPK_MEGATRON_METADATA_JSON, &kind, err))
        return err->status;
    *score = 0;
    if (kind != DCPK_PATH_FILE)
        return DCPK_OK;
    if (dcpk_megatron_read_backend(store, &backend, &unread) == DCPK_OK)
        *score = strcmp(backend.name, "zarr") == 0 ? 95 : 0;
    if (unread.status != DCPK_ENOMEM && unread.status != DCPK_EIO)
        return DCPK_OK; /* open reports what is wrong with it */
    *err = unread;
    return err->status;
}

/* A .pt file holds the bare value; the list of one around it is what torch_dist's items have. */
static dcpk_status list_bare(struct dcpk_arena *arena, const struct dcpk_value *bare,
                             const struct dcpk_value **value, struct dcpk_error *err)
{
    const struct dcpk_value *list = dcpk_value_seq(arena, DCPK_V_LIST, &bare, 1, err);

    if (list == NULL)
        return err->status;
    *value = list;
    return DCPK_OK;
}

static dcpk_status zarr_load_object(struct dcpk_checkpoint *ckpt, const struct dcpk_object *object,
                                    struct dcpk_arena *arena, const struct dcpk_value **value,
                                    struct dcpk_error *err)
{
    const struct dcpk_value *bare = NULL;

    if (dcpk_dcp_reader.load_object(ckpt, object, arena, &bare, err))
        return err->status;
    return list_bare(arena, bare, value, err);
}

static dcpk_status zarr_outline_object(struct dcpk_checkpoint *ckpt,
                                       const struct dcpk_object *object, struct dcpk_arena *arena,
                                       const struct dcpk_value **value, struct dcpk_error *err)
{
    const struct dcpk_value *bare = NULL;

    if (dcpk_dcp_reader.outline_object(ckpt, object, arena, &bare, err))
        return err->status;
    return list_bare(arena, bare, value, err);
}

static dcpk_status zarr_load_common(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                                    const struct dcpk_value **value, struct dcpk_error *err)
{
    return dcpk_item_read_common(ckpt->store, DCPK_ZARR_COMMON_PT, arena, value, err);
}

static dcpk_status check_arrays(const struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    const struct dcpk_zarr_state *state = ckpt->state;

    if (state->headless == NULL)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EFORMAT,
                     "'%s' holds chunks, but no '.zarray' that says what they are (the copy is not "
                     "whole)",
                     state->headless);
}

/* The shape at the end of a key, "<folder>/shard_<offsets>_<shape>"; its product, 0 where the name
 * lost a size of it, in *n_files: all of Megatron's shards are there. */
static const char *shard_shape(const char *key, uint64_t *n_files)
{
    const char *name = strrchr(key, '/') + 1, *shape = strrchr(key, '_') + 1;
    bool is_short = false;
    const char *at = shape;

    *n_files = dcpk_zarr_is_shard(name, strlen(name), &is_short) && !is_short;
    while (*n_files != 0) {
        const int64_t n = dcpk_take_number(&at);

        if (n < 1 || !dcpk_mul_u64(*n_files, (uint64_t)n, n_files))
            *n_files = 0;
        if (*at++ != '.')
            break;
    }
    return shape;
}

/* There is no list of the files of an object but their names, which count them. */
static dcpk_status check_shards(const struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    for (size_t i = 0, n; i < ckpt->n_objects; i += n) {
        const char *key = ckpt->objects[i].key;
        const size_t n_folder = (size_t)(strrchr(key, '/') + 1 - key);
        uint64_t n_files, n_others;
        const char *shape = shard_shape(key, &n_files);

        for (n = 1; i + n < ckpt->n_objects; n++) {
            const char *other = ckpt->objects[i + n].key;

            if (strncmp(other, key, n_folder) != 0)
                break;
            if (strcmp(shard_shape(other, &n_others), shape) != 0)
                n_files = 0; /* of two grids: not known how many there were */
        }
        if (n_files > n)
            return dcpk_fail(err, DCPK_EFORMAT,
                             "'%.*s' holds %zu of %" PRIu64 " files (the copy is not whole)",
                             (int)(n_folder - 1), key, n, n_files);
    }
    return DCPK_OK;
}

static dcpk_status zarr_check_whole(struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    enum dcpk_path_kind common_pt;

    if (dcpk_store_look(ckpt->store, DCPK_ZARR_COMMON_PT, &common_pt, err))
        return err->status;
    if (common_pt != DCPK_PATH_FILE)
        return dcpk_fail(
            err, DCPK_EFORMAT,
            "there is no '" DCPK_ZARR_COMMON_PT
            "': args, iteration and scheduler are missing, no release of Megatron loads "
            "the folder (the copy is not whole)");
    if (check_arrays(ckpt, err))
        return err->status;
    return check_shards(ckpt, err);
}

/* An array that cannot be read would be left out, or is what another fault comes from. */
static dcpk_status zarr_to_model(struct dcpk_checkpoint *ckpt, struct dcpk_model *model,
                                 struct dcpk_error *err)
{
    const struct dcpk_zarr_state *state = ckpt->state;

    if (dcpk_megatron_to_model(ckpt, model, err) && !dcpk_status_is_content(err->status))
        return err->status;
    if (state->headless == NULL)
        return err->status;
    dcpk_error_clear(err);
    return check_arrays(ckpt, err);
}

/* The backend was removed after core 0.15 (formats/torch_dist/FORMAT.md 1). */
static dcpk_status zarr_request(const struct dcpk_loading *loading, struct dcpk_error *err)
{
    struct dcpk_loading old = *loading;

    if (dcpk_request_fault(loading, DCPK_FOR_WEIGHTS, dcpk_loaders_of(DCPK_CORE_0_16, DCPK_MAIN),
                           "zarr", "is not a format that core 0.16 and later read", err))
        return err->status;
    old.loaders &= dcpk_loaders_of(DCPK_CORE_0_15, DCPK_CORE_0_15);
    if (dcpk_megatron_request_backend(&old, err))
        return err->status;
    if (loading->common == NULL && dcpk_request_fault(&old, DCPK_FOR_COMMON, DCPK_ALL_LOADERS,
                                                      DCPK_ZARR_COMMON_PT, "is not there", err))
        return err->status;
    return dcpk_megatron_request(&old, err);
}

/* Every folder is an array's, an object's or one of locks; opening has noted whatever else it
 * holds. */
static bool zarr_is_own(const struct dcpk_checkpoint *ckpt, const char *name)
{
    struct dcpk_error ignored = DCPK_ERROR_INIT; /* the copy of the file meets it, too */
    enum dcpk_path_kind kind;

    return dcpk_store_look(ckpt->store, name, &kind, &ignored) == DCPK_OK && kind != DCPK_PATH_FILE;
}

static const struct dcpk_format_reader reader = {
    .locate = dcpk_zarr_locate,
    .decode = dcpk_zarr_decode,
    .load_object = zarr_load_object,
    .outline_object = zarr_outline_object,
    .each_record = dcpk_dcp_each_record,
    .is_own = zarr_is_own,
};

static const struct dcpk_mark marks[] = {
    {DCPK_MARK_CHECKPOINT, DCPK_MEGATRON_METADATA_JSON, NULL, NULL},
    {DCPK_MARK_INNER, ".zarray", NULL,
     "an array in zarr, so a metadata.json is missing here: the copy is not whole, or the save was "
     "cut short"},
    {DCPK_MARK_PART, DCPK_ZARR_COMMON_PT, NULL, NULL},
    {0},
};

static const struct dcpk_format_mapping mapping = {
    .to_model = zarr_to_model,
    .from_model = dcpk_zarr_from_model,
    .request = zarr_request,
    .optimizer_layout = dcpk_megatron_optimizer_layout,
};

const struct dcpk_format dcpk_format_zarr = {
    .name = "zarr",
    .summary = "Megatron's zarr checkpoint (core 0.4 to 0.15)",
    .last_release = "core-0.15",
    .marks = marks,
    .state_bytes = sizeof(struct dcpk_zarr_state),
    .is_known = dcpk_pickle_is_known,
    .probe = zarr_probe,
    .open = dcpk_zarr_open,
    .close = dcpk_zarr_close,
    .load_common = zarr_load_common,
    .check_whole = zarr_check_whole,
    .reader = &reader,
    .writer = &dcpk_zarr_writer,
    .mapping = &mapping,
    .editor = &zarr_editor,
};

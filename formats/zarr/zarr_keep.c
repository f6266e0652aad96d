/* SPDX-License-Identifier: Apache-2.0 */
/* zarr_keep.c - a zarr checkpoint under other keys: every array and object keeps its files. */
#include <string.h>

#include "formats/megatron/megatron.h"
#include "formats/zarr/zarr_priv.h"
#include "lib/base/alloc.h"
#include "lib/base/order.h"

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

const struct dcpk_format_editor dcpk_zarr_editor = {.keep = zarr_keep};

/* SPDX-License-Identifier: Apache-2.0 */
/* dcp_parts.c - a model's folder and that of its optimizer, next to each other, read as one. */
#include "formats/dcp/metadata_priv.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/torch/pickle.h"
#include "lib/base/alloc.h"
#include "lib/base/text.h"

#define MAX_METADATA_BYTES (UINT64_C(1) << 30)

dcpk_status dcpk_dcp_is_folder(struct dcpk_store *store, bool *is, struct dcpk_error *err)
{
    enum dcpk_path_kind kind = DCPK_PATH_NOTHING;

    if (dcpk_store_look(store, DCPK_DCP_METADATA, &kind, err))
        return err->status;
    *is = kind == DCPK_PATH_FILE;
    return DCPK_OK;
}

static bool names_optimizer(const char *name)
{
    return dcpk_starts_with(name, DCPK_DCP_OPTIMIZER);
}

/* A folder that cannot be looked into has no .metadata. */
static dcpk_status look_at_part(struct dcpk_store *store, const char *folder,
                                struct dcpk_dcp_parts *parts, int n_found[2],
                                struct dcpk_error *err)
{
    char name[sizeof parts->metadata[0]];
    const int n = snprintf(name, sizeof name, "%s/" DCPK_DCP_METADATA, folder);
    const int which = names_optimizer(folder); /* a model or an optimizer */
    enum dcpk_path_kind kind = DCPK_PATH_NOTHING;

    if (n >= (int)sizeof name)
        return DCPK_OK;
    if (dcpk_store_look(store, name, &kind, err) != DCPK_OK) {
        if (err->status == DCPK_ENOMEM)
            return err->status;
        dcpk_error_clear(err);
    }
    if (kind == DCPK_PATH_FILE) {
        n_found[which]++;
        memcpy(parts->metadata[which], name, sizeof name);
    }
    return DCPK_OK;
}

dcpk_status dcpk_dcp_find_parts(struct dcpk_store *store, struct dcpk_dcp_parts *parts,
                                struct dcpk_error *err)
{
    int n_found[2] = {0, 0}; /* models, optimizers */
    enum dcpk_path_kind kind = DCPK_PATH_NOTHING;
    char **names = NULL;
    size_t n = 0, n_named = 0;

    *parts = (struct dcpk_dcp_parts){.metadata = {DCPK_DCP_METADATA}};
    if (dcpk_store_look(store, DCPK_DCP_METADATA, &kind, err))
        return err->status;
    parts->n = kind != DCPK_PATH_NOTHING; /* to be opened, or refused as what it is */
    if (parts->n == 1 || dcpk_store_list(store, &names, &n, err))
        return err->status;
    for (size_t i = 0; i < n; i++)
        n_named += names_optimizer(names[i]);
    for (size_t i = 0; i < n && n_named > 0 && err->status == DCPK_OK; i++)
        (void)look_at_part(store, names[i], parts, n_found, err);
    dcpk_free(names);
    if (n_found[0] == 1 && n_found[1] == 1)
        parts->n = 2;
    return err->status;
}

static dcpk_status open_part(struct dcpk_checkpoint *ckpt, const char *metadata,
                             struct dcpk_dcp_info *info, struct dcpk_error *err)
{
    struct dcpk_source *source;

    if (dcpk_store_find(ckpt->store, metadata, &source, err) ||
        dcpk_metadata_read(ckpt, source, info, err))
        return dcpk_context(err, "reading '%s'", metadata);
    return DCPK_OK;
}

dcpk_status dcpk_dcp_open(struct dcpk_checkpoint *ckpt, struct dcpk_dcp_info *info,
                          struct dcpk_error *err)
{
    struct dcpk_dcp_info of_optimizer = *info;
    struct dcpk_dcp_parts parts;

    if (dcpk_dcp_find_parts(ckpt->store, &parts, err))
        return err->status;
    if (parts.n == 0) {
        (void)dcpk_fail(err, DCPK_EFORMAT,
                        "there is no such file: a copy of 'FOLDER/*' leaves hidden files out, and "
                        "a save that was cut short has none");
        return dcpk_context(err, "reading '" DCPK_DCP_METADATA "'");
    }
    if (open_part(ckpt, parts.metadata[0], info, err))
        return err->status;
    if (parts.n == 1)
        return DCPK_OK;
    dcpk_checkpoint_note(ckpt, "in two folders: the model by '%s', its optimizer by '%s'",
                         parts.metadata[0], parts.metadata[1]);
    return open_part(ckpt, parts.metadata[1], &of_optimizer, err);
}

/* ---- planner_data of .metadata: where the nested dict that was saved has each flat key ---- */

/* *paths: those of one file, with the `before` of another. */
static dcpk_status load_part_paths(struct dcpk_checkpoint *ckpt, const char *metadata,
                                   struct dcpk_arena *arena, const struct dcpk_value **paths,
                                   uint64_t *n_bytes, struct dcpk_error *err)
{
    const struct dcpk_pickle_options options = {0};
    const struct dcpk_value *root, *found, *before = *paths;
    struct dcpk_dict both = {.arena = arena, .err = err};
    struct dcpk_source *source;
    char *data;
    size_t n;

    if (dcpk_store_find(ckpt->store, metadata, &source, err) ||
        dcpk_source_slurp(source, MAX_METADATA_BYTES, &data, &n, err))
        return err->status;
    (void)dcpk_pickle_read(data, n, &options, arena, &root, err);
    dcpk_free(data);
    if (err->status != DCPK_OK)
        return err->status;
    *n_bytes += n;
    found = dcpk_value_get(dcpk_value_attrs(root), "planner_data");
    if (found == NULL || found->kind != DCPK_V_DICT)
        return DCPK_OK;
    *paths = found;
    if (before == NULL)
        return DCPK_OK;
    dcpk_dict_put_all(&both, before);
    dcpk_dict_put_all(&both, found);
    *paths = dcpk_dict_end(&both);
    return dcpk_made(*paths, err);
}

dcpk_status dcpk_dcp_load_paths(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                                const struct dcpk_value **paths, uint64_t *n_bytes,
                                struct dcpk_error *err)
{
    struct dcpk_dcp_parts parts;

    *n_bytes = 0;
    if (dcpk_dcp_find_parts(ckpt->store, &parts, err))
        return err->status;
    for (int i = 0; i < parts.n; i++)
        if (load_part_paths(ckpt, parts.metadata[i], arena, paths, n_bytes, err))
            return err->status;
    return DCPK_OK;
}

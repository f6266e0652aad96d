/* SPDX-License-Identifier: Apache-2.0 */
/* sink.c - output folders: built next to their place, synced, then renamed into it. */
#include "lib/io/sink.h"

#include <string.h>
#include <unistd.h>

#include "lib/base/alloc.h"
#include "lib/io/sink_priv.h"

#define OLD_SUFFIX ".dcpkit-old"

/* Set parent_fd. */
static dcpk_status folder_open_parent(struct dcpk_folder *folder, struct dcpk_error *err)
{
    folder->parent_fd = dcpk_open_parent(folder->path, err);
    if (folder->parent_fd < 0)
        return err->status;
    return DCPK_OK;
}

void dcpk_folder_free(struct dcpk_folder *folder)
{
    if (folder->journal_fd >= 0)
        close(folder->journal_fd);
    if (folder->dir_fd >= 0)
        close(folder->dir_fd);
    if (folder->parent_fd >= 0)
        close(folder->parent_fd);
    dcpk_written_clear(folder);
    dcpk_free(folder->path);
    dcpk_free(folder->partial);
    dcpk_free(folder->old);
    dcpk_free(folder->inner);
    dcpk_map_release(&folder->reserved);
    pthread_mutex_destroy(&folder->mutex);
    dcpk_free(folder);
}

struct dcpk_folder *dcpk_folder_new(const char *path, const struct dcpk_folder_ops *ops,
                                    unsigned flags, struct dcpk_error *err)
{
    struct dcpk_folder *folder = dcpk_alloc(sizeof *folder, err);
    size_t n = strlen(path);

    if (folder == NULL)
        return NULL;
    while (n > 1 && path[n - 1] == '/')
        n--;
    pthread_mutex_init(&folder->mutex, NULL);
    folder->parent_fd = folder->dir_fd = folder->deep_fd = folder->journal_fd = -1;
    folder->ops = ops;
    folder->flags = flags & ~ops->ignored_flags;
    folder->path = dcpk_name_join(path, n, "", err);
    if (folder->path != NULL)
        folder->partial = dcpk_name_join(path, n, DCPK_PARTIAL_SUFFIX, err);
    if (folder->partial != NULL)
        folder->old = dcpk_name_join(path, n, OLD_SUFFIX, err);
    if (folder->old == NULL) {
        dcpk_folder_free(folder);
        return NULL;
    }
    return folder;
}

/* ".", ".." and "/" have no name that a neighbour's could be built from. */
static bool has_own_name(const char *path)
{
    const char *last = dcpk_name_last(path);

    return last[0] != '\0' && strcmp(last, ".") != 0 && strcmp(last, "..") != 0;
}

/* Checks that nothing is in the way of the output, or that it may be replaced. */
static dcpk_status check_way(const struct dcpk_folder *folder, struct dcpk_error *err)
{
    bool output, old;

    if (folder->flags & DCPK_FOLDER_REPLACE)
        return DCPK_OK;
    if (dcpk_path_find(folder->path, &output, err) != DCPK_OK ||
        dcpk_path_find(folder->old, &old, err) != DCPK_OK)
        return err->status;
    if (output)
        return dcpk_fail_fix(err, DCPK_EUSAGE, DCPK_FIX_REPLACE, "output '%s' exists",
                             folder->path);
    if (old)
        return dcpk_fail_fix(err, DCPK_EUSAGE, DCPK_FIX_REPLACE,
                             "a killed run was replacing '%s'; move it back", folder->old);
    return DCPK_OK;
}

/* Checks that no other run's partial folder is in the way. */
static dcpk_status check_partial(struct dcpk_folder *folder, struct dcpk_error *err)
{
    const unsigned resume = folder->ops->partial->has_journal ? DCPK_FIX_RESUME : 0;
    bool partial;

    if (folder->flags & (DCPK_FOLDER_REPLACE | DCPK_FOLDER_RESUME))
        return DCPK_OK;
    if (dcpk_partial_sweep(folder, &partial, err) != DCPK_OK)
        return err->status;
    if (partial)
        return dcpk_fail_fix(err, DCPK_EUSAGE, DCPK_FIX_REPLACE | resume,
                             "'%s' is left from a run that was killed or is still running",
                             folder->partial);
    return DCPK_OK;
}

static dcpk_status folder_begin(struct dcpk_folder *folder, struct dcpk_error *err)
{
    if (check_way(folder, err) || dcpk_parents_make(folder->path, &folder->n_parents, err) ||
        folder_open_parent(folder, err) || check_partial(folder, err) ||
        dcpk_partial_begin(folder, err))
        return err->status;
    return DCPK_OK;
}

dcpk_status dcpk_folder_begin(const char *path, unsigned flags, struct dcpk_folder **folder,
                              struct dcpk_error *err)
{
    const bool is_archive = (flags & DCPK_FOLDER_TAR) != 0;
    struct dcpk_folder *f =
        dcpk_folder_new(path, is_archive ? &dcpk_archive_kind : &dcpk_folder_kind, flags, err);
    dcpk_status st;

    if (f == NULL)
        return err->status;
    if (!has_own_name(f->path)) {
        st = dcpk_fail(err, DCPK_EUSAGE, "output '%s' is not the name of a folder to make", path);
        goto out;
    }
    st = folder_begin(f, err);
    f->syncs_at_once =
        st == DCPK_OK && (f->flags & DCPK_FOLDER_MANY) != 0 && dcpk_can_sync_at_once(f->dir_fd);
    if (st == DCPK_OK)
        *folder = f;
out:
    if (st != DCPK_OK) {
        dcpk_parents_remove(f->path, f->n_parents);
        dcpk_folder_free(f);
    }
    return st;
}

const char *dcpk_folder_partial(const struct dcpk_folder *folder)
{
    return folder->partial;
}

void dcpk_folder_abandon(struct dcpk_folder *folder)
{
    struct dcpk_error ignored;

    if (folder == NULL)
        return;
    if (!folder->published && !folder->is_kept && folder->parent_fd >= 0) {
        (void)dcpk_partial_delete(folder, &ignored); /* an entry that stays is called partial */
        dcpk_parents_remove(folder->path, folder->n_parents);
    }
    dcpk_folder_free(folder);
}

/* ---- calls of the kind of output ---- */

dcpk_status dcpk_folder_show(struct dcpk_folder *folder, const char *name, struct dcpk_error *err)
{
    dcpk_status st;

    if (folder->ops->show == NULL)
        return DCPK_OK;
    pthread_mutex_lock(&folder->mutex);
    st = folder->ops->show(folder, name, err);
    pthread_mutex_unlock(&folder->mutex);
    return st;
}

dcpk_status dcpk_folder_take(struct dcpk_folder *folder, const char *name, uint64_t n_bytes,
                             bool *taken, struct dcpk_error *err)
{
    dcpk_status st;

    *taken = true;
    if (folder->ops->take == NULL)
        return DCPK_OK;
    pthread_mutex_lock(&folder->mutex);
    st = folder->ops->take(folder, name, n_bytes, taken, err);
    pthread_mutex_unlock(&folder->mutex);
    return st;
}

dcpk_status dcpk_folder_settle(struct dcpk_folder *folder, struct dcpk_error *err)
{
    if (folder->ops->settle == NULL)
        return DCPK_OK;
    return folder->ops->settle(folder, err);
}

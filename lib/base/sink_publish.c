/* SPDX-License-Identifier: Apache-2.0 */
/* sink_publish.c - an output folder becomes visible: synced, then renamed into its place. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/sink_priv.h"

/* Rename, but not onto something that came to be since dcpk_folder_begin looked. */
static int rename_new(const char *from, const char *to)
{
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -1;
    return rename(from, to); /* the file system cannot do better; a full folder still stops it */
}

/*
 * Put the partial folder into the place of what is there, and that aside. Where the two cannot
 * change places at once there is a moment without either.
 */
static int replace(const struct dcpk_folder *folder)
{
    int code;

    if (renameat2(AT_FDCWD, folder->partial, AT_FDCWD, folder->path, RENAME_EXCHANGE) == 0) {
        (void)rename(folder->partial, folder->old); /* a truer name, until it is deleted */
        return 0;
    }
    if (errno != EINVAL && errno != ENOSYS)
        return -1;
    if (rename(folder->path, folder->old) != 0)
        return -1;
    if (rename_new(folder->partial, folder->path) == 0)
        return 0;
    code = errno;
    (void)rename(folder->old, folder->path); /* the first error is the one to tell */
    errno = code;
    return -1;
}

/* Move the partial folder to its place. */
static dcpk_status move_in(const struct dcpk_folder *folder, struct dcpk_error *err)
{
    bool replaces = false;

    if ((folder->flags & DCPK_FOLDER_REPLACE) &&
        dcpk_path_find(folder->path, &replaces, err) != DCPK_OK)
        return err->status;
    if (replaces && dcpk_remove_tree(folder->old, err) != DCPK_OK)
        return err->status;
    if ((replaces ? replace(folder) : rename_new(folder->partial, folder->path)) == 0)
        return DCPK_OK;
    return dcpk_fail_errno(err, errno, "moving '%s' to '%s'", folder->partial, folder->path);
}

/* Sync an entry of a walk when it is a folder: 0, or what stops the walk. */
static int sync_entry(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    int fd, rc;

    (void)info;
    (void)walk;
    if (kind != FTW_D)
        return 0;
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    rc = dcpk_sync_folder(fd);
    close(fd);
    return rc;
}

/* All in the folder is on disk, and the journal is no longer in it. */
static dcpk_status seal(struct dcpk_folder *folder, struct dcpk_error *err)
{
    bool exists;

    if (dcpk_path_find(folder->path, &exists, err) != DCPK_OK)
        return err->status;
    /* what came meanwhile shows now, while the folder can still be kept */
    if ((folder->flags & DCPK_FOLDER_REPLACE) == 0 && exists)
        return dcpk_fail_errno(err, EEXIST, "moving '%s' to '%s'", folder->partial, folder->path);
    if (folder->syncs_at_once && dcpk_folder_sync(folder, err) != DCPK_OK)
        return err->status;
    if (!folder->syncs_at_once && (folder->has_folders || (folder->flags & DCPK_FOLDER_SHARED)) &&
        nftw(folder->partial, sync_entry, DCPK_WALK_FDS, FTW_PHYS) != 0)
        return dcpk_fail_errno(err, errno, "syncing '%s'", folder->partial);
    if (dcpk_partial_end(folder) != 0 || dcpk_tar_end(folder) != 0 ||
        dcpk_sync_folder(folder->dir_fd) != 0)
        return dcpk_fail_errno(err, errno, "syncing '%s'", folder->partial);
    return DCPK_OK;
}

/* Under either of the names that replace() may have left it. */
static dcpk_status remove_replaced(const struct dcpk_folder *folder, struct dcpk_error *err)
{
    const dcpk_status st = dcpk_remove_tree(folder->old, err);

    return st == DCPK_OK ? dcpk_remove_tree(folder->partial, err) : st;
}

dcpk_status dcpk_folder_publish(struct dcpk_folder *folder, struct dcpk_error *err)
{
    dcpk_status st = DCPK_OK;

    if ((folder->flags & DCPK_FOLDER_COMPARE) != 0) {
        st = dcpk_compare_end(folder, err);
        if (st == DCPK_OK)
            dcpk_folder_free(folder);
        return st;
    }
    st = seal(folder, err);
    if (st == DCPK_OK)
        st = move_in(folder, err);
    if (st != DCPK_OK)
        return st;
    folder->published = true;
    st = dcpk_sync_parent(folder->path, err);
    if (st == DCPK_OK && (folder->flags & DCPK_FOLDER_REPLACE))
        st = remove_replaced(folder, err);
    else if (folder->flags & DCPK_FOLDER_REPLACE)
        dcpk_context(err, "what was replaced is kept as '%s'", folder->old);
    if (st == DCPK_OK)
        dcpk_folder_free(folder);
    else
        dcpk_context(err, "'%s' is in place, and then", folder->path);
    return st;
}

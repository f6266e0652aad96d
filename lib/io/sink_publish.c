/* SPDX-License-Identifier: Apache-2.0 */
/* sink_publish.c - an output folder becomes visible: synced, then renamed into its place. */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "lib/io/remove.h"
#include "lib/io/sink_priv.h"

/* ---- folders are synced: their names, or all that their file system has not written ---- */

/*
 * syncfs reports lost writes since Linux 5.8, by a descriptor that was opened before them (man
 * 2 syncfs); and these are the file systems that are known to have all on the disk itself when
 * it returns. On others (of networks, in user space) files are synced one by one.
 */
bool dcpk_can_sync_at_once(int fd)
{
    static const unsigned long kinds[] = {EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC,
                                          F2FS_SUPER_MAGIC, TMPFS_MAGIC};
    struct utsname system;
    struct statfs info;
    int major, minor;

    if (uname(&system) != 0 || sscanf(system.release, "%d.%d", &major, &minor) != 2 || major < 5 ||
        (major == 5 && minor < 8) || fstatfs(fd, &info) != 0)
        return false;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if ((unsigned long)info.f_type == kinds[i])
            return true;
    return false;
}

int dcpk_sync_folder(int fd)
{
    int rc;

    do {
        rc = fsync(fd);
    } while (rc != 0 && errno == EINTR);
    return rc == 0 || errno == EINVAL || errno == EROFS ? 0 : -1;
}

dcpk_status dcpk_folder_sync(struct dcpk_folder *folder, struct dcpk_error *err)
{
    int rc;

    if (!folder->syncs_at_once)
        rc = dcpk_sync_folder(folder->dir_fd);
    else
        do {
            rc = syncfs(folder->dir_fd);
        } while (rc != 0 && errno == EINTR);
    if (rc != 0)
        return dcpk_fail_errno(err, errno, "syncing '%s'", folder->partial);
    return DCPK_OK;
}

/* The three names in their folder, and what is there before. */
struct moving {
    int fd;
    const char *path, *partial, *old;
    bool replaces;
    int lock; /* of the folder that is replaced, until it is deleted; -1: none */
    struct stat replaced;
};

/* Rename, but not onto something that came to be since dcpk_folder_begin looked. */
static int rename_new(int fd, const char *from, const char *to)
{
    if (renameat2(fd, from, fd, to, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -1;
    /* The file system cannot do better; a full folder still stops it. */
    return renameat(fd, from, fd, to);
}

/*
 * Put the partial folder into the place of what is there, and that aside. Where the two cannot
 * change places at once there is a moment without either.
 */
static int moving_replace(const struct moving *m)
{
    int code;

    if (renameat2(m->fd, m->partial, m->fd, m->path, RENAME_EXCHANGE) == 0) {
        (void)renameat(m->fd, m->partial, m->fd, m->old); /* a truer name, until it is deleted */
        return 0;
    }
    if (errno != EINVAL && errno != ENOSYS)
        return -1;
    if (renameat(m->fd, m->path, m->fd, m->old) != 0)
        return -1;
    if (rename_new(m->fd, m->partial, m->path) == 0)
        return 0;
    code = errno;
    (void)renameat(m->fd, m->old, m->fd, m->path); /* the first error is reported */
    errno = code;
    return -1;
}

/*
 * See what must be replaced. A folder is locked as partial ones are: under the name of one it
 * would be taken for what a killed run has left.
 */
static dcpk_status look_replaced(const struct dcpk_folder *folder, struct moving *m,
                                 struct dcpk_error *err)
{
    if ((folder->flags & DCPK_FOLDER_REPLACE) == 0)
        return DCPK_OK;
    m->replaces = fstatat(m->fd, m->path, &m->replaced, AT_SYMLINK_NOFOLLOW) == 0;
    if (!m->replaces && errno != ENOENT)
        return dcpk_fail_errno(err, errno, "'%s'", folder->path);
    if (!m->replaces)
        return DCPK_OK;
    if (dcpk_remove_at(m->fd, m->old, folder->old, err) != DCPK_OK)
        return err->status;
    m->lock = openat(m->fd, m->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (m->lock >= 0 && flock(m->lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return dcpk_fail_exists(folder, err);
    return DCPK_OK;
}

/* Checks that the entry in the output's place is the written one, not one that was put under its
 * partial name at the last moment; else it goes back. */
static dcpk_status check_in_place(const struct dcpk_folder *folder, const struct moving *m,
                                  struct dcpk_error *err)
{
    bool is_there;
    const dcpk_status st = dcpk_look_at(m->fd, m->path, folder->dir_fd, &is_there, err);

    if (st == DCPK_OK && is_there)
        return DCPK_OK;
    if (!m->replaces)
        (void)rename_new(m->fd, m->path, m->partial);
    else if (renameat2(m->fd, m->old, m->fd, m->path, RENAME_EXCHANGE) == 0)
        (void)rename_new(m->fd, m->old, m->partial);
    if (st != DCPK_OK)
        return st;
    return dcpk_fail(err, DCPK_EIO, "another program has replaced '%s'", folder->partial);
}

/* Move the partial folder to its place. */
static dcpk_status move_in(const struct dcpk_folder *folder, struct moving *m,
                           struct dcpk_error *err)
{
    bool is_there;

    if (look_replaced(folder, m, err) != DCPK_OK ||
        dcpk_look_at(m->fd, m->partial, folder->dir_fd, &is_there, err) != DCPK_OK)
        return err->status;
    if (!is_there)
        return dcpk_fail(err, DCPK_EIO,
                         "'%s' is not the one that was written: another program has moved it away",
                         folder->partial);
    if ((m->replaces ? moving_replace(m) : rename_new(m->fd, m->partial, m->path)) == 0)
        return check_in_place(folder, m, err);
    if (errno == EEXIST || errno == ENOTEMPTY)
        return dcpk_fail_exists(folder, err);
    return dcpk_fail_errno(err, errno, "moving '%s' to '%s'", folder->partial, folder->path);
}

/* Checks that the output may be made, before its files are synced, which can take long. */
static dcpk_status check_way_free(const struct dcpk_folder *folder, struct dcpk_error *err)
{
    bool exists;

    if (dcpk_path_find(folder->path, &exists, err) != DCPK_OK)
        return err->status;
    if ((folder->flags & DCPK_FOLDER_REPLACE) == 0 && exists)
        return dcpk_fail_exists(folder, err);
    return DCPK_OK;
}

/* Delete what stands at a name if it is what was replaced: by now it may be another run's. */
static dcpk_status remove_replaced_at(const struct moving *m, const char *name, const char *path,
                                      struct dcpk_error *err)
{
    struct stat info;

    if (fstatat(m->fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0) {
        if (dcpk_is_same_file(&info, &m->replaced))
            return dcpk_remove_at(m->fd, name, path, err);
    } else if (errno != ENOENT) {
        return dcpk_fail_errno(err, errno, "'%s'", path);
    }
    return DCPK_OK;
}

/* Under either of the names that moving_replace() may have left it; or what a killed run was
 * replacing. */
static dcpk_status remove_replaced(const struct dcpk_folder *folder, const struct moving *m,
                                   struct dcpk_error *err)
{

    if ((folder->flags & DCPK_FOLDER_REPLACE) == 0)
        return DCPK_OK;
    if (!m->replaces)
        return dcpk_remove_at(m->fd, m->old, folder->old, err);
    if (remove_replaced_at(m, m->old, folder->old, err) ||
        remove_replaced_at(m, m->partial, folder->partial, err))
        return err->status;
    return DCPK_OK;
}

/* The folder is in its place: make that last, then delete what it was resumed from. */
static dcpk_status moving_end(struct dcpk_folder *folder, const struct moving *m,
                              struct dcpk_error *err)
{
    struct dcpk_error second = DCPK_ERROR_INIT;
    bool is_kept = m->replaces;

    if (dcpk_sync_folder(m->fd) != 0)
        dcpk_fail_errno(err, errno, "syncing the folder of '%s'", folder->path);
    else if (dcpk_partial_end(folder, err) == DCPK_OK)
        return remove_replaced(folder, m, err);
    else /* the new folder is there to stay, with or without a journal in it */
        is_kept = remove_replaced(folder, m, &second) != DCPK_OK;
    if (is_kept)
        dcpk_context(err, "the replaced output is kept as '%s'", folder->old);
    return err->status;
}

dcpk_status dcpk_folder_publish(struct dcpk_folder *folder, struct dcpk_error *err)
{
    struct moving m = {.fd = folder->parent_fd,
                       .path = dcpk_name_last(folder->path),
                       .partial = dcpk_name_last(folder->partial),
                       .old = dcpk_name_last(folder->old),
                       .lock = -1};
    dcpk_status st;

    if (check_way_free(folder, err) || folder->ops->seal(folder, err))
        return err->status;
    st = move_in(folder, &m, err);
    if (st != DCPK_OK)
        goto out;
    folder->published = true;
    st = moving_end(folder, &m, err);
    if (st != DCPK_OK)
        dcpk_context(err, "'%s' is in place, and then", folder->path);
out:
    if (m.lock >= 0)
        close(m.lock);
    if (st == DCPK_OK)
        dcpk_folder_free(folder);
    return st;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* sink_settle.c - a partial folder holds the files that were written, as they were written, and no
 * other. */
/*
 * Another program that may write to the folder can put a file into it, or take one's place, at any
 * time. So the folder is listed: what was not made is deleted. And each file that was made must
 * stand at its name. A listing may be stale (NFS shows what other machines made late) and may pass
 * over names while entries are deleted: files that it does not show are asked for one by one.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/path.h"
#include "lib/io/remove.h"
#include "lib/io/sink_priv.h"

/* A folder that is gone through. */
struct listing {
    struct dcpk_folder *folder;
    const char *inner; /* its name in the partial folder; NULL: that itself */
    int fd;
    bool syncs;             /* also where nothing was deleted */
    struct dcpk_bytes name; /* scratch */
};

/* The name by which the output knows an entry; NULL with err set. */
static const char *join_name(struct listing *list, const char *entry, struct dcpk_error *err)
{
    if (list->inner == NULL)
        return entry;
    list->name.n_bytes = 0;
    dcpk_bytes_text(&list->name, list->inner);
    dcpk_bytes_text(&list->name, "/");
    dcpk_bytes_put(&list->name, entry, strlen(entry) + 1);
    return dcpk_bytes_status(&list->name, err) == DCPK_OK ? (const char *)list->name.data : NULL;
}

/* Checks that the file is unchanged. last: its name in the folder of the descriptor. */
static dcpk_status check_file(const struct dcpk_folder *folder, struct dcpk_written_file *file,
                              int fd, const char *last, struct dcpk_error *err)
{
    struct stat info;

    file->is_seen = true;
    if (fstatat(fd, last, &info, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno != ENOENT)
            return dcpk_fail_errno(err, errno, "'%s/%s'", folder->partial, file->name);
        return dcpk_fail(err, DCPK_EIO, "'%s/%s' is gone: another program has deleted it",
                         folder->partial, file->name);
    }
    if (!S_ISREG(info.st_mode) || info.st_dev != file->dev || info.st_ino != file->ino)
        return dcpk_fail(
            err, DCPK_EIO,
            "'%s/%s' is not the file that was written: another program has replaced it",
            folder->partial, file->name);
    if ((uint64_t)info.st_size == file->n_bytes)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EIO,
                     "'%s/%s' has %" PRIu64 " bytes, and %" PRIu64
                     " were written: another program has changed it",
                     folder->partial, file->name, (uint64_t)info.st_size, file->n_bytes);
}

/* A file of the output is looked at, anything else deleted. */
static dcpk_status settle_entry(struct listing *list, const char *entry, struct dcpk_error *err)
{
    const char *name = join_name(list, entry, err);
    struct dcpk_written_file *file;

    if (name == NULL)
        return err->status;
    file = dcpk_written_find(list->folder, name);
    if (file != NULL)
        return check_file(list->folder, file, list->fd, entry, err);
    list->syncs = true; /* it stays deleted */
    return dcpk_remove_at(list->fd, entry, list->folder->partial, err);
}

typedef dcpk_status take_entry(struct listing *list, const char *entry, struct dcpk_error *err);

/* Take the entries of a folder, and sync it. */
static dcpk_status each_entry(struct listing *list, take_entry *take, struct dcpk_error *err)
{
    DIR *dir = dcpk_dir_open(list->fd, ".", 0);
    dcpk_status st = DCPK_OK;

    if (dir == NULL)
        return dcpk_fail_errno(err, errno, "listing '%s'", list->folder->partial);
    while (st == DCPK_OK) {
        const struct dirent *entry;

        errno = 0;
        entry = readdir(dir);
        if (entry == NULL && errno != 0)
            st = dcpk_fail_errno(err, errno, "listing '%s'", list->folder->partial);
        if (entry == NULL)
            break;
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            st = take(list, entry->d_name, err);
    }
    if (st == DCPK_OK && list->syncs && dcpk_sync_folder(dirfd(dir)) != 0)
        st = dcpk_fail_errno(err, errno, "syncing '%s'", list->folder->partial);
    closedir(dir);
    return st;
}

/* A folder in which files of the output are. */
static dcpk_status settle_inner(const struct listing *root, const char *inner,
                                struct dcpk_error *err)
{
    struct listing list = {.folder = root->folder, .inner = inner, .syncs = root->syncs};
    dcpk_status st;

    list.fd = openat(root->fd, inner, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (list.fd < 0)
        return dcpk_fail_errno(err, errno, "opening '%s/%s'", root->folder->partial, inner);
    st = each_entry(&list, settle_entry, err);
    close(list.fd);
    dcpk_bytes_release(&list.name);
    return st;
}

static dcpk_status settle_root_entry(struct listing *list, const char *entry,
                                     struct dcpk_error *err)
{
    uint64_t found;

    if (strcmp(entry, DCPK_JOURNAL_NAME) == 0)
        return DCPK_OK;
    if (dcpk_map_get(&list->folder->written.folders, entry, strlen(entry), &found))
        return settle_inner(list, entry, err);
    return settle_entry(list, entry, err);
}

/* Files that no listing has shown. */
static dcpk_status settle_rest(struct dcpk_folder *folder, struct dcpk_error *err)
{
    struct dcpk_written *w = &folder->written;
    dcpk_status st = DCPK_OK;

    for (size_t i = 0; i < w->n && st == DCPK_OK; i++) {
        const char *last;
        int fd;

        if (w->files[i].is_gone || w->files[i].is_seen)
            continue;
        fd = dcpk_folder_find_inner(folder, w->files[i].name, &last);
        if (fd < 0)
            return dcpk_fail_errno(err, errno, "opening the folder of '%s/%s'", folder->partial,
                                   w->files[i].name);
        st = check_file(folder, &w->files[i], fd, last, err);
    }
    return st;
}

/* syncs: all folders. */
static dcpk_status settle_folder(struct dcpk_folder *folder, bool syncs, struct dcpk_error *err)
{
    struct listing root = {.folder = folder, .fd = folder->dir_fd, .syncs = syncs};

    for (size_t i = 0; i < folder->written.n; i++)
        folder->written.files[i].is_seen = false;
    if (each_entry(&root, settle_root_entry, err) || settle_rest(folder, err))
        return err->status;
    return DCPK_OK;
}

dcpk_status dcpk_folder_settle_files(struct dcpk_folder *folder, struct dcpk_error *err)
{
    return settle_folder(folder, false, err);
}

dcpk_status dcpk_folder_seal_files(struct dcpk_folder *folder, struct dcpk_error *err)
{
    if (folder->syncs_at_once && dcpk_folder_sync(folder, err) != DCPK_OK)
        return err->status;
    return settle_folder(folder, !folder->syncs_at_once, err);
}

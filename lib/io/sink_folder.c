/* SPDX-License-Identifier: Apache-2.0 */
/* sink_folder.c - files of an output that is a folder: opened by descriptor, each known by
 * inode. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/alloc.h"
#include "lib/io/sink_priv.h"

#define TMP_SUFFIX ".dcpkit-tmp"

/* Checks that the opened file is the one that was made, or one that may be written to. */
static dcpk_status check_opened(const struct dcpk_folder *folder, const char *name, int how,
                                const struct dcpk_sink *sink, const struct stat *info,
                                struct dcpk_error *err)
{
    const struct dcpk_written_file *file = dcpk_written_find(folder, name);

    if (how & O_EXCL)
        return DCPK_OK; /* this process made it */
    if (!dcpk_is_own_file(folder, info) ||
        (file != NULL && (file->dev != info->st_dev || file->ino != info->st_ino)))
        return dcpk_fail(err, DCPK_EIO,
                         "'%s' is not the file that was written: another program has replaced it",
                         sink->path);
    if (how == 0 && (uint64_t)info->st_size != sink->n_bytes)
        return dcpk_fail(err, DCPK_EIO, "'%s' has %" PRIu64 " bytes, not %" PRIu64, sink->path,
                         (uint64_t)info->st_size, sink->n_bytes);
    return DCPK_OK;
}

/* Give a file that was opened its room, and keep in mind which one it is. */
static dcpk_status take_opened(struct dcpk_folder *folder, const char *name, int how,
                               struct dcpk_sink *sink, struct dcpk_error *err)
{
    struct stat info;
    dcpk_status st;

    if (fstat(sink->fd, &info) != 0)
        return dcpk_fail_errno(err, errno, "opening file '%s'", sink->path);
    st = check_opened(folder, name, how, sink, &info, err);
    if (st != DCPK_OK)
        return st;
    if (how != 0 && dcpk_sink_preallocate(sink->fd, 0, sink->n_bytes) != 0)
        return dcpk_fail_errno(err, errno, "giving file '%s' %" PRIu64 " bytes", sink->path,
                               sink->n_bytes);
    return dcpk_written_put(folder, name, &info, sink->n_bytes, err);
}

/* Open a file of the folder, with the flags `how`. O_NONBLOCK: a pipe that is there waits for no
 * one at its other end. */
static dcpk_status folder_open_file(struct dcpk_folder *folder, const char *name, int how,
                                    struct dcpk_sink *sink, struct dcpk_error *err)
{
    const char *last;
    int fd;

    if (dcpk_folder_enter_inner(folder, name, &fd, &last, err) != DCPK_OK)
        return err->status;
    sink->syncs_later = folder->syncs_at_once;
    sink->fd = openat(
        fd, last,
        O_RDWR | O_NOFOLLOW | O_CLOEXEC | how | (how & O_EXCL ? 0 : O_NONBLOCK | O_NOCTTY), 0666);
    if (sink->fd < 0)
        return dcpk_fail_errno(err, errno, "%s file '%s'", how == 0 ? "opening" : "making",
                               sink->path);
    if (take_opened(folder, name, how, sink, err) == DCPK_OK)
        return DCPK_OK;
    close(sink->fd);
    if (how & O_EXCL)
        (void)unlinkat(fd, last, 0); /* the folder's end would delete it as well */
    return err->status;
}

/* For a plain name. Under the lock. */
static dcpk_status rename_written(struct dcpk_folder *folder, const char *from, const char *to,
                                  struct dcpk_error *err)
{
    struct dcpk_written_file *file = dcpk_written_find(folder, from);
    struct stat info = {0};
    uint64_t n_bytes;

    if (renameat(folder->dir_fd, from, folder->dir_fd, to) != 0)
        return dcpk_fail_errno(err, errno, "naming file '%s/%s'", folder->path, to);
    if (file == NULL)
        return DCPK_OK; /* of a folder that another process has begun */
    file->is_gone = true;
    info.st_dev = file->dev;
    info.st_ino = file->ino;
    n_bytes = file->n_bytes;
    return dcpk_written_put(folder, to, &info, n_bytes, err);
}

static dcpk_status show_file(struct dcpk_folder *folder, const char *name, struct dcpk_error *err)
{
    char *hidden = dcpk_name_join(name, strlen(name), TMP_SUFFIX, err);
    dcpk_status st;

    if (hidden == NULL)
        return err->status;
    st = rename_written(folder, hidden, name, err);
    dcpk_free(hidden);
    return st;
}

static dcpk_status take_file(struct dcpk_folder *folder, const char *name, uint64_t n_bytes,
                             bool *taken, struct dcpk_error *err)
{
    const char *last;
    struct stat info;
    int fd;

    if (dcpk_written_find(folder, name) != NULL) {
        *taken = true;
        return DCPK_OK;
    }
    fd = dcpk_folder_find_inner(folder, name, &last);
    if (fd >= 0) /* opened, not only looked at: NFS asks the server then */
        fd = openat(fd, last, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    *taken = fd >= 0 && fstat(fd, &info) == 0 && dcpk_is_own_file(folder, &info) &&
             (uint64_t)info.st_size == n_bytes;
    if (fd >= 0)
        close(fd);
    if (!*taken)
        return DCPK_OK;
    if (dcpk_folder_enter_inner(folder, name, &fd, &last, err) ||
        dcpk_written_put(folder, name, &info, n_bytes, err))
        return err->status;
    return DCPK_OK;
}

const struct dcpk_folder_ops dcpk_folder_kind = {
    .partial = &dcpk_partial_folder,
    .hidden_suffix = TMP_SUFFIX,
    .open = folder_open_file,
    .close = dcpk_sink_close_file,
    .show = show_file,
    .take = take_file,
    .link = dcpk_folder_link_file,
    .settle = dcpk_folder_settle_files,
    .seal = dcpk_folder_seal_files,
};

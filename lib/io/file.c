/* SPDX-License-Identifier: Apache-2.0 */
/* file.c - a file is written under a temporary name, synced and renamed. */
#include "lib/io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/base/path.h"
#include "lib/io/sink_priv.h"

#define MAX_NAMES  100 /* tried for a temporary file; each is in another process's use */
#define NAME_BYTES 24  /* suffix of a path for it */
#define NAP_NS     10000000

struct dcpk_file {
    int fd;
    int parent_fd; /* of the folder in which both names are; -1 where there is no temporary one */
    uint64_t n_bytes;
    char *path;
    char *temporary; /* NULL: written into what stands at `path` */
};

/* ---- names that no other process has ---- */

/* True if `name` of the folder is the plain file of the descriptor, under no other name. */
static bool is_at(int folder_fd, const char *name, int fd, struct stat *info)
{
    struct stat opened;

    return fstatat(folder_fd, name, info, AT_SYMLINK_NOFOLLOW) == 0 && fstat(fd, &opened) == 0 &&
           S_ISREG(info->st_mode) && dcpk_is_same_file(info, &opened) && info->st_nlink == 1;
}

/*
 * Delete what a killed process left at `name`: a plain file of ours that no process has
 * locked. (Who writes one locks it, and then looks whether it is at its name still.)
 */
static void sweep(int folder_fd, const char *name)
{
    const int fd = openat(folder_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat info;

    if (fd < 0)
        return;
    if (is_at(folder_fd, name, fd, &info) && info.st_uid == geteuid() &&
        flock(fd, LOCK_EX | LOCK_NB) == 0 && is_at(folder_fd, name, fd, &info))
        (void)unlinkat(folder_fd, name, 0);
    close(fd);
}

/* A new file at `name`, locked where that can be. -1 with errno; EEXIST: another one is there. */
static int create_locked(int folder_fd, const char *name)
{
    const int fd =
        openat(folder_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    struct stat info;

    if (fd < 0)
        return -1;
    if ((flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) ||
        !is_at(folder_fd, name, fd, &info)) {
        close(fd); /* swept away between the two calls */
        errno = EEXIST;
        return -1;
    }
    return fd;
}

static dcpk_status open_temporary(struct dcpk_file *file, struct dcpk_error *err)
{
    const size_t name_bytes = strlen(file->path) + NAME_BYTES;

    file->temporary = dcpk_alloc(name_bytes, err);
    if (file->temporary == NULL)
        return err->status;
    file->parent_fd = dcpk_open_parent(file->path, err);
    if (file->parent_fd < 0)
        return err->status;
    for (int i = 0; i < MAX_NAMES; i++) {
        snprintf(file->temporary, name_bytes, "%s.dcpkit-tmp-%d", file->path, i);
        file->fd = create_locked(file->parent_fd, dcpk_name_last(file->temporary));
        if (file->fd < 0 && errno == EEXIST) {
            sweep(file->parent_fd, dcpk_name_last(file->temporary));
            file->fd = create_locked(file->parent_fd, dcpk_name_last(file->temporary));
        }
        if (file->fd >= 0)
            return DCPK_OK;
        if (errno != EEXIST)
            break;
    }
    return dcpk_fail_errno(err, errno, "making file '%s'", file->temporary);
}

/* ---- the file ---- */

static void file_free(struct dcpk_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    if (file->parent_fd >= 0)
        close(file->parent_fd);
    dcpk_free(file->path);
    dcpk_free(file->temporary);
    dcpk_free(file);
}

void dcpk_file_abandon(struct dcpk_file *file)
{
    struct stat info;

    if (file == NULL)
        return;
    /* The error that led here is reported; that of unlinkat would hide it. */
    if (file->fd >= 0 && file->temporary != NULL &&
        is_at(file->parent_fd, dcpk_name_last(file->temporary), file->fd, &info))
        (void)unlinkat(file->parent_fd, dcpk_name_last(file->temporary), 0);
    file_free(file);
}

/* Opening a pipe without a reader fails at once; writing may wait for one that is slow. */
static dcpk_status open_into(struct dcpk_file *file, int mode, struct dcpk_error *err)
{
    file->fd = open(file->path, O_WRONLY | O_CREAT | mode | O_NONBLOCK | O_CLOEXEC, 0666);
    if (file->fd < 0 || fcntl(file->fd, F_SETFL, mode & O_APPEND) != 0)
        return dcpk_fail_errno(err, errno, "opening '%s'", file->path);
    return DCPK_OK;
}

dcpk_status dcpk_file_begin(const char *path, unsigned flags, struct dcpk_file **file,
                            struct dcpk_error *err)
{
    const size_t n = strlen(path) + 1;
    struct dcpk_path there = {.kind = DCPK_PATH_NOTHING};
    struct dcpk_file *f = dcpk_alloc(sizeof *f, err);
    dcpk_status st = DCPK_OK;

    if (f == NULL)
        return err->status;
    f->fd = f->parent_fd = -1;
    f->path = dcpk_alloc(n, err);
    if (f->path == NULL) {
        st = err->status;
        goto out;
    }
    memcpy(f->path, path, n);
    if ((flags & DCPK_FILE_APPEND) != 0) {
        st = open_into(f, O_APPEND, err);
        goto out;
    }
    if ((flags & DCPK_FILE_INTO) != 0)
        st = dcpk_path_look(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, &there, err);
    if (st == DCPK_OK && there.kind == DCPK_PATH_OTHER)
        st = open_into(f, O_TRUNC, err);
    else if (st == DCPK_OK)
        st = open_temporary(f, err);
out:
    if (st == DCPK_OK)
        *file = f;
    else
        file_free(f);
    return st;
}

/* Write to what may be a pipe or a terminal. */
static dcpk_status write_stream(const struct dcpk_file *file, const char *data, size_t n_bytes,
                                struct dcpk_error *err)
{
    while (n_bytes > 0) {
        const ssize_t put = write(file->fd, data, n_bytes);

        if (put < 0 && errno == EINTR)
            continue;
        if (put == 0)
            errno = EIO;
        if (put <= 0)
            return dcpk_fail_errno(err, errno, "writing to '%s'", file->path);
        data += put;
        n_bytes -= (size_t)put;
    }
    return DCPK_OK;
}

dcpk_status dcpk_file_put(struct dcpk_file *file, const void *data, size_t n_bytes,
                          struct dcpk_error *err)
{
    const uint64_t at = file->n_bytes;

    file->n_bytes += n_bytes;
    if (file->temporary == NULL)
        return write_stream(file, data, n_bytes, err);
    return dcpk_sink_write_all(file->fd, file->temporary, at, data, n_bytes, err);
}

/* It keeps its lock, and so its name, until it is closed. */
static dcpk_status sync_and_rename(const struct dcpk_file *file, struct dcpk_error *err)
{
    while (fsync(file->fd) != 0)
        if (errno != EINTR)
            return dcpk_fail_errno(err, errno, "syncing file '%s'", file->temporary);
    if (renameat(file->parent_fd, dcpk_name_last(file->temporary), file->parent_fd,
                 dcpk_name_last(file->path)) != 0)
        return dcpk_fail_errno(err, errno, "moving '%s' to '%s'", file->temporary, file->path);
    if (dcpk_sync_folder(file->parent_fd) != 0)
        return dcpk_fail_errno(err, errno, "syncing the folder of '%s'", file->path);
    return DCPK_OK;
}

dcpk_status dcpk_file_publish(struct dcpk_file *file, struct dcpk_error *err)
{
    dcpk_status st = DCPK_OK;

    if (file->temporary != NULL)
        st = sync_and_rename(file, err);
    if (st != DCPK_OK)
        dcpk_file_abandon(file);
    else
        file_free(file);
    return st;
}

dcpk_status dcpk_file_write(const char *path, unsigned flags, const void *data, size_t n_bytes,
                            struct dcpk_error *err)
{
    struct dcpk_file *file;
    dcpk_status st = dcpk_file_begin(path, flags, &file, err);

    if (st != DCPK_OK)
        return st;
    st = dcpk_file_put(file, data, n_bytes, err);
    if (st == DCPK_OK)
        return dcpk_file_publish(file, err);
    dcpk_file_abandon(file);
    return st;
}

/* ---- the lock of a folder ---- */

int dcpk_file_lock_parent(const char *path, double wait_seconds)
{
    const size_t folder_bytes = (size_t)(dcpk_name_last(path) - path);
    const double until = dcpk_now_seconds() + wait_seconds;
    const struct timespec nap = {.tv_nsec = NAP_NS};
    char folder[PATH_MAX] = ".";
    int fd;

    if (folder_bytes >= sizeof folder)
        return -1;
    memcpy(folder, path, folder_bytes);
    fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if ((errno != EWOULDBLOCK && errno != EINTR) || dcpk_now_seconds() >= until) {
            close(fd);
            return -1;
        }
        nanosleep(&nap, NULL);
    }
    return fd;
}

void dcpk_file_unlock(int lock)
{
    if (lock >= 0)
        close(lock); /* the lock goes with its last descriptor */
}

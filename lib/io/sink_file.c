/* SPDX-License-Identifier: Apache-2.0 */
/* sink_file.c - the files of an output folder: made, written, synced, each once and by one hand. */
#include <assert.h>
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
/*
 * Of one pwrite. From 2 MiB on, file systems with large folios take huge pages for the page cache;
 * those are the ones that a virtual machine has given back to its host (free page reporting), who
 * must find and clear them anew: four times the time (tests/bench/README.md).
 */
#define MAX_WRITE_BYTES ((size_t)1 << 20)
#define DROP_BYTES      (UINT64_C(64) << 20) /* flushed between two looks for what can be dropped */

int dcpk_sink_preallocate(int fd, uint64_t at, uint64_t n_bytes)
{
    int rc;

    if (n_bytes == 0)
        return 0;
    if (n_bytes > INT64_MAX || at > INT64_MAX - n_bytes) {
        errno = EFBIG;
        return -1;
    }
    do {
        rc = fallocate(fd, 0, (off_t)at, (off_t)n_bytes);
    } while (rc != 0 && errno == EINTR);
    if (rc == 0 || (errno != EOPNOTSUPP && errno != ENOSYS))
        return rc;
    do {
        rc = ftruncate(fd, (off_t)(at + n_bytes));
    } while (rc != 0 && errno == EINTR);
    return rc;
}

dcpk_status dcpk_sink_write_all(int fd, const char *path, uint64_t at, const uint8_t *data,
                                size_t n, struct dcpk_error *err)
{
    while (n > 0) {
        const size_t part = n < MAX_WRITE_BYTES ? n : MAX_WRITE_BYTES;
        const ssize_t put = pwrite(fd, data, part, (off_t)at);
        if (put < 0 && errno == EINTR)
            continue;
        /* POSIX never returns 0 here for part > 0; without this it would be an endless loop */
        if (put <= 0)
            return dcpk_fail_errno(err, put < 0 ? errno : EIO,
                                   "writing %zu bytes at byte %" PRIu64 " of '%s'", n, at, path);
        at += (uint64_t)put;
        data += put;
        n -= (size_t)put;
    }
    return DCPK_OK;
}

/* A sink without a descriptor yet, with the path that messages tell. */
static struct dcpk_sink *new_sink(const struct dcpk_folder *folder, const char *name,
                                  uint64_t n_bytes, struct dcpk_error *err)
{
    const size_t path_bytes = strlen(folder->path) + strlen(name) + 2;
    struct dcpk_sink *sink = dcpk_alloc(sizeof *sink + path_bytes, err);

    if (sink == NULL)
        return NULL;
    snprintf(sink->path, path_bytes, "%s/%s", folder->path, name);
    sink->n_bytes = n_bytes;
    sink->leaves_cache = (folder->flags & DCPK_FOLDER_LARGE) != 0;
    sink->is_compared = (folder->flags & DCPK_FOLDER_COMPARE) != 0;
    return sink;
}

/* Open a member of an archive: give it its place if it has none yet. */
static dcpk_status open_member(struct dcpk_folder *folder, const char *name, struct dcpk_sink *sink,
                               struct dcpk_error *err)
{
    const char *last;
    int fd;

    if (dcpk_folder_enter_inner(folder, name, &fd, &last, err) != DCPK_OK)
        return err->status;
    sink->fd = folder->dir_fd;
    sink->is_member = sink->syncs_later = true; /* once, when the archive is published */
    return dcpk_tar_place(folder, name, sink->n_bytes, &sink->base_bytes, err);
}

/* Is the file that was opened the one that was made, or one that may be written to? */
static dcpk_status check_opened(const struct dcpk_folder *folder, const char *name, int how,
                                const struct dcpk_sink *sink, const struct stat *info,
                                struct dcpk_error *err)
{
    const struct dcpk_written_file *file = dcpk_written_find(folder, name);

    if (how & O_EXCL)
        return DCPK_OK; /* nobody else had it */
    if (!dcpk_is_own_file(folder, info) ||
        (file != NULL && (file->dev != info->st_dev || file->ino != info->st_ino)))
        return dcpk_fail(err, DCPK_EIO,
                         "'%s' is not the file that was written: another program has put something "
                         "else there",
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
static dcpk_status open_file(struct dcpk_folder *folder, const char *name, int how,
                             struct dcpk_sink *sink, struct dcpk_error *err)
{
    const char *last;
    int fd;

    if (sink->is_compared)
        return dcpk_sink_open_there(folder, name, sink, err);
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

/* how: O_CREAT, with O_EXCL or not; 0 for a file that is there. */
static dcpk_status open_sink(struct dcpk_folder *folder, const char *name, uint64_t n_bytes,
                             int how, struct dcpk_sink **sink, struct dcpk_error *err)
{
    struct dcpk_sink *s = new_sink(folder, name, n_bytes, err);
    dcpk_status st;

    if (s == NULL)
        return err->status;
    pthread_mutex_lock(&folder->mutex);
    if (folder->flags & DCPK_FOLDER_TAR)
        st = open_member(folder, name, s, err);
    else
        st = open_file(folder, name, how, s, err);
    pthread_mutex_unlock(&folder->mutex);
    if (st == DCPK_OK)
        *sink = s;
    else
        dcpk_free(s);
    return st;
}

dcpk_status dcpk_folder_create(struct dcpk_folder *folder, const char *name, uint64_t n_bytes,
                               struct dcpk_sink **sink, struct dcpk_error *err)
{
    const bool may_be_there = folder->flags & DCPK_FOLDER_SHARED;

    return open_sink(folder, name, n_bytes, may_be_there ? O_CREAT : O_CREAT | O_EXCL, sink, err);
}

dcpk_status dcpk_folder_reopen(struct dcpk_folder *folder, const char *name, uint64_t n_bytes,
                               struct dcpk_sink **sink, struct dcpk_error *err)
{
    return open_sink(folder, name, n_bytes, 0, sink, err);
}

dcpk_status dcpk_folder_create_hidden(struct dcpk_folder *folder, const char *name,
                                      uint64_t n_bytes, struct dcpk_sink **sink,
                                      struct dcpk_error *err)
{
    const unsigned shown = DCPK_FOLDER_TAR | DCPK_FOLDER_COMPARE;
    const char *suffix = (folder->flags & shown) != 0 ? "" : TMP_SUFFIX;
    char *hidden = dcpk_name_join(name, strlen(name), suffix, err);
    dcpk_status st;

    if (hidden == NULL)
        return err->status;
    st = dcpk_folder_create(folder, hidden, n_bytes, sink, err);
    dcpk_free(hidden);
    return st;
}

/* Of a plain name. Under the lock. */
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

dcpk_status dcpk_folder_show(struct dcpk_folder *folder, const char *name, struct dcpk_error *err)
{
    dcpk_status st = DCPK_OK;
    char *hidden;

    if ((folder->flags & (DCPK_FOLDER_TAR | DCPK_FOLDER_COMPARE)) != 0)
        return DCPK_OK;
    hidden = dcpk_name_join(name, strlen(name), TMP_SUFFIX, err);
    if (hidden == NULL)
        return err->status;
    pthread_mutex_lock(&folder->mutex);
    st = rename_written(folder, hidden, name, err);
    pthread_mutex_unlock(&folder->mutex);
    dcpk_free(hidden);
    return st;
}

/*
 * Is the file still as long as it was made? What another program has cut off would come back as
 * zeros when the bytes behind it are written, and nobody would see it. Only the length is asked
 * for: NFS writes back what is not on the server when it is asked for times.
 */
static dcpk_status check_length(const struct dcpk_sink *sink, struct dcpk_error *err)
{
    const uint64_t end_bytes = sink->base_bytes + sink->n_bytes;
    struct statx info;

    if (statx(sink->fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_SIZE, &info) != 0)
        return dcpk_fail_errno(err, errno, "writing '%s'", sink->path);
    if (info.stx_size >= end_bytes)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EIO,
                     "'%s' was cut to %" PRIu64 " bytes by another program while it was written",
                     sink->path, (uint64_t)info.stx_size);
}

dcpk_status dcpk_sink_write(struct dcpk_sink *sink, uint64_t offset_bytes, const void *data,
                            size_t n_bytes, struct dcpk_error *err)
{
    const uint8_t *bytes = data;
    uint64_t at = sink->base_bytes + offset_bytes;
    dcpk_status st = DCPK_OK;

    assert(offset_bytes <= sink->n_bytes && n_bytes <= sink->n_bytes - offset_bytes);
    if (sink->is_compared)
        return dcpk_sink_compare(sink->fd, sink->path, at, bytes, n_bytes, err);
    for (size_t part; n_bytes > 0 && st == DCPK_OK; n_bytes -= part, at += part) {
        part = n_bytes < MAX_WRITE_BYTES ? n_bytes : MAX_WRITE_BYTES;
        st = check_length(sink, err);
        if (st == DCPK_OK)
            st = dcpk_sink_write_all(sink->fd, sink->path, at, bytes, part, err);
        bytes += part;
    }
    return st;
}

dcpk_status dcpk_sink_read(struct dcpk_sink *sink, uint64_t offset_bytes, void *data,
                           size_t n_bytes, struct dcpk_error *err)
{
    uint8_t *bytes = data;
    uint64_t at = sink->base_bytes + offset_bytes;

    while (n_bytes > 0) {
        const ssize_t got = pread(sink->fd, bytes, n_bytes, (off_t)at);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return dcpk_fail_errno(err, errno, "reading %zu bytes at byte %" PRIu64 " of '%s'",
                                   n_bytes, at, sink->path);
        if (got == 0)
            return dcpk_fail(err, DCPK_EIO, "'%s' ends at byte %" PRIu64, sink->path, at);
        bytes += got;
        at += (uint64_t)got;
        n_bytes -= (size_t)got;
    }
    return DCPK_OK;
}

void dcpk_sink_flush(struct dcpk_sink *sink, uint64_t offset_bytes, uint64_t n_bytes)
{
    uint64_t before;

    if (n_bytes == 0 || sink->syncs_later) /* 0 would mean "to the end" */
        return;
    (void)sync_file_range(sink->fd, (off_t)(sink->base_bytes + offset_bytes), (off_t)n_bytes,
                          SYNC_FILE_RANGE_WRITE);
    if (!sink->leaves_cache)
        return;
    before = atomic_fetch_add(&sink->n_flushed_bytes, n_bytes);
    if (before / DROP_BYTES != (before + n_bytes) / DROP_BYTES)
        (void)posix_fadvise(sink->fd, 0, 0, POSIX_FADV_DONTNEED); /* not what is still on its way */
}

dcpk_status dcpk_sink_sync(struct dcpk_sink *sink, struct dcpk_error *err)
{
    while (!sink->syncs_later && fdatasync(sink->fd) != 0)
        if (errno != EINTR)
            return dcpk_fail_errno(err, errno, "syncing file '%s'", sink->path);
    return DCPK_OK;
}

/* Sync, unless that comes later, and close fd; it is closed in every case. */
static dcpk_status sync_and_close(int fd, bool syncs_later, const char *path,
                                  struct dcpk_error *err)
{
    int code = 0;

    while (!syncs_later && fsync(fd) != 0) {
        if (errno != EINTR) {
            code = errno;
            break;
        }
    }
    /* network file systems tell of lost writes here; after EINTR the descriptor is gone on Linux */
    if (close(fd) != 0 && errno != EINTR && code == 0)
        code = errno;
    return code == 0 ? DCPK_OK : dcpk_fail_errno(err, code, "syncing file '%s'", path);
}

dcpk_status dcpk_sink_close(struct dcpk_sink *sink, struct dcpk_error *err)
{
    /* an archive is synced once, when it is published */
    const dcpk_status st =
        sink->is_member ? DCPK_OK : sync_and_close(sink->fd, sink->syncs_later, sink->path, err);

    dcpk_free(sink);
    return st;
}

void dcpk_sink_abandon(struct dcpk_sink *sink)
{
    if (sink == NULL)
        return;
    if (!sink->is_member)
        close(sink->fd);
    dcpk_free(sink);
}

dcpk_status dcpk_folder_take(struct dcpk_folder *folder, const char *name, uint64_t n_bytes,
                             bool *taken, struct dcpk_error *err)
{
    const char *last;
    struct stat info;
    dcpk_status st = DCPK_OK;
    int fd;

    *taken = true;
    if ((folder->flags & (DCPK_FOLDER_TAR | DCPK_FOLDER_COMPARE)) != 0)
        return DCPK_OK;
    pthread_mutex_lock(&folder->mutex);
    if (dcpk_written_find(folder, name) != NULL)
        goto out;
    fd = dcpk_folder_find_inner(folder, name, &last);
    if (fd >= 0) /* opened, not only looked at: NFS asks the server then */
        fd = openat(fd, last, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    *taken = fd >= 0 && fstat(fd, &info) == 0 && dcpk_is_own_file(folder, &info) &&
             (uint64_t)info.st_size == n_bytes;
    if (fd >= 0)
        close(fd);
    if (*taken)
        st = dcpk_folder_enter_inner(folder, name, &fd, &last, err);
    if (*taken && st == DCPK_OK)
        st = dcpk_written_put(folder, name, &info, n_bytes, err);
out:
    pthread_mutex_unlock(&folder->mutex);
    return st;
}

dcpk_status dcpk_folder_put(struct dcpk_folder *folder, const char *name, const void *data,
                            size_t n_bytes, struct dcpk_error *err)
{
    struct dcpk_sink *sink = NULL;
    dcpk_status st;

    st = dcpk_folder_create(folder, name, n_bytes, &sink, err);
    if (st != DCPK_OK)
        return st;
    st = dcpk_sink_write(sink, 0, data, n_bytes, err);
    if (st != DCPK_OK) {
        dcpk_sink_abandon(sink);
        return st;
    }
    return dcpk_sink_close(sink, err);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* sink_file.c - the files of an output folder: made, written, synced, each once and by one hand. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/io/sink_priv.h"

/*
 * Limit of one pwrite. From 2 MiB on, file systems with large folios take huge pages for the page
 * cache; those are the ones that a virtual machine has given back to its host (free page
 * reporting), who must find and clear them again: four times the time (tests/bench/README.md).
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
        const size_t part = dcpk_min_size(n, MAX_WRITE_BYTES);
        const ssize_t put = pwrite(fd, data, part, (off_t)at);
        if (put < 0 && errno == EINTR)
            continue;
        /* POSIX never returns 0 here for part > 0; without this it would be an endless loop */
        if (put == 0)
            errno = EIO;
        if (put <= 0)
            return dcpk_fail_errno(err, errno, "writing %zu bytes at byte %" PRIu64 " of '%s'", n,
                                   at, path);
        at += (uint64_t)put;
        data += put;
        n -= (size_t)put;
    }
    return DCPK_OK;
}

/* A sink without a descriptor yet, with the path that messages name. */
static struct dcpk_sink *new_sink(const struct dcpk_folder *folder, const char *name,
                                  uint64_t n_bytes, struct dcpk_error *err)
{
    const size_t path_bytes = strlen(folder->path) + strlen(name) + 2;
    struct dcpk_sink *sink = dcpk_alloc(sizeof *sink + path_bytes, err);

    if (sink == NULL)
        return NULL;
    snprintf(sink->path, path_bytes, "%s/%s", folder->path, name);
    sink->ops = folder->ops;
    sink->n_bytes = n_bytes;
    sink->leaves_cache = (folder->flags & DCPK_FOLDER_LARGE) != 0;
    return sink;
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
    st = folder->ops->open(folder, name, how, s, err);
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
    char *hidden = dcpk_name_join(name, strlen(name), folder->ops->hidden_suffix, err);
    dcpk_status st;

    if (hidden == NULL)
        return err->status;
    st = dcpk_folder_create(folder, hidden, n_bytes, sink, err);
    dcpk_free(hidden);
    return st;
}

/*
 * Checks that the file is as long as it was made. Bytes that another program has cut off would come
 * back as zeros when the bytes after them are written, and stay unseen. Only the length is asked
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

    assert(offset_bytes <= sink->n_bytes && n_bytes <= sink->n_bytes - offset_bytes);
    for (size_t part; n_bytes > 0; n_bytes -= part, at += part, bytes += part) {
        part = dcpk_min_size(n_bytes, MAX_WRITE_BYTES);
        if (check_length(sink, err) ||
            dcpk_sink_write_all(sink->fd, sink->path, at, bytes, part, err))
            return err->status;
    }
    return DCPK_OK;
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

dcpk_status dcpk_sink_close_file(struct dcpk_sink *sink, bool syncs, struct dcpk_error *err)
{
    int code = 0;

    while (syncs && !sink->syncs_later && fsync(sink->fd) != 0) {
        if (errno != EINTR) {
            code = errno;
            break;
        }
    }
    /* Network file systems report lost writes here; EINTR has closed the descriptor. */
    if (close(sink->fd) != 0 && errno != EINTR && code == 0)
        code = errno;
    if (code != 0)
        return dcpk_fail_errno(err, code, "syncing file '%s'", sink->path);
    return DCPK_OK;
}

dcpk_status dcpk_sink_close(struct dcpk_sink *sink, struct dcpk_error *err)
{
    dcpk_status st = DCPK_OK;

    if (sink->ops->close != NULL)
        st = sink->ops->close(sink, true, err);
    dcpk_free(sink);
    return st;
}

void dcpk_sink_abandon(struct dcpk_sink *sink)
{
    struct dcpk_error ignored;

    if (sink == NULL)
        return;
    if (sink->ops->close != NULL)
        (void)sink->ops->close(sink, false, &ignored);
    dcpk_free(sink);
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

/* SPDX-License-Identifier: Apache-2.0 */
/* sink_copy.c - whole files put into an output folder: linked, or copied. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/io/sink_priv.h"
#include "lib/io/store_priv.h"

#define COPY_BYTES     ((size_t)1 << 20) /* of one read and write where the system cannot copy */
#define MAX_CALL_BYTES ((size_t)1 << 30) /* of one copy_file_range */

/* True if the source is a file of its own, of a folder. */
static bool is_file(const struct dcpk_source *source)
{
    return source->store->ops->look != NULL;
}

/* A descriptor of the file that the source lies in, to be closed; -1: there is none. */
static int open_source_file(const struct dcpk_source *source)
{
    const int fd = source->store->fd;

    if (is_file(source))
        return openat(fd, source->name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    return fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

/* Lets the system copy a source into an empty sink; it may share the blocks. Returns how many bytes
 * it did. */
static uint64_t copy_by_system(const struct dcpk_source *source, const struct dcpk_sink *sink)
{
    const int from = open_source_file(source);
    off_t in = (off_t)source->offset_bytes, out = (off_t)sink->base_bytes;
    uint64_t done = 0;

    while (from >= 0 && done < source->n_bytes) {
        const uint64_t left = source->n_bytes - done;
        const size_t part = (size_t)dcpk_min_u64(left, MAX_CALL_BYTES);
        const ssize_t n = copy_file_range(from, &in, sink->fd, &out, part, 0);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break; /* not between these file systems; reading and writing report other errors */
        done += (uint64_t)n;
    }
    if (from >= 0)
        close(from);
    return done;
}

/* Copy what is left from `at` on with a buffer. */
static dcpk_status copy_buffered(struct dcpk_source *source, struct dcpk_sink *sink, uint64_t at,
                                 struct dcpk_error *err)
{
    dcpk_status st = DCPK_OK;
    uint8_t *buffer;

    if (at >= source->n_bytes)
        return DCPK_OK;
    buffer = dcpk_alloc(COPY_BYTES, err);
    if (buffer == NULL)
        return err->status;
    while (at < source->n_bytes && st == DCPK_OK) {
        const uint64_t left = source->n_bytes - at;
        const size_t n = (size_t)dcpk_min_u64(left, COPY_BYTES);

        st = dcpk_source_read(source, at, buffer, n, err);
        if (st == DCPK_OK)
            st = dcpk_sink_write(sink, at, buffer, n, err);
        at += n;
    }
    dcpk_free(buffer);
    return st;
}

dcpk_status dcpk_folder_copy(struct dcpk_folder *folder, const char *name,
                             struct dcpk_source *source, struct dcpk_error *err)
{
    struct dcpk_sink *sink = NULL;
    dcpk_status st = dcpk_folder_create(folder, name, source->n_bytes, &sink, err);

    if (st != DCPK_OK)
        return st;
    st = copy_buffered(source, sink, copy_by_system(source, sink), err);
    if (st == DCPK_OK)
        return dcpk_sink_close(sink, err);
    dcpk_sink_abandon(sink);
    return st;
}

dcpk_status dcpk_folder_link_file(struct dcpk_folder *folder, const char *name,
                                  const struct dcpk_source *source, bool *linked,
                                  struct dcpk_error *err)
{
    const char *last;
    struct stat info;
    int fd;

    if (dcpk_folder_enter_inner(folder, name, &fd, &last, err) != DCPK_OK)
        return err->status;
    *linked = linkat(source->store->fd, source->name, fd, last, AT_SYMLINK_FOLLOW) == 0;
    if (!*linked)
        return DCPK_OK;
    if (fstatat(fd, last, &info, AT_SYMLINK_NOFOLLOW) != 0)
        return dcpk_fail_errno(err, errno, "linking '%s/%s'", folder->path, name);
    return dcpk_written_put(folder, name, &info, (uint64_t)info.st_size, err);
}

dcpk_status dcpk_folder_link(struct dcpk_folder *folder, const char *name,
                             struct dcpk_source *source, bool *linked, struct dcpk_error *err)
{
    dcpk_status st = DCPK_OK;

    *linked = false;
    if (folder->ops->link != NULL && is_file(source)) {
        pthread_mutex_lock(&folder->mutex);
        st = folder->ops->link(folder, name, source, linked, err);
        pthread_mutex_unlock(&folder->mutex);
    }
    if (st != DCPK_OK || *linked)
        return st;
    /* Another file system, one without links, too many of them, an archive; what is wrong beyond
     * that shows in copying. */
    return dcpk_folder_copy(folder, name, source, err);
}

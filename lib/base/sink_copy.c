/* SPDX-License-Identifier: Apache-2.0 */
/* sink_copy.c - whole files put into an output folder: linked, or copied. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/alloc.h"
#include "lib/base/sink_priv.h"

#define COPY_BYTES      ((size_t)1 << 20) /* of one read and write where the system cannot copy */
#define MOST_CALL_BYTES ((size_t)1 << 30) /* of one copy_file_range */

/* A file on its way into the folder. */
struct copying {
    const char *source;
    int from;
    uint64_t n_bytes;
    struct dcpk_sink *sink;
};

/* Copy what is left behind `at` with a buffer: for file systems that copy_file_range does not
 * serve. */
static dcpk_status copy_buffered(const struct copying *c, uint64_t at, struct dcpk_error *err)
{
    uint8_t *buffer = dcpk_alloc(COPY_BYTES, err);
    dcpk_status st = buffer == NULL ? err->status : DCPK_OK;

    while (at < c->n_bytes && st == DCPK_OK) {
        const uint64_t left = c->n_bytes - at;
        const ssize_t got =
            pread(c->from, buffer, left < COPY_BYTES ? (size_t)left : COPY_BYTES, (off_t)at);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) /* 0: it became shorter while it was read */
            st = dcpk_fail_errno(err, got < 0 ? errno : EIO, "reading '%s' at byte %" PRIu64,
                                 c->source, at);
        else
            st = dcpk_sink_write(c->sink, at, buffer, (size_t)got, err);
        at += got > 0 ? (uint64_t)got : 0;
    }
    dcpk_free(buffer);
    return st;
}

static dcpk_status copy(const struct copying *c, struct dcpk_error *err)
{
    off_t in = 0, out = 0;

    while ((uint64_t)in < c->n_bytes) {
        const uint64_t left = c->n_bytes - (uint64_t)in;
        const size_t part = left < MOST_CALL_BYTES ? (size_t)left : MOST_CALL_BYTES;
        const ssize_t n = copy_file_range(c->from, &in, dcpk_sink_fd(c->sink), &out, part, 0);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return copy_buffered(c, (uint64_t)in, err);
    }
    return DCPK_OK;
}

dcpk_status dcpk_folder_copy(struct dcpk_folder *folder, const char *name, const char *source,
                             struct dcpk_error *err)
{
    struct copying c = {.source = source, .from = open(source, O_RDONLY | O_CLOEXEC)};
    struct stat info;
    dcpk_status st = DCPK_OK;

    if (c.from < 0 || fstat(c.from, &info) != 0)
        st = dcpk_fail_errno(err, errno, "opening '%s'", source);
    if (st == DCPK_OK) {
        c.n_bytes = (uint64_t)info.st_size;
        st = dcpk_folder_create(folder, name, c.n_bytes, &c.sink, err);
    }
    if (st == DCPK_OK) {
        st = copy(&c, err);
        if (st == DCPK_OK)
            st = dcpk_sink_close(c.sink, err);
        else
            dcpk_sink_abandon(c.sink);
    }
    if (c.from >= 0)
        close(c.from);
    return st;
}

dcpk_status dcpk_folder_link(struct dcpk_folder *folder, const char *name, const char *source,
                             bool *linked, struct dcpk_error *err)
{
    *linked = strchr(name, '/') == NULL &&
              linkat(AT_FDCWD, source, dcpk_folder_fd(folder), name, AT_SYMLINK_FOLLOW) == 0;
    if (*linked)
        return DCPK_OK;
    /* Another file system, one without links, too many of them, a name in a folder; what is wrong
     * beyond that shows in copying. */
    return dcpk_folder_copy(folder, name, source, err);
}

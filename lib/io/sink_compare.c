/* SPDX-License-Identifier: Apache-2.0 */
/* sink_compare.c - an output that is there already: what would be written is compared with it. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/order.h"
#include "lib/io/sink_priv.h"

#define COMPARE_BYTES ((size_t)32 << 10) /* of one read; on the stack of a worker */

dcpk_status dcpk_folder_compare(const char *path, unsigned flags, struct dcpk_folder **folder,
                                struct dcpk_error *err)
{
    const bool is_archive = (flags & DCPK_FOLDER_TAR) != 0;
    struct dcpk_folder *f =
        dcpk_folder_new(path, is_archive ? &dcpk_archive_compared : &dcpk_folder_compared, 0, err);

    if (f == NULL)
        return err->status;
    memcpy(f->partial, f->path, strlen(f->path) + 1); /* nothing is written beside it */
    f->dir_fd = open(f->path, O_RDONLY | O_CLOEXEC | (is_archive ? 0 : O_DIRECTORY));
    if (f->dir_fd < 0) {
        dcpk_fail_errno(err, errno, "opening '%s'", f->path);
        dcpk_folder_free(f);
        return err->status;
    }
    *folder = f;
    return DCPK_OK;
}

/* How many of n bytes are equal. */
static size_t count_equal(const uint8_t *a, const uint8_t *b, size_t n)
{
    size_t i = 0;

    while (i < n && a[i] == b[i])
        i++;
    return i;
}

dcpk_status dcpk_sink_compare(int fd, const char *path, uint64_t at, const uint8_t *data, size_t n,
                              struct dcpk_error *err)
{
    uint8_t there[COMPARE_BYTES];

    while (n > 0) {
        const ssize_t got = pread(fd, there, dcpk_min_size(n, sizeof there), (off_t)at);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return dcpk_fail_errno(err, errno, "reading %zu bytes at byte %" PRIu64 " of '%s'", n,
                                   at, path);
        if (got == 0 || memcmp(there, data, (size_t)got) != 0)
            return dcpk_fail(err, DCPK_EUSAGE, "byte %" PRIu64 " of '%s' is another one",
                             at + count_equal(there, data, (size_t)got), path);
        at += (uint64_t)got;
        data += got;
        n -= (size_t)got;
    }
    return DCPK_OK;
}

dcpk_status dcpk_sink_write_compared(struct dcpk_sink *sink, uint64_t offset_bytes,
                                     const uint8_t *data, size_t n_bytes, struct dcpk_error *err)
{
    return dcpk_sink_compare(sink->fd, sink->path, sink->base_bytes + offset_bytes, data, n_bytes,
                             err);
}

/* Open a file that is there. Errors: DCPK_EUSAGE when it is missing or has another length than
 * sink->n_bytes; DCPK_EIO. */
static dcpk_status open_there(struct dcpk_folder *folder, const char *name, int how,
                              struct dcpk_sink *sink, struct dcpk_error *err)
{
    struct stat info;

    (void)how;                /* it is there */
    sink->syncs_later = true; /* nothing is written */
    sink->fd = openat(folder->dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (sink->fd < 0 && errno == ENOENT)
        return dcpk_fail(err, DCPK_EUSAGE, "'%s' is missing", sink->path);
    if (sink->fd < 0)
        return dcpk_fail_errno(err, errno, "opening file '%s'", sink->path);
    if (fstat(sink->fd, &info) != 0)
        dcpk_fail_errno(err, errno, "opening file '%s'", sink->path);
    else if (!S_ISREG(info.st_mode) || (uint64_t)info.st_size != sink->n_bytes)
        dcpk_fail(err, DCPK_EUSAGE, "'%s' has another length than the %" PRIu64 " bytes it needs",
                  sink->path, sink->n_bytes);
    else
        return DCPK_OK;
    close(sink->fd);
    return err->status;
}

/* A run that was killed between its last rename and the end has left its journal in the output. */
static dcpk_status remove_journal(struct dcpk_folder *folder, struct dcpk_error *err)
{
    if (unlinkat(folder->dir_fd, DCPK_JOURNAL_NAME, 0) == 0 || errno == ENOENT)
        return DCPK_OK;
    return dcpk_fail_errno(err, errno, "deleting '%s/" DCPK_JOURNAL_NAME "'", folder->path);
}

const struct dcpk_folder_ops dcpk_folder_compared = {
    .hidden_suffix = "",
    .open = open_there,
    .write = dcpk_sink_write_compared,
    .close = dcpk_sink_close_file,
    .link = dcpk_folder_link_compared,
    .publish = remove_journal,
};

/* SPDX-License-Identifier: Apache-2.0 */
/* file.c - a file is written under a temporary name, synced and renamed. */
#include "lib/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/alloc.h"
#include "lib/base/sink_priv.h"

#define TMP_SUFFIX ".dcpkit-tmp"

struct dcpk_file {
    int fd;
    uint64_t n_bytes;
    char *path, *temporary;
};

static void file_free(struct dcpk_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    dcpk_free(file->path);
    dcpk_free(file->temporary);
    dcpk_free(file);
}

void dcpk_file_abandon(struct dcpk_file *file)
{
    if (file == NULL)
        return;
    (void)unlink(file->temporary); /* the first error is the one to tell */
    file_free(file);
}

dcpk_status dcpk_file_begin(const char *path, struct dcpk_file **file, struct dcpk_error *err)
{
    const size_t n = strlen(path);
    struct dcpk_file *f = dcpk_alloc(sizeof *f, err);

    if (f == NULL)
        return err->status;
    f->fd = -1;
    f->path = dcpk_alloc(n + 1, err);
    f->temporary = f->path == NULL ? NULL : dcpk_alloc(n + sizeof TMP_SUFFIX, err);
    if (f->temporary == NULL) {
        file_free(f);
        return err->status;
    }
    memcpy(f->path, path, n);
    memcpy(f->temporary, path, n);
    memcpy(f->temporary + n, TMP_SUFFIX, sizeof TMP_SUFFIX);
    /* a new file, or over a stale one */
    f->fd = open(f->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (f->fd < 0) {
        dcpk_fail_errno(err, errno, "making file '%s'", f->temporary);
        file_free(f);
        return err->status;
    }
    *file = f;
    return DCPK_OK;
}

dcpk_status dcpk_file_put(struct dcpk_file *file, const void *data, size_t n_bytes,
                          struct dcpk_error *err)
{
    const dcpk_status st =
        dcpk_sink_write_all(file->fd, file->temporary, file->n_bytes, data, n_bytes, err);

    file->n_bytes += n_bytes;
    return st;
}

dcpk_status dcpk_file_publish(struct dcpk_file *file, struct dcpk_error *err)
{
    dcpk_status st = dcpk_sink_sync_and_close(file->fd, file->temporary, err);

    file->fd = -1;
    if (st == DCPK_OK && rename(file->temporary, file->path) != 0)
        st = dcpk_fail_errno(err, errno, "moving '%s' to '%s'", file->temporary, file->path);
    if (st != DCPK_OK) {
        dcpk_file_abandon(file);
        return st;
    }
    st = dcpk_sync_parent(file->path, err);
    file_free(file);
    return st;
}

dcpk_status dcpk_file_replace(const char *path, const void *data, size_t n_bytes,
                              struct dcpk_error *err)
{
    struct dcpk_file *file;
    dcpk_status st = dcpk_file_begin(path, &file, err);

    if (st != DCPK_OK)
        return st;
    st = dcpk_file_put(file, data, n_bytes, err);
    if (st == DCPK_OK)
        return dcpk_file_publish(file, err);
    dcpk_file_abandon(file);
    return st;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* sink_tar.c - output folders that are a tar archive: members one after the other, in one file. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/alloc.h"
#include "lib/base/bytes.h"
#include "lib/io/sink_priv.h"
#include "lib/io/tar.h"

/* The bytes that the data of a member takes in whole blocks. */
static uint64_t room_bytes(uint64_t n_bytes)
{
    return n_bytes + -n_bytes % DCPK_TAR_BLOCK_BYTES;
}

/* Write a member's header at the end of the archive, and give n_bytes of data room after it. */
static dcpk_status write_header(struct dcpk_folder *folder, const char *name, uint64_t n_bytes,
                                const struct dcpk_bytes *header, struct dcpk_error *err)
{
    if (dcpk_sink_write_all(folder->dir_fd, folder->partial, folder->end_bytes, header->data,
                            header->n_bytes, err) != DCPK_OK)
        return err->status;
    if (dcpk_sink_preallocate(folder->dir_fd, folder->end_bytes + header->n_bytes,
                              room_bytes(n_bytes)) != 0)
        return dcpk_fail_errno(err, errno, "giving '%s' in '%s' %" PRIu64 " bytes", name,
                               folder->path, n_bytes);
    return DCPK_OK;
}

/* Give a member its place after the others; *base_bytes: where its data goes. */
static dcpk_status add_member(struct dcpk_folder *folder, const char *name, uint64_t n_bytes,
                              uint64_t *base_bytes, struct dcpk_error *err)
{
    struct dcpk_bytes path = {0}, header = {0};
    uint64_t base;
    dcpk_status st;

    if (folder->inner != NULL)
        dcpk_bytes_printf(&path, "%s/", folder->inner);
    dcpk_bytes_put(&path, name, strlen(name) + 1);
    st = dcpk_bytes_status(&path, err);
    if (st == DCPK_OK) {
        dcpk_tar_header(&header, (const char *)path.data, n_bytes);
        st = dcpk_bytes_status(&header, err);
    }
    if (st != DCPK_OK)
        goto out;
    base = folder->end_bytes + header.n_bytes;
    if (n_bytes > INT64_MAX - 2 * DCPK_TAR_RECORD_BYTES - base) {
        st = dcpk_fail(err, DCPK_ERANGE, "'%s' would pass 2^63 bytes", folder->path);
        goto out;
    }
    st = write_header(folder, name, n_bytes, &header, err);
    if (st != DCPK_OK)
        goto out;
    folder->end_bytes = base + room_bytes(n_bytes);
    *base_bytes = base;
out:
    dcpk_bytes_release(&header);
    dcpk_bytes_release(&path);
    return st;
}

/* Open a member: give it its place if it has none yet. */
static dcpk_status open_member(struct dcpk_folder *folder, const char *name, int how,
                               struct dcpk_sink *sink, struct dcpk_error *err)
{
    (void)how;
    if (dcpk_name_check(name, err) != DCPK_OK)
        return err->status;
    sink->fd = folder->dir_fd;
    sink->syncs_later = true; /* once, when the archive is published */
    if (dcpk_map_get(&folder->reserved, name, strlen(name), &sink->base_bytes))
        return DCPK_OK;
    return add_member(folder, name, sink->n_bytes, &sink->base_bytes, err);
}

dcpk_status dcpk_folder_reserve(struct dcpk_folder *folder, const char *name, uint64_t n_bytes,
                                struct dcpk_error *err)
{
    uint64_t base, found;
    bool existed;

    if (folder->ops != &dcpk_archive_kind)
        return DCPK_OK; /* files have no places */
    if (add_member(folder, name, n_bytes, &base, err) != DCPK_OK)
        return err->status;
    return dcpk_map_put(&folder->reserved, name, strlen(name), base, &existed, &found, err);
}

dcpk_status dcpk_folder_enter(struct dcpk_folder *folder, const char *inner, struct dcpk_error *err)
{
    assert(folder->ops == &dcpk_archive_kind && folder->inner == NULL);
    folder->inner = dcpk_alloc(strlen(inner) + 1, err);
    if (folder->inner == NULL)
        return err->status;
    memcpy(folder->inner, inner, strlen(inner) + 1);
    return DCPK_OK;
}

/* Size of the whole archive: two empty blocks at least, and whole records. */
static uint64_t whole_bytes(const struct dcpk_folder *folder)
{
    const uint64_t least = folder->end_bytes + 2 * DCPK_TAR_BLOCK_BYTES;
    const uint64_t n_records = (least + DCPK_TAR_RECORD_BYTES - 1) / DCPK_TAR_RECORD_BYTES;

    return n_records * DCPK_TAR_RECORD_BYTES;
}

static dcpk_status seal_archive(struct dcpk_folder *folder, struct dcpk_error *err)
{
    int rc;

    do {
        rc = ftruncate(folder->dir_fd, (off_t)whole_bytes(folder));
    } while (rc != 0 && errno == EINTR);
    if (rc != 0 || dcpk_sync_folder(folder->dir_fd) != 0)
        return dcpk_fail_errno(err, errno, "syncing '%s'", folder->partial);
    return DCPK_OK;
}

const struct dcpk_folder_ops dcpk_archive_kind = {
    .partial = &dcpk_partial_archive,
    .ignored_flags = DCPK_FOLDER_SHARED | DCPK_FOLDER_MANY,
    .hidden_suffix = "",
    .open = open_member,
    .seal = seal_archive,
};

/* SPDX-License-Identifier: Apache-2.0 */
/* sink_tar.c - output folders that are a tar archive: members one behind the other, in one file. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/alloc.h"
#include "lib/base/bytes.h"
#include "lib/io/sink_priv.h"
#include "lib/io/tar.h"

/* Write the header of a member and give it its room. */
static dcpk_status add_member(struct dcpk_folder *folder, const char *name, uint64_t n_bytes,
                              uint64_t *base_bytes, struct dcpk_error *err)
{
    const bool compares = (folder->flags & DCPK_FOLDER_COMPARE) != 0;
    struct dcpk_bytes path = {0}, header = {0};
    uint64_t base, end;
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
    end = base + n_bytes + -n_bytes % DCPK_TAR_BLOCK_BYTES;
    st = (compares ? dcpk_sink_compare
                   : dcpk_sink_write_all)(folder->dir_fd, dcpk_folder_partial(folder),
                                          folder->end_bytes, header.data, header.n_bytes, err);
    if (st == DCPK_OK && !compares && dcpk_sink_preallocate(folder->dir_fd, base, end - base) != 0)
        st = dcpk_fail_errno(err, errno, "giving '%s' in '%s' %" PRIu64 " bytes", name,
                             folder->path, n_bytes);
    if (st == DCPK_OK) {
        folder->end_bytes = end;
        *base_bytes = base;
    }
out:
    dcpk_bytes_release(&header);
    dcpk_bytes_release(&path);
    return st;
}

dcpk_status dcpk_tar_place(struct dcpk_folder *folder, const char *name, uint64_t n_bytes,
                           uint64_t *base_bytes, struct dcpk_error *err)
{
    if (dcpk_map_get(&folder->reserved, name, strlen(name), base_bytes))
        return DCPK_OK;
    return add_member(folder, name, n_bytes, base_bytes, err);
}

dcpk_status dcpk_folder_reserve(struct dcpk_folder *folder, const char *name, uint64_t n_bytes,
                                struct dcpk_error *err)
{
    uint64_t base, found;
    bool existed;

    if ((folder->flags & DCPK_FOLDER_TAR) == 0)
        return DCPK_OK;
    if (add_member(folder, name, n_bytes, &base, err) != DCPK_OK)
        return err->status;
    return dcpk_map_put(&folder->reserved, name, strlen(name), base, &existed, &found, err);
}

dcpk_status dcpk_folder_enter(struct dcpk_folder *folder, const char *inner, struct dcpk_error *err)
{
    assert((folder->flags & DCPK_FOLDER_TAR) != 0 && folder->inner == NULL);
    folder->inner = dcpk_alloc(strlen(inner) + 1, err);
    if (folder->inner == NULL)
        return err->status;
    memcpy(folder->inner, inner, strlen(inner) + 1);
    return DCPK_OK;
}

uint64_t dcpk_tar_end_bytes(const struct dcpk_folder *folder)
{
    const uint64_t least = folder->end_bytes + 2 * DCPK_TAR_BLOCK_BYTES;
    const uint64_t n_records = (least + DCPK_TAR_RECORD_BYTES - 1) / DCPK_TAR_RECORD_BYTES;

    return n_records * DCPK_TAR_RECORD_BYTES;
}

int dcpk_tar_end(const struct dcpk_folder *folder)
{
    int rc;

    if ((folder->flags & DCPK_FOLDER_TAR) == 0)
        return 0;
    do {
        rc = ftruncate(folder->dir_fd, (off_t)dcpk_tar_end_bytes(folder));
    } while (rc != 0 && errno == EINTR);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* space.c - what a file system has free, and what a run that was cut short has taken of it. */
#include "lib/job/space.h"

#include <fts.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "lib/io/sink.h"

#define STAT_BLOCK_BYTES 512 /* of st_blocks, not st_blksize */
#define MAGIC_9P         0x01021997
#define MAGIC_SMB        0x517b
#define MAGIC_CIFS       0xff534d42
#define MAGIC_SMB2       0xfe534d42
#define MAGIC_FUSE       0x65735546

/* Finds the part of `path` that exists: the path itself or the nearest folder around it. */
static void find_existing(const char *path, char found[PATH_MAX])
{
    struct stat info;
    char *slash;

    snprintf(found, PATH_MAX, "%s", path);
    while (stat(found, &info) != 0 && strcmp(found, ".") != 0 && strcmp(found, "/") != 0) {
        slash = strrchr(found, '/');
        if (slash == NULL)
            snprintf(found, PATH_MAX, ".");
        else
            slash[slash == found] = '\0';
    }
}

/* True if the file system may have more room than it reports. */
static bool is_vague(const struct statfs *info)
{
    static const unsigned long kinds[] = {NFS_SUPER_MAGIC, MAGIC_9P,   MAGIC_SMB,
                                          MAGIC_CIFS,      MAGIC_SMB2, MAGIC_FUSE};

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if ((uint32_t)info->f_type == kinds[i])
            return true;
    return info->f_blocks == 0;
}

/* Bytes on disk of the partial folder or archive. */
static uint64_t partial_bytes(const char *folder)
{
    char partial[PATH_MAX];
    char *const roots[] = {partial, NULL};
    uint64_t n_bytes = 0;
    FTSENT *e;
    FTS *walk;
    const int n = snprintf(partial, sizeof partial, "%s" DCPK_PARTIAL_SUFFIX, folder);

    if (n < 0 || (size_t)n >= sizeof partial)
        return 0;
    walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    if (walk == NULL)
        return 0;
    while ((e = fts_read(walk)) != NULL)
        if (e->fts_info == FTS_F && e->fts_statp->st_nlink == 1)
            n_bytes += (uint64_t)e->fts_statp->st_blocks * STAT_BLOCK_BYTES;
    fts_close(walk);
    return n_bytes;
}

dcpk_status dcpk_check_space(const struct dcpk_run *target, uint64_t n_bytes,
                             struct dcpk_error *err)
{
    char place[PATH_MAX];
    struct statfs info;
    uint64_t free_bytes;
    long block_bytes;

    find_existing(target->folder, place);
    if (target->is_there || statfs(place, &info) != 0 || is_vague(&info))
        return DCPK_OK;
    block_bytes = info.f_frsize > 0 ? info.f_frsize : info.f_bsize;
    free_bytes = (uint64_t)info.f_bavail * (uint64_t)block_bytes;
    if (n_bytes > free_bytes)
        free_bytes += partial_bytes(target->folder);
    if (n_bytes <= free_bytes)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EIO,
                     "the output '%s' needs %" PRIu64 " bytes, and its file system has %" PRIu64
                     " free: No space left on device",
                     target->folder, n_bytes, free_bytes);
}

bool dcpk_is_across(const char *a, const char *b)
{
    char at_a[PATH_MAX], at_b[PATH_MAX];
    struct stat info_a, info_b;

    find_existing(a, at_a);
    find_existing(b, at_b);
    return stat(at_a, &info_a) != 0 || stat(at_b, &info_b) != 0 || info_a.st_dev != info_b.st_dev;
}

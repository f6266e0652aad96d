/* SPDX-License-Identifier: Apache-2.0 */
/* sink_sync.c - folders are synced: their names, or all that their file system has not written. */
#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "lib/io/sink_priv.h"

/*
 * syncfs reports lost writes since Linux 5.8, by a descriptor that was opened before them (man
 * 2 syncfs); and these are the file systems that are known to have all on the disk itself when
 * it returns. On others (of networks, in user space) files are synced one by one.
 */
bool dcpk_can_sync_at_once(int fd)
{
    static const unsigned long kinds[] = {EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC,
                                          F2FS_SUPER_MAGIC, TMPFS_MAGIC};
    struct utsname system;
    struct statfs info;
    int major, minor;

    if (uname(&system) != 0 || sscanf(system.release, "%d.%d", &major, &minor) != 2 || major < 5 ||
        (major == 5 && minor < 8) || fstatfs(fd, &info) != 0)
        return false;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if ((unsigned long)info.f_type == kinds[i])
            return true;
    return false;
}

int dcpk_sync_folder(int fd)
{
    int rc;

    do {
        rc = fsync(fd);
    } while (rc != 0 && errno == EINTR);
    return rc == 0 || errno == EINVAL || errno == EROFS ? 0 : -1;
}

dcpk_status dcpk_folder_sync(struct dcpk_folder *folder, struct dcpk_error *err)
{
    int rc;

    if (!folder->syncs_at_once)
        rc = dcpk_sync_folder(folder->dir_fd);
    else
        do {
            rc = syncfs(folder->dir_fd);
        } while (rc != 0 && errno == EINTR);
    if (rc != 0)
        return dcpk_fail_errno(err, errno, "syncing '%s'", folder->partial);
    return DCPK_OK;
}

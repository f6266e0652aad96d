/* SPDX-License-Identifier: Apache-2.0 */
/* path.c - what is at a path. */
#include "lib/base/path.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static enum dcpk_path_kind kind_of(mode_t mode)
{
    if (S_ISREG(mode))
        return DCPK_PATH_FILE;
    if (S_ISDIR(mode))
        return DCPK_PATH_FOLDER;
    return DCPK_PATH_OTHER;
}

dcpk_status dcpk_path_look(int folder_fd, const char *name, int flags, struct dcpk_path *path,
                           struct dcpk_error *err)
{
    struct stat info;

    if (fstatat(folder_fd, name, &info, flags) == 0)
        *path = (struct dcpk_path){kind_of(info.st_mode), (uint64_t)info.st_size};
    else if (errno == ENOENT || errno == ENOTDIR)
        *path = (struct dcpk_path){DCPK_PATH_NOTHING, 0};
    else
        return dcpk_fail_errno(err, errno, "'%.400s'", name);
    return DCPK_OK;
}

DIR *dcpk_dir_open(int folder_fd, const char *name, int flags)
{
    const int fd = openat(folder_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags);
    DIR *dir;
    int code;

    if (fd < 0)
        return NULL;
    dir = fdopendir(fd);
    if (dir == NULL) {
        code = errno;
        close(fd);
        errno = code;
    }
    return dir;
}

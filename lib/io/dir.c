/* SPDX-License-Identifier: Apache-2.0 */
/* dir.c - folders opened for listing. */
#include "lib/io/dir.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

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

/* SPDX-License-Identifier: Apache-2.0 */
/* dir.h - folders opened for listing. */
#ifndef DCPK_LIB_IO_DIR_H
#define DCPK_LIB_IO_DIR_H

#include <dirent.h>

/*
 * Open the folder `name` of folder_fd (AT_FDCWD: the current one) to list it, by a descriptor of
 * its own. flags: of open, besides O_RDONLY, O_DIRECTORY and O_CLOEXEC. NULL with errno. Owned:
 * closedir.
 */
DIR *dcpk_dir_open(int folder_fd, const char *name, int flags);

#endif

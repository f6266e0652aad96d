/* SPDX-License-Identifier: Apache-2.0 */
/* path.h - what is at a path; "nothing" and "unknown" are two answers. */
#ifndef DCPK_LIB_BASE_PATH_H
#define DCPK_LIB_BASE_PATH_H

#include <dirent.h>
#include <stdint.h>

#include "lib/base/error.h"

enum dcpk_path_kind {
    DCPK_PATH_NOTHING, /* also: a link that has no target, where links are followed */
    DCPK_PATH_FILE,    /* a plain one */
    DCPK_PATH_FOLDER,
    DCPK_PATH_OTHER, /* a device, pipe or socket; a link, where they are not followed */
};

struct dcpk_path {
    enum dcpk_path_kind kind;
    uint64_t n_bytes; /* of a plain file */
};

/*
 * Find the kind of `name`, in the folder of the descriptor folder_fd or AT_FDCWD where it is
 * relative. flags: 0, links are followed, or AT_SYMLINK_NOFOLLOW. path: set on success only.
 * Errors: DCPK_EIO for anything that leaves the answer open (permission, read error, a loop of
 * links).
 */
dcpk_status dcpk_path_look(int folder_fd, const char *name, int flags, struct dcpk_path *path,
                           struct dcpk_error *err);

/*
 * Open the folder `name` of folder_fd (AT_FDCWD: the current one) to list it, by a descriptor of
 * its own. flags: of open, besides O_RDONLY, O_DIRECTORY and O_CLOEXEC. NULL with errno. Owned:
 * closedir.
 */
DIR *dcpk_dir_open(int folder_fd, const char *name, int flags);

#endif

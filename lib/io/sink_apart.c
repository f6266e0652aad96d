/* SPDX-License-Identifier: Apache-2.0 */
/* sink_apart.c - refuses an input that a folder moves or deletes, under any name. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/io/sink.h"
#include "lib/io/sink_priv.h"

/*
 * Sets *inside if `path`, of which only the beginning may exist, is `what` or inside it. A bind
 * mount gives a folder a second path, so device and inode are compared, not paths.
 */
static dcpk_status lies_in(const char *path, const struct stat *what, bool *inside,
                           struct dcpk_error *err)
{
    char at[PATH_MAX];
    struct stat info;
    char *slash;

    *inside = false;
    if (strlen(path) >= sizeof at)
        return dcpk_fail(err, DCPK_EIO, "the path '%s' is longer than %d bytes", path, PATH_MAX);
    memcpy(at, path, strlen(path) + 1);
    do {
        char real[PATH_MAX];

        if (realpath(at, real) != NULL) {
            memcpy(at, real, strlen(real) + 1);
            *inside = stat(at, &info) == 0 && dcpk_is_same_file(&info, what);
        } else if (errno != ENOENT && errno != ENOTDIR) {
            return dcpk_fail_errno(err, errno, "the path '%s' cannot be resolved", at);
        }
        slash = strrchr(at, '/');
        if (slash == NULL && strcmp(at, ".") != 0) {
            memcpy(at, ".", 2); /* the folder that a bare name lies in */
            continue;
        }
        if (slash == NULL || at[1] == '\0')
            return DCPK_OK; /* "/" was the last */
        slash[slash == at] = '\0';
    } while (!*inside);
    return DCPK_OK;
}

/* `name`, if it is there, is moved or deleted while `folder` is written. */
static dcpk_status check_not_moved(const struct dcpk_folder *folder, const char *name,
                                   const char *input, struct dcpk_error *err)
{
    struct stat moved;
    bool inside;

    if (lstat(name, &moved) != 0)
        return DCPK_OK;
    if (lies_in(input, &moved, &inside, err) != DCPK_OK)
        return err->status;
    if (!inside)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EUSAGE,
                     "the input '%s' is '%s' or inside it, and writing '%s' would move or delete "
                     "that; give one of them another name",
                     input, name, folder->path);
}

dcpk_status dcpk_folder_check_apart(const char *path, const char *input, struct dcpk_error *err)
{
    struct dcpk_folder *folder = dcpk_folder_new(path, &dcpk_folder_kind, 0, err);
    struct stat in;
    bool inside = false;
    dcpk_status st;

    if (folder == NULL)
        return err->status;
    st = check_not_moved(folder, folder->path, input, err);
    if (st == DCPK_OK)
        st = check_not_moved(folder, folder->partial, input, err);
    if (st == DCPK_OK)
        st = check_not_moved(folder, folder->old, input, err);
    if (st == DCPK_OK && stat(input, &in) == 0)
        st = lies_in(folder->path, &in, &inside, err);
    if (st == DCPK_OK && inside)
        st = dcpk_fail(err, DCPK_EUSAGE,
                       "the output '%s' is inside the input '%s', under another path", path, input);
    dcpk_folder_free(folder);
    return st;
}

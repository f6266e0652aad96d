/* SPDX-License-Identifier: Apache-2.0 */
/* sink_path.c - names and paths around an output: its parents, what is at its place, inputs that it
 * must not move or delete. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/alloc.h"
#include "lib/base/path.h"
#include "lib/io/sink.h"
#include "lib/io/sink_priv.h"

char *dcpk_name_join(const char *text, size_t n, const char *suffix, struct dcpk_error *err)
{
    const size_t suffix_bytes = strlen(suffix) + 1;
    char *joined = dcpk_alloc(n + suffix_bytes, err);

    if (joined == NULL)
        return NULL;
    memcpy(joined, text, n);
    memcpy(joined + n, suffix, suffix_bytes);
    return joined;
}

int dcpk_open_parent(const char *path, struct dcpk_error *err)
{
    const size_t n = (size_t)(dcpk_name_last(path) - path);
    char *parent;
    int fd;

    if (n > 0)
        parent = dcpk_name_join(path, n, "", err);
    else
        parent = dcpk_name_join(".", 1, "", err);
    if (parent == NULL)
        return -1;
    fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        dcpk_fail_errno(err, errno, "opening folder '%s'", parent);
    dcpk_free(parent);
    return fd;
}

/* Sync the folder around `path`, so that a rename in it lasts. */
static dcpk_status sync_parent(const char *path, struct dcpk_error *err)
{
    const int fd = dcpk_open_parent(path, err);
    dcpk_status st = DCPK_OK;

    if (fd < 0)
        return err->status;
    if (dcpk_sync_folder(fd) != 0)
        st = dcpk_fail_errno(err, errno, "syncing the folder of '%s'", path);
    close(fd);
    return st;
}

dcpk_status dcpk_path_find(const char *path, bool *found, struct dcpk_error *err)
{
    struct dcpk_path there;

    if (dcpk_path_look(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, &there, err) != DCPK_OK)
        return err->status;
    *found = there.kind != DCPK_PATH_NOTHING;
    return DCPK_OK;
}

dcpk_status dcpk_parents_make(char *path, int *n_made, struct dcpk_error *err)
{
    struct stat info;
    dcpk_status st = DCPK_OK;

    for (char *p = strchr(path + 1, '/'); p != NULL && st == DCPK_OK; p = strchr(p + 1, '/')) {
        *p = '\0';
        /* a folder that is there may answer EACCES or EROFS as well as EEXIST */
        if (mkdir(path, 0777) == 0) {
            ++*n_made;
            st = sync_parent(path, err);
        } else {
            const int code = errno;
            if (stat(path, &info) != 0)
                st = dcpk_fail_errno(err, errno == ENOENT && code != EEXIST ? code : errno,
                                     "making folder '%s'", path);
            else if (!S_ISDIR(info.st_mode))
                st = dcpk_fail_errno(err, ENOTDIR, "making folder '%s'", path);
        }
        *p = '/';
    }
    return st;
}

void dcpk_parents_remove(char *path, int n_made)
{
    char *slash;

    for (; n_made > 0 && (slash = strrchr(path, '/')) != NULL; n_made--) {
        *slash = '\0';
        if (rmdir(path) != 0)
            return;
    }
}

dcpk_status dcpk_fail_exists(const struct dcpk_folder *folder, struct dcpk_error *err)
{
    return dcpk_fail(err, DCPK_EUSAGE, "another process has written '%s' meanwhile", folder->path);
}

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
                     "it; give one of them another name",
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

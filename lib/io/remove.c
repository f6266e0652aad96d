/* SPDX-License-Identifier: Apache-2.0 */
/* remove.c - deletes trees: each entry by its name in a folder that is open. */
#include "lib/io/remove.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/path.h"

#define MAX_LEVELS 64

/* A folder that is being emptied. */
struct level {
    DIR *dir;
    bool has_changed;        /* since it was read from its beginning */
    char name[NAME_MAX + 1]; /* in the level above; "": the one that the caller has */
};

/* The folders from the caller's to the one that is being emptied. */
struct walk {
    int n;
    char at[NAME_MAX + 1]; /* the entry that was last dealt with, for messages */
    struct level levels[MAX_LEVELS];
};

enum outcome { GONE, IS_FULL_FOLDER, FAILED };

/*
 * Delete one entry unless it is a folder that holds something. A folder is asked to go before it is
 * looked into: the kernel refuses that for one that something is mounted on (EBUSY), whatever it
 * holds.
 */
static enum outcome remove_entry(int fd, const char *name)
{
    int code;

    if (unlinkat(fd, name, 0) == 0 || errno == ENOENT)
        return GONE;
    code = errno;
    if (code != EISDIR && code != EPERM) /* EPERM: of a folder, by POSIX */
        return FAILED;
    if (unlinkat(fd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return GONE;
    if (errno == ENOTEMPTY || errno == EEXIST)
        return IS_FULL_FOLDER;
    if (errno == ENOTDIR)
        errno = code;
    return FAILED;
}

/* Begin with the folder `name` of the one that is open. Returns 0, or -1 with errno. */
static int removal_enter(struct walk *walk, int fd, const char *name)
{
    struct level *level = &walk->levels[walk->n];

    if (walk->n == MAX_LEVELS) {
        errno = ERANGE;
        return -1;
    }
    level->dir = dcpk_dir_open(fd, name, O_NOFOLLOW);
    if (level->dir == NULL)
        return -1;
    level->has_changed = false;
    snprintf(level->name, sizeof level->name, "%s", name);
    walk->n++;
    return 0;
}

/*
 * The end of a folder was reached. A file system may pass over entries while others are deleted:
 * one that has changed is read once more. Returns 0, or -1 with errno.
 */
static int walk_leave(struct walk *walk)
{
    struct level *level = &walk->levels[walk->n - 1];

    if (level->has_changed) {
        level->has_changed = false;
        rewinddir(level->dir);
        return 0;
    }
    closedir(level->dir);
    walk->n--;
    if (walk->n == 0)
        return 0;
    snprintf(walk->at, sizeof walk->at, "%s", level->name);
    return unlinkat(dirfd(walk->levels[walk->n - 1].dir), level->name, AT_REMOVEDIR);
}

/* Deal with the next entry. Returns 0, or -1 with errno. */
static int walk_step(struct walk *walk, const char *kept)
{
    struct level *level = &walk->levels[walk->n - 1];
    const struct dirent *entry;

    errno = 0;
    entry = readdir(level->dir);
    if (entry == NULL)
        return errno != 0 ? -1 : walk_leave(walk);
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
        (walk->n == 1 && kept != NULL && strcmp(entry->d_name, kept) == 0))
        return 0;
    level->has_changed = true;
    snprintf(walk->at, sizeof walk->at, "%s", entry->d_name);
    switch (remove_entry(dirfd(level->dir), entry->d_name)) {
    case GONE:
        return 0;
    case IS_FULL_FOLDER:
        return removal_enter(walk, dirfd(level->dir), entry->d_name);
    case FAILED:
        break;
    }
    return -1;
}

/* Report errno, and close what is open. */
static dcpk_status walk_fail(struct walk *walk, const char *path, struct dcpk_error *err)
{
    const int code = errno;

    for (; walk->n > 0; walk->n--)
        closedir(walk->levels[walk->n - 1].dir);
    if (code == ERANGE)
        return dcpk_fail(err, DCPK_ERANGE,
                         "deleting '%s' in '%s': more than %d folders in each other", walk->at,
                         path, MAX_LEVELS);
    return dcpk_fail_errno(err, code, "deleting '%s' in '%s'", walk->at, path);
}

dcpk_status dcpk_remove_inside(int folder_fd, const char *kept, const char *path,
                               struct dcpk_error *err)
{
    struct walk walk = {.at = "."};
    int rc = removal_enter(&walk, folder_fd, "."); /* a descriptor of its own: it has a position */

    while (rc == 0 && walk.n > 0)
        rc = walk_step(&walk, kept);
    if (rc != 0)
        return walk_fail(&walk, path, err);
    return DCPK_OK;
}

dcpk_status dcpk_remove_at(int folder_fd, const char *name, const char *path,
                           struct dcpk_error *err)
{
    int fd;
    dcpk_status st;

    switch (remove_entry(folder_fd, name)) {
    case GONE:
        return DCPK_OK;
    case FAILED:
        return dcpk_fail_errno(err, errno, "deleting '%s' in '%s'", name, path);
    case IS_FULL_FOLDER:
        break;
    }
    fd = openat(folder_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return dcpk_fail_errno(err, errno, "deleting '%s' in '%s'", name, path);
    st = dcpk_remove_inside(fd, NULL, path, err);
    close(fd);
    if (st == DCPK_OK && unlinkat(folder_fd, name, AT_REMOVEDIR) != 0 && errno != ENOENT)
        st = dcpk_fail_errno(err, errno, "deleting '%s' in '%s'", name, path);
    return st;
}

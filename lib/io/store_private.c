/* SPDX-License-Identifier: Apache-2.0 */
/* store_private.c - the readers that the files of a store allow, so that no copy is readable by
 * more. */
/*
 * A file is hidden by its own mode or by a folder on its way. Folders that two files have in common
 * hide both, and do not count when the two are compared: a home folder of mode 0700 with a cache of
 * links in it is a checkpoint as any other. Hard links cannot be recognised, and ACLs are not read.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/alloc.h"
#include "lib/io/sink_priv.h"
#include "lib/io/store_priv.h"

#define GROUP  070u
#define OTHERS 007u

/* The classes of users that may not read a file, or not enter a folder: GROUP, OTHERS. GROUP means
 * the users of `group`: in a file of another group they are others. */
static unsigned hidden_of(const struct stat *info, gid_t group)
{
    const mode_t for_group = S_ISDIR(info->st_mode) ? S_IXGRP : S_IRGRP;
    const mode_t for_others = S_ISDIR(info->st_mode) ? S_IXOTH : S_IROTH;
    const mode_t needed = info->st_gid == group ? for_group : for_others;
    unsigned hidden = 0;

    if ((info->st_mode & needed) == 0)
        hidden |= GROUP;
    if ((info->st_mode & for_others) == 0)
        hidden |= OTHERS;
    return hidden;
}

static unsigned hidden_by_mode(const struct stat *info)
{
    return hidden_of(info, info->st_gid);
}

/* A file or folder, and where it is without links; "": unknown. */
struct place {
    struct stat info;
    char path[PATH_MAX];
};

static bool place_of(int fd, struct place *place)
{
    char link[64];
    ssize_t n;

    if (fd < 0 || fstat(fd, &place->info) != 0)
        return false;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, place->path, sizeof place->path);
    if (n <= 0 || (size_t)n == sizeof place->path || place->path[0] != '/')
        n = 0;
    place->path[n] = '\0';
    return true;
}

static bool place_find(int folder_fd, const char *name, struct place *place)
{
    const int fd = openat(folder_fd, name, O_PATH | O_CLOEXEC);
    const bool is_there = place_of(fd, place);

    if (fd >= 0)
        close(fd);
    return is_there && (S_ISREG(place->info.st_mode) || S_ISDIR(place->info.st_mode));
}

/* The length of the path of the last folder on the way to `path` that holds `other`, or is it. */
static size_t common_bytes(const char *path, const char *other)
{
    size_t n = 0;

    for (size_t i = 0; path[i] != '\0'; i++) {
        if (path[i] == '/' && (other[i] == '/' || other[i] == '\0'))
            n = i;
        if (path[i] != other[i])
            break;
    }
    return n;
}

/* The classes that a folder hides a file from, on the way from the first n bytes of its path. */
static unsigned hidden_on_way(const struct place *place, size_t n, gid_t group)
{
    unsigned hidden = 0;
    struct stat info;
    char folder[PATH_MAX];

    memcpy(folder, place->path, sizeof folder);
    for (size_t i = n + 1; i < sizeof folder && place->path[i] != '\0'; i++) {
        if (place->path[i] != '/')
            continue;
        folder[i] = '\0';
        hidden |= stat(folder, &info) == 0 ? hidden_of(&info, group) : GROUP | OTHERS;
        folder[i] = '/';
    }
    return hidden;
}

/* Classes of users (group, others) that may enter `folder` but not `place`. */
static unsigned hidden_from(const struct place *place, const struct place *folder)
{
    const size_t n = common_bytes(place->path, folder->path);
    const gid_t group = folder->info.st_gid;
    const unsigned hidden = hidden_of(&place->info, group);

    if (place->path[0] == '\0' || folder->path[0] == '\0')
        return GROUP | OTHERS;
    return (hidden | hidden_on_way(place, n, group)) &
           ~(hidden_by_mode(&folder->info) | hidden_on_way(folder, n, group));
}

/* True if a link leads from the folder to `name`. info: of the entry at the last name itself. */
static bool passes_link(int folder_fd, const char *name, struct stat *info)
{
    char part[PATH_MAX];
    const size_t n = strlen(name);

    for (size_t i = 1; i <= n && n < sizeof part; i++) {
        if (name[i] != '/' && name[i] != '\0')
            continue;
        memcpy(part, name, i);
        part[i] = '\0';
        if (fstatat(folder_fd, part, info, AT_SYMLINK_NOFOLLOW) != 0)
            return false;
        if (S_ISLNK(info->st_mode))
            return true;
    }
    return false;
}

/* A source or an entry of the store's folder. */
static unsigned hidden_at(const struct dcpk_store *store, const struct place *folder,
                          const char *name)
{
    struct place place = {0};

    if (!passes_link(store->fd, name, &place.info)) {
        if (S_ISREG(place.info.st_mode) || S_ISDIR(place.info.st_mode))
            return hidden_by_mode(&place.info);
        return 0;
    }
    if (!place_find(store->fd, name, &place))
        return 0;
    return hidden_by_mode(&place.info) | hidden_from(&place, folder);
}

static bool is_folder(const struct dcpk_store *store, struct place *folder)
{
    return place_of(store->fd, folder) && S_ISDIR(folder->info.st_mode);
}

bool dcpk_store_leads_to_private(const struct dcpk_store *store, const char *name,
                                 const struct dcpk_folder *out)
{
    struct place folder, place, target;
    struct stat link;

    if (!is_folder(store, &folder) || !passes_link(store->fd, name, &link) ||
        !place_find(store->fd, name, &place))
        return false;
    return hidden_from(&place, &folder) != 0 ||
           (out != NULL && place_of(out->dir_fd, &target) && hidden_from(&place, &target) != 0);
}

/* The archive itself, of which a store's path names a folder in it: the longest part of the path,
 * cut at '/' or ':', that is a plain file. */
static unsigned hidden_along(const char *path)
{
    struct stat info;
    char part[PATH_MAX];
    size_t n = strlen(path);

    for (; n > 0 && n < sizeof part; n--) {
        if (path[n] != '\0' && path[n] != '/' && path[n] != ':')
            continue;
        memcpy(part, path, n);
        part[n] = '\0';
        if (stat(part, &info) == 0 && S_ISREG(info.st_mode))
            return hidden_by_mode(&info);
    }
    return 0;
}

/* In an unpacked archive, the file that was named counts, not the one without a name. */
static unsigned hidden_of_archive(const struct dcpk_store *store)
{
    struct stat info;

    if (store->fd < 0 || fstat(store->fd, &info) != 0)
        return 0;
    return info.st_nlink > 0 ? hidden_by_mode(&info) : hidden_along(store->path);
}

unsigned dcpk_store_hidden(struct dcpk_store *store)
{
    struct dcpk_error ignored = DCPK_ERROR_INIT; /* reading runs into it as well */
    struct place folder;
    char **names = NULL;
    unsigned hidden;
    size_t n = 0;

    if (!is_folder(store, &folder))
        return hidden_of_archive(store);
    hidden = hidden_by_mode(&folder.info);
    for (const struct dcpk_source *s = store->sources; s != NULL; s = s->next)
        hidden |= hidden_at(store, &folder, s->name);
    if (dcpk_store_list(store, &names, &n, &ignored) != DCPK_OK)
        return hidden;
    for (size_t i = 0; i < n; i++)
        if (!dcpk_store_leads_to_private(store, names[i], NULL))
            hidden |= hidden_at(store, &folder, names[i]);
    dcpk_free(names);
    return hidden;
}

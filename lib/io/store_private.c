/* SPDX-License-Identifier: Apache-2.0 */
/* store_private.c - who may read what a store holds, so that no copy shows it to others. */
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/base/alloc.h"
#include "lib/io/store_priv.h"

#define GROUP  070u
#define OTHERS 007u

/* The classes of users that may not read a file, or not enter a folder: GROUP, OTHERS. */
static unsigned hidden_of(mode_t mode)
{
    const mode_t needed = S_ISDIR(mode) ? S_IXGRP | S_IXOTH : S_IRGRP | S_IROTH;
    unsigned hidden = 0;

    if ((needed & ~mode & GROUP) != 0)
        hidden |= GROUP;
    if ((needed & ~mode & OTHERS) != 0)
        hidden |= OTHERS;
    return hidden;
}

static unsigned hidden_at(const struct dcpk_store *store, const char *name)
{
    struct stat info;

    if (fstatat(store->fd, name, &info, 0) != 0 ||
        !(S_ISREG(info.st_mode) || S_ISDIR(info.st_mode)))
        return 0;
    return hidden_of(info.st_mode);
}

static bool is_folder(const struct dcpk_store *store, struct stat *info)
{
    return store->fd >= 0 && fstat(store->fd, info) == 0 && S_ISDIR(info->st_mode);
}

bool dcpk_store_leads_to_private(const struct dcpk_store *store, const char *name)
{
    struct stat folder, link;

    return is_folder(store, &folder) && fstatat(store->fd, name, &link, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISLNK(link.st_mode) && (hidden_at(store, name) & ~hidden_of(folder.st_mode)) != 0;
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
            return hidden_of(info.st_mode);
    }
    return 0;
}

/* Of an archive that was unpacked the file that was named counts, not the one without a name. */
static unsigned hidden_of_archive(const struct dcpk_store *store)
{
    struct stat info;

    if (store->fd < 0 || fstat(store->fd, &info) != 0)
        return 0;
    return info.st_nlink > 0 ? hidden_of(info.st_mode) : hidden_along(store->path);
}

unsigned dcpk_store_hidden(struct dcpk_store *store)
{
    struct dcpk_error ignored = DCPK_ERROR_INIT; /* reading runs into it as well */
    struct stat folder;
    char **names = NULL;
    unsigned hidden;
    size_t n = 0;

    if (!is_folder(store, &folder))
        return hidden_of_archive(store);
    hidden = hidden_of(folder.st_mode);
    for (const struct dcpk_source *s = store->sources; s != NULL; s = s->next)
        hidden |= hidden_at(store, s->name);
    if (dcpk_store_list(store, &names, &n, &ignored) != DCPK_OK)
        return hidden;
    for (size_t i = 0; i < n; i++)
        if (!dcpk_store_leads_to_private(store, names[i]))
            hidden |= hidden_at(store, names[i]);
    dcpk_free(names);
    return hidden;
}

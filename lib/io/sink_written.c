/* SPDX-License-Identifier: Apache-2.0 */
/* sink_written.c - which files an output folder holds, by name, device and inode. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/alloc.h"
#include "lib/io/sink_priv.h"

bool dcpk_is_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

dcpk_status dcpk_look_at(int folder_fd, const char *name, int fd, bool *is_at,
                         struct dcpk_error *err)
{
    struct stat there, ours;

    *is_at = false;
    if (fstatat(folder_fd, name, &there, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno == ENOENT)
            return DCPK_OK;
        return dcpk_fail_errno(err, errno, "'%s'", name);
    }
    if (fstat(fd, &ours) != 0)
        return dcpk_fail_errno(err, errno, "'%s'", name);
    *is_at = dcpk_is_same_file(&there, &ours);
    return DCPK_OK;
}

bool dcpk_is_own_file(const struct dcpk_folder *folder, const struct stat *info)
{
    return S_ISREG(info->st_mode) && info->st_nlink == 1 && info->st_uid == folder->owner;
}

/* ---- the files that were made ---- */

struct dcpk_written_file *dcpk_written_find(const struct dcpk_folder *folder, const char *name)
{
    const struct dcpk_written *w = &folder->written;
    uint64_t i;

    if (!dcpk_map_get(&w->by_name, name, strlen(name), &i) || w->files[i].is_gone)
        return NULL;
    return &w->files[i];
}

/* A text that lives as long as the folder. */
static const char *keep_name(struct dcpk_written *w, const char *name, size_t n,
                             struct dcpk_error *err)
{
    if (w->names == NULL)
        w->names = dcpk_arena_new();
    if (w->names == NULL)
        return NULL;
    return dcpk_arena_strndup(w->names, name, n, err);
}

/* The entry for a name, a new one where there is none; NULL with err set. */
static struct dcpk_written_file *make_room(struct dcpk_written *w, const char *name,
                                           struct dcpk_error *err)
{
    const size_t n_bytes = strlen(name);
    uint64_t i = w->n;
    bool existed;

    if (dcpk_map_get(&w->by_name, name, n_bytes, &i))
        return &w->files[i];
    name = keep_name(w, name, n_bytes, err);
    if (name == NULL ||
        dcpk_grow(&w->files, &w->capacity, w->n, sizeof *w->files, err) != DCPK_OK ||
        dcpk_map_put(&w->by_name, name, n_bytes, i, &existed, &i, err) != DCPK_OK)
        return NULL;
    w->files[w->n].name = name;
    return &w->files[w->n++];
}

dcpk_status dcpk_written_put(struct dcpk_folder *folder, const char *name, const struct stat *info,
                             uint64_t n_bytes, struct dcpk_error *err)
{
    struct dcpk_written_file *file;

    if (folder->is_joined) /* the rank that has begun it looks at all */
        return DCPK_OK;
    file = make_room(&folder->written, name, err);
    if (file == NULL)
        return err->status;
    *file = (struct dcpk_written_file){
        .name = file->name, .dev = info->st_dev, .ino = info->st_ino, .n_bytes = n_bytes};
    return DCPK_OK;
}

static void leave_inner(struct dcpk_folder *folder)
{
    if (folder->deep_fd >= 0)
        close(folder->deep_fd);
    dcpk_free(folder->deep);
    folder->deep_fd = -1;
    folder->deep = NULL;
}

void dcpk_written_clear(struct dcpk_folder *folder)
{
    struct dcpk_written *w = &folder->written;

    leave_inner(folder);
    dcpk_map_release(&w->by_name);
    dcpk_map_release(&w->folders);
    dcpk_arena_free(w->names);
    dcpk_free(w->files);
    *w = (struct dcpk_written){0};
}

/* ---- the folders that they are in ---- */

/* True if the first n bytes of `name` are the name of an entry of a folder. */
static bool is_plain_part(const char *name, size_t n)
{
    return n > 0 && memchr(name, '/', n) == NULL && (n > 2 || memcmp(name, "..", n) != 0);
}

/* True for the name of a file of its own, that no file of an output may have. */
static bool is_kept_name(const char *name, size_t n)
{
    return n == sizeof DCPK_JOURNAL_NAME - 1 && memcmp(name, DCPK_JOURNAL_NAME, n) == 0;
}

dcpk_status dcpk_name_check(const char *name, struct dcpk_error *err)
{
    const size_t n = strcspn(name, "/"); /* of the folder, or of the whole name */
    const char *last = name[n] == '/' ? name + n + 1 : name;

    if (!is_plain_part(last, strlen(last)) || !is_plain_part(name, n))
        return dcpk_fail(err, DCPK_EFORMAT, "'%.200s' is not a plain file name", name);
    if (is_kept_name(name, n))
        return dcpk_fail(err, DCPK_EFORMAT,
                         "'%.200s' is a name that this program reserves for its own files", name);
    return DCPK_OK;
}

int dcpk_folder_find_inner(struct dcpk_folder *folder, const char *name, const char **last)
{
    const char *slash = strchr(name, '/');
    struct dcpk_error ignored;
    size_t n;

    *last = name;
    if (slash == NULL)
        return folder->dir_fd;
    *last = slash + 1;
    n = (size_t)(slash - name);
    if (folder->deep_fd >= 0 && strncmp(folder->deep, name, n) == 0 && folder->deep[n] == '\0')
        return folder->deep_fd;
    leave_inner(folder);
    folder->deep = dcpk_name_join(name, n, "", &ignored);
    if (folder->deep == NULL)
        errno = ENOMEM;
    else
        folder->deep_fd =
            openat(folder->dir_fd, folder->deep, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return folder->deep_fd;
}

/* Make the folder that is the first n bytes of the name, unless that was done, and open it. */
static dcpk_status make_inner(struct dcpk_folder *folder, const char *name, size_t n, int *fd,
                              const char **last, struct dcpk_error *err)
{
    struct dcpk_written *w = &folder->written;
    const char *inner = NULL;
    uint64_t found;
    bool is_known = dcpk_map_get(&w->folders, name, n, &found);

    if (!is_known) {
        inner = keep_name(w, name, n, err);
        if (inner == NULL)
            return err->status;
        if (mkdirat(folder->dir_fd, inner, 0777) != 0 && errno != EEXIST)
            return dcpk_fail_errno(err, errno, "making folder '%s/%s'", folder->path, inner);
        leave_inner(folder); /* perhaps one of that name that was deleted since */
    }
    *fd = dcpk_folder_find_inner(folder, name, last);
    if (*fd < 0)
        return dcpk_fail_errno(err, errno, "opening the folder of '%s/%s'", folder->path, name);
    if (is_known)
        return DCPK_OK;
    return dcpk_map_put(&w->folders, inner, n, 0, &is_known, &found, err);
}

dcpk_status dcpk_folder_enter_inner(struct dcpk_folder *folder, const char *name, int *fd,
                                    const char **last, struct dcpk_error *err)
{
    const char *slash = strchr(name, '/');

    if (dcpk_name_check(name, err) != DCPK_OK)
        return err->status;
    if (slash != NULL)
        return make_inner(folder, name, (size_t)(slash - name), fd, last, err);
    *fd = folder->dir_fd;
    *last = name;
    return DCPK_OK;
}

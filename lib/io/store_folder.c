/* SPDX-License-Identifier: Apache-2.0 */
/* store_folder.c - folders as stores, with a bounded cache of descriptors. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/path.h"
#include "lib/io/store_priv.h"

/* Links are followed: staged checkpoints are often folders of links. */
static dcpk_status look_file(const struct dcpk_store *store, const char *name,
                             struct dcpk_path *path, struct dcpk_error *err)
{
    const dcpk_status st = dcpk_path_look(store->fd, name, 0, path, err);

    if (st != DCPK_OK)
        dcpk_context(err, "in '%s'", store->path);
    return st;
}

/* The last time of change in nanoseconds. */
static uint64_t stamp_of(const struct stat *info)
{
    return (uint64_t)info->st_mtim.tv_sec * 1000000000 + (uint64_t)info->st_mtim.tv_nsec;
}

static dcpk_status stamp_file(const struct dcpk_source *source, uint64_t *stamp,
                              struct dcpk_error *err)
{
    struct stat info;

    if (fstatat(source->store->fd, source->name, &info, 0) != 0)
        return dcpk_fail_errno(err, errno, "'%.200s' in '%s'", source->name, source->store->path);
    *stamp = stamp_of(&info);
    return DCPK_OK;
}

/* Close the descriptor that was read longest ago; false when all are being read. Lock held. */
static bool evict_one(struct dcpk_store *store)
{
    size_t oldest = store->n_open;

    for (size_t i = 0; i < store->n_open; i++) {
        if (store->open[i]->n_readers == 0 &&
            (oldest == store->n_open || store->open[i]->last_used < store->open[oldest]->last_used))
            oldest = i;
    }
    if (oldest == store->n_open)
        return false;
    close(store->open[oldest]->fd);
    store->open[oldest]->fd = -1;
    store->open[oldest] = store->open[--store->n_open];
    return true;
}

/*
 * Many files take turns at being open. One that was written to, or gave its name to another, since
 * it was looked at is not the input any more. (Not its inode: some network file systems change it.)
 */
static dcpk_status check_same(struct dcpk_source *source, int fd, struct dcpk_error *err)
{
    struct stat info;

    if (fstat(fd, &info) != 0)
        return dcpk_fail_errno(err, errno, "looking at '%s' in '%s'", source->name,
                               source->store->path);
    if ((uint64_t)info.st_size != source->n_bytes ||
        (source->stamp != 0 && source->stamp != stamp_of(&info)))
        return dcpk_fail(err, DCPK_EIO,
                         "'%s' in '%s' has changed since it was first looked at: something writes "
                         "to it",
                         source->name, source->store->path);
    source->stamp = stamp_of(&info);
    return DCPK_OK;
}

/*
 * Open the source's file unless it is open. The limit of the process may be lower than ours
 * (EMFILE): then, too, an idle descriptor makes room, and if there is none yet we wait for one.
 * Lock held; released while waiting, when another thread may open this very source.
 */
static dcpk_status open_source_locked(struct dcpk_source *source, struct dcpk_error *err)
{
    struct dcpk_store *store = source->store;

    while (source->fd < 0) {
        if (store->n_open < store->max_open) {
            /* O_NONBLOCK: had a pipe taken the file's place, opening it would wait for a writer */
            source->fd =
                openat(store->fd, source->name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
            if (source->fd >= 0 && check_same(source, source->fd, err) != DCPK_OK) {
                close(source->fd);
                source->fd = -1;
                return err->status;
            }
            if (source->fd >= 0) {
                store->open[store->n_open++] = source;
                break;
            }
            if (errno == EINTR)
                continue;
            if ((errno != EMFILE && errno != ENFILE) || store->n_open == 0)
                return dcpk_fail_errno(err, errno, "opening '%s' in '%s'", source->name,
                                       store->path);
        }
        if (!evict_one(store))
            pthread_cond_wait(&store->idle, &store->lock);
    }
    return DCPK_OK;
}

/* Get the descriptor for one read; on success it stays open until end_read. */
static dcpk_status begin_read(struct dcpk_source *source, struct dcpk_error *err)
{
    struct dcpk_store *store = source->store;
    dcpk_status st;

    pthread_mutex_lock(&store->lock);
    st = open_source_locked(source, err);
    if (st == DCPK_OK) {
        source->n_readers++;
        source->last_used = ++store->clock;
    }
    pthread_mutex_unlock(&store->lock);
    return st;
}

static void end_read(struct dcpk_source *source)
{
    struct dcpk_store *store = source->store;

    pthread_mutex_lock(&store->lock);
    if (--source->n_readers == 0)
        pthread_cond_broadcast(&store->idle);
    pthread_mutex_unlock(&store->lock);
}

static dcpk_status store_read_file(struct dcpk_source *source, uint64_t at, uint8_t *out, size_t n,
                                   struct dcpk_error *err)
{
    dcpk_status st = begin_read(source, err);

    if (st != DCPK_OK)
        return st;
    st = dcpk_source_pread(source, source->fd, at, out, n, err);
    end_read(source);
    return st;
}

static void advise_file(struct dcpk_source *source, uint64_t at, uint64_t n, int how)
{
    struct dcpk_error ignored;

    if (begin_read(source, &ignored) != DCPK_OK)
        return;
    (void)posix_fadvise(source->fd, (off_t)at, (off_t)n, how);
    end_read(source);
}

/* Append the names in a folder of the store ("." the store itself) to `text`, each with its NUL. */
static dcpk_status read_names(const struct dcpk_store *store, const char *folder,
                              struct dcpk_bytes *text, struct dcpk_error *err)
{
    DIR *dir = dcpk_dir_open(store->fd, folder, 0);
    dcpk_status st = DCPK_OK;

    if (dir == NULL)
        return dcpk_fail_errno(err, errno, "listing folder '%.200s' in '%s'", folder, store->path);
    for (;;) {
        const struct dirent *entry;
        errno = 0;
        entry = readdir(dir);
        if (entry == NULL && errno != 0)
            st =
                dcpk_fail_errno(err, errno, "listing folder '%.200s' in '%s'", folder, store->path);
        if (entry == NULL)
            break;
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            dcpk_bytes_put(text, entry->d_name, strlen(entry->d_name) + 1);
    }
    closedir(dir);
    return st;
}

static const struct dcpk_store_ops folder_ops = {.look = look_file,
                                                 .stamp = stamp_file,
                                                 .read = store_read_file,
                                                 .advise = advise_file,
                                                 .list = read_names};

dcpk_status dcpk_store_open(const char *path, struct dcpk_store **store, struct dcpk_error *err)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return dcpk_fail_errno(err, errno, "opening folder '%s'", path);
    if (dcpk_store_new(&folder_ops, path, fd, store, err) != DCPK_OK) {
        close(fd);
        return err->status;
    }
    return DCPK_OK;
}

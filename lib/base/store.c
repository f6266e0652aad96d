/* SPDX-License-Identifier: Apache-2.0 */
/* store.c - folders (and memory) as sets of named sources, with a bounded cache of descriptors. */
#include "lib/base/store.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/alloc.h"
#include "lib/base/bytes.h"
#include "lib/base/map.h"

#define MAX_OPEN       256
#define MAX_READ_BYTES ((size_t)1 << 30) /* of one pread: Linux cuts at 2 GiB - 4096 */

/*
 * A file of the folder, or a copied run of memory (`data` set, fd never).
 * fd, n_readers and last_used are under the store's lock; the rest never changes.
 */
struct dcpk_source {
    struct dcpk_store *store;
    struct dcpk_source *next;
    uint64_t n_bytes;
    uint8_t *data;      /* owned; NULL for a file */
    int fd;             /* -1: not open */
    unsigned n_readers; /* reads under way: fd stays open as long as there is one */
    uint64_t last_used;
    char name[];
};

struct dcpk_store {
    char *path;
    int dir_fd; /* -1: memory */
    pthread_mutex_t lock;
    pthread_cond_t idle;     /* a source lost its last reader: its descriptor may be closed */
    struct dcpk_map by_name; /* -> pointer to the source; keys are the sources' names */
    struct dcpk_source *sources;
    struct dcpk_source *open[MAX_OPEN];
    size_t n_open;
    uint64_t clock; /* counts reads, for last_used */
};

static dcpk_status new_store(const char *path, int dir_fd, struct dcpk_store **store,
                             struct dcpk_error *err)
{
    struct dcpk_store *s = dcpk_alloc(sizeof *s, err);

    if (s == NULL)
        return err->status;
    s->path = dcpk_alloc(strlen(path) + 1, err);
    if (s->path == NULL) {
        dcpk_free(s);
        return err->status;
    }
    memcpy(s->path, path, strlen(path) + 1);
    s->dir_fd = dir_fd;
    pthread_mutex_init(&s->lock, NULL); /* cannot fail with default attributes */
    pthread_cond_init(&s->idle, NULL);
    *store = s;
    return DCPK_OK;
}

dcpk_status dcpk_store_open(const char *path, struct dcpk_store **store, struct dcpk_error *err)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return dcpk_fail_errno(err, errno, "opening folder '%s'", path);
    if (new_store(path, fd, store, err) != DCPK_OK) {
        close(fd);
        return err->status;
    }
    return DCPK_OK;
}

dcpk_status dcpk_store_new_memory(const char *name, struct dcpk_store **store,
                                  struct dcpk_error *err)
{
    return new_store(name, -1, store, err);
}

void dcpk_store_close(struct dcpk_store *store)
{
    if (store == NULL)
        return;
    while (store->sources != NULL) {
        struct dcpk_source *source = store->sources;
        assert(source->n_readers == 0);
        store->sources = source->next;
        if (source->fd >= 0)
            close(source->fd);
        dcpk_free(source->data);
        dcpk_free(source);
    }
    dcpk_map_release(&store->by_name);
    if (store->dir_fd >= 0)
        close(store->dir_fd);
    pthread_cond_destroy(&store->idle);
    pthread_mutex_destroy(&store->lock);
    dcpk_free(store->path);
    dcpk_free(store);
}

const char *dcpk_store_path(const struct dcpk_store *store)
{
    return store->path;
}

/* Does the relative path `name` climb out of its folder, or name none? */
static bool leaves_folder(const char *name)
{
    if (name[0] == '\0' || name[0] == '/')
        return true;
    for (const char *part = name; part != NULL; part = strchr(part, '/')) {
        if (*part == '/')
            part++;
        if (part[0] == '.' && part[1] == '.' && (part[2] == '/' || part[2] == '\0'))
            return true;
    }
    return false;
}

/* Make a source and enter it; the caller holds the lock and knows that the name is new. */
static dcpk_status add_source(struct dcpk_store *store, const char *name, uint64_t n_bytes,
                              struct dcpk_source **out, struct dcpk_error *err)
{
    const size_t name_bytes = strlen(name) + 1;
    struct dcpk_source *source = dcpk_alloc(sizeof *source + name_bytes, err);
    uint64_t found;
    bool existed;

    if (source == NULL)
        return err->status;
    memcpy(source->name, name, name_bytes);
    source->store = store;
    source->n_bytes = n_bytes;
    source->fd = -1;
    if (dcpk_map_put(&store->by_name, source->name, name_bytes - 1, (uintptr_t)source, &existed,
                     &found, err) != DCPK_OK) {
        dcpk_free(source);
        return err->status;
    }
    assert(!existed);
    source->next = store->sources;
    store->sources = source;
    *out = source;
    return DCPK_OK;
}

static struct dcpk_source *known_source(const struct dcpk_store *store, const char *name)
{
    uint64_t address;

    if (!dcpk_map_get(&store->by_name, name, strlen(name), &address))
        return NULL;
    return (struct dcpk_source *)(uintptr_t)address;
}

dcpk_status dcpk_store_add_memory(struct dcpk_store *store, const char *name, const void *data,
                                  size_t n_bytes, struct dcpk_error *err)
{
    struct dcpk_source *source = NULL;
    uint8_t *copy;

    assert(store->dir_fd < 0);
    if (known_source(store, name) != NULL)
        return dcpk_fail(err, DCPK_EUSAGE, "'%s' holds '%.200s' already", store->path, name);
    copy = dcpk_alloc(n_bytes, err);
    if (copy == NULL)
        return err->status;
    if (n_bytes > 0)
        memcpy(copy, data, n_bytes);
    if (add_source(store, name, n_bytes, &source, err) != DCPK_OK) {
        dcpk_free(copy);
        return err->status;
    }
    source->data = copy;
    return DCPK_OK;
}

/* Links are followed (staged checkpoints are often folders of links), but must end in a plain file.
 */
static dcpk_status stat_file(const struct dcpk_store *store, const char *name, struct stat *info,
                             struct dcpk_error *err)
{
    if (fstatat(store->dir_fd, name, info, 0) != 0)
        return dcpk_fail_errno(err, errno, "'%.200s' in '%s'", name, store->path);
    if (!S_ISREG(info->st_mode))
        return dcpk_fail(err, DCPK_EIO, "'%.200s' in '%s': not a plain file", name, store->path);
    return DCPK_OK;
}

bool dcpk_store_has(struct dcpk_store *store, const char *name)
{
    struct dcpk_error ignored;
    struct stat info;
    bool known;

    if (leaves_folder(name))
        return false;
    pthread_mutex_lock(&store->lock);
    known = known_source(store, name) != NULL;
    pthread_mutex_unlock(&store->lock);
    return known || (store->dir_fd >= 0 && stat_file(store, name, &info, &ignored) == DCPK_OK);
}

/* The lock is held. */
static dcpk_status find_locked(struct dcpk_store *store, const char *name,
                               struct dcpk_source **source, struct dcpk_error *err)
{
    struct dcpk_source *known = known_source(store, name);
    struct stat info;
    dcpk_status st;

    if (known != NULL) {
        *source = known;
        return DCPK_OK;
    }
    if (store->dir_fd < 0)
        return dcpk_fail(err, DCPK_EIO, "no '%.200s' in '%s'", name, store->path);
    st = stat_file(store, name, &info, err);
    if (st != DCPK_OK)
        return st;
    return add_source(store, name, (uint64_t)info.st_size, source, err);
}

dcpk_status dcpk_store_find(struct dcpk_store *store, const char *name, struct dcpk_source **source,
                            struct dcpk_error *err)
{
    dcpk_status st;

    if (leaves_folder(name))
        return dcpk_fail(err, DCPK_EFORMAT, "file name '%.200s' leaves the folder '%s'", name,
                         store->path);
    pthread_mutex_lock(&store->lock);
    st = find_locked(store, name, source, err);
    pthread_mutex_unlock(&store->lock);
    return st;
}

const char *dcpk_source_name(const struct dcpk_source *source)
{
    return source->name;
}

uint64_t dcpk_source_bytes(const struct dcpk_source *source)
{
    return source->n_bytes;
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
 * Open the source's file unless it is open. The limit of the process may be lower than ours
 * (EMFILE): then, too, an idle descriptor makes room, and if there is none yet we wait for one.
 * Lock held; it is let go while waiting, when another thread may open this very source.
 */
static dcpk_status open_locked(struct dcpk_source *source, struct dcpk_error *err)
{
    struct dcpk_store *store = source->store;

    while (source->fd < 0) {
        if (store->n_open < MAX_OPEN) {
            /* O_NONBLOCK: had a pipe taken the file's place, opening it would wait for a writer */
            source->fd =
                openat(store->dir_fd, source->name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
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
    st = open_locked(source, err);
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

/* The descriptor is held by begin_read. */
static dcpk_status read_file(const struct dcpk_source *source, uint64_t at, uint8_t *out, size_t n,
                             struct dcpk_error *err)
{
    while (n > 0) {
        const size_t part = n < MAX_READ_BYTES ? n : MAX_READ_BYTES;
        const ssize_t got = pread(source->fd, out, part, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return dcpk_fail_errno(err, errno,
                                   "reading %zu bytes at byte %" PRIu64 " of '%s' in '%s'", n, at,
                                   source->name, source->store->path);
        if (got == 0)
            return dcpk_fail(err, DCPK_EIO,
                             "'%s' in '%s' shrank: it ends at byte %" PRIu64 ", had %" PRIu64,
                             source->name, source->store->path, at, source->n_bytes);
        at += (uint64_t)got;
        out += got;
        n -= (size_t)got;
    }
    return DCPK_OK;
}

dcpk_status dcpk_source_read(struct dcpk_source *source, uint64_t offset_bytes, void *out,
                             size_t n_bytes, struct dcpk_error *err)
{
    dcpk_status st;

    if (offset_bytes > source->n_bytes || n_bytes > source->n_bytes - offset_bytes)
        return dcpk_fail(err, DCPK_EFORMAT,
                         "%zu bytes at byte %" PRIu64 " of '%s' pass its end at byte %" PRIu64,
                         n_bytes, offset_bytes, source->name, source->n_bytes);
    if (n_bytes == 0)
        return DCPK_OK;
    if (source->data != NULL) {
        memcpy(out, source->data + offset_bytes, n_bytes);
        return DCPK_OK;
    }
    st = begin_read(source, err);
    if (st != DCPK_OK)
        return st;
    st = read_file(source, offset_bytes, out, n_bytes, err);
    end_read(source);
    return st;
}

void dcpk_source_advise(struct dcpk_source *source, uint64_t offset_bytes, uint64_t n_bytes,
                        enum dcpk_advice advice)
{
    const int how = advice == DCPK_WILL_NEED ? POSIX_FADV_WILLNEED : POSIX_FADV_DONTNEED;
    struct dcpk_error ignored;

    if (source->data != NULL || offset_bytes >= source->n_bytes || n_bytes == 0)
        return;
    if (n_bytes > source->n_bytes - offset_bytes)
        n_bytes = source->n_bytes - offset_bytes;
    if (begin_read(source, &ignored) != DCPK_OK)
        return;
    (void)posix_fadvise(source->fd, (off_t)offset_bytes, (off_t)n_bytes, how);
    end_read(source);
}

dcpk_status dcpk_source_slurp(struct dcpk_source *source, uint64_t limit_bytes, char **data,
                              size_t *n_bytes, struct dcpk_error *err)
{
    char *text;

    if (source->n_bytes > limit_bytes || source->n_bytes >= SIZE_MAX)
        return dcpk_fail(err, DCPK_ERANGE,
                         "'%s' in '%s' has %" PRIu64 " bytes, the limit is %" PRIu64, source->name,
                         source->store->path, source->n_bytes, limit_bytes);
    text = dcpk_alloc((size_t)source->n_bytes + 1, err);
    if (text == NULL)
        return err->status;
    if (dcpk_source_read(source, 0, text, (size_t)source->n_bytes, err) != DCPK_OK) {
        dcpk_free(text);
        return err->status;
    }
    *data = text;
    *n_bytes = (size_t)source->n_bytes;
    return DCPK_OK;
}

/* Append the names in a folder of the store ("." the store itself) to `text`, each with its NUL. */
static dcpk_status read_names(const struct dcpk_store *store, const char *folder,
                              struct dcpk_bytes *text, struct dcpk_error *err)
{
    /* a descriptor of its own: dir_fd's position is shared */
    const int fd = openat(store->dir_fd, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    dcpk_status st = DCPK_OK;

    if (dir == NULL) {
        st = dcpk_fail_errno(err, errno, "listing folder '%.200s' in '%s'", folder, store->path);
        if (fd >= 0)
            close(fd);
        return st;
    }
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

/* The same for memory: of a name with '/' its first part, as a folder would show it. */
static dcpk_status memory_names(const struct dcpk_store *store, const char *folder,
                                struct dcpk_bytes *text, struct dcpk_error *err)
{
    const size_t n = strcmp(folder, ".") == 0 ? 0 : strlen(folder) + 1; /* with the '/' */
    bool exists = n == 0;

    for (const struct dcpk_source *s = store->sources; s != NULL; s = s->next) {
        if (n > 0 && (strncmp(s->name, folder, n - 1) != 0 || s->name[n - 1] != '/'))
            continue;
        exists = true;
        dcpk_bytes_put(text, s->name + n, strcspn(s->name + n, "/"));
        dcpk_bytes_u8(text, 0);
    }
    return exists ? DCPK_OK
                  : dcpk_fail(err, DCPK_EIO, "no folder '%.200s' in '%s'", folder, store->path);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Build the sorted array from names that each end in a NUL: pointers first, their text behind. */
static dcpk_status sorted_names(const struct dcpk_bytes *text, char ***names, size_t *n,
                                struct dcpk_error *err)
{
    size_t n_names = 0;
    size_t n_unique = 0;
    char **list;
    char *copy;

    for (size_t i = 0; i < text->n_bytes; i++)
        n_names += text->data[i] == 0;
    list = dcpk_alloc(n_names * sizeof *list + text->n_bytes, err);
    if (list == NULL)
        return err->status;
    copy = (char *)(list + n_names);
    if (text->n_bytes > 0)
        memcpy(copy, text->data, text->n_bytes);
    for (size_t i = 0; i < n_names; i++, copy += strlen(copy) + 1)
        list[i] = copy;
    qsort(list, n_names, sizeof *list, compare_names);
    for (size_t i = 0; i < n_names; i++) {
        if (n_unique == 0 || strcmp(list[n_unique - 1], list[i]) != 0)
            list[n_unique++] = list[i];
    }
    *names = list;
    *n = n_unique;
    return DCPK_OK;
}

static dcpk_status list_folder(struct dcpk_store *store, const char *folder, char ***names,
                               size_t *n, struct dcpk_error *err)
{
    struct dcpk_bytes text = {0};
    dcpk_status st = store->dir_fd >= 0 ? read_names(store, folder, &text, err)
                                        : memory_names(store, folder, &text, err);

    if (st == DCPK_OK)
        st = dcpk_bytes_status(&text, err);
    if (st == DCPK_OK)
        st = sorted_names(&text, names, n, err);
    dcpk_bytes_release(&text);
    return st;
}

dcpk_status dcpk_store_list(struct dcpk_store *store, char ***names, size_t *n,
                            struct dcpk_error *err)
{
    return list_folder(store, ".", names, n, err);
}

dcpk_status dcpk_store_list_in(struct dcpk_store *store, const char *folder, char ***names,
                               size_t *n, struct dcpk_error *err)
{
    if (leaves_folder(folder))
        return dcpk_fail(err, DCPK_EFORMAT, "folder name '%.200s' leaves the folder '%s'", folder,
                         store->path);
    return list_folder(store, folder, names, n, err);
}

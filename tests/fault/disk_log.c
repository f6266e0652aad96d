/* SPDX-License-Identifier: Apache-2.0 */
/* disk_log.c - preloaded into a program: writes down each of its calls that changes or syncs files,
 * in the order in which they took place. */
/*
 * A call and its entry are made under one lock, so that the order of entries is that of the calls,
 * also of several threads. What fails changes nothing and is not written down. `write` is not
 * looked at: output files are written by pwrite. (disk_model.h has a check that nothing is missed.)
 */
#undef _FILE_OFFSET_BITS /* the plain names are defined here, and the ...64 ones as aliases */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/fault/disk_log.h"

_Static_assert(sizeof(off_t) == 8, "the aliases need an off_t of 64 bits");

static int log_fd = -1;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

__attribute__((constructor)) static void start(void)
{
    const char *path = getenv(DISK_LOG_VARIABLE);

    if (path != NULL)
        log_fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (log_fd < 0)
        abort();
}

/* Fills *real, a pointer to a function, with the next definition of `name`. */
static void find(void *real, const char *name)
{
    void *next = dlsym(RTLD_NEXT, name);

    if (next == NULL)
        abort();
    memcpy(real, &next, sizeof next);
}

static void put(const void *data, size_t n_bytes)
{
    if (n_bytes > 0 && write(log_fd, data, n_bytes) != (ssize_t)n_bytes)
        abort();
}

static uint64_t node_of(int fd)
{
    struct stat info;

    return fstat(fd, &info) == 0 ? info.st_ino : 0;
}

/* A name and the folder it is in. */
struct place {
    uint64_t folder;
    const char *name;
};

static struct place place_of(int at, const char *path)
{
    const char *slash = strrchr(path, '/');
    struct place place = {.name = slash == NULL ? path : slash + 1};
    char parent[4096];
    struct stat info;

    snprintf(parent, sizeof parent, "%.*s", slash == NULL ? 1 : (int)(slash - path) + 1,
             slash == NULL ? "." : path);
    if (fstatat(at, parent, &info, 0) == 0)
        place.folder = info.st_ino;
    return place;
}

static uint64_t node_at(int at, const char *path)
{
    struct stat info;

    return fstatat(at, path, &info, AT_SYMLINK_NOFOLLOW) == 0 ? info.st_ino : 0;
}

static void log_names(enum disk_op op, const struct place *places, int n, uint64_t node)
{
    struct disk_record record = {.op = op, .node = node};

    for (int i = 0; i < n; i++) {
        record.folders[i] = places[i].folder;
        record.name_bytes[i] = (uint32_t)strlen(places[i].name);
    }
    put(&record, sizeof record);
    for (int i = 0; i < n; i++)
        put(places[i].name, record.name_bytes[i]);
}

static void log_data(int fd, off_t at, const void *data, size_t n_bytes)
{
    const struct disk_record record = {
        .op = DISK_WRITE, .node = node_of(fd), .offset_bytes = (uint64_t)at, .n_bytes = n_bytes};

    put(&record, sizeof record);
    put(data, n_bytes);
}

static void log_node(enum disk_op op, int fd)
{
    struct stat info = {0};
    struct disk_record record = {.op = op};

    (void)fstat(fd, &info);
    record.node = info.st_ino;
    record.offset_bytes = (uint64_t)info.st_size;
    put(&record, sizeof record);
}

/* Hand the result of a call on, and leave the lock and errno as they were. */
static int leave(int rc)
{
    const int code = errno;

    pthread_mutex_unlock(&mutex);
    errno = code;
    return rc;
}

/* Defines `name` as the real one with `after` done when it went well. */
#define WRAP(name, parameters, arguments, after)                                                   \
    int name parameters                                                                            \
    {                                                                                              \
        int(*real) parameters;                                                                     \
        int rc;                                                                                    \
                                                                                                   \
        find(&real, #name);                                                                        \
        pthread_mutex_lock(&mutex);                                                                \
        rc = real arguments;                                                                       \
        if (rc == 0) {                                                                             \
            after;                                                                                 \
        }                                                                                          \
        return leave(rc);                                                                          \
    }

WRAP(fallocate, (int fd, int mode, off_t at, off_t n), (fd, mode, at, n), log_node(DISK_SIZE, fd))
WRAP(ftruncate, (int fd, off_t n), (fd, n), log_node(DISK_SIZE, fd))
WRAP(fsync, (int fd), (fd), log_node(DISK_SYNC, fd))
WRAP(fdatasync, (int fd), (fd), log_node(DISK_SYNC, fd))
WRAP(syncfs, (int fd), (fd), log_node(DISK_SYNC_ALL, fd))

static void log_rename(enum disk_op op, int from, const char *old, int to, const char *new)
{
    const struct place places[] = {place_of(from, old), place_of(to, new)};

    log_names(op, places, 2, node_at(to, new));
}

static void log_new(enum disk_op op, int at, const char *path)
{
    const struct place place = place_of(at, path);

    log_names(op, &place, 1, node_at(at, path));
}

WRAP(mkdir, (const char *path, mode_t mode), (path, mode),
     log_new(DISK_MAKE_FOLDER, AT_FDCWD, path))
WRAP(mkdirat, (int at, const char *path, mode_t mode), (at, path, mode),
     log_new(DISK_MAKE_FOLDER, at, path))
WRAP(linkat, (int from, const char *old, int to, const char *new, int flags),
     (from, old, to, new, flags), log_new(DISK_LINK, to, new))
WRAP(rename, (const char *old, const char *new), (old, new),
     log_rename(DISK_RENAME, AT_FDCWD, old, AT_FDCWD, new))
WRAP(renameat, (int from, const char *old, int to, const char *new), (from, old, to, new),
     log_rename(DISK_RENAME, from, old, to, new))
WRAP(renameat2, (int from, const char *old, int to, const char *new, unsigned flags),
     (from, old, to, new, flags),
     log_rename(flags &RENAME_EXCHANGE ? DISK_EXCHANGE : DISK_RENAME, from, old, to, new))
WRAP(unlink, (const char *path), (path), log_new(DISK_UNLINK, AT_FDCWD, path))
WRAP(unlinkat, (int at, const char *path, int flags), (at, path, flags),
     log_new(DISK_UNLINK, at, path))
WRAP(rmdir, (const char *path), (path), log_new(DISK_UNLINK, AT_FDCWD, path))
WRAP(remove, (const char *path), (path), log_new(DISK_UNLINK, AT_FDCWD, path))

ssize_t pwrite(int fd, const void *data, size_t n_bytes, off_t at)
{
    ssize_t (*real)(int, const void *, size_t, off_t);
    ssize_t n;

    find(&real, "pwrite");
    pthread_mutex_lock(&mutex);
    n = real(fd, data, n_bytes, at);
    if (n > 0)
        log_data(fd, at, data, (size_t)n);
    return leave((int)n);
}

/* What was copied is read back. */
ssize_t copy_file_range(int from, off_t *from_at, int to, off_t *to_at, size_t n_bytes,
                        unsigned flags)
{
    ssize_t (*real)(int, off_t *, int, off_t *, size_t, unsigned);
    const off_t at = *to_at;
    char path[64], *copy;
    ssize_t n;
    long fd;

    find(&real, "copy_file_range");
    pthread_mutex_lock(&mutex);
    n = real(from, from_at, to, to_at, n_bytes, flags);
    if (n <= 0)
        return leave((int)n);
    snprintf(path, sizeof path, "/proc/self/fd/%d", to);
    fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    copy = malloc((size_t)n);
    if (fd < 0 || copy == NULL || pread((int)fd, copy, (size_t)n, at) != n)
        abort();
    log_data(to, at, copy, (size_t)n);
    free(copy);
    syscall(SYS_close, fd);
    return leave((int)n);
}

static int open_logged(int at, const char *path, int flags, mode_t mode)
{
    const bool has_name = (flags & O_TMPFILE) != O_TMPFILE;
    bool was_there;
    int fd;

    pthread_mutex_lock(&mutex);
    was_there = node_at(at, path) != 0;
    fd = (int)syscall(SYS_openat, at, path, flags, mode);
    if (fd >= 0 && (flags & O_CREAT) != 0 && has_name && !was_there)
        log_new(DISK_MAKE, at, path);
    else if (fd >= 0 && (flags & O_TRUNC) != 0)
        log_node(DISK_SIZE, fd);
    return leave(fd);
}

int open(const char *path, int flags, ...)
{
    va_list list;
    mode_t mode;

    va_start(list, flags);
    mode = va_arg(list, mode_t); /* means nothing where none was given */
    va_end(list);
    return open_logged(AT_FDCWD, path, flags, mode);
}

int openat(int at, const char *path, int flags, ...)
{
    va_list list;
    mode_t mode;

    va_start(list, flags);
    mode = va_arg(list, mode_t);
    va_end(list);
    return open_logged(at, path, flags, mode);
}

/* The names that a program built with _FILE_OFFSET_BITS=64 calls. */
#define ALIAS(name) __attribute__((alias(#name)))

int open64(const char *path, int flags, ...) ALIAS(open);
int openat64(int at, const char *path, int flags, ...) ALIAS(openat);
ssize_t pwrite64(int fd, const void *data, size_t n_bytes, off_t at) ALIAS(pwrite);
int fallocate64(int fd, int mode, off_t at, off_t n) ALIAS(fallocate);
int ftruncate64(int fd, off_t n) ALIAS(ftruncate);

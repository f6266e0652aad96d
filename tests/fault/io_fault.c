/* SPDX-License-Identifier: Apache-2.0 */
/* io_fault.c - preloaded into a program: its n-th call that does I/O goes wrong as fault.h says. */
#undef _FILE_OFFSET_BITS /* the plain names are defined here, and the ...64 ones as aliases */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>

#include "tests/fault/fault_priv.h"

#define LONG_BYTES 512 /* of a write that can be flipped */

_Static_assert(sizeof(off_t) == 8, "the aliases need an off_t of 64 bits");

/* What can be wrong with a call. */
enum {
    TAKES_ROOM = 1, /* ENOSPC */
    REPEATED = 2,   /* EINTR; the caller asks again */
    IN_PARTS = 4,   /* does less than asked */
    IS_LONG = 8,    /* one of many bytes is wrong */
};

enum outcome { GOES_ON, FAILS, IS_SHORT, IS_TORN, IS_FLIPPED };

static struct fault fault;

__attribute__((constructor)) static void start(void)
{
    fault_read_variable(&fault);
    if (strcmp(fault.kind, "nomem") == 0)
        fault.report = NULL; /* alloc_fault.c's */
}

__attribute__((destructor)) static void end(void)
{
    fault_count_open(&fault);
}

static enum outcome fail_with(int code)
{
    errno = code;
    return FAILS;
}

/*
 * How much of a write or copy of n bytes to fd fits when the kind is "full"; 0: nothing, and errno
 * says so. What goes to stdout and stderr is not on that disk.
 */
static size_t room_for(const char *name, int fd, size_t n)
{
    uint64_t before, left;

    if (fault.report == NULL || strcmp(fault.kind, "full") != 0 || fd <= STDERR_FILENO || n == 0)
        return n;
    before = __atomic_fetch_add(&fault.report->n_calls, n, __ATOMIC_RELAXED);
    left = before < fault.nth ? fault.nth - before : 0;
    if (n <= left)
        return n;
    __atomic_add_fetch(&fault.report->n_struck, 1, __ATOMIC_RELAXED);
    snprintf(fault.report->name, sizeof fault.report->name, "%s", name);
    errno = ENOSPC;
    return left;
}

/* What becomes of the call `name` by `caller`, in which `what` can be wrong beside EIO; sets errno
 * if it fails. */
static enum outcome strike_from(const char *name, unsigned what, const void *caller)
{
    const char *kind = fault.kind;
    const bool full = strcmp(kind, "enospc") == 0, again = strcmp(kind, "eintr") == 0,
               part = strcmp(kind, "short") == 0, torn = strcmp(kind, "tear") == 0,
               flipped = strcmp(kind, "flip") == 0, room = full || strcmp(kind, "killroom") == 0;

    if (fault.report == NULL || strcmp(kind, "full") == 0 || (room && !(what & TAKES_ROOM)) ||
        ((part || torn) && !(what & IN_PARTS)) || (again && !(what & REPEATED)) ||
        (flipped && !(what & IS_LONG)) || !fault_strikes(&fault, name, caller))
        return GOES_ON;
    if (strncmp(kind, "kill", 4) == 0)
        kill(getpid(), SIGKILL);
    if (strcmp(kind, "term") == 0) {
        kill(getpid(), SIGTERM);
        return GOES_ON;
    }
    if (again && fault.nth == 0 && fault.report->n_calls % 2 == 0)
        return GOES_ON;
    if (flipped)
        return IS_FLIPPED;
    return part ? IS_SHORT : torn ? IS_TORN : fail_with(full ? ENOSPC : again ? EINTR : EIO);
}

/* Of a wrapper's caller. */
#define strike(name, what) strike_from(name, what, __builtin_return_address(0))

/* Fills *real, a pointer to a function, with the next definition of `name`. */
static void find(void *real, const char *name)
{
    void *next = dlsym(RTLD_NEXT, name);

    if (next == NULL)
        abort();
    memcpy(real, &next, sizeof next);
}

/*
 * Defines `name` as: the fault's -1, or what the real one answers. `parameters` and `arguments`
 * are lists in parentheses.
 */
#define WRAP(name, what, parameters, arguments)                                                    \
    int name parameters                                                                            \
    {                                                                                              \
        int(*real) parameters;                                                                     \
                                                                                                   \
        find(&real, #name);                                                                        \
        return strike(#name, what) == FAILS ? -1 : real arguments;                                 \
    }

/* The same for calls that move `n` bytes, which may be fewer, to `to` (-1: they only read). */
#define WRAP_PARTS(name, what, to, parameters, arguments)                                          \
    ssize_t name parameters                                                                        \
    {                                                                                              \
        ssize_t(*real) parameters;                                                                 \
        const enum outcome outcome = strike(#name, what);                                          \
        const size_t wanted = n;                                                                   \
        ssize_t done;                                                                              \
                                                                                                   \
        find(&real, #name);                                                                        \
        n = room_for(#name, to, n);                                                                \
        if (n == 0 && wanted > 0)                                                                  \
            return -1;                                                                             \
        if (outcome == FAILS)                                                                      \
            return -1;                                                                             \
        if ((outcome == IS_SHORT || outcome == IS_TORN) && n > 1)                                  \
            n /= 2;                                                                                \
        done = real arguments;                                                                     \
        if (outcome == IS_TORN)                                                                    \
            kill(getpid(), SIGKILL);                                                               \
        return done;                                                                               \
    }

WRAP_PARTS(read, REPEATED | IN_PARTS, -1, (int fd, void *data, size_t n), (fd, data, n))
WRAP_PARTS(pread, REPEATED | IN_PARTS, -1, (int fd, void *data, size_t n, off_t at),
           (fd, data, n, at))
WRAP_PARTS(write, TAKES_ROOM | REPEATED | IN_PARTS, fd, (int fd, const void *data, size_t n),
           (fd, data, n))
WRAP_PARTS(copy_file_range, TAKES_ROOM | REPEATED | IN_PARTS, to,
           (int from, off_t *from_at, int to, off_t *to_at, size_t n, unsigned flags),
           (from, from_at, to, to_at, n, flags))
WRAP(ftruncate, TAKES_ROOM | REPEATED, (int fd, off_t n), (fd, n))
WRAP(fsync, TAKES_ROOM | REPEATED, (int fd), (fd))
WRAP(fdatasync, TAKES_ROOM | REPEATED, (int fd), (fd))
WRAP(syncfs, TAKES_ROOM | REPEATED, (int fd), (fd))
WRAP(sync_file_range, TAKES_ROOM, (int fd, off_t at, off_t n, unsigned flags), (fd, at, n, flags))
WRAP(mkdir, TAKES_ROOM, (const char *path, mode_t mode), (path, mode))
WRAP(mkdirat, TAKES_ROOM, (int folder, const char *path, mode_t mode), (folder, path, mode))
WRAP(rename, TAKES_ROOM, (const char *from, const char *to), (from, to))
WRAP(renameat, TAKES_ROOM, (int from, const char *old, int to, const char *new),
     (from, old, to, new))
WRAP(renameat2, TAKES_ROOM, (int from, const char *old, int to, const char *new, unsigned flags),
     (from, old, to, new, flags))
WRAP(linkat, TAKES_ROOM, (int from, const char *old, int to, const char *new, int flags),
     (from, old, to, new, flags))
WRAP(unlink, 0, (const char *path), (path))
WRAP(unlinkat, 0, (int folder, const char *path, int flags), (folder, path, flags))
WRAP(rmdir, 0, (const char *path), (path))
WRAP(remove, 0, (const char *path), (path))
WRAP(stat64, 0, (const char *path, struct stat64 *info), (path, info))
WRAP(lstat64, 0, (const char *path, struct stat64 *info), (path, info))
WRAP(fstat64, 0, (int fd, struct stat64 *info), (fd, info))
WRAP(fstatat64, 0, (int folder, const char *path, struct stat64 *info, int flags),
     (folder, path, info, flags))
WRAP(statx, 0, (int folder, const char *path, int flags, unsigned mask, struct statx *info),
     (folder, path, flags, mask, info))

int fallocate(int fd, int mode, off_t at, off_t n)
{
    int (*real)(int, int, off_t, off_t);

    find(&real, "fallocate");
    if (strike("fallocate", TAKES_ROOM | REPEATED) == FAILS)
        return -1;
    if (fault.report != NULL && strcmp(fault.kind, "full") == 0) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return real(fd, mode, at, n);
}

/* The one of these whose data may be wrong. */
ssize_t pwrite(int fd, const void *data, size_t n, off_t at)
{
    const unsigned wrong = TAKES_ROOM | REPEATED | IN_PARTS | (n >= LONG_BYTES ? IS_LONG : 0);
    const enum outcome outcome = strike("pwrite", wrong);
    const bool in_parts = (outcome == IS_SHORT || outcome == IS_TORN) && n > 1;
    const size_t wanted = n;
    ssize_t done;

    n = room_for("pwrite", fd, n);
    if (outcome == FAILS || (n == 0 && wanted > 0))
        return -1;
    done = syscall(SYS_pwrite64, fd, data, in_parts ? n / 2 : n, at);
    if (outcome == IS_FLIPPED) {
        const uint8_t byte = ((const uint8_t *)data)[n / 2] ^ 1;

        (void)syscall(SYS_pwrite64, fd, &byte, 1, at + (off_t)(n / 2));
    }
    if (outcome == IS_TORN)
        kill(getpid(), SIGKILL);
    return done;
}

/* The descriptor is gone also when closing fails. */
int close(int fd)
{
    const enum outcome outcome = strike("close", TAKES_ROOM | REPEATED);
    const int code = errno;
    const long rc = syscall(SYS_close, fd);

    if (outcome == FAILS)
        errno = code;
    return outcome == FAILS ? -1 : (int)rc;
}

static unsigned wrong_with_open(int flags)
{
    return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? TAKES_ROOM : 0;
}

int open(const char *path, int flags, ...)
{
    va_list list;
    mode_t mode;

    va_start(list, flags);
    mode = va_arg(list, mode_t); /* means nothing where none was given */
    va_end(list);
    return strike("open", wrong_with_open(flags)) == FAILS
               ? -1
               : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int openat(int folder, const char *path, int flags, ...)
{
    va_list list;
    mode_t mode;

    va_start(list, flags);
    mode = va_arg(list, mode_t);
    va_end(list);
    return strike("openat", wrong_with_open(flags)) == FAILS
               ? -1
               : (int)syscall(SYS_openat, folder, path, flags, mode);
}

int mkostemp(char *path, int flags)
{
    int (*real)(char *, int);

    find(&real, "mkostemp");
    return strike("mkostemp", TAKES_ROOM) == FAILS ? -1 : real(path, flags);
}

struct dirent64 *readdir64(DIR *folder)
{
    struct dirent64 *(*real)(DIR *);

    find(&real, "readdir64");
    return strike("readdir64", 0) == FAILS ? NULL : real(folder);
}

FILE *fopen(const char *path, const char *mode)
{
    FILE *(*real)(const char *, const char *);

    find(&real, "fopen");
    return strike("fopen", mode[0] == 'r' ? 0 : TAKES_ROOM) == FAILS ? NULL : real(path, mode);
}

WRAP(fflush, TAKES_ROOM, (FILE * file), (file))

/* The stream is gone also when closing fails. */
int fclose(FILE *file)
{
    int (*real)(FILE *);
    const enum outcome outcome = strike("fclose", TAKES_ROOM);
    const int code = errno;
    int rc;

    find(&real, "fclose");
    rc = real(file);
    if (outcome == FAILS)
        errno = code;
    return outcome == FAILS ? EOF : rc;
}

/* The names that a program built with _FILE_OFFSET_BITS=64 calls. */
#define ALIAS(name) __attribute__((alias(#name)))

int open64(const char *path, int flags, ...) ALIAS(open);
int openat64(int folder, const char *path, int flags, ...) ALIAS(openat);
int mkostemp64(char *path, int flags) ALIAS(mkostemp);
ssize_t pread64(int fd, void *data, size_t n, off_t at) ALIAS(pread);
ssize_t pwrite64(int fd, const void *data, size_t n, off_t at) ALIAS(pwrite);
int fallocate64(int fd, int mode, off_t at, off_t n) ALIAS(fallocate);
int ftruncate64(int fd, off_t n) ALIAS(ftruncate);
FILE *fopen64(const char *path, const char *mode) ALIAS(fopen);

/* SPDX-License-Identifier: Apache-2.0 */
/* captive.c - preloaded into dcpkit: does what hostile code would, once it has read a first byte.
 */
#undef _FILE_OFFSET_BITS /* the plain name is defined here, and the ...64 one as an alias */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * CAPTIVE_REPORT: a file that says what worked, a line an attempt. CAPTIVE_READ: a file that no
 * argument names. CAPTIVE_WRITE: a path where nothing is, and none of theirs either. The tracker of
 * a run is a number and read before; anything else is a stranger's.
 */
#define TRACKER "latest_checkpointed_iteration.txt"

static int report = -1;

__attribute__((constructor)) static void start(void)
{
    const char *path = getenv("CAPTIVE_REPORT");

    if (path != NULL)
        report = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
}

static void put(const char *what, long fd)
{
    dprintf(report, "%s: %s\n", what, fd >= 0 ? "yes" : strerror(errno));
    if (fd >= 0)
        syscall(SYS_close, (int)fd);
}

/* Once; a program that started would take the place of this one, and the last line be missing. */
static void break_out(void)
{
    char *const args[] = {NULL};

    put("read", syscall(SYS_openat, AT_FDCWD, getenv("CAPTIVE_READ"), O_RDONLY, 0));
    put("write", syscall(SYS_openat, AT_FDCWD, getenv("CAPTIVE_WRITE"), O_WRONLY | O_CREAT, 0600));
    put("network", syscall(SYS_socket, AF_INET, SOCK_STREAM, 0));
    put("run", execve("/bin/true", args, args));
    close(report);
    report = -1;
}

static int is_tracker(int fd)
{
    const size_t n_tracker = strlen(TRACKER);
    char link[32], path[4096];
    ssize_t n;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof path);
    return n > (ssize_t)n_tracker && memcmp(path + n - (ssize_t)n_tracker, TRACKER, n_tracker) == 0;
}

ssize_t pread(int fd, void *data, size_t n, off_t at)
{
    if (report >= 0 && !is_tracker(fd))
        break_out();
    return (ssize_t)syscall(SYS_pread64, fd, data, n, at);
}

ssize_t pread64(int fd, void *data, size_t n, off_t at) __attribute__((alias("pread")));

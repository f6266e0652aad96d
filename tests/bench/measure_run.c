/* SPDX-License-Identifier: Apache-2.0 */
/* measure_run.c - run a command: wall time until its output is on disk, its peak memory, its CPU
 * time. */
/*
 * measure [--cold DIR | --warm DIR]... [--sync DIR]... -- COMMAND...
 *
 * --cold: before the start, drop DIR's files from the page cache; --warm: read them into it;
 * --sync: sync them after the command, within the time. Prints "SECONDS PEAK_BYTES CACHED
 * CPU_SECONDS": CACHED is the share of the --cold and --warm folders that was in the page cache at
 * the start, CPU_SECONDS the command's own in user and kernel, without the sync. The command's
 * stdout goes to stderr.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_FOLDERS 16
#define READ_BYTES  (1 << 20)

/* Visits files of a folder; nftw gives its callback no context. */
static void (*visit_file)(int fd, uint64_t n_bytes);
static uint64_t n_pages, n_cached_pages;

static int visit(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    int fd;

    (void)ftw;
    if (kind != FTW_F)
        return 0;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        fprintf(stderr, "measure: %s: %s\n", path, strerror(errno));
        return -1;
    }
    visit_file(fd, (uint64_t)st->st_size);
    close(fd);
    return 0;
}

static void each_file(const char *folder, void (*what)(int fd, uint64_t n_bytes))
{
    visit_file = what;
    if (nftw(folder, visit, 16, FTW_PHYS) != 0)
        exit(4);
}

static void sync_file(int fd, uint64_t n_bytes)
{
    (void)n_bytes;
    if (fsync(fd) != 0)
        exit(4);
}

/* Dirty pages cannot be dropped: they are written first. */
static void evict_file(int fd, uint64_t n_bytes)
{
    sync_file(fd, n_bytes);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

static void read_file(int fd, uint64_t n_bytes)
{
    static char buffer[READ_BYTES];
    ssize_t got = 1;

    (void)n_bytes;
    while (got > 0)
        got = read(fd, buffer, sizeof buffer);
    if (got < 0)
        exit(4);
}

static void count_cached(int fd, uint64_t n_bytes)
{
    const size_t n = (size_t)((n_bytes + 4095) / 4096);
    unsigned char *in_core = malloc(n + 1);
    void *mapped;

    if (n_bytes == 0 || in_core == NULL) {
        free(in_core);
        return;
    }
    mapped = mmap(NULL, (size_t)n_bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (mapped != MAP_FAILED && mincore(mapped, (size_t)n_bytes, in_core) == 0) {
        n_pages += n;
        for (size_t i = 0; i < n; i++)
            n_cached_pages += in_core[i] & 1;
    }
    if (mapped != MAP_FAILED)
        munmap(mapped, (size_t)n_bytes);
    free(in_core);
}

static double now_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double seconds_of(const struct timeval *t)
{
    return (double)t->tv_sec + (double)t->tv_usec * 1e-6;
}

/* Run the command to its end; its exit status, and what it used. */
static int run_command(char **command, struct rusage *usage)
{
    int status;
    const pid_t pid = fork();

    if (pid == 0) {
        dup2(STDERR_FILENO, STDOUT_FILENO);
        execvp(command[0], command);
        fprintf(stderr, "measure: %s: %s\n", command[0], strerror(errno));
        _exit(127);
    }
    if (pid < 0 || wait4(pid, &status, 0, usage) != pid)
        exit(4);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int argc, char **argv)
{
    const char *to_sync[MAX_FOLDERS];
    int n_sync = 0, i = 1, status;
    struct rusage usage;
    double start;

    for (; i + 1 < argc && strcmp(argv[i], "--") != 0; i += 2) {
        const bool is_cold = strcmp(argv[i], "--cold") == 0;

        if (is_cold || strcmp(argv[i], "--warm") == 0) {
            each_file(argv[i + 1], is_cold ? evict_file : read_file);
            each_file(argv[i + 1], count_cached);
        } else if (strcmp(argv[i], "--sync") == 0 && n_sync < MAX_FOLDERS) {
            to_sync[n_sync++] = argv[i + 1];
        } else {
            break;
        }
    }
    if (i + 1 >= argc || strcmp(argv[i], "--") != 0) {
        fprintf(stderr, "usage: measure [--cold DIR | --warm DIR] [--sync DIR] -- COMMAND...\n");
        return 2;
    }
    start = now_seconds();
    status = run_command(argv + i + 1, &usage);
    if (status != 0)
        return status;
    for (int k = 0; k < n_sync; k++)
        each_file(to_sync[k], sync_file);
    printf("%.3f %" PRIu64 " %.2f %.3f\n", now_seconds() - start, (uint64_t)usage.ru_maxrss * 1024,
           n_pages == 0 ? 0.0 : (double)n_cached_pages / (double)n_pages,
           seconds_of(&usage.ru_utime) + seconds_of(&usage.ru_stime));
    return 0;
}

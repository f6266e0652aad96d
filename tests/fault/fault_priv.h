/* SPDX-License-Identifier: Apache-2.0 */
/* fault_priv.h - reads DCPK_FAULT and counts calls; for the preloaded libraries. */
#ifndef DCPK_TESTS_FAULT_FAULT_PRIV_H
#define DCPK_TESTS_FAULT_FAULT_PRIV_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/fault/fault.h"

struct fault {
    char kind[16];
    uint64_t nth;
    struct fault_report *report; /* NULL: nothing is to go wrong */
};

/* Raw system calls: the C library's functions are the ones that are replaced here. */
static inline void fault_read_variable(struct fault *fault)
{
    const char *text = getenv(FAULT_VARIABLE);
    char path[4096];
    void *memory;
    long fd;

    if (text == NULL || sscanf(text, "%15s %lu %4095s", fault->kind, &fault->nth, path) != 3)
        return;
    fd = syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
    memory = mmap(NULL, sizeof *fault->report, PROT_READ | PROT_WRITE, MAP_SHARED, (int)fd, 0);
    syscall(SYS_close, fd);
    if (memory == MAP_FAILED)
        abort();
    fault->report = memory;
}

#define FAULT_MOST_FDS 1024

/* For a destructor: what has not been given back. */
static inline void fault_count_open(const struct fault *fault)
{
    char status[4096] = "";
    const char *threads;
    long fd;

    if (fault->report == NULL)
        return;
    fault->report->n_open = 0;
    for (fd = 0; fd < FAULT_MOST_FDS; fd++)
        fault->report->n_open += fcntl((int)fd, F_GETFD) >= 0;
    fd = syscall(SYS_openat, AT_FDCWD, "/proc/self/status", O_RDONLY | O_CLOEXEC);
    (void)syscall(SYS_read, fd, status, sizeof status - 1);
    syscall(SYS_close, fd);
    threads = strstr(status, "\nThreads:");
    fault->report->n_threads = threads == NULL ? 0 : (uint32_t)strtoul(threads + 9, NULL, 10);
}

/* Count a call that the kind can strike; true when this is the one. */
static inline bool fault_strikes(struct fault *fault, const char *name)
{
    const uint64_t call = __atomic_add_fetch(&fault->report->n_calls, 1, __ATOMIC_RELAXED);

    if (fault->nth != 0 && fault->nth != call)
        return false;
    __atomic_add_fetch(&fault->report->n_struck, 1, __ATOMIC_RELAXED);
    snprintf(fault->report->name, sizeof fault->report->name, "%s", name);
    return true;
}

#endif

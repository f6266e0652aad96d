/* SPDX-License-Identifier: Apache-2.0 */
/* fault_priv.h - reads DCPK_FAULT and counts calls; for the preloaded libraries. */
#ifndef DCPK_TESTS_FAULT_FAULT_PRIV_H
#define DCPK_TESTS_FAULT_FAULT_PRIV_H

#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/fault/fault.h"

struct fault {
    char kind[40];
    char name[24]; /* of the calls that count; "": any */
    uint64_t nth;
    bool own; /* calls from `first` to `last`, where the program lies */
    uintptr_t first, last;
    struct fault_report *report; /* NULL: nothing is to go wrong */
};

/* For dl_iterate_phdr, which begins with the program. */
static inline int fault_find_program(struct dl_phdr_info *info, size_t n_bytes, void *context)
{
    struct fault *fault = context;

    (void)n_bytes;
    fault->first = UINTPTR_MAX;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const uintptr_t begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;

        if (info->dlpi_phdr[i].p_type != PT_LOAD)
            continue;
        fault->first = begin < fault->first ? begin : fault->first;
        fault->last = begin + info->dlpi_phdr[i].p_memsz;
    }
    return 1;
}

/* Take "own-KIND@NAME" apart. */
static inline void fault_read_kind(struct fault *fault)
{
    char *at = strchr(fault->kind, '@');

    if (at != NULL) {
        snprintf(fault->name, sizeof fault->name, "%s", at + 1);
        *at = '\0';
    }
    fault->own = strncmp(fault->kind, "own-", 4) == 0;
    if (fault->own) {
        memmove(fault->kind, fault->kind + 4, strlen(fault->kind + 4) + 1);
        dl_iterate_phdr(fault_find_program, fault);
    }
}

/* Raw system calls: the C library's functions are the ones that are replaced here. */
static inline void fault_read_variable(struct fault *fault)
{
    const char *text = getenv(FAULT_VARIABLE);
    char path[4096];
    void *memory;
    long fd;

    if (text == NULL || sscanf(text, "%39s %lu %4095s", fault->kind, &fault->nth, path) != 3)
        return;
    fault_read_kind(fault);
    fd = syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
    memory = mmap(NULL, sizeof *fault->report, PROT_READ | PROT_WRITE, MAP_SHARED, (int)fd, 0);
    syscall(SYS_close, fd);
    if (memory == MAP_FAILED)
        abort();
    fault->report = memory;
}

#define FAULT_MAX_FDS 1024

/* For a destructor: what has not been given back. */
static inline void fault_count_open(const struct fault *fault)
{
    char status[4096] = "";
    const char *threads;
    long fd;

    if (fault->report == NULL)
        return;
    fault->report->n_open = 0;
    for (fd = 0; fd < FAULT_MAX_FDS; fd++)
        fault->report->n_open += fcntl((int)fd, F_GETFD) >= 0;
    fd = syscall(SYS_openat, AT_FDCWD, "/proc/self/status", O_RDONLY | O_CLOEXEC);
    (void)syscall(SYS_read, fd, status, sizeof status - 1);
    syscall(SYS_close, fd);
    threads = strstr(status, "\nThreads:");
    fault->report->n_threads = threads == NULL ? 0 : (uint32_t)strtoul(threads + 9, NULL, 10);
}

/* Count a call that the kind can strike, made from `caller`; true when this is the one. */
static inline bool fault_strikes(struct fault *fault, const char *name, const void *caller)
{
    uint64_t call;

    if ((fault->own && ((uintptr_t)caller < fault->first || (uintptr_t)caller >= fault->last)) ||
        (fault->name[0] != '\0' && strcmp(fault->name, name) != 0))
        return false;
    call = __atomic_add_fetch(&fault->report->n_calls, 1, __ATOMIC_RELAXED);
    if (fault->nth != 0 && fault->nth != call)
        return false;
    __atomic_add_fetch(&fault->report->n_struck, 1, __ATOMIC_RELAXED);
    snprintf(fault->report->name, sizeof fault->report->name, "%s", name);
    return true;
}

#endif

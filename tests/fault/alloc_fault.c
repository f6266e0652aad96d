/* SPDX-License-Identifier: Apache-2.0 */
/* alloc_fault.c - preloaded into a program: its n-th allocation fails, also those of libraries. */
#include <errno.h>
#include <malloc.h>

#include "tests/fault/fault_priv.h"

/* glibc's own names of what is replaced here. */
void *__libc_malloc(size_t n_bytes);
void *__libc_calloc(size_t n_items, size_t item_bytes);
void *__libc_realloc(void *old, size_t n_bytes);
void *__libc_memalign(size_t alignment, size_t n_bytes);

static struct fault fault;

__attribute__((constructor)) static void start(void)
{
    fault_read_variable(&fault);
    if (strcmp(fault.kind, "nomem") != 0)
        fault.report = NULL; /* io_fault.c's */
}

__attribute__((destructor)) static void end(void)
{
    fault_count_open(&fault);
}

static bool fails_from(const char *name, const void *caller)
{
    if (fault.report == NULL || !fault_strikes(&fault, name, caller))
        return false;
    errno = ENOMEM;
    return true;
}

#define fails(name) fails_from(name, __builtin_return_address(0))

void *malloc(size_t n_bytes)
{
    return fails("malloc") ? NULL : __libc_malloc(n_bytes);
}

void *calloc(size_t n_items, size_t item_bytes)
{
    return fails("calloc") ? NULL : __libc_calloc(n_items, item_bytes);
}

void *realloc(void *old, size_t n_bytes)
{
    return fails("realloc") ? NULL : __libc_realloc(old, n_bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t n_bytes)
{
    void *got = fails("posix_memalign") ? NULL : __libc_memalign(alignment, n_bytes);

    if (got == NULL)
        return ENOMEM;
    *memory = got;
    return 0;
}

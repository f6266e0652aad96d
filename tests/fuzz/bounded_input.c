/* SPDX-License-Identifier: Apache-2.0 */
/* bounded_input.c - calls a fuzz target and counts what an input costs. */
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "tests/fuzz/bounded.h"

/* The linker (--wrap) puts the first in the second's place wherever that is called. */
int __wrap_LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);
int __real_LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static _Atomic int64_t live_bytes; /* of all blocks that were counted */
static _Atomic int64_t peak_bytes; /* since the input began */
static struct {
    size_t n_bytes;
    size_t limit_bytes;
    int64_t live_bytes; /* when it began */
    bool is_running;
} input;
static struct bounded_cost most;
__attribute__((weak)) size_t bounded_more_bytes;

struct bounded_cost bounded_most(void)
{
    return most;
}

/* Reports what passed its bound; allocates nothing, since an allocation may have called it. */
static void stop(const char *what, double took, double limit)
{
    char text[200];
    const int n = snprintf(text, sizeof text,
                           "bounded: an input of %zu bytes takes %.2f %s or more, the bound is "
                           "%.2f (tests/attacks/README.md)\n",
                           input.n_bytes, took, what, limit);

    if (write(STDERR_FILENO, text, (size_t)n) < 0)
        _exit(1);
    abort();
}

static void count_block(size_t n_bytes)
{
    const int64_t live = atomic_fetch_add(&live_bytes, (int64_t)n_bytes) + (int64_t)n_bytes;
    int64_t peak = atomic_load(&peak_bytes);

    while (live > peak && !atomic_compare_exchange_weak(&peak_bytes, &peak, live))
        ;
    if (input.is_running && live - input.live_bytes > (int64_t)input.limit_bytes)
        stop("MiB of memory", (double)(live - input.live_bytes) / 1048576,
             (double)input.limit_bytes / 1048576);
}

static void forget_block(size_t n_bytes)
{
    atomic_fetch_sub(&live_bytes, (int64_t)n_bytes);
}

#ifdef BOUNDED_IS_SANITIZED
/* sanitizer/allocator_interface.h, which gcc does not install. */
int __sanitizer_install_malloc_and_free_hooks(void (*malloc_hook)(const volatile void *, size_t),
                                              void (*free_hook)(const volatile void *));
size_t __sanitizer_get_allocated_size(const volatile void *block);

static void on_malloc(const volatile void *block, size_t n_bytes)
{
    (void)block;
    count_block(n_bytes);
}

static void on_free(const volatile void *block)
{
    if (block != NULL)
        forget_block(__sanitizer_get_allocated_size(block));
}

__attribute__((constructor)) static void start(void)
{
    if (__sanitizer_install_malloc_and_free_hooks(on_malloc, on_free) == 0)
        abort();
}
#else
/* glibc's own names of what is replaced here. */
void *__libc_malloc(size_t n_bytes);
void *__libc_calloc(size_t n_items, size_t item_bytes);
void *__libc_realloc(void *old, size_t n_bytes);
void *__libc_memalign(size_t alignment, size_t n_bytes);
void __libc_free(void *block);

static void *counted(void *block)
{
    if (block != NULL)
        count_block(malloc_usable_size(block));
    return block;
}

void *malloc(size_t n_bytes)
{
    return counted(__libc_malloc(n_bytes));
}

void *calloc(size_t n_items, size_t item_bytes)
{
    return counted(__libc_calloc(n_items, item_bytes));
}

void *realloc(void *old, size_t n_bytes)
{
    const size_t old_bytes = malloc_usable_size(old);
    void *block = __libc_realloc(old, n_bytes);

    if (block != NULL || n_bytes == 0)
        forget_block(old_bytes);
    return counted(block);
}

void *memalign(size_t alignment, size_t n_bytes)
{
    return counted(__libc_memalign(alignment, n_bytes));
}

void *aligned_alloc(size_t alignment, size_t n_bytes)
{
    return counted(__libc_memalign(alignment, n_bytes));
}

int posix_memalign(void **memory, size_t alignment, size_t n_bytes)
{
    void *block = counted(__libc_memalign(alignment, n_bytes));

    if (block == NULL)
        return ENOMEM;
    *memory = block;
    return 0;
}

void free(void *block)
{
    forget_block(malloc_usable_size(block));
    __libc_free(block);
}
#endif

static double processor_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int __wrap_LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    const double start_seconds = processor_seconds();
    const double limit_seconds =
        (BOUNDED_SECONDS + BOUNDED_SECONDS_A_BYTE * (double)n_bytes) * BOUNDED_TIMES;
    struct bounded_cost cost;
    int answer;

    input.n_bytes = n_bytes;
    input.limit_bytes = BOUNDED_BYTES + BOUNDED_BYTES_A_BYTE * n_bytes + bounded_more_bytes;
    input.live_bytes = atomic_load(&live_bytes);
    atomic_store(&peak_bytes, input.live_bytes);
    input.is_running = true;
    answer = __real_LLVMFuzzerTestOneInput(data, n_bytes);
    input.is_running = false;
    cost.n_bytes = (size_t)(atomic_load(&peak_bytes) - input.live_bytes);
    cost.seconds = processor_seconds() - start_seconds;
    if (cost.seconds > limit_seconds)
        stop("seconds", cost.seconds, limit_seconds);
    most.n_bytes = cost.n_bytes > most.n_bytes ? cost.n_bytes : most.n_bytes;
    most.seconds = cost.seconds > most.seconds ? cost.seconds : most.seconds;
    return answer;
}

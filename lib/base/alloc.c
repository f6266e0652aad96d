/* SPDX-License-Identifier: Apache-2.0 */
/* alloc.c - the heap, with a switch that makes the n-th allocation fail. */
#include "lib/base/alloc.h"
#include "lib/base/order.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY 8

static _Atomic uint64_t n_made;  /* allocations since the last dcpk_alloc_fail_nth */
static _Atomic uint64_t fail_at; /* the one of them that fails; 0: none */

uint64_t dcpk_alloc_fail_nth(uint64_t nth)
{
    const uint64_t made = atomic_exchange(&n_made, 0);

    atomic_store(&fail_at, nth);
    return made;
}

static bool must_fail(void)
{
    return atomic_fetch_add_explicit(&n_made, 1, memory_order_relaxed) + 1 ==
           atomic_load_explicit(&fail_at, memory_order_relaxed);
}

static void *no_memory(size_t n_bytes, struct dcpk_error *err)
{
    dcpk_fail(err, DCPK_ENOMEM, "out of memory: %zu bytes asked", n_bytes);
    return NULL;
}

void *dcpk_alloc(size_t n_bytes, struct dcpk_error *err)
{
    void *memory = NULL;

    if (!must_fail())
        memory = calloc(1, dcpk_max_size(n_bytes, 1));
    if (memory == NULL)
        return no_memory(n_bytes, err);
    return memory;
}

void *dcpk_alloc_uncounted(size_t n_bytes)
{
    return calloc(1, n_bytes);
}

void *dcpk_alloc_array(size_t n_items, size_t item_bytes, struct dcpk_error *err)
{
    size_t n_bytes;

    if (__builtin_mul_overflow(n_items, item_bytes, &n_bytes)) {
        dcpk_fail(err, DCPK_ENOMEM, "out of memory: %zu items of %zu bytes asked", n_items,
                  item_bytes);
        return NULL;
    }
    return dcpk_alloc(n_bytes, err);
}

void *dcpk_realloc(void *old, size_t n_bytes, struct dcpk_error *err)
{
    void *memory = NULL;

    if (!must_fail())
        memory = realloc(old, dcpk_max_size(n_bytes, 1));
    if (memory == NULL)
        return no_memory(n_bytes, err);
    return memory;
}

void *dcpk_alloc_aligned(size_t alignment, size_t n_bytes, struct dcpk_error *err)
{
    void *memory = NULL;

    assert(alignment != 0 && (alignment & (alignment - 1)) == 0);
    if (alignment < sizeof(void *))
        alignment = sizeof(void *); /* posix_memalign wants no less */
    if (must_fail() || posix_memalign(&memory, alignment, dcpk_max_size(n_bytes, 1)) != 0)
        return no_memory(n_bytes, err);
    return memory;
}

void dcpk_free(void *memory)
{
    free(memory);
}

dcpk_status dcpk_grow_full(void *items_address, size_t *capacity, size_t item_bytes,
                           struct dcpk_error *err)
{
    size_t more = FIRST_CAPACITY;
    size_t n_bytes;
    void *items;

    if (*capacity != 0 && __builtin_mul_overflow(*capacity, (size_t)2, &more))
        return dcpk_fail(err, DCPK_ENOMEM, "out of memory: more than %zu items asked", *capacity);
    if (__builtin_mul_overflow(more, item_bytes, &n_bytes))
        return dcpk_fail(err, DCPK_ENOMEM, "out of memory: %zu items of %zu bytes asked", more,
                         item_bytes);
    memcpy(&items, items_address, sizeof items); /* the array's pointer has its own type */
    items = dcpk_realloc(items, n_bytes, err);
    if (items == NULL)
        return err->status;
    memcpy(items_address, &items, sizeof items);
    *capacity = more;
    return DCPK_OK;
}

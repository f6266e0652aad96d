/* SPDX-License-Identifier: Apache-2.0 */
/* alloc.h - the only way to the heap, so that tests can make the n-th allocation fail. */
#ifndef DCPK_LIB_BASE_ALLOC_H
#define DCPK_LIB_BASE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"

/*
 * n_bytes of zeroed memory (never NULL for 0 bytes), or NULL with err set to DCPK_ENOMEM.
 * Owned by the caller; dcpk_free releases it. Aligned for any type.
 */
void *dcpk_alloc(size_t n_bytes, struct dcpk_error *err);
/* The same without an error, and never the allocation that a fault test lets fail: its failure
 * would show in later ones alone. */
void *dcpk_alloc_uncounted(size_t n_bytes);

/* An array of n_items; DCPK_ENOMEM also when the product overflows. */
void *dcpk_alloc_array(size_t n_items, size_t item_bytes, struct dcpk_error *err);

/*
 * Resize `old` (NULL: allocate) to n_bytes; bytes past the old size are undefined.
 * NULL and err on failure, `old` then stays valid.
 */
void *dcpk_realloc(void *old, size_t n_bytes, struct dcpk_error *err);

/* Memory aligned to `alignment` (a power of two), contents undefined. dcpk_free releases it. */
void *dcpk_alloc_aligned(size_t alignment, size_t n_bytes, struct dcpk_error *err);

/* Release the memory of the functions above; NULL is a no-op. */
void dcpk_free(void *memory);

/* The rest of dcpk_grow, for an array that is full. */
dcpk_status dcpk_grow_full(void *items_address, size_t *capacity, size_t item_bytes,
                           struct dcpk_error *err);
/*
 * Make room for one more item in a growing array: doubles *capacity when n_items has reached it.
 * items: address of the array's pointer (NULL at first). Returns DCPK_OK or DCPK_ENOMEM (array
 * unchanged). Inline: parsers ask before every value.
 */
static inline dcpk_status dcpk_grow(void *items_address, size_t *capacity, size_t n_items,
                                    size_t item_bytes, struct dcpk_error *err)
{
    if (n_items < *capacity)
        return DCPK_OK;
    return dcpk_grow_full(items_address, capacity, item_bytes, err);
}

/*
 * Fault tests only: let the n-th allocation from now on fail (1 = the next), once; 0 switches it
 * off. Returns how many allocations were made since the last call. The one piece of process-wide
 * state in lib/: an allocator that has to be handed through every call would cost more than it
 * gives.
 */
uint64_t dcpk_alloc_fail_nth(uint64_t nth);

#endif

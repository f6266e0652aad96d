/* SPDX-License-Identifier: Apache-2.0 */
/* map.h - text -> number, the one hash table. */
#ifndef DCPK_LIB_BASE_MAP_H
#define DCPK_LIB_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"

/*
 * Zeroed = empty. Keys are borrowed: they must outlive the map. Not thread-safe while it changes.
 * The hash has a key that the system draws for each process, so that a file cannot hold names that
 * were made to collide. It has no order: there is no walk over a map, and results do not depend on
 * it.
 */
struct dcpk_map {
    struct dcpk_map_item *items; /* in the order they came in */
    size_t n_items;
    size_t capacity;
    uint32_t *slots; /* number of an item + 1, 0: free */
    size_t n_slots;  /* a power of two, or 0 */
    uint64_t secret; /* of the hash; the same for all maps of a process */
};

/* Frees the table and empties the struct; the keys stay the caller's. */
void dcpk_map_release(struct dcpk_map *map);

/*
 * Make room for n_items in all. One that is known to become large is spared the copies of growing,
 * and takes no more than it needs: about 30 bytes an item, else up to 60.
 */
dcpk_status dcpk_map_reserve(struct dcpk_map *map, size_t n_items, struct dcpk_error *err);

/*
 * Insert key (n bytes, any content) -> value unless it is there.
 * found: value already stored under key, set when *existed becomes true. Average O(1).
 * Errors: DCPK_ENOMEM, DCPK_ERANGE past 2^32 - 1 items or bytes of a key; the map is as it was.
 */
dcpk_status dcpk_map_put(struct dcpk_map *map, const char *key, size_t n, uint64_t value,
                         bool *existed, uint64_t *found, struct dcpk_error *err);
/* The hash of n bytes with the key of this process, for other tables; seed: any number. */
uint64_t dcpk_map_hash(const void *data, size_t n, uint64_t seed);
/* False, *value untouched: not there. */
bool dcpk_map_get(const struct dcpk_map *map, const char *key, size_t n, uint64_t *value);

#endif

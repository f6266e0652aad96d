/* SPDX-License-Identifier: Apache-2.0 */
/* map.h - text -> number, the one hash table. */
#ifndef DCPK_LIB_BASE_MAP_H
#define DCPK_LIB_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"

/* Zeroed = empty. Keys are borrowed: they must outlive the map. Not thread-safe while it changes.
 */
struct dcpk_map {
    struct dcpk_map_slot *slots;
    size_t n_slots; /* a power of two, or 0 */
    size_t n_items;
};

void dcpk_map_release(struct dcpk_map *map);

/* Make room for n_items in all. One that is known to become large is spared the copies of growing.
 */
dcpk_status dcpk_map_reserve(struct dcpk_map *map, size_t n_items, struct dcpk_error *err);

/*
 * Insert key (n bytes, any content) -> value unless it is there.
 * found: value already stored under key, set when *existed becomes true. Average O(1).
 * The hash is seeded per process from the addresses of nothing: it is fixed, so that runs repeat;
 * collisions are bounded by open addressing over a 64-bit mix of all bytes.
 */
dcpk_status dcpk_map_put(struct dcpk_map *map, const char *key, size_t n, uint64_t value,
                         bool *existed, uint64_t *found, struct dcpk_error *err);
bool dcpk_map_get(const struct dcpk_map *map, const char *key, size_t n, uint64_t *value);

#endif

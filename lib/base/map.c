/* SPDX-License-Identifier: Apache-2.0 */
/* map.c - open addressing with linear probing, at most three quarters full. */
/* Most keys are a few dozen bytes: a call would be a third of their hash. */
#define XXH_INLINE_ALL
#include "lib/base/map.h"

#include <assert.h>
#include <string.h>
#include <sys/auxv.h>
#include <xxhash.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"

#define FIRST_SLOTS 16
#define FIRST_ITEMS 12 /* items for those */

/* 24 bytes, plus 4 for each slot: maps have one for each tensor, chunk or object. */
struct dcpk_map_item {
    const char *key;
    uint32_t n; /* length of the key */
    uint32_t hash;
    uint64_t value;
};

void dcpk_map_release(struct dcpk_map *map)
{
    dcpk_free(map->items);
    dcpk_free(map->slots);
    memset(map, 0, sizeof *map);
}

/* The bytes that getrandom would give at start, without a call that can fail: the kernel draws 16
 * bytes for each process (getauxval(3), AT_RANDOM). */
static uint64_t draw_secret(void)
{
    uint64_t words[2];

    memcpy(words, (const void *)(uintptr_t)getauxval(AT_RANDOM), sizeof words);
    return words[0] ^ words[1];
}

uint64_t dcpk_map_hash(const void *data, size_t n, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, n, draw_secret() ^ seed);
}

static uint32_t hash_of(const struct dcpk_map *map, const char *key, size_t n)
{
    return (uint32_t)XXH3_64bits_withSeed(key, n, map->secret);
}

/* The slot that holds key, or the free one where it belongs; there is always a free one. */
static uint32_t *probe(const struct dcpk_map *map, const char *key, size_t n, uint32_t hash)
{
    size_t at = hash & (map->n_slots - 1);

    for (;;) {
        uint32_t *slot = &map->slots[at];
        const struct dcpk_map_item *item;

        if (*slot == 0)
            return slot;
        item = &map->items[*slot - 1];
        if (item->hash == hash && item->n == n && memcmp(item->key, key, n) == 0)
            return slot;
        at = (at + 1) & (map->n_slots - 1);
    }
}

/* The items that are there, in a larger table of slots. */
static dcpk_status spread(struct dcpk_map *map, size_t n_slots, struct dcpk_error *err)
{
    uint32_t *slots = dcpk_alloc_array(n_slots, sizeof *slots, err);

    if (slots == NULL)
        return err->status;
    for (size_t i = 0; i < map->n_items; i++) {
        size_t at = map->items[i].hash & (n_slots - 1);

        while (slots[at] != 0)
            at = (at + 1) & (n_slots - 1);
        slots[at] = (uint32_t)i + 1;
    }
    dcpk_free(map->slots);
    map->slots = slots;
    map->n_slots = n_slots;
    return DCPK_OK;
}

dcpk_status dcpk_map_reserve(struct dcpk_map *map, size_t n_items, struct dcpk_error *err)
{
    size_t n_slots = map->n_slots;
    struct dcpk_map_item *items;

    if (n_items <= map->capacity)
        return DCPK_OK;
    if (n_items >= UINT32_MAX)
        return dcpk_fail(err, DCPK_ERANGE, "%zu names, the limit is %u", n_items, UINT32_MAX - 1);
    items = dcpk_realloc(map->items, n_items * sizeof *items, err);
    if (items == NULL)
        return err->status;
    map->items = items;
    while (n_items > n_slots - n_slots / 4)
        n_slots = dcpk_max_size(n_slots * 2, FIRST_SLOTS);
    if (n_slots != map->n_slots && spread(map, n_slots, err) != DCPK_OK)
        return err->status;
    if (map->capacity == 0)
        map->secret = draw_secret();
    map->capacity = n_items;
    return DCPK_OK;
}

dcpk_status dcpk_map_put(struct dcpk_map *map, const char *key, size_t n, uint64_t value,
                         bool *existed, uint64_t *found, struct dcpk_error *err)
{
    uint32_t *slot, hash;

    assert(key != NULL);
    if (n > UINT32_MAX)
        return dcpk_fail(err, DCPK_ERANGE, "a key of %zu bytes passes the limit of %u", n,
                         UINT32_MAX);
    if (map->n_items == map->capacity &&
        dcpk_map_reserve(map, dcpk_max_size(2 * map->capacity, FIRST_ITEMS), err) != DCPK_OK)
        return err->status;
    hash = hash_of(map, key, n);
    slot = probe(map, key, n, hash);
    *existed = *slot != 0;
    if (*existed) {
        *found = map->items[*slot - 1].value;
        return DCPK_OK;
    }
    map->items[map->n_items++] =
        (struct dcpk_map_item){.key = key, .n = (uint32_t)n, .hash = hash, .value = value};
    *slot = (uint32_t)map->n_items;
    return DCPK_OK;
}

bool dcpk_map_get(const struct dcpk_map *map, const char *key, size_t n, uint64_t *value)
{
    const uint32_t *slot;

    if (map->n_slots == 0 || n > UINT32_MAX)
        return false;
    slot = probe(map, key, n, hash_of(map, key, n));
    if (*slot == 0)
        return false;
    *value = map->items[*slot - 1].value;
    return true;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* map.c - open addressing with linear probing, at most three quarters full. */
#include "lib/base/map.h"

#include <assert.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/cursor.h"

#define FIRST_SLOTS 16

/* 24 bytes: a map has one a tensor or chunk. key NULL: free. */
struct dcpk_map_slot {
    const char *key;
    uint32_t n; /* length of the key */
    uint32_t hash;
    uint64_t value;
};

void dcpk_map_release(struct dcpk_map *map)
{
    dcpk_free(map->slots);
    memset(map, 0, sizeof *map);
}

/* The finalizer of MurmurHash3: every bit of x reaches every bit of the result. */
static uint64_t mix(uint64_t x)
{
    x ^= x >> 33;
    x *= UINT64_C(0xff51afd7ed558ccd);
    x ^= x >> 33;
    x *= UINT64_C(0xc4ceb9fe1a85ec53);
    return x ^ x >> 33;
}

static uint32_t hash_of(const char *key, size_t n)
{
    uint64_t hash = mix(n + UINT64_C(0x9e3779b97f4a7c15));
    uint8_t tail[8] = {0};

    for (; n >= sizeof tail; key += sizeof tail, n -= sizeof tail) {
        memcpy(tail, key, sizeof tail);
        hash = mix(hash ^ dcpk_load_u64le(tail)) + UINT64_C(0x9e3779b97f4a7c15);
    }
    memset(tail, 0, sizeof tail);
    if (n > 0)
        memcpy(tail, key, n);
    hash = mix(hash ^ dcpk_load_u64le(tail));
    return (uint32_t)(hash ^ hash >> 32);
}

/* The slot that holds key, or the free one where it belongs; there is always a free one. */
static struct dcpk_map_slot *probe(const struct dcpk_map *map, const char *key, size_t n,
                                   uint32_t hash)
{
    size_t at = hash & (map->n_slots - 1);

    for (;;) {
        struct dcpk_map_slot *slot = &map->slots[at];
        if (slot->key == NULL)
            return slot;
        if (slot->hash == hash && slot->n == n && memcmp(slot->key, key, n) == 0)
            return slot;
        at = (at + 1) & (map->n_slots - 1);
    }
}

dcpk_status dcpk_map_reserve(struct dcpk_map *map, size_t n_items, struct dcpk_error *err)
{
    struct dcpk_map bigger = {.n_items = map->n_items, .n_slots = map->n_slots};

    while (n_items > bigger.n_slots - bigger.n_slots / 4)
        bigger.n_slots = bigger.n_slots == 0 ? FIRST_SLOTS : bigger.n_slots * 2;
    if (bigger.n_slots == map->n_slots)
        return DCPK_OK;
    bigger.slots = dcpk_alloc_array(bigger.n_slots, sizeof *bigger.slots, err);
    if (bigger.slots == NULL)
        return err->status;
    for (size_t i = 0; i < map->n_slots; i++) {
        const struct dcpk_map_slot *old = &map->slots[i];
        if (old->key != NULL)
            *probe(&bigger, old->key, old->n, old->hash) = *old;
    }
    dcpk_free(map->slots);
    *map = bigger;
    return DCPK_OK;
}

dcpk_status dcpk_map_put(struct dcpk_map *map, const char *key, size_t n, uint64_t value,
                         bool *existed, uint64_t *found, struct dcpk_error *err)
{
    struct dcpk_map_slot *slot;
    uint32_t hash;

    assert(key != NULL);
    if (n > UINT32_MAX)
        return dcpk_fail(err, DCPK_ERANGE, "a key of %zu bytes passes the limit of %u", n,
                         UINT32_MAX);
    if (dcpk_map_reserve(map, map->n_items + 1, err) != DCPK_OK)
        return err->status;
    hash = hash_of(key, n);
    slot = probe(map, key, n, hash);
    *existed = slot->key != NULL;
    if (*existed) {
        *found = slot->value;
        return DCPK_OK;
    }
    *slot = (struct dcpk_map_slot){.key = key, .n = (uint32_t)n, .hash = hash, .value = value};
    map->n_items++;
    return DCPK_OK;
}

bool dcpk_map_get(const struct dcpk_map *map, const char *key, size_t n, uint64_t *value)
{
    const struct dcpk_map_slot *slot;

    if (map->n_slots == 0 || n > UINT32_MAX)
        return false;
    slot = probe(map, key, n, hash_of(key, n));
    if (slot->key == NULL)
        return false;
    *value = slot->value;
    return true;
}

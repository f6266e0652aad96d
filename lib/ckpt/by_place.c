/* SPDX-License-Identifier: Apache-2.0 */
/* by_place.c - a table of what was made of items, by their places. */
#include "lib/ckpt/by_place.h"

#define NO_VALUE UINT64_MAX /* no address of one */

struct key {
    uint64_t words[6]; /* file, offset and length of each; UINT64_MAX: none */
};

static void words_put_place(uint64_t words[3], const struct dcpk_place *place)
{
    static const struct dcpk_place none = {UINT32_MAX, UINT64_MAX, UINT64_MAX};

    if (place == NULL)
        place = &none;
    words[0] = place->file;
    words[1] = place->offset_bytes;
    words[2] = place->n_bytes;
}

static struct key table_key(const struct dcpk_place *a, const struct dcpk_place *b)
{
    struct key key;

    words_put_place(key.words, a);
    words_put_place(key.words + 3, b);
    return key;
}

static bool place_is_empty(const struct dcpk_place *place)
{
    return place != NULL && place->n_bytes == 0;
}

void dcpk_by_place_release(struct dcpk_by_place *t)
{
    dcpk_map_release(&t->map);
}

bool dcpk_by_place_get(const struct dcpk_by_place *t, const struct dcpk_place *a,
                       const struct dcpk_place *b, uint64_t *value)
{
    const struct key key = table_key(a, b);

    if (place_is_empty(a) || place_is_empty(b))
        return false;
    return dcpk_map_get(&t->map, (const char *)&key, sizeof key, value);
}

dcpk_status dcpk_by_place_put(struct dcpk_by_place *t, const struct dcpk_place *a,
                              const struct dcpk_place *b, uint64_t value, struct dcpk_error *err)
{
    struct key *key = dcpk_arena_alloc(t->arena, sizeof *key, err);
    bool existed;
    uint64_t found;

    if (key == NULL)
        return err->status;
    *key = table_key(a, b);
    return dcpk_map_put(&t->map, (const char *)key, sizeof *key, value, &existed, &found, err);
}

dcpk_status dcpk_by_place_load(struct dcpk_by_place *t, struct dcpk_checkpoint *ckpt,
                               const struct dcpk_object *object, const struct dcpk_value **value,
                               struct dcpk_error *err)
{
    const struct dcpk_value *loaded = NULL;
    struct dcpk_error failed = DCPK_ERROR_INIT;
    uint64_t found;

    if (!dcpk_by_place_get(t, &object->place, NULL, &found)) {
        found = NO_VALUE;
        if (dcpk_checkpoint_load_item(ckpt, object, t->arena, &loaded, &failed) == DCPK_OK)
            found = (uint64_t)(uintptr_t)loaded;
        if (dcpk_by_place_put(t, &object->place, NULL, found, err) != DCPK_OK)
            return err->status;
        if (failed.status != DCPK_OK)
            *err = failed;
    } else if (found == NO_VALUE) {
        dcpk_fail(err, DCPK_EFORMAT, "its item could not be read under another key");
    }
    if (found != NO_VALUE)
        *value = (const struct dcpk_value *)(uintptr_t)found;
    return err->status;
}

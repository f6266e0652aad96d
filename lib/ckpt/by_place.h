/* SPDX-License-Identifier: Apache-2.0 */
/* by_place.h - what was made of the items at a place before: keys may share an item. */
#ifndef DCPK_LIB_CKPT_BY_PLACE_H
#define DCPK_LIB_CKPT_BY_PLACE_H

#include "lib/ckpt/checkpoint.h"

/*
 * A table from places, or pairs of them, to a number or an address of the caller's. An item of n
 * bytes under m keys is input of n + m bytes: work done for each key would be n * m.
 * Zeroed with an arena (borrowed, of its keys) = empty.
 */
struct dcpk_by_place {
    struct dcpk_arena *arena;
    struct dcpk_map map;
};
void dcpk_by_place_release(struct dcpk_by_place *t); /* zeroed: a no-op */

/* a, b: NULL is a place of its own; places without bytes are never shared, as in overlaps.h. */
bool dcpk_by_place_get(const struct dcpk_by_place *t, const struct dcpk_place *a,
                       const struct dcpk_place *b, uint64_t *value);
/* Keeps what is there already. Errors: DCPK_ENOMEM. */
dcpk_status dcpk_by_place_put(struct dcpk_by_place *t, const struct dcpk_place *a,
                              const struct dcpk_place *b, uint64_t value, struct dcpk_error *err);

/* The value of an object, read into the table's arena the first time; of a table for this alone.
 * Errors: those of dcpk_checkpoint_load_item. */
dcpk_status dcpk_by_place_load(struct dcpk_by_place *t, struct dcpk_checkpoint *ckpt,
                               const struct dcpk_object *object, const struct dcpk_value **value,
                               struct dcpk_error *err);

#endif

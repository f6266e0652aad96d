/* SPDX-License-Identifier: Apache-2.0 */
/* overlaps.h - items by their bytes in files: finds equal places, overlaps, and the earlier result
 * for an item. */
#ifndef DCPK_LIB_CKPT_OVERLAPS_H
#define DCPK_LIB_CKPT_OVERLAPS_H

#include "lib/base/map.h"
#include "lib/tensor/piece.h"

struct dcpk_checkpoint;
struct dcpk_object;
struct dcpk_place;
struct dcpk_value;

/*
 * Mark aliases: is_alias[i] is set for chunk i, is_alias[n_chunks + i] for object i, for all but
 * one of the items that have the same place: the first weight's chunk (lib/ckpt/content.h), else
 * the first chunk, else the first object. is_alias: n_chunks + n_objects of them, false when
 * called.
 */
dcpk_status dcpk_find_aliases(const struct dcpk_checkpoint *ckpt, bool *is_alias,
                              struct dcpk_error *err);

/*
 * No two items share bytes of a file, except exact aliases. DCPK_EFORMAT names the two that do.
 * O(n log n).
 */
dcpk_status dcpk_check_overlaps(const struct dcpk_checkpoint *ckpt, struct dcpk_error *err);

/*
 * True if tensors a and b (or views) consist of the same bytes: one dtype, the same boxes at the
 * same places in the same order. Chunks without bytes (left out by zarr) have no place to share.
 */
bool dcpk_tensors_are_aliases(const struct dcpk_checkpoint *ckpt, uint32_t a, uint32_t b);

/* True if two lists of pieces put the same bytes in the same places. A fill has no bytes to
 * share. */
bool dcpk_pieces_are_aliases(const struct dcpk_checkpoint *ckpt, const struct dcpk_piece *a,
                             size_t n_a, const struct dcpk_piece *b, size_t n_b);

/* ---- a table by place ---- */

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

/* a, b: NULL is a place of its own; places without bytes are never shared, as above. */
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

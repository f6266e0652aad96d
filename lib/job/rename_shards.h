/* SPDX-License-Identifier: Apache-2.0 */
/* rename_shards.h - shards of tensors in memory under the names of another format. */
#ifndef DCPK_LIB_JOB_RENAME_SHARDS_H
#define DCPK_LIB_JOB_RENAME_SHARDS_H

#include "lib/job/feed_views.h"

/* Shards in the arena. */
struct dcpk_renamed {
    struct dcpk_arena *arena;
    bool are_targets;          /* else sources */
    struct dcpk_shard *shards; /* owned by the caller: dcpk_free */
    size_t n, capacity;
    struct dcpk_shard *zeros; /* the same, of targets: boxes that no source has, to be 0 */
    size_t n_zeros, zeros_capacity;
};

/*
 * Append to `made` the boxes of `shards` as boxes of the tensors of `to`, in the same memory. Two
 * lists of views of one checkpoint: a shard's name and box are of a tensor of `from`; the stored
 * elements that its pieces take are looked for in the pieces of `to`. Elements of sources that `to`
 * lacks are left out, padding of both; whether targets are covered is for the plan to find. Only
 * boxes are looked at: a cast between the two is the remap's. Lines that take turns in a tensor are
 * boxes of every second one (struct dcpk_out_tensor, written_shape).
 * Errors, naming the tensor: DCPK_EMISMATCH for a name or a shape that `from` lacks;
 * DCPK_EUNSUPPORTED for elements that are not a box of a stored tensor (optimizer state in
 * buckets), for quantised ones, for targets that are computed, and for a box that has one line of
 * two that take turns; DCPK_ENOMEM.
 */
dcpk_status dcpk_rename_shards(const struct dcpk_feed_views *from, const struct dcpk_feed_views *to,
                               const struct dcpk_shard *shards, size_t n, struct dcpk_renamed *made,
                               struct dcpk_error *err);

#endif

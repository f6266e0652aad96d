/* SPDX-License-Identifier: Apache-2.0 */
/* shard.h - a box of a tensor in one rank's memory, and shards as bytes for other ranks. */
#ifndef DCPK_LIB_PLACE_SHARD_H
#define DCPK_LIB_PLACE_SHARD_H

#include <stdbool.h>

#include "lib/base/bytes.h"
#include "lib/base/cursor.h"
#include "lib/tensor/box.h"
#include "lib/tensor/dtype.h"

/*
 * A rank without the tensor lists none; replicas are equal boxes on several ranks; what does not
 * lie in one strided region is several shards. Everything is borrowed.
 */
struct dcpk_shard {
    const char *name; /* of the tensor, the same on all ranks */
    enum dcpk_dtype dtype;
    int rank; /* of the tensor: axes */
    int holder;
    const int64_t *shape;        /* of the whole tensor */
    const int64_t *span;         /* the box, packed */
    const int64_t *stride_bytes; /* of each axis in memory */
    uint64_t at;                 /* of the box's first element, in the holder's addresses */
    uint32_t memory;             /* an allocation of the holder's, where ranks map these */
};
#define DCPK_NO_MEMORY UINT32_MAX

/* True if its box has no elements. */
bool dcpk_shard_is_empty(const struct dcpk_shard *shard);
/* Bytes of its elements. */
uint64_t dcpk_shard_bytes(const struct dcpk_shard *shard);
/* Address of an element of its box, by the element's index in the tensor. */
uint64_t dcpk_shard_address(const struct dcpk_shard *shard, const int64_t *index);
/* The bytes of a shard that is not empty lie in [*first, *first + *n_bytes). */
void dcpk_shard_range(const struct dcpk_shard *shard, uint64_t *first, uint64_t *n_bytes);

/* "rank 2: 'name' [0:4, 8:16]" into text, of n bytes. Returns text. */
const char *dcpk_shard_format(const struct dcpk_shard *shard, char *text, size_t n);
#define DCPK_SHARD_TEXT 512

/* Appends n shards for ranks of the same program. `out` has a multiple of 8 bytes, before and
 * after. Errors: DCPK_EUNSUPPORTED for more than DCPK_MAX_RANK axes. */
dcpk_status dcpk_shards_put(struct dcpk_bytes *out, const struct dcpk_shard *shards, size_t n,
                            struct dcpk_error *err);

/*
 * Reads the next list that `holder` put, into `shards` (NULL: none are set); they borrow the
 * cursor's bytes, which begin at a multiple of 8. *n: how many there are. Sizes are at least 0, and
 * no shard passes the address space; a plan checks boxes. Errors: DCPK_EIO for what no rank puts.
 */
dcpk_status dcpk_shards_take(struct dcpk_cursor *from, int holder, struct dcpk_shard *shards,
                             size_t *n, struct dcpk_error *err);
/* The error of a list that cannot be. */
dcpk_status dcpk_shards_fail(int holder, struct dcpk_error *err);

#endif

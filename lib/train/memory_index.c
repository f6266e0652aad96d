/* SPDX-License-Identifier: Apache-2.0 */
/* memory_index.c - the shards of all ranks as tensors and their parts. */
/*
 * A box that several ranks hold (data-parallel copies, norms of tensor-parallel ranks) is a part of
 * the first of them.
 */
#include "lib/train/memory_index.h"

#include <string.h>

#define PLACE_BYTES UINT64_C(64) /* shards begin at multiples of it */

/* An index under construction. */
struct indexing {
    struct dcpk_memory_index *index;
    struct dcpk_arena *arena;
    struct dcpk_map tensors; /* name -> number */
    struct dcpk_map parts;   /* number of the tensor, span -> nothing */
};

static uint64_t place_bytes(const struct dcpk_shard *shard)
{
    return (dcpk_shard_bytes(shard) + PLACE_BYTES - 1) / PLACE_BYTES * PLACE_BYTES;
}

uint64_t dcpk_memory_bytes(const struct dcpk_shard *shards, size_t n)
{
    uint64_t n_bytes = 0;

    for (size_t i = 0; i < n; i++)
        n_bytes += place_bytes(&shards[i]);
    return n_bytes;
}

bool dcpk_memory_name(const char *name, enum dcpk_role *role, const char **param)
{
    for (int r = 0; r < DCPK_N_ROLES; r++) {
        const char *role_name = dcpk_role_name((enum dcpk_role)r);
        const size_t n = strlen(role_name);

        if (strncmp(name, role_name, n) == 0 && name[n] == '.') {
            *role = (enum dcpk_role)r;
            *param = name + n + 1;
            return true;
        }
    }
    return false;
}

static dcpk_status index_find_tensor(struct indexing *in, const struct dcpk_shard *shard,
                                     uint32_t *number, struct dcpk_error *err)
{
    struct dcpk_memory_index *index = in->index;
    struct dcpk_memory_tensor *tensor = &index->tensors[index->n_tensors];
    const struct dcpk_shard *first;
    uint64_t found = index->n_tensors;
    bool existed;

    if (dcpk_map_put(&in->tensors, shard->name, strlen(shard->name), found, &existed, &found, err))
        return err->status;
    *number = (uint32_t)found;
    if (!existed) {
        index->n_tensors++;
        tensor->shard = shard;
        if (!dcpk_memory_name(shard->name, &tensor->role, &tensor->param))
            return dcpk_shards_fail(shard->holder, err);
        return DCPK_OK;
    }
    tensor = &index->tensors[found];
    first = tensor->shard;
    if (first->dtype != shard->dtype ||
        !dcpk_shape_equal(first->shape, first->rank, shard->shape, shard->rank))
        return dcpk_fail(err, DCPK_EMISMATCH, "ranks differ in the shape or dtype of '%s' (%s)",
                         tensor->param, dcpk_role_name(tensor->role));
    return DCPK_OK;
}

/* Makes it a part unless another rank's, or an earlier one, is the same. */
static dcpk_status index_add_part(struct indexing *in, const struct dcpk_shard *shard,
                                  struct dcpk_error *err)
{
    struct dcpk_memory_index *index = in->index;
    const size_t n = 1 + 2 * (size_t)shard->rank;
    int64_t *key = dcpk_arena_array(in->arena, n, sizeof *key, err);
    struct dcpk_memory_part part = {.shard = shard};
    uint64_t found;
    bool existed;

    if (key == NULL || index_find_tensor(in, shard, &part.tensor, err))
        return err->status;
    key[0] = part.tensor;
    memcpy(key + 1, shard->span, (n - 1) * sizeof *key);
    if (dcpk_map_put(&in->parts, (const char *)key, n * sizeof *key, 0, &existed, &found, err))
        return err->status;
    if (existed)
        return DCPK_OK;
    part.offset_bytes = index->owned_bytes[shard->holder];
    index->owned_bytes[shard->holder] += place_bytes(shard);
    index->tensors[part.tensor].n_parts++;
    index->parts[index->n_parts++] = part;
    return DCPK_OK;
}

/* Takes the shards of all ranks out of the text, which has been counted or not. */
static dcpk_status index_take(const struct dcpk_memory_index *index, struct dcpk_shard *shards,
                              size_t *n, struct dcpk_error *err)
{
    struct dcpk_cursor from;
    size_t n_here;

    *n = 0;
    dcpk_cursor_init(&from, index->text.data, index->text.n_bytes, 0);
    for (int r = 0; r < index->n_ranks; r++, *n += n_here)
        if (dcpk_shards_take(&from, r, shards != NULL ? shards + *n : NULL, &n_here, err))
            return err->status;
    return DCPK_OK;
}

static dcpk_status index_make(struct indexing *in, struct dcpk_error *err)
{
    struct dcpk_memory_index *index = in->index;
    struct dcpk_shard *shards;
    size_t n;

    if (index_take(index, NULL, &n, err))
        return err->status;
    shards = dcpk_arena_array(in->arena, n, sizeof *shards, err);
    index->tensors = dcpk_arena_array(in->arena, n, sizeof *index->tensors, err);
    index->parts = dcpk_arena_array(in->arena, n, sizeof *index->parts, err);
    index->owned_bytes =
        dcpk_arena_array(in->arena, (size_t)index->n_ranks, sizeof *index->owned_bytes, err);
    if (err->status != DCPK_OK || index_take(index, shards, &n, err))
        return err->status;
    for (size_t i = 0; i < n; i++)
        if (index_add_part(in, &shards[i], err))
            return err->status;
    return DCPK_OK;
}

dcpk_status dcpk_memory_index_gather(struct dcpk_ranks *ranks, const struct dcpk_shard *shards,
                                     size_t n, struct dcpk_arena *arena,
                                     struct dcpk_memory_index *index, struct dcpk_error *err)
{
    struct indexing in = {.index = index, .arena = arena};
    struct dcpk_bytes mine = {0};
    dcpk_status st = dcpk_shards_put(&mine, shards, n, err);

    index->n_ranks = dcpk_ranks_count(ranks);
    if (st == DCPK_OK)
        st = dcpk_bytes_status(&mine, err);
    st = dcpk_ranks_share(ranks, mine.data, mine.n_bytes, &index->text, st, err);
    dcpk_bytes_release(&mine);
    if (st == DCPK_OK)
        st = index_make(&in, err);
    dcpk_map_release(&in.tensors);
    dcpk_map_release(&in.parts);
    return st;
}

void dcpk_memory_index_release(struct dcpk_memory_index *index)
{
    dcpk_bytes_release(&index->text);
}

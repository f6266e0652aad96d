/* SPDX-License-Identifier: Apache-2.0 */
/* memory_index.c - the shards of all ranks as one text, and what it shows. */
/*
 *   for each rank:   n shards | shard | shard | ... | time of its making, in ns
 *   shard:           length of the name | name | role | dtype | rank | shape | offsets | extents
 *
 * All numbers are of 64 bits. The time is not read: it keeps a save from the journal of another one
 * (lib/write/journal.h), whose shards may look the same. A box that several ranks hold
 * (data-parallel copies, norms of tensor-parallel ranks) is a part of the first of them.
 */
#include "lib/train/memory_index.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define PLACE_BYTES UINT64_C(64) /* shards begin at multiples of it */
#define KEY_BYTES   512

/* Where reading is. */
struct index_reader {
    struct dcpk_cursor cursor;
    struct dcpk_arena *arena;
    struct dcpk_memory_index *index;
    struct dcpk_map tensors; /* "<role> <name>" -> number */
    struct dcpk_map parts;   /* "<tensor> <box>" -> number */
    uint64_t found;          /* of the last text that was entered */
    bool existed;
};

static uint64_t place_bytes(uint64_t n_bytes)
{
    return (n_bytes + PLACE_BYTES - 1) / PLACE_BYTES * PLACE_BYTES;
}

uint64_t dcpk_memory_bytes(const struct dcpk_memory_shard *shards, size_t n)
{
    uint64_t n_bytes = 0;

    for (size_t i = 0; i < n; i++) {
        uint64_t of_shard = dcpk_dtype_bytes(shards[i].dtype);

        for (int a = 0; a < shards[i].rank; a++)
            of_shard *= (uint64_t)shards[i].box.extent[a];
        n_bytes += place_bytes(of_shard);
    }
    return n_bytes;
}

static void index_put_shard(struct dcpk_bytes *text, const struct dcpk_memory_shard *shard)
{
    const size_t n = strlen(shard->param);

    assert(shard->rank >= 1 && shard->rank <= DCPK_MEMORY_RANK && shard->box.rank == shard->rank);
    dcpk_bytes_u64(text, n);
    dcpk_bytes_put(text, shard->param, n);
    dcpk_bytes_u64(text, (uint64_t)shard->role);
    dcpk_bytes_u64(text, (uint64_t)shard->dtype);
    dcpk_bytes_u64(text, (uint64_t)shard->rank);
    for (int a = 0; a < shard->rank; a++) {
        dcpk_bytes_u64(text, (uint64_t)shard->shape[a]);
        dcpk_bytes_u64(text, (uint64_t)shard->box.offset[a]);
        dcpk_bytes_u64(text, (uint64_t)shard->box.extent[a]);
    }
}

dcpk_status dcpk_memory_index_gather(struct dcpk_ranks *ranks,
                                     const struct dcpk_memory_shard *shards, size_t n,
                                     struct dcpk_bytes *text, struct dcpk_error *err)
{
    struct dcpk_bytes mine = {0};
    struct timespec now = {0};
    dcpk_status st;

    clock_gettime(CLOCK_REALTIME, &now);
    dcpk_bytes_u64(&mine, n);
    for (size_t i = 0; i < n; i++)
        index_put_shard(&mine, &shards[i]);
    dcpk_bytes_u64(&mine, (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec);
    st = dcpk_bytes_status(&mine, err);
    st = dcpk_ranks_share(ranks, mine.data, mine.n_bytes, text, st, err);
    dcpk_bytes_release(&mine);
    return st;
}

/* The next number, from `least` to `most`. */
static dcpk_status index_take(struct index_reader *r, uint64_t least, uint64_t most,
                              uint64_t *number, struct dcpk_error *err)
{
    if (dcpk_cursor_u64(&r->cursor, number, err) != DCPK_OK)
        return err->status;
    if (*number < least || *number > most)
        return dcpk_fail(err, DCPK_EFORMAT, "a list of shards is damaged");
    return DCPK_OK;
}

static dcpk_status index_take_axes(struct index_reader *r, struct dcpk_memory_shard *shard,
                                   struct dcpk_error *err)
{
    for (int a = 0; a < shard->rank; a++) {
        uint64_t shape, offset, extent;

        if (index_take(r, 0, INT64_MAX, &shape, err) || index_take(r, 0, shape, &offset, err) ||
            index_take(r, 0, shape - offset, &extent, err))
            return err->status;
        shard->shape[a] = (int64_t)shape;
        shard->box.offset[a] = (int64_t)offset;
        shard->box.extent[a] = (int64_t)extent;
    }
    return DCPK_OK;
}

static dcpk_status index_take_shard(struct index_reader *r, struct dcpk_memory_shard *shard,
                                    struct dcpk_error *err)
{
    uint64_t n, role, dtype, rank;
    const uint8_t *name;

    if (index_take(r, 0, KEY_BYTES / 2, &n, err) ||
        dcpk_cursor_bytes(&r->cursor, (size_t)n, &name, err) ||
        index_take(r, 0, DCPK_N_ROLES - 1, &role, err) ||
        index_take(r, 1, DCPK_N_DTYPES - 1, &dtype, err) ||
        index_take(r, 1, DCPK_MEMORY_RANK, &rank, err))
        return err->status;
    *shard = (struct dcpk_memory_shard){.role = (enum dcpk_role)role,
                                        .dtype = (enum dcpk_dtype)dtype,
                                        .rank = (int)rank,
                                        .box.rank = (int)rank};
    shard->param = dcpk_arena_strndup(r->arena, (const char *)name, (size_t)n, err);
    if (shard->param == NULL)
        return err->status;
    return index_take_axes(r, shard, err);
}

/* Enter a text as `number`, unless it is there: r->existed, and r->found is the number it has. */
static dcpk_status index_enter(struct index_reader *r, struct dcpk_map *map, const char *key,
                               uint64_t number, struct dcpk_error *err)
{
    const char *copy = dcpk_arena_strdup(r->arena, key, err);

    r->found = number;
    if (copy == NULL)
        return err->status;
    return dcpk_map_put(map, copy, strlen(copy), number, &r->existed, &r->found, err);
}

static dcpk_status index_find_tensor(struct index_reader *r, const struct dcpk_memory_shard *shard,
                                     uint32_t *number, struct dcpk_error *err)
{
    struct dcpk_memory_index *index = r->index;
    const struct dcpk_memory_tensor *tensor;
    char key[KEY_BYTES];

    snprintf(key, sizeof key, "%d %s", (int)shard->role, shard->param);
    if (index_enter(r, &r->tensors, key, index->n_tensors, err) != DCPK_OK)
        return err->status;
    tensor = &index->tensors[r->found];
    *number = (uint32_t)r->found;
    if (!r->existed) {
        index->tensors[index->n_tensors] = (struct dcpk_memory_tensor){
            .param = shard->param, .role = shard->role, .dtype = shard->dtype, .rank = shard->rank};
        memcpy(index->tensors[index->n_tensors++].shape, shard->shape, sizeof shard->shape);
        return DCPK_OK;
    }
    if (tensor->dtype != shard->dtype ||
        !dcpk_shape_equal(tensor->shape, tensor->rank, shard->shape, shard->rank))
        return dcpk_fail(err, DCPK_EMISMATCH, "ranks differ in the shape or dtype of '%s' (%s)",
                         shard->param, dcpk_role_name(shard->role));
    return DCPK_OK;
}

/* Make it a part unless another rank's, or an earlier one, is the same. */
static dcpk_status index_add_part(struct index_reader *r, const struct dcpk_memory_shard *shard,
                                  int owner, size_t number, struct dcpk_error *err)
{
    struct dcpk_memory_index *index = r->index;
    struct dcpk_memory_part *part = &index->parts[index->n_parts];
    char key[KEY_BYTES], box[KEY_BYTES / 2];
    int64_t *span, n_elems;

    *part = (struct dcpk_memory_part){.owner = owner, .shard = number};
    if (index_find_tensor(r, shard, &part->tensor, err) ||
        dcpk_box_count(&shard->box, &n_elems, err))
        return err->status;
    snprintf(key, sizeof key, "%u %s", part->tensor, dcpk_box_format(&shard->box, box, sizeof box));
    if (index_enter(r, &r->parts, key, index->n_parts, err) != DCPK_OK)
        return err->status;
    if (r->existed)
        return DCPK_OK;
    span = dcpk_arena_array(r->arena, 2 * (size_t)shard->rank, sizeof *span, err);
    if (span == NULL)
        return err->status;
    dcpk_box_pack(&shard->box, span);
    part->span = span;
    part->n_bytes = (uint64_t)n_elems * dcpk_dtype_bytes(shard->dtype);
    part->offset_bytes = index->owned_bytes[owner];
    index->owned_bytes[owner] += place_bytes(part->n_bytes);
    index->tensors[part->tensor].n_parts++;
    index->n_parts++;
    return DCPK_OK;
}

static dcpk_status index_take_rank(struct index_reader *r, int owner, struct dcpk_error *err)
{
    struct dcpk_memory_shard shard;
    uint64_t n, time_ns;

    if (index_take(r, 0, r->cursor.n_bytes, &n, err) != DCPK_OK)
        return err->status;
    for (size_t i = 0; i < n; i++)
        if (index_take_shard(r, &shard, err) || index_add_part(r, &shard, owner, i, err))
            return err->status;
    return dcpk_cursor_u64(&r->cursor, &time_ns, err);
}

#define LEAST_SHARD_BYTES (7 * sizeof(uint64_t)) /* of one without a name and of rank 1 */

dcpk_status dcpk_memory_index_read(const void *text, size_t n_bytes, int n_ranks,
                                   struct dcpk_arena *arena, struct dcpk_memory_index *index,
                                   struct dcpk_error *err)
{
    const size_t most = n_bytes / LEAST_SHARD_BYTES + 1;
    struct dcpk_memory_index made = {.n_ranks = n_ranks};
    struct index_reader r = {.arena = arena, .index = &made};
    dcpk_status st = DCPK_OK;

    dcpk_cursor_init(&r.cursor, text, n_bytes, 0);
    if ((made.tensors = dcpk_arena_array(arena, most, sizeof *made.tensors, err)) == NULL ||
        (made.parts = dcpk_arena_array(arena, most, sizeof *made.parts, err)) == NULL ||
        (made.owned_bytes =
             dcpk_arena_array(arena, (size_t)n_ranks, sizeof *made.owned_bytes, err)) == NULL)
        return err->status;
    for (int rank = 0; rank < n_ranks && st == DCPK_OK; rank++)
        st = index_take_rank(&r, rank, err);
    dcpk_map_release(&r.tensors);
    dcpk_map_release(&r.parts);
    if (st == DCPK_OK)
        *index = made;
    return st;
}

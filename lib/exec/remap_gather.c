/* SPDX-License-Identifier: Apache-2.0 */
/* remap_gather.c - every rank learns the shards of all, and whose memory it can map. */
/*
 * The message of a rank to the others, in the byte order of the machine:
 *
 *     n ids of its allocations | ids | sources | targets (lists of lib/place/shard.h)
 */
#include <stdio.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/exec/remap_inside.h"

/* The memories of this rank so far. */
struct exports {
    struct dcpk_device *device;
    struct dcpk_memory_id *ids; /* owned */
    size_t n, capacity, latest;
    char *note;
    size_t note_bytes;
};

static bool id_holds(const struct dcpk_memory_id *id, uint64_t first, uint64_t n_bytes)
{
    return first >= id->base && n_bytes <= id->n_bytes && first - id->base <= id->n_bytes - n_bytes;
}

/* Finds or exports the memory of a shard. Memory that cannot be shared has no export, and a note
 * gives the reason. */
static dcpk_status export_shard(struct exports *e, struct dcpk_shard *shard, struct dcpk_error *err)
{
    struct dcpk_error why = DCPK_ERROR_INIT;
    uint64_t first, n_bytes;
    dcpk_status st;

    shard->memory = DCPK_NO_MEMORY;
    if (dcpk_shard_is_empty(shard))
        return DCPK_OK;
    dcpk_shard_range(shard, &first, &n_bytes);
    for (size_t i = 0; i < e->n; i++) {
        const size_t at = (e->latest + i) % e->n; /* neighbours mostly lie together */

        if (!id_holds(&e->ids[at], first, n_bytes))
            continue;
        shard->memory = (uint32_t)(e->latest = at);
        return DCPK_OK;
    }
    if (dcpk_grow(&e->ids, &e->capacity, e->n, sizeof *e->ids, err))
        return err->status;
    st = e->device->ops->export_memory(e->device, (const void *)(uintptr_t)first, (size_t)n_bytes,
                                       &e->ids[e->n], &why);
    if (st == DCPK_OK)
        shard->memory = (uint32_t)(e->latest = e->n++);
    else if (st == DCPK_EUNSUPPORTED)
        snprintf(e->note, e->note_bytes, "%s", why.text);
    else
        *err = why;
    return st == DCPK_EUNSUPPORTED ? DCPK_OK : st;
}

static dcpk_status put_shards(struct exports *e, const struct dcpk_shard *shards, size_t n,
                              struct dcpk_bytes *out, struct dcpk_error *err)
{
    struct dcpk_shard *mine = dcpk_alloc_array(n, sizeof *mine, err);
    dcpk_status st = err->status;

    for (size_t i = 0; i < n && st == DCPK_OK; i++) {
        mine[i] = shards[i];
        st = export_shard(e, &mine[i], err);
    }
    if (st == DCPK_OK)
        st = dcpk_shards_put(out, mine, n, err);
    dcpk_free(mine);
    return st;
}

/* Puts this rank's message to the others together. */
static dcpk_status put_mine(struct dcpk_remap *remap, const struct dcpk_remap_shards *mine,
                            struct dcpk_bytes *out, struct dcpk_error *err)
{
    struct exports e = {
        .device = remap->options.device, .note = remap->note, .note_bytes = sizeof remap->note};
    struct dcpk_bytes shards = {0};
    dcpk_status st;

    st = put_shards(&e, mine->sources, mine->n_sources, &shards, err);
    if (st == DCPK_OK)
        st = put_shards(&e, mine->targets, mine->n_targets, &shards, err);
    if (st == DCPK_OK)
        st = dcpk_bytes_status(&shards, err);
    if (st == DCPK_OK) {
        dcpk_bytes_u64(out, e.n);
        dcpk_bytes_put(out, e.ids, e.n * sizeof *e.ids);
        dcpk_bytes_put(out, shards.data, shards.n_bytes);
        st = dcpk_bytes_status(out, err);
    }
    dcpk_bytes_release(&shards);
    dcpk_free(e.ids);
    return st;
}

/* Position in the messages of the ranks: offsets given by those before. */
struct taking {
    struct dcpk_cursor from;
    size_t n_memories, n_sources, n_targets;
};

/* The next rank's allocations. */
static dcpk_status take_memories(struct taking *t, struct dcpk_remap *remap, int holder, size_t *n,
                                 struct dcpk_error *err)
{
    struct dcpk_memory_id id;
    const uint8_t *bytes;
    uint64_t n_ids = 0;

    if (dcpk_cursor_u64(&t->from, &n_ids, err) || n_ids > t->from.n_bytes / sizeof id ||
        dcpk_cursor_bytes(&t->from, (size_t)n_ids * sizeof id, &bytes, err))
        return dcpk_shards_fail(holder, err);
    for (size_t i = 0; i < n_ids && remap->memories != NULL; i++) {
        memcpy(&id, bytes + i * sizeof id, sizeof id);
        remap->memories[t->n_memories + i] = (struct remap_memory){.holder = holder, .id = id};
    }
    *n = (size_t)n_ids;
    return DCPK_OK;
}

/* Gives shards the memories of all ranks; *shards, n of them, NULL: they are not kept. */
static dcpk_status number_memories(const struct taking *t, const struct dcpk_remap *remap,
                                   size_t n_ids, struct dcpk_shard *shards, size_t n,
                                   struct dcpk_error *err)
{
    for (size_t i = 0; i < n && shards != NULL; i++) {
        uint64_t first, n_bytes;

        if (shards[i].memory == DCPK_NO_MEMORY)
            continue;
        dcpk_shard_range(&shards[i], &first, &n_bytes);
        if (shards[i].memory >= n_ids ||
            !id_holds(&remap->memories[t->n_memories + shards[i].memory].id, first, n_bytes))
            return dcpk_shards_fail(shards[i].holder, err);
        shards[i].memory += (uint32_t)t->n_memories;
    }
    return DCPK_OK;
}

/* The next rank's part. Counts alone where the arrays of the remap are not there yet. */
static dcpk_status take_rank(struct taking *t, struct dcpk_remap *remap, int holder,
                             struct dcpk_error *err)
{
    struct dcpk_shard *sources = NULL, *targets = NULL;
    size_t n_ids, n_sources, n_targets;

    if (remap->targets != NULL) {
        sources = remap->sources + t->n_sources;
        targets = remap->targets + t->n_targets;
    }
    if (take_memories(t, remap, holder, &n_ids, err) ||
        dcpk_shards_take(&t->from, holder, sources, &n_sources, err) ||
        dcpk_shards_take(&t->from, holder, targets, &n_targets, err) ||
        number_memories(t, remap, n_ids, sources, n_sources, err) ||
        number_memories(t, remap, n_ids, targets, n_targets, err))
        return err->status;
    t->n_memories += n_ids;
    t->n_sources += n_sources;
    t->n_targets += n_targets;
    return DCPK_OK;
}

static dcpk_status take_gathered(struct dcpk_remap *remap, struct dcpk_error *err)
{
    struct taking t = {.n_memories = 0};

    dcpk_cursor_init(&t.from, remap->gathered.data, remap->gathered.n_bytes, 0);
    for (int r = 0; r < remap->n_ranks; r++)
        if (take_rank(&t, remap, r, err))
            return err->status;
    remap->n_memories = t.n_memories;
    remap->n_sources = t.n_sources;
    remap->n_targets = t.n_targets;
    return DCPK_OK;
}

static dcpk_status make_arrays(struct dcpk_remap *remap, struct dcpk_error *err)
{
    struct dcpk_arena *arena = remap->arena;

    remap->memories = dcpk_arena_array(arena, remap->n_memories, sizeof *remap->memories, err);
    if (remap->memories != NULL)
        remap->sources = dcpk_arena_array(arena, remap->n_sources, sizeof *remap->sources, err);
    if (remap->sources != NULL)
        remap->targets = dcpk_arena_array(arena, remap->n_targets, sizeof *remap->targets, err);
    return err->status;
}

dcpk_status dcpk_remap_gather(struct dcpk_remap *remap, const struct dcpk_remap_shards *mine,
                              struct dcpk_error *err)
{
    struct dcpk_bytes own = {0};
    dcpk_status st = put_mine(remap, mine, &own, err);

    st = dcpk_ranks_share(remap->options.ranks, own.data, own.n_bytes, &remap->gathered, st, err);
    dcpk_bytes_release(&own);
    if (st != DCPK_OK)
        return st;
    if (take_gathered(remap, err) || make_arrays(remap, err) || take_gathered(remap, err))
        return err->status;
    return DCPK_OK;
}

/* Map the memories of the other ranks. row[r]: all of rank r's is mapped. */
static dcpk_status map_memories(struct dcpk_remap *remap, uint8_t *row, struct dcpk_error *err)
{
    struct dcpk_device *device = remap->options.device;

    memset(row, 1, (size_t)remap->n_ranks);
    for (size_t i = 0; i < remap->n_memories; i++) {
        struct remap_memory *memory = &remap->memories[i];
        struct dcpk_error why = DCPK_ERROR_INIT;
        dcpk_status st;
        void *at;

        if (memory->holder == remap->self)
            continue;
        st = device->ops->import_memory(device, &memory->id, &at, &why);
        memory->is_mapped = st == DCPK_OK;
        if (st == DCPK_OK) {
            memory->shift = (uint64_t)(uintptr_t)at - memory->id.base;
        } else if (st == DCPK_EUNSUPPORTED) {
            row[memory->holder] = 0;
            snprintf(remap->note, sizeof remap->note, "%s", why.text);
        } else {
            *err = why;
            return st;
        }
    }
    return DCPK_OK;
}

/* A rank with a shard that it could not export is reached by no other. */
static void drop_unexported(const struct dcpk_remap *remap, const struct dcpk_shard *shards,
                            size_t n, uint8_t *row)
{
    for (size_t i = 0; i < n; i++)
        if (shards[i].memory == DCPK_NO_MEMORY && shards[i].holder != remap->self &&
            !dcpk_shard_is_empty(&shards[i]))
            row[shards[i].holder] = 0;
}

/* Bytes of a rank's message about the ranks that it reaches: a byte for each, then its note. */
static size_t row_bytes(const struct dcpk_remap *remap)
{
    return (size_t)remap->n_ranks + sizeof remap->note;
}

/* The rows of all ranks: who reaches whom, and the first note of a rank that has one. */
static void remap_take_rows(struct dcpk_remap *remap, const uint8_t *rows)
{
    const size_t n = (size_t)remap->n_ranks, stride = row_bytes(remap);

    remap->note[0] = '\0';
    for (size_t a = 0; a < n; a++) {
        if (remap->note[0] == '\0')
            snprintf(remap->note, sizeof remap->note, "%.*s", (int)sizeof remap->note - 1,
                     (const char *)rows + a * stride + n);
        for (size_t b = 0; b < n; b++) {
            const bool both = a == b || (rows[a * stride + b] && rows[b * stride + a]);

            remap->reaches[a * n + b] = both;
            remap->is_staged[a * n + b] = !both;
        }
    }
}

dcpk_status dcpk_remap_reach(struct dcpk_remap *remap, struct dcpk_error *err)
{
    const size_t n = (size_t)remap->n_ranks;
    struct dcpk_bytes rows = {0};
    dcpk_status st = DCPK_OK;
    uint8_t *row = dcpk_arena_array(remap->arena, row_bytes(remap), 1, err);

    if (row != NULL)
        remap->reaches = dcpk_arena_array(remap->arena, n, n, err);
    if (remap->reaches != NULL)
        remap->is_staged = dcpk_arena_array(remap->arena, n, n, err);
    if (remap->is_staged == NULL)
        return err->status;
    if (remap->options.path != DCPK_REMAP_STAGED) {
        st = map_memories(remap, row, err);
        drop_unexported(remap, remap->sources, remap->n_sources, row);
        drop_unexported(remap, remap->targets, remap->n_targets, row);
        memcpy(row + n, remap->note, sizeof remap->note);
    }
    st = dcpk_ranks_share_each(remap->options.ranks, row, row_bytes(remap), &rows, st, err);
    if (st == DCPK_OK)
        remap_take_rows(remap, rows.data);
    dcpk_bytes_release(&rows);
    return st;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* remap_gather.c - every rank learns the shards of all, and whose memory it can map. */
/*
 * What a rank gives to the others, everything aligned to 8 bytes, in the byte order of the machine:
 *
 *     head | ids of its allocations | sources | targets
 *     a shard: entry | shape, span, strides | name with its NUL
 */
#include <stdio.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/checked.h"
#include "lib/exec/remap_inside.h"

struct head {
    uint64_t n_memories, n_sources, n_targets;
};

struct entry {
    uint64_t at;
    uint32_t memory; /* of the rank's own, or NO_MEMORY */
    uint32_t name_bytes;
    uint32_t dtype, rank;
};

/* The memories of this rank so far. */
struct exports {
    struct dcpk_space *space;
    struct dcpk_memory_id *ids; /* owned */
    size_t n, capacity, latest;
    char *note;
    size_t note_bytes;
};

/* The bytes of a shard that is not empty: [*first, *first + *n_bytes). */
static void shard_range(const struct dcpk_shard *shard, uint64_t *first, uint64_t *n_bytes)
{
    *first = shard->at;
    *n_bytes = dcpk_dtype_bytes(shard->dtype);
    for (int a = 0; a < shard->rank; a++) {
        const int64_t reach = (shard->span[shard->rank + a] - 1) * shard->stride_bytes[a];

        *n_bytes += (uint64_t)(reach < 0 ? -reach : reach);
        if (reach < 0)
            *first -= (uint64_t)-reach;
    }
}

static bool id_holds(const struct dcpk_memory_id *id, uint64_t first, uint64_t n_bytes)
{
    return first >= id->base && n_bytes <= id->n_bytes && first - id->base <= id->n_bytes - n_bytes;
}

/* Find or export the memory of a shard. What cannot be shared has none, and a note gives the
 * reason. */
static dcpk_status export_shard(struct exports *e, const struct dcpk_shard *shard, uint32_t *memory,
                                struct dcpk_error *err)
{
    struct dcpk_error why = DCPK_ERROR_INIT;
    uint64_t first, n_bytes;
    dcpk_status st;

    *memory = NO_MEMORY;
    if (dcpk_shard_is_empty(shard))
        return DCPK_OK;
    shard_range(shard, &first, &n_bytes);
    for (size_t i = 0; i < e->n; i++) {
        const size_t at = (e->latest + i) % e->n; /* neighbours mostly lie together */

        if (!id_holds(&e->ids[at], first, n_bytes))
            continue;
        *memory = (uint32_t)(e->latest = at);
        return DCPK_OK;
    }
    if (dcpk_grow(&e->ids, &e->capacity, e->n, sizeof *e->ids, err))
        return err->status;
    st = e->space->ops->export_memory(e->space, (const void *)(uintptr_t)first, (size_t)n_bytes,
                                      &e->ids[e->n], &why);
    if (st == DCPK_OK)
        *memory = (uint32_t)(e->latest = e->n++);
    else if (st == DCPK_EUNSUPPORTED)
        snprintf(e->note, e->note_bytes, "%s", why.text);
    else
        *err = why;
    return st == DCPK_EUNSUPPORTED ? DCPK_OK : st;
}

static void put_shard(struct dcpk_bytes *out, const struct dcpk_shard *shard, uint32_t memory)
{
    const size_t name_bytes = strlen(shard->name) + 1;
    const size_t numbers = (size_t)shard->rank * sizeof(int64_t);
    const struct entry entry = {shard->at, memory, (uint32_t)name_bytes, (uint32_t)shard->dtype,
                                (uint32_t)shard->rank};

    dcpk_bytes_put(out, &entry, sizeof entry);
    dcpk_bytes_put(out, shard->shape, numbers);
    dcpk_bytes_put(out, shard->span, 2 * numbers);
    dcpk_bytes_put(out, shard->stride_bytes, numbers);
    dcpk_bytes_put(out, shard->name, name_bytes);
    dcpk_bytes_zeros(out, (8 - name_bytes % 8) % 8);
}

static dcpk_status put_shards(struct exports *e, const struct dcpk_shard *shards, size_t n,
                              struct dcpk_bytes *out, struct dcpk_error *err)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t memory;

        if (shards[i].rank < 0 || shards[i].rank > DCPK_MAX_RANK)
            return dcpk_fail(err, DCPK_EUNSUPPORTED, "'%.200s' has %d axes, the limit is %d",
                             shards[i].name, shards[i].rank, DCPK_MAX_RANK);
        if (export_shard(e, &shards[i], &memory, err))
            return err->status;
        put_shard(out, &shards[i], memory);
    }
    return DCPK_OK;
}

/* All that this rank gives to the others. */
static dcpk_status put_mine(struct dcpk_remap *remap, const struct dcpk_remap_shards *mine,
                            struct dcpk_bytes *out, struct dcpk_error *err)
{
    struct exports e = {
        .space = remap->options.space, .note = remap->note, .note_bytes = sizeof remap->note};
    struct head head = {.n_sources = mine->n_sources, .n_targets = mine->n_targets};
    struct dcpk_bytes shards = {0};
    dcpk_status st;

    st = put_shards(&e, mine->sources, mine->n_sources, &shards, err);
    if (st == DCPK_OK)
        st = put_shards(&e, mine->targets, mine->n_targets, &shards, err);
    head.n_memories = e.n;
    if (st == DCPK_OK)
        st = dcpk_bytes_status(&shards, err);
    if (st == DCPK_OK) {
        dcpk_bytes_put(out, &head, sizeof head);
        dcpk_bytes_put(out, e.ids, e.n * sizeof *e.ids);
        dcpk_bytes_put(out, shards.data, shards.n_bytes);
        st = dcpk_bytes_status(out, err);
    }
    dcpk_bytes_release(&shards);
    dcpk_free(e.ids);
    return st;
}

/* What was gathered, as it is read: each rank's part in turn. */
struct taking {
    const struct dcpk_remap *remap;
    size_t at;
    int holder;
    struct head head;
    const struct dcpk_memory_id *ids; /* of the holder's allocations */
};

/* The next n bytes of what was gathered; NULL: there are not so many. */
static const void *take_bytes(struct taking *t, uint64_t n)
{
    const struct dcpk_bytes *all = &t->remap->gathered;
    const uint8_t *bytes = all->data + t->at;

    if (n > all->n_bytes - t->at)
        return NULL;
    t->at += (size_t)n;
    return bytes;
}

static dcpk_status taking_fail(const struct taking *t, const char *what, struct dcpk_error *err)
{
    return dcpk_fail(err, DCPK_EIO, "rank %d gave a list of shards with %s (please report this)",
                     t->holder, what);
}

/* The next rank's head and allocations. */
static dcpk_status take_head(struct taking *t, int holder, struct dcpk_error *err)
{
    const void *head = take_bytes(t, sizeof t->head);
    const uint64_t left = t->remap->gathered.n_bytes;

    t->holder = holder;
    if (head == NULL)
        return taking_fail(t, "no head", err);
    memcpy(&t->head, head, sizeof t->head);
    if (t->head.n_memories > left / sizeof *t->ids ||
        t->head.n_sources > left / sizeof(struct entry) ||
        t->head.n_targets > left / sizeof(struct entry))
        return taking_fail(t, "more entries than bytes", err);
    t->ids = take_bytes(t, t->head.n_memories * sizeof *t->ids);
    if (t->ids == NULL)
        return taking_fail(t, "more memories than bytes", err);
    return DCPK_OK;
}

/* Does an axis reach no further than numbers do? */
static bool reaches_within(const struct dcpk_shard *shard)
{
    int64_t n_bytes = (int64_t)dcpk_dtype_bytes(shard->dtype);

    for (int a = 0; a < shard->rank; a++) {
        int64_t reach;

        if (!dcpk_mul_i64(shard->span[shard->rank + a] - 1, shard->stride_bytes[a], &reach) ||
            reach == INT64_MIN || !dcpk_add_i64(n_bytes, reach < 0 ? -reach : reach, &n_bytes))
            return false;
    }
    return true;
}

/* Can it be a shard, in memory that its holder named? A plan checks its box. */
static dcpk_status check_taken(const struct taking *t, const struct dcpk_shard *shard,
                               uint32_t memory, struct dcpk_error *err)
{
    uint64_t first, n_bytes;

    if (memory != NO_MEMORY && memory >= t->head.n_memories)
        return taking_fail(t, "a memory that it does not have", err);
    for (int a = 0; a < shard->rank; a++)
        if (shard->shape[a] < 0 || shard->span[a] < 0 || shard->span[shard->rank + a] < 0)
            return taking_fail(t, "a size below 0", err);
    if (dcpk_shard_is_empty(shard))
        return DCPK_OK;
    if (!reaches_within(shard))
        return taking_fail(t, "strides past the address space", err);
    shard_range(shard, &first, &n_bytes);
    if (memory != NO_MEMORY && !id_holds(&t->ids[memory], first, n_bytes))
        return taking_fail(t, "a shard outside of its memory", err);
    return DCPK_OK;
}

/* The next shard; *memory: of the holder's own. */
static dcpk_status take_shard(struct taking *t, struct dcpk_shard *shard, uint32_t *memory,
                              struct dcpk_error *err)
{
    const void *bytes = take_bytes(t, sizeof(struct entry));
    const int64_t *numbers;
    const char *name;
    struct entry entry;

    if (bytes == NULL)
        return taking_fail(t, "fewer shards than it says", err);
    memcpy(&entry, bytes, sizeof entry);
    if (entry.rank > DCPK_MAX_RANK || entry.dtype >= DCPK_N_DTYPES || entry.name_bytes == 0)
        return taking_fail(t, "an entry that cannot be", err);
    numbers = take_bytes(t, 4 * entry.rank * sizeof *numbers);
    name = take_bytes(t, ((uint64_t)entry.name_bytes + 7) / 8 * 8);
    if (numbers == NULL || name == NULL || name[entry.name_bytes - 1] != '\0')
        return taking_fail(t, "a shard that is cut short", err);
    *shard = (struct dcpk_shard){.name = name,
                                 .dtype = (enum dcpk_dtype)entry.dtype,
                                 .rank = (int)entry.rank,
                                 .holder = t->holder,
                                 .shape = numbers,
                                 .span = numbers + entry.rank,
                                 .stride_bytes = numbers + 3 * entry.rank,
                                 .at = entry.at};
    *memory = entry.memory;
    return check_taken(t, shard, entry.memory, err);
}

/* Check and count what all ranks gave; the arrays are then allocated. */
static dcpk_status count_gathered(struct dcpk_remap *remap, struct dcpk_error *err)
{
    struct taking t = {.remap = remap};

    for (int r = 0; r < remap->n_ranks; r++) {
        if (take_head(&t, r, err) != DCPK_OK)
            return err->status;
        for (uint64_t i = 0; i < t.head.n_sources + t.head.n_targets; i++) {
            struct dcpk_shard shard;
            uint32_t memory;

            if (take_shard(&t, &shard, &memory, err) != DCPK_OK)
                return err->status;
        }
        remap->n_memories += t.head.n_memories;
        remap->n_sources += t.head.n_sources;
        remap->n_targets += t.head.n_targets;
    }
    remap->memories =
        dcpk_arena_array(remap->arena, remap->n_memories, sizeof *remap->memories, err);
    if (remap->memories != NULL)
        remap->sources =
            dcpk_arena_array(remap->arena, remap->n_sources, sizeof *remap->sources, err);
    if (remap->sources != NULL)
        remap->targets =
            dcpk_arena_array(remap->arena, remap->n_targets, sizeof *remap->targets, err);
    if (remap->targets != NULL)
        remap->source_memory =
            dcpk_arena_array(remap->arena, remap->n_sources, sizeof *remap->source_memory, err);
    if (remap->source_memory != NULL)
        remap->target_memory =
            dcpk_arena_array(remap->arena, remap->n_targets, sizeof *remap->target_memory, err);
    return remap->target_memory == NULL ? err->status : DCPK_OK;
}

/* One side of a rank, which count_gathered has checked. */
static void take_side(struct taking *t, uint64_t n, size_t first_memory, struct dcpk_shard *shards,
                      uint32_t *memories)
{
    struct dcpk_error ignored = DCPK_ERROR_INIT;

    for (uint64_t i = 0; i < n; i++) {
        (void)take_shard(t, &shards[i], &memories[i], &ignored);
        if (memories[i] != NO_MEMORY)
            memories[i] += (uint32_t)first_memory;
    }
}

static void take_gathered(struct dcpk_remap *remap)
{
    struct taking t = {.remap = remap};
    struct dcpk_error ignored = DCPK_ERROR_INIT;
    size_t n_memories = 0, n_sources = 0, n_targets = 0;

    for (int r = 0; r < remap->n_ranks; r++) {
        (void)take_head(&t, r, &ignored);
        for (uint64_t i = 0; i < t.head.n_memories; i++)
            remap->memories[n_memories + i] = (struct remap_memory){.holder = r, .id = t.ids[i]};
        take_side(&t, t.head.n_sources, n_memories, remap->sources + n_sources,
                  remap->source_memory + n_sources);
        take_side(&t, t.head.n_targets, n_memories, remap->targets + n_targets,
                  remap->target_memory + n_targets);
        n_memories += t.head.n_memories;
        n_sources += t.head.n_sources;
        n_targets += t.head.n_targets;
    }
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
    if (count_gathered(remap, err))
        return err->status;
    take_gathered(remap);
    return DCPK_OK;
}

/* Map the memories of the other ranks. row[r]: all of rank r's is mapped. */
static dcpk_status map_memories(struct dcpk_remap *remap, uint8_t *row, struct dcpk_error *err)
{
    struct dcpk_space *space = remap->options.space;

    memset(row, 1, (size_t)remap->n_ranks);
    for (size_t i = 0; i < remap->n_memories; i++) {
        struct remap_memory *memory = &remap->memories[i];
        struct dcpk_error why = DCPK_ERROR_INIT;
        dcpk_status st;
        void *at;

        if (memory->holder == remap->self)
            continue;
        st = space->ops->import_memory(space, &memory->id, &at, &why);
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
                            const uint32_t *memory, size_t n, uint8_t *row)
{
    for (size_t i = 0; i < n; i++)
        if (memory[i] == NO_MEMORY && shards[i].holder != remap->self &&
            !dcpk_shard_is_empty(&shards[i]))
            row[shards[i].holder] = 0;
}

/* What a rank gives to the others about reaching them: a byte for each, then its note. */
static size_t row_bytes(const struct dcpk_remap *remap)
{
    return (size_t)remap->n_ranks + sizeof remap->note;
}

/* The rows of all ranks: who reaches whom, and the first note of a rank that has one. */
static void take_rows(struct dcpk_remap *remap, const uint8_t *rows)
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
        drop_unexported(remap, remap->sources, remap->source_memory, remap->n_sources, row);
        drop_unexported(remap, remap->targets, remap->target_memory, remap->n_targets, row);
        memcpy(row + n, remap->note, sizeof remap->note);
    }
    st = dcpk_ranks_share_each(remap->options.ranks, row, row_bytes(remap), &rows, st, err);
    if (st == DCPK_OK)
        take_rows(remap, rows.data);
    dcpk_bytes_release(&rows);
    return st;
}

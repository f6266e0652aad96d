/* SPDX-License-Identifier: Apache-2.0 */
/* remap_delta.c - runs that move the blocks which changed since the last one. */
/*
 * A block is a move of its own: a slab of a move of the plan. `whole` is a remap of all blocks of
 * this rank, whose tables give the sum of each block as it moves. A run of a few blocks is a remap
 * as well, made for it of those that changed:
 *
 *   sums of the last run ---+
 *   read sources -> sums -> differ? -> receivers of messages learn of it -> tables -> units
 *
 * While much changes in each run, everything moves as in a full run. A sample of the blocks, read
 * after it, shows when sums are worth their time again: all move once more, with sums.
 *
 * The holder of a source sums and pushes it, also where the plan has widening casts pulled. Ranks
 * that are written into directly need not know which blocks come.
 */
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/base/cursor.h"
#include "lib/base/order.h"
#include "lib/exec/remap_inside.h"
#include "lib/exec/slab.h"

struct dcpk_remap_delta {
    struct dcpk_remap *base;
    struct dcpk_arena *arena;
    struct dcpk_remap_plan plan; /* of whole: moves owned, of which this rank has a side */
    size_t capacity;
    struct dcpk_remap whole;
    struct remap_reading reading, sample; /* of this rank's sources; empty until needed */
    uint64_t *kept, *now;      /* sums of each block of this rank's sources; `now` the device's */
    uint64_t *sums;            /* of the device */
    uint8_t *is_changed;       /* of each block */
    bool has_kept, has_sample; /* sums of the last run: of all blocks, of the sample */
    bool changes_much;         /* more than 1 / MUCH_NTH in the last run; equal on all ranks */
    uint64_t changed_bytes, all_bytes; /* of the last run, of this rank's sources */
};

#define SAMPLE_NTH 16 /* block */
#define MUCH_NTH   8  /* part of the bytes: blocks apart take longer then (tests/bench/README.md) */

/* Some blocks of a delta as a remap. */
struct selection {
    struct dcpk_arena *arena;
    struct dcpk_remap_plan plan; /* moves owned */
    struct dcpk_remap remap;
};

static bool is_mine(const struct dcpk_remap_delta *d, size_t i)
{
    return d->base->sources[d->plan.moves[i].source].holder == d->base->self;
}

/* The rank that a block goes to by messages, or comes from; -1: it needs none. */
static int staged_peer(const struct dcpk_remap_delta *d, size_t i)
{
    const struct dcpk_remap *base = d->base;
    const int from = base->sources[d->plan.moves[i].source].holder;
    const int to = base->targets[d->plan.moves[i].target].holder;

    if (!base->is_staged[from * base->n_ranks + to])
        return -1;
    return from == base->self ? to : from;
}

static uint64_t bytes_of(const struct dcpk_remap_delta *d, size_t i)
{
    const struct dcpk_move *m = &d->plan.moves[i];
    struct dcpk_box box;

    dcpk_move_box(&d->plan, m, &box);
    return dcpk_box_elems(&box) * dcpk_dtype_bytes(d->base->targets[m->target].dtype);
}

/* A remap with memory of its own, except for the staging. */
static void remap_begin_part(struct dcpk_remap *part, const struct dcpk_remap *of,
                             struct dcpk_arena *arena, struct dcpk_remap_plan *plan)
{
    *part = *of;
    part->arena = arena;
    part->plan = plan;
    part->units = NULL;
    part->rounds = NULL;
    part->has_others_staging = true;
    part->sums = part->host_sums = part->stored = NULL;
    part->n_sums = 0;
    part->scratch = NULL;
    part->delta = NULL;
    part->stats = (struct dcpk_remap_stats){.note = of->note};
}

/* Cut a move into blocks. */
static dcpk_status delta_cut(struct dcpk_remap_delta *d, const struct dcpk_move *m,
                             struct dcpk_error *err)
{
    const struct dcpk_shard *target = &d->base->targets[m->target];
    const uint32_t wanted = d->base->options.block_bytes;
    const uint32_t block_bytes = wanted == 0 ? DCPK_REMAP_BLOCK_BYTES : wanted;
    struct dcpk_slabs slabs;
    struct dcpk_box box;

    dcpk_move_box(d->base->plan, m, &box);
    dcpk_slabs_cut(&box, dcpk_dtype_bytes(target->dtype), block_bytes, &slabs);
    for (uint64_t i = 0; i < slabs.n; i++) {
        struct dcpk_move block = *m;
        int64_t *span;

        if (dcpk_grow(&d->plan.moves, &d->capacity, d->plan.n_moves, sizeof block, err))
            return err->status;
        if (slabs.n > 1) {
            span = dcpk_arena_array(d->arena, 2 * (size_t)box.rank, sizeof *span, err);
            if (span == NULL)
                return err->status;
            dcpk_slabs_box(&slabs, i, &box);
            dcpk_box_pack(&box, span);
            block.span = span;
        }
        d->plan.moves[d->plan.n_moves++] = block;
    }
    return DCPK_OK;
}

/* The blocks of all moves that this rank has a side of, in the order of the plan. */
static dcpk_status delta_list(struct dcpk_remap_delta *d, struct dcpk_error *err)
{
    const struct dcpk_remap *base = d->base;
    const struct dcpk_remap_plan *from = base->plan;

    d->plan = *from;
    d->plan.moves = NULL;
    d->plan.n_moves = 0;
    d->plan.only_pushes = true;
    d->plan.units = dcpk_arena_array(d->arena, from->n_units + 1, sizeof *d->plan.units, err);
    if (d->plan.units == NULL)
        return err->status;
    for (size_t u = 0; u < from->n_units; u++) {
        d->plan.units[u] = (struct dcpk_remap_unit){from->units[u].first_tensor, d->plan.n_moves};
        for (size_t i = from->units[u].first_move; i < from->units[u + 1].first_move; i++) {
            const struct dcpk_move *m = &from->moves[i];

            if ((base->sources[m->source].holder == base->self ||
                 base->targets[m->target].holder == base->self) &&
                !dcpk_move_is_kept(from, m) && delta_cut(d, m, err))
                return err->status;
        }
    }
    d->plan.units[from->n_units] =
        (struct dcpk_remap_unit){from->units[from->n_units].first_tensor, d->plan.n_moves};
    return DCPK_OK;
}

/* Numbers for the sums of all blocks, at least one. */
static dcpk_status delta_make_sums(struct dcpk_remap_delta *d, struct dcpk_error *err)
{
    struct dcpk_device *device = d->base->options.device;
    const size_t n = d->plan.n_moves, n_bytes = (n + 1) * sizeof *d->now;
    void *at;

    d->kept = dcpk_arena_array(d->arena, n, sizeof *d->kept, err);
    if (d->kept != NULL)
        d->is_changed = dcpk_arena_array(d->arena, n, 1, err);
    if (d->is_changed == NULL || device->ops->alloc(device, DCPK_MEMORY_HOST, n_bytes, &at, err))
        return err->status;
    d->now = at;
    if (device->ops->alloc(device, DCPK_MEMORY_DEVICE, n_bytes, &at, err))
        return err->status;
    d->sums = at;
    for (size_t i = 0; i < n; i++)
        if (is_mine(d, i))
            d->all_bytes += bytes_of(d, i);
    return DCPK_OK;
}

/* Collective. */
static dcpk_status delta_fill(struct dcpk_remap_delta *d, struct dcpk_error *err)
{
    d->arena = dcpk_arena_new();
    if (delta_list(d, err) || delta_make_sums(d, err))
        return err->status;
    remap_begin_part(&d->whole, d->base, d->arena, &d->plan);
    d->whole.has_sums_by_move = true;
    if (dcpk_remap_make_tables(&d->whole, err))
        return err->status;
    d->whole.stored = d->sums;
    return DCPK_OK;
}

void dcpk_remap_free_delta(struct dcpk_remap_delta *d)
{
    struct dcpk_device *device;

    if (d == NULL)
        return;
    device = d->base->options.device;
    if (d->whole.arena != NULL) { /* it was begun */
        dcpk_remap_free_reading(&d->whole, &d->reading);
        dcpk_remap_free_reading(&d->whole, &d->sample);
        dcpk_remap_free_tables(&d->whole);
    }
    device->ops->free(device, d->sums);
    device->ops->free(device, d->now);
    dcpk_free(d->plan.moves);
    dcpk_arena_free(d->arena);
    dcpk_free(d);
}

void dcpk_remap_forget(struct dcpk_remap_delta *delta)
{
    if (delta != NULL)
        delta->has_kept = delta->has_sample = false;
}

/* All sums become 0. */
static dcpk_status delta_clear(struct dcpk_remap_delta *d, struct dcpk_error *err)
{
    const size_t n_bytes = (d->plan.n_moves + 1) * sizeof *d->now;
    struct dcpk_device *device = d->base->options.device;

    memset(d->now, 0, n_bytes);
    if (device->ops->copy(device, QUEUE_MOVE, d->sums, d->now, n_bytes, err) ||
        dcpk_device_wait(device, QUEUE_MOVE, dcpk_remap_timeout(&d->whole), err))
        return err->status;
    return DCPK_OK;
}

/* Read every nth block of this rank's sources, for the sums of what they would store now. */
static dcpk_status delta_read(struct dcpk_remap_delta *d, struct remap_reading *reading, size_t nth,
                              struct dcpk_error *err)
{
    const size_t n = d->plan.n_moves, n_bytes = (n + 1) * sizeof *d->now;
    struct dcpk_device *device = d->base->options.device;
    struct dcpk_tile_list list = {0};
    dcpk_status st = DCPK_OK;

    for (size_t i = 0; i < n && reading->n == 0 && st == DCPK_OK; i += nth)
        st = dcpk_remap_add_reading(&d->whole, &d->plan.moves[i],
                                    &d->base->sources[d->plan.moves[i].source], (uint32_t)i, &list,
                                    err);
    if (st == DCPK_OK && list.n > 0)
        st = dcpk_remap_load_reading(&d->whole, &list, reading, err);
    dcpk_tile_list_release(&list);
    if (st != DCPK_OK) { /* not half of it the next time */
        dcpk_remap_free_reading(&d->whole, reading);
        return st;
    }
    if (dcpk_remap_queue_reading(&d->whole, reading, d->sums, err) ||
        device->ops->copy(device, QUEUE_MOVE, d->now, d->sums, n_bytes, err))
        st = err->status;
    return dcpk_remap_drain(&d->whole, st, err);
}

/*
 * Collective: compare every nth block with the last run; st: of this rank's sums. Sets
 * changes_much. Where a rank does not know the last run's sums, all of them count as changed.
 */
static dcpk_status delta_mark(struct dcpk_remap_delta *d, size_t nth, dcpk_status st,
                              struct dcpk_error *err)
{
    const bool is_known = nth == SAMPLE_NTH ? d->has_sample : d->has_kept;
    uint64_t bytes[2] = {0}; /* changed, compared */

    for (size_t i = 0; i < d->plan.n_moves; i += nth) {
        d->is_changed[i] = is_mine(d, i) && (!is_known || d->now[i] != d->kept[i]);
        if (d->is_changed[i])
            bytes[0] += bytes_of(d, i);
        if (is_mine(d, i))
            bytes[1] += bytes_of(d, i);
    }
    d->changed_bytes = bytes[0];
    st = dcpk_ranks_sum(d->base->options.ranks, bytes, 2, st, err);
    if (st == DCPK_OK)
        d->changes_much = bytes[0] > bytes[1] / MUCH_NTH;
    return st;
}

/* For each rank the number of blocks that go there by messages, then a byte for each of them. */
static dcpk_status put_changes(const struct dcpk_remap_delta *d, struct dcpk_bytes *out,
                               struct dcpk_error *err)
{
    const size_t n_ranks = (size_t)d->base->n_ranks;
    uint64_t *counts = dcpk_alloc_array(2 * n_ranks, sizeof *counts, err);
    uint64_t *next = counts + n_ranks, at;

    if (counts == NULL)
        return err->status;
    for (size_t i = 0; i < d->plan.n_moves; i++)
        if (is_mine(d, i) && staged_peer(d, i) >= 0)
            counts[staged_peer(d, i)]++;
    at = n_ranks * sizeof *counts;
    for (size_t r = 0; r < n_ranks; r++) {
        next[r] = at;
        at += counts[r];
        dcpk_bytes_u64(out, counts[r]);
    }
    dcpk_bytes_zeros(out, (size_t)at - n_ranks * sizeof *counts);
    for (size_t i = 0; i < d->plan.n_moves && out->status == DCPK_OK; i++)
        if (is_mine(d, i) && staged_peer(d, i) >= 0)
            out->data[next[staged_peer(d, i)]++] = d->is_changed[i];
    dcpk_free(counts);
    return dcpk_bytes_status(out, err);
}

/* The bytes that a rank has for this one. */
struct given {
    const uint8_t *next;
    uint64_t n;
};

static dcpk_status take_given(const struct dcpk_remap_delta *d, struct dcpk_cursor *c,
                              struct given *given, struct dcpk_error *err)
{
    uint64_t before = 0, after = 0, n;
    const uint8_t *bytes;

    for (int r = 0; r < d->base->n_ranks; r++) {
        if (dcpk_cursor_u64(c, &n, err))
            return err->status;
        if (r == d->base->self)
            given->n = n;
        else if (r < d->base->self)
            before += n;
        else
            after += n;
    }
    if (dcpk_cursor_bytes(c, (size_t)before, &bytes, err) ||
        dcpk_cursor_bytes(c, (size_t)given->n, &given->next, err) ||
        dcpk_cursor_bytes(c, (size_t)after, &bytes, err))
        return err->status;
    return DCPK_OK;
}

/* Takes for each block that comes by messages what its sender has put. */
static dcpk_status take_changes(struct dcpk_remap_delta *d, const struct dcpk_bytes *all,
                                struct dcpk_error *err)
{
    const size_t n_ranks = (size_t)d->base->n_ranks;
    struct given *given = dcpk_alloc_array(n_ranks, sizeof *given, err);
    dcpk_status st = dcpk_made(given, err);
    struct dcpk_cursor c;

    dcpk_cursor_init(&c, all->data, all->n_bytes, 0);
    for (size_t r = 0; r < n_ranks && st == DCPK_OK; r++)
        st = take_given(d, &c, &given[r], err);
    for (size_t i = 0; i < d->plan.n_moves && st == DCPK_OK; i++) {
        const int peer = is_mine(d, i) ? -1 : staged_peer(d, i);

        if (peer < 0)
            continue;
        if (given[peer].n-- == 0)
            st =
                dcpk_fail(err, DCPK_EIO, "rank %d has not named all blocks that it may send", peer);
        else
            d->is_changed[i] = *given[peer].next++;
    }
    dcpk_free(given);
    return st;
}

/* Collective: receivers of messages learn which blocks they have. */
static dcpk_status delta_share(struct dcpk_remap_delta *d, struct dcpk_error *err)
{
    struct dcpk_bytes mine = {0}, all = {0};
    dcpk_status st = put_changes(d, &mine, err);

    st = dcpk_ranks_share(d->base->options.ranks, mine.data, mine.n_bytes, &all, st, err);
    if (st == DCPK_OK)
        st = take_changes(d, &all, err);
    dcpk_bytes_release(&mine);
    dcpk_bytes_release(&all);
    return st;
}

static void selection_release(struct selection *s)
{
    if (s->remap.arena != NULL)
        dcpk_remap_free_tables(&s->remap);
    dcpk_free(s->plan.moves);
    dcpk_arena_free(s->arena);
}

/* Collective: a remap of the blocks that changed. */
static dcpk_status selection_make(struct selection *s, const struct dcpk_remap_delta *d,
                                  struct dcpk_error *err)
{
    const size_t n_units = d->plan.n_units;
    size_t capacity = 0;

    s->plan = d->plan;
    s->plan.moves = NULL;
    s->plan.n_moves = 0;
    s->arena = dcpk_arena_new();
    s->plan.units = dcpk_arena_array(s->arena, n_units + 1, sizeof *s->plan.units, err);
    if (s->plan.units == NULL)
        return err->status;
    for (size_t u = 0, i = 0; u <= n_units; u++) {
        for (; i < d->plan.units[u].first_move; i++) {
            if (!d->is_changed[i])
                continue;
            if (dcpk_grow(&s->plan.moves, &capacity, s->plan.n_moves, sizeof *s->plan.moves, err))
                return err->status;
            s->plan.moves[s->plan.n_moves++] = d->plan.moves[i];
        }
        s->plan.units[u] = (struct dcpk_remap_unit){d->plan.units[u].first_tensor, s->plan.n_moves};
    }
    remap_begin_part(&s->remap, &d->whole, s->arena, &s->plan);
    s->remap.has_sums_by_move = false;
    s->remap.options.checks = false;
    return dcpk_remap_make_tables(&s->remap, err);
}

/*
 * Collective: find out what changed, and what to run: those blocks, or all of them, with their sums
 * where a rank does not know the last ones.
 */
static dcpk_status delta_choose(struct dcpk_remap_delta *d, struct selection *s,
                                struct dcpk_remap **moving, struct dcpk_error *err)
{
    uint64_t lacks = !d->has_kept;
    dcpk_status st = dcpk_ranks_sum(d->base->options.ranks, &lacks, 1, delta_clear(d, err), err);

    *moving = &d->whole;
    if (st != DCPK_OK || lacks > 0)
        return st;
    if (delta_mark(d, 1, delta_read(d, &d->reading, 1, err), err))
        return err->status;
    *moving = d->base;
    if (d->changes_much)
        return DCPK_OK;
    if (d->base->is_staging_used && delta_share(d, err))
        return err->status;
    *moving = &s->remap;
    return selection_make(s, d, err);
}

/* The sums of what this rank has moved in a unit. */
static dcpk_status take_stored(struct dcpk_remap_delta *d, size_t unit, struct dcpk_error *err)
{
    const size_t first = d->plan.units[unit].first_move;
    const size_t n_bytes = (d->plan.units[unit + 1].first_move - first) * sizeof *d->now;
    struct dcpk_device *device = d->base->options.device;

    if (n_bytes == 0)
        return DCPK_OK;
    if (device->ops->copy(device, QUEUE_MOVE, d->now + first, d->sums + first, n_bytes, err) ||
        dcpk_device_wait(device, QUEUE_MOVE, dcpk_remap_timeout(&d->whole), err))
        return err->status;
    return DCPK_OK;
}

/* Collective: compare all targets of a unit with the sums of all blocks. */
static dcpk_status check_blocks(struct dcpk_remap_delta *d, size_t unit, struct dcpk_error *err)
{
    struct dcpk_remap *whole = &d->whole;
    struct dcpk_device *device = whole->options.device;
    const size_t n_bytes = 2 * whole->n_sums * sizeof *whole->sums;
    dcpk_status st;

    memset(whole->host_sums, 0, n_bytes);
    st = device->ops->copy(device, QUEUE_MOVE, whole->sums, whole->host_sums, n_bytes, err);
    if (st == DCPK_OK)
        st = dcpk_remap_sum_landed(whole, unit, err);
    for (size_t i = d->plan.units[unit].first_move; i < d->plan.units[unit + 1].first_move; i++) {
        const size_t tensor = d->plan.target_tensor[d->plan.moves[i].target];

        if (is_mine(d, i))
            whole->host_sums[tensor - d->plan.units[unit].first_tensor] += d->now[i];
    }
    return dcpk_remap_compare_unit(whole, unit, st, err);
}

/* Collective: move unit after unit. */
static dcpk_status delta_move(struct dcpk_remap_delta *d, struct dcpk_remap *moving,
                              dcpk_remap_done *done, void *context, struct dcpk_error *err)
{
    struct dcpk_remap *base = d->base;

    if (moving == base)
        return dcpk_remap_run_units(base, done, context, err);
    if (dcpk_remap_begin_run(moving, err))
        return err->status;
    for (size_t u = 0; u < d->plan.n_units; u++) {
        dcpk_status st = dcpk_remap_move_unit(moving, u, err);

        if (st == DCPK_OK && moving->stored != NULL)
            st = take_stored(d, u, err);
        if (dcpk_ranks_agree(base->options.ranks, st, err))
            return err->status;
        if (d->whole.sums != NULL && check_blocks(d, u, err))
            return err->status;
        base->stats.units_done++;
        if (done != NULL)
            done(context, u);
    }
    return DCPK_OK;
}

/* Collective: move everything, then find out by a sample whether much had changed. */
static dcpk_status move_all(struct dcpk_remap_delta *d, dcpk_remap_done *done, void *context,
                            struct dcpk_error *err)
{
    dcpk_status st = dcpk_remap_run_units(d->base, done, context, err);

    if (st != DCPK_OK)
        return st;
    st = delta_clear(d, err);
    if (st == DCPK_OK)
        st = delta_read(d, &d->sample, SAMPLE_NTH, err);
    if (delta_mark(d, SAMPLE_NTH, st, err))
        return dcpk_ranks_agree(d->base->options.ranks, err->status, err);
    return DCPK_OK;
}

static void changes_fill(const struct dcpk_remap_delta *d, const struct dcpk_remap *moving,
                         struct dcpk_remap_changes *changes)
{
    const bool is_part = moving != &d->whole && moving != d->base;

    *changes = (struct dcpk_remap_changes){.n_tiles = moving->stats.n_tiles,
                                           .n_messages = moving->stats.n_messages,
                                           .sent_bytes = is_part ? d->changed_bytes : d->all_bytes};
    for (size_t i = 0; i < d->plan.n_moves; i++) {
        changes->n_blocks += is_mine(d, i);
        changes->n_sent_blocks += is_mine(d, i) && (!is_part || d->is_changed[i]);
    }
}

/* Collective, once: what all such runs need. */
static dcpk_status delta_make(struct dcpk_remap *remap, struct dcpk_error *err)
{
    struct dcpk_remap_delta *d;
    dcpk_status st;

    if (remap->delta != NULL)
        return DCPK_OK;
    d = dcpk_alloc(sizeof *d, err);
    st = dcpk_made(d, err);
    if (st == DCPK_OK) {
        d->base = remap;
        st = delta_fill(d, err);
    }
    if (dcpk_ranks_agree(remap->options.ranks, st, err) == DCPK_OK)
        remap->delta = d;
    else
        dcpk_remap_free_delta(d);
    return err->status;
}

static dcpk_status run_changed(struct dcpk_remap *remap, dcpk_remap_done *done, void *context,
                               struct dcpk_remap_changes *changes, struct dcpk_error *err)
{
    struct dcpk_remap *moving = remap;
    struct selection selection = {0};
    struct dcpk_remap_delta *d;
    size_t nth = SAMPLE_NTH; /* block has its sum in `now` */
    dcpk_status st;

    remap->stats.units_done = 0;
    if (delta_make(remap, err))
        return err->status;
    d = remap->delta;
    if (d->changes_much) {
        st = move_all(d, done, context, err);
    } else {
        nth = 1;
        st = dcpk_ranks_agree(remap->options.ranks, delta_choose(d, &selection, &moving, err), err);
        if (st == DCPK_OK)
            st = delta_move(d, moving, done, context, err);
    }
    if (st == DCPK_OK) {
        for (size_t i = 0; i < d->plan.n_moves; i += nth)
            d->kept[i] = d->now[i];
        d->has_sample = true;
        d->has_kept = nth == 1;
        changes_fill(d, moving, changes);
    } else {
        dcpk_remap_forget(d);
    }
    selection_release(&selection);
    return st;
}

dcpk_status dcpk_remap_run_changed(struct dcpk_remap *remap, dcpk_remap_done *done, void *context,
                                   struct dcpk_remap_changes *changes, struct dcpk_error *err)
{
    const double begun = dcpk_now_seconds();
    const int timeout_ms = dcpk_remap_times(REMAP_RANKS_FACTOR, dcpk_remap_timeout(remap));
    const int before = dcpk_ranks_set_timeout(remap->options.ranks, timeout_ms);
    const dcpk_status st = run_changed(remap, done, context, changes, err);

    (void)dcpk_ranks_set_timeout(remap->options.ranks, before);
    remap->stats.seconds = dcpk_now_seconds() - begun;
    return st;
}

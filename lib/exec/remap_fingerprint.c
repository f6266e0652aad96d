/* SPDX-License-Identifier: Apache-2.0 */
/* remap_fingerprint.c - the fingerprints of tensors that lie in the memory of ranks, each element
 * counted once. */
/*
 * Replicas must not be counted twice. Which rank reads what is what the planner finds for a target
 * that is the whole tensor: its moves cover it, each element by one source. Here the sources are
 * the shards of one side of a remap; the targets have no memory, and the moves are only read.
 */
#include <string.h>

#include "lib/exec/remap_inside.h"

#define READ_BYTES (4 * (size_t)DCPK_TILE_BYTES)

/* A side of a remap that is read; all but `remap` and `side` is this file's own. */
struct reading {
    struct dcpk_remap *remap;
    enum dcpk_remap_side side;
    struct dcpk_arena *arena;
    struct dcpk_shard *wholes; /* by holder */
    uint32_t *tensor;          /* of each whole, by its number in the remap's plan */
    struct dcpk_remap_plan *plan;
    struct dcpk_tile_list list;
    struct dcpk_table *table;
    void *sums, *host_sums;
};

static void reading_release(struct reading *r)
{
    struct dcpk_device *device = r->remap->options.device;

    device->ops->unload(device, r->table);
    device->ops->free(device, r->sums);
    device->ops->free(device, r->host_sums);
    dcpk_tile_list_release(&r->list);
    dcpk_remap_plan_free(r->plan);
    dcpk_arena_free(r->arena);
}

/* The tensors as wanted by ranks in turn, so that all read as much. */
static dcpk_status reading_want(struct reading *r, struct dcpk_error *err)
{
    const struct dcpk_remap_plan *plan = r->remap->plan;
    const uint32_t n_ranks = (uint32_t)r->remap->n_ranks;
    const bool is_sources = r->side == DCPK_REMAP_SOURCES;
    size_t n = 0;

    r->wholes = dcpk_arena_array(r->arena, plan->n_tensors, sizeof *r->wholes, err);
    if (r->wholes != NULL)
        r->tensor = dcpk_arena_array(r->arena, plan->n_tensors, sizeof *r->tensor, err);
    if (r->tensor == NULL)
        return err->status;
    for (uint32_t holder = 0; holder < n_ranks; holder++)
        for (uint32_t t = holder; t < plan->n_tensors; t += n_ranks, n++) {
            const struct dcpk_remap_tensor *tensor = &plan->tensors[t];
            const size_t rank = (size_t)tensor->rank;
            int64_t *numbers = dcpk_arena_array(r->arena, 3 * rank, sizeof *numbers, err);
            enum dcpk_dtype dtype = tensor->to;

            if (numbers == NULL)
                return err->status;
            if (is_sources && tensor->from != DCPK_DTYPE_NONE) /* NONE: no shard has any of it */
                dtype = tensor->from;
            memcpy(numbers + rank, tensor->shape, rank * sizeof *numbers);
            r->tensor[n] = t;
            r->wholes[n] = (struct dcpk_shard){.name = tensor->name,
                                               .dtype = dtype,
                                               .rank = tensor->rank,
                                               .holder = (int)holder,
                                               .shape = tensor->shape,
                                               .span = numbers,
                                               .stride_bytes = numbers + 2 * rank};
        }
    return DCPK_OK;
}

static dcpk_status reading_plan(struct reading *r, struct dcpk_error *err)
{
    const bool is_sources = r->side == DCPK_REMAP_SOURCES;
    const struct dcpk_remap *remap = r->remap;
    const struct dcpk_remap_input input = {
        .sources = is_sources ? remap->sources : remap->targets,
        .n_sources = is_sources ? remap->n_sources : remap->n_targets,
        .targets = r->wholes,
        .n_targets = remap->plan->n_tensors,
        .n_ranks = remap->n_ranks,
    };

    return dcpk_remap_plan_new(&input, &r->plan, err);
}

/* Cuts this rank's reading into slices. */
static dcpk_status reading_cut(struct reading *r, struct dcpk_error *err)
{
    const struct dcpk_remap_plan *plan = r->plan;

    for (size_t i = 0; i < plan->n_moves; i++) {
        const struct dcpk_move *m = &plan->moves[i];
        const struct dcpk_shard *s = &plan->input.sources[m->source];
        struct dcpk_tile_box box = {
            .shape = s->shape, .sum = r->tensor[m->target], .has_words = true};

        if (s->holder != r->remap->self)
            continue;
        dcpk_move_box(plan, m, &box.box);
        box.src = (struct dcpk_tile_side){dcpk_shard_address(s, box.box.offset), s->stride_bytes,
                                          s->dtype};
        if (dcpk_tile_list_add(&r->list, &box, READ_BYTES, err))
            return err->status;
    }
    return DCPK_OK;
}

static dcpk_status reading_load(struct reading *r, struct dcpk_error *err)
{
    const struct dcpk_tiles tiles = {
        .tiles = r->list.tiles, .words = r->list.words, .n = r->list.n};
    struct dcpk_device *device = r->remap->options.device;

    if (tiles.n == 0)
        return DCPK_OK;
    return device->ops->load(device, &tiles, &r->table, err);
}

/* Add up this rank's part of n_bytes of sums, into host_sums. */
static dcpk_status reading_run(struct reading *r, size_t n_bytes, struct dcpk_error *err)
{
    struct dcpk_device *device = r->remap->options.device;

    if (device->ops->alloc(device, DCPK_MEMORY_DEVICE, n_bytes, &r->sums, err) ||
        device->ops->alloc(device, DCPK_MEMORY_HOST, n_bytes, &r->host_sums, err))
        return err->status;
    memset(r->host_sums, 0, n_bytes);
    if (device->ops->copy(device, QUEUE_MOVE, r->sums, r->host_sums, n_bytes, err) ||
        (r->table != NULL && device->ops->run(device, QUEUE_MOVE, r->table, r->sums, err)) ||
        device->ops->copy(device, QUEUE_MOVE, r->host_sums, r->sums, n_bytes, err) ||
        dcpk_device_wait(device, QUEUE_MOVE, dcpk_remap_timeout(r->remap), err))
        return err->status;
    return DCPK_OK;
}

static dcpk_status reading_make(struct reading *r, size_t n_bytes, struct dcpk_error *err)
{
    r->arena = dcpk_arena_new();
    if (reading_want(r, err) || reading_plan(r, err) || reading_cut(r, err) || reading_load(r, err))
        return err->status;
    return reading_run(r, n_bytes, err);
}

dcpk_status dcpk_remap_fingerprint(struct dcpk_remap *remap, enum dcpk_remap_side side,
                                   uint64_t *sums, struct dcpk_error *err)
{
    const size_t n = remap->plan->n_tensors, n_bytes = n * sizeof *sums;
    struct dcpk_ranks *ranks = remap->options.ranks;
    struct reading r = {.remap = remap, .side = side};
    dcpk_status st;
    int before;

    if (n == 0)
        return DCPK_OK;
    before = dcpk_ranks_set_timeout(
        ranks, dcpk_remap_times(REMAP_RANKS_FACTOR, dcpk_remap_timeout(remap)));
    st = reading_make(&r, n_bytes, err);
    st = dcpk_ranks_sum(ranks, r.host_sums, n, st, err);
    st = dcpk_ranks_agree(ranks, st, err);
    (void)dcpk_ranks_set_timeout(ranks, before);
    if (st == DCPK_OK)
        memcpy(sums, r.host_sums, n_bytes);
    reading_release(&r);
    return st;
}

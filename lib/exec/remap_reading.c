/* SPDX-License-Identifier: Apache-2.0 */
/* remap_reading.c - fingerprints of what tiles would store, and the proof that targets hold it. */
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/exec/remap_inside.h"
#include "lib/tensor/strided.h"

/* Casts that run together; the caches of a GPU keep as much. */
#define SCRATCH_BYTES (UINT64_C(32) << 20)
#define READ_BYTES    (4 * (size_t)DCPK_TILE_BYTES)

static dcpk_status reading_add(struct dcpk_remap *remap, const struct dcpk_tile_list *list,
                               size_t first, size_t end, struct remap_reading *reading,
                               struct dcpk_error *err)
{
    struct dcpk_device *device = remap->options.device;
    const struct dcpk_tiles tiles = {list->tiles + first, list->words + first, end - first,
                                     DCPK_PACE_MEMORY};

    if (first == end)
        return DCPK_OK;
    if (dcpk_grow(&reading->tables, &reading->capacity, reading->n, sizeof *reading->tables, err) ||
        device->ops->load(device, &tiles, &reading->tables[reading->n], err))
        return err->status;
    reading->n++;
    return DCPK_OK;
}

static dcpk_status make_scratch(struct dcpk_remap *remap, struct dcpk_error *err)
{
    struct dcpk_device *device = remap->options.device;
    void *at;

    if (remap->scratch != NULL)
        return DCPK_OK;
    if (device->ops->alloc(device, DCPK_MEMORY_DEVICE, SCRATCH_BYTES, &at, err))
        return err->status;
    remap->scratch = at;
    return DCPK_OK;
}

dcpk_status dcpk_remap_load_reading(struct dcpk_remap *remap, struct dcpk_tile_list *list,
                                    struct remap_reading *reading, struct dcpk_error *err)
{
    uint64_t used = 0;
    size_t first = 0;

    for (size_t i = 0; i < list->n; i++) {
        struct dcpk_tile *tile = &list->tiles[i];
        const uint64_t row = tile->n_elems * dcpk_dtype_bytes((enum dcpk_dtype)tile->to);
        const uint64_t n_bytes =
            (row * tile->n_rows + DCPK_TILE_ALIGN - 1) / DCPK_TILE_ALIGN * DCPK_TILE_ALIGN;

        tile->dst = 0;
        if (tile->from == tile->to)
            continue;
        if (make_scratch(remap, err))
            return err->status;
        if (used + n_bytes > SCRATCH_BYTES) { /* the next table has all of it again */
            if (reading_add(remap, list, first, i, reading, err))
                return err->status;
            first = i;
            used = 0;
        }
        tile->dst = (uint64_t)(uintptr_t)remap->scratch + used;
        tile->dst_stride_bytes = (int64_t)row;
        used += n_bytes;
    }
    return reading_add(remap, list, first, list->n, reading, err);
}

dcpk_status dcpk_remap_queue_reading(struct dcpk_remap *remap, const struct remap_reading *reading,
                                     uint64_t *sums, struct dcpk_error *err)
{
    for (size_t i = 0; i < reading->n; i++)
        if (dcpk_remap_run_table(remap, QUEUE_MOVE, reading->tables[i], sums, err))
            return err->status;
    return DCPK_OK;
}

void dcpk_remap_free_reading(struct dcpk_remap *remap, struct remap_reading *reading)
{
    struct dcpk_device *device = remap->options.device;

    for (size_t i = 0; i < reading->n; i++)
        device->ops->unload(device, reading->tables[i]);
    dcpk_free(reading->tables);
    *reading = (struct remap_reading){0};
}

dcpk_status dcpk_remap_add_reading(struct dcpk_remap *remap, const struct dcpk_move *m,
                                   const struct dcpk_shard *shard, uint32_t sum,
                                   struct dcpk_tile_list *list, struct dcpk_error *err)
{
    const struct dcpk_shard *t = &remap->targets[m->target];
    struct dcpk_tile_box box = {.shape = t->shape, .sum = sum, .has_words = true};
    int64_t strides[DCPK_MAX_RANK];

    if (shard->holder != remap->self || dcpk_move_is_kept(remap->plan, m))
        return DCPK_OK;
    dcpk_move_box(remap->plan, m, &box.box);
    box.src = dcpk_remap_side(remap, shard, &box.box);
    if (shard->dtype != t->dtype) { /* any place: it becomes scratch memory */
        dcpk_row_major_strides(dcpk_dtype_bytes(t->dtype), box.box.extent, t->rank, strides);
        box.dst = (struct dcpk_tile_side){DCPK_TILE_ALIGN, strides, t->dtype};
    }
    return dcpk_tile_list_add(list, &box, READ_BYTES, err);
}

/* The tiles of both sides of all moves: numbers of tensors for what is stored, n_tensors on for
 * what has landed. */
static dcpk_status verify_tiles(struct dcpk_remap *remap, struct dcpk_tile_list *list,
                                struct dcpk_error *err)
{
    const struct dcpk_remap_plan *plan = remap->plan;

    for (size_t i = 0; i < plan->n_moves; i++) {
        const struct dcpk_move *m = &plan->moves[i];
        const uint32_t tensor = plan->target_tensor[m->target];

        if (dcpk_remap_add_reading(remap, m, &remap->sources[m->source], tensor, list, err) ||
            dcpk_remap_add_reading(remap, m, &remap->targets[m->target], plan->n_tensors + tensor,
                                   list, err))
            return err->status;
    }
    return DCPK_OK;
}

/* Add up this rank's part, from host_sums and back to it. */
static dcpk_status verify_run(struct dcpk_remap *remap, const struct remap_reading *reading,
                              uint64_t *sums, size_t n_bytes, struct dcpk_error *err)
{
    struct dcpk_device *device = remap->options.device;
    dcpk_status st = DCPK_OK;
    void *at = NULL;

    if (device->ops->alloc(device, DCPK_MEMORY_DEVICE, n_bytes, &at, err))
        return err->status;
    if (device->ops->copy(device, QUEUE_MOVE, at, sums, n_bytes, err) ||
        dcpk_remap_queue_reading(remap, reading, at, err) ||
        device->ops->copy(device, QUEUE_MOVE, sums, at, n_bytes, err))
        st = err->status;
    st = dcpk_remap_drain(remap, st, err);
    device->ops->free(device, at);
    return st;
}

dcpk_status dcpk_remap_verify(struct dcpk_remap *remap, uint64_t *sums, struct dcpk_error *err)
{
    const size_t n = 2 * (size_t)remap->plan->n_tensors;
    const int timeout_ms = dcpk_remap_times(REMAP_RANKS_FACTOR, dcpk_remap_timeout(remap));
    struct dcpk_ranks *ranks = remap->options.ranks;
    struct remap_reading reading = {0};
    struct dcpk_tile_list list = {0};
    dcpk_status st;
    int before;

    if (n == 0)
        return DCPK_OK;
    before = dcpk_ranks_set_timeout(ranks, timeout_ms);
    memset(sums, 0, n * sizeof *sums);
    st = verify_tiles(remap, &list, err);
    if (st == DCPK_OK)
        st = dcpk_remap_load_reading(remap, &list, &reading, err);
    if (st == DCPK_OK)
        st = verify_run(remap, &reading, sums, n * sizeof *sums, err);
    st = dcpk_ranks_sum(ranks, sums, n, st, err);
    st = dcpk_ranks_agree(ranks, st, err);
    (void)dcpk_ranks_set_timeout(ranks, before);
    dcpk_remap_free_reading(remap, &reading);
    dcpk_tile_list_release(&list);
    return st;
}

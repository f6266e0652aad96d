/* SPDX-License-Identifier: Apache-2.0 */
/* plan_time.c - how long a plan takes: many tensors, rows to columns or rows to rows. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/plan/remap_plan.h"
#include "lib/plan/remap_tiles.h"

static const int64_t shape[] = {1024, 1024}, strides[] = {2048, 2};

/* Rank r's part of a tensor along one axis. */
static void make_span(int axis, int64_t r, int64_t n_ranks, int64_t *span)
{
    span[0] = span[1] = 0;
    span[2] = shape[0];
    span[3] = shape[1];
    span[axis] = r * shape[axis] / n_ranks;
    span[2 + axis] = (r + 1) * shape[axis] / n_ranks - span[axis];
}

/* All tensors on all ranks, cut along `axis`. */
static struct dcpk_shard *make_side(int axis, int64_t n_tensors, int64_t n_ranks, char (*names)[64],
                                    uint64_t at, struct dcpk_error *err)
{
    struct dcpk_shard *shards =
        dcpk_alloc_array((size_t)(n_tensors * n_ranks), sizeof *shards, err);
    int64_t *spans = dcpk_alloc_array((size_t)n_ranks, 4 * sizeof *spans, err);

    if (shards == NULL || spans == NULL)
        return NULL;
    for (int64_t r = 0; r < n_ranks; r++) {
        make_span(axis, r, n_ranks, spans + 4 * r);
        for (int64_t t = 0; t < n_tensors; t++)
            shards[r * n_tensors + t] =
                (struct dcpk_shard){names[t], DCPK_BF16,     2,       (int)r,
                                    shape,    spans + 4 * r, strides, at + (uint64_t)t * (2u << 20),
                                    0};
    }
    return shards; /* with its spans: the program ends soon */
}

/* The tiles of rank 0's moves. */
static size_t count_tiles(const struct dcpk_remap_plan *plan, struct dcpk_error *err)
{
    struct dcpk_tile_list list = {0};
    size_t n;

    for (size_t i = 0; i < plan->n_moves; i++) {
        const struct dcpk_move *m = &plan->moves[i];
        const struct dcpk_shard *s = &plan->input.sources[m->source];
        const struct dcpk_shard *t = &plan->input.targets[m->target];
        struct dcpk_tile_box box = {.shape = t->shape};

        if (dcpk_move_mover(plan, m) != 0)
            continue;
        dcpk_move_box(plan, m, &box.box);
        box.src = (struct dcpk_tile_side){dcpk_shard_address(s, box.box.offset), s->stride_bytes,
                                          s->dtype};
        box.dst = (struct dcpk_tile_side){dcpk_shard_address(t, box.box.offset), t->stride_bytes,
                                          t->dtype};
        if (dcpk_tile_list_add(&list, &box, 4 * DCPK_TILE_BYTES, err))
            break;
    }
    n = list.n;
    dcpk_tile_list_release(&list);
    return n;
}

int main(int argc, char **argv)
{
    const int64_t n_tensors = argc > 1 ? atoll(argv[1]) : 100000;
    const int64_t n_ranks = argc > 2 ? atoll(argv[2]) : 4;
    struct dcpk_error err = DCPK_ERROR_INIT;
    char(*names)[64] = dcpk_alloc_array((size_t)n_tensors, sizeof *names, &err);

    if (names == NULL)
        return 4;
    for (int64_t t = 0; t < n_tensors; t++)
        snprintf(names[t], sizeof names[t], "model.layers.%" PRId64 ".mlp.experts.weight", t);
    for (int axis = 0; axis < 2; axis++) {
        const struct dcpk_remap_input input = {
            .sources = make_side(0, n_tensors, n_ranks, names, 1u << 20, &err),
            .targets = make_side(axis, n_tensors, n_ranks, names, UINT64_C(1) << 40, &err),
            .n_sources = (size_t)(n_tensors * n_ranks),
            .n_targets = (size_t)(n_tensors * n_ranks),
            .n_ranks = (int)n_ranks};
        const double begun = dcpk_now_seconds();
        struct dcpk_remap_plan *plan;
        double planned, checked;
        size_t n_tiles;

        if (input.sources == NULL || input.targets == NULL ||
            dcpk_remap_plan_new(&input, &plan, &err) != DCPK_OK)
            return 4;
        planned = dcpk_now_seconds();
        if (dcpk_remap_check_memory(plan, 0, &err) != DCPK_OK)
            return 4;
        checked = dcpk_now_seconds();
        n_tiles = count_tiles(plan, &err);
        printf("%s: %zu moves in %.3f s, memory checked in %.3f s, %zu tiles of rank 0 in %.3f s\n",
               axis == 0 ? "rows to rows" : "rows to columns", plan->n_moves, planned - begun,
               checked - planned, n_tiles, dcpk_now_seconds() - checked);
        dcpk_remap_plan_free(plan);
    }
    return err.status == DCPK_OK ? 0 : 4;
}

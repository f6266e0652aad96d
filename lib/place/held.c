/* SPDX-License-Identifier: Apache-2.0 */
/* held.c - a tensor on a rank: which copy, and which boxes of it. */
#include "lib/place/held.h"

#include <inttypes.h>
#include <string.h>

#include "lib/base/order.h"

/* The position of a rank for a tensor. */
struct standing {
    bool holds;
    int64_t tp;    /* its block */
    int64_t shard; /* of FSDP */
    int64_t copy;  /* of those that hold the same */
};

static struct standing stand_among_experts(struct dcpk_coords c, const struct dcpk_spread *spread)
{
    struct standing s = {.holds = c.ep == spread->ep, .tp = c.etp, .copy = c.edp};

    if (spread->flat != NULL) {
        s.shard = c.edp % spread->flat->n_shards;
        s.copy = c.edp / spread->flat->n_shards;
    }
    return s;
}

static struct standing stand(const struct dcpk_grid *full, const struct dcpk_spread *spread,
                             int64_t rank)
{
    const struct dcpk_coords c = dcpk_grid_coords(full, rank);
    const int64_t n_tp = spread->ep >= 0 ? full->etp : full->tp;
    struct standing s = {.holds = true, .tp = c.tp};
    int64_t n_copies = full->tp * full->cp * full->dp / n_tp;

    if (spread->ep >= 0) {
        s = stand_among_experts(c, spread);
    } else if (spread->flat != NULL) {
        s.shard = c.shard;
        s.copy = c.instance;
    } else {
        s.copy = c.cp + full->cp * c.dp;
    }
    if (spread->tp_axis < 0) { /* ranks that differ in tp alone hold copies */
        s.copy = s.copy * n_tp + s.tp;
        n_copies *= n_tp;
        s.tp = 0;
    }
    if (spread->stage < 0)
        s.copy += c.pp * n_copies;
    else
        s.holds = s.holds && spread->stage == c.pp;
    return s;
}

dcpk_status dcpk_check_blocks(const int64_t *shape, int rank, int axis, int64_t n_parts,
                              int64_t n_tp, struct dcpk_error *err)
{
    const int64_t n = axis < rank ? shape[axis] : 1;

    if (n % (n_parts * n_tp) == 0)
        return DCPK_OK;
    if (n_parts > 1)
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "tp=%" PRId64 " does not divide the %" PRId64 " rows in %" PRId64 " parts",
                         n_tp, n, n_parts);
    return dcpk_fail(err, DCPK_EMISMATCH, "tp=%" PRId64 " does not divide the %" PRId64 " %s", n_tp,
                     n, axis == 0 ? "rows" : "columns");
}

dcpk_status dcpk_spread_check(const struct dcpk_spread *spread, struct dcpk_error *err)
{
    if (spread->tp_axis < 0)
        return DCPK_OK;
    if (dcpk_check_blocks(spread->shape, spread->rank, spread->tp_axis, 1, spread->n_tp, err))
        return err->status;
    for (int64_t i = 0; i < spread->n_parts && spread->tp_axis == 0; i++) {
        const int64_t n_rows = spread->part_at[i + 1] - spread->part_at[i];

        if (dcpk_check_blocks(&n_rows, 1, 0, 1, spread->n_tp, err))
            return err->status;
    }
    return DCPK_OK;
}

/* The ranks of tensor parallelism that cut the rows. */
static int64_t row_blocks(const struct dcpk_spread *spread)
{
    if (spread->tp_axis == 0)
        return spread->n_tp;
    return 1;
}

/* Begins the box of a block: all of it, without its rows. span: zeroed. */
static void put_block(const struct dcpk_spread *spread, int64_t tp, int64_t *span)
{
    const int axis = spread->tp_axis;

    memcpy(span + spread->rank, spread->shape, (size_t)spread->rank * sizeof *span);
    if (axis > 0) {
        span[spread->rank + axis] /= spread->n_tp;
        span[axis] = tp * span[spread->rank + axis];
    }
}

/* The rows of part i that a rank of tensor parallelism has. */
static struct dcpk_rows part_of_rank(const struct dcpk_spread *spread, int64_t i, int64_t tp)
{
    struct dcpk_rows rows = {0, spread->shape[0]};

    if (spread->tp_axis != 0)
        return rows;
    if (spread->n_parts > 0)
        rows = (struct dcpk_rows){spread->part_at[i], spread->part_at[i + 1] - spread->part_at[i]};
    return dcpk_rows_of_rank(rows, spread->n_tp, tp);
}

/* Adds the boxes of rows [low, high) of a rank's block: one for each part that has some of them;
 * those that touch are one. */
static dcpk_status local_add_boxes(const struct dcpk_spread *spread, int64_t tp,
                                   struct dcpk_rows held, struct dcpk_arena *arena,
                                   struct dcpk_local *local, struct dcpk_error *err)
{
    const int64_t n_parts = spread->tp_axis == 0 && spread->n_parts > 0 ? spread->n_parts : 1;
    const size_t rank = (size_t)spread->rank;
    const int64_t **spans = dcpk_arena_array(arena, (size_t)n_parts, sizeof *spans, err);
    int64_t *last = NULL, at = 0; /* the local row that a part begins at */

    if (spans == NULL)
        return err->status;
    local->spans = spans;
    for (int64_t i = 0; i < n_parts; i++) {
        const struct dcpk_rows part = part_of_rank(spread, i, tp);
        const int64_t low = dcpk_max_i64(held.row - at, 0);
        const int64_t n = dcpk_min_i64(held.row + held.n_rows - at, part.n_rows) - low;

        at += part.n_rows;
        if (n <= 0)
            continue;
        if (last != NULL && last[0] + last[rank] == part.row + low) {
            last[rank] += n;
            continue;
        }
        last = dcpk_arena_array(arena, 3 * rank, sizeof *last, err);
        if (last == NULL)
            return err->status;
        put_block(spread, tp, last);
        last[0] = part.row + low;
        last[rank] = n;
        last[2 * rank] = at - part.n_rows + low - held.row;
        spans[local->n++] = last;
    }
    return DCPK_OK;
}

/* A tensor without rows: one number. */
static dcpk_status local_set_scalar(struct dcpk_arena *arena, struct dcpk_local *local,
                                    struct dcpk_error *err)
{
    static const int64_t none[1];
    const int64_t **spans = dcpk_arena_array(arena, 1, sizeof *spans, err);

    if (spans == NULL)
        return err->status;
    spans[0] = none;
    local->spans = spans;
    local->n = 1;
    return DCPK_OK;
}

dcpk_status dcpk_held_of(const struct dcpk_placing *placing, const struct dcpk_spread *spread,
                         int64_t rank, struct dcpk_arena *arena, struct dcpk_local *local,
                         struct dcpk_error *err)
{
    const struct dcpk_grid full = dcpk_grid_full(&placing->grid);
    int64_t span[3 * DCPK_MAX_RANK] = {0}, first;
    struct dcpk_rows held = {0, 0};
    struct standing s;
    struct dcpk_box box;
    bool is_empty = false;

    *local = (struct dcpk_local){.copy = -1};
    if (rank >= dcpk_grid_ranks(&full))
        return DCPK_OK;
    s = stand(&full, spread, rank);
    if (!s.holds)
        return DCPK_OK;
    local->copy = s.copy;
    if (spread->rank == 0)
        return local_set_scalar(arena, local, err);
    held.n_rows = spread->shape[0] / row_blocks(spread);
    if (spread->flat != NULL) {
        if (dcpk_fsdp_shard(spread->flat, spread->place, s.shard, &box, &first, err))
            return err->status;
        held = (struct dcpk_rows){box.offset[0], box.extent[0]};
    }
    put_block(spread, s.tp, span);
    memcpy(local->shape, span + spread->rank, (size_t)spread->rank * sizeof *span);
    local->shape[0] = held.n_rows;
    for (int a = 0; a < spread->rank; a++)
        is_empty = is_empty || local->shape[a] == 0;
    if (is_empty)
        return DCPK_OK;
    return local_add_boxes(spread, s.tp, held, arena, local, err);
}

dcpk_status dcpk_held_chunks(const struct dcpk_spread *spread, const struct dcpk_rows *rows,
                             struct dcpk_arena *arena, struct dcpk_span_list *list,
                             struct dcpk_error *err)
{
    const int64_t n_tp = spread->n_tp, by = row_blocks(spread);
    const size_t rank = (size_t)spread->rank;
    struct dcpk_rows part = {0, spread->shape[0] / by};
    const int64_t **spans;
    int64_t first, end, ignored;

    if (rows != NULL)
        part = (struct dcpk_rows){rows->row / by, rows->n_rows / by};
    dcpk_fsdp_holders(spread->flat, spread->place, &first, &end);
    spans = dcpk_arena_array(arena, (size_t)(n_tp * (end - first)), sizeof *spans, err);
    if (spans == NULL)
        return err->status;
    *list = (struct dcpk_span_list){spans, 0};
    for (int64_t i = 0; i < n_tp * (end - first); i++) {
        const int64_t tp = i / (end - first), shard = first + i % (end - first);
        int64_t *span, low, high;
        struct dcpk_box box;

        if (dcpk_fsdp_shard(spread->flat, spread->place, shard, &box, &ignored, err))
            return err->status;
        low = dcpk_max_i64(box.offset[0] - part.row, 0);
        high = dcpk_min_i64(box.offset[0] + box.extent[0] - part.row, part.n_rows);
        if (low >= high)
            continue;
        span = dcpk_arena_array(arena, 2 * rank, sizeof *span, err);
        if (span == NULL)
            return err->status;
        put_block(spread, tp, span);
        span[0] = low;
        if (by > 1)
            span[0] += tp * part.n_rows;
        span[rank] = high - low;
        spans[list->n++] = span;
    }
    return DCPK_OK;
}

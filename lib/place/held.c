/* SPDX-License-Identifier: Apache-2.0 */
/* held.c - a tensor on a rank: which copy, and which boxes of it. */
#include "lib/place/held.h"

#include <inttypes.h>

#include "lib/base/order.h"

/* Where a rank stands to a tensor. */
struct standing {
    bool holds;
    int64_t tp, n_tp; /* its block of so many; 0 of 1: all */
    int64_t shard;    /* of FSDP */
    int64_t copy;     /* of those that hold the same */
};

static struct standing stand_among_experts(const struct dcpk_grid *full, struct dcpk_coords c,
                                           const struct dcpk_spread *spread)
{
    struct standing s = {
        .holds = c.ep == spread->ep, .tp = c.etp, .n_tp = full->etp, .copy = c.edp};

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
    struct standing s = {.holds = true, .tp = c.tp, .n_tp = full->tp};
    int64_t n_copies;

    if (spread->ep >= 0) {
        s = stand_among_experts(full, c, spread);
    } else if (spread->flat != NULL) {
        s.shard = c.shard;
        s.copy = c.instance;
    } else {
        s.copy = c.cp + full->cp * c.dp;
    }
    n_copies = full->tp * full->cp * full->dp / s.n_tp;
    if (spread->tp_axis < 0) { /* ranks that differ in tp alone hold copies */
        s.copy = s.copy * s.n_tp + s.tp;
        n_copies *= s.n_tp;
        s.tp = 0;
        s.n_tp = 1;
    }
    if (spread->stage < 0)
        s.copy += c.pp * n_copies;
    else
        s.holds = s.holds && spread->stage == c.pp;
    return s;
}

/* A local tensor while its boxes are made. */
struct cutting {
    const struct dcpk_spread *spread;
    struct standing stands;
    struct dcpk_rows held; /* rows of the rank's block that the rank holds */
    int64_t **spans;
    struct dcpk_local *local;
};

/* Adds what the rank holds of `rows` of the tensor, which are rows `local_row` on of its block. */
static void cutting_add(struct cutting *g, struct dcpk_rows rows, int64_t local_row)
{
    const int rank = g->spread->rank;
    const int64_t first = dcpk_max_i64(local_row, g->held.row);
    const int64_t last = dcpk_min_i64(local_row + rows.n_rows, g->held.row + g->held.n_rows);
    int64_t *span = g->spans[g->local->n_spans];

    if (first >= last)
        return;
    for (int a = 0; a < rank; a++) {
        span[a] = 0;
        if (a == g->spread->tp_axis)
            span[a] = g->stands.tp * g->local->shape[a];
        span[rank + a] = g->local->shape[a];
        span[2 * rank + a] = 0;
    }
    span[0] = rows.row + first - local_row;
    span[rank] = last - first;
    span[2 * rank] = first - g->held.row;
    g->local->n_spans++;
}

/* Adds all boxes of a tensor with axes. */
static void cutting_add_all(struct cutting *g)
{
    const struct dcpk_rows whole = {0, g->spread->shape[0]};
    int64_t local_row = 0;

    if (g->spread->tp_axis != 0) {
        cutting_add(g, whole, 0);
        return;
    }
    if (g->spread->n_parts == 0)
        cutting_add(g, dcpk_rows_of_rank(whole, g->stands.n_tp, g->stands.tp), 0);
    for (size_t i = 0; i < g->spread->n_parts; i++) {
        const struct dcpk_rows rows =
            dcpk_rows_of_rank(g->spread->parts[i], g->stands.n_tp, g->stands.tp);

        cutting_add(g, rows, local_row);
        local_row += rows.n_rows;
    }
}

static dcpk_status cutting_make(struct cutting *g, struct dcpk_arena *arena, struct dcpk_error *err)
{
    const size_t rank = (size_t)g->spread->rank, most = dcpk_max_size(g->spread->n_parts, 1);

    g->spans = dcpk_arena_array(arena, most, sizeof *g->spans, err);
    if (g->spans == NULL)
        return err->status;
    for (size_t i = 0; i < most; i++) {
        g->spans[i] = dcpk_arena_array(arena, 3 * rank + 1, sizeof **g->spans, err);
        if (g->spans[i] == NULL)
            return err->status;
    }
    g->local->spans = (const int64_t *const *)g->spans;
    if (rank == 0)
        g->local->n_spans = 1;
    else
        cutting_add_all(g);
    return DCPK_OK;
}

dcpk_status dcpk_spread_check(const struct dcpk_spread *spread, int64_t n_tp, const char *name,
                              struct dcpk_error *err)
{
    int64_t n_elems = 1;

    if (n_tp <= 1 || spread->tp_axis < 0)
        return DCPK_OK;
    if (spread->tp_axis < spread->rank)
        n_elems = spread->shape[spread->tp_axis];
    if (n_elems % n_tp != 0)
        return dcpk_fail(err, DCPK_EMISMATCH, "'%s': tp=%" PRId64 " does not divide %" PRId64 " %s",
                         name, n_tp, n_elems, spread->tp_axis == 0 ? "rows" : "columns");
    for (size_t i = 0; i < spread->n_parts && spread->tp_axis == 0; i++)
        if (spread->parts[i].n_rows % n_tp != 0)
            return dcpk_fail(err, DCPK_EMISMATCH,
                             "'%s': tp=%" PRId64 " does not divide the %" PRId64
                             " rows of one of its parts",
                             name, n_tp, spread->parts[i].n_rows);
    return DCPK_OK;
}

dcpk_status dcpk_held_of(const struct dcpk_placing *placing, const struct dcpk_spread *spread,
                         int64_t rank, struct dcpk_arena *arena, struct dcpk_local *local,
                         struct dcpk_error *err)
{
    const struct dcpk_grid full = dcpk_grid_full(&placing->grid);
    struct cutting g = {.spread = spread, .local = local};

    *local = (struct dcpk_local){.copy = -1};
    if (rank >= dcpk_grid_ranks(&full))
        return DCPK_OK;
    g.stands = stand(&full, spread, rank);
    if (!g.stands.holds)
        return DCPK_OK;
    local->copy = g.stands.copy;
    for (int a = 0; a < spread->rank; a++)
        local->shape[a] = spread->shape[a];
    if (spread->tp_axis >= 0)
        local->shape[spread->tp_axis] /= g.stands.n_tp;
    if (spread->rank > 0)
        g.held = (struct dcpk_rows){0, local->shape[0]};
    if (spread->flat != NULL) {
        struct dcpk_box box;
        int64_t first;

        if (dcpk_fsdp_shard(spread->flat, spread->place, g.stands.shard, &box, &first, err))
            return err->status;
        g.held = (struct dcpk_rows){box.offset[0], box.extent[0]};
    }
    if (spread->rank > 0)
        local->shape[0] = g.held.n_rows;
    return cutting_make(&g, arena, err);
}

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

dcpk_status dcpk_check_blocks(const int64_t *shape, int rank, int axis, int64_t n_blocks,
                              struct dcpk_error *err)
{
    if (axis < rank && shape[axis] % n_blocks == 0)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EMISMATCH,
                     "%" PRId64 " %s do not divide into %" PRId64 " blocks of tensor parallelism",
                     axis < rank ? shape[axis] : 1, axis == 0 ? "rows" : "columns", n_blocks);
}

dcpk_status dcpk_spread_check(const struct dcpk_spread *spread, int64_t n_tp,
                              struct dcpk_error *err)
{
    if (n_tp <= 1 || spread->tp_axis < 0)
        return DCPK_OK;
    if (dcpk_check_blocks(spread->shape, spread->rank, spread->tp_axis, n_tp, err))
        return err->status;
    for (int64_t i = 0; i < spread->n_parts && spread->tp_axis == 0; i++) {
        const int64_t n_rows = spread->part_at[i + 1] - spread->part_at[i];

        if (dcpk_check_blocks(&n_rows, 1, 0, n_tp, err))
            return err->status;
    }
    return DCPK_OK;
}

/* Cuts the rows of a rank's block into those before, in and after the slice of `shard`. */
static dcpk_status cut_rows(const struct dcpk_spread *spread, int64_t shard, int64_t n_rows,
                            int64_t cut[4], struct dcpk_error *err)
{
    struct dcpk_box box;
    int64_t first;

    if (dcpk_fsdp_shard(spread->flat, spread->place, shard, &box, &first, err))
        return err->status;
    cut[0] = 0;
    cut[1] = box.offset[0];
    cut[2] = box.offset[0] + box.extent[0];
    cut[3] = n_rows;
    return DCPK_OK;
}

dcpk_status dcpk_held_of(const struct dcpk_placing *placing, const struct dcpk_spread *spread,
                         int64_t rank, struct dcpk_arena *arena, struct dcpk_local *local,
                         struct dcpk_error *err)
{
    const struct dcpk_grid full = dcpk_grid_full(&placing->grid);
    struct dcpk_mesh mesh = {.n_dims = 1, .name = {"tp", "rows"}, .size = {1, 3}};
    struct dcpk_placement cuts[2] = {{.kind = DCPK_REPLICATE}, {.kind = DCPK_UNEVEN}};
    const struct dcpk_placed placed = {&mesh, cuts, spread->shape, spread->rank};
    struct standing s;
    int64_t cut[4];

    *local = (struct dcpk_local){.copy = -1};
    if (rank >= dcpk_grid_ranks(&full))
        return DCPK_OK;
    s = stand(&full, spread, rank);
    if (!s.holds)
        return DCPK_OK;
    mesh.size[0] = s.n_tp;
    if (spread->tp_axis >= 0)
        cuts[0] = (struct dcpk_placement){.kind = DCPK_SHARD, .axis = spread->tp_axis};
    if (spread->tp_axis == 0 && spread->n_parts > 0)
        cuts[0] = (struct dcpk_placement){
            .kind = DCPK_STRIDED, .split = spread->n_parts, .cut = spread->part_at};
    if (spread->flat != NULL) {
        const int64_t n_rows = spread->shape[0] / (spread->tp_axis == 0 ? s.n_tp : 1);

        mesh.n_dims = 2;
        cuts[1].cut = cut;
        if (cut_rows(spread, s.shard, n_rows, cut, err))
            return err->status;
        s.tp = 3 * s.tp + 1;
    }
    local->copy = s.copy;
    return dcpk_placement_rank(&placed, s.tp, arena, &local->boxes, err);
}

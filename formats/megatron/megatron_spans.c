/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_spans.c - a stored tensor's chunks as placements on a mesh. */
#include "formats/megatron/megatron_spans.h"

#include <assert.h>

#include "lib/base/order.h"
#include "lib/tensor/placement.h"

/*
 * Blocks of the axis that tensor parallelism cuts. Rank r of tp stores rows r and tp + r of 2 * tp
 * blocks of a gated fc1 (also when tp is 1): together they are plain blocks of the whole.
 */
static dcpk_status count_blocks(const struct dcpk_grid *mesh, const struct dcpk_param *param,
                                const struct dcpk_stacked_shape *stored, int *axis,
                                int64_t *n_blocks, struct dcpk_error *err)
{
    const int n_lead = stored->n_lead;
    const int64_t n_parts = dcpk_parts_count(param);
    int64_t tp = dcpk_max_i64(mesh->tp, 1);

    if (param->expert >= 0 && mesh->etp > 0)
        tp = mesh->etp;
    if (param->tp_axis == DCPK_TP_UNKNOWN && tp > 1)
        return dcpk_fail_fix(err, DCPK_EUNSUPPORTED, DCPK_FIX_NO_MESH,
                             "no rule says how tensor parallelism cuts '%s'", param->name);
    *axis = -1;
    *n_blocks = 1;
    if (n_parts > 1)
        *axis = n_lead;
    else if (param->tp_axis >= 0)
        *axis = n_lead + param->tp_axis;
    if (*axis < 0)
        return DCPK_OK;
    *n_blocks = n_parts * tp;
    if (dcpk_check_blocks(stored->shape + n_lead, stored->rank - n_lead, *axis - n_lead, *n_blocks,
                          err)) {
        dcpk_context(err, "'%s'", param->name);
        return err->status;
    }
    return DCPK_OK;
}

dcpk_status dcpk_megatron_spans(const struct dcpk_grid *mesh, const struct dcpk_param *param,
                                const struct dcpk_stacked_shape *stored, struct dcpk_arena *arena,
                                struct dcpk_span_list *list, struct dcpk_error *err)
{
    const int n_lead = stored->n_lead;
    struct dcpk_mesh cuts = {.n_dims = n_lead};
    struct dcpk_placement placement[DCPK_MAX_MESH];
    const struct dcpk_placed placed = {&cuts, placement, stored->shape, stored->rank};
    int64_t n_blocks;
    int axis;

    if (count_blocks(mesh, param, stored, &axis, &n_blocks, err))
        return err->status;
    assert(n_lead < DCPK_MAX_MESH && n_lead <= stored->rank);
    for (int a = 0; a < n_lead; a++) {
        cuts.name[a] = "stacked";
        cuts.size[a] = dcpk_max_i64(stored->shape[a], 1);
        placement[a] = (struct dcpk_placement){.kind = DCPK_SHARD, .axis = a};
    }
    if (axis >= 0) {
        cuts.name[n_lead] = "tp";
        cuts.size[n_lead] = n_blocks;
        placement[n_lead] = (struct dcpk_placement){.kind = DCPK_SHARD, .axis = axis};
        cuts.n_dims++;
    }
    return dcpk_placement_chunks(&placed, arena, list, err);
}

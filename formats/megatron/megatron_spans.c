/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_spans.c - a stored tensor's chunks as placements on a mesh. */
#include "formats/megatron/megatron_spans.h"

#include <assert.h>
#include <inttypes.h>

#include "lib/tensor/placement.h"

/*
 * Blocks of the axis that tensor parallelism cuts. Rank r of tp stores rows r and tp + r of 2 * tp
 * blocks of a gated fc1 (also when tp is 1): together they are plain blocks of the whole.
 */
static dcpk_status count_blocks(const struct dcpk_layout *mesh, const struct dcpk_param *param,
                                const struct dcpk_stacked_shape *stored, int *axis,
                                int64_t *n_blocks, struct dcpk_error *err)
{
    const int n_lead = stored->n_lead;
    const int64_t of_params = mesh->tp > 0 ? mesh->tp : 1, n_parts = dcpk_parts_count(param);
    const int64_t tp = param->expert >= 0 && mesh->etp > 0 ? mesh->etp : of_params;

    if (param->tp_axis == DCPK_TP_UNKNOWN && tp > 1)
        return dcpk_fail_fix(err, DCPK_EUNSUPPORTED, DCPK_FIX_NO_MESH,
                             "no rule says how tensor parallelism cuts '%s'", param->name);
    *axis = n_parts > 1 ? n_lead : param->tp_axis < 0 ? -1 : n_lead + param->tp_axis;
    *n_blocks = *axis < 0 ? 1 : n_parts * tp;
    if (*axis >= stored->rank || (*axis >= 0 && stored->shape[*axis] % *n_blocks != 0))
        return dcpk_fail(err, DCPK_EMISMATCH,
                         "'%s': %" PRId64 " %s do not divide into %" PRId64
                         " blocks of tensor parallelism",
                         param->name, *axis >= stored->rank ? 1 : stored->shape[*axis],
                         *axis == n_lead ? "rows" : "columns", *n_blocks);
    return DCPK_OK;
}

dcpk_status dcpk_megatron_spans(const struct dcpk_layout *mesh, const struct dcpk_param *param,
                                const struct dcpk_stacked_shape *stored, struct dcpk_arena *arena,
                                struct dcpk_span_list *list, struct dcpk_error *err)
{
    const int n_lead = stored->n_lead;
    struct dcpk_mesh cuts = {.n_dims = n_lead};
    struct dcpk_placement placement[DCPK_MAX_MESH];
    int64_t n_blocks;
    int axis;
    dcpk_status st = count_blocks(mesh, param, stored, &axis, &n_blocks, err);

    assert(n_lead < DCPK_MAX_MESH && n_lead <= stored->rank);
    if (st != DCPK_OK)
        return st;
    for (int a = 0; a < n_lead; a++) {
        cuts.name[a] = "stacked";
        cuts.size[a] = stored->shape[a] > 0 ? stored->shape[a] : 1;
        placement[a] = (struct dcpk_placement){.kind = DCPK_SHARD, .axis = a};
    }
    if (axis >= 0) {
        cuts.name[n_lead] = "tp";
        cuts.size[n_lead] = n_blocks;
        placement[n_lead] = (struct dcpk_placement){.kind = DCPK_SHARD, .axis = axis};
        cuts.n_dims++;
    }
    return dcpk_placement_chunks(&cuts, placement, stored->shape, stored->rank, arena, &list->spans,
                                 &list->n, err);
}

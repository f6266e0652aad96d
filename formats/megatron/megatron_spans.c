/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_spans.c - a stored tensor's chunks as blocks. */
#include "formats/megatron/megatron_spans.h"

#include "lib/base/order.h"

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
    if (dcpk_check_blocks(stored->shape + n_lead, stored->rank - n_lead, *axis - n_lead, n_parts,
                          tp, err)) {
        dcpk_context(err, "'%s'", param->name);
        return err->status;
    }
    return DCPK_OK;
}

dcpk_status dcpk_megatron_spans(const struct dcpk_grid *mesh, const struct dcpk_param *param,
                                const struct dcpk_stacked_shape *stored, struct dcpk_arena *arena,
                                struct dcpk_span_list *list, struct dcpk_error *err)
{
    int64_t step[DCPK_MAX_RANK], n_blocks;
    int axis;

    if (count_blocks(mesh, param, stored, &axis, &n_blocks, err))
        return err->status;
    for (int a = 0; a < stored->rank; a++) {
        step[a] = a < stored->n_lead ? 1 : dcpk_max_i64(stored->shape[a], 1);
        if (a == axis)
            step[a] = dcpk_max_i64(stored->shape[a] / n_blocks, 1);
    }
    return dcpk_block_chunks(stored->shape, stored->rank, step, arena, list, err);
}

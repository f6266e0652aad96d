/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_stacking.c - keys of all layers and experts taken apart; a stored tensor's chunks as
 * blocks. */
#include "formats/megatron/megatron_stacking.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "lib/base/order.h"

#define LAYERS  "layers."
#define EXPERTS "mlp.experts.experts."

dcpk_status dcpk_stacking_find(const char *name, int rank, struct dcpk_stacking *s,
                               struct dcpk_error *err)
{
    const char *experts = strstr(name, EXPERTS);

    *s = (struct dcpk_stacking){0, SIZE_MAX, 0};
    for (const char *p = name; (p = strstr(p, LAYERS)) != NULL; p++)
        if ((p == name || p[-1] == '.') && !isdigit((unsigned char)p[strlen(LAYERS)])) {
            if (s->layer_at != 0)
                return dcpk_fail(err, DCPK_EUNSUPPORTED, "two stacked layer axes");
            s->layer_at = (size_t)(p - name) + strlen(LAYERS);
            s->n_axes++;
        }
    if (experts != NULL) {
        if (isdigit((unsigned char)experts[strlen(EXPERTS)]))
            return dcpk_fail(err, DCPK_EUNSUPPORTED,
                             "experts as single shards (singleton_local_shards) are not read by "
                             "this version (save without that option)");
        s->expert_at = (size_t)(experts - name);
        s->n_axes++;
    }
    if (s->n_axes > rank)
        return dcpk_fail(err, DCPK_EFORMAT, "the name says %d stacked axes, the item has %d",
                         s->n_axes, rank);
    return DCPK_OK;
}

const char *dcpk_stacking_name(struct dcpk_arena *arena, const char *name,
                               const struct dcpk_stacking *s, int64_t layer, int64_t expert,
                               struct dcpk_error *err)
{
    const char *head = "", *tail = name;

    if (s->layer_at != 0) {
        head = dcpk_arena_printf(arena, err, "%.*s%" PRId64 ".", (int)s->layer_at, name, layer);
        tail = name + s->layer_at;
    }
    if (head == NULL)
        return NULL;
    if (s->expert_at == SIZE_MAX)
        return dcpk_arena_printf(arena, err, "%s%s", head, tail);
    return dcpk_arena_printf(arena, err, "%s%.*smlp.experts.%s%" PRId64, head,
                             (int)(name + s->expert_at - tail), tail,
                             name + s->expert_at + strlen(EXPERTS), expert);
}

/* ---- chunks ---- */

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
                          tp, err))
        return dcpk_context(err, "'%s'", param->name);
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

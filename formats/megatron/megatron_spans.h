/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_spans.h - the chunks that a 3D-parallel run of Megatron stores a tensor in. */
#ifndef DCPK_FORMATS_MEGATRON_SPANS_H
#define DCPK_FORMATS_MEGATRON_SPANS_H

#include "lib/model/parts.h"
#include "lib/tensor/chunks.h"

/* A stored tensor's shape, of which the first n_lead axes are stacked ones (layers, experts). */
struct dcpk_stacked_shape {
    const int64_t *shape;
    int rank, n_lead;
};

/*
 * The boxes of a stored tensor under `mesh` (formats/torch_dist/FORMAT.md 4.1, 4.4, 4.5): each
 * slice of the stacked axes apart, the axis that tensor parallelism cuts in tp blocks, of a gated
 * parameter the gate and the up rows in tp blocks each; all else whole. Pipeline, expert and data
 * parallelism leave no trace. param: with tp_axis. list: in `arena`, set on success only. mesh->tp:
 * 0 is 1; mesh->etp, which cuts experts: 0 is tp. Errors: DCPK_EMISMATCH naming the parameter whose
 * axis does not divide; DCPK_EUNSUPPORTED for one that no rule cuts when tp > 1.
 */
dcpk_status dcpk_megatron_spans(const struct dcpk_grid *mesh, const struct dcpk_param *param,
                                const struct dcpk_stacked_shape *stored, struct dcpk_arena *arena,
                                struct dcpk_span_list *list, struct dcpk_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_stacking.h - keys that stand for all layers or all experts, the names of single ones,
 * and the chunks that a 3D-parallel run stores a tensor in. */
#ifndef DCPK_FORMATS_MEGATRON_STACKING_H
#define DCPK_FORMATS_MEGATRON_STACKING_H

#include "lib/base/arena.h"
#include "lib/model/parts.h"
#include "lib/tensor/chunks.h"

/*
 * A key's stacked axes. "decoder.layers.mlp.experts.experts.linear_fc1.weight" has a layer axis
 * after "layers." and an expert axis after "experts.experts." (formats/torch_dist/FORMAT.md 4.2,
 * 4.5).
 */
struct dcpk_stacking {
    size_t layer_at;  /* bytes of the name up to and with "layers."; 0: no layer axis */
    size_t expert_at; /* place of EXPERTS in the name; SIZE_MAX: no expert axis */
    int n_axes;
};

/*
 * The stacked axes of `name`, a key without its optimizer prefix; rank: of its tensor or object.
 * Errors: DCPK_EUNSUPPORTED for two layer axes or single experts; DCPK_EFORMAT for more axes than
 * the rank.
 */
dcpk_status dcpk_stacking_find(const char *name, int rank, struct dcpk_stacking *s,
                               struct dcpk_error *err);

/* The live name of one layer and expert of a stacked key; NULL and err for memory. */
const char *dcpk_stacking_name(struct dcpk_arena *arena, const char *name,
                               const struct dcpk_stacking *s, int64_t layer, int64_t expert,
                               struct dcpk_error *err);

/* ---- chunks ---- */

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

/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_spans.h - the chunks that a 3D-parallel run of Megatron stores a tensor in. */
#ifndef DCPK_FORMATS_MEGATRON_SPANS_H
#define DCPK_FORMATS_MEGATRON_SPANS_H

#include "lib/ckpt/model.h"

/*
 * The boxes of a stored tensor under `mesh` (torch_dist.md 4.1, 4.4, 4.5): each slice of the n_lead
 * stacked axes (layers, experts) apart, the axis that tensor parallelism cuts in tp blocks, of a
 * gated parameter the gate and the up rows in tp blocks each; all else whole. Pipeline, expert and
 * data parallelism leave no trace. param: with tp_axis; shape, rank: of the stored tensor, n_lead
 * stacked axes first. *spans: in `arena`, packed. mesh->tp: 0 is 1. Errors: DCPK_EMISMATCH naming
 * the parameter whose axis does not divide; DCPK_EUNSUPPORTED for one that no rule cuts when tp
 * > 1.
 */
dcpk_status dcpk_megatron_spans(const struct dcpk_layout *mesh, const struct dcpk_param *param,
                                const int64_t *shape, int rank, int n_lead,
                                struct dcpk_arena *arena, const int64_t ***spans, size_t *n,
                                struct dcpk_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_stacking.h - keys that stand for all layers or all experts, and the names of single
 * ones.
 */
#ifndef DCPK_FORMATS_MEGATRON_STACKING_H
#define DCPK_FORMATS_MEGATRON_STACKING_H

#include "lib/base/arena.h"

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

#endif

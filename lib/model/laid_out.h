/* SPDX-License-Identifier: Apache-2.0 */
/* laid_out.h - how the ranks of a grid share the tensors of a model. */
#ifndef DCPK_LIB_MODEL_LAID_OUT_H
#define DCPK_LIB_MODEL_LAID_OUT_H

#include "lib/ckpt/output.h"
#include "lib/model/parts.h"
#include "lib/place/held.h"

/*
 * Set what tensor parallelism of n_tp ranks does to a parameter: shape, axis and parts of `spread`,
 * in `arena`; the rest stays. Nothing for a parameter without a value. Errors: DCPK_EUNSUPPORTED
 * where no rule cuts it; those of dcpk_parts_of and dcpk_spread_check.
 */
dcpk_status dcpk_spread_of(const struct dcpk_model *model, const struct dcpk_param *param,
                           int64_t n_tp, struct dcpk_arena *arena, struct dcpk_spread *spread,
                           struct dcpk_error *err);

/* A placing of one model. Zero it before use; release it in any case. The model is borrowed. */
struct dcpk_laid_out {
    const struct dcpk_model *model;
    struct dcpk_placing placing;
    struct dcpk_arena *arena;
    struct dcpk_spread *spreads; /* by parameter */
    /* With FSDP: by place in the order of registration, buffers left out. */
    struct dcpk_fsdp_param *flats;
    struct dcpk_fsdp_place *places;
    size_t n_flats;
};

/*
 * Lay out the model, whose parameters have their place (lib/model/registered.h) and fit the sizes
 * (dcpk_rules_mesh). The first stage also has the embeddings, the last one the rest; tensors
 * without a rule are on all. Errors: DCPK_EMISMATCH naming what does not divide; DCPK_EUNSUPPORTED
 * for a parameter that no rule cuts, and for rows that FSDP would cut; DCPK_ENOMEM.
 */
dcpk_status dcpk_lay_out(const struct dcpk_model *model, const struct dcpk_placing *placing,
                         struct dcpk_laid_out *laid, struct dcpk_error *err);
void dcpk_laid_out_release(struct dcpk_laid_out *laid); /* zeroed: a no-op */

/* Find the part of a tensor of the model that a given rank holds. A tensor that does not have its
 * parameter's shape, such as a step counter, is whole on the ranks that have the parameter. Errors:
 * those of dcpk_held_of. */
dcpk_status dcpk_laid_out_find(const struct dcpk_laid_out *laid,
                               const struct dcpk_model_tensor *tensor, int64_t rank,
                               struct dcpk_arena *arena, struct dcpk_local *local,
                               struct dcpk_error *err);

/*
 * Set tensor->spans to what ranks of FSDP hold of `rows` of a parameter (NULL: all), each box once
 * (formats/fsdp_dtensor/FORMAT.md 8.1). Leaves it alone for buffers, for what has no rows, and
 * where nothing was laid out. Errors: those of dcpk_held_chunks.
 */
dcpk_status dcpk_laid_out_cut(const struct dcpk_laid_out *laid, uint32_t param,
                              const struct dcpk_rows *rows, struct dcpk_arena *arena,
                              struct dcpk_out_tensor *tensor, struct dcpk_error *err);

#endif

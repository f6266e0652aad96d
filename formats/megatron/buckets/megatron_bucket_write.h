/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_bucket_write.h - optimizer state of parameters as tensors of DDP buckets
 * (dp_reshardable). */
#ifndef DCPK_FORMATS_MEGATRON_BUCKETS_MEGATRON_BUCKET_WRITE_H
#define DCPK_FORMATS_MEGATRON_BUCKETS_MEGATRON_BUCKET_WRITE_H

#include "lib/ckpt/output.h"
#include "lib/model/model.h"

/* The optimizers of the run that will load what is written. */
struct dcpk_bucket_optimizers {
    const struct dcpk_value *args;
    enum dcpk_dtype model_dtype; /* of weights that the model has only as masters */
    /* State of the dense and the expert optimizer: {"optimizer": {...}, "grad_scaler": ...}; the
     * second is NULL where there is one for all. */
    const struct dcpk_value *state[2];
};

/*
 * Add the state of every parameter, in the buckets that a run of those args makes, and next to them
 * what the loaders of dp_reshardable ask for (formats/torch_dist/FORMAT.md 5.4): groups and sizes
 * of each model-parallel group. Gaps between parameters are zeros. Errors: those of
 * dcpk_bucket_layout_make; DCPK_EMISMATCH naming a parameter that lacks a state.
 */
dcpk_status dcpk_megatron_put_buckets(const struct dcpk_model *model, struct dcpk_output *out,
                                      const struct dcpk_bucket_optimizers *optimizers,
                                      struct dcpk_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_buckets.h - optimizer state that lies in DDP buckets (dp_reshardable,
 * fully_sharded_bucket_space and dp_zero_gather_scatter): read, repaired, written. */
#ifndef DCPK_FORMATS_MEGATRON_BUCKETS_MEGATRON_BUCKETS_H
#define DCPK_FORMATS_MEGATRON_BUCKETS_MEGATRON_BUCKETS_H

#include "lib/ckpt/output.h"
#include "lib/model/model.h"

/*
 * Add master, moments and other states of every parameter to the model, seen through the buckets,
 * and the parameter groups. Weights must be in the model. Sets model->needs_proof. Nothing happens
 * when there are no buckets.
 */
dcpk_status dcpk_megatron_decode_buckets(struct dcpk_model *model, struct dcpk_error *err);

/*
 * Makes every state of the view have its elements from where megatron_segments.h finds them;
 * weights and states must be in the model. A lost master is its stored weight, a lost exp_avg_sq
 * the mean of what is left of its tensor, any other lost state 0. Sets model->repaired. The result
 * is unproven: the caller compares masters with weights. Reads the second moments of parameters
 * with lost elements. Errors: DCPK_EUSAGE where no bucket is padded before another or the state is
 * not fully_reshardable; DCPK_EUNSUPPORTED for a layout of ranks that is not replayed, or chunks
 * that Megatron does not write; those of reading.
 */
dcpk_status dcpk_megatron_repair_padding(struct dcpk_model *model, struct dcpk_error *err);

/* The optimizers of the run that will load what is written. */
struct dcpk_bucket_optimizers {
    const struct dcpk_value *args;
    enum dcpk_dtype model_dtype; /* of weights that the model has only as masters */
    /* State of the dense and the expert optimizer: {"optimizer": {...}, "grad_scaler": ...}; the
     * second is NULL where there is one for all. */
    const struct dcpk_value *state[2];
};

/*
 * Add the state of every parameter as dp_reshardable has it, in the buckets that a run of those
 * args makes, and next to them what its loaders ask for (formats/torch_dist/FORMAT.md 5.4): groups
 * and sizes of each model-parallel group. Gaps between parameters are zeros. Errors: those of
 * dcpk_bucket_layout_make; DCPK_EMISMATCH naming a parameter that lacks a state.
 */
dcpk_status dcpk_megatron_put_buckets(const struct dcpk_model *model, struct dcpk_output *out,
                                      const struct dcpk_bucket_optimizers *optimizers,
                                      struct dcpk_error *err);

#endif

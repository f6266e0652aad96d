/* SPDX-License-Identifier: Apache-2.0 */
/* prove_masters.h - the proof for optimizer state that was decoded by inference, or is in doubt:
 * rounded masters are the weights. */
#ifndef DCPK_LIB_JOB_PROVE_MASTERS_H
#define DCPK_LIB_JOB_PROVE_MASTERS_H

#include "lib/ckpt/format.h"
#include "lib/exec/exec.h"

/*
 * Compare every stored weight of the view with its fp32 master rounded to the weight's dtype, all
 * elements bit for bit. A parameter whose master lies elsewhere in the buckets than was inferred
 * cannot pass, unless the two hold the same values. Errors: DCPK_EMISMATCH naming the first
 * parameter that differs and how many do, or when there is nothing to compare; those of reading.
 * Collective inside the work where the options have ranks, as dcpk_exec_compare is; so is the
 * other one.
 */
dcpk_status dcpk_prove_masters(const struct dcpk_model *model, const struct dcpk_env *options,
                               struct dcpk_error *err);

/*
 * The same for a few: parameters with one axis, which every layer has, one matrix of one expert
 * in each layer, and the word embedding. Masters that do not fit become a note of the checkpoint,
 * not an error: weights may have been changed on purpose. Errors: those of reading.
 */
dcpk_status dcpk_sample_masters(const struct dcpk_model *model, const struct dcpk_env *options,
                                struct dcpk_error *err);

#endif

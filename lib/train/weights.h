/* SPDX-License-Identifier: Apache-2.0 */
/* weights.h - what a model asks of the keeper of its parameters: weights when they are used,
 * somewhere to put gradients. fsdp.h implements it for all strategies, tests with plain memory. */
/*
 *   forward     enter 2, weight(qkv), weight(proj), ..., leave 2
 *   backward    enter 2, weight(fc2), add(fc2), weight(fc1), add(fc1), ..., leave 2
 */
#ifndef DCPK_LIB_TRAIN_WEIGHTS_H
#define DCPK_LIB_TRAIN_WEIGHTS_H

#include "lib/train/params.h"

enum dcpk_train_pass { DCPK_FORWARD, DCPK_RECOMPUTE, DCPK_BACKWARD };

struct dcpk_weights;

struct dcpk_weights_ops {
    /*
     * The pass is about to use a unit (-1: what lies outside units): its weights are whole in the
     * ops' memory until the leave that belongs to it. Units nest: -1 is entered around the others.
     */
    dcpk_status (*enter)(struct dcpk_weights *weights, int64_t unit, enum dcpk_train_pass pass,
                         struct dcpk_error *err);
    /* BACKWARD: all gradients of the unit's parameters for this microbatch have been given. */
    dcpk_status (*leave)(struct dcpk_weights *weights, int64_t unit, enum dcpk_train_pass pass,
                         struct dcpk_error *err);
    /* Row-major, of the compute dtype (fp32 for the router's bias); param: index into the table.
     * Valid while its unit is entered. */
    const void *(*weight)(struct dcpk_weights *weights, size_t param);
    /*
     * Add what one leaf gives to rows [row, row + n_rows) of a parameter: fp32, row-major, in the
     * ops' memory, of the summed loss of the leaf's tokens. The caller may reuse `grad` when it
     * returns (work of one queue is done in order). Queues the work: a later call fails, with
     * DCPK_ERANGE naming the parameter, where a value is not finite or beyond the integers' range.
     */
    void (*add)(struct dcpk_weights *weights, size_t param, int64_t row, int64_t n_rows,
                const float *grad);
};

struct dcpk_weights {
    const struct dcpk_weights_ops *ops;
};

#endif

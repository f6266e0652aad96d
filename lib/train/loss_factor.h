/* SPDX-License-Identifier: Apache-2.0 */
/* loss_factor.h - the numbers that scale losses before a backward pass, and gradients after it. */
/*
 *   gradient of a step = sum over leaves of (loss factor * d summed loss) * gradient factor
 *
 * The product of both is 1 / tokens of the batch; of the other form, the mean over microbatches of
 * their means, (places / tokens) of the microbatch / places of the batch.
 */
#ifndef DCPK_LIB_TRAIN_LOSS_FACTOR_H
#define DCPK_LIB_TRAIN_LOSS_FACTOR_H

#include <stddef.h>

#include "lib/train/config.h"

/* The number that divides losses before the backward pass (train.h): the places of a batch in fp16
 * without per-token loss, else 1. No layout of ranks changes it. */
double dcpk_loss_divisor(const struct dcpk_train_config *config);

/* What the losses of a microbatch's n places are multiplied by. scale: of fp16, else 1. */
float dcpk_loss_factor(const struct dcpk_train_config *config, double scale, const float *mask,
                       size_t n);

/* What the sums of a step's gradients are multiplied by. n_tokens: of the batch, with a loss. */
double dcpk_gradient_factor(const struct dcpk_train_config *config, double scale, int64_t n_tokens);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* noise.h - the least that can differ: each parameter one unit of its last place up or down. */
/*
 *   losses of a run                       loss(i)
 *   of the same run from noisy weights    noisy(i)
 *   noise of iteration i                  |loss(i) - noisy(i)|
 *
 * Where two programs may round differently, their losses agree no better than that:
 * a comparison allows a multiple of it (loss_compare.h).
 */
#ifndef DCPK_LIB_TRAIN_NOISE_H
#define DCPK_LIB_TRAIN_NOISE_H

#include "lib/train/train_state.h"

/* Move each main parameter to its next or its previous float, as the hash of its place in the model
 * has it: every layout of ranks has the same noise. 0 and what is not finite stay. Errors:
 * DCPK_ENOMEM; those of math. */
dcpk_status dcpk_noise_add(const struct dcpk_train_state *state, struct dcpk_error *err);

#endif

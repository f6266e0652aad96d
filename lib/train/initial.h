/* SPDX-License-Identifier: Apache-2.0 */
/* initial.h - the parameters that a run begins with, and noise on them. */
/*
 *   norms               1
 *   proj, fc2           normal, standard deviation init_std / sqrt(2 layers)
 *   all other matrices  normal, standard deviation init_std
 *
 * Element e of a parameter is the e-th number of a stream whose key is made of the seed and of the
 * parameter's name: each rank makes what it has of it, whatever the layout.
 * Source: megatron/core/transformer/transformer_config.py @core_v0.19.0, init_method and
 * output_layer_init_method. The numbers themselves are ours.
 */
#ifndef DCPK_LIB_TRAIN_INITIAL_H
#define DCPK_LIB_TRAIN_INITIAL_H

#include "lib/train/train_state.h"

/* Fill the main parameters of all shards. Errors: DCPK_ENOMEM; those of math. */
dcpk_status dcpk_initial_fill(const struct dcpk_train_state *state, struct dcpk_error *err);

/*
 * Move each main parameter to its next or its previous float, as the hash of its place in the model
 * has it: every layout of ranks has the same noise. 0 and what is not finite stay.
 *
 *   losses of a run                       loss(i)
 *   of the same run from noisy weights    noisy(i)
 *   noise of iteration i                  |loss(i) - noisy(i)|
 *
 * Where two programs may round differently, their losses agree no better than that:
 * a comparison allows a multiple of it (lib/job/loss_compare.h). Errors: DCPK_ENOMEM; those of
 * math.
 */
dcpk_status dcpk_noise_add(const struct dcpk_train_state *state, struct dcpk_error *err);

#endif

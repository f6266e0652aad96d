/* SPDX-License-Identifier: Apache-2.0 */
/* initial.h - the parameters that a run begins with. */
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

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* moe_layers.h - which layers of a model have experts. */
#ifndef DCPK_LIB_MODEL_MOE_LAYERS_H
#define DCPK_LIB_MODEL_MOE_LAYERS_H

#include "lib/ckpt/value.h"

/*
 * Read moe_layer_freq for n_layers into `layers`, which has as many: an int (every n-th layer, from
 * the first on), a list or tuple of 0 and 1, or the text of one as Megatron's parser evaluates it
 * (moe_freq_type, megatron/training/arguments.py@core_v0.19.0). freq: may be NULL.
 * Returns false, and `layers` mean nothing, for what is none of these or of another number of
 * layers.
 */
bool dcpk_moe_layers_read(const struct dcpk_value *freq, bool *layers, size_t n_layers);

/* The same of a text: "2", "[0]*1+[1]*3", "([1,0])*2". */
bool dcpk_moe_layers_parse(const char *text, bool *layers, size_t n_layers);

#endif

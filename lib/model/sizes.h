/* SPDX-License-Identifier: Apache-2.0 */
/* sizes.h - sizes that several attributes of args give together, and which layers have experts. */
#ifndef DCPK_LIB_MODEL_SIZES_H
#define DCPK_LIB_MODEL_SIZES_H

#include "lib/ckpt/value.h"

/*
 * The attribute that holds how many groups of queries there are: num_query_groups, unless
 * group_query_attention is there and off, or the number is absent or None: then each head is a
 * group of its own, and it is num_attention_heads. attrs: args' attributes (may be NULL). NULL:
 * neither is there. Sources: megatron/training/arguments.py@core_v0.19.0
 * core_transformer_config_from_args (the switch; the parser sets the number to 1 without it),
 * megatron/core/transformer/transformer_config.py@core_v0.19.0 (a configuration, as Megatron-Bridge
 * writes it, has the number alone; None is num_attention_heads).
 */
const struct dcpk_value *dcpk_query_groups(const struct dcpk_value *attrs);

/*
 * Checks that a vocabulary of n_rows holds all tokens that args.vocab_size gives. attrs: args'
 * attributes (may be NULL); without a number every vocabulary does. Errors: DCPK_EMISMATCH with
 * both numbers.
 */
dcpk_status dcpk_tokens_fit(const struct dcpk_value *attrs, int64_t n_rows, struct dcpk_error *err);

/* ---- layers with experts ---- */

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

/* SPDX-License-Identifier: Apache-2.0 */
/* hf_ops.h - the ops of a rule as pieces: Hugging Face's tensors <-> Megatron's. */
#ifndef DCPK_FORMATS_SAFETENSORS_HF_OPS_H
#define DCPK_FORMATS_SAFETENSORS_HF_OPS_H

#include "formats/safetensors/hf_bind.h"
#include "lib/model/rows.h"

/*
 * The axis of Hugging Face's tensor (of one expert), the rule's part `part`, whose lines of two
 * kinds take turns, in pairs; -1: none. To the functions below it is two axes: pairs, then the 2 of
 * each.
 */
int dcpk_hf_ops_pair_axis(const struct dcpk_hf_rule *rule, size_t part);

/*
 * The tensor of Megatron's that rule->n_hf parts hold; made in `arena`, its dtype is that of the
 * parts. Errors: DCPK_EMISMATCH where their shapes do not fit each other or the heads of args.
 */
dcpk_status dcpk_hf_ops_join(const struct dcpk_hf_rule *rule, const struct dcpk_hf_sizes *sizes,
                             const struct dcpk_model_tensor *parts, struct dcpk_arena *arena,
                             struct dcpk_model_tensor *whole, struct dcpk_error *err);

/* The inverse. */
dcpk_status dcpk_hf_ops_split(const struct dcpk_hf_rule *rule, const struct dcpk_hf_sizes *sizes,
                              const struct dcpk_model_tensor *whole, struct dcpk_arena *arena,
                              struct dcpk_model_tensor *parts, struct dcpk_error *err);

/*
 * The number to add to Hugging Face's tensor for Megatron's: for a norm's weight; 0 for all others:
 * 1 or -1 where one side stores weights of norms less one and the other does not. Hugging Face's
 * does where the map's args have it, or do not and the rule has DCPK_HF_ADD_ONE; Megatron's by
 * attrs, args' attributes.
 */
float dcpk_hf_ops_addend(const struct dcpk_hf_map *map, const struct dcpk_hf_binding *binding,
                         const struct dcpk_value *attrs);

/*
 * A view of a tensor, a stored one or one that is computed, with `axis` as two: pairs, and 2.
 * Errors: DCPK_EMISMATCH where it has no such axis, or an odd number of lines.
 */
dcpk_status dcpk_hf_pair_view(struct dcpk_checkpoint *ckpt, uint32_t tensor, int axis,
                              uint32_t *view, struct dcpk_error *err);

#endif

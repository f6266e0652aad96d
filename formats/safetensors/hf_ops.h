/* SPDX-License-Identifier: Apache-2.0 */
/* hf_ops.h - the ops of a rule as pieces: Hugging Face's tensors <-> Megatron's. */
#ifndef DCPK_FORMATS_SAFETENSORS_HF_OPS_H
#define DCPK_FORMATS_SAFETENSORS_HF_OPS_H

#include "formats/safetensors/hf_map.h"
#include "lib/model/rows.h"

/* ---- rules and the parameters that they give (hf_bind.c) ---- */

/* Sizes of a model by args. */
struct dcpk_hf_sizes {
    const struct dcpk_value *attrs; /* the DICT of args' attributes */
    int64_t n_layers, n_mtp, n_experts;
    int64_t n_heads, n_groups, head_size; /* of the attention; 0: not known */
    bool has_gate;                        /* of the attention's output: in linear_qkv after q */
    int64_t n_key_heads, n_value_heads, key_size, value_size; /* of linear attention */
    const bool *is_moe, *is_linear;                           /* by layer */
    const char *symbols; /* of layers of a hybrid model (dcpk_hf_layer_symbols); NULL: it is none */
};

/* A rule with its captures filled in. */
struct dcpk_hf_binding {
    const struct dcpk_hf_rule *rule;
    const char *mg;
    const char *hf[DCPK_HF_MAX_PARTS]; /* rule->n_hf of them */
    int64_t expert;                    /* the slice of axis 0 of the HF tensor; -1: all of it */
    /* its place in the output: DCPK_HF_FIRST, then by layer, then DCPK_HF_LAST */
    int64_t place;
    bool is_mtp;  /* of an MTP layer */
    bool applies; /* its conditions hold */
};
#define DCPK_HF_FIRST (-1)
#define DCPK_HF_LAST  INT64_MAX

struct dcpk_hf_bindings {
    const struct dcpk_hf_binding *list;
    size_t n;
};

/* Read the sizes; is_moe in `arena`. Errors: DCPK_EUNSUPPORTED naming an arg that is missing or of
 * another kind than is known; DCPK_EFORMAT for a moe_layer_freq that is not of these layers. */
dcpk_status dcpk_hf_sizes_read(const struct dcpk_value *attrs, struct dcpk_arena *arena,
                               struct dcpk_hf_sizes *sizes, struct dcpk_error *err);

/*
 * Every rule for every layer and expert, in `arena`, in the order of the file. without: a prefix
 * that the names of Hugging Face's have in the map and not in the files; NULL: none.
 * Errors: DCPK_ENOMEM; DCPK_ERANGE for more than 2^20 of them.
 */
dcpk_status dcpk_hf_bind(const struct dcpk_hf_map *map, const struct dcpk_hf_sizes *sizes,
                         const char *without, struct dcpk_arena *arena,
                         struct dcpk_hf_bindings *bindings, struct dcpk_error *err);

/* True if a name fits a pattern of "drop". {*} is anything, the other captures numbers. */
bool dcpk_hf_name_fits(const char *pattern, const char *name);
/* True if it fits any of the map's "drop". */
bool dcpk_hf_map_drops(const struct dcpk_hf_map *map, const char *name);
/* True if it fits any of the map's "zero". */
bool dcpk_hf_map_has_zero(const struct dcpk_hf_map *map, const char *name);

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

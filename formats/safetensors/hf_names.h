/* SPDX-License-Identifier: Apache-2.0 */
/* hf_names.h - the names that a map has for stored tensors: their keys, or parts of them. */
#ifndef DCPK_FORMATS_SAFETENSORS_HF_NAMES_H
#define DCPK_FORMATS_SAFETENSORS_HF_NAMES_H

#include "lib/model/model.h"

/* Zeroed: every key is a name. */
struct dcpk_hf_names {
    const char **list;       /* by stored tensor; a NULL in it: not of the model. NULL: the keys */
    struct dcpk_map by_name; /* of the list; owned */
    /* Optimizer state: "<name>.<state>" -> stored tensor; owned. The part of the keys in front of
     * ".state."; NULL: there is none. */
    struct dcpk_map states;
    const char *state_prefix;
    const char *other_state; /* a key with another such prefix; NULL: none */
};

/* The key without the modules that torch.compile, FSDP and activation checkpointing wrap around
 * others, in `arena`. NULL and err: DCPK_ENOMEM. */
const char *dcpk_hf_unwrap(struct dcpk_arena *arena, const char *key, struct dcpk_error *err);

/* The place in `key` where `name` ("norm.weight") begins, if the key ends with it as with whole
 * modules, the last of which may be wrapped, and is not of optimizer state; NULL: it does not. */
const char *dcpk_hf_name_in(const char *key, const char *name);

/*
 * Finds the names in a checkpoint of a trainer: a key without wrappers (dcpk_hf_unwrap) and without
 * the prefix of all keys of the model. That is what stands before `embedding`, a name of the map,
 * in the one key that ends so (embedding NULL, for a model without a map: the modules that all keys
 * begin with, if lm_head.weight is next after them); given.model_prefix decides where it is set.
 * Tensors that are not below it are not of the model. Errors: DCPK_EMISMATCH where no key ends so,
 * DCPK_EUNSUPPORTED where several do, or two keys have one name, with those keys.
 */
dcpk_status dcpk_hf_names_find(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                               const char *embedding, struct dcpk_hf_names *names,
                               struct dcpk_error *err);
void dcpk_hf_names_release(struct dcpk_hf_names *names); /* a zeroed one is a no-op */

/* A parameter that no map knows has its own name after this, with slashes, so that it is never
 * taken for one of Megatron's: "huggingface:visual/norm/weight". */
#define DCPK_HF_OTHER "huggingface:"

/* Leaves tensors that are not of the model, and objects, out of the view: dropped, or omitted where
 * only weights are asked for. Not those that are taken, by tensor and by object. */
void dcpk_hf_names_leave(const struct dcpk_hf_names *names, struct dcpk_model *model,
                         const bool *is_taken, const bool *is_object_taken);

#endif

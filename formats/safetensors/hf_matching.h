/* SPDX-License-Identifier: Apache-2.0 */
/* hf_matching.h - what is known while tensors are matched with a map: hf_to_model.c and
 * hf_matching.c. */
#ifndef DCPK_FORMATS_SAFETENSORS_HF_MATCHING_H
#define DCPK_FORMATS_SAFETENSORS_HF_MATCHING_H

#include "formats/safetensors/hf_config_priv.h"
#include "formats/safetensors/hf_map.h"
#include "formats/safetensors/hf_model.h"
#include "lib/ckpt/checkpoint.h"
#include "lib/model/model.h"

/* ---- weights of 8 and 4 bits, and the scales that stand next to them (hf_scales.c) ---- */

/* The role of a stored tensor for scales. */
struct dcpk_hf_scaled {
    /* Read instead of a weight that has scales, or an adapter; DCPK_NO_TENSOR: none. */
    uint32_t view;
    uint32_t scales; /* of such a weight; of scales: themselves; DCPK_NO_TENSOR: neither */
};

/* All borrowed; faults are added to. */
struct dcpk_hf_scales_input {
    const struct dcpk_hf_map *map;
    const struct dcpk_json *config;
    const char *const *names; /* by stored tensor: NULL in it: not of the model; NULL: the keys */
    struct dcpk_checkpoint *ckpt;
    struct dcpk_arena *arena;
    struct dcpk_hf_faults *faults;
    bool takes_alone; /* a value without scales is fine: a rule that takes one refuses it */
};

/*
 * Find the scales of a folder's weights by the map's "scales", and make a view of each such weight.
 * *of: by stored tensor, in the arena; the views are the checkpoint's.
 * Faults: values of less than 16 bits without scales and scales without a weight, unless the map
 * drops their names; shapes that do not
 * fit each other, or the size of the blocks in config.json. Errors: DCPK_ENOMEM, DCPK_ERANGE.
 */
dcpk_status dcpk_hf_scales_read(const struct dcpk_hf_scales_input *input,
                                struct dcpk_hf_scaled **of, struct dcpk_error *err);

/* Everything while a folder is matched with its map. */
struct dcpk_hf_matching {
    struct dcpk_checkpoint *ckpt;
    struct dcpk_model *model;
    const char *scheme; /* of names, other than Hugging Face's; NULL: those */
    const struct dcpk_hf_map *map;
    struct dcpk_hf_names names;
    struct dcpk_hf_sizes sizes;
    struct dcpk_hf_bindings bindings;
    const char *state;     /* of the parameters that are matched, "exp_avg"; NULL: their weights */
    bool *is_taken;        /* by stored tensor */
    bool *is_object_taken; /* by object */
    struct dcpk_hf_scaled *scaled;         /* by stored tensor */
    uint32_t *paired;                      /* by stored tensor: its view of pairs */
    enum dcpk_dtype dtype;                 /* of the model's weights, by config.json */
    const struct dcpk_hf_binding **givers; /* by parameter: the binding that gives it */
    bool is_gated;                         /* gate and up rows lie in one parameter */
    size_t n_added;                        /* weights of norms that are read plus addend, 1 or -1 */
    const char *first_added;
    float addend;
    size_t n_other; /* tensors that no map knows, and that keep their names */
    unsigned fixes; /* of enum dcpk_fix, for the faults */
    const char *first_other;
    struct dcpk_hf_faults faults;
};

/* The stored tensor of that name, or DCPK_NO_TENSOR. */
uint32_t dcpk_hf_matching_stored(const struct dcpk_hf_matching *m, const char *name);
/* The stored tensors of a binding's parts. Returns how many are there. */
size_t dcpk_hf_binding_find(const struct dcpk_hf_matching *m, const struct dcpk_hf_binding *b,
                            uint32_t stored[DCPK_HF_MAX_PARTS]);
/* The parameter, or its state, that the stored tensors are. Errors: DCPK_EMISMATCH. */
dcpk_status dcpk_hf_binding_join(struct dcpk_hf_matching *m, const struct dcpk_hf_binding *b,
                                 const uint32_t *stored, struct dcpk_model_tensor *whole,
                                 struct dcpk_error *err);
/* hf_to_state.c: the moments of an optimizer through the rules of their weights, its groups and
 * steps. */
dcpk_status dcpk_hf_match_states(struct dcpk_hf_matching *m, struct dcpk_error *err);
/* hf_lora.c: views of weights with an adapter (LoRA) merged into them, where the caller asks for it
 * (given.lora): `view` of m->scaled. Errors: DCPK_EMISMATCH for what does not fit together,
 * DCPK_EUNSUPPORTED for kinds of adapters that are not plain LoRA; those of reading. */
dcpk_status dcpk_hf_lora_merge(struct dcpk_hf_matching *m, struct dcpk_error *err);
/* lora_experts.c: the same for the two matrices of a parameter of all experts, under its name in
 * memory, as views of the weight of each expert in the base's files. a, b: as PEFT has them,
 * [rank * experts, in] and [out, rank * experts]. *n_merged: such weights; 0 if the module has
 * no such parameter among the configuration's. Errors: as dcpk_hf_lora_merge. */
struct dcpk_lora_config;
struct dcpk_lora_factors {
    const char *module;
    uint32_t a, b;
};
dcpk_status dcpk_hf_lora_experts(struct dcpk_hf_matching *m, const struct dcpk_lora_config *config,
                                 const struct dcpk_lora_factors *pair, size_t *n_merged,
                                 struct dcpk_error *err);
/* True if the configuration's target_parameters have that parameter. */
bool dcpk_lora_targets(const struct dcpk_lora_config *config, const char *name);
/* The name in files of a parameter that has another one in memory, or `name`. */
const char *dcpk_hf_name_in_files(const struct dcpk_hf_matching *m, const char *name);
/* True if tensors that no rule takes keep their names, as the caller asks for. */
bool dcpk_hf_matching_keeps_other(const struct dcpk_hf_matching *m);
/* The name of a stored tensor; NULL: it is not of the model. */
const char *dcpk_hf_matching_name(const struct dcpk_hf_matching *m, size_t stored);
/* The map's prefix, where no name of the files has it; else NULL. */
const char *dcpk_hf_matching_absent_prefix(const struct dcpk_hf_matching *m);
/* Finds the map, the names and the args, by config.json, and the weights' scales. Errors: those of
 * dcpk_hf_scheme_to_model. */
dcpk_status dcpk_hf_matching_read_config(struct dcpk_hf_matching *m, struct dcpk_error *err);

#endif

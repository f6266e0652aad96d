/* SPDX-License-Identifier: Apache-2.0 */
/* hf_writing.h - what is known while a model is written by a map: hf_choose_map.c, hf_from_model.c
 * and hf_from_state.c. */
#ifndef DCPK_FORMATS_SAFETENSORS_HF_WRITING_H
#define DCPK_FORMATS_SAFETENSORS_HF_WRITING_H

#include "formats/safetensors/hf_config_priv.h"
#include "formats/safetensors/hf_model.h"

#define DCPK_NO_PARAM UINT32_MAX

/* Everything while a model is written by a map. */
struct dcpk_hf_writing {
    const struct dcpk_model *model;
    struct dcpk_output *out;
    const struct dcpk_hf_scheme *scheme; /* of names in another container; NULL: files */
    struct dcpk_hf_maps maps;
    const struct dcpk_hf_map *map;
    struct dcpk_hf_sizes sizes;
    struct dcpk_hf_bindings bindings;
    int64_t vocab_size;          /* rows of the vocabulary that are written */
    enum dcpk_dtype dtype;       /* of all weights whose rule has none */
    bool keeps_dtypes;           /* each weight has the dtype that it is stored in instead */
    struct dcpk_json *base;      /* owned; NULL: none */
    uint32_t *params;            /* by binding; DCPK_NO_PARAM: its weight is not written */
    uint32_t *states;            /* the same of optimizer state */
    enum dcpk_role role;         /* of the tensors that are added now */
    const char *prefix, *ending; /* of their keys, around names */
    const char *state_prefix;    /* of the optimizer's, without the last dot */
    const char *tied_name;       /* the embedding's second name; NULL: none */
    size_t n_added;              /* weights of norms that are written plus addend, 1 or -1 */
    const char *first_added;
    float addend;
    size_t n_quantised; /* matrices that are written in blocks of fp8 */
    struct dcpk_hf_faults faults;
    size_t distance; /* from the map that was tried last */
};

/*
 * Finds the named family, the family of the given configuration, or the first that fits, and the
 * parameter of each binding. Errors: DCPK_EMISMATCH with the places that do not fit; those of
 * dcpk_hf_maps_join.
 */
dcpk_status dcpk_hf_choose_map(struct dcpk_hf_writing *e, struct dcpk_error *err);

/* --- hf_scales.c: weights in blocks of fp8 (MAPS.md, "scales") --- */

/* True if that is asked for, and the part is the matrix of a linear layer of attention or MLP. */
bool dcpk_hf_is_quantised(const struct dcpk_hf_writing *e, const struct dcpk_hf_binding *b,
                          const struct dcpk_out_tensor *part);
/* Adds its values and its scales in the place of the part. Errors: DCPK_EUNSUPPORTED for a matrix
 * that the class keeps transposed, or as one tensor of all experts. */
dcpk_status dcpk_hf_add_blocks(struct dcpk_hf_writing *e, const struct dcpk_hf_binding *b,
                               const struct dcpk_out_tensor *part, struct dcpk_error *err);
/* Notes the variant, where blocks were asked for. Errors: DCPK_EUNSUPPORTED where there is none. */
dcpk_status dcpk_hf_check_blocks(const struct dcpk_hf_writing *e, struct dcpk_error *err);

/* Adds the groups of the optimizer and the steps, under the names of their parameters:
 * hf_from_state.c. */
dcpk_status dcpk_hf_put_groups(struct dcpk_hf_writing *e, struct dcpk_error *err);

#endif

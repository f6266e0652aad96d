/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_dtensor_priv.h - between the files of formats/fsdp_dtensor. */
#ifndef DCPK_FORMATS_FSDP_DTENSOR_PRIV_H
#define DCPK_FORMATS_FSDP_DTENSOR_PRIV_H

#include "formats/fsdp_dtensor/fsdp_dtensor.h"
#include "formats/fsdp_dtensor/fsdp_keys.h"

/* Values of a state that are flattened before the rest counts as hostile. */
#define FD_MAX_VALUES 10000000

dcpk_status dcpk_fsdp_to_model(struct dcpk_checkpoint *ckpt, struct dcpk_model *model,
                               struct dcpk_error *err);
dcpk_status dcpk_fsdp_from_model(const struct dcpk_model *model, struct dcpk_output *out,
                                 struct dcpk_error *err);
dcpk_status dcpk_fsdp_request(const struct dcpk_loading *loading, struct dcpk_error *err);

/* The facts about the folder that the reader of tensors needs. */
struct dcpk_fsdp_reader {
    struct dcpk_model *model;
    struct dcpk_fsdp_prefixes prefixes;
    bool is_converted;             /* by Megatron's converter from torch_dist (fsdp_converted.h) */
    const struct dcpk_value *step; /* of all parameters, where it left that; else NULL */
    bool has_parts; /* projections are stored in parts, whose order of rows is that of one rank */
};

/* A tensor key taken apart. */
struct dcpk_fsdp_key {
    enum dcpk_role role;
    const char *state;  /* DCPK_STATE */
    const char *prefix; /* part of the key before the name */
    const char *name;   /* the parameter's, with _w or _v where it is a half; in the arena */
    const char *end;    /* part after it: ".exp_avg" or "" */
};

/* args, iteration, ..., the scheduler's fields and RNG states into the view. */
dcpk_status dcpk_fsdp_read_state(struct dcpk_model *model, struct dcpk_error *err);
/*
 * Gather optimizer.param_to_group_meta.<Q>.<parameter>.<field> into groups; tensors must be in the
 * view already: torch AdamW's step tensors become the groups' field `step`.
 */
dcpk_status dcpk_fsdp_read_groups(struct dcpk_model *model, struct dcpk_error *err);
/* The step that torch's AdamW keeps with each parameter; Megatron's groups want it as a field. */
dcpk_status dcpk_fsdp_read_step(struct dcpk_model *model, uint32_t tensor,
                                const struct dcpk_value **step, struct dcpk_error *err);

/*
 * args, iteration, scheduler and RNG states of the view into the output, and what a loader then has
 * to do without (out->load_needs). tp: tensor-parallel ranks that rows of joined projections are in
 * the order of; is_for_tp: there are such rows, and the folder is for as many ranks alone. Errors:
 * DCPK_EFORMAT without args or iteration.
 */
dcpk_status dcpk_fsdp_put_state(const struct dcpk_model *model, struct dcpk_output *out, int64_t tp,
                                bool is_for_tp, struct dcpk_error *err);

#endif

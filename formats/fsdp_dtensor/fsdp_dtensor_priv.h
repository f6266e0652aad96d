/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_dtensor_priv.h - between the files of formats/fsdp_dtensor. */
#ifndef DCPK_FORMATS_FSDP_DTENSOR_PRIV_H
#define DCPK_FORMATS_FSDP_DTENSOR_PRIV_H

#include "formats/formats.h"
#include "formats/fsdp_dtensor/fsdp_keys.h"
#include "lib/ckpt/output.h"
#include "lib/model/model.h"

/* The hooks of a row on the container (lib/ckpt/format.h). */
dcpk_status dcpk_fsdp_probe(struct dcpk_store *store, int *score, struct dcpk_error *err);
dcpk_status dcpk_fsdp_open(struct dcpk_checkpoint *ckpt, struct dcpk_error *err);
dcpk_status dcpk_fsdp_check_whole(struct dcpk_checkpoint *ckpt, struct dcpk_error *err);
#define DCPK_FSDP_CONTAINER                                                                        \
    .marks = dcpk_dcp_marks, .probe = dcpk_fsdp_probe, .open = dcpk_fsdp_open,                     \
    .check_whole = dcpk_fsdp_check_whole, DCPK_DCP_CONTAINER

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
    bool is_converted;             /* by Megatron's converter from torch_dist (fsdp_converted.c) */
    const struct dcpk_value *step; /* of all parameters, where it left that; else NULL */
    /* torch_dcp: the parameters by the numbers that their optimizer's state has; NULL: by names */
    const char *const *numbered;
    size_t n_numbered;
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

/*
 * args, iteration, scheduler and RNG states of the view into the output, and what a loader then has
 * to do without (out->load_needs). tp: tensor-parallel ranks that rows of joined projections are in
 * the order of; is_for_tp: there are such rows, and the folder is for as many ranks alone. Errors:
 * DCPK_EFORMAT without args or iteration.
 */
dcpk_status dcpk_fsdp_put_state(const struct dcpk_model *model, struct dcpk_output *out, int64_t tp,
                                bool is_for_tp, struct dcpk_error *err);

/* ---- Megatron-FSDP v2 (fsdp_v2.c) ---- */

/* Keys begin with it and the parameter's name: there is no wrapper around the model. */
#define FD_V2_MODEL "model."

/* True if the folder was written by its own save_checkpoint(). */
bool dcpk_fsdp_is_v2(const struct dcpk_checkpoint *ckpt);
/* True if Megatron wrote it with --ckpt-format torch_dcp (--use-torch-fsdp2), which numbers
 * optimizer state. */
bool dcpk_fsdp_is_torch_dcp(const struct dcpk_checkpoint *ckpt);
/*
 * Find the parameters that its numbers stand for (r->numbered), by their order of registration.
 * Errors: DCPK_EUNSUPPORTED where that is not known; those of reading groups.
 */
dcpk_status dcpk_fsdp_number(struct dcpk_fsdp_reader *r, struct dcpk_error *err);
/* The parameter of a number's digits, "12". Errors: DCPK_EFORMAT: no group has it. */
dcpk_status dcpk_fsdp_numbered_name(const struct dcpk_fsdp_reader *r, const char *digits,
                                    const char **name, struct dcpk_error *err);
/* True if it is the target. */
bool dcpk_fsdp_wants_v2(const struct dcpk_output *out);

/* optimizer.param_groups.<g>.<field>, and .params: the names of the group's parameters. */
dcpk_status dcpk_fsdp_v2_add_groups(const struct dcpk_model *model, struct dcpk_output *out,
                                    struct dcpk_error *err);
/* The extra states, each None, that Megatron's local linear layers have. */
dcpk_status dcpk_fsdp_v2_add_extra_states(const struct dcpk_model *model, struct dcpk_output *out,
                                          struct dcpk_error *err);

/* ---- what Megatron's converter leaves (fsdp_converted.c) ---- */

/*
 * tools/checkpoint/checkpoint_inspector.py of core 0.14 to main, rule by rule in FORMAT.md 12. It
 * keeps the parameter groups as a list, masters as a state `.param`, experts of homogeneous MoE
 * layers in one tensor, the moments of expert biases under a number after the state, parts of
 * projections apart, and whatever it does not know under the prefix of weights.
 */

/* "<expert's bias>.exp_avg3" (T13): the number goes to the name. */
dcpk_status dcpk_fsdp_split_numbered(struct dcpk_arena *arena, struct dcpk_fsdp_key *parts,
                                     struct dcpk_error *err);
/*
 * Add what is one tensor of several parameters (experts, T3) or one of several of a parameter
 * (parts of projections, T14). *is_done: it was one, or comes with another. tensor: all but pieces
 * and the shape is set.
 */
dcpk_status dcpk_fsdp_add_converted(struct dcpk_fsdp_reader *r, uint32_t source,
                                    const struct dcpk_fsdp_key *parts,
                                    const struct dcpk_model_tensor *tensor, bool *is_done,
                                    struct dcpk_error *err);
/* A tensor that does not belong to a parameter: torch AdamW's step by number, the loss scaler's. */
dcpk_status dcpk_fsdp_map_scalar(struct dcpk_fsdp_reader *r, uint32_t source, bool *is_known,
                                 struct dcpk_error *err);
/* The listed groups "optimizer.param_groups.<g>.<field>", of several optimizers
 * "optimizer.<i>.optimizer.param_groups.<g>.<field>", as the groups of the model. */
dcpk_status dcpk_fsdp_read_listed_groups(struct dcpk_fsdp_reader *r, struct dcpk_error *err);

#endif

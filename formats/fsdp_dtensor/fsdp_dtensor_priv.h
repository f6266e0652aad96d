/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_dtensor_priv.h - between the files of formats/fsdp_dtensor. */
#ifndef DCPK_FORMATS_FSDP_DTENSOR_PRIV_H
#define DCPK_FORMATS_FSDP_DTENSOR_PRIV_H

#include "formats/formats.h"
#include "lib/ckpt/output.h"
#include "lib/model/model.h"

/* ---- names of keys (fsdp_keys.c) ---- */

/* Key prefixes (FORMAT.md 4); after the latter two stands Q and a dot. */
#define FD_MODEL     "model.module."
#define FD_STATE     "optimizer.state."
#define FD_GROUP     "optimizer.param_to_group_meta."
#define FD_SCHEDULER "opt_param_scheduler."
#define FD_RNG       "rng_state."
#define FD_MASTERS   "optimizer.fp32_from_fp16_params." /* <group>.<i>, of torch_dcp */
/* Q: the wrappers around the model, one more in bf16 and fp16 runs (Float16Module). */
#define FD_Q_LOW  "module.module.module."
#define FD_Q_FP32 "module.module."

/* "exp_avg", ...; DCPK_STATE for what is none of them. */
enum dcpk_role dcpk_fsdp_role(const char *state);
/* Skips Q: "module.module.module." or, in fp32 runs, one less. */
const char *dcpk_fsdp_skip_q(const char *rest);

/* Skips "optimizer." or "optimizer.<i>."; *optimizer: the number, 0 where there is none. NULL: not
 * such a key. */
const char *dcpk_fsdp_skip_optimizer(const char *key, int64_t *optimizer);
/* A field of a listed group. */
struct dcpk_fsdp_listed {
    int64_t optimizer, group;
    const char *field; /* in the object's key */
    size_t object;
};
/* Sets all but the object. Returns false for a key that is not of one. */
bool dcpk_fsdp_split_listed(const char *key, struct dcpk_fsdp_listed *listed);
/* True if an object shows that Megatron's converter wrote the folder. */
bool dcpk_fsdp_is_converted(const struct dcpk_checkpoint *ckpt);
/* True if the object is a field of a listed group (dcpk_fsdp_read_listed_groups). */
bool dcpk_fsdp_is_listed_group(const char *key);
/* True if the object is one that it leaves next to the training state without a meaning. */
bool dcpk_fsdp_is_left_over(const char *key);
/* True for a name after the prefix of weights that does not belong to a parameter: optimizer state
 * that was not recognised (T8, T14), rows of single experts (T12). */
bool dcpk_fsdp_is_misplaced(const char *name);

/* ---- prefixes ---- */

/* Both with their last dot. */
struct dcpk_fsdp_prefixes {
    const char *weight; /* FD_MODEL, unless given or found */
    const char *state;  /* FD_STATE, after which Q stands; else has_q is false */
    bool has_q;
};

/*
 * The prefixes of the checkpoint: given by the user, else the format's own where a key has it, else
 * the one that stands before known names in every other key; the checkpoint then gets a note and
 * the model needs rewriting.
 */
dcpk_status dcpk_fsdp_find_prefixes(struct dcpk_model *model, struct dcpk_fsdp_prefixes *prefixes,
                                    struct dcpk_error *err);

/*
 * Bytes of `key` before the first module of Megatron's models in it ("decoder.", "embedding.",
 * ...); 0 when it begins with one; SIZE_MAX when it has none.
 */
size_t dcpk_fsdp_prefix_bytes(const char *key);

/* The optimizer_layout hook: "fsdp_dtensor", of torch_dcp "model-shaped", or "none" where there is
 * no state but masters. */
const char *dcpk_fsdp_optimizer_layout(const struct dcpk_checkpoint *ckpt,
                                       const struct dcpk_value *common);

/* True if text that begins a .metadata holds such a key after a prefix, and none of torch_dist. */
bool dcpk_fsdp_has_prefixed_key(const char *text, size_t n_bytes);

/* Values of a state that are flattened before the rest counts as hostile. */
#define FD_MAX_VALUES 10000000

dcpk_status dcpk_fsdp_to_model(struct dcpk_checkpoint *ckpt, struct dcpk_model *model,
                               struct dcpk_error *err);
dcpk_status dcpk_fsdp_from_model(const struct dcpk_model *model, struct dcpk_output *out,
                                 struct dcpk_error *err);
dcpk_status dcpk_fsdp_request(const struct dcpk_loading *loading, struct dcpk_error *err);

/* The parameters by the numbers that the optimizer of torch_dcp has for them, as names. */
struct dcpk_numbers {
    const char *const *names; /* by number */
    size_t n;
    /* Those that have masters. Group g begins at mastered_ends[g - 1], or 0. */
    const char *const *mastered;
    const size_t *mastered_ends;
    size_t n_groups;
};

/* The facts about the folder that the reader of tensors needs. */
struct dcpk_fsdp_reader {
    struct dcpk_model *model;
    struct dcpk_fsdp_prefixes prefixes;
    bool is_converted;             /* by Megatron's converter from torch_dist (fsdp_converted.c) */
    const struct dcpk_value *step; /* of all parameters, where it left that; else NULL */
    const struct dcpk_numbers *numbers; /* of torch_dcp; NULL: optimizer state has names */
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

/* ---- Megatron-FSDP v2 (fsdp_put_state.c) ---- */

/* Keys begin with it and the parameter's name: there is no wrapper around the model. */
#define FD_V2_MODEL "model."

/* True if the folder was written by its own save_checkpoint(). */
bool dcpk_fsdp_is_v2(const struct dcpk_checkpoint *ckpt);
/* True if it is the target. */
bool dcpk_fsdp_wants_v2(const struct dcpk_output *out);

/* optimizer.param_groups.<g>.<field>, and .params: the names of the group's parameters. */
dcpk_status dcpk_fsdp_v2_add_groups(const struct dcpk_model *model, struct dcpk_output *out,
                                    struct dcpk_error *err);
/* The extra states, each None, that Megatron's local linear layers have. */
dcpk_status dcpk_fsdp_v2_add_extra_states(const struct dcpk_model *model, struct dcpk_output *out,
                                          struct dcpk_error *err);

/* ---- torch_dcp: --ckpt-format torch_dcp of --use-torch-fsdp2 (torch_dcp.c) ---- */

/* True if its optimizer's state goes by numbers, next to weights without a wrapper. */
bool dcpk_fsdp_is_torch_dcp(const struct dcpk_checkpoint *ckpt);
/*
 * Set r->numbers, by the order in which modules register parameters, and the prefix of state. A
 * no-op for another scheme. Errors: DCPK_EUNSUPPORTED where that order is not known; those of
 * reading groups.
 */
dcpk_status dcpk_torch_dcp_number(struct dcpk_fsdp_reader *r, struct dcpk_error *err);
/* The parameter of a number's digits, "12". Errors: DCPK_EFORMAT: no group has it. */
dcpk_status dcpk_torch_dcp_name(const struct dcpk_fsdp_reader *r, const char *digits,
                                const char **name, struct dcpk_error *err);
/* Take the key of a master apart. Errors: DCPK_EFORMAT: no group has it. */
dcpk_status dcpk_torch_dcp_master(const struct dcpk_fsdp_reader *r, const char *key,
                                  struct dcpk_fsdp_key *parts, struct dcpk_error *err);

/* ---- outputs of Megatron's own converter (fsdp_converted.c) ---- */

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

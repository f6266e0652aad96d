/* SPDX-License-Identifier: Apache-2.0 */
/* model.h - the hub: one canonical view of a model that every format maps to and from. */
#ifndef DCPK_LIB_MODEL_MODEL_H
#define DCPK_LIB_MODEL_MODEL_H

#include "lib/ckpt/checkpoint.h"
#include "lib/ckpt/overlaps.h"
#include "lib/ckpt/value.h"
#include "lib/tensor/piece.h"

struct dcpk_part_kind;

/* The role of a tensor for its parameter. */
enum dcpk_role {
    DCPK_WEIGHT, /* the parameter in the model's dtype, or a persistent buffer */
    DCPK_MASTER, /* its fp32 main copy (optimizer.state.param, fp32_param) */
    DCPK_EXP_AVG,
    DCPK_EXP_AVG_SQ,
    DCPK_STEP,  /* torch AdamW's per-parameter step */
    DCPK_STATE, /* another per-parameter optimizer state; its name is `state` */
    DCPK_N_ROLES,
};

/*
 * One logical tensor: unstacked, experts apart, gate and up halves together.
 * The pieces locate its elements in the source checkpoint; they cover `shape` exactly.
 */
struct dcpk_model_tensor {
    uint32_t param; /* index into params */
    enum dcpk_role role;
    const char *state; /* DCPK_STATE: "momentum_buffer"; else NULL */
    enum dcpk_dtype dtype;
    int rank;
    const int64_t *shape;
    const struct dcpk_piece *pieces;
    size_t n_pieces;
    /* DCPK_STATE: the parameter's next one, or DCPK_NO_TENSOR; set by dcpk_model_add. */
    uint32_t next_state;
};

/* Tensors of a parameter are linked by index, UINT32_MAX where there is none. */
#define DCPK_NO_TENSOR  UINT32_MAX
#define DCPK_NO_GROUP   UINT32_MAX
#define DCPK_NO_UNIT    UINT32_MAX
#define DCPK_NO_PLACE   UINT32_MAX
#define DCPK_TP_UNKNOWN (-2)

/* A parameter or persistent buffer by its live name. */
struct dcpk_param {
    /*
     * The canonical name: "decoder.layers.3.mlp.linear_fc1.weight". Global layer and expert
     * numbers; Transformer Engine's spelling with grouped experts
     * ("mlp.experts.linear_fc1.weight7") and fused norms; see lib/model/names.h.
     */
    const char *name;
    /*
     * The kinds of its rows, where they are not all of one kind by a format or the rules:
     * dcpk_gate_up of a SwiGLU fc1. NULL: of one kind, or as dcpk_parts_of (parts.h) reads them off
     * the module. How formats store them: rows.h.
     */
    const struct dcpk_part_kind *parts;
    bool is_buffer; /* not trained: no optimizer state, no group */
    /* Its spread over ranks; set by lib/model/registered.h. */
    /* The axis that tensor parallelism cuts, -1: none, DCPK_TP_UNKNOWN: no rule applies */
    int tp_axis;
    int64_t expert; /* the number of a routed expert, -1: dense */
    uint32_t unit;  /* of Megatron-FSDP: the transformer layer, counted; or DCPK_NO_UNIT */
    uint32_t place; /* in the order in which modules register parameters; DCPK_NO_PLACE: a buffer */
    uint32_t group; /* index into groups, or DCPK_NO_GROUP */
    const char *const
        *spellings; /* live names for the target, the first is the main one; NULL: `name` alone */
    size_t n_spellings;
    uint32_t tensor[DCPK_N_ROLES]; /* DCPK_STATE: the first of a list, see next_state */
};

/*
 * The RNG states of one rank, or of all that share its model-parallel coordinates. The value is a
 * list of dicts: one, or one for each data-parallel rank (--data-parallel-random-init).
 */
struct dcpk_rng {
    int64_t pp, tp;
    int64_t dp, n_dp; /* rank dp of n_dp data- and context-parallel ones; n_dp 0: of every one */
    const struct dcpk_value *states;
};

/*
 * Extra state of a module: Transformer Engine's FP8 recipe and scales. An object of the source, for
 * 3D-parallel targets to carry over; its value is not looked at.
 */
struct dcpk_extra {
    /* As stored, unstacked: "decoder.layers.3.mlp.linear_fc1._extra_state", an expert's number at
     * its end; in the model's arena. */
    const char *name;
    const struct dcpk_object *object; /* of model->ckpt */
};

/* Requests of the caller to a view. */
enum dcpk_model_flags {
    DCPK_MODEL_WEIGHTS_ONLY =
        1, /* leave optimizer state out; an optimizer layout that cannot be read is then no error */
    DCPK_MODEL_OF_FAMILY =
        2, /* from one model's names to another's: args need not be what Megatron computes */
    DCPK_MODEL_KEEPS_OTHER = 4, /* tensors that no map of a family knows, by their own names */
};

#define DCPK_COMMAND_LINE_NAME "megatron_command_line.txt"

/*
 * The effect of a repair on optimizer state. Counts are of one state: masters and each moment are
 * repaired alike.
 */
struct dcpk_repaired {
    uint64_t n_moved; /* elements that were at another place, those that are lost among them */
    uint64_t n_lost;
    /* Parameters with lost elements, in the order of model->params. */
    struct dcpk_lost {
        const char *name;
        int64_t n_elems, n_lost;
    } * lost;
    size_t n;
};

struct dcpk_model {
    struct dcpk_arena *arena;     /* everything here; freed by dcpk_model_free */
    unsigned flags;               /* enum dcpk_model_flags, set before to_model */
    struct dcpk_checkpoint *ckpt; /* borrowed: the source of all pieces */
    struct dcpk_by_place loaded;  /* values of its objects, by dcpk_by_place_load */

    struct dcpk_param *params; /* layer order: embedding, layers ascending, the rest as stored */
    size_t n_params;
    struct dcpk_model_tensor *tensors;
    size_t n_tensors, tensors_capacity;
    size_t params_capacity;
    struct dcpk_map param_by_name;

    /* Training state; NULL where the checkpoint has none. */
    const struct dcpk_value *args;      /* argparse.Namespace */
    const struct dcpk_value *iteration; /* int */
    const struct dcpk_value *version;   /* checkpoint_version, float */
    const struct dcpk_value *flops;     /* num_floating_point_operations_so_far */
    const struct dcpk_value *scheduler; /* opt_param_scheduler, dict */
    const struct dcpk_value *content;   /* content_metadata, dict */
    const struct dcpk_value *scaler;    /* of fp16 runs: the loss scale and its trackers, dict */
    /* For torch's optimizers that are not distributed: kept next to the groups, which have it too;
     * a number. */
    const struct dcpk_value *common_step;
    const struct dcpk_value *further; /* other entries of a common state, by name: dict */
    /* Parameter groups: dicts without "params"; dense, then expert. dcpk_model_add_group. */
    const struct dcpk_value **groups;
    size_t n_groups;
    struct dcpk_rng *rng;
    size_t n_rng, rng_capacity;
    struct dcpk_map rng_by_rank;
    struct dcpk_extra *extra_states;
    size_t n_extra_states, extra_states_capacity;
    struct dcpk_grid layout;
    const char *optimizer_layout; /* format.h, the hook of that name; "none" until to_model */
    /*
     * The source has the rows of projections that are joined of parts (Mamba's in_proj) in the
     * order of so many tensor-parallel ranks; 0 or 1: in that of one, as the view always has
     * (parts.h).
     */
    int64_t rows_tp;
    /*
     * Flags that Megatron needs in addition to --use-checkpoint-args for this model: its loaders do
     * not take them from args. A converted checkpoint has them in the file DCPK_COMMAND_LINE_NAME
     * of its folder. NULL: not known.
     */
    const char *command_line;
    const char *foreign; /* the reason why Megatron core has no such model; NULL: it has */
    const char *family;  /* of a model's folder: that of its map; else NULL */
    /* A trainer's optimizer that is not Adam, in words, and the key that shows it; NULL: Adam's
     * state, or none. */
    const char *other_optimizer, *other_optimizer_key;
    bool has_optimizer;
    bool has_expert_optimizer; /* routed experts had one of their own; of Megatron's formats */
    /*
     * Optimizer state was put in its place by inference (DDP buckets, formats/megatron): before
     * anything is published every weight is compared with its rounded master
     * (lib/job/compare.h).
     */
    bool needs_proof;
    /* The result of DCPK_REPAIR_PADDING; NULL: it was not asked for, or the format has no such
     * fault. */
    const struct dcpk_repaired *repaired;
    /*
     * The format's own loaders do not find all of it: another program wrote it (Megatron's
     * converter), or its keys have other prefixes. Writing the same format again fixes that.
     */
    bool needs_rewrite;
    /* Trained without a low-precision copy: other prefix in fsdp_dtensor
     * (formats/fsdp_dtensor/FORMAT.md 4, Q). */
    bool is_fp32;

    /* "key\treason" of what this view leaves out: what the user should look at, and what no run
     * that loads it needs. */
    struct dcpk_note *dropped, **dropped_end;
    struct dcpk_note *omitted, **omitted_end;
    /* Keys of tensors that are in the view as something else: a value of the training state,
     * another name's bytes. */
    struct dcpk_note *carried, **carried_end;

    /* Set by dcpk_model_read: stored tensors that no rule knows, for its caller to refuse or
     * report. */
    uint32_t *unknown;
    size_t n_unknown;
    /* The format's findings about them: a prefix before known names in some, without the last dot,
     * and a guess what they are; NULL: nothing. */
    const char *unknown_prefix, *unknown_hint;
};

/* An empty view of `ckpt`, which is borrowed. *model: dcpk_model_free. Errors: DCPK_ENOMEM. */
dcpk_status dcpk_model_new(struct dcpk_checkpoint *ckpt, struct dcpk_model **model,
                           struct dcpk_error *err);
void dcpk_model_free(struct dcpk_model *model); /* NULL is a no-op */

/* The parameter called `name` (copied), made when it is new. */
dcpk_status dcpk_model_param(struct dcpk_model *model, const char *name, uint32_t *param,
                             struct dcpk_error *err);
/* Add a tensor; a second one of the same parameter, role and state is DCPK_EFORMAT naming both. */
dcpk_status dcpk_model_add(struct dcpk_model *model, const struct dcpk_model_tensor *tensor,
                           struct dcpk_error *err);
/* The tensor of that parameter and role, of DCPK_STATE the one called `state` (else NULL), or
 * DCPK_NO_TENSOR. */
uint32_t dcpk_model_find(const struct dcpk_model *model, uint32_t param, enum dcpk_role role,
                         const char *state);
dcpk_status dcpk_model_add_extra(struct dcpk_model *model, const struct dcpk_extra *extra,
                                 struct dcpk_error *err);
/*
 * Append a parameter group (a dict). Runs have a few for each kind of weight and, with learning
 * rates by layer, for each layer; each parameter may be held against all of them. Errors:
 * DCPK_EUNSUPPORTED past DCPK_MAX_GROUPS; DCPK_ENOMEM.
 */
#define DCPK_MAX_GROUPS 1024
dcpk_status dcpk_model_add_group(struct dcpk_model *model, const struct dcpk_value *group,
                                 struct dcpk_error *err);
/* Leaves `key` out and records why. Drop: the user may miss it. Omit: it is replaced, made again or
 * not asked for. */
void dcpk_model_drop(struct dcpk_model *model, const char *key, const char *reason);
void dcpk_model_omit(struct dcpk_model *model, const char *key, const char *reason);
/* The reason for optimizer state where weights only are asked for (DCPK_MODEL_WEIGHTS_ONLY). */
extern const char dcpk_reason_weights_only[];
/*
 * Load an object that a model can do without. Where its content cannot be read it is dropped, with
 * what is wrong as the reason, and *value is NULL. Errors: DCPK_ENOMEM, DCPK_EIO, DCPK_ECANCELLED.
 */
dcpk_status dcpk_model_load(struct dcpk_model *model, const struct dcpk_object *object,
                            const struct dcpk_value **value, struct dcpk_error *err);
/* Load one that a model needs. Errors: those of dcpk_by_place_load, with the object's name. */
dcpk_status dcpk_model_need(struct dcpk_model *model, const struct dcpk_object *object,
                            const struct dcpk_value **value, struct dcpk_error *err);

/* A tensor that is training state, as a value with its bytes; all its checksums are checked.
 * Errors: DCPK_EUNSUPPORTED for a large one, or one in several chunks; those of reading it. */
dcpk_status dcpk_model_load_tensor(struct dcpk_model *model, uint32_t tensor,
                                   const struct dcpk_value **value, struct dcpk_error *err);
/* Replace *value by a number, where it is a tensor of one element, and by a tuple or list of such
 * where it is one of those. Errors: DCPK_EUNSUPPORTED for another tensor; DCPK_ENOMEM. */
dcpk_status dcpk_model_take_number(struct dcpk_model *model, const struct dcpk_value **value,
                                   struct dcpk_error *err);
/* A parameter's step, which is stored as a single float32. */
dcpk_status dcpk_model_read_step(struct dcpk_model *model, uint32_t tensor,
                                 const struct dcpk_value **step, struct dcpk_error *err);
/* The group equal to `dict`, made when there is none yet. */
dcpk_status dcpk_model_intern_group(struct dcpk_model *model, const struct dcpk_value *dict,
                                    uint32_t *group, struct dcpk_error *err);

/* Add RNG states. *existed: that rank has some already, which stay. */
dcpk_status dcpk_model_add_rng(struct dcpk_model *model, const struct dcpk_rng *rng, bool *existed,
                               struct dcpk_error *err);
/*
 * The states that stand for `rank` (its own `states` are not looked at): its own ones; else those
 * of every data-parallel rank of its (pp, tp), as releases keep them that know no others; else
 * those of the first. NULL: there is none of its (pp, tp).
 */
const struct dcpk_rng *dcpk_model_rng(const struct dcpk_model *model, const struct dcpk_rng *rank);
void dcpk_model_clear_rng(struct dcpk_model *model); /* as if none had been added */
/* Records that the source tensor `key` is not lost, though it is not a tensor of the view. */
void dcpk_model_carry(struct dcpk_model *model, const char *key);

/* True if two tensors, of one model or of two, have the same shape. */
bool dcpk_model_same_shape(const struct dcpk_model_tensor *a, const struct dcpk_model_tensor *b);

/* Replaces attributes of *args, which may be NULL, by the given ones (given.args); in `arena`. */
dcpk_status dcpk_args_merge_given(const struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                                  const struct dcpk_value **args, struct dcpk_error *err);
/* The same for model->args. Errors: DCPK_ENOMEM. */
dcpk_status dcpk_model_merge_given_args(struct dcpk_model *model, struct dcpk_error *err);
/* Errors: DCPK_EUNSUPPORTED for state of an optimizer that Megatron would load as Adam's. */
dcpk_status dcpk_model_check_optimizer(const struct dcpk_model *model, struct dcpk_error *err);
/* Set model->layout from args; sizes that args lack stay 0. */
void dcpk_model_read_layout(struct dcpk_model *model);

/* Set an attribute of model->args, which must not be NULL; an older value of that name is replaced.
 * value: in the model's arena, or constant. */
dcpk_status dcpk_model_put_arg(struct dcpk_model *model, const char *name,
                               const struct dcpk_value *value, struct dcpk_error *err);
/* The same of an int. */
dcpk_status dcpk_model_set_arg(struct dcpk_model *model, const char *name, int64_t value,
                               struct dcpk_error *err);

/* The parameter's value: its master where there is one, else the stored weight; NULL when it has
 * neither. */
const struct dcpk_model_tensor *dcpk_model_value(const struct dcpk_model *model,
                                                 const struct dcpk_param *param);

/* Split a note of `dropped` or `omitted` ("key\treason") at its tab: the reason, and the key's
 * length. */
const char *dcpk_model_drop_reason(const struct dcpk_note *note, size_t *key_bytes);

/* "weight", "master", "exp_avg", ... */
const char *dcpk_role_name(enum dcpk_role role);

/*
 * The reason why a loader would not understand `states` (dcpk_rng.states), as the reason for a
 * drop; NULL: it would. RNG states are a list of dicts, one for each data-parallel rank or one for
 * all, of random_rng_state, np_rng_state (tuples), torch_rng_state, cuda_rng_state (bytes, one
 * axis) and rng_tracker_states (bytes or a generator by name, may be empty). A dict may have more
 * fields as long as each is one value. Every format can keep what passes, so none carries a part of
 * it. Source: megatron/training/checkpointing.py get_rng_state and load_checkpoint, core_v0.12.0 to
 * main; formats/torch_dist/FORMAT.md 8, formats/fsdp_dtensor/FORMAT.md 4.
 */
const char *dcpk_rng_states_fault(const struct dcpk_value *states);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* megatron.h - the conventions that Megatron's 3D-parallel checkpoints share, torch_dist and zarr:
 * keys, stacking, state. */
#ifndef DCPK_FORMATS_MEGATRON_MEGATRON_H
#define DCPK_FORMATS_MEGATRON_MEGATRON_H

#include "lib/ckpt/format.h"
#include "lib/ckpt/output.h"
#include "lib/model/model.h"
#include "lib/model/request.h"

/* An optimizer's state in the buckets of data-parallel ranks: Megatron's name of that layout. */
#define DCPK_MEGATRON_BUCKETS "dp_reshardable"

/* "optimizer.state.exp_avg.decoder.layers.mlp..." taken apart; pointers into the key. */
struct dcpk_megatron_key {
    const char *state; /* "exp_avg", not terminated */
    size_t state_bytes;
    const char *param; /* the weight's key */
};

/* Returns false when `key` is not a per-parameter optimizer state ("chained_<i>." may be before
 * it). */
bool dcpk_megatron_split_key(const char *key, struct dcpk_megatron_key *parts);

/*
 * True for an optimizer tensor in the flattened form of 0.8 to 0.15 (formats/torch_dist/FORMAT.md
 * 5.2).
 */
bool dcpk_megatron_is_flattened(const struct dcpk_checkpoint *ckpt,
                                const struct dcpk_tensor *tensor);

/* Megatron writes it last, for torch_dist and zarr alike (formats/torch_dist/FORMAT.md 1.2). */
#define DCPK_MEGATRON_METADATA_JSON "metadata.json"

/* Its content: the backend "torch_dist" or "zarr", and the version of its conventions. A value. */
struct dcpk_megatron_backend {
    char name[64];
    int64_t version; /* 1 where it is not recorded */
};
/* Errors: DCPK_EFORMAT (no JSON, no backend named), DCPK_EIO (no such file). */
dcpk_status dcpk_megatron_read_backend(struct dcpk_store *store,
                                       struct dcpk_megatron_backend *backend,
                                       struct dcpk_error *err);
/* The file `name` of this kind names the backend `wanted` in version 1; DCPK_EUNSUPPORTED names the
 * other one. */
dcpk_status dcpk_megatron_check_backend(struct dcpk_store *store, const char *name,
                                        const char *wanted, struct dcpk_error *err);
/* Report the fields that stop a release (formats/torch_dist/FORMAT.md 1.2). */
dcpk_status dcpk_megatron_request_backend(const struct dcpk_loading *loading,
                                          struct dcpk_error *err);

/* The to_model hook of formats with these keys; uses their load_common and load_object (objects as
 * lists of one value). */
dcpk_status dcpk_megatron_to_model(struct dcpk_checkpoint *ckpt, struct dcpk_model *model,
                                   struct dcpk_error *err);

/* The optimizer_layout hook of these formats. */
const char *dcpk_megatron_optimizer_layout(const struct dcpk_checkpoint *ckpt,
                                           const struct dcpk_value *common);

/*
 * The from_model hook's work for these formats (formats/torch_dist/FORMAT.md 9): stacked and joined
 * tensors, RNG states and empty _extra_state objects go into `out` (keys of objects as
 * "<key>/shard_<offsets>_<shape>", values as lists of one). n_rng_axes: of megatron.h, what the
 * format's loaders ask for. *common: the common state, a dict in
 * out->arena, for the format to put where its generation keeps it. Errors: DCPK_EUNSUPPORTED naming
 * a parameter that this form of the format cannot hold; DCPK_EMISMATCH where experts, layers or
 * groups do not fit together; DCPK_EFORMAT without args or iteration.
 */
dcpk_status dcpk_megatron_from_model(const struct dcpk_model *model, struct dcpk_output *out,
                                     int n_rng_axes, const struct dcpk_value **common,
                                     struct dcpk_error *err);

/* The model's dtype by args; *known false: not recorded, bfloat16 is likely. */
enum dcpk_dtype dcpk_megatron_model_dtype(const struct dcpk_model *model, bool *known);

/* True if the run shards its optimizer over data-parallel ranks, and where args do not record
 * it. */
bool dcpk_megatron_is_distributed(const struct dcpk_model *model);

/*
 * Note that the stored tensors which a tensor of the view is taken from are left out, and why; each
 * once. A view of a flattened one has its key, those inside objects are not listed. is_noted: by
 * stored tensor of out->source.
 */
void dcpk_megatron_omit(struct dcpk_output *out, const struct dcpk_model_tensor *tensor,
                        bool *is_noted, const char *why);
extern const char dcpk_megatron_master_left[]; /* why, of masters without the optimizer */

/* The common state alone, which the above makes; is_rng_whole: every rank gets RNG states. */
dcpk_status dcpk_megatron_common(const struct dcpk_model *model, struct dcpk_output *out,
                                 bool is_rng_whole, const struct dcpk_value **common,
                                 struct dcpk_error *err);

/*
 * The request hook's work for these formats: weights, masters, moments, extra states, groups, RNG
 * and what stands in the common state; not where that is kept.
 */
dcpk_status dcpk_megatron_request(const struct dcpk_loading *loading, struct dcpk_error *err);

/* ---- RNG states (megatron_rng.c) ---- */

#define DCPK_MEGATRON_RNG "rng_state/shard_"

/*
 * "rng_state/shard_<pp>.<tp>_<PP>.<TP>", or with the rank among data- and context-parallel ones as
 * a third number. An object is a list of one list of states.
 * Source: megatron/training/checkpointing.py get_rng_state: two numbers @core_v0.14.0 to
 * core_v0.19.0 and main of 2026-08-22, except @core_v0.16.1 with expert parallelism; three there,
 * and in main since 2026-08-25 for every run (Megatron-LM #6858).
 */
enum { DCPK_MEGATRON_RNG_BY_MODEL_RANK = 2, DCPK_MEGATRON_RNG_BY_EVERY_RANK = 3 };

/*
 * The numbers of `key`, which starts with DCPK_MEGATRON_RNG. Further ones than three count as one
 * with the third. Core 0.4 to 0.7 lost the last size of two (formats/zarr/FORMAT.md). Returns false
 * for a key of another form.
 */
bool dcpk_megatron_rng_split(const char *key, struct dcpk_rng *rank);

/* Add the object's states to the model. One that is not understood is dropped by name. */
dcpk_status dcpk_megatron_read_rng(struct dcpk_model *model, const struct dcpk_object *object,
                                   struct dcpk_error *err);

/*
 * Add objects for every rank of the layout of args that the model has states for, under keys of two
 * numbers; with n_axes 3 also under those of three, where the number of data-parallel ranks is
 * known. A rank without states of its own gets those that stand for it (dcpk_model_rng); states
 * that no rank gets are reported. *is_whole: every rank has some; else none is written, since a run
 * loads those of all ranks or of none.
 */
dcpk_status dcpk_megatron_put_rng(const struct dcpk_model *model, struct dcpk_output *out,
                                  int n_axes, bool *is_whole, struct dcpk_error *err);

/* ---- training state, between the files of this folder (megatron_state.c) ---- */

/* Megatron's loaders start a state machine of their own where they find none
 * (formats/torch_dist/FORMAT.md
 * 6). */
#define DCPK_MEGATRON_RERUN_REASON                                                                 \
    "rerun state of the source's ranks: a run without it starts fresh"

/* After a "chained_<i>." that core 0.6 to 0.14 put before each of several optimizers. */
const char *dcpk_megatron_skip_chained(const char *key);

/*
 * The common state -> the view: args, iteration, scheduler, parameter groups, the loss scaler and
 * the optimizer's layout; what no member stands for becomes model->further. Entries of an
 * optimizer's dict that are not known are dropped by name. Errors: DCPK_EFORMAT without a common
 * state or where groups are not dicts; those of reading it.
 */
dcpk_status dcpk_megatron_read_common(struct dcpk_model *model, struct dcpk_error *err);

/* The loss scaler of an optimizer (NULL: it has none) -> the view; every optimizer of an fp16 run
 * has one. */
void dcpk_megatron_add_scaler(struct dcpk_model *model, const struct dcpk_value *scaler);

/*
 * Append the param_groups of one optimizer's state dict, {'optimizer': {'param_groups': [...]}} or,
 * in fp32 runs, without the outer dict, to model->groups; its loss scaler is kept too.
 */
dcpk_status dcpk_megatron_add_groups(struct dcpk_model *model, const struct dcpk_value *optimizer,
                                     struct dcpk_error *err);

/* True if the key is of the state `name`. */
bool dcpk_megatron_state_is(const struct dcpk_megatron_key *key, const char *name);
/* The role of a tensor by its state's name ("exp_avg": DCPK_EXP_AVG). */
enum dcpk_role dcpk_megatron_role(const struct dcpk_megatron_key *key);

/* ---- the optimizer state that loaders ask for (megatron_request_state.c) ---- */

/* How the optimizer's state is kept: by content_metadata or the state itself. */
enum dcpk_optimizer_kind {
    DCPK_OPTIMIZER_NONE,        /* nothing is asked for */
    DCPK_OPTIMIZER_RESHARDABLE, /* fully_reshardable */
    DCPK_OPTIMIZER_FLATTENED,   /* fully_sharded_model_space */
    DCPK_OPTIMIZER_BUCKETS,     /* dp_reshardable */
    DCPK_OPTIMIZER_GATHERED,    /* dp_zero_gather_scatter */
    DCPK_OPTIMIZER_WHOLE,       /* not distributed */
    DCPK_OPTIMIZER_UNREADABLE,  /* fully_sharded_bucket_space, or a name that no release knows */
};

/* The optimizer of the run that loads. A value. */
struct dcpk_optimizer_asked {
    enum dcpk_optimizer_kind kind;
    const char *type; /* the kind's name, for messages */
    bool is_split;    /* experts have an optimizer of their own */
    bool has_prefix;  /* "chained_<i>." before the keys of each of two */
    uint32_t loaders; /* that ask for it */
};

void dcpk_optimizer_asked_find(const struct dcpk_loading *loading,
                               struct dcpk_optimizer_asked *asked);

/* Everything but weights, masters, moments and extra states. */
dcpk_status dcpk_megatron_request_state(const struct dcpk_loading *loading,
                                        const struct dcpk_optimizer_asked *asked,
                                        struct dcpk_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* megatron.h - the conventions that Megatron's 3D-parallel checkpoints share, torch_dist and zarr:
 * keys, stacking, state. */
#ifndef DCPK_FORMATS_MEGATRON_MEGATRON_H
#define DCPK_FORMATS_MEGATRON_MEGATRON_H

#include "lib/ckpt/format.h"
#include "lib/model/model.h"

/* An optimizer's state in the buckets of data-parallel ranks: Megatron's name of that layout. */
#define DCPK_MEGATRON_BUCKETS "dp_reshardable"

/* "optimizer.state.exp_avg.decoder.layers.mlp..." taken apart; pointers into the key. */
struct dcpk_megatron_key {
    const char *state; /* "exp_avg", not terminated */
    size_t state_bytes;
    const char *param; /* the weight's key */
};

/* Returns false when `key` is not a per-parameter optimizer state ("chained_<i>." may stand before
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
/* It names the backend `wanted` in version 1; DCPK_EUNSUPPORTED names the other one. */
dcpk_status dcpk_megatron_check_backend(struct dcpk_store *store, const char *wanted,
                                        struct dcpk_error *err);
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
 * "<key>/shard_<offsets>_<shape>", values as lists of one). n_rng_axes: of megatron_rng.h, what the
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

#endif

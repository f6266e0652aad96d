/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_keys.h - the keys of a folder: Megatron-FSDP's, and those that Megatron's converter leaves
 * (fsdp_converted.c); what stands before the names of parameters in them. */
#ifndef DCPK_FORMATS_FSDP_KEYS_H
#define DCPK_FORMATS_FSDP_KEYS_H

#include "lib/model/model.h"

/* Key prefixes (FORMAT.md 4); after the latter two stands Q and a dot. */
#define FD_MODEL     "model.module."
#define FD_STATE     "optimizer.state."
#define FD_GROUP     "optimizer.param_to_group_meta."
#define FD_SCHEDULER "opt_param_scheduler."
#define FD_RNG       "rng_state."
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

#endif

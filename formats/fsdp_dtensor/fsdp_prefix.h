/* SPDX-License-Identifier: Apache-2.0 */
/* fsdp_prefix.h - what stands before the names of parameters in a folder's keys. */
#ifndef DCPK_FORMATS_FSDP_DTENSOR_PREFIX_H
#define DCPK_FORMATS_FSDP_DTENSOR_PREFIX_H

#include "lib/model/model.h"

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

/* The optimizer_layout hook: "fsdp_dtensor", or "none" where there is no state but masters. */
const char *dcpk_fsdp_optimizer_layout(const struct dcpk_checkpoint *ckpt,
                                       const struct dcpk_value *common);

/* True if text that begins a .metadata holds such a key after a prefix, and none of torch_dist. */
bool dcpk_fsdp_has_prefixed_key(const char *text, size_t n_bytes);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_slots.h - which parameters lie in one stored tensor of a 3D-parallel checkpoint, and
 * what it is called. */
#ifndef DCPK_FORMATS_MEGATRON_MEGATRON_SLOTS_H
#define DCPK_FORMATS_MEGATRON_MEGATRON_SLOTS_H

#include "formats/megatron/megatron.h"
#include "lib/ckpt/output.h"
#include "lib/model/parts.h"

#define DCPK_MAX_STACKED   2 /* a layer axis and an expert axis */
#define DCPK_MAX_SLOT_KEYS 2

/*
 * One stored weight and its optimizer state: a parameter, or one of all layers, of all experts, or
 * of both (formats/torch_dist/FORMAT.md 4.2, 4.5). members[layer * n_experts + expert] is the
 * parameter that lies there.
 */
struct dcpk_slot {
    /* Keys of the weight: one, or Transformer Engine's and the local spec's. */
    const char *keys[DCPK_MAX_SLOT_KEYS];
    size_t n_keys;
    bool has_layers, has_experts; /* the stacked axes, in this order, before the parameter's own */
    int64_t n_layers, n_experts;  /* 1 where the axis is not there */
    uint32_t *members;
    struct dcpk_split split; /* stored as "<key>.<name>" each; "": all as "<key>" */
};

/* All slots, in the order of the model's parameters. Their data is in the output's arena; the list
 * is not. */
struct dcpk_slots {
    struct dcpk_slot *list;
    size_t n;
    bool is_stacked; /* layers are one tensor */
    /* Megatron's value by args; it reads the rest from content_metadata. */
    bool is_homogeneous_by_args;
};

static inline int dcpk_slot_axes(const struct dcpk_slot *slot)
{
    return slot->has_layers + slot->has_experts;
}

/*
 * Find the slots: layers stacked where Megatron of these args stacks them and where they are alike.
 * Errors: DCPK_EMISMATCH for experts that are missing or differ in shape; those of
 * dcpk_parts_of.
 */
dcpk_status dcpk_slots_find(const struct dcpk_model *model, const struct dcpk_output *out,
                            struct dcpk_slots *slots, struct dcpk_error *err);

/*
 * True if the parts of a parameter have keys of their own. Those of projections do; gate and up
 * rows are one tensor, of which each is stored in chunks of its own (formats/torch_dist/FORMAT.md
 * 4.4).
 */
bool dcpk_slots_are_apart(const struct dcpk_split *parts);

/* The kind of a model's layers: HYBRID with mixers, MLA with multi-latent attention, or neither. */
enum dcpk_slots_kinds { DCPK_SLOTS_DECODER = 1, DCPK_SLOTS_MLA = 2, DCPK_SLOTS_HYBRID = 4 };

/*
 * How local modules store what Transformer Engine's call `rest` (after the layer): the text
 * returned, with *tail after it.
 */
const char *dcpk_slots_local(unsigned kinds, const char *rest, const char **tail);

void dcpk_slots_release(struct dcpk_slots *slots); /* zeroed: a no-op */

/* ---- writing by slots, between the files of this folder ---- */

/* "<module>._extra_state/...". */
dcpk_status dcpk_megatron_put_extra_states(const struct dcpk_model *model, struct dcpk_output *out,
                                           const struct dcpk_slots *slots, struct dcpk_error *err);

/* True if the optimizer's state is to be written in buckets (dp_reshardable). */
bool dcpk_megatron_has_buckets(const struct dcpk_model *model, const struct dcpk_output *out);

/* True if the folder is to be of generation A. */
bool dcpk_megatron_is_generation_a(const struct dcpk_output *out);

/* True if it is to be written as flattened blocks (fully_sharded_model_space, generation A). */
bool dcpk_megatron_flattens(const struct dcpk_model *model, const struct dcpk_output *out);

/* The common state, and with buckets what holds the optimizer's state next to it
 * (formats/torch_dist/FORMAT.md 6). */
dcpk_status dcpk_megatron_make_common(const struct dcpk_model *model, struct dcpk_output *out,
                                      const struct dcpk_slots *slots, bool is_rng_whole,
                                      const struct dcpk_value **common, struct dcpk_error *err);

#endif

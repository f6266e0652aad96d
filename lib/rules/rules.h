/* SPDX-License-Identifier: Apache-2.0 */
/* rules.h - what Megatron means by a model: names, SwiGLU, parameter groups. Turns a format's view
 * into the canonical one. */
#ifndef DCPK_LIB_RULES_RULES_H
#define DCPK_LIB_RULES_RULES_H

#include "lib/base/arena.h"
#include "lib/ckpt/checkpoint.h"
#include "lib/model/names.h"
#include "lib/rules/mesh.h"

enum dcpk_swiglu {
    DCPK_SWIGLU_AUTO, /* as in the checkpoint's own args */
    DCPK_SWIGLU_ON,
    DCPK_SWIGLU_OFF,
};

/* Zeroed = defaults. Everything is borrowed. */
struct dcpk_rule_options {
    enum dcpk_impl impl;
    enum dcpk_swiglu swiglu;
    const char *const *swiglu_modules; /* only fc1 of these modules is gated; NULL: of all */
    size_t n_swiglu_modules;
    /* JSON: live name -> group number (RULES.md 2); NULL: derive the groups. */
    const char *group_map;
    size_t group_map_bytes;
    const char *group_map_name; /* for messages: its file; may be NULL */
    struct dcpk_grid mesh; /* of the 3D-parallel run that loads the result; 0: as the source's */
    struct dcpk_vocab vocab;
};

/*
 * Give every parameter its canonical name, put parameters into layer order and merge aliases: two
 * names of one parameter whose tensors lie at the same places. Two different tensors for one name
 * are DCPK_EFORMAT.
 */
dcpk_status dcpk_rules_canonical(struct dcpk_model *model, struct dcpk_error *err);

/*
 * Mark the gated parameters. AUTO reads args.swiglu. Parameters that the format already knows to be
 * gated stay so, unless AUTO reads that none is: a note then records it. Errors: DCPK_EUSAGE when
 * there are no args to read it from; DCPK_EMISMATCH when the word given contradicts args or what is
 * stored in halves, a module has no fc1 or the modules leave out one that args include, or the rows
 * of an fc1 contradict args.ffn_hidden_size, args.moe_ffn_hidden_size or
 * args.moe_shared_expert_intermediate_size.
 */
dcpk_status dcpk_rules_gate(struct dcpk_model *model, const struct dcpk_rule_options *options,
                            struct dcpk_error *err);

/*
 * Give every trained parameter its group: by the map, else by Megatron's default rule
 * (RULES.md 2). A parameter without optimizer state next to others that have it is not trained
 * (is_buffer). Nothing to do without an optimizer. Errors: DCPK_EMISMATCH naming the first
 * parameter that the map lacks or whose group does not exist; DCPK_EUNSUPPORTED when the rule finds
 * no group or several (then a map is needed).
 */
dcpk_status dcpk_rules_groups(struct dcpk_model *model, const struct dcpk_rule_options *options,
                              struct dcpk_error *err);

/*
 * Complete the fields of every group to the union that Transformer Engine's FusedAdam and torch's
 * AdamW ask for (formats/fsdp_dtensor/FORMAT.md 7); `step` becomes an int.
 */
dcpk_status dcpk_rules_complete_groups(struct dcpk_model *model, struct dcpk_error *err);

/* Set every parameter's live spellings for the target. */
dcpk_status dcpk_rules_spell(struct dcpk_model *model, enum dcpk_impl impl, struct dcpk_error *err);

/*
 * Checks that rows of fused weights have the order of rows.h, by the attributes of args (NULL: they
 * do). Errors: DCPK_EUNSUPPORTED naming the attribute of generalized tensor parallelism, or of an
 * interleaved GLU, by which they do not.
 */
dcpk_status dcpk_rules_check_rows(const struct dcpk_value *attrs, struct dcpk_error *err);
/* The same for the args of a view, unless its checkpoint has the decision DCPK_ACCEPT_GTP. */
dcpk_status dcpk_rules_check_model_rows(const struct dcpk_model *model, struct dcpk_error *err);

/* All of the above, in that order. Errors also: DCPK_EFORMAT for optimizer state without a weight,
 * or for some parameters without the masters that others have: from here on every parameter has a
 * value (dcpk_model_value). */
dcpk_status dcpk_rules_apply(struct dcpk_model *model, const struct dcpk_rule_options *options,
                             struct dcpk_error *err);

/*
 * Lists the settings in these attributes of args (a DICT) that Megatron-FSDP forbids: a sentence
 * and its remedy each, in `arena`, in the order of the table. *notes: appended to. Errors:
 * DCPK_ENOMEM.
 */
dcpk_status dcpk_rules_forbidden(const struct dcpk_value *attrs, struct dcpk_arena *arena,
                                 struct dcpk_note **notes, struct dcpk_error *err);

#endif

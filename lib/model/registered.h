/* SPDX-License-Identifier: Apache-2.0 */
/* registered.h - Megatron's parameters by their names: order of registration, cuts of tensor
 * parallelism; a model's parameters in that order. */
#ifndef DCPK_LIB_MODEL_REGISTERED_H
#define DCPK_LIB_MODEL_REGISTERED_H

#include "lib/model/model.h"
#include "lib/model/names.h"

/* How the modules of a model are built, which shows in the order of their parameters. */
enum dcpk_spec {
    DCPK_SPEC_TE = 1,          /* Transformer Engine's modules, else Megatron's local ones */
    DCPK_SPEC_GROUPED = 2,     /* experts in grouped linears, else one by one */
    DCPK_SPEC_CONV_MODULE = 4, /* Mamba's convolution is a module, as before core 0.19 */
};

/* The parts of a model, in their order of registration. */
enum dcpk_section {
    DCPK_EMBEDDING, /* word, position and token type embeddings */
    DCPK_DECODER_LAYERS,
    DCPK_FINAL_NORM, /* of the decoder */
    DCPK_MTP_LAYERS,
    DCPK_OUTPUT_LAYER,
    DCPK_NO_SECTION, /* a name that no rule knows */
};

/* Facts that a name shows (formats/torch_dist/FORMAT.md 4.3 to 4.6, formats/fsdp_dtensor/FORMAT.md
 * 8.2). A value. */
struct dcpk_registered {
    enum dcpk_section section;
    int64_t layer;    /* of the decoder, or of multi-token prediction; 0 elsewhere */
    int64_t expert;   /* routed; -1: none */
    int tp_axis;      /* as in dcpk_param; DCPK_TP_UNKNOWN: no rule */
    bool is_buffer;   /* a persistent buffer: no parameter at all */
    int64_t order[6]; /* inside the layer or section; see dcpk_registered_compare */
};

/*
 * name: unstacked, in the spelling of names.h or in that of 3D-parallel checkpoints. spec: enum
 * dcpk_spec; MLA's down-projections are cut in the local spec only. Returns false for a name that
 * no rule knows; it then has DCPK_NO_SECTION.
 */
bool dcpk_registered_find(const char *name, unsigned spec, struct dcpk_registered *reg);

/* Less than 0 where `a` is registered before `b`; names that no rule knows come last. */
int dcpk_registered_compare(const struct dcpk_registered *a, const struct dcpk_registered *b);

/* ---- a model's parameters in their order ---- */

/*
 * Set tp_axis, expert, unit and place of every parameter; the names are canonical. Under
 * DCPK_IMPL_ANY the modules are those that args.transformer_impl names, Transformer Engine's
 * without it. Errors: DCPK_ENOMEM.
 */
dcpk_status dcpk_rules_parallel(struct dcpk_model *model, enum dcpk_impl impl,
                                struct dcpk_error *err);

#endif

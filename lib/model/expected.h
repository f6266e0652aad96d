/* SPDX-License-Identifier: Apache-2.0 */
/* expected.h - the parameters that a model of given args has, whether or not they are stored. */
#ifndef DCPK_LIB_MODEL_EXPECTED_H
#define DCPK_LIB_MODEL_EXPECTED_H

#include "lib/model/parts.h"
#include "lib/model/registered.h"

enum dcpk_expected_flags {
    DCPK_EXPECTED_BUFFER = 2,    /* not trained */
    DCPK_EXPECTED_EXPERT = 4,    /* one of each routed expert */
    DCPK_EXPECTED_VOCAB = 8,     /* rows are the padded vocabulary */
    DCPK_EXPECTED_TE_ONLY = 16,  /* a module of Transformer Engine's spec alone */
    DCPK_EXPECTED_OLD_MTP = 256, /* asked for in multi-token prediction alone, up to core 0.16 */
};

#define DCPK_EXPECTED_RANK 3

/* A parameter of a layer, or one outside layers, by its name after the layer's. */
struct dcpk_expected_param {
    /*
     * As Transformer Engine's spec and as the local one call it. For an expert, the name after
     * "mlp.experts.", without its number: "linear_fc1.weight".
     */
    const char *te, *local;
    unsigned flags;
    int rank;
    int64_t shape[DCPK_EXPECTED_RANK]; /* of the whole parameter */
    struct dcpk_split parts;           /* of its rows; n 0: they are all of one kind */
};

/* A module that keeps extra state: as te and local above. */
struct dcpk_expected_module {
    const char *te;
    unsigned flags;
};

/* Common properties of all layers of one kind. */
struct dcpk_expected_kind {
    unsigned traits; /* of lib/rules/expect.c; equal traits are one kind */
    struct dcpk_expected_param *params;
    size_t n_params;
    struct dcpk_expected_module *modules;
    size_t n_modules;
};

struct dcpk_expected_layer {
    enum dcpk_section section;
    int64_t number; /* of the decoder's layer, or of multi-token prediction; 0 outside layers */
    int64_t inner; /* of a layer in the stack that a hybrid's multi-token prediction has; else -1 */
    bool is_wrapper; /* parts of multi-token prediction around its inner layer */
    const struct dcpk_expected_kind *kind;
};

struct dcpk_expected {
    struct dcpk_expected_layer *layers; /* with the parts outside layers, in order of sections */
    size_t n_layers;
    int64_t n_decoder_layers, n_experts; /* n_experts 0: no routed ones */
    int64_t vocab_rows;
    bool is_stacked; /* by args alone: all layers of the decoder as one tensor */
    bool is_hybrid, is_mla, is_mla_fused, is_grouped, is_fp32, is_swiglu, is_hybrid_mtp;
    bool is_sparse;            /* attention with an indexer (DSA) */
    bool is_tied;              /* the output layer is the embedding */
    const char *optimizer;     /* "adam", "sgd" */
    const char *unknown;       /* named by args, but in no table here; NULL: nothing */
    struct dcpk_note *assumed; /* assumed, because args do not record it */
};

#endif

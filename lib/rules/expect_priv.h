/* SPDX-License-Identifier: Apache-2.0 */
/* expect_priv.h - shared by the files that list a model's parameters. */
#ifndef DCPK_LIB_RULES_EXPECT_PRIV_H
#define DCPK_LIB_RULES_EXPECT_PRIV_H

#include "lib/rules/expect.h"

/* The sizes that shapes are made of. */
enum dcpk_dim {
    DIM_NONE, /* no such axis */
    DIM_ONE,
    DIM_HIDDEN,
    DIM_TWO_HIDDEN,
    DIM_VOCAB,
    DIM_POSITIONS,
    DIM_HEADS,
    DIM_HEAD,    /* of a query, key or value */
    DIM_QKV,     /* queries, keys and values of all heads */
    DIM_CONTEXT, /* all heads together */
    DIM_FFN,
    DIM_FC1,
    DIM_EXPERTS,
    DIM_MOE_FFN,
    DIM_MOE_FC1,
    DIM_SHARED,
    DIM_SHARED_FC1,
    DIM_Q_LORA, /* multi-latent attention */
    DIM_KV_LORA,
    DIM_Q_UP,
    DIM_KV_DOWN,
    DIM_KV_UP,
    DIM_MLA_CONTEXT,
    DIM_INDEX_HEADS, /* of an indexer of sparse attention */
    DIM_INDEX_HEAD,
    DIM_INDEX_QUERIES,
    DIM_KERNEL,   /* of a convolution */
    DIM_GDN_KEYS, /* Gated DeltaNet */
    DIM_GDN_VALUES,
    DIM_GDN_IN,
    DIM_GDN_CONV,
    DIM_GDN_HEADS,
    DIM_GDN_HEAD,
    DIM_MAMBA_INNER,
    DIM_MAMBA_STATE, /* of all groups */
    DIM_MAMBA_IN,
    DIM_MAMBA_CONV,
    DIM_MAMBA_HEADS,
    N_DIMS,
};

/* The parts of a layer, and the properties that all of the model's layers have in common. */
enum dcpk_trait {
    HAS_QKV = 1,
    HAS_MLA = 2,
    HAS_GDN = 4,
    HAS_MAMBA = 8,
    HAS_DENSE = 16,
    HAS_MOE = 32,
    HAS_MTP = 64,      /* the wrapper of multi-token prediction */
    HAS_OUTER = 128,   /* parts outside layers: word embeddings, ... */
    WITH_Q_LORA = 256, /* of MLA */
    WITH_QK_NORM = 512,
    WITH_QKV_BIAS = 1024,
    WITH_BIAS = 2048, /* of linear layers */
    WITH_NORM_BIAS = 4096,
    WITH_SHARED = 8192,
    WITH_SHARED_GATE = 16384,
    WITH_EXPERT_BIAS = 32768,
    WITH_SINK = 65536, /* a learned offset of the softmax */
    WITH_OUTPUT = 131072,
    WITH_POSITIONS = 262144,
    WITH_GATE = 524288, /* the MLP's activation is gated */
    IS_HYBRID = 1048576,
    IS_DECODER = 2097152,     /* not hybrid */
    WITHOUT_Q_LORA = 4194304, /* MLA whose queries come from one projection */
    IS_SPARSE = 8388608,      /* MLA's norms of latents are modules: sparse attention */
    IS_FUSED = 16777216,      /* they are parts of linear layers */
    HAS_INDEXER = 33554432,
};

/* Settings read from args. */
struct dcpk_arch {
    const struct dcpk_value *attrs;
    struct dcpk_arena *arena;
    struct dcpk_expected *expected;
    int64_t size[N_DIMS]; /* 0: not in args */
    unsigned common;      /* WITH_... traits */
    struct dcpk_expected_kind *kinds;
    size_t n_kinds;
};

/* Read the sizes and traits. */
dcpk_status dcpk_arch_read(struct dcpk_arch *arch, const struct dcpk_grid *mesh,
                           struct dcpk_error *err);
/* The kind of layer with these traits, found or made. */
dcpk_status dcpk_arch_kind(struct dcpk_arch *arch, unsigned traits,
                           const struct dcpk_expected_kind **kind, struct dcpk_error *err);
/* Records what no table knows, unless something is recorded already. NULL-safe text is copied. */
dcpk_status dcpk_arch_unknown(struct dcpk_arch *arch, struct dcpk_error *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* An attribute that is there, and neither None, False, 0 nor empty. */
bool dcpk_arch_given(const struct dcpk_arch *arch, const char *name);
/* Its number, or `by_default`. */
int64_t dcpk_arch_int(const struct dcpk_arch *arch, const char *name, int64_t by_default);
const char *dcpk_arch_text(const struct dcpk_arch *arch, const char *name);

#endif

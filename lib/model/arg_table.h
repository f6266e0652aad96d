/* SPDX-License-Identifier: Apache-2.0 */
/* arg_table.h - the one table of args that describe a model: kind, default, other spellings, and
 * whether they decide what the model computes. */
#ifndef DCPK_LIB_MODEL_ARG_TABLE_H
#define DCPK_LIB_MODEL_ARG_TABLE_H

#include "lib/ckpt/value.h"

/*
 * The border. An arg decides when the same weights and tokens give other logits under another value
 * of it, in exact arithmetic, in evaluation. So these do not decide, and most are not in the table:
 * precision (dtypes, FP8, fp32_residual_connection, moe_router_dtype), kernels and fusions (but
 * bias_gelu_fusion, whose GELU is another function), parallelism, memory, logging, data, the
 * optimizer, initialization, dropout, losses and their coefficients (moe_z_loss_coeff, MTP's), and
 * what divides and multiplies by one number again (apply_query_key_layer_scaling). How weights of
 * norms are stored does not decide either: who combines two runs undoes it (norms.h). Models other
 * than decoders of text and hybrids (BERT, T5, vision, retrieval) are not described.
 *
 * Sources: megatron/core/transformer/transformer_config.py (TransformerConfig,
 * MLATransformerConfig), megatron/training/arguments.py and gpt_builders.py, core_v0.15.3 to main.
 * Defaults are those of core_v0.19.0's parser, or what the model takes None for.
 */
enum dcpk_arg_kind { DCPK_ARG_ANY, DCPK_ARG_INT, DCPK_ARG_FLOAT, DCPK_ARG_BOOL, DCPK_ARG_TEXT };

/* The part of a model that an arg affects. */
enum dcpk_arg_part {
    DCPK_PART_ALL,
    DCPK_PART_GELU,     /* without another activation */
    DCPK_PART_ROPE,     /* with rotary embeddings */
    DCPK_PART_SCALING,  /* with scaled ones */
    DCPK_PART_YARN,     /* with YaRN's, as multi-latent attention has them too */
    DCPK_PART_GPT_YARN, /* with YaRN's of other attention */
    DCPK_PART_MLA,      /* with multi-latent attention */
    DCPK_PART_VARIANT,  /* with an experimental attention */
    DCPK_PART_WINDOW,   /* with a sliding window */
    DCPK_PART_HYBRID,   /* with layers of several kinds */
    DCPK_PART_MOE,      /* with experts */
    DCPK_PART_CAPACITY, /* with experts that drop tokens */
    DCPK_PART_MTP,      /* with multi-token prediction */
    DCPK_PART_MUP,      /* with scales by muP */
    DCPK_PART_MHC,      /* with hyper-connections */
};

enum dcpk_arg_flags {
    DCPK_ARG_SHOWN = 1,    /* names and shapes of weights show it: not compared, nor refused */
    DCPK_ARG_TRAINS = 2,   /* does not decide: of training alone, or of how weights are stored */
    DCPK_ARG_MAY_LACK = 4, /* it follows from others, or releases have other defaults: what lacks it
                              differs from nothing */
    DCPK_ARG_SIZE = 8,     /* every model has one: there is no default */
    DCPK_ARG_NULLABLE = 16, /* None has a meaning of its own */
    DCPK_ARG_MAY_BE_0 = 32,
};

struct dcpk_arg {
    const char *name;
    const char *twin;   /* in args of another release, or NULL */
    const char *config; /* in a model's configuration, as Megatron-Bridge writes it, or NULL */
    enum dcpk_arg_kind kind;
    enum dcpk_arg_part part;
    unsigned flags;               /* enum dcpk_arg_flags */
    struct dcpk_value by_default; /* meaning of absent or None; DCPK_V_NONE: itself */
    int64_t most;                 /* of DCPK_ARG_INT; 0: INT32_MAX */
};
extern const struct dcpk_arg dcpk_args[];
extern const size_t dcpk_n_args;

/* By its name or its twin; NULL: it is not in the table. */
const struct dcpk_arg *dcpk_arg_find(const char *name);

/*
 * The name that args have for a field of a configuration: its own where the table has no other.
 * members: all fields (a DICT). NULL: its other spelling counts, which is there too.
 * Errors: DCPK_EFORMAT where both spellings are there and differ.
 */
dcpk_status dcpk_arg_of_field(const struct dcpk_value *members, const char *field,
                              const char **name, struct dcpk_error *err);

/* True if an attribute of that name, or its twin, is given. */
bool dcpk_arg_is_given(const struct dcpk_value *given, const char *name);

/*
 * The attribute by its name or its twin, or its default; never NULL. Values of one meaning become
 * one: kinds of balancing that only add a loss are the default.
 */
const struct dcpk_value *dcpk_arg_value(const struct dcpk_value *attrs, const char *name);

/* True if the arg has an effect in a model of these args, and is off its default. */
bool dcpk_arg_is_off(const struct dcpk_arg *arg, const struct dcpk_value *attrs);

/*
 * The first arg from *at on, a number in the table, that decides and that two runs have with
 * another meaning, and *at set after it; NULL: there is none. a, b: args' attributes. The name is
 * that of the release which wrote them.
 */
const char *dcpk_args_next_difference(const struct dcpk_value *a, const struct dcpk_value *b,
                                      size_t *at);

/*
 * The first arg by which the rows of a weight stand in another order in two runs, so that no sum or
 * difference of the two means anything; NULL: none. a, b: as above.
 */
const char *dcpk_ordering_arg(const struct dcpk_value *a, const struct dcpk_value *b);

/* The dtype of a run's working weights by its args. attrs: as above. */
enum dcpk_dtype dcpk_args_working_dtype(const struct dcpk_value *attrs);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* deciding_args.h - args by which equal weights compute something else, and that the names and
 * shapes of the weights do not show. */
#ifndef DCPK_LIB_MODEL_DECIDING_ARGS_H
#define DCPK_LIB_MODEL_DECIDING_ARGS_H

#include "lib/ckpt/value.h"

/* Where an arg means something. */
enum dcpk_deciding_part {
    DCPK_DECIDES,         /* in every model */
    DCPK_DECIDES_GELU,    /* without another activation */
    DCPK_DECIDES_ROPE,    /* with rotary embeddings */
    DCPK_DECIDES_SCALING, /* with scaled ones */
    DCPK_DECIDES_YARN,    /* with YaRN's, as multi-latent attention has them */
    DCPK_DECIDES_MOE,     /* with experts */
    DCPK_DECIDES_WINDOW,  /* with a sliding window */
    DCPK_DECIDES_MUP,     /* with scales by muP */
};

/*
 * Not among them: how the weights of norms are stored, which whoever combines two runs undoes
 * (norms.h), and what changes precision or the training alone.
 * Source: megatron/training/arguments.py@core_v0.19.0 for names and defaults,
 * megatron/core/transformer/transformer_config.py@core_v0.19.0 for what they do. A run has the
 * defaults of its own release in its args.
 */
struct dcpk_deciding_arg {
    const char *name, *twin; /* the same under another release's name, or NULL */
    enum dcpk_deciding_part part;
    struct dcpk_value otherwise; /* what absent or None means */
    /* It follows from others, or not every release has the same default: what lacks it differs
     * from nothing. */
    bool may_lack;
};
extern const struct dcpk_deciding_arg dcpk_deciding_args[];
extern const size_t dcpk_deciding_n_args;

/*
 * The first arg from *at on, a number in the table, that two runs have with another meaning, and
 * *at set behind it; NULL: there is none. a, b: args' attributes. The name is that of the release
 * which wrote them.
 */
const char *dcpk_deciding_args_next(const struct dcpk_value *a, const struct dcpk_value *b,
                                    size_t *at);

/*
 * The first arg by which the rows of a weight stand in another order in two runs, so that no sum or
 * difference of the two means anything; NULL: none. a, b: as above.
 */
const char *dcpk_ordering_arg(const struct dcpk_value *a, const struct dcpk_value *b);

#endif

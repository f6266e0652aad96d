/* SPDX-License-Identifier: Apache-2.0 */
/* memory_account.h - all memory of a training step, by what it is for: how much is held, and what
 * was most. footprint.c has how much a configuration needs. */
#ifndef DCPK_LIB_TRAIN_MEMORY_ACCOUNT_H
#define DCPK_LIB_TRAIN_MEMORY_ACCOUNT_H

#include "lib/device/ops.h"

enum dcpk_memory_tag {
    DCPK_TAG_WEIGHTS, /* in the compute dtype, kept over the step */
    DCPK_TAG_MAIN,    /* fp32 parameters */
    DCPK_TAG_GRADS,   /* gradients, kept over the step */
    DCPK_TAG_ADAM,    /* moments */
    DCPK_TAG_GATHER,  /* weights gathered for a while */
    DCPK_TAG_COMM,    /* gradients on their way */
    DCPK_TAG_ACT,     /* activations */
    DCPK_N_TAGS,
};

extern const char *const dcpk_memory_tag_names[DCPK_N_TAGS]; /* "weights", "main", ... */

/* Bytes, as asked for. now: held; most: the most held at one time, of the tag and of all. */
struct dcpk_memory_account {
    struct dcpk_math *math; /* borrowed; that of dcpk_memory_counted: nothing is allocated */
    uint64_t now[DCPK_N_TAGS], most[DCPK_N_TAGS];
    uint64_t now_all, most_all;
};

/* A device without memory: what is taken of it is NULL, counted, and not given back. */
struct dcpk_math *dcpk_memory_counted(void);

/* Private memory of the device; 0 bytes are allowed and give memory, too. Errors: DCPK_ENOMEM,
 * naming the tag. */
dcpk_status dcpk_memory_account_alloc(struct dcpk_memory_account *account, enum dcpk_memory_tag tag,
                                      size_t n_bytes, void **at, struct dcpk_error *err);
/* Counts memory from elsewhere; a negative n_bytes: it was given back. */
void dcpk_memory_account_count(struct dcpk_memory_account *account, enum dcpk_memory_tag tag,
                               int64_t n_bytes);
/* Frees memory of alloc with the same tag and size; NULL is a no-op. */
void dcpk_memory_account_free(struct dcpk_memory_account *account, enum dcpk_memory_tag tag,
                              size_t n_bytes, void *at);

#endif

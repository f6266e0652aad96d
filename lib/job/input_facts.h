/* SPDX-License-Identifier: Apache-2.0 */
/* told.h - what the user tells of a checkpoint where no file does. */
#ifndef DCPK_LIB_JOB_TOLD_H
#define DCPK_LIB_JOB_TOLD_H

#include "lib/ckpt/checkpoint.h"

/* Zeroed: nothing. Everything is borrowed as long as the checkpoint is open. */
struct dcpk_told {
    int64_t bucket_elems; /* of the DDP buckets of the run that wrote it */
    /* What keys of weights and of optimizer state begin with, without the last dot; NULL: the
     * format's own, else found by looking. */
    const char *model_prefix, *state_prefix;
    const char *const *drops; /* regular expressions (lib/rules/edit.h): keys to be left out */
    size_t n_drops;
};

/*
 * Tell an opened checkpoint, before it is viewed. What is left out has as its reason the expression
 * that matched first. Errors: DCPK_EUSAGE for an expression that is malformed, matches no key, or
 * leaves none, or for a prefix that
 * the format cannot have.
 */
dcpk_status dcpk_told_apply(const struct dcpk_told *told, struct dcpk_checkpoint *ckpt,
                            struct dcpk_error *err);

#endif

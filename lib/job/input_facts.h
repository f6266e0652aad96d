/* SPDX-License-Identifier: Apache-2.0 */
/* input_facts.h - what the caller knows of a checkpoint and no file of it records. */
#ifndef DCPK_LIB_JOB_INPUT_FACTS_H
#define DCPK_LIB_JOB_INPUT_FACTS_H

#include "lib/ckpt/checkpoint.h"

/* Zeroed: none. Everything is borrowed as long as the checkpoint is open. */
struct dcpk_input_facts {
    unsigned decisions;   /* of enum dcpk_decision */
    int64_t bucket_elems; /* DDP bucket size of the run that wrote it; 0: unknown */
    /* Prefixes of the keys of weights and of optimizer state, without the last dot; NULL: the
     * format's own, else the one that its keys have. */
    const char *model_prefix, *state_prefix;
    const char *const *drops; /* regular expressions (lib/rules/edit.h): keys to be left out */
    size_t n_drops;
};

/*
 * Set them in an opened checkpoint, before it is viewed. The reason of a key that is left out is
 * the expression that matched first. Errors: DCPK_EUSAGE for an expression that is malformed,
 * matches no key, or leaves none, or for a prefix that the format cannot have.
 */
dcpk_status dcpk_input_facts_apply(const struct dcpk_input_facts *facts,
                                   struct dcpk_checkpoint *ckpt, struct dcpk_error *err);

#endif

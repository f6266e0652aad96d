/* SPDX-License-Identifier: Apache-2.0 */
/* verify.h - is a checkpoint whole; is it a true conversion of another. */
#ifndef DCPK_LIB_JOB_VERIFY_H
#define DCPK_LIB_JOB_VERIFY_H

#include "lib/job/compare.h"

enum dcpk_verify_check {
    DCPK_VERIFY_WHOLE,     /* nothing is missing that belongs to tensors and objects */
    DCPK_VERIFY_COVER,     /* the chunks of every tensor cover it exactly */
    DCPK_VERIFY_OVERLAPS,  /* no two items share bytes, except exact aliases */
    DCPK_VERIFY_PICKLES,   /* objects can be read, and hold known classes alone */
    DCPK_VERIFY_CHECKSUMS, /* of every stored item */
    DCPK_VERIFY_INTEGRITY, /* Megatron's list of files, where the folder has one */
    DCPK_VERIFY_AGAINST,   /* a faithful conversion of a source, where one is given */
    DCPK_VERIFY_WRITTEN,   /* the list of files was written, where that is wanted */
    DCPK_N_VERIFY_CHECKS,
};

/* Status DCPK_EFORMAT or DCPK_EMISMATCH: the answer is no. Any other than DCPK_OK: it could not be
 * had. */
struct dcpk_outcome {
    bool is_made; /* false: the check does not apply, or another rank made it */
    struct dcpk_error err;
};

/* Zero it before use; release it in any case. */
struct dcpk_verification {
    struct dcpk_outcome outcomes[DCPK_N_VERIFY_CHECKS];
    bool has_checksums;               /* the format stores some of tensor bytes */
    uint64_t item_bytes;              /* of all items, each place once */
    size_t n_listed, n_written;       /* files in the list that was checked, and that was written */
    bool is_compared;                 /* with the source, to the end */
    struct dcpk_compare_report proof; /* with a source */
};

enum dcpk_verify_flags {
    DCPK_VERIFY_WEIGHTS_ONLY = 1, /* the checkpoint was converted without optimizer state */
    /* Write integrity.json when all checks hold; an old one is replaced and not checked. */
    DCPK_VERIFY_WRITE_LIST = 2,
};

struct dcpk_verify_options {
    unsigned flags;                 /* of enum dcpk_verify_flags */
    struct dcpk_checkpoint *source; /* NULL: none; borrowed */
    const char *source_name;        /* for messages */
    int64_t vocab_size;             /* tokens; 0: args.vocab_size (struct dcpk_compare_options) */
    struct dcpk_env env;
};

/* Make the checks that need the metadata alone, WHOLE to PLACES. */
void dcpk_verify_metadata(struct dcpk_checkpoint *ckpt, struct dcpk_outcome *outcomes);

/*
 * Make all checks, also when one has failed: each answers another question. Collective with
 * env.ranks: what reads little is made by rank 0 alone. Every failure is an outcome.
 */
void dcpk_verify(struct dcpk_checkpoint *ckpt, const struct dcpk_verify_options *options,
                 struct dcpk_verification *v);
/* The first check that failed on this rank. */
dcpk_status dcpk_verification_status(const struct dcpk_verification *v, struct dcpk_error *err);
void dcpk_verification_release(struct dcpk_verification *v); /* zeroed: a no-op */

/* ---- an input, before it is read ---- */

/* How a checkpoint was checked before it was read. */
struct dcpk_input_check {
    bool is_made;
    uint64_t checked_bytes; /* of tensors, against stored checksums; 0: the format stores none */
    size_t n_listed;        /* files against integrity.json; 0: there is none */
};

/*
 * Check all checksums of a checkpoint, and the files that its integrity.json lists. Collective
 * where the executor has ranks. Errors: DCPK_EFORMAT naming the first that is wrong; those of
 * reading.
 */
dcpk_status dcpk_check_input(struct dcpk_exec *exec, struct dcpk_input_check *check,
                             struct dcpk_error *err);

#endif

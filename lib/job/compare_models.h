/* SPDX-License-Identifier: Apache-2.0 */
/* compare_models.h - two checkpoints held against each other, whatever their formats, layouts and
 * spellings. */
#ifndef DCPK_LIB_JOB_COMPARE_MODELS_H
#define DCPK_LIB_JOB_COMPARE_MODELS_H

#include "lib/ckpt/format.h"
#include "lib/exec/exec.h"
#include "lib/plan/plan.h"

enum dcpk_difference_kind {
    DCPK_ONLY_IN_A,
    DCPK_ONLY_IN_B,
    DCPK_SHAPE_DIFFERS,
    DCPK_DTYPE_DIFFERS,
    DCPK_ELEMENTS_DIFFER, /* `measured` says how far */
    DCPK_VALUE_DIFFERS,   /* no tensor: training state */
    DCPK_N_DIFFERENCES,
};

/* A line of the answer. Owned by the report. */
struct dcpk_difference {
    enum dcpk_difference_kind kind;
    const char *name; /* "decoder.layers.0.mlp.linear_fc1.weight", "args.lr", a key as stored */
    const char *part; /* of a parameter: "weight", "master", "exp_avg", a state's name; else NULL */
    const char *a,
        *b; /* what each side has: "bfloat16 [4, 8]", a value as JSON (cut); NULL: nothing */
    struct dcpk_compare measured;
    struct dcpk_difference_place { /* ELEMENTS: where they are furthest apart; key NULL: else */
        const char *key;           /* of A as stored, "decoder.layers.mlp.linear_fc2.weight" */
        const char *index;         /* in that tensor, "[1, 32, 42]" */
        const char *a, *b;         /* the values, with as many digits as tell them apart */
    } place;
    bool is_value;                 /* no tensor: of what only one side has too */
    const struct dcpk_view *views; /* ELEMENTS: A's and B's, while comparing */
    size_t number;                 /* in the order of the model, while they are sorted */
    struct dcpk_difference *next;
};
struct dcpk_differences {
    struct dcpk_difference *first, **end;
    uint64_t n;
};

/* What is compared, in parts. */
enum dcpk_compare_part {
    DCPK_COMPARED_WEIGHTS,
    DCPK_COMPARED_MASTERS,
    DCPK_COMPARED_MOMENTS, /* and all other optimizer state of parameters */
    DCPK_COMPARED_TENSORS, /* as stored: of all kinds */
    DCPK_COMPARED_GROUPS,
    DCPK_COMPARED_ARGS,
    DCPK_COMPARED_STATE, /* the rest of the training state; as stored: objects */
    DCPK_N_COMPARED,
};
const char *dcpk_compare_part_name(enum dcpk_compare_part part); /* "weights", "masters", ... */
struct dcpk_part_result {
    uint64_t n_compared; /* tensors, or values; those that one side lacks count too */
    uint64_t n_different;
    double max_rel; /* of its tensors */
};

/* Zeroed: bit for bit, all there is, through the model where both have one. */
struct dcpk_compare_options {
    const struct dcpk_tolerance *tolerance; /* NULL: bit for bit */
    bool casts;        /* floats of two dtypes are compared in the narrower one; else they differ */
    bool weights_only; /* leave optimizer state out */
    bool tensors_only; /* leave training state (args, scheduler, groups, RNG, ...) out */
    bool as_stored;    /* key by key, not through the model */
    bool strict;       /* nothing is tolerated but elements, the layout counts, and all that is
                          stored is compared: extra states, unknown objects, files */
    int64_t vocab_size;   /* tokens, where the vocabulary's padding differs; 0: args.vocab_size */
    int64_t bucket_elems; /* of both: told_bucket_elems */
    struct dcpk_env env;
};

struct dcpk_compare_report {
    struct dcpk_arena *arena;
    bool equal;
    bool is_logical;       /* through the canonical view of a model; else key by key as stored */
    uint64_t n_params;     /* of A; logical only */
    uint64_t n_tensors;    /* compared element by element */
    uint64_t n_values;     /* of training state, or objects, compared */
    uint64_t tensor_bytes; /* of A's side */
    struct dcpk_exec_stats stats;
    struct dcpk_part_result parts[DCPK_N_COMPARED];
    /* Elements behind all others, the largest relative difference first (a NaN on one side before
     * those), then in the order of the model. */
    struct dcpk_differences differences;
    /*
     * What differs and is no difference: elements within the tolerance; attributes of args that a
     * conversion leaves out (of a class that another Megatron may not have) or that say what the
     * folder holds; between two formats, what the other one has no place for (the bf16 twin of a
     * master, fields of a group that one optimizer has) or has otherwise (is_expert_parallel of
     * groups).
     */
    struct dcpk_differences tolerated;
    /*
     * How the two runs are spread over ranks: attributes of args, RNG states of ranks that only one
     * has, rows of the vocabulary's padding (which are zero, or of no token).
     */
    struct dcpk_differences layout;
};

/*
 * Compare a with b. Logically: every parameter by its canonical name, its value (fp32 master, else
 * weight), its weight where both have one beside the master, its moments and other states, its
 * parameter group; args attribute by attribute, scheduler, iteration, checkpoint_version, flops,
 * RNG states; strict: then everything else, by key. Fields of a group that an optimizer fills in
 * with a default are as if they were there, unless strict. A plain dcp folder on either side, or
 * as_stored: tensors and objects by key; objects past DCPK_MOST_LOADED_BYTES are equal only where
 * their bytes are. report: filled also when the answer is no; release with dcpk_compare_release,
 * also after a failure. Errors: those of reading; DCPK_EUNSUPPORTED for an optimizer layout that
 * cannot be read (then weights_only or as_stored); DCPK_EMISMATCH for a vocab_size below
 * args.vocab_size.
 */
dcpk_status dcpk_compare_models(struct dcpk_checkpoint *a, struct dcpk_checkpoint *b,
                                const struct dcpk_compare_options *options,
                                struct dcpk_compare_report *report, struct dcpk_error *err);
void dcpk_compare_release(struct dcpk_compare_report *report);

#endif

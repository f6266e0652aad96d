/* SPDX-License-Identifier: Apache-2.0 */
/* compare.h - compares two checkpoints, whatever their formats, layouts and spellings: are they the
 * same, or is one a faithful conversion of the other. */
#ifndef DCPK_LIB_JOB_COMPARE_H
#define DCPK_LIB_JOB_COMPARE_H

#include "lib/ckpt/format.h"
#include "lib/exec/exec.h"
#include "lib/model/account.h"
#include "lib/plan/plan.h"

/*
 * One engine serves both questions. Its steps, in this order:
 *
 *   models      the canonical views of A and B; without them, keys as stored
 *   vocabulary  both sides get as many rows of the vocabulary as the other
 *   pairs       one walk over the parameters lists the tensors to compare. One that a side lacks,
 *               or has in another shape or dtype, is a difference at once.
 *   elements    the listed tensors are gathered and compared, on all threads of all ranks
 *   state       args, scheduler, parameter groups, RNG states and extra states, by name and value
 *   rest        items that a model has no name for, in a strict comparison: by key, and files
 *
 * A policy is a list of steps (compare.c) and a row of a table (compare_policy.c). They define
 * which tensors are paired, how each difference counts, and which facts the answer keeps:
 *
 *                      SAME                             FAITHFUL: A was made from B
 *   weights, masters   each with its own kind           values (master, else weight) with values;
 *                                                       rounded masters with weights, on each side
 *   elements           measured, within a tolerance     bit for bit
 *   only A has it      differs, unless B's format       tensors and args differ
 *                      has no place for it
 *   only B has it      differs, unless A's format       differs, unless a conversion drops it
 *                      has no place for it
 *   args               layout and content may differ    what a conversion sets may differ
 *   unknown tensors    by key                           differ
 *   vocabulary         padding is not compared          rows that A adds are zero, rows that it
 *                                                       lacks are of no token
 *
 * Two models of one format (dcpk_format.is_model) are compared as stored, and by the args that
 * their configurations give; where one gives none, by what their configurations hold, key by key.
 *
 * Where a side is a model, neither policy misses what that has no place for:
 * optimizer, training state, args that it does not make. In FAITHFUL its weights may be of any
 * dtype: B's values are rounded to it.
 */
enum dcpk_compare_policy { DCPK_COMPARE_SAME, DCPK_COMPARE_FAITHFUL };

/* ---- subjects of a comparison ---- */

/* Zeroed: SAME, bit for bit, all there is, through the model where both have one. */
struct dcpk_compare_options {
    enum dcpk_compare_policy policy;
    bool weights_only;  /* leave optimizer state out */
    int64_t vocab_size; /* tokens, where the vocabulary's padding differs; 0: args.vocab_size */
    struct dcpk_env env;
    /* Only for SAME: */
    const struct dcpk_tolerance *tolerance; /* NULL: bit for bit */
    bool casts;        /* floats of two dtypes are compared in the narrower one; else they differ */
    bool tensors_only; /* leave training state (args, scheduler, groups, RNG, ...) out */
    bool as_stored;    /* key by key, not through the model */
    /*
     * Nothing is tolerated but elements, the layout counts, and all that is stored is compared:
     * extra states, unknown objects, files.
     */
    bool strict;
};

/* ---- the answer ---- */

enum dcpk_difference_kind {
    DCPK_ONLY_IN_A,
    DCPK_ONLY_IN_B,
    DCPK_SHAPE_DIFFERS,
    DCPK_DTYPE_DIFFERS,
    DCPK_ELEMENTS_DIFFER, /* `measured` is how far */
    DCPK_VALUE_DIFFERS,   /* not a tensor: training state */
    DCPK_NOT_FAITHFUL,    /* FAITHFUL alone: `sentence` is why */
    DCPK_N_DIFFERENCES,
};

/* A line of the answer. Owned by the report. */
struct dcpk_difference {
    enum dcpk_difference_kind kind;
    const char *name; /* "decoder.layers.0.mlp.linear_fc1.weight", "args.lr", a key as stored */
    const char *part; /* of a parameter: "weight", "master", "exp_avg", a state's name; else NULL */
    const char *sentence; /* FAITHFUL: all of it in words; else NULL */
    /* The value on each side: "bfloat16 [4, 8]", a value as JSON (cut); NULL: nothing. */
    const char *a, *b;
    struct dcpk_compare measured;
    struct dcpk_difference_place { /* ELEMENTS: where they are furthest apart; key NULL: else */
        const char *key;           /* of A as stored, "decoder.layers.mlp.linear_fc2.weight" */
        const char *index;         /* in that tensor, "[1, 32, 42]" */
        const char *a, *b;         /* the values, with as many digits as distinguish them */
    } place;
    bool is_value;                 /* training state, also where only one side has it */
    const struct dcpk_view *views; /* ELEMENTS: A's and B's, while comparing */
    size_t number;                 /* in the order of the model, while they are sorted */
    struct dcpk_difference *next;
};
struct dcpk_differences {
    struct dcpk_difference *first, **end;
    uint64_t n; /* FAITHFUL keeps DCPK_MAX_KEPT of them */
};
#define DCPK_MAX_KEPT 1000

/* The parts of a comparison. */
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
enum dcpk_compare_part dcpk_difference_part(const struct dcpk_difference *d); /* it counts to */
struct dcpk_part_result {
    uint64_t n_compared;  /* tensors, or values, that both sides have */
    uint64_t n_different; /* of them */
    uint64_t n_only[2];   /* that A alone has, and B alone, tolerated or not */
    bool differs;         /* a difference is among them, or one side lacks something that counts */
    double max_rel;       /* of its tensors */
};

struct dcpk_compare_report {
    struct dcpk_arena *arena;
    bool equal;            /* no difference */
    const char *verdict;   /* in words: "equal", "DIFFERENT (3)", "weights equal; B has no args" */
    bool is_named;         /* of dcpk_compare_named: values alone */
    bool is_logical;       /* through the canonical view of a model; else key by key as stored */
    uint64_t n_params;     /* parameters and buffers of A; FAITHFUL: of B. Logical only */
    uint64_t n_tensors;    /* compared element by element */
    uint64_t n_masters;    /* FAITHFUL: weights compared with their rounded masters, of both */
    uint64_t n_rounded;    /* FAITHFUL: tensors of A that are fp8, within half a step of B's */
    uint64_t n_values;     /* of training state, or objects, that both sides have */
    uint64_t tensor_bytes; /* of A's side */
    /* FAITHFUL: elements of A that are NaN or infinite; and how many of them are more than in B:
     * finite ones that a cast made infinite. */
    uint64_t n_not_finite, n_overflowed;
    const char *first_overflowed; /* the parameter; NULL: there is none */
    struct dcpk_left left;        /* FAITHFUL: what B has stored: all of it is accounted for */
    /* Rows of the vocabulary of A and B, where they were evened out; else both 0. */
    int64_t vocab_rows[2];
    struct dcpk_exec_stats stats;
    struct dcpk_part_result parts[DCPK_N_COMPARED];
    /*
     * SAME: elements after all others, the largest relative difference first (a NaN on one side
     * before those), then in the order of the model.
     */
    struct dcpk_differences differences;
    /*
     * SAME: what differs and is not a difference: elements within the tolerance; attributes of args
     * that a conversion leaves out (of a class that another Megatron may not have) or that describe
     * what the folder holds; between two formats, what the other one has no place for (the bf16
     * twin of a master, fields of a group that one optimizer has) or has otherwise
     * (is_expert_parallel of groups).
     */
    struct dcpk_differences tolerated;
    /*
     * How the two runs are spread over ranks: attributes of args, RNG states of ranks that only one
     * has, rows of the vocabulary's padding (which are zero, or of no token).
     */
    struct dcpk_differences layout;
};

/*
 * Compare A with B.
 *
 * SAME: every parameter by its canonical name, with all its tensors and its group; args attribute
 * by attribute, scheduler, iteration, checkpoint_version, flops, RNG states; strict: then
 * everything else, by key. Fields of a group that an optimizer fills in with a default are as if
 * they were there, unless strict. A plain dcp folder on either side, or as_stored: tensors and
 * objects by key; objects past DCPK_MAX_LOADED_BYTES are equal only where their bytes are.
 *
 * FAITHFUL: is A a faithful conversion of B? All of B's parameters and A's, of the training state
 * what A carries and a conversion keeps. A checkpoint that has no optimizer state where the other
 * has is a difference, unless weights_only.
 *
 * report: filled also when the answer is no; release with dcpk_compare_release, also after a
 * failure. Collective inside the work where the options have ranks. Errors: those of reading;
 * DCPK_EUNSUPPORTED for an optimizer layout that cannot be read (then weights_only or as_stored),
 * and of FAITHFUL for a container that is not a checkpoint of a model; DCPK_EMISMATCH for a
 * vocab_size below args.vocab_size.
 */
dcpk_status dcpk_compare_checkpoints(struct dcpk_checkpoint *a, struct dcpk_checkpoint *b,
                                     const struct dcpk_compare_options *options,
                                     struct dcpk_compare_report *report, struct dcpk_error *err);

/* Two values of one name, "args.lr"; a NULL: that side has none. */
struct dcpk_named_pair {
    const char *name;
    const struct dcpk_value *of[2];
    bool is_equal;
    bool is_tolerated; /* it does not count, unless strict */
};
/* Report pairs of values, in their order. Of the options `strict` counts. Errors: DCPK_ENOMEM. */
dcpk_status dcpk_compare_named(const struct dcpk_named_pair *pairs, size_t n,
                               const struct dcpk_compare_options *options,
                               struct dcpk_compare_report *report, struct dcpk_error *err);

/* True if one side has a kind of state that the other lacks entirely; the verdict then names it. */
bool dcpk_compare_lacks(const struct dcpk_compare_report *report);

void dcpk_compare_release(struct dcpk_compare_report *report); /* a zeroed one is a no-op */

/* ---- one checkpoint's masters against its weights ---- */

enum dcpk_masters_extent {
    DCPK_MASTERS_SAMPLE, /* the first and the last KiB of each */
    DCPK_MASTERS_ALL,
};
/*
 * Compare every weight of the view with its fp32 master rounded to the weight's dtype: a sample of
 * each, or all elements, which a view that needs_proof always has. A parameter whose master lies
 * elsewhere than was inferred cannot pass, unless the two hold the same values. Where Megatron's
 * fault with padded DDP buckets explains what differs, the message names it. Errors: DCPK_EMISMATCH
 * naming the first element that differs and how many parameters do, or where nothing can be proven;
 * those of reading. Collective inside the work where `env` has ranks, as dcpk_exec_compare is.
 */
dcpk_status dcpk_check_masters(const struct dcpk_model *model, const struct dcpk_env *env,
                               enum dcpk_masters_extent extent, struct dcpk_error *err);
/* The same by an executor that is there, made since the view was: it remembers where chunks lie. */
dcpk_status dcpk_check_masters_with(const struct dcpk_model *model, const struct dcpk_env *env,
                                    struct dcpk_exec *exec, enum dcpk_masters_extent extent,
                                    struct dcpk_error *err);
/*
 * The same, a sample, of a checkpoint that is only looked at. One of which there is no view, or
 * none of its optimizer's state, has nothing to compare: DCPK_OK.
 */
dcpk_status dcpk_look_at_masters(struct dcpk_checkpoint *ckpt, const struct dcpk_env *env,
                                 struct dcpk_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* compare_priv.h - a comparison under way: shared by the compare_*.c files. */
#ifndef DCPK_LIB_JOB_COMPARE_PRIV_H
#define DCPK_LIB_JOB_COMPARE_PRIV_H

#include "lib/job/compare.h"
#include "lib/model/model.h"

/* Pairs, of A and of B, are arrays by side; a NULL in one: that side has none. */
enum dcpk_side { DCPK_A, DCPK_B };

static inline enum dcpk_side dcpk_other_side(enum dcpk_side side)
{
    return (enum dcpk_side) !side;
}

static inline enum dcpk_difference_kind dcpk_only_in(enum dcpk_side side)
{
    return side == DCPK_A ? DCPK_ONLY_IN_A : DCPK_ONLY_IN_B;
}

/* The effect of a difference, or of an entry that one side lacks; strict: it counts. */
enum dcpk_weight {
    DCPK_COUNTS,
    DCPK_MAY_LACK,   /* tolerated where one side lacks it */
    DCPK_MAY_DIFFER, /* tolerated */
    DCPK_IS_LAYOUT,
};

/* The kinds of values. */
enum dcpk_subject {
    DCPK_OF_STORED,  /* an object, an entry of one: as stored */
    DCPK_OF_STATE,   /* iteration, version, flops, scheduler, extra states */
    DCPK_OF_SCALER,  /* the loss scale of fp16 */
    DCPK_OF_COMMON,  /* an entry of the common state that Megatron does not make */
    DCPK_OF_ARGS,    /* an attribute */
    DCPK_OF_CONFIG,  /* an entry of a model's configuration, of which no args can be made */
    DCPK_OF_FIELD,   /* of a parameter group; or a group, without a key */
    DCPK_OF_RNG,     /* states of a rank */
    DCPK_OF_NO_RANK, /* the same, of a rank that the other side does not have */
};

/* The rows of the two policies of compare.h; their steps are in compare.c. */
struct dcpk_comparing;
struct dcpk_param_pair;
struct dcpk_policy {
    enum dcpk_side first; /* side that gives the order of differences */
    bool keeps_tolerated;
    uint64_t max_kept; /* differences */
    /* Pairs the tensors of two parameters of one name (compare_tensors.c). */
    dcpk_status (*pair_param)(struct dcpk_comparing *c, const struct dcpk_param_pair *pair,
                              struct dcpk_error *err);
    /* key: of an entry, without the dict's name; values: not both NULL. */
    enum dcpk_weight (*weigh)(const struct dcpk_comparing *c, enum dcpk_subject subject,
                              const char *key, const struct dcpk_value *const values[2]);
    /* A difference in words, in the arena; NULL: the policy has none. */
    const char *(*word)(struct dcpk_arena *arena, const struct dcpk_difference *d,
                        struct dcpk_error *err);
};
const struct dcpk_policy *dcpk_policy_of(enum dcpk_compare_policy policy);
dcpk_status dcpk_pair_param_same(struct dcpk_comparing *c, const struct dcpk_param_pair *pair,
                                 struct dcpk_error *err);
dcpk_status dcpk_pair_param_faithful(struct dcpk_comparing *c, const struct dcpk_param_pair *pair,
                                     struct dcpk_error *err);

/* Two tensors whose elements must be compared: of A and B, or a weight and its master. */
struct dcpk_tensor_pair {
    const char *name, *part; /* borrowed */
    struct dcpk_view view[2];
    bool rounds; /* view[0] is rounded to fp8: half a step makes no difference */
};
struct dcpk_tensor_pairs {
    struct dcpk_tensor_pair *list; /* owned */
    size_t n, capacity;
};

/* One of the two checkpoints. */
struct dcpk_compared {
    struct dcpk_checkpoint *ckpt;
    struct dcpk_model *model; /* NULL as stored */
    struct dcpk_exec *exec;   /* while elements are compared */
    bool has_groups;          /* its parameters have their groups */
};

struct dcpk_comparing {
    const struct dcpk_policy *policy;
    const struct dcpk_compare_options *options;
    struct dcpk_compare_report *report;
    struct dcpk_compared side[2];
    bool same_format;
    /* A side is a model, which keeps weights and a configuration, and nothing of a run. */
    bool with_model;
    struct dcpk_tensor_pairs pairs; /* of A and B */
    struct dcpk_by_place compared;  /* two items -> struct item_result *, by their policy */
};

/* ---- differences (compare_difference.c) ---- */

/* The list for what weighs so much; NULL: it is not kept. */
struct dcpk_differences *dcpk_comparing_list(struct dcpk_comparing *c, enum dcpk_weight weight,
                                             bool is_lacking);
/* Append a copy of `d`: name and part are copied, a and b must live in the report's arena. */
dcpk_status dcpk_comparing_add(struct dcpk_comparing *c, struct dcpk_differences *list,
                               const struct dcpk_difference *d, struct dcpk_error *err);
/* *text: in the report's arena (cut past 1 KiB). */
dcpk_status dcpk_comparing_print(struct dcpk_comparing *c, const char **text,
                                 struct dcpk_error *err, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* A difference of DCPK_NOT_FAITHFUL, in words (cut past 1 KiB). */
dcpk_status dcpk_comparing_refuse(struct dcpk_comparing *c, const char *name,
                                  struct dcpk_error *err, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* The same of two tensors: `a` and `b` are what their views are. */
dcpk_status dcpk_comparing_add_tensor(struct dcpk_comparing *c, struct dcpk_differences *list,
                                      const struct dcpk_difference *d,
                                      const struct dcpk_view *const view[2],
                                      struct dcpk_error *err);
/* The part that a tensor, or a value of this name, counts to. */
enum dcpk_compare_part dcpk_comparing_part(const char *name, const char *part, bool is_tensor);

/* ---- tensors (compare_tensors.c, compare_elements.c) ---- */

/* Pair all tensors of two models, and those that are stored. */
dcpk_status dcpk_comparing_params(struct dcpk_comparing *c, struct dcpk_error *err);
/* Pairs all stored tensors of two checkpoints by key. */
dcpk_status dcpk_comparing_all_stored(struct dcpk_comparing *c, struct dcpk_error *err);
/* Two stored tensors of one key. */
dcpk_status dcpk_comparing_stored(struct dcpk_comparing *c, const struct dcpk_tensor *const of[2],
                                  struct dcpk_error *err);
/* Compare the elements of all that was paired: measure how far they are apart, and find the places;
 * or bit for bit in A's dtype, and the masters of each side with its weights. */
dcpk_status dcpk_comparing_measure(struct dcpk_comparing *c, struct dcpk_error *err);
/* Compares bit for bit. */
dcpk_status dcpk_comparing_bits(struct dcpk_comparing *c, struct dcpk_error *err);

/* Appends a copy of *pair; texts and views are borrowed. Errors: DCPK_ENOMEM. */
dcpk_status dcpk_pairs_add(struct dcpk_tensor_pairs *pairs, const struct dcpk_tensor_pair *pair,
                           struct dcpk_error *err);
/* The weights of a model, and their masters (compare_elements.c). part: of each pair. Errors:
 * DCPK_EMISMATCH where the two are not of one shape. */
dcpk_status dcpk_pairs_add_masters(struct dcpk_tensor_pairs *pairs, const struct dcpk_model *model,
                                   const char *part, struct dcpk_error *err);
struct dcpk_pairs_options {
    struct dcpk_exec *left, *right; /* read view[0] and view[1] of each pair; may be the same */
    bool is_measured;               /* by dcpk_exec_measure; else dcpk_exec_compare */
    const struct dcpk_tolerance *tolerance;
    uint64_t sample_bytes; /* struct dcpk_view_pairs */
};
/* Compare the elements of each pair. results: one for each. stats: NULL: not asked for. */
dcpk_status dcpk_pairs_compare(const struct dcpk_tensor_pairs *pairs,
                               const struct dcpk_pairs_options *options,
                               struct dcpk_compare *results, struct dcpk_exec_stats *stats,
                               struct dcpk_error *err);

/* Element `at`, row-major, of a pair that `exec` reads: where it is, "[1, 32]", and both values,
 * with as many digits as distinguish them (compare_elements.c). */
#define DCPK_PLACE_BYTES 256
#define DCPK_VALUE_BYTES 64
dcpk_status dcpk_pair_place(const struct dcpk_tensor_pair *pair, struct dcpk_exec *exec, int64_t at,
                            char place[DCPK_PLACE_BYTES], char values[2][DCPK_VALUE_BYTES],
                            struct dcpk_error *err);

/* ---- values (compare_values.c) ---- */

/* Count a value of that name, or an object, that both sides have. */
void dcpk_comparing_count_value(struct dcpk_comparing *c, const char *name);
/* Compare two values now. key: for the policy. */
dcpk_status dcpk_comparing_value(struct dcpk_comparing *c, enum dcpk_subject subject,
                                 const char *name, const char *key,
                                 const struct dcpk_value *const values[2], struct dcpk_error *err);
/* Record two values, not both NULL, that weigh so much. */
dcpk_status dcpk_comparing_weighed(struct dcpk_comparing *c, enum dcpk_weight weight,
                                   const struct dcpk_named_pair *pair, struct dcpk_error *err);
/* dcpk_comparing_value without a record: true if it would be a difference. */
bool dcpk_comparing_differs(const struct dcpk_comparing *c, enum dcpk_subject subject,
                            const char *key, const struct dcpk_value *const values[2]);
/* The entries of two dicts, as "name.key". */
struct dcpk_dicts {
    const char *name;
    enum dcpk_subject subject; /* of the entries */
    const struct dcpk_value *of[2];
};
/* Compares key by key; as whole values where one is not a dict. */
dcpk_status dcpk_comparing_dicts(struct dcpk_comparing *c, const struct dcpk_dicts *dicts,
                                 struct dcpk_error *err);

/* ---- training state of two models (compare_state.c, compare_groups.c) ---- */

/* The scheduler entry by entry, groups, the RNG states of the same ranks, or equal ones. */
dcpk_status dcpk_comparing_state_same(struct dcpk_comparing *c, struct dcpk_error *err);
/* The scheduler as one value, RNG states that serve for a rank, extra states; groups are compared
 * with their parameters. */
dcpk_status dcpk_comparing_state_faithful(struct dcpk_comparing *c, struct dcpk_error *err);
/* The configurations of two models that are compared as stored. */
dcpk_status dcpk_comparing_configs(struct dcpk_comparing *c, struct dcpk_error *err);
/* Give the parameters of both sides their groups by Megatron's default rule; where that does not
 * decide (a map did), has_groups stays false and that is not an error. */
dcpk_status dcpk_comparing_find_groups(struct dcpk_comparing *c, struct dcpk_error *err);
/* The groups of all parameters; of one, by its number on each side. */
dcpk_status dcpk_comparing_groups(struct dcpk_comparing *c, struct dcpk_error *err);
/* The group of one parameter; nothing where a side has no groups. */
dcpk_status dcpk_comparing_member(struct dcpk_comparing *c, const uint32_t param[2],
                                  struct dcpk_error *err);
/* Extra states by name (compare_state.c): as objects; or so that a conversion may have lost
 * them.
 */
dcpk_status dcpk_comparing_extra_states(struct dcpk_comparing *c, struct dcpk_error *err);

/* ---- stored items (compare_objects.c, compare_rest.c, compare_files.c) ---- */

/* Objects and entries of the common state by key, as stored. */
dcpk_status dcpk_comparing_objects(struct dcpk_comparing *c, struct dcpk_error *err);
/* One object. Named by A's key where it has it. */
dcpk_status dcpk_comparing_object(struct dcpk_comparing *c, const struct dcpk_object *const of[2],
                                  struct dcpk_error *err);
/*
 * Compares items beyond the views of two models. The first pairs tensors that no rule knows, and in
 * a strict comparison all that are not in the views. The second belongs to a strict one, once all
 * else is compared: every object and entry of the common state, by key; an item that was reported
 * under another name is not reported again.
 */
dcpk_status dcpk_comparing_rest_tensors(struct dcpk_comparing *c, struct dcpk_error *err);
/* The second, of a strict comparison. */
dcpk_status dcpk_comparing_rest(struct dcpk_comparing *c, struct dcpk_error *err);
/* Files next to the tensors and objects. */
struct dcpk_range {
    struct dcpk_source *file;
    uint64_t offset_bytes, n_bytes;
};
/* *first: the first byte that differs, or the length of the shorter one: of two equal ones both. */
dcpk_status dcpk_ranges_compare(const struct dcpk_range range[2],
                                const struct dcpk_progress *progress, uint64_t *first,
                                struct dcpk_error *err);
/* Compares the side files of both checkpoints by name. */
dcpk_status dcpk_comparing_files(struct dcpk_comparing *c, struct dcpk_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* compare_priv.h - a comparison under way: shared by the compare_*.c files. */
#ifndef DCPK_LIB_JOB_COMPARE_PRIV_H
#define DCPK_LIB_JOB_COMPARE_PRIV_H

#include "lib/job/compare_models.h"

/* Two tensors whose elements are to be compared. */
struct dcpk_entry_pair {
    const char *name, *part;
    struct dcpk_view a, b;
};

struct dcpk_comparing {
    const struct dcpk_compare_options *options;
    struct dcpk_compare_report *report;
    struct dcpk_checkpoint *a, *b;
    bool same_format;
    bool other_experts; /* expert parallelism differs */
    struct dcpk_entry_pair *pairs;
    size_t n_pairs, pairs_capacity;
    struct dcpk_by_place compared; /* two items -> struct item_result * */
};

/* Append a copy of `d`: name and part are copied, a and b must live in the report's arena. */
dcpk_status dcpk_comparing_add(struct dcpk_comparing *c, struct dcpk_differences *list,
                               const struct dcpk_difference *d, struct dcpk_error *err);

/*
 * Plan the comparison of one tensor; a or b NULL: that side has none, which is tolerated when
 * may_lack.
 */
dcpk_status dcpk_comparing_tensor(struct dcpk_comparing *c, const char *name, const char *part,
                                  const struct dcpk_view *a, const struct dcpk_view *b,
                                  bool may_lack, struct dcpk_error *err);

/* The part that a tensor, or a value of this name, counts to. */
enum dcpk_compare_part dcpk_comparing_part(const char *name, const char *part, bool is_tensor);
/* Find the places of the differences of elements, and put these in order (compare_place.c). left,
 * right: of the two checkpoints. */
dcpk_status dcpk_comparing_places(struct dcpk_comparing *c, struct dcpk_exec *left,
                                  struct dcpk_exec *right, struct dcpk_error *err);

/* What becomes of a value that differs, or that one side lacks; strict: it counts. */
enum dcpk_weight {
    DCPK_COUNTS,
    DCPK_MAY_LACK,   /* tolerated where one side lacks it */
    DCPK_MAY_DIFFER, /* tolerated */
    DCPK_IS_LAYOUT,
};

/* Compare two values now; NULL: that side has none. `equal`: NULL: dcpk_value_equal. */
typedef bool dcpk_values_equal(const struct dcpk_value *a, const struct dcpk_value *b);
dcpk_status dcpk_comparing_value(struct dcpk_comparing *c, const char *name,
                                 const struct dcpk_value *a, const struct dcpk_value *b,
                                 enum dcpk_weight weight, dcpk_values_equal *equal,
                                 struct dcpk_error *err);

/*
 * The entries of two dicts by name, "prefix.key". weigh: asked with the key and one side's value;
 * NULL: all count.
 */
typedef enum dcpk_weight dcpk_weigh(const struct dcpk_comparing *c, const char *key,
                                    const struct dcpk_value *value);
dcpk_status dcpk_comparing_dicts(struct dcpk_comparing *c, const char *prefix,
                                 const struct dcpk_value *a, const struct dcpk_value *b,
                                 dcpk_weigh *weigh, dcpk_values_equal *equal,
                                 struct dcpk_error *err);

/* Training state of two models (compare_state.c). */
dcpk_status dcpk_comparing_state(struct dcpk_comparing *c, struct dcpk_model *a,
                                 struct dcpk_model *b, struct dcpk_error *err);

/* Plan the comparison of two stored tensors of one key; one may be NULL (compare_models.c). */
dcpk_status dcpk_comparing_stored(struct dcpk_comparing *c, const struct dcpk_tensor *a,
                                  const struct dcpk_tensor *b, struct dcpk_error *err);
/* Objects and entries of the common state by key, as stored (compare_models.c). */
dcpk_status dcpk_comparing_objects(struct dcpk_comparing *c, struct dcpk_error *err);
/* One object; of either there may be none. Named by A's key where it has it. */
dcpk_status dcpk_comparing_object(struct dcpk_comparing *c, const struct dcpk_object *a,
                                  const struct dcpk_object *b, struct dcpk_error *err);

/*
 * What is stored beyond the view of two models (compare_rest.c). The first plans the comparison of
 * tensors that no rule knows, and of a strict one all that are not in the view. The second is of a
 * strict one, once all else is compared: every object and entry of the common state, by key; what
 * another name told of before is not told again.
 */
dcpk_status dcpk_comparing_rest_tensors(struct dcpk_comparing *c, const struct dcpk_model *a,
                                        const struct dcpk_model *b, struct dcpk_error *err);
dcpk_status dcpk_comparing_rest(struct dcpk_comparing *c, const struct dcpk_model *a,
                                const struct dcpk_model *b, struct dcpk_error *err);
/* Files beside the tensors and objects (compare_files.c). */
dcpk_status dcpk_comparing_files(struct dcpk_comparing *c, struct dcpk_error *err);

#endif

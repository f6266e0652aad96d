/* SPDX-License-Identifier: Apache-2.0 */
/* state_dict_priv.h - the tree of state_dict.h, for its two .c files. */
#ifndef DCPK_LIB_JOB_STATE_DICT_PRIV_H
#define DCPK_LIB_JOB_STATE_DICT_PRIV_H

#include "lib/job/state_dict.h"

/* Together below the emitter's DCPK_JSON_MAX_DEPTH. */
#define DCPK_MAX_PATH        32 /* parts of a planner_data path */
#define DCPK_MAX_VALUE_DEPTH 24 /* containers inside a value */

enum dcpk_node_kind { DCPK_NODE_LEAF, DCPK_NODE_DICT, DCPK_NODE_LIST };

/* A dict or list under construction, or a leaf. Lists keep their items in order of arrival, each
 * with its index. */
struct dcpk_state_node {
    enum dcpk_node_kind kind;
    const char *name; /* in a dict */
    int64_t index;    /* in a list */
    const char *key;  /* a leaf's: the flat key, for messages */
    const struct dcpk_value *value;
    struct dcpk_state_node *first, **end, *next;
    int64_t n_items; /* of a list: 1 + the largest index */
};

struct dcpk_state_dict {
    struct dcpk_arena *arena;
    struct dcpk_state_node root;
};

#endif

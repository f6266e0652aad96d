/* SPDX-License-Identifier: Apache-2.0 */
/* state_dict.h - the content of a DCP folder as the nested dict that torch rebuilds. */
#ifndef DCPK_LIB_JOB_STATE_DICT_H
#define DCPK_LIB_JOB_STATE_DICT_H

#include "lib/base/json.h"
#include "lib/ckpt/checkpoint.h"

struct dcpk_state_dict;

/*
 * Load every object of `ckpt` and put it at its path in planner_data
 * (torch/distributed/checkpoint/default_planner.py _EmptyStateDictLoadPlanner.set_up_planner,
 * _traverse.py set_element @2.11): in order of the metadata, the flat key where there is no path.
 * ckpt: a DCP folder. arena: the result's memory.
 * Errors: DCPK_EUNSUPPORTED naming the first tensor (Python's json refuses them), or a path deeper
 * than 32; DCPK_EFORMAT for a path that contradicts another; DCPK_ERANGE when keys share items, or
 * lists have holes, past dcpk_unfold_limit of all bytes read; what load_object gives.
 */
dcpk_status dcpk_state_dict_load(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                                 struct dcpk_state_dict **dict, struct dcpk_error *err);

/* Replace every "module.module" in the keys of the outermost dict; of two keys that become equal
 * the later one's value counts, at the place of the first, as in a Python dict. replacement:
 * "model.module". */
dcpk_status dcpk_state_dict_rename(struct dcpk_state_dict *dict, const char *replacement,
                                   struct dcpk_error *err);

/*
 * As Python's json.dumps(dict, indent): values of None, bool, int, float, str, list, tuple, dict
 * (keys str, int, float, bool, None). Errors: DCPK_EUNSUPPORTED naming the key and what Python's
 * json refuses, too.
 */
dcpk_status dcpk_state_dict_to_json(const struct dcpk_state_dict *dict, int indent,
                                    struct dcpk_bytes *out, struct dcpk_error *err);

#endif

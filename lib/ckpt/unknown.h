/* SPDX-License-Identifier: Apache-2.0 */
/* unknown.h - looks through values for classes and functions that are not on a list. */
#ifndef DCPK_LIB_CKPT_UNKNOWN_H
#define DCPK_LIB_CKPT_UNKNOWN_H

#include "lib/base/progress.h"
#include "lib/ckpt/checkpoint.h"

/*
 * The first class, function or called name in `value` that is_known refuses, depth first: an object
 * of which is_known is false, or a bare global. *found is false when there is none; module and name
 * are borrowed from the value. Errors: DCPK_ENOMEM; DCPK_ERANGE past 10 million nodes (shared nodes
 * are walked each time).
 */
typedef bool dcpk_is_known(const char *module, const char *name);
dcpk_status dcpk_value_find_unknown(const struct dcpk_value *value, dcpk_is_known *is_known,
                                    bool *found, const char **module, const char **name,
                                    struct dcpk_error *err);

/*
 * Load every object, aliases once, and the common state, and examine them and the names in the
 * metadata: DCPK_EFORMAT names the first class or function that is_known refuses. Errors:
 * DCPK_ECANCELLED when progress asks to stop; those of reading.
 */
dcpk_status dcpk_check_values(struct dcpk_checkpoint *ckpt, dcpk_is_known *is_known,
                              const struct dcpk_progress *progress, struct dcpk_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* args_fit.h - args that the caller gives, against what is stored. */
#ifndef DCPK_LIB_RULES_ARGS_FIT_H
#define DCPK_LIB_RULES_ARGS_FIT_H

#include "lib/model/model.h"

/*
 * Checks that args with those of the caller (given.args) have the sizes that are stored: layers,
 * rows of the vocabulary, shapes of weights by canonical names. Without given args, and where args
 * name something that no table knows or lack a size, they fit. Errors: DCPK_EMISMATCH with the
 * first contradiction; DCPK_ENOMEM.
 */
dcpk_status dcpk_rules_args_fit(const struct dcpk_model *model, struct dcpk_error *err);

#endif

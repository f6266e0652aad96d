/* SPDX-License-Identifier: Apache-2.0 */
/* expect.h - from args alone to every parameter that Megatron makes of them; args that the caller
 * gives, against what is stored. */
#ifndef DCPK_LIB_RULES_EXPECT_H
#define DCPK_LIB_RULES_EXPECT_H

#include "lib/base/arena.h"
#include "lib/model/expected.h"
#include "lib/model/model.h"

/*
 * The parameters of a run with these attributes of args (a DICT) on `mesh`, which pads the
 * vocabulary: what is stored is not looked at. Where args name something that no table knows, or
 * lack a size, expected->unknown names it, and the list is not complete. All is in `arena` or of
 * args. Errors: DCPK_ENOMEM.
 */
dcpk_status dcpk_rules_expect(const struct dcpk_value *attrs, const struct dcpk_grid *mesh,
                              struct dcpk_arena *arena, struct dcpk_expected *expected,
                              struct dcpk_error *err);

/* ---- against stored tensors ---- */

/*
 * Checks that args with those of the caller (given.args) have the sizes that are stored: layers,
 * rows of the vocabulary, shapes of weights by canonical names. Without given args, and where args
 * name something that no table knows or lack a size, they fit. Errors: DCPK_EMISMATCH with the
 * first contradiction; DCPK_ENOMEM.
 */
dcpk_status dcpk_rules_args_fit(const struct dcpk_model *model, struct dcpk_error *err);

#endif

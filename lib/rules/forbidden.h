/* SPDX-License-Identifier: Apache-2.0 */
/* forbidden.h - options of a run that do not go together, with the remedy. */
#ifndef DCPK_LIB_RULES_FORBIDDEN_H
#define DCPK_LIB_RULES_FORBIDDEN_H

#include "lib/base/arena.h"
#include "lib/ckpt/checkpoint.h"

/*
 * Lists the settings in these attributes of args (a DICT) that Megatron-FSDP forbids: a sentence
 * and its remedy each, in `arena`, in the order of the table. *notes: appended to. Errors:
 * DCPK_ENOMEM.
 */
dcpk_status dcpk_rules_forbidden(const struct dcpk_value *attrs, struct dcpk_arena *arena,
                                 struct dcpk_note **notes, struct dcpk_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* give_options.h - gives an opened checkpoint what the caller states of it. */
#ifndef DCPK_LIB_JOB_GIVE_OPTIONS_H
#define DCPK_LIB_JOB_GIVE_OPTIONS_H

#include "lib/ckpt/checkpoint.h"

/*
 * Set ckpt->given, before the checkpoint is viewed, and leave keys out: the reason is the
 * expression that matched first. Errors: DCPK_EUSAGE for an expression that is malformed, matches
 * no key, or leaves none, or for a prefix that the format cannot have.
 */
dcpk_status dcpk_checkpoint_give(struct dcpk_checkpoint *ckpt,
                                 const struct dcpk_open_options *options, struct dcpk_error *err);

#endif

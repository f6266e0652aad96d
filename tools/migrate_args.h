/* SPDX-License-Identifier: Apache-2.0 */
/* migrate_args.h - args of a checkpoint as the flags that make them. */
#ifndef DCPK_TOOLS_MIGRATE_ARGS_H
#define DCPK_TOOLS_MIGRATE_ARGS_H

#include "lib/base/bytes.h"
#include "lib/ckpt/value.h"

/*
 * Append the flags of Megatron that make these attributes of args, a line each, and load and save
 * in a folder. left: the names of
 * attributes that are set and that no known flag makes, a NUL after each. Errors: DCPK_ENOMEM.
 */
dcpk_status dcpk_args_to_flags(const struct dcpk_value *attrs, const char *folder,
                               struct dcpk_arena *arena, struct dcpk_bytes *out,
                               struct dcpk_bytes *left, struct dcpk_error *err);

#endif

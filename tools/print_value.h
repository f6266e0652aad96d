/* SPDX-License-Identifier: Apache-2.0 */
/* print_value.h - what is no tensor, as JSON. */
#ifndef DCPK_TOOLS_PRINT_VALUE_H
#define DCPK_TOOLS_PRINT_VALUE_H

#include <stdbool.h>

#include "lib/ckpt/checkpoint.h"
#include "tools/cmd.h"

/* The name of the state outside objects and tensors (args, iteration, ...), as the comparison has
 * it. */
#define DCPK_COMMON_KEY "common"

/*
 * Print the object called `key`, or the common state, to stdout: a line with the key and its value
 * as JSON, or as_json one document {"key", "value", "version"}. *found: false, and nothing printed,
 * when there is none of that name. Of an object past DCPK_MOST_LOADED_BYTES the outline is
 * printed, which a note says. Errors: those of reading; DCPK_EIO when stdout is closed or
 * full.
 */
dcpk_status dcpk_print_value(struct dcpk_checkpoint *ckpt, const char *key, bool as_json,
                             const struct dcpk_voice *voice, bool *found, struct dcpk_error *err);

#endif

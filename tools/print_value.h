/* SPDX-License-Identifier: Apache-2.0 */
/* print_value.h - prints objects and training state as JSON. */
#ifndef DCPK_TOOLS_PRINT_VALUE_H
#define DCPK_TOOLS_PRINT_VALUE_H

#include <stdbool.h>

#include "lib/ckpt/checkpoint.h"
#include "lib/job/npy.h"
#include "tools/cmd.h"

/*
 * Print the object called `key` to stdout: a line with the key and its value as JSON, or as_json
 * one document {"key", "value", "version"}. *found: false, and nothing printed, when there is none
 * of that name. For an object past DCPK_MAX_LOADED_BYTES the outline is printed, with a note.
 * Errors: those of reading; DCPK_EIO when stdout is closed or full.
 */
dcpk_status dcpk_print_value(struct dcpk_checkpoint *ckpt, const char *key, bool as_json,
                             const struct dcpk_verbosity *verbosity, bool *found,
                             struct dcpk_error *err);

/*
 * The same of the state that `name` names (lib/model/named_state.h). Errors also: DCPK_EUSAGE when
 * there is none, with a name that is near.
 */
dcpk_status dcpk_print_named(struct dcpk_checkpoint *ckpt, const char *name, bool as_json,
                             struct dcpk_error *err);

/* Elements to be written. Borrowed. */
struct dcpk_npy_request {
    const char *path;
    bool may_replace, widens; /* --force, --cast */
    const char *key, *text;   /* of the tensor, and as it was asked for */
    const struct dcpk_view *view;
    const struct dcpk_slice *slice;
    const struct dcpk_verbosity *verbosity;
};

/*
 * Write the file, which appears whole or not at all, and report it on stdout; a note describes how
 * numpy reads a dtype that it has not. Errors: DCPK_EUSAGE when a file is there that may not be
 * replaced; those of dcpk_npy_write; DCPK_ECANCELLED after a signal.
 */
dcpk_status dcpk_print_npy(struct dcpk_exec *exec, const struct dcpk_npy_request *request,
                           bool as_json, struct dcpk_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* print_npy.h - what print-tensor --npy writes and prints. */
#ifndef DCPK_TOOLS_PRINT_NPY_H
#define DCPK_TOOLS_PRINT_NPY_H

#include "lib/job/npy.h"
#include "tools/cmd.h"

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

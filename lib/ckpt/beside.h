/* SPDX-License-Identifier: Apache-2.0 */
/* beside.h - files that frameworks keep beside a checkpoint's own. */
#ifndef DCPK_LIB_CKPT_BESIDE_H
#define DCPK_LIB_CKPT_BESIDE_H

#include "lib/base/arena.h"
#include "lib/io/store.h"

/*
 * Look into a file that a program loads by running what it says: *fault tells why it should not,
 * in `arena`; NULL: nothing speaks against it. Errors: those of reading, not of what is in it.
 */
typedef dcpk_status dcpk_find_fault(struct dcpk_source *source, struct dcpk_arena *arena,
                                    const char **fault, struct dcpk_error *err);

/* A file, or a folder of files; in tables the last has no name. */
struct dcpk_beside {
    const char *name;
    dcpk_find_fault *find_fault; /* of a file; NULL: no program runs it */
};

#endif

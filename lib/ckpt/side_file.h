/* SPDX-License-Identifier: Apache-2.0 */
/* side_file.h - files that frameworks keep next to a checkpoint's own. */
#ifndef DCPK_LIB_CKPT_SIDE_FILE_H
#define DCPK_LIB_CKPT_SIDE_FILE_H

#include "lib/base/arena.h"
#include "lib/io/store.h"

/* Inspects a file whose content a program runs on loading. *fault: why it should not be loaded, in
 * `arena`; NULL: no fault. Errors: those of reading, not of the content. */
typedef dcpk_status dcpk_find_fault(struct dcpk_source *source, struct dcpk_arena *arena,
                                    const char **fault, struct dcpk_error *err);

/* A file, or a folder of files; in tables the last has no name. */
struct dcpk_side_file {
    const char *name;
    dcpk_find_fault *find_fault; /* of a file; NULL: no program runs it */
};

#endif

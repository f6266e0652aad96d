/* SPDX-License-Identifier: Apache-2.0 */
/* side_files.h - files that are next to a checkpoint's own and go with it as they are. */
#ifndef DCPK_LIB_EXEC_SIDE_FILES_H
#define DCPK_LIB_EXEC_SIDE_FILES_H

#include "lib/ckpt/format.h"
#include "lib/ckpt/output.h"
#include "lib/io/sink.h"

/*
 * Copy those of the table `file` (NULL: none) that are next to out's source: files, and the files
 * directly in folders. One with a fault is left out, and dropped by an event. An output folder that
 * has a file of that name keeps its own. A link to what fewer may read becomes a note of the
 * checkpoint. Errors: those of reading and writing.
 */
dcpk_status dcpk_side_files_copy(struct dcpk_output *out, const struct dcpk_side_file *file,
                                 struct dcpk_folder *folder, struct dcpk_error *err);

/* DCPK_EFORMAT names the first file of the table `file` (NULL: none) in the store that has a fault.
 */
dcpk_status dcpk_side_files_check(struct dcpk_store *store, const struct dcpk_side_file *file,
                                  struct dcpk_error *err);

#endif

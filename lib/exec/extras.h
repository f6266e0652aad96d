/* SPDX-License-Identifier: Apache-2.0 */
/* extras.h - files that lie beside a checkpoint's own and go with it as they are. */
#ifndef DCPK_LIB_EXEC_EXTRAS_H
#define DCPK_LIB_EXEC_EXTRAS_H

#include "lib/base/sink.h"
#include "lib/ckpt/checkpoint.h"

/*
 * Copy those of `names` (NULL-terminated) that lie beside the checkpoint: files, and the files
 * directly in folders. An output folder that has a file of that name keeps its own. A link to what
 * fewer may read becomes a note of the checkpoint. Errors: those of reading and writing.
 */
dcpk_status dcpk_extras_copy(struct dcpk_checkpoint *ckpt, const char *const *names,
                             struct dcpk_folder *folder, struct dcpk_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* extras.h - files that lie beside a checkpoint's own and go with it as they are. */
#ifndef DCPK_LIB_EXEC_EXTRAS_H
#define DCPK_LIB_EXEC_EXTRAS_H

#include "lib/base/sink.h"
#include "lib/base/store.h"

/*
 * Copy those of `names` (NULL-terminated) that are in the store: files, and the files directly in
 * folders. An output folder that has a file of that name keeps its own. Errors: those of reading
 * and writing.
 */
dcpk_status dcpk_extras_copy(struct dcpk_store *store, const char *const *names,
                             struct dcpk_folder *folder, struct dcpk_error *err);

#endif

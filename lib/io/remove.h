/* SPDX-License-Identifier: Apache-2.0 */
/* remove.h - deletes files and folders through descriptors, which no link leads elsewhere. */
#ifndef DCPK_LIB_IO_REMOVE_H
#define DCPK_LIB_IO_REMOVE_H

#include "lib/base/error.h"

/*
 * Deletes `name` in the folder of the descriptor: a file, a link (not what it points at), or a
 * folder with all in it; nothing there is fine. Links that come while it works are not followed,
 * and mounts inside are not entered. path: of the folder, for messages. Errors: DCPK_EIO;
 * DCPK_ERANGE past 64 folders in each other. A failure does not bring back deleted entries.
 */
dcpk_status dcpk_remove_at(int folder_fd, const char *name, const char *path,
                           struct dcpk_error *err);

/* Delete all that the folder holds, except an entry `kept`; NULL: none is. Errors: as above. */
dcpk_status dcpk_remove_inside(int folder_fd, const char *kept, const char *path,
                               struct dcpk_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* find_layout.h - all that chunks and files show of the layout that a checkpoint was saved with. */
#ifndef DCPK_LIB_EXEC_FIND_LAYOUT_H
#define DCPK_LIB_EXEC_FIND_LAYOUT_H

#include "lib/model/saved_layout.h"

/*
 * dcpk_saved_layout_read, and what the format finds in the canonical view of the weights
 * (mapping->match_layout). A checkpoint without such a view shows less; that is not an error.
 * Errors: DCPK_ENOMEM.
 */
dcpk_status dcpk_find_layout(struct dcpk_checkpoint *ckpt, struct dcpk_saved_layout *saved,
                             struct dcpk_error *err);

#endif

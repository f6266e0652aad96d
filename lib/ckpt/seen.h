/* SPDX-License-Identifier: Apache-2.0 */
/* seen.h - what files are recognised by without reading all of them. */
#ifndef DCPK_LIB_CKPT_SEEN_H
#define DCPK_LIB_CKPT_SEEN_H

#include "lib/base/digest.h"
#include "lib/ckpt/checkpoint.h"

/* Hash the name and length of a file, and up to 64 KiB of both its ends: copies are the same.
 * Errors: DCPK_EIO, DCPK_ENOMEM. */
dcpk_status dcpk_seen_file(struct dcpk_source *source, struct dcpk_hash *hash,
                           struct dcpk_error *err);

/*
 * Hash what a checkpoint is recognised by: of all files found so far, in any order, the name, the
 * length and the time of change, and of about 1000 also both ends; and where every chunk and object
 * lies. Not the inode of a file or the time of that, which links, changes of owner and mounts
 * change without touching a byte. A journal recognises its input by it. in: where it was opened,
 * which counts itself where it is (in) a plain file, an archive; NULL: it has no path. Errors:
 * DCPK_EIO when a file is gone; DCPK_ENOMEM.
 */
dcpk_status dcpk_seen_checkpoint(const struct dcpk_checkpoint *ckpt, const char *in,
                                 struct dcpk_hash *hash, struct dcpk_error *err);

/* Keep that in a checkpoint that ranks compare: soon after it was opened, as each of them finds
 * other files later. Errors: as above. */
dcpk_status dcpk_checkpoint_see(struct dcpk_checkpoint *ckpt, const char *in,
                                struct dcpk_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* space.h - is there room for an output, before any of it is written. */
#ifndef DCPK_LIB_JOB_SPACE_H
#define DCPK_LIB_JOB_SPACE_H

#include "lib/ckpt/run.h"

/*
 * n_bytes of files are to be written to `target`; checks that its file system has that much free.
 * Space that a partial folder takes counts as free, because it is resumed or deleted; an output to
 * replace does not, because it stays until the end. File systems that do not report it, or whose
 * server may find more (NFS, SMB, FUSE, 9P), are not trusted, and quotas show only in writing.
 * Errors: DCPK_EIO naming both figures.
 */
dcpk_status dcpk_check_space(const struct dcpk_run *target, uint64_t n_bytes,
                             struct dcpk_error *err);
/* True if the two paths are on different file systems, or that cannot be known. A path that does
 * not exist yet counts as the folder around it. */
bool dcpk_is_across(const char *a, const char *b);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* space.h - is there room for an output, before any of it is written. */
#ifndef DCPK_LIB_JOB_SPACE_H
#define DCPK_LIB_JOB_SPACE_H

#include "lib/ckpt/run.h"

/*
 * n_bytes of files are to be written to `target`: has its file system that much free? What a run
 * that was cut short has allocated in the partial folder counts as free, for it is resumed or
 * deleted; what is to be replaced does not, for it stays until the end. File systems that do not
 * report it, or whose server may find more (NFS, SMB, FUSE, 9P), are not trusted, and quotas show
 * only in writing. Errors: DCPK_EIO naming both figures.
 */
dcpk_status dcpk_check_space(const struct dcpk_run *target, uint64_t n_bytes,
                             struct dcpk_error *err);
/* Are the two paths on different file systems, or can that not be known? Of what does not exist
 * yet: what is around it. */
bool dcpk_is_across(const char *a, const char *b);

#endif

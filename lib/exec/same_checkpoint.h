/* SPDX-License-Identifier: Apache-2.0 */
/* same_checkpoint.h - whether all ranks have opened the same checkpoint. */
#ifndef DCPK_LIB_EXEC_SAME_CHECKPOINT_H
#define DCPK_LIB_EXEC_SAME_CHECKPOINT_H

#include "lib/ckpt/checkpoint.h"
#include "lib/exec/ranks.h"

/*
 * Collective inside the work: checks that all ranks have the same iteration, names and sizes of
 * files, places of chunks in them, and identities of the files when they were opened
 * (dcpk_checkpoint_see). A run folder that is still written to may be opened at one iteration by
 * some ranks and at the next one by others; ranks on other hosts may have copies that differ.
 * Folders may have other paths on other ranks. Nothing is read. ranks NULL: DCPK_OK. Errors, the
 * same on all ranks: DCPK_EIO with the lowest rank that differs from rank 0, and both iterations
 * where these differ; DCPK_ENOMEM.
 */
dcpk_status dcpk_ranks_check_checkpoint(struct dcpk_ranks *ranks,
                                        const struct dcpk_checkpoint *ckpt, struct dcpk_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* resume.h - a run's state out of a checkpoint of any format and layout: each rank reads exactly
 * the rows that it keeps. */
#ifndef DCPK_LIB_TRAIN_RESUME_H
#define DCPK_LIB_TRAIN_RESUME_H

#include "lib/base/bytes.h"
#include "lib/model/model.h"
#include "lib/train/save.h"

/*
 * The treatment of a tensor that the run asks for and the checkpoint lacks, and of one that only
 * the checkpoint has, by config->files.strictness:
 *
 *                                  run alone has it   checkpoint alone has it
 *   assume_ok_unexpected (NULL)    error              ignored
 *   raise_unexpected               error              ignored
 *   raise_all                      error              error
 *   log_unexpected                 kept, noted        ignored
 *   log_all                        kept, noted        noted
 *   return_unexpected, return_all  as log_unexpected, log_all
 *   ignore_all                     kept               ignored
 *
 * Another shape is an error under all of them, except for the padding of the vocabulary; so is
 * another number of layers or heads than the checkpoint's args have, unless is_finetune. Source:
 * megatron/core/dist_checkpointing/validation.py StrictHandling @core_v0.19.0.
 */

/* True if values of the run are kept under that strictness (NULL: see above) where the checkpoint
 * has none. The caller gives them their initial values before. */
bool dcpk_resume_keeps(const char *strictness);

/*
 * Collective. Fill shards and buffers, set schedule and progress from config->files.load: its
 * newest iteration, or the one of that folder. Parameters are read from masters where there are
 * some, else from weights. checks_input: only once all stored checksums are right. no_load_optim:
 * parameters, iteration and samples alone. is_finetune: parameters alone, the run begins at 0. The
 * caller installs (fsdp.h). notes: a line each of what was kept or left out, the same on all ranks.
 * Each rank reads its boxes by a few threads, those that env names or its share of the CPUs. On
 * failure shards may have been written to; schedule and progress are as they were. Errors:
 * DCPK_EMISMATCH naming the first three differences between checkpoint and model, or an arg that
 * differs; DCPK_EFORMAT for a checkpoint without iteration, scheduler or step; DCPK_EUSAGE for a
 * strictness that is none; those of dcpk_schedule_load, of opening and of reading. All ranks return
 * the same status.
 */
dcpk_status dcpk_train_resume(const struct dcpk_saved_run *run, struct dcpk_bytes *notes,
                              struct dcpk_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* compare_args.h - compare --args: the settings of two runs, from checkpoints or files. */
#ifndef DCPK_TOOLS_COMPARE_ARGS_H
#define DCPK_TOOLS_COMPARE_ARGS_H

#include "lib/job/compare.h"
#include "tools/cmd.h"

/*
 * Read the settings of two runs, and compare them (dcpk_compare_settings). paths: of checkpoints,
 * files with flags, configurations. Errors: DCPK_EFORMAT for an empty file; DCPK_EUNSUPPORTED for
 * one that is neither, or a checkpoint without args; those of reading.
 */
dcpk_status dcpk_compare_args(const char *const paths[2], const struct dcpk_verbosity *verbosity,
                              const struct dcpk_compare_options *options,
                              struct dcpk_compare_report *report, struct dcpk_error *err);

#endif

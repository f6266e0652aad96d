/* SPDX-License-Identifier: Apache-2.0 */
/* convert_job.h - a conversion of the command line from its plan to its report. */
#ifndef DCPK_TOOLS_CONVERT_JOB_H
#define DCPK_TOOLS_CONVERT_JOB_H

#include "tools/bar.h"
#include "tools/convert_args.h"

/*
 * Plan, run and print; collective. bar: begun, is options->env's progress; ended here. Errors:
 * those of the conversion and of writing the files that `a` names, with the options that mend them.
 */
dcpk_status dcpk_convert_job(const struct dcpk_convert_args *a,
                             const struct dcpk_convert_options *options, struct dcpk_bar *bar,
                             struct dcpk_error *err);

#endif

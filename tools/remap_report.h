/* SPDX-License-Identifier: Apache-2.0 */
/* remap_report.h - what 'remap' reports. */
#ifndef DCPK_TOOLS_REMAP_REPORT_H
#define DCPK_TOOLS_REMAP_REPORT_H

#include "lib/ckpt/checkpoint.h"
#include "lib/job/remap_checkpoint.h"

/* All is borrowed. */
struct dcpk_remap_report {
    const char *folder, *device, *from, *to; /* from, to: as they were given */
    const struct dcpk_checkpoint *ckpt;
    const struct dcpk_remap_result *result;
};

/* Print it as text or as JSON. */
dcpk_status dcpk_remap_print(const struct dcpk_remap_report *report, bool as_json,
                             struct dcpk_error *err);

#endif

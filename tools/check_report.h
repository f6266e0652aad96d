/* SPDX-License-Identifier: Apache-2.0 */
/* check_report.h - what 'check' reports. */
#ifndef DCPK_TOOLS_CHECK_REPORT_H
#define DCPK_TOOLS_CHECK_REPORT_H

#include "lib/job/verdict.h"
#include "tools/checks.h"
#include "tools/cmd.h"

/* Facts for the report. Borrowed. */
struct dcpk_check_report {
    const char *folder;
    const struct dcpk_checkpoint *ckpt;
    const struct dcpk_verdict *check;
    struct dcpk_checks *checks; /* structure first; the rest is added */
    unsigned flags;             /* enum dcpk_loading_flags of the run */
    bool lists_all;             /* name every key that is missing */
    const char *remedy;         /* the command that makes it loadable; NULL: none is known */
};

/* Add a check for each thing that the loader asks for: weights, masters, ... */
void dcpk_check_report_fill(struct dcpk_check_report *report);
/* Into a document of dcpk_checks_style. `report` outlives it. */
void dcpk_check_report_put(const struct dcpk_check_report *report, struct dcpk_doc *doc);

/* The member "loads" of what is about to be written, and the row "loads in", "core 0.16, main;
 * ...", unless it has no loader. */
void dcpk_report_loads(const struct dcpk_verdict *verdict, struct dcpk_doc *doc);
/* A warning on stderr where no release loads it. */
void dcpk_warn_verdict(const struct dcpk_verbosity *verbosity, const struct dcpk_verdict *verdict);

#endif

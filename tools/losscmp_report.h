/* SPDX-License-Identifier: Apache-2.0 */
/* losscmp_report.h - the answer of losscmp, built once. */
#ifndef DCPK_TOOLS_LOSSCMP_REPORT_H
#define DCPK_TOOLS_LOSSCMP_REPORT_H

#include "lib/job/loss_compare.h"
#include "lib/report/doc.h"

/* The comparison and its rules; borrowed until the document is released. */
struct dcpk_losscmp_shown {
    const char *a, *b; /* paths of the logs */
    const struct dcpk_step_log *log_a, *log_b;
    const struct dcpk_loss_options *options;
    const struct dcpk_loss_report *report;
};

/*
 * Into a document of dcpk_losscmp_style. As text: the first iterations that differ, a line for each
 * part, what was compared, and the verdict. As JSON: all iterations. As a page: both curves, too.
 */
extern const struct dcpk_doc_style dcpk_losscmp_style;
void dcpk_losscmp_report(const struct dcpk_losscmp_shown *shown, struct dcpk_doc *doc);

#endif

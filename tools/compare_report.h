/* SPDX-License-Identifier: Apache-2.0 */
/* compare_report.h - the answer of compare-two-checkpoint, built once. */
#ifndef DCPK_TOOLS_COMPARE_REPORT_H
#define DCPK_TOOLS_COMPARE_REPORT_H

#include "lib/job/compare.h"
#include "lib/report/doc.h"

/* Facts for the report in addition to the answer. */
struct dcpk_compare_shown {
    const char *a, *b; /* paths of the two; borrowed */
    uint64_t top;      /* tensors that the text lists, of those whose elements differ */
    bool has_page;     /* figures are wanted */
};

/*
 * Into a document of dcpk_compare_style. As text: a paragraph for each difference (of tensors whose
 * elements differ the `top` furthest apart), a line for each part, what was compared, and the
 * verdict. As JSON all of the report; the kinds are only_in_a, only_in_b, shape, dtype, elements,
 * value. As a page: the verdict, the parts, and the differences of each part in a table. `report`
 * outlives it.
 */
extern const struct dcpk_doc_style dcpk_compare_style;
void dcpk_compare_report_put(const struct dcpk_compare_report *report,
                             const struct dcpk_compare_shown *shown, struct dcpk_doc *doc);

#endif

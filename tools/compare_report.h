/* SPDX-License-Identifier: Apache-2.0 */
/* compare_report.h - the answer of compare-two-checkpoint, as text and as JSON. */
#ifndef DCPK_TOOLS_COMPARE_REPORT_H
#define DCPK_TOOLS_COMPARE_REPORT_H

#include "lib/job/compare.h"

/* A line a difference (of tensors whose elements differ the `top` furthest apart), one for each
 * part, what was compared, and the verdict, to stdout. */
dcpk_status dcpk_compare_print(const struct dcpk_compare_report *report, uint64_t top,
                               struct dcpk_error *err);
/* One document with all that the report has; the kinds are only_in_a, only_in_b, shape, dtype,
 * elements, value. */
dcpk_status dcpk_compare_print_json(const struct dcpk_compare_report *report,
                                    struct dcpk_error *err);

#endif

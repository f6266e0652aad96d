/* SPDX-License-Identifier: Apache-2.0 */
/* compare_report.h - the answer of compare-two-checkpoint, built once. */
#ifndef DCPK_TOOLS_COMPARE_REPORT_H
#define DCPK_TOOLS_COMPARE_REPORT_H

#include "lib/job/compare.h"

/*
 * To stdout: a paragraph for each difference (of tensors whose elements differ the `top` furthest
 * apart), a line for each part, what was compared, and the verdict. As JSON one document with all
 * of the report; the kinds are only_in_a, only_in_b, shape, dtype, elements, value.
 */
dcpk_status dcpk_compare_print(const struct dcpk_compare_report *report, uint64_t top, bool as_json,
                               struct dcpk_error *err);

#endif

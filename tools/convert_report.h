/* SPDX-License-Identifier: Apache-2.0 */
/* convert_report.h - a conversion told in a few lines, before and after it ran. */
#ifndef DCPK_TOOLS_CONVERT_REPORT_H
#define DCPK_TOOLS_CONVERT_REPORT_H

#include "lib/exec/convert.h"

/* To stdout: what will be (dry run) or was done; what was dropped, by reason. */
void dcpk_print_conversion(const struct dcpk_conversion *c, bool dry_run);

/* The whole report as JSON into a file, or to stdout when path is NULL. */
dcpk_status dcpk_write_conversion(const struct dcpk_conversion *c, const char *path,
                                  struct dcpk_error *err);

/* Can a file be written at `path`? what: "report", for the message. Asked before a conversion, so
 * that its end does not fail for that. */
dcpk_status dcpk_check_file_path(const char *what, const char *path, struct dcpk_error *err);

/* "27 parameters, 81 tensors, ...": what a proof compared. Returns text. */
#define DCPK_PROOF_TEXT_BYTES 384
const char *dcpk_proof_text(const struct dcpk_prove_report *report,
                            char text[DCPK_PROOF_TEXT_BYTES]);

#endif

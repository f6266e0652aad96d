/* SPDX-License-Identifier: Apache-2.0 */
/* convert_report.h - a conversion told in a few lines, before and after it ran. */
#ifndef DCPK_TOOLS_CONVERT_REPORT_H
#define DCPK_TOOLS_CONVERT_REPORT_H

#include "lib/job/convert.h"

/* The files beside the checkpoint that a conversion was asked for; NULL: not asked for. */
struct dcpk_convert_files {
    const char *report, *hashes;
};

/*
 * To stdout: what will be (dry run) or was done, every file written beside the data, and what was
 * left out, by reason. Errors: DCPK_ENOMEM; DCPK_EIO when stdout is closed or full.
 */
dcpk_status dcpk_print_conversion(const struct dcpk_conversion *c,
                                  const struct dcpk_convert_files *files, bool dry_run,
                                  struct dcpk_error *err);

/* The whole report as JSON into a file, or to stdout when path is NULL. */
dcpk_status dcpk_write_conversion(const struct dcpk_conversion *c, const char *path,
                                  struct dcpk_error *err);

/*
 * Can a file be written at `path`? Asked before a conversion, so that its end does not fail for
 * that. what: "report", for the message. Errors: DCPK_EUSAGE when a file is there that may not be
 * replaced; DCPK_EIO when the folder cannot be written to.
 */
dcpk_status dcpk_check_file_path(const char *what, const char *path, bool may_replace,
                                 struct dcpk_error *err);

/* "27 parameters, 81 tensors, ...": what a proof compared. Returns text. */
#define DCPK_PROOF_TEXT_BYTES 640
const char *dcpk_proof_text(const struct dcpk_compare_report *report,
                            char text[DCPK_PROOF_TEXT_BYTES]);

#endif

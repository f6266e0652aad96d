/* SPDX-License-Identifier: Apache-2.0 */
/* convert_report.h - what a conversion reports, before and after it ran. */
#ifndef DCPK_TOOLS_CONVERT_REPORT_H
#define DCPK_TOOLS_CONVERT_REPORT_H

#include "lib/job/convert.h"
#include "lib/report/doc.h"

/* Facts for the report in addition to the conversion. A file is NULL where it was not asked for. */
struct dcpk_convert_files {
    const char *report, *html, *hashes;
    bool dry_run, is_verbose; /* verbose: with what a person seldom needs */
};

/*
 * Into a document of dcpk_convert_style: what will be (dry run) or was done, every file written
 * next to the data, what was left out, by reason; for a program every key with its source or
 * reason. `c` outlives it.
 */
extern const struct dcpk_doc_style dcpk_convert_style;
void dcpk_convert_report(const struct dcpk_conversion *c, const struct dcpk_convert_files *files,
                         struct dcpk_doc *doc);
/* For a page: figures, and source and target side by side. */
void dcpk_convert_report_page(const struct dcpk_conversion *c,
                              const struct dcpk_convert_files *files, struct dcpk_doc *doc);
/* Every key of the output. */
void dcpk_convert_report_keys(const struct dcpk_conversion *c, struct dcpk_doc *doc);

/* "27 parameters, 81 tensors, ...": what a proof compared. Returns text. */
#define DCPK_PROOF_TEXT_BYTES 640
const char *dcpk_proof_text(const struct dcpk_compare_report *report,
                            char text[DCPK_PROOF_TEXT_BYTES]);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* checks.h - a list of named checks and their outcomes, and how it is reported. */
#ifndef DCPK_TOOLS_CHECKS_H
#define DCPK_TOOLS_CHECKS_H

#include <stddef.h>

#include "lib/base/error.h"
#include "lib/ckpt/checkpoint.h"
#include "lib/job/verify.h"
#include "lib/report/doc.h"
#include "tools/cmd.h"

#define DCPK_MAX_CHECKS 16

/*
 * DCPK_OK, or why the answer is no (DCPK_EFORMAT, DCPK_EMISMATCH) or could not be had (the rest).
 */
struct dcpk_check {
    const char *name; /* one word, borrowed */
    dcpk_status status;
    char text[DCPK_CLI_ERROR_BYTES];
};

struct dcpk_checks {
    struct dcpk_check list[DCPK_MAX_CHECKS];
    size_t n;
};

/* Record a check: what was found (fmt) when st is DCPK_OK, else err's text. At most
 * DCPK_MAX_CHECKS. */
void dcpk_checks_add(struct dcpk_checks *checks, const char *name, dcpk_status st,
                     const struct dcpk_error *err, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* Add those of dcpk_verify_metadata, and that the checkpoint could be opened: structure. */
void dcpk_checks_structure(struct dcpk_checks *checks, const struct dcpk_checkpoint *ckpt,
                           const struct dcpk_outcome *outcomes);
/* Add those of dcpk_verify. against: the source's name, with --against. */
void dcpk_checks_verified(struct dcpk_checks *checks, const struct dcpk_checkpoint *ckpt,
                          const struct dcpk_verification *v, const char *against);

/* 0: all hold; 1: one fails; 2 to 4: none does, but one could not be made. */
int dcpk_checks_exit_code(const struct dcpk_checks *checks);

/*
 * Into a document of dcpk_checks_style: the table of {"name", "ok", "text"}; "ok" and the verdict.
 */
extern const struct dcpk_doc_style dcpk_checks_style;
void dcpk_checks_report_rows(const struct dcpk_checks *checks, struct dcpk_doc *doc);
void dcpk_checks_report_verdict(const struct dcpk_checks *checks, struct dcpk_doc *doc);

/*
 * Print both. One JSON document has {"checks", "format", "ok", "version"}; with a proof (NULL: none
 * was asked for) also its "differences", of which at most DCPK_MAX_KEPT are kept, and
 * "n_differences", all of them.
 */
dcpk_status dcpk_checks_print(const struct dcpk_checks *checks, const char *format,
                              const struct dcpk_compare_report *proof, bool as_json,
                              struct dcpk_error *err);

#endif

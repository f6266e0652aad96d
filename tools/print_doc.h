/* SPDX-License-Identifier: Apache-2.0 */
/* print_doc.h - a document (lib/report/doc.h) to stdout, as JSON or as a page into a file. */
#ifndef DCPK_TOOLS_PRINT_DOC_H
#define DCPK_TOOLS_PRINT_DOC_H

#include "lib/ckpt/checkpoint.h"
#include "lib/ckpt/run.h"
#include "lib/report/doc.h"

/* The place of a document. */
struct dcpk_print_options {
    bool is_silent;          /* not to stdout */
    bool as_json;            /* there as one JSON document, else as text */
    bool text_to_stderr;     /* stdout has a result of its own */
    const char *json, *html; /* files that a person named; NULL: none */
    bool replaces_links;     /* a program chose html: a link there is not written into */
};

/* Write and print it, and release it, also after a failure. Errors: the document's; those of
 * lib/io/file.h; DCPK_EIO when stdout is closed or full. */
dcpk_status dcpk_print_doc(struct dcpk_doc *doc, const struct dcpk_print_options *way,
                           struct dcpk_error *err);
/*
 * Checks, before the work, that a page can be written at `path` (NULL: none is), apart from the
 * input `in` (NULL: there is none). Errors: DCPK_EUSAGE when a file other than a page is there, or
 * it would lie in `in`; DCPK_EIO when the folder cannot be written to.
 */
dcpk_status dcpk_check_page(const char *path, const char *in, struct dcpk_error *err);
/* True if the file at `path` begins as a page does. */
bool dcpk_is_page(const char *path);
/* "run/iter_0000004" of "/ckpt/run/iter_0000004"; of other paths what is after the last slash. */
const char *dcpk_page_title(const char *path);
/* A heading that text does not have. */
void dcpk_doc_page_heading(struct dcpk_doc *doc, const char *text);

/* The members "generation" and "releases" of a checkpoint. */
void dcpk_doc_set_origin(struct dcpk_doc *doc, const struct dcpk_checkpoint *ckpt);
/* The member "tracker" of an output (dcpk_target_put_tracker). */
void dcpk_doc_set_tracker(struct dcpk_doc *doc, const struct dcpk_run *target, bool dry_run);

/*
 * Checks before a conversion that a file can be written at `path`, so that the conversion does not
 * fail at its end. what: "report", for the message. Errors: DCPK_EUSAGE when a file is there that
 * may not be replaced; DCPK_EIO when the folder cannot be written to.
 */
dcpk_status dcpk_check_file_path(const char *what, const char *path, bool may_replace,
                                 struct dcpk_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* checks.c - a list of named checks and their outcomes, and how it is reported. */
#include "tools/checks.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

#include "lib/base/order.h"
#include "lib/ckpt/format.h"
#include "lib/ckpt/integrity.h"
#include "tools/convert_report.h"
#include "tools/print_doc.h"

void dcpk_checks_add(struct dcpk_checks *checks, const char *name, dcpk_status st,
                     const struct dcpk_error *err, const char *fmt, ...)
{
    struct dcpk_check *check = &checks->list[checks->n];
    va_list ap;

    assert(checks->n < DCPK_MAX_CHECKS);
    checks->n++;
    check->name = name;
    check->status = st;
    va_start(ap, fmt);
    if (st == DCPK_OK)
        vsnprintf(check->text, sizeof check->text, fmt, ap);
    else
        dcpk_cli_error_text(err, check->text);
    va_end(ap);
}

int dcpk_checks_exit_code(const struct dcpk_checks *checks)
{
    int code = DCPK_EXIT_OK;

    for (size_t i = 0; i < checks->n; i++) {
        const dcpk_status st = checks->list[i].status;

        if (st == DCPK_EFORMAT || st == DCPK_EMISMATCH)
            return DCPK_EXIT_NO;
        code = (int)dcpk_max_i64(code, dcpk_cli_exit_code(st));
    }
    return code;
}

const struct dcpk_doc_style dcpk_checks_style = {.label_columns = 12};

static void fill_checks(const void *context, struct dcpk_doc_rows *rows)
{
    const struct dcpk_checks *checks = context;

    for (size_t i = 0; i < checks->n; i++) {
        const struct dcpk_check *check = &checks->list[i];
        const bool is_ok = check->status == DCPK_OK;

        DCPK_DOC_PUT(rows, {"name", "check", .fact = dcpk_fact_text(check->name), .width = 10},
                     {.title = "answer",
                      .fact = dcpk_fact_text(is_ok ? "ok" : "FAILED"),
                      .flags = is_ok ? DCPK_DOC_GOOD : DCPK_DOC_BAD,
                      .width = 6},
                     {"text", "found", .fact = dcpk_fact_text(check->text)},
                     DCPK_MEMBER("ok", dcpk_fact_flag(is_ok)));
    }
}

void dcpk_checks_report_rows(const struct dcpk_checks *checks, struct dcpk_doc *doc)
{
    dcpk_doc_table(doc, "checks", &(struct dcpk_doc_table){.fill = fill_checks, .context = checks});
}

void dcpk_checks_report_verdict(const struct dcpk_checks *checks, struct dcpk_doc *doc)
{
    const int code = dcpk_checks_exit_code(checks);
    const bool is_ok = code == DCPK_EXIT_OK;
    size_t i = 0;

    while (i < checks->n && checks->list[i].status == DCPK_OK)
        i++;
    if (is_ok || code == DCPK_EXIT_NO)
        dcpk_doc_verdict(doc, is_ok, "%s", is_ok ? "ok" : "NOT ok");
    else
        dcpk_doc_verdict(doc, false, "not known: the check '%s' was not possible",
                         checks->list[i].name);
    dcpk_doc_set_flag(doc, "ok", is_ok);
}

static void fill_proof_differences(const void *context, struct dcpk_doc_rows *rows)
{
    const struct dcpk_compare_report *proof = context;

    for (const struct dcpk_difference *d = proof->differences.first; d != NULL; d = d->next)
        DCPK_DOC_PUT(rows, DCPK_MEMBER(NULL, dcpk_fact_text(d->sentence)));
}

/* Reports differences, the masters of the source, and how much of it is left out. */
static void report_verify_proof(const struct dcpk_compare_report *proof, struct dcpk_doc *doc)
{
    const struct dcpk_left *left = &proof->left;

    dcpk_doc_set_table(doc, "differences",
                       &(struct dcpk_doc_table){.flags = DCPK_DOC_LIST,
                                                .fill = fill_proof_differences,
                                                .context = proof});
    dcpk_doc_set_count(doc, "n_differences", proof->differences.n);
    dcpk_doc_set_count(doc, "n_not_finite", proof->n_not_finite);
    dcpk_doc_set_count(doc, "n_overflowed", proof->n_overflowed);
    dcpk_doc_set_count(doc, "n_rounded", proof->n_rounded);
    dcpk_doc_set_count(doc, "n_source_objects", left->n_objects);
    dcpk_doc_set_count(doc, "n_source_objects_left_out", left->n_objects_left);
    dcpk_doc_set_count(doc, "n_source_tensors", left->n_tensors);
    dcpk_doc_set_count(doc, "n_source_tensors_left_out", left->n_tensors_left);
}

dcpk_status dcpk_checks_print(const struct dcpk_checks *checks, const char *format,
                              const struct dcpk_compare_report *proof, bool as_json,
                              struct dcpk_error *err)
{
    struct dcpk_doc doc;

    dcpk_doc_init(&doc, "verify", &dcpk_checks_style);
    dcpk_checks_report_rows(checks, &doc);
    dcpk_checks_report_verdict(checks, &doc);
    dcpk_doc_set_text(&doc, "format", format);
    if (proof != NULL)
        report_verify_proof(proof, &doc);
    dcpk_doc_set_count(&doc, "version", 1);
    return dcpk_print_doc(&doc, &(struct dcpk_print_options){.as_json = as_json}, err);
}

/* ---- the checks of a checkpoint in words ---- */

void dcpk_checks_structure(struct dcpk_checks *checks, const struct dcpk_checkpoint *ckpt,
                           const struct dcpk_outcome *outcomes)
{
    const struct dcpk_error none = DCPK_ERROR_INIT;
    const struct dcpk_error *whole = &outcomes[DCPK_VERIFY_WHOLE].err;
    const struct dcpk_error *cover = &outcomes[DCPK_VERIFY_COVER].err;
    const struct dcpk_error *places = &outcomes[DCPK_VERIFY_OVERLAPS].err;
    char tensors[DCPK_COUNT_TEXT_BYTES], chunks[DCPK_COUNT_TEXT_BYTES];
    char objects[DCPK_COUNT_TEXT_BYTES], files[DCPK_COUNT_TEXT_BYTES];

    dcpk_checks_add(checks, "structure", DCPK_OK, &none,
                    "%s: %s, %s, %s in %s; every box inside its tensor, every place inside its "
                    "file, every file inside the folder",
                    ckpt->format->name, dcpk_cli_count(ckpt->n_tensors, "tensor", tensors),
                    dcpk_cli_count(ckpt->n_chunks, "chunk", chunks),
                    dcpk_cli_count(ckpt->n_objects, "object", objects),
                    dcpk_cli_count(ckpt->n_files, "file", files));
    dcpk_checks_add(checks, "whole", whole->status, whole,
                    "nothing that belongs to tensors and objects of %s is missing",
                    ckpt->format->name);
    dcpk_checks_add(checks, "cover", cover->status, cover,
                    "the chunks of every tensor cover it exactly");
    dcpk_checks_add(checks, "places", places->status, places,
                    "no two items share bytes, except exact aliases");
}

/* The row of a check, if it was made; `text`: when it holds. */
static void checks_add_made(struct dcpk_checks *checks, const char *name,
                            const struct dcpk_outcome *outcome, const char *text)
{
    if (outcome->is_made)
        dcpk_checks_add(checks, name, outcome->err.status, &outcome->err, "%s", text);
}

void dcpk_checks_verified(struct dcpk_checks *checks, const struct dcpk_checkpoint *ckpt,
                          const struct dcpk_verification *v, const char *against)
{
    const struct dcpk_outcome *outcomes = v->outcomes;
    char text[DCPK_ERROR_BYTES], size[DCPK_SIZE_TEXT_BYTES], proof[DCPK_PROOF_TEXT_BYTES];
    char count[DCPK_COUNT_TEXT_BYTES];

    if (outcomes[DCPK_VERIFY_WHOLE].is_made)
        dcpk_checks_structure(checks, ckpt, outcomes);
    snprintf(text, sizeof text, "%s readable, with known classes only",
             dcpk_cli_count(ckpt->n_objects, "object", count));
    checks_add_made(checks, "pickles", &outcomes[DCPK_VERIFY_PICKLES], text);
    snprintf(text, sizeof text, "the CRC-32 of every record is right, %s read",
             dcpk_cli_size(v->item_bytes, size));
    if (!v->has_checksums) /* zarr: nothing records what they were */
        snprintf(
            text, sizeof text,
            "the format stores no checksums of tensor bytes; compressed chunks can be decoded");
    checks_add_made(checks, "checksums", &outcomes[DCPK_VERIFY_CHECKSUMS], text);
    snprintf(text, sizeof text, "%zu files have the SHA-256 that '" DCPK_INTEGRITY_NAME "' lists",
             v->n_listed);
    checks_add_made(checks, "integrity", &outcomes[DCPK_VERIFY_INTEGRITY], text);
    if (v->is_compared)
        snprintf(text, sizeof text, "equal to '%s': %s", against,
                 dcpk_proof_text(&v->proof, proof));
    checks_add_made(checks, "against", &outcomes[DCPK_VERIFY_AGAINST], text);
    snprintf(text, sizeof text, "'" DCPK_INTEGRITY_NAME "', with the SHA-256 of %s",
             dcpk_cli_count(v->n_written, "file", count));
    checks_add_made(checks, "written", &outcomes[DCPK_VERIFY_WRITTEN], text);
}

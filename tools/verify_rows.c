/* SPDX-License-Identifier: Apache-2.0 */
/* verify_rows.c - the checks of a checkpoint in words. */
#include <stdio.h>

#include "lib/ckpt/format.h"
#include "lib/ckpt/integrity.h"
#include "tools/checks.h"
#include "tools/cmd.h"
#include "tools/convert_report.h"

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

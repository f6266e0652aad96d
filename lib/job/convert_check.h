/* SPDX-License-Identifier: Apache-2.0 */
/* convert_check.h - what is done with a written output before it is published. */
#ifndef DCPK_LIB_JOB_CONVERT_CHECK_H
#define DCPK_LIB_JOB_CONVERT_CHECK_H

#include "lib/job/convert.h"

/*
 * Refuse what reads the written folder where there will be none, before anything is written.
 * Errors: DCPK_EUSAGE for an archive; for an integrity.json of a format that keeps files in folders
 * of their own, which the list cannot name.
 */
dcpk_status dcpk_conversion_can_check(const struct dcpk_conversion *c, struct dcpk_error *err);

/* True if the flags ask for a step that reads the output back. */
bool dcpk_conversion_reads_back(const struct dcpk_conversion *c);

/*
 * Open the folder under construction (NULL: the output that was there) afresh and do what the flags
 * ask for: prove it (fills c->proof), hash its tensors (fills c->hashes), add integrity.json. Drops
 * its files from the page cache first, so that what is read is what the storage holds; a system may
 * still answer from memory. Without such flags nothing is done. Collective inside the work where
 * the options have ranks: all must have closed what they wrote. Errors: DCPK_EMISMATCH when the
 * output is not a faithful conversion, DCPK_EFORMAT when it is damaged.
 */
dcpk_status dcpk_conversion_check(struct dcpk_conversion *c, struct dcpk_folder *folder,
                                  struct dcpk_error *err);

#endif

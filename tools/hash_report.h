/* SPDX-License-Identifier: Apache-2.0 */
/* hash_report.h - what hash prints: a list of hashes, of tensors or of files, and how it stands to
 * a recorded one. */
#ifndef DCPK_TOOLS_HASH_REPORT_H
#define DCPK_TOOLS_HASH_REPORT_H

#include "lib/ckpt/integrity.h"
#include "lib/job/delta.h"
#include "lib/job/hash_list.h"

/* As text, or as the document of hash_list.h. */
dcpk_status dcpk_hash_print(const struct dcpk_hash_list *list, const struct dcpk_checkpoint *ckpt,
                            bool as_json, struct dcpk_error *err);

struct dcpk_hash_check {
    const struct dcpk_hash_list *recorded, *found;
    const char *format; /* of the folder */
    /* Parts that the folder has lost (check_whole); status DCPK_OK: none. */
    const struct dcpk_error *lost;
};
/*
 * Print what differs, what FILE does not cover, and a verdict for tensors and for objects. A list
 * of another format gets one line in the place of its keys. As JSON: {"differences": {key:
 * {"found", "recorded"}}, "format": {"found", "recorded"}, "lost": text or null, "n_not_covered",
 * "objects": counts, "ok", "tensors": counts, "version", "whole": {"found", "recorded"}}. *ok: all
 * is as recorded.
 */
dcpk_status dcpk_hash_print_check(const struct dcpk_hash_check *check, bool as_json, bool *ok,
                                  struct dcpk_error *err);

/* ---- files ---- */

/* As lines of sha256sum, or as {"algorithm", "files": {name: hex}, "version"}. */
dcpk_status dcpk_hash_files_print(const struct dcpk_integrity *list, bool as_json,
                                  struct dcpk_error *err);
/*
 * Print which files are other ones, missing or new, and the verdict. As JSON: {"differences":
 * {name: {"found", "recorded"}}, "ok", "version"}. *ok: all are as recorded, and there are no
 * others.
 */
dcpk_status dcpk_hash_files_print_check(const struct dcpk_integrity *recorded,
                                        const struct dcpk_integrity *found, bool as_json, bool *ok,
                                        struct dcpk_error *err);

/* A line for each block: its hash, its first byte, the file. */
dcpk_status dcpk_hash_blocks_print(const struct dcpk_block_list *blocks, struct dcpk_error *err);

#endif

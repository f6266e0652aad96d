/* SPDX-License-Identifier: Apache-2.0 */
/* hash_report.h - what hash prints: a list of hashes, and how it stands to a recorded one. */
#ifndef DCPK_TOOLS_HASH_REPORT_H
#define DCPK_TOOLS_HASH_REPORT_H

#include "lib/job/hash_list.h"

/* As text, or as the document of hash_list.h. */
dcpk_status dcpk_hash_print(const struct dcpk_hash_list *list, const struct dcpk_checkpoint *ckpt,
                            bool as_json, struct dcpk_error *err);

struct dcpk_hash_check {
    const struct dcpk_hash_list *recorded, *found;
    /* What the folder has lost (check_whole); status DCPK_OK: nothing. */
    const struct dcpk_error *lost;
};
/*
 * Print what differs, what FILE does not cover, and the verdict. As JSON: {"differences": {key:
 * {"found", "recorded"}}, "lost": text or null, "n_not_covered", "ok", "version", "whole":
 * {"found", "recorded"}}. *ok: is all as recorded?
 */
dcpk_status dcpk_hash_print_check(const struct dcpk_hash_check *check, bool as_json, bool *ok,
                                  struct dcpk_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* hash_files.h - what hash --files prints: the SHA-256 of every file, and how it stands to a
 * recorded list. */
#ifndef DCPK_TOOLS_HASH_FILES_H
#define DCPK_TOOLS_HASH_FILES_H

#include "lib/ckpt/integrity.h"

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

#endif

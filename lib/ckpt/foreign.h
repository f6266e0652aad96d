/* SPDX-License-Identifier: Apache-2.0 */
/* foreign.h - describes a folder that is not a checkpoint we read. */
#ifndef DCPK_LIB_CKPT_FOREIGN_H
#define DCPK_LIB_CKPT_FOREIGN_H

#include "lib/io/store.h"

struct dcpk_checkpoint;
struct dcpk_format;

#define DCPK_FOREIGN_BYTES 512

/*
 * Recognises a folder by the names in it, with its remedy: another program's checkpoint, a copy
 * without its hidden files, the folder above a run. Text to append to an error: begins with "; ",
 * "" when nothing is recognised. Reads names of files, not their content. formats: NULL-terminated,
 * whose marks count. text: the room for it; returned. Cannot fail: a folder that cannot be listed
 * gives "".
 */
const char *dcpk_foreign_hint(struct dcpk_store *store, const struct dcpk_format *const *formats,
                              char text[DCPK_FOREIGN_BYTES]);

/*
 * Recognise the program that wrote a folder of PyTorch's by its keys. Returns what it is, and how
 * to get a folder that converts: "a checkpoint of torchtitan: ..."; NULL: not known.
 */
const char *dcpk_foreign_of_keys(const struct dcpk_checkpoint *ckpt);

/* Refuse an address ("s3://bucket/run") where a path is asked for. Errors: DCPK_EUNSUPPORTED. */
dcpk_status dcpk_foreign_check_address(const char *path, struct dcpk_error *err);

#endif

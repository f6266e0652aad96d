/* SPDX-License-Identifier: Apache-2.0 */
/* integrity.h - Megatron's list of the SHA-256 of a checkpoint's files. */
#ifndef DCPK_LIB_CKPT_INTEGRITY_H
#define DCPK_LIB_CKPT_INTEGRITY_H

#include <stdbool.h>

#include "lib/base/arena.h"
#include "lib/base/bytes.h"
#include "lib/base/digest.h"
#include "lib/base/json.h"
#include "lib/io/store.h"

/*
 * Written after all other files, by runs with --verify-integrity:
 *   {"algorithm": "sha256", "files": {"<name>": "<lowercase hex>", ...}}   indented by 2
 * for every plain file directly in the folder but itself, sorted by name. Source:
 * formats/torch_dist/FORMAT.md 1.3; save_integrity_manifest, _verify_integrity_manifest_impl of
 * megatron/core/dist_checkpointing/validation.py @core_v0.17.1, unchanged in 0.19.0 and main.
 */
#define DCPK_INTEGRITY_NAME "integrity.json"

struct dcpk_file_sum {
    const char *name;
    uint8_t sha256[DCPK_SHA256_BYTES];
};

/* Names live in the arena. Zero it before use; release it in any case. */
struct dcpk_integrity {
    struct dcpk_arena *arena;
    struct dcpk_file_sum *files;
    size_t n_files;
};
void dcpk_integrity_release(struct dcpk_integrity *list); /* zeroed: a no-op */

/*
 * Read the list in a store that has one. A missing "algorithm" is sha256, as for Megatron; names
 * may be anything. Errors: DCPK_EFORMAT for what is not such a list; DCPK_EUNSUPPORTED for another
 * algorithm.
 */
dcpk_status dcpk_integrity_read(struct dcpk_store *store, struct dcpk_integrity *list,
                                struct dcpk_error *err);

/* The files of a store that belong into its list, in order; their sums are zero. */
dcpk_status dcpk_integrity_collect(struct dcpk_store *store, struct dcpk_integrity *list,
                                   struct dcpk_error *err);

/*
 * Every file of a store, also in its folders, by its path, in order; their sums are zero. Left out:
 * a journal. Errors also: DCPK_ERANGE past 64 folders in each other.
 */
dcpk_status dcpk_integrity_collect_all(struct dcpk_store *store, struct dcpk_integrity *list,
                                       struct dcpk_error *err);

/* Read a list from text: such a document, or lines of sha256sum; in the order of the names. Errors
 * as of dcpk_integrity_read; DCPK_EFORMAT for a name that is there twice. */
dcpk_status dcpk_integrity_parse(const char *text, size_t n_bytes, struct dcpk_integrity *list,
                                 struct dcpk_error *err);

/* True if the text begins like such a list, and not like one of hash_list.h. */
bool dcpk_integrity_is_list(const char *text, size_t n_bytes);

/* Adds "algorithm" and "files" to a larger document. */
void dcpk_integrity_put_members(const struct dcpk_integrity *list, struct dcpk_json_out *j);

/* The text of the file, byte for byte Megatron's for the same files. Errors are sticky in
 * `text`. */
void dcpk_integrity_put(const struct dcpk_integrity *list, struct dcpk_bytes *text);

#endif

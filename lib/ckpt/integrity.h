/* SPDX-License-Identifier: Apache-2.0 */
/* integrity.h - Megatron's list of the SHA-256 of a checkpoint's files. */
#ifndef DCPK_LIB_CKPT_INTEGRITY_H
#define DCPK_LIB_CKPT_INTEGRITY_H

#include "lib/base/arena.h"
#include "lib/base/bytes.h"
#include "lib/base/sha256.h"
#include "lib/base/store.h"

/*
 * Written after all other files, by runs with --verify-integrity:
 *   {"algorithm": "sha256", "files": {"<name>": "<lowercase hex>", ...}}   indented by 2
 * for every plain file directly in the folder but itself, sorted by name. Source: torch_dist.md
 * 1.3; save_integrity_manifest, _verify_integrity_manifest_impl of
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
void dcpk_integrity_release(struct dcpk_integrity *list);

/*
 * Read the list in a store that has one. A missing "algorithm" is sha256, as for Megatron; names
 * may be anything. Errors: DCPK_EFORMAT for what is no such list; DCPK_EUNSUPPORTED for another
 * algorithm.
 */
dcpk_status dcpk_integrity_read(struct dcpk_store *store, struct dcpk_integrity *list,
                                struct dcpk_error *err);

/* The files of a store that belong into its list, in order; their sums are zero. */
dcpk_status dcpk_integrity_collect(struct dcpk_store *store, struct dcpk_integrity *list,
                                   struct dcpk_error *err);

/* The text of the file, byte for byte Megatron's for the same files. Errors are sticky in `text`.
 */
void dcpk_integrity_put(const struct dcpk_integrity *list, struct dcpk_bytes *text);

#endif

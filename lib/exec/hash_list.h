/* SPDX-License-Identifier: Apache-2.0 */
/* hash_list.h - the hashes of a checkpoint's tensors as a document that can be checked later. */
#ifndef DCPK_LIB_EXEC_HASH_LIST_H
#define DCPK_LIB_EXEC_HASH_LIST_H

#include "lib/base/json.h"
#include "lib/ckpt/format.h"
#include "lib/ckpt/summary.h"
#include "lib/exec/exec.h"

/* A stored tensor and the XXH3-128 of its elements, row-major: the same however it is chunked. */
struct dcpk_hashed {
    const char *key;
    enum dcpk_dtype dtype;
    int rank;
    const int64_t *shape;
    uint64_t n_bytes; /* of its elements */
    struct dcpk_hash hash;
};

/* In key order. Everything lives in the arena. Zero it before use; release it in any case. */
struct dcpk_hash_list {
    struct dcpk_arena *arena;
    struct dcpk_hashed *tensors;
    size_t n;
};
void dcpk_hash_list_release(struct dcpk_hash_list *list);

/* Hash every stored tensor of ckpt, exec's checkpoint; the list borrows keys and shapes from it. */
dcpk_status dcpk_hash_list_make(struct dcpk_exec *exec, const struct dcpk_checkpoint *ckpt,
                                struct dcpk_hash_list *list, struct dcpk_error *err);

/* 32 hexadecimal digits. Returns text. */
#define DCPK_HASH_TEXT_BYTES 33
const char *dcpk_hash_text(const struct dcpk_hash *hash, char text[DCPK_HASH_TEXT_BYTES]);

/* {"dtype", "n_bytes", "shape", "xxh3_128"} */
void dcpk_hashed_put(const struct dcpk_hashed *tensor, struct dcpk_json_out *j);

/*
 * The document: {"format", "tensors": {key: as above}, "totals", "version"}, indented by 2, no
 * newline at the end. Errors: DCPK_ENOMEM, DCPK_ERANGE.
 */
dcpk_status dcpk_hash_list_print(const struct dcpk_hash_list *list,
                                 const struct dcpk_checkpoint *ckpt, struct dcpk_bytes *text,
                                 struct dcpk_error *err);
/*
 * Read such a document; of it just "tensors", and of each of these dtype, shape and xxh3_128, so
 * that manifests of other programs can be read. Errors: DCPK_EFORMAT for what is none,
 * DCPK_ERANGE for a
 * shape past all limits, DCPK_EUNSUPPORTED for a dtype that is not known.
 */
dcpk_status dcpk_hash_list_parse(const char *text, size_t n_bytes, struct dcpk_hash_list *list,
                                 struct dcpk_error *err);

/*
 * Hold two lists against each other: `each` is called for every key whose tensors differ in dtype,
 * shape or hash, in key order; NULL for the side that has none. Returns how many there are.
 */
typedef void dcpk_hash_differs(void *context, const struct dcpk_hashed *a,
                               const struct dcpk_hashed *b);
size_t dcpk_hash_list_compare(const struct dcpk_hash_list *a, const struct dcpk_hash_list *b,
                              dcpk_hash_differs *each, void *context);

#endif
